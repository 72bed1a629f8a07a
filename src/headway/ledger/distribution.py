"""Distributions of batch times: percentiles, and the batches that took longest.

An average hides one stall of 19 s in a thousand batches of 10 ms; the maximum and the list of the
worst do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class Spread:
    """How one time was distributed over the batches.

    Attributes:
        p50: The median [s].
        p95: What 95 % of the batches stayed within [s].
        max: The longest [s].
    """

    p50: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """The times of one batch.

    Attributes:
        batch: Its number.
        wall_sec: Its length [s].
        phases: Its time by phase [s].
    """

    batch: int
    wall_sec: float
    phases: dict[str, float]


@dataclass(frozen=True)
class Table:
    """Batches as columns.

    Attributes:
        phases: The names of the phases.
        numbers: The batches' numbers, shape ``(n_batches,)``.
        times: Their times, one row a phase and a last one for the wall time, shape
            ``(n_phases + 1, n_batches)``.
        per_second: How many of their units are a second.
    """

    phases: tuple[str, ...]
    numbers: npt.NDArray[Any]
    times: Sequence[npt.NDArray[Any]]
    per_second: float

    @classmethod
    def of_lists(cls, phases: tuple[str, ...], lists: Sequence[list[float]]) -> Table:
        """Return the table of lists of seconds: one a phase, then the wall times."""
        n = min(len(column) for column in lists)
        return cls(phases, np.arange(n), [np.asarray(column[:n], float) for column in lists], 1.0)

    @classmethod
    def of_rows(cls, phases: tuple[str, ...], rows: memoryview) -> Table:
        """Return the table of rows as they are in ``steps.npy``: flat int64 [ns]."""
        table = np.frombuffer(rows, "<i8").reshape(-1, len(phases) + 4)
        columns = [table[:, 3 + place] for place in range(len(phases))]
        return cls(phases, table[:, 0], [*columns, table[:, 2] - table[:, 1]], 1e9)

    def spreads(self) -> dict[str, Spread]:
        """Return the distribution of each phase, and as ``batch`` that of the wall time.

        Percentiles are interpolated linearly. Without batches there is none.

        Example:
            >>> Table.of_lists(("source",), [[0.0, 1.0], [3.0, 5.0]]).spreads()["batch"]
            Spread(p50=4.0, p95=4.9, max=5.0)
        """
        if not len(self.numbers):
            return {}
        found = {}
        for name, column in zip((*self.phases, "batch"), self.times, strict=True):
            values = np.percentile(column, (50, 95, 100)) / self.per_second
            found[name] = Spread(*(float(value) for value in values))
        return found

    def worst(self, n: int) -> list[BatchTimes]:
        """Return the `n` longest batches, the longest first; of equal ones the earlier.

        Example:
            >>> Table.of_lists(("source",), [[0.0, 1.0], [3.0, 5.0]]).worst(1)
            [BatchTimes(batch=1, wall_sec=5.0, phases={'source': 1.0})]
        """
        wall = self.times[-1]
        n = max(0, min(n, len(wall)))
        if not n:
            return []
        limit = np.partition(wall, len(wall) - n)[len(wall) - n]
        candidates = np.flatnonzero(wall >= limit)
        order = candidates[np.argsort(-wall[candidates], kind="stable")][:n]
        return [self._batch(place) for place in order]

    def _batch(self, place: int) -> BatchTimes:
        *phases, wall = (float(column[place] / self.per_second) for column in self.times)
        return BatchTimes(int(self.numbers[place]), wall, dict(zip(self.phases, phases, strict=True)))
