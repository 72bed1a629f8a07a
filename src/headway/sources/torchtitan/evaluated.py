"""How long the evaluations of a torchtitan log took, and when the steps before them had ended."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from headway.sources.torchtitan.told import BEGINS, Rows, Told

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class Evaluated:
    """The evaluations of the main rank among its lines of steps.

    torchtitan logs an evaluation when it has ended, and counts time and tokens anew from there. Where the step it
    follows is logged, it began with the line of that step, or with the end of the save after it. Where that step is not
    logged, the steps from there to the next line tell how long one is; the steps before the evaluation are taken to
    have been as long, and end with a line that is added; what is left is the evaluation.

    Args:
        rows: The lines of steps, in the order of rank and time.
        rare: The other lines, in the order of time; evaluations get their length.
        main: The rank that counts.
    """

    def __init__(self, rows: Rows, rare: Sequence[Told], main: int) -> None:
        self._rows = rows
        self._main = main
        low, high = np.searchsorted(rows.rank, [main, main + 1]).tolist()
        self._first = int(low)
        self._at, self._step, self._mfu = (column[low:high] for column in (rows.at, rows.step, rows.mfu))
        self._saves = [one for one in rare if one.kind == "checkpoint_save" and one.took > 0 and one.at >= 0]
        self._saves_at = [save.at for save in self._saves]
        self._starts = [one for one in rare if one.kind in BEGINS and one.at >= 0]
        self._starts_at = [start.at for start in self._starts]
        self._evaluations = [one for one in rare if one.kind == "evaluation" and one.at >= 0]
        self._usually: float | None = None
        self._added: list[tuple[int, int, int, int, float]] = []

    def rows(self) -> Rows:
        """Return the lines of steps, with one added for the step before each evaluation whose length it tells."""
        places = (np.searchsorted(self._at, [one.at for one in self._evaluations], "right") - 1).tolist()
        pairs = zip(places, self._evaluations, strict=True)
        for place, some in groupby(pairs, lambda pair: pair[0]):
            self._between(place, [one for _, one in some])
        if not self._added:
            return self._rows
        places, *columns = zip(*self._added, strict=True)
        line, at, step, mfu = (np.array(column) for column in columns)
        added = Rows(at, line, step, np.full(len(at), self._main), mfu)
        return Rows(*(np.insert(c, places, new) for c, new in zip(self._rows, added, strict=True)))

    def _between(self, place: int, some: list[Told]) -> None:
        """Tell how long evaluations between a line of steps and the next took."""
        if place >= 0 and some[0].step == self._step[place]:
            begin = int(self._at[place])
            some[0].took = some[0].at - max([begin, *(save.at for save in self._saved(begin, some[0].at))])
        last = some[-1]
        until, through = self._next(place, last)
        one = (until - last.at - sum(save.took for save in self._saved(last.at, until))) / (through - last.step or 1)
        if one <= 0 and (one := self._usual()) <= 0:
            return
        good = float(self._mfu[min(place + 1, len(self._mfu) - 1)])  # a usual step's share of the peak
        if through > last.step:
            good *= (until - last.at) / (through - last.step) / one
        for before, evaluation in zip([None, *some], some, strict=False):
            begin, done, is_first = self._before(place, before, evaluation)
            if begin < 0 or evaluation.step <= done or evaluation.took >= 0:
                continue
            end, n = begin + round(one * (evaluation.step - done)), evaluation.step - done
            inside = 0
            saves = self._saved(begin, evaluation.at)
            for save in saves:
                if save.at - save.took < end - one / 4:
                    end, inside = end + save.took, inside + save.took
            took = evaluation.at - max([end, *(save.at for save in saves)])
            if took > 0:
                evaluation.took, evaluation.inferred = took, True
                evaluation.name = "unaccounted" if is_first else ""
                mfu = min(max(good * one * n / max(end - begin, 1), 0.0), 1.0)
                self._added.append((self._first + place + 1, evaluation.number, end, evaluation.step, mfu))

    def _saved(self, begin: int, end: int) -> list[Told]:
        return self._saves[bisect_right(self._saves_at, begin) : bisect_right(self._saves_at, end)]

    def _next(self, place: int, last: Told) -> tuple[int, int]:
        """Return time and step of the next line, if it goes on from an evaluation; else those of the evaluation."""
        if place + 1 < len(self._at) and self._step[place + 1] > last.step:
            until = int(self._at[place + 1])
            if bisect_right(self._starts_at, last.at) == bisect_right(self._starts_at, until):
                return until, int(self._step[place + 1])
        return last.at, last.step

    def _before(self, place: int, before: Told | None, evaluation: Told) -> tuple[int, int, bool]:
        """Return when the steps before an evaluation began, which was the last one before them, and if they are first.

        The time is -1 where nothing tells.
        """
        begin, done, is_first = (int(self._at[place]), int(self._step[place]), False) if place >= 0 else (-1, 0, False)
        if before is not None:
            begin, done = before.at, before.step
        if (latest := bisect_right(self._starts_at, evaluation.at)) and begin < self._starts_at[latest - 1]:
            start = self._starts[latest - 1]
            begin, done, is_first = start.at if start.kind == "starts" else -1, start.step - 1, True
        return begin, done, is_first

    def _usual(self) -> float:
        """Return how long a step usually takes [ns]; 0 where nothing tells."""
        if self._usually is None:
            apart, count = np.diff(self._at), np.diff(self._step)
            good = (count > 0) & (apart > 0)
            self._usually = float(np.median(apart[good] / count[good])) if good.any() else 0.0
        return self._usually
