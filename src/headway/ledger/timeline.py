"""The timeline of one process: every nanosecond it held, and what for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.ledger.categories import PROGRAM
from headway.ledger.facts import FARTHEST_NS, Facts, gather
from headway.ledger.history import Process, Rows
from headway.ledger.ledger import Stall, Steps
from headway.ledger.pieces import Pieces, owned, places
from headway.units import show_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

STATES: Final = ("productive", "rework", "rollback")
"""What becomes of a step; the place in this tuple is the code in `Timeline.state`."""
COMPILE_FROM: Final = 3
"""So many later steps make a median that compile time can be inferred from."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """One process, in its monotonic clock.

    Attributes:
        facts: What its events say.
        begin_ns, end_ns: The window it held [ns].
        spans: Which foreground span owns which piece; the owner is a place in ``facts.spans``.
        step, start: Its rows in the order of their start, ``(n,)`` int64.
        pieces: What is left to rows beside spans; the owner is a row.
        offset: Own time of its row before each piece [ns].
        own: Own time of each row [ns], ``(n,)``.
        waits: By phase, the part of ``own`` that waited [ns], each ``(n,)``; program losses are among them.
        compiled: By row, the part of ``own`` inferred to be compile time [ns].
        first_ns, last_ns: From the first row's start to the last row's end [ns].
        state: By row, a place in `STATES`, ``(n,)`` int8.
        saved_to: The last saved step of a rank that has not closed: later ones are uncommitted; else None.
        warnings: Sentences.
    """

    facts: Facts
    begin_ns: int
    end_ns: int
    spans: Pieces
    step: Ints
    start: Ints
    pieces: Pieces
    offset: Ints
    own: Ints
    waits: dict[str, Ints]
    compiled: dict[int, int]
    first_ns: int
    last_ns: int
    state: NDArray[np.int8]
    saved_to: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def begin_wall_ns(self) -> int:
        """Where it begins on the wall clock [ns since the Unix epoch]."""
        return self.facts.wall_ns(self.begin_ns)

    @property
    def end_wall_ns(self) -> int:
        """Where it ends on the wall clock [ns since the Unix epoch]."""
        return self.facts.wall_ns(self.end_ns)

    def with_state(self, state: NDArray[np.int8], saved_to: int | None) -> Timeline:
        """Return it with the fate of its rows."""
        return replace(self, state=state, saved_to=saved_to)

    def numbers(self) -> tuple[Ints, Ints]:
        """Return for each distinct step its first row, and for each row its distinct step.

        A number that comes back without a mark is part of that step; after a ``restored`` mark
        inside the attempt it is another step.
        """
        if np.all(self.step[1:] > self.step[:-1]):
            every = places(len(self.step))
            return every, every
        marks = np.array([mark.at for mark in self.facts.restored], np.int64)
        era = np.searchsorted(marks, self.start, "right")
        _, first, inverse = np.unique(np.stack([era, self.step]), axis=1, return_index=True, return_inverse=True)
        return first, inverse.reshape(-1)

    @cached_property
    def inferred(self) -> frozenset[str]:
        """Categories of time that nobody recorded under that name."""
        worked_out = {span.category for span in self.facts.spans if span.inferred}
        return frozenset(worked_out | {"compile"} if self.compiled else worked_out)

    @cached_property
    def _begun(self) -> tuple[Ints, NDArray[np.int8], Ints]:
        """When each distinct step began, ascending, its state and its number, ``(n,)`` each."""
        first, _ = self.numbers()
        each = slice(None) if len(first) == len(self.step) else first
        began, state, step = self.start[each], self.state[each], self.step[each]
        last = max(self.begin_ns, self.end_ns - 1)
        if len(began) and (began.min() < self.begin_ns or began.max() > last):
            began = np.clip(began, self.begin_ns, last)
        if not np.all(began[1:] >= began[:-1]):
            order = np.argsort(began, kind="stable")
            began, state, step = began[order], state[order], step[order]
        return began, state, step

    def steps(self, begin_ns: int, end_ns: int) -> Steps:
        """Return the counts of the steps that began in a window; windows that add to the whole count each once."""
        began, state, step = self._begun
        inside = slice(*np.searchsorted(began, [begin_ns, end_ns], "left").tolist())
        state, step = state[inside], step[inside]
        retained, reworked, rolled_back = (int(np.count_nonzero(state == code)) for code in range(len(STATES)))
        uncommitted = 0
        if self.saved_to is not None:
            uncommitted = int(np.count_nonzero((state == 0) & (step > self.saved_to)))
        return Steps(len(state), retained, uncommitted, reworked, rolled_back)

    def stall(self) -> Stall | None:
        """Return the longest wait of one retained step."""
        of_data = [wait for phase, wait in self.waits.items() if phase not in PROGRAM]
        if not of_data:
            return None
        waited = np.where(self.state == 0, sum(of_data, np.zeros_like(self.own)), 0)
        row = int(np.argmax(waited))
        me = self.facts.open
        return Stall(int(self.step[row]), me.rank, me.attempt, int(waited[row])) if waited[row] else None

    def amounts(self, begin_ns: int, end_ns: int) -> tuple[Counter[str], Counter[str]]:
        """Return what it held in a window, by category, and the waits for data in it, by phase [ns].

        A program loss that rows record is there also when it is 0: then it was measured. The
        categories sum to the part of the window the process was there. Inside a row its waits come
        first, then what was inferred to be compile time.
        """
        begin, end = max(begin_ns, self.begin_ns), min(end_ns, self.end_ns)
        amounts: Counter[str] = Counter()
        if end <= begin:
            return amounts, Counter()
        spans = self.spans.within(begin, end)
        for owner, ns in zip(spans.owner.tolist(), (spans.end - spans.start).tolist(), strict=True):
            amounts[self.facts.spans[owner].category] += ns
        booked, waits = self._rows_within(begin, end)
        amounts["startup"] += _free(spans, begin, min(end, self.first_ns))
        amounts["shutdown"] += _free(spans, max(begin, self.last_ns), end)
        inside = _free(spans, max(begin, self.first_ns), min(end, self.last_ns))
        amounts["unaccounted"] += inside - booked.total()
        amounts.update(booked)
        return amounts, waits

    def _rows_within(self, begin: int, end: int) -> tuple[Counter[str], Counter[str]]:
        low = int(np.searchsorted(self.pieces.end, begin, "right"))
        high = max(low, int(np.searchsorted(self.pieces.start, end, "left")))
        if low == high:
            return Counter(), Counter()
        if high - low == len(self.pieces) and begin <= self.pieces.start[0] and self.pieces.end[-1] <= end:
            return self._book(None, None, self.own)
        owner, start = self.pieces.owner[low:high], self.pieces.start[low:high]
        since = np.maximum(start, begin)
        from_own = self.offset[low:high] + since - start
        to_own = from_own + np.minimum(self.pieces.end[low:high], end) - since
        return self._book(owner, from_own, to_own)

    def _book(self, row: Ints | None, since: Ints | None, until: Ints) -> tuple[Counter[str], Counter[str]]:
        """Book stretches of the own time of rows (None: each once), from ``since`` (None: from 0) to ``until``."""
        state = self.state if row is None else self.state[row]
        kept = None if not state.any() else state == 0
        total = until if since is None else until - since
        booked: Counter[str] = Counter()
        waits: Counter[str] = Counter()
        compiled = np.zeros(len(until) if self.compiled else 0, np.int64)
        for number, ns in self.compiled.items():
            compiled[number if row is None else row == number] = ns
        edge: Ints | None = None
        for phase, column in self.waits.items():
            wait = column if row is None else column[row]
            upto = wait if edge is None else edge + wait
            part = wait if since is None else _between(edge, upto, since, until)
            waits[phase] = int(part.sum() if kept is None else part[kept].sum())
            edge = upto
        if self.compiled:
            waited = np.zeros(len(until), np.int64) if edge is None else edge
            if kept is not None:  # all of a discarded step is rework, but not what was compiled
                waited = np.where(kept, waited, 0)
            part = _between(waited, waited + compiled, np.zeros_like(until) if since is None else since, until)
            booked["compile"] = int(part.sum())
            total = total - part
        if kept is None:
            booked["productive"] = int(total.sum())
        else:
            booked.update({name: int(total[state == code].sum()) for code, name in enumerate(STATES)})
        booked["productive"] -= waits.total()
        for loss in PROGRAM & waits.keys():
            booked[loss] = waits.pop(loss)
        booked["input_wait"] = waits.total()
        return booked, waits


def _between(low: Ints | None, high: Ints, since: Ints, until: Ints) -> Ints:
    """Return how much of each stretch ``since``..``until`` lies in ``low``..``high``."""
    floor = np.zeros_like(high) if low is None else low
    return np.clip(until, floor, high) - np.clip(since, floor, high)


def _free(spans: Pieces, begin: int, end: int) -> int:
    """Return the time from begin to end that no span owns [ns]; 0 when end is before begin."""
    return end - begin - spans.within(begin, end).total() if end > begin else 0


def build(process: Process) -> Timeline:
    """Return the timeline of a process; the fate of its rows is not settled here."""
    facts = gather(process)
    notes: list[str] = []
    rows = _settle(process.rows, facts, notes)
    begin, end = facts.open.mono_ns, facts.end_ns
    spans = owned(*_edges(facts)).within(begin, end)
    whole = owned(rows.start, rows.end).within(begin, end)
    pieces = whole.without(spans)
    own, offset = _own(pieces, len(rows))
    waits = _waits(rows, own, facts, notes)
    line = Timeline(
        facts=facts,
        begin_ns=begin,
        end_ns=end,
        spans=spans,
        step=rows.step,
        start=rows.start,
        pieces=pieces,
        offset=offset,
        own=own,
        waits=waits,
        compiled={},
        first_ns=int(np.clip(rows.start[0], begin, end)) if len(rows) else end,
        last_ns=int(np.clip(rows.end.max(), begin, end)) if len(rows) else end,
        state=np.zeros(len(rows), np.int8),
        warnings=(*facts.warnings, *notes),
    )
    return replace(line, compiled=_infer_compile(line))


def _edges(facts: Facts) -> tuple[Ints, Ints]:
    starts = np.array([span.start for span in facts.spans], np.int64)
    return starts, np.array([span.end for span in facts.spans], np.int64)


def _settle(rows: Rows, facts: Facts, notes: list[str]) -> Rows:
    """Return the rows in the order of their start, each once, without impossible ones."""
    if not len(rows):
        return rows
    good = (rows.end >= rows.start) & (rows.start >= -FARTHEST_NS) & (rows.end <= FARTHEST_NS)
    n_bad = len(rows) - int(good.sum())
    if n_bad:
        notes.append(f"{facts.name}: {n_bad} steps left out: they end before they start, or at an impossible time")
        rows = _take(rows, np.flatnonzero(good))
    low, high = facts.open.mono_ns, facts.end_ns
    there = ((rows.start < high) | (rows.end <= high)) & ((rows.end > low) | (rows.start >= low))
    if not there.all():  # wholly outside the window; that is said with the events there
        rows = _take(rows, np.flatnonzero(there))
    if len(rows) and not np.all(rows.start[1:] > rows.start[:-1]):
        order = np.lexsort((rows.step, rows.end, rows.start))
        step, start, end = rows.step[order], rows.start[order], rows.end[order]
        again = (step[1:] == step[:-1]) & (start[1:] == start[:-1]) & (end[1:] == end[:-1])
        rows = _take(rows, order[np.append(True, ~again)])
    if facts.rows == "batch" and len(rows) > 1:
        reach = np.append(np.maximum(rows.end[:-1], rows.start[1:]), rows.end[-1])
        rows = replace(rows, end=reach)
    return rows


def _take(rows: Rows, which: Ints) -> Rows:
    waits = {phase: column[which] for phase, column in rows.waits.items()}
    return Rows(rows.step[which], rows.start[which], rows.end[which], waits)


def _own(pieces: Pieces, n_rows: int) -> tuple[Ints, Ints]:
    """Return the own time of each row, and before each piece that of its row so far [ns]."""
    length = pieces.end - pieces.start
    if len(pieces) == n_rows and np.array_equal(pieces.owner, places(n_rows)):
        return length, np.broadcast_to(np.int64(0), n_rows)
    own = np.zeros(n_rows, np.int64)
    np.add.at(own, pieces.owner, length)
    order = np.argsort(pieces.owner, kind="stable")
    before = np.cumsum(length[order]) - length[order]
    first = np.flatnonzero(np.append(True, np.diff(pieces.owner[order]) != 0))[: len(order)]
    base = np.repeat(before[first], np.diff(np.append(first, len(order))))
    offset = np.empty_like(length)
    offset[order] = before - base
    return own, offset


def _waits(rows: Rows, own: Ints, facts: Facts, notes: list[str]) -> dict[str, Ints]:
    """Return what each row waited or lost by phase, within its own time; what exceeds it is said."""
    taken: dict[str, Ints] = {}
    left: Ints = own
    excess = 0.0
    for phase, column in rows.waits.items():
        part = np.clip(column, 0, left)
        if part.any() or (phase in PROGRAM and len(part)):
            taken[phase] = part
            left = left - part
        if not np.array_equal(part, column):
            negative = column < 0
            if negative.any():
                notes.append(f"{facts.name}: {int(negative.sum())} negative waits in phase {phase} count as 0")
            excess += float(np.sum(np.where(negative, 0, column), dtype=float) - np.sum(part, dtype=float))
    if excess >= 1:
        amount = show_seconds(excess / NS_PER_S)
        notes.append(f"{facts.name}: phases exceed their steps' own time by {amount}; they fill it")
    return taken


def _infer_compile(line: Timeline) -> dict[int, int]:
    """Return by row what the first step took beyond the median of the later ones [ns]."""
    if line.facts.rows == "block" or not len(line.own):
        return {}
    if any(span.category == "compile" for span in (*line.facts.spans, *line.facts.background)):
        return {}
    net = line.own - sum(line.waits.values(), np.int64(0))
    first, group = line.numbers()
    if len(first) <= COMPILE_FROM:
        return {}
    by_step = net
    if first is not group:
        by_step = np.zeros(len(first), np.int64)
        np.add.at(by_step, group, net)
    lead = int(group[0])
    excess = int(by_step[lead]) - _median(np.delete(by_step, lead))
    compiled: dict[int, int] = {}
    for row in np.flatnonzero(group == lead).tolist():
        if excess > 0 and net[row]:
            compiled[row] = min(excess, int(net[row]))
            excess -= compiled[row]
    return compiled


def _median(values: Ints) -> int:
    """Return the median, of an even count the lower whole number between the middle two; their order is lost."""
    middle = len(values) // 2
    if len(values) % 2:
        values.partition(middle)
        return int(values[middle])
    values.partition([middle - 1, middle])
    low, high = values[middle - 1 : middle + 1].tolist()
    return int(low + high) // 2
