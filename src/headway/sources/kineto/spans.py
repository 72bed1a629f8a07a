"""Intervals of a device as columns: their union, in bounded memory, and how much of it lies before a time."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COMPACT: Final = 1 << 20
"""So many intervals are gathered before they are made their union."""


@dataclass(frozen=True, eq=False)
class Union:
    """Intervals that neither meet nor overlap, in order.

    Attributes:
        start, end: Their times [ns], each ``(n,)`` int64.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]

    @classmethod
    def of(cls, *parts: Union) -> Union:
        """Return the union of several.

        Example:
            >>> union = Union.of(Union(np.array([0, 8]), np.array([5, 9])), Union(np.array([3]), np.array([6])))
            >>> union.start.tolist(), union.end.tolist(), union.total_ns
            ([0, 8], [6, 9], 7)
        """
        start = np.concatenate([np.zeros(0, np.int64), *(part.start for part in parts)])
        end = np.concatenate([np.zeros(0, np.int64), *(part.end for part in parts)])
        if not len(start):
            return cls(start, end)
        order = np.argsort(start, kind="stable")
        start, reach = start[order], np.maximum.accumulate(end[order])
        first = np.concatenate([[True], start[1:] > reach[:-1]])
        return cls(start[first], reach[np.concatenate([first[1:], [True]])])

    @property
    def total_ns(self) -> int:
        """Return how long they are together [ns]."""
        return int((self.end - self.start).sum())

    def before(self, times: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how much of them lies before each of some times [ns], ``(n,)`` int64.

        Example:
            >>> Union(np.array([0, 8]), np.array([5, 9])).before(np.array([3, 6, 20])).tolist()
            [3, 5, 6]
        """
        if not len(self.start):
            return np.zeros(len(times), np.int64)
        index = np.searchsorted(self.start, times, side="right")
        whole = np.concatenate([[0], np.cumsum(self.end - self.start)])
        beyond = np.maximum(self.end[index - 1] - times, 0)
        return np.where(index > 0, whole[index] - beyond, 0).astype(np.int64)


@dataclass
class Intervals:
    """Intervals as they come, in any order and more than once: only their union is kept."""

    _times: array[int] = field(default_factory=lambda: array("q"))
    _union: Union = field(default_factory=Union.of)

    @classmethod
    def of(cls, *parts: Intervals) -> Intervals:
        """Return those of several together."""
        return cls(_union=Union.of(*(part.union() for part in parts)))

    def add(self, start: int, end: int) -> None:
        """Add one [ns]."""
        self._times.extend((start, end))
        if len(self._times) >= 2 * max(_COMPACT, len(self._union.start)):
            self.union()

    def union(self) -> Union:
        """Return the union of all that were added."""
        if self._times:
            pairs = np.array(self._times, np.int64).reshape(-1, 2)
            self._union = Union.of(self._union, Union(pairs[:, 0], pairs[:, 1]))
            self._times = array("q")
        return self._union
