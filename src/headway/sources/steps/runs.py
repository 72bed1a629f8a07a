"""Runs from the step lines and marks of a training log; `headway.sources.steps.lines` has the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from headway.clock import NS_PER_S
from headway.errors import SourceError
from headway.events import AnyEvent, Close, Notice, Open, Restored, Saved, Span
from headway.ledger.history import Process, Rows, Run
from headway.ledger.timeline import COMPILE_FROM
from headway.sources.steps.attempts import Attempt, Dividing
from headway.sources.steps.columns import HOUR_NS, UNKNOWN, Lines, Mark, Ordering, parts, search
from headway.sources.text import clean
from headway.units import show_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headway.sources.asked import Asked
    from headway.sources.steps.lines import StepLines

    Ints = NDArray[np.int64]

EXPANDED: Final = 1 << 22
"""Lines that stand for several steps are made that many rows at most; beyond it each line is one."""
BOUND_PER: Final = 1 << 60
"""The steps of one line take no longer [ns]."""
_NO_CLOCK: Final = "the log has no clock: what passed between its steps is not known"
_WORST: Final = ("finished", "released", "failed", "signal", "preempted")


def build(
    log: StepLines,
    name: str,
    asked: Asked,
    *,
    devices: int | None,
    accelerator: str | None,
    rows: str | None,
    stepless: bool = False,
) -> Run:
    """Return the run that a log's lines make; see `headway.sources.steps.lines.StepLines.run`."""
    if not len(log) and not (stepless and any(mark.kind == "span" for mark in log.marks)):
        raise SourceError(
            f"Cannot read {clean(str(log.path), 4096)}: no line in it tells of a step that can be used",
            "Give the whole log",
            "no-runs",
            path=str(log.path),
        )
    return _Building(log, list(log.warnings)).run(clean(name), asked, devices, accelerator, rows)


