"""What lies between the lines of steps of a torchtitan log, and what one of those steps lost with it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from headway.clock import NS_PER_S
from headway.events import CLOSE_REASONS
from headway.sources.steps.columns import UNKNOWN
from headway.sources.steps.lines import LONGEST, StepLines

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

BEGINS: Final = ("starts", "banner")
"""What tells that a program began."""
_SAME: Final = 2 * NS_PER_S
"""Ranks tell of a step at the same time: within half of that, or of the time to the nearest other line [ns]."""


@dataclass(slots=True, order=True)
class Told:
    """A line that tells of something else than steps.

    Attributes:
        at: When [ns since the Unix epoch], -1 where it has no time.
        number: The line's number.
        kind: What it tells: a category of a span that ended, how the program ended, or a kind of mark.
        step: Of which step.
        took: How long a span took [ns], -1 where it does not say.
        rank: Who says it.
        is_staged: Whether a save has only been copied aside and is written behind the training.
        name: The category of the span, if it is not what it tells.
        inferred: Whether its length was worked out from other times.
    """

    at: int
    number: int
    kind: str = ""
    step: int = 0
    took: int = 0
    rank: int = -1
    is_staged: bool = False
    name: str = ""
    inferred: bool = False


class Rows(NamedTuple):
    """Lines of steps in their order: time [ns since the Unix epoch], line, step, rank, share of the peak, ``(n,)``."""

    at: Ints
    line: Ints
    step: Ints
    rank: Ints
    mfu: NDArray[np.float64]

    def take(self, which: slice | NDArray[np.bool_]) -> Rows:
        """Return some of them."""
        return Rows(self.at[which], self.line[which], self.step[which], self.rank[which], self.mfu[which])


def of_one(rows: Rows, rare: Sequence[Told]) -> Rows:
    """Return the lines without those in which other ranks tell of a step again and do not say who they are.

    Args:
        rows: The lines, in the order of rank and time.
        rare: The other lines, in the order of time.
    """
    begins = np.ones(len(rows.at), bool)
    np.not_equal(np.diff(rows.step), 0, out=begins[1:])
    begins[1:] |= (np.diff(rows.rank) != 0) | (rows.at[:-1] < 0)
    if begins.all():
        return rows
    first = np.flatnonzero(begins)
    apart = np.diff(rows.at[first])
    apart = np.where(apart > 0, apart, _SAME)
    near = np.minimum(np.append(apart, _SAME), np.insert(apart, 0, _SAME))
    begun = np.array([one.at for one in rare if one.kind in BEGINS], np.int64)
    n_begun = np.searchsorted(begun, rows.at, "right")
    kept = begins.copy()
    kept[1:] |= n_begun[1:] != n_begun[:-1]
    kept[1:] |= 2 * np.diff(rows.at) >= near[np.cumsum(begins) - 1][1:]
    return rows.take(kept)


def apart(rare: Sequence[Told]) -> list[Told]:
    """Return other lines, in the order of time, without spans that other ranks tell of too: the last of them counts."""
    since: dict[str, int] = {}
    evaluated: set[int] = set()
    kept = []
    for one in reversed(rare):
        if one.kind in BEGINS:
            evaluated.clear()
        elif one.kind == "evaluation" and one.at >= 0:
            if one.step in evaluated:
                continue
            evaluated.add(one.step)
        elif one.took > 0 and one.at >= 0:
            if one.kind in since and one.at > since[one.kind]:
                continue
            since[one.kind] = one.at - one.took
        kept.append(one)
    return kept[::-1]


class Telling:
    """Tells the steps' log of the lines in the order of time, and of what lies between those of the main rank."""

    def __init__(self, steps: StepLines, rare: list[Told], main: int, *, with_loss: bool) -> None:
        self.spent = Spent(rare)
        self._steps = steps
        self._rare = rare
        self._main = main
        self._with_loss = with_loss
        self._place = 0
        self._saved = -1
        self._writes = any(one.kind == "written" for one in rare)
        self._before: tuple[int, int, int] | None = None

    def some(self, rows: Rows, first: int) -> None:
        """Tell of some lines, from one on; of those whose loss is certain many at once."""
        lost, certain = self.spent.between(rows)
        begin = first
        for place in [*(np.flatnonzero(~certain[first:]) + first).tolist(), len(certain)]:
            if begin < place:
                self._many(rows, lost, slice(begin, place))
            if place < len(certain):
                at, line, step, rank, mfu = (column[place].item() for column in rows)
                self._one(at, line, step, rank, mfu)
            begin = place + 1

    def _many(self, rows: Rows, lost: Ints, part: slice) -> None:
        """Tell of lines between which there was nothing else."""
        at, line, step, rank = (column[part] for column in rows[:4])
        possible = (lost[part] >= 0) & (lost[part] <= LONGEST)
        waits = {"below_peak": np.where(possible, lost[part], 0)} if self._with_loss and possible.any() else None
        took = np.broadcast_to(np.int64(UNKNOWN), len(at))
        self._steps.steps(step, line=line, at=at, took=took, rank=rank, waits=waits)
        if len(mine := step[rank == self._main]):
            self._saved = int(mine[-1])
        self._before = (int(at[-1]), int(step[-1]), int(rank[-1]))

    def _one(self, when: int, number: int, last: int, who: int, share: float) -> None:
        """Tell of a line, and before it of what is not told yet; or of nothing where it is the same again."""
        if who == self._main:
            self._until(when)
        before = self._before
        if when >= 0 and before == (when, last, who):
            return
        if who == self._main:
            self._saved = last
        self._before = (when, last, who)
        begin, count, took, lost = self.spent.row(before if before and before[2] == who else None, when, last, share)
        if when < 0:
            self._steps.step(last, line=number, rank=who)
            return
        self._steps.step(last, line=number, at_ns=when, took_ns=took, count=count, rank=who)
        if self._with_loss and begin is not None:
            self._steps.wait("below_peak", lost)

    def rest(self) -> None:
        """Tell of what came after the last line."""
        self._until(None)

    def _until(self, when: int | None) -> None:
        while self._place < len(self._rare) and (when is None or self._rare[self._place].at < when):
            self._saved = self._mark(self._rare[self._place], self._saved)
            self._place += 1

    def _mark(self, one: Told, done: int) -> int:
        """Give a line that is no step's to the steps' log; return the last step that is known to be done after it."""
        at_ns = None if one.at < 0 else one.at
        if one.kind in {"evaluation", "checkpoint_save", "checkpoint_restore"}:
            took = None if one.took < 0 else one.took
            name = one.name or one.kind
            self._steps.span(name, line=one.number, at_ns=at_ns, took_ns=took, inferred=one.inferred)
        if one.kind == "last":
            return max(done, one.step)
        if one.kind == "written":
            self._steps.saved(one.step, line=one.number, at_ns=at_ns)
        elif one.kind == "checkpoint_save" and not (one.is_staged and self._writes):
            self._steps.saved(max(done, 0), line=one.number, at_ns=at_ns)
        elif one.kind == "starts":
            self._steps.restored(one.step - 1, line=one.number, at_ns=at_ns)
            return one.step - 1
        elif one.kind == "banner":
            self._steps.banner(line=one.number, at_ns=at_ns)
        elif one.kind in CLOSE_REASONS:
            self._steps.close(one.kind, line=one.number, at_ns=at_ns)
        return done


