"""Runs from the step lines and marks of a training log; `headway.sources.steps.lines` has the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from headway.clock import NS_PER_S
from headway.errors import SourceError
from headway.events import AnyEvent, Close, Notice, Open, Restored, Saved, Span
from headway.ledger.history import Process, Rows, Run
from headway.ledger.timeline import COMPILE_FROM
from headway.sources.steps.column import Column
from headway.sources.steps.columns import HOUR_NS, UNKNOWN, Lines, Mark, Ordering, once, parts, search
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
_ENOUGH: Final = 3
"""Of more lines than that an attempt's own differences say what is usual."""
_NO_CLOCK: Final = "the log has no clock: what passed between its steps is not known"
_WORST: Final = ("finished", "released", "failed", "signal", "preempted")


@dataclass
class _Attempt:
    """Where an attempt's lines are, and its marks."""

    first: int
    last: int
    marks: list[Mark] = field(default_factory=list)
    start: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    end: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


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
    """Return the run that a log's lines make; see `headway.sources.steplines.StepLines.run`."""
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
        marks = self._placed_marks(lines)
        lines, attempts = self._attempts(lines, marks)
        lines.count = self._counts(lines, attempts)
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

    def _placed_marks(self, lines: Lines) -> list[Mark]:
        """Return the marks in order."""
        if not lines.clocked:
            return sorted(self.log.marks, key=lambda mark: mark.line)
        marks = once(self.log, lines)
        first = int(lines.at[0]) if self.log.earliest is None else self.log.earliest
        cursor = first
        for mark in reversed(marks):
            if mark.at == UNKNOWN:  # before all that has a time: it ended where that begins
                mark.at = cursor
                cursor -= max(mark.took, 0)
                mark.timed = True
        after: dict[int, int] = {}
        for mark in marks:
            if lines.shift_from is not None and mark.line >= lines.shift_from:
                mark.at += HOUR_NS
            if not mark.timed and mark.took > 0:  # spans of no time of their own follow what has one, and each other
                after[mark.at] = after.get(mark.at, mark.at) + mark.took
                mark.at, mark.timed = after[mark.at], True
        unit = _unit(lines)
        return sorted(marks, key=lambda mark: (mark.at // unit, mark.line))

    def _attempts(self, lines: Lines, marks: Sequence[Mark]) -> tuple[Lines, list[_Attempt]]:
        """Return the lines without repeated ones, and the attempts."""
        before = _before(lines, marks)
        n = len(lines)
        begun = {place for mark, place in zip(marks, before, strict=True) if mark.kind in {"banner", "restored"}}
        again = np.zeros(n, bool)
        np.equal(lines.step[1:], lines.step[:-1], out=again[1:])
        if lines.clocked and (places := np.flatnonzero(again)).size:
            apart, took = lines.at[places] - lines.at[places - 1], lines.took[places]
            again[places] = (apart == 0) | ((took > 0) & (apart < took // 2))
        again[sorted(place for place in begun if place < n)] = False
        if again.any():
            numbers = lines.line[again]
            self.log.bad.add("a step told again, left out", int(numbers[0]), count=len(numbers))
            before = [place - int(again[:place].sum()) for place in before]
            begun = {place - int(again[:place].sum()) for place in begun}
            lines = lines.take(~again)
            n = len(lines)
        back = set((np.flatnonzero(lines.step[1:] <= lines.step[:-1]) + 1).tolist())
        starts = sorted({0} | back | {place for place in begun if place and (place < n or lines.clocked)})
        attempts = [_Attempt(first, last) for first, last in zip(starts, [*starts[1:], n], strict=True)]
        self._hand_out(marks, before, attempts)
        if len(attempts) > 1 and not begun - {0}:
            self.warnings.append(
                f"{len(attempts)} attempts are in the log, told apart by step numbers that go back; it does not say "
                "from which step each continued, so that all from its first on count as done again"
            )
        return lines, attempts

    def _hand_out(self, marks: Sequence[Mark], before: Sequence[int], attempts: list[_Attempt]) -> None:
        """Give each mark to its attempt: between two, to the next from the first sign of it on."""
        firsts = {attempt.first: index for index, attempt in enumerate(attempts)}
        place_of = np.array([attempt.first for attempt in attempts])
        gap, started = -1, False
        for mark, place in zip(marks, before, strict=True):
            if place != gap:
                gap, started = place, False
            started = started or mark.kind in {"banner", "restored"}
            index = int(np.searchsorted(place_of, place, "right")) - 1
            if place in firsts and place and not started:
                index = firsts[place] - 1
            mark.place = place
            attempts[max(index, 0)].marks.append(mark)

    def _counts(self, lines: Lines, attempts: Sequence[_Attempt]) -> Ints:
        """Return how many steps each line stands for."""
        counts, n_lost, places = Column(), 0, 0
        where: int | None = None
        for attempt in attempts:
            if attempt.first == attempt.last:
                continue
            step = lines.step[attempt.first : attempt.last]
            own = _usual(step) if len(step) > _ENOUGH else self._common(lines, attempts)
            first = self._first_count(int(step[0]), attempt, own)
            counts.extend(np.array([int(lines.count[attempt.first]) or first]))
            for part in parts(len(step) - 1):
                some = slice(attempt.first + 1 + part.start, attempt.first + 1 + part.stop)
                apart = np.diff(step[part.start : part.stop + 1].astype(np.int64))
                given = lines.count[some]
                # What was not timed reaches from line to line, whatever lies between.
                found = np.where(lines.took[some] == UNKNOWN, apart, np.minimum(apart, own))
                lost = (given == 0) & (apart > found)
                if lost.any():
                    where = int(lines.line[some][lost][0]) if where is None else where
                    n_lost, places = n_lost + int((apart - found)[lost].sum()), places + int(lost.sum())
                counts.extend(np.where(given > 0, given, np.maximum(found, 1)))
        if places:
            self.log.bad.add(f"after steps that are missing, {n_lost} in all, left out", where, count=places)
        return counts.values()

    def _common(self, lines: Lines, attempts: Sequence[_Attempt]) -> int:
        """Return how many steps a line stands for in an attempt that is too short to say it itself."""
        if not self.log.usual:
            apart = np.diff(lines.step)
            apart[[attempt.first - 1 for attempt in attempts if 0 < attempt.first < len(lines)]] = 0
            self.log.usual = _commonest(apart)
        return self.log.usual

    def _is_alone(self, lines: Lines, attempt: _Attempt, *, expand: bool) -> bool:
        """Return whether an attempt's first row is one step, so that what it took beyond the later ones can be told."""
        count = lines.count[attempt.first : attempt.last]
        return not len(count) or int(count[0] if expand else count.max()) == 1

    def _first_count(self, step: int, attempt: _Attempt, usual: int) -> int:
        begun = [mark.step for mark in attempt.marks if mark.kind == "restored" and mark.step < step]
        since = max([self.log.first - 1, *begun[-1:]])
        return max(1, min(usual, step - since))

    def _by_clock(self, lines: Lines, attempts: Sequence[_Attempt]) -> None:
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
                if mark.place > attempt.first:  # the end of the line before may have got a fraction of a second
                    mark.at = max(mark.at, int(lines.at[mark.place - 1]))

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

    def _end_to_end(self, lines: Lines, attempts: Sequence[_Attempt]) -> None:
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

    def _process(self, lines: Lines, attempt: _Attempt, opened: Open, *, expand: bool, last: bool) -> Process:
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

    def _events(self, lines: Lines, attempt: _Attempt) -> Iterator[AnyEvent]:
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

    def _gap(self, lines: Lines, attempt: _Attempt, place: int, marks: Sequence[Mark]) -> Iterator[Span]:
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


def _unit(lines: Lines) -> int:
    """Return what times count in [ns]: where they are whole seconds, the order of the lines decides within one."""
    return 1 if any((lines.at[part] % NS_PER_S).any() for part in parts(len(lines))) else NS_PER_S


def _before(lines: Lines, marks: Sequence[Mark]) -> list[int]:
    """Return for each mark how many of the lines come before it."""
    if not lines.clocked:
        return search(lines.line, [mark.line for mark in marks])
    unit = _unit(lines)
    at = [mark.at // unit * unit for mark in marks]
    rows = zip(marks, search(lines.at, at), search(lines.at, at, "right"), strict=True)
    before, same, own = [], (0, 0), lines.line[:0]
    for mark, low, high in rows:  # many may be of one moment
        if same != (low, high):
            same, own = (low, high), np.sort(lines.line[low:high])
        before.append(low + int(np.searchsorted(own, mark.line)))
    return before


def _times(one: Ints, count: Ints) -> Ints:
    """Return so many times a length [ns], `BOUND_PER` at most."""
    if count.strides == (0,) and len(count) and count[0] == 1:
        return np.minimum(one, BOUND_PER, dtype=np.int64)
    one, count = one.astype(np.int64, copy=False), count.astype(np.int64, copy=False)
    return np.where(one > BOUND_PER // count, BOUND_PER, one * count)


def _usual(step: Ints) -> int:
    """Return by how much step numbers usually grow."""
    usual = 0
    for part in parts(len(step) - 1, 1 << 13):
        apart = np.diff(step[part.start : part.stop + 1])
        lower, upper = int(apart.min()), int(apart.max())
        if lower != upper or lower <= 0 or usual not in {0, lower}:
            return _commonest(np.diff(step))
        usual = lower
    return usual or 1


def _commonest(apart: Ints) -> int:
    """Return the commonest difference above 0, the smallest of several; 1 where there is none."""
    values, counts = np.unique(apart[apart > 0], return_counts=True)
    return int(values[np.argmax(counts)]) if len(values) else 1


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


def _rows(lines: Lines, attempt: _Attempt, *, expand: bool) -> Rows:
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