@dataclass
class _Building:
    log: StepLines
    warnings: list[str]

    def run(self, name: str, asked: Asked, devices: int | None, accelerator: str | None, rows: str | None) -> Run:
        count = asked.devices or devices
        if count is None:
            self.warnings.append("the number of devices is not in the log and 1 is counted; give it with --devices")
        if not self.log.place(asked.zone):
            self.warnings.append("some times in the log name their zone: --zone is not used for the others")
        lines = Ordering(self.log, self.warnings).lines()
        lines, attempts = Dividing(self.log, self.warnings).attempts(lines)
        (self._by_clock if lines.clocked else self._end_to_end)(lines, attempts)
        expand = int(np.minimum(lines.count, EXPANDED + 1).sum()) <= EXPANDED
        if not expand:
            self.warnings.append(f"its lines stand for more than {EXPANDED} steps: each line is counted as one step")
        processes = []
        for number, attempt in enumerate(attempts):
            kind = rows or ("step" if self._is_alone(lines, attempt, expand=expand) else "block")
            opened = Open(
                wall_ns=0, mono_ns=0, run=name, attempt=f"a{number:03d}", devices=count or 1,
                accelerator=None if accelerator is None else clean(accelerator), phases=(), rows=kind,
            )  # fmt: skip
            processes.append(self._process(lines, attempt, opened, expand=expand, last=number == len(attempts) - 1))
        unknown = {} if lines.clocked else {"R": _NO_CLOCK}
        path = clean(str(self.log.path), 4096)
        self.warnings += [*self.log.bad.sentences(), *self._zones(lines)]
        return Run(name, self.log.source, tuple(processes), path, tuple(self.warnings), unknown, clock=lines.clocked)

    def _is_alone(self, lines: Lines, attempt: Attempt, *, expand: bool) -> bool:
        """Return whether an attempt's first row is one step, so that what it took beyond the later ones can be told."""
        count = lines.count[attempt.first : attempt.last]
        return not len(count) or int(count[0] if expand else count.max()) == 1

    def _by_clock(self, lines: Lines, attempts: Sequence[Attempt]) -> None:
        """Place each line's steps before its time, and not before the line before."""
        total = _times(lines.took, lines.count)
        timed = lines.took != UNKNOWN
        firsts = [attempt.first for attempt in attempts if attempt.first < attempt.last]
        self._refine(lines, np.where(timed, total, 0), set(firsts))
        start = lines.at - total
        np.copyto(start[1:], lines.at[:-1], where=~timed[1:])
        start[:1] = np.where(timed[:1], start[:1], 0)
        self._say_longer(lines, start, total)
        np.maximum(start[1:], lines.at[:-1], out=start[1:])
        np.maximum(start[:1], 0, out=start[:1])
        for first in firsts:
            if not timed[first]:
                start[first] = lines.at[first]
                self.warnings.append(
                    f"what the steps of {self.log.bad.noun} {int(lines.line[first])} took is not known, nothing before "
                    "it tells when they began: it is in the startup"
                )
        if self.log.n_local and (place := _summer(lines.at, start)) is not None:
            where = int(lines.line[place])
            self.warnings.append(
                f"about 1 h passed before {self.log.bad.noun} {where} with no step: it may be a clock without a zone "
                "that was set forward, as at the beginning of summer time; it is counted as time"
            )
        for attempt in attempts:
            attempt.start, attempt.end = start[attempt.first : attempt.last], lines.at[attempt.first : attempt.last]
            for mark in attempt.marks:
                if not mark.place:
                    continue
                before = int(lines.at[mark.place - 1])  # it may have got a fraction of a second
                late = before - (mark.at - max(mark.took, 0))
                if mark.place > attempt.first:
                    mark.at = max(mark.at, before)
                elif 0 < late < NS_PER_S:  # no attempt begins before the one before it has ended
                    mark.at += late

    def _refine(self, lines: Lines, total: Ints, firsts: set[int]) -> None:
        """Give times in whole seconds the fraction that the lengths of steps tell: each within its second."""
        if (lines.at % NS_PER_S).any():
            return
        refined, end = np.empty(len(lines), np.int64), 0
        for part in parts(len(lines)):
            ends = []
            rows = zip(lines.at[part].tolist(), total[part].tolist(), strict=True)
            for index, (at, took) in enumerate(rows, part.start):
                fits = end + took < at + NS_PER_S + took // 5 and index not in firsts
                end = min(max(end + took, at), at + NS_PER_S - 1) if fits else at
                ends.append(end)
            refined[part] = ends
        lines.at = refined

    def _say_longer(self, lines: Lines, early: Ints, total: Ints) -> None:
        """Warn of steps that are said to be longer than the time since the line before."""
        n_longer, amount, first = 0, 0, 0
        for part in parts(len(lines)):
            begin = lines.at[max(part.start - 1, 0) : part.stop - 1]
            over = (begin if part.start else np.concatenate([[0], begin])) - early[part]
            longer = (lines.took[part] != UNKNOWN) & (over > total[part] // 20) & (over > 0)
            if longer.any():
                first = first or int(lines.line[part][longer][0])
                n_longer, amount = n_longer + int(longer.sum()), amount + int(over[longer].sum())
        if n_longer:
            self.warnings.append(
                f"{n_longer} lines say that their steps took longer than the time since the line before, "
                f"{show_seconds(amount / NS_PER_S)} in all; first in line {first}. The clock counts: such lengths are "
                "means over earlier steps"
            )

    def _end_to_end(self, lines: Lines, attempts: Sequence[Attempt]) -> None:
        """Lay steps and spans one after the other in the order of the file, from the first moment it names, or 0."""
        if (untimed := int((lines.took == UNKNOWN).sum())) > 0:
            self.warnings.append(f"{untimed} lines tell of steps without time or length: they have no length")
        lengths = _times(np.where(lines.took == UNKNOWN, 0, lines.took) if untimed else lines.took, lines.count)
        cursor = self.log.earliest or 0
        for attempt in attempts:
            spans = [mark for mark in attempt.marks if mark.kind == "span" and mark.took != UNKNOWN]
            own = lengths[attempt.first : attempt.last]
            numbers = lines.line[attempt.first : attempt.last]
            places = search(numbers, [mark.line for mark in spans])
            begin = np.zeros(len(own) + 1, np.int64)
            begin[0], begin[1:] = cursor, own
            np.add.at(begin, places, np.array([mark.took for mark in spans], np.int64))
            np.cumsum(begin, out=begin)
            attempt.start, attempt.end = begin[:-1], np.add(own, begin[:-1], out=own)
            total = int(begin[-1])
            after: dict[int, int] = {}
            for mark, place in zip(attempt.marks, search(numbers, [mark.line for mark in attempt.marks]), strict=True):
                mark.at = (int(attempt.end[place - 1]) if place else cursor) + after.get(place, 0)
                if mark.kind == "span" and mark.took != UNKNOWN:
                    after[place] = after.get(place, 0) + mark.took
                    mark.at += mark.took
                    mark.timed = True
            cursor = total

    def _process(self, lines: Lines, attempt: Attempt, opened: Open, *, expand: bool, last: bool) -> Process:
        moments = [mark.at for mark in attempt.marks if mark.at != UNKNOWN]
        if len(attempt.start):
            moments += [int(attempt.start[0]), int(attempt.end[-1])]
        if lines.clocked and attempt.first == 0 and self.log.earliest is not None:
            moments.append(self.log.earliest)
        if lines.clocked and last and self.log.latest is not None:
            moments.append(self.log.latest)
        events = list(self._events(lines, attempt))
        spans = [event for event in events if isinstance(event, Span)]
        moments += [moment for span in spans for moment in (span.start, span.end)]
        begin, end = min(moments, default=0), max(moments, default=0)
        closes = [mark for mark in attempt.marks if mark.kind == "close" and mark.place >= attempt.last]
        if closes:
            reason = max((mark.name for mark in closes), key=_WORST.index)
            events.append(Close(at=end, reason=reason))
        else:
            events.append(Notice(name="log_end", at=end))
        rows = _rows(lines, attempt, expand=expand)
        if opened.rows == "step" and all(span.category != "compile" for span in spans):
            rows = _first_usual(rows)
        opened = msgspec.structs.replace(opened, wall_ns=begin, mono_ns=begin)
        return Process(opened, tuple(events), rows)

    def _events(self, lines: Lines, attempt: Attempt) -> Iterator[AnyEvent]:
        first = int(attempt.start[0]) if len(attempt.start) else None
        gaps: dict[int, list[Mark]] = {}
        for mark in attempt.marks:
            if mark.kind == "saved":
                yield Saved(step=mark.step, at=mark.at)
            elif mark.kind == "restored":
                yield Restored(step=mark.step, at=mark.at if first is None else min(mark.at, first))
            elif mark.kind == "span" and mark.took != UNKNOWN:
                start = mark.at - mark.took if mark.timed else mark.at
                yield Span(category=mark.name, start=start, end=start + mark.took, inferred=mark.inferred)
            elif mark.kind == "span":
                gaps.setdefault(max(mark.place - attempt.first, 0), []).append(mark)
        for place, marks in gaps.items():
            yield from self._gap(lines, attempt, place, marks)

    def _gap(self, lines: Lines, attempt: Attempt, place: int, marks: Sequence[Mark]) -> Iterator[Span]:
        """Yield what no step took before a line, as the span that is said to lie there."""
        names = sorted({mark.name for mark in marks})
        n = len(attempt.start)
        if lines.clocked and place > 0:
            start = int(attempt.end[place - 1])
            end = int(attempt.start[place]) if place < n else max(mark.at for mark in marks)
            if start < end:
                name = names[0] if len(names) == 1 else "unaccounted"
                if len(names) > 1:
                    what = f"of {' and '.join(names)} that took one time together, counted as unaccounted"
                    self.log.bad.add(what, marks[0].line)
                yield Span(category=name, start=start, end=end)
                return
        for name in names:
            self.log.bad.add(f"of {name} without its length: it is not counted by itself", marks[0].line)

    def _zones(self, lines: Lines) -> Iterator[str]:
        if lines.clocked and self.log.n_local:
            which = "some times in the log name no zone" if self.log.n_zoned else "times in the log name no zone"
            yield f"{which} and are read as UTC" + ("" if self.log.n_zoned else "; give theirs with --zone")


def _times(one: Ints, count: Ints) -> Ints:
    """Return so many times a length [ns], `BOUND_PER` at most."""
    if count.strides == (0,) and len(count) and count[0] == 1:
        return np.minimum(one, BOUND_PER, dtype=np.int64)
    one, count = one.astype(np.int64, copy=False), count.astype(np.int64, copy=False)
    return np.where(one > BOUND_PER // count, BOUND_PER, one * count)


def _summer(at: Ints, start: Ints) -> int | None:
    """Return before which line first about an hour passed that is in no step; None: before none."""
    for part in parts(len(at) - 1):
        gaps = start[part.start + 1 : part.stop + 1] - at[part]
        if (found := np.abs(gaps - HOUR_NS) < 60 * NS_PER_S).any():
            return int(part.start + 1 + np.argmax(found))
    return None


def _whole(values: Ints) -> Ints:
    """Return numbers as rows have them."""
    return np.ascontiguousarray(values, np.int64)


def _rows(lines: Lines, attempt: Attempt, *, expand: bool) -> Rows:
    """Return the rows of an attempt: each step of a line one, of equal length."""
    part = slice(attempt.first, attempt.last)
    count = lines.count[part]
    waits = {name: values[part] for name, values in lines.waits.items()}
    if not len(count) or int(count.max()) == 1 or not expand:
        waits = {name: _times(values, count) for name, values in waits.items()} if len(count) and not expand else waits
        return Rows(_whole(lines.step[part]), _whole(attempt.start), _whole(attempt.end), waits)
    n = int(count.sum())
    step, start, end = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    done = 0
    for some in parts(len(count), 1 << 12):
        to = slice(done, done + int(count[some].sum()))
        begin, till = attempt.start[some], attempt.end[some]
        step[to], start[to], end[to] = _each(lines.step[part][some], count[some], begin, till)
        done = to.stop
    return Rows(step, start, end, {name: np.repeat(values, count) for name, values in waits.items()})


def _first_usual(rows: Rows) -> Rows:
    """Return the rows; what the first was below the peak is at most the median of the later ones.

    What such a step took beyond the later ones is its compile time, which the ledger infers, and no loss below a peak.
    """
    lost = rows.waits.get("below_peak")
    if lost is None or len(lost) <= COMPILE_FROM:
        return rows
    lost = lost.copy()
    lost[0] = min(int(lost[0]), int(np.median(lost[1:])))
    return replace(rows, waits={**rows.waits, "below_peak": lost})


def _each(step: Ints, count: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the rows of some lines: number, start and end of each step."""
    each = np.repeat(np.arange(len(count)), count)
    nth = np.arange(len(each)) - np.repeat(np.cumsum(count) - count, count)
    whole = (end - start)[each]
    length = whole // count[each]
    rest = whole - length * count[each]
    begin = start[each] + length * nth + np.minimum(nth, rest)
    return step[each] - count[each] + 1 + nth, begin, begin + length + (nth < rest)
