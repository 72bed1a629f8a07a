"""The attempts in a training log: which of its lines are whose, and how many steps each line stands for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.sources.steps.column import Column
from headway.sources.steps.columns import HOUR_NS, UNKNOWN, Lines, Mark, once, parts, search

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headway.sources.steps.lines import StepLines

    Ints = NDArray[np.int64]

_ENOUGH: Final = 3
"""Of more lines than that an attempt's own differences say what is usual."""


@dataclass
class Attempt:
    """Where an attempt's lines are, and its marks."""

    first: int
    last: int
    marks: list[Mark] = field(default_factory=list)
    start: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    end: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass
class Dividing:
    """How the lines of a log fall into attempts.

    Attributes:
        log: What it was told.
        warnings: Sentences that are added to.
    """

    log: StepLines
    warnings: list[str]

    def attempts(self, lines: Lines) -> tuple[Lines, list[Attempt]]:
        """Return the lines without repeated ones, each with the number of its steps, and the attempts."""
        lines, attempts = self._apart(lines, self._placed_marks(lines))
        lines.count = self._counts(lines, attempts)
        return lines, attempts

    def _placed_marks(self, lines: Lines) -> list[Mark]:
        """Return the marks in order."""
        marks = once(self.log, lines)
        if not lines.clocked:
            return sorted(marks, key=lambda mark: mark.line)
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

    def _apart(self, lines: Lines, marks: Sequence[Mark]) -> tuple[Lines, list[Attempt]]:
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
        attempts = [Attempt(first, last) for first, last in zip(starts, [*starts[1:], n], strict=True)]
        self._hand_out(marks, before, attempts)
        if len(attempts) > 1 and not begun - {0}:
            self.warnings.append(
                f"{len(attempts)} attempts are in the log, told apart by step numbers that go back; it does not say "
                "from which step each continued, so that all from its first on count as done again"
            )
        return lines, attempts

    def _hand_out(self, marks: Sequence[Mark], before: Sequence[int], attempts: list[Attempt]) -> None:
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

    def _counts(self, lines: Lines, attempts: Sequence[Attempt]) -> Ints:
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

    def _common(self, lines: Lines, attempts: Sequence[Attempt]) -> int:
        """Return how many steps a line stands for in an attempt that is too short to say it itself."""
        if not self.log.usual:
            apart = np.diff(lines.step)
            apart[[attempt.first - 1 for attempt in attempts if 0 < attempt.first < len(lines)]] = 0
            self.log.usual = _commonest(apart)
        return self.log.usual

    def _first_count(self, step: int, attempt: Attempt, usual: int) -> int:
        begun = [mark.step for mark in attempt.marks if mark.kind == "restored" and mark.step < step]
        since = max([self.log.first - 1, *begun[-1:]])
        return max(1, min(usual, step - since))


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