class Spent:
    """What was done between step lines beside steps."""

    def __init__(self, rare: list[Told]) -> None:
        self._all_at = np.array([one.at for one in rare], np.int64)
        self._starts = [one for one in rare if one.kind == "starts"]
        self._starts_at = [one.at for one in self._starts]
        self._spans = [one for one in rare if one.took > 0 and one.kind in {"evaluation", "checkpoint_save"}]
        self._spans_at = [one.at for one in self._spans]

    def between(self, rows: Rows) -> tuple[Ints, NDArray[np.bool_]]:
        """Return what `row` would say that one step of each line lost [ns], and where that is certain.

        It is where nothing else was done since the line before; of the first line it is not known, ``(n,)`` each.
        """
        at = rows.at
        apart, count = np.diff(at), np.diff(rows.step)
        first = np.searchsorted(self._all_at, at[:-1], "left")
        certain = (at[:-1] >= 0) & (apart >= 0) & (count > 0) & (np.diff(rows.rank) == 0)
        certain &= first == np.searchsorted(self._all_at, at[1:], "right")
        mfu = rows.mfu[1:]
        share = np.where((mfu >= 0) & (mfu <= 1), mfu, 0)  # of others nothing is told
        lost = (apart - np.rint(share * apart).astype(np.int64)) // np.maximum(count, 1)
        return np.concatenate([[0], lost]), np.concatenate([[False], certain])

    def row(
        self, before: tuple[int, int, int] | None, at: int, step: int, mfu: float
    ) -> tuple[int | None, int, int | None, int]:
        """Return when the steps of a line began, how many they are, and of one what it took and lost [ns].

        None where nothing tells; a length of None is all the time since the line before.

        Args:
            before: Time and step of the line before it of the same rank, and that.
            at: Its time.
            step: Its step.
            mfu: Share of the peak, in [0, 1].
        """
        place = bisect_right(self._starts_at, at) - 1
        start = self._starts[place] if place >= 0 else None
        if start is not None and (start.step > step or (before is not None and start.at <= before[0])):
            start = None
        if start is None and (before is None or step <= before[1]):
            return None, 0, None, 0
        begin, done = (start.at, start.step - 1) if start is not None else (before or (at, step))[:2]
        first, count = start is not None, max(1, step - done)
        low, high = bisect_right(self._spans_at, begin), bisect_right(self._spans_at, at)
        spans = self._spans[low:high]
        beside = sum(one.took for one in spans)
        logged = max([begin, *(one.at for one in spans if one.kind == "evaluation")])  # what an mfu is since
        if beside > at - begin:  # they cannot all have been between the two lines
            return begin, count if first else 0, (at - begin) // count if first else None, 0
        # What was done right after the line before is ahead of the steps, else among them: it takes its own time.
        half, ahead = (at - begin - beside) // (2 * count), begin
        for one in spans:
            if one.at - one.took - ahead > half:
                ahead = begin
                break
            ahead = max(ahead, one.at)
        own = at - ahead - (beside if ahead == begin else 0)
        lost = own - round(mfu * (at - logged)) if math.isfinite(mfu) else 0
        timed = first or ahead > begin
        return begin, count if timed else 0, own // count if timed else None, lost // count
