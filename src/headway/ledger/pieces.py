"""Pieces of time: who owns an instant when intervals nest or cross, in whole nanoseconds."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pieces:
    """Disjoint pieces of time in ascending order, each with its owner.

    Attributes:
        start, end: ``(n,)`` int64 [ns]; every piece is longer than 0.
        owner: ``(n,)``, the number of the interval that owns the piece; whole numbers of any type.
    """

    start: Ints
    end: Ints
    owner: Ints

    def __len__(self) -> int:
        """Return the number of pieces."""
        return len(self.start)

    def total(self) -> int:
        """Return the time in all pieces [ns]."""
        return int(self.end.sum()) - int(self.start.sum())

    def within(self, begin: int, end: int) -> Pieces:
        """Return what lies in ``[begin, end)``, cut at its edges."""
        if not len(self) or (begin <= self.start[0] and self.end[-1] <= end):
            return self
        low = int(np.searchsorted(self.end, begin, "right"))
        high = max(low, int(np.searchsorted(self.start, end, "left")))
        return Pieces(
            np.maximum(self.start[low:high], begin), np.minimum(self.end[low:high], end), self.owner[low:high]
        )

    def without(self, taken: Pieces) -> Pieces:
        """Return these pieces less the time that others own, split where need be."""
        if not len(taken) or not len(self):
            return self
        first = np.searchsorted(taken.end, self.start, "right")
        n_inside = np.searchsorted(taken.start, self.end, "left") - first
        touched = n_inside > 0
        if not touched.any():
            return self
        rest = _split(self, taken, np.flatnonzero(touched), first, n_inside)
        start = np.concatenate([self.start[~touched], rest.start])
        order = np.argsort(start, kind="stable")
        end = np.concatenate([self.end[~touched], rest.end])
        owner = np.concatenate([self.owner[~touched], rest.owner])
        return Pieces(start[order], end[order], owner[order])


def places(n: int) -> Ints:
    """Return the numbers from 0 up to one, in the smallest type that holds them: there may be one a row."""
    return np.arange(n, dtype=np.int32 if n < 1 << 31 else np.int64)


def _split(pieces: Pieces, taken: Pieces, hit: Ints, first: Ints, n_inside: Ints) -> Pieces:
    """Return what is left of the pieces that meet taken ones: before the first, between, after the last."""
    counts = n_inside[hit] + 1
    source = np.repeat(hit, counts)
    place = np.arange(len(source)) - np.repeat(np.cumsum(counts) - counts, counts)
    before = first[source] + place - 1
    start = np.where(place == 0, pieces.start[source], taken.end[np.maximum(before, 0)])
    last = place == n_inside[source]
    end = np.where(last, pieces.end[source], taken.start[np.minimum(before + 1, len(taken) - 1)])
    kept = end > start
    return Pieces(start[kept], end[kept], pieces.owner[source[kept]])


def owned(start: Ints, end: Ints) -> Pieces:
    """Return which interval owns each instant: the one that started last.

    Of two that start together the shorter is the inner one, of two alike the later in the arrays.

    Args:
        start: Where the intervals start [ns], ``(n,)``, in any order.
        end: Where they end [ns], ``(n,)``, each at or after its start.

    Example:
        >>> pieces = owned(np.array([0, 3, 5]), np.array([10, 7, 12]))
        >>> list(zip(pieces.start.tolist(), pieces.end.tolist(), pieces.owner.tolist()))
        [(0, 3, 0), (3, 5, 1), (5, 12, 2)]
    """
    if np.all(start[1:] >= end[:-1]) and np.all(end > start):
        return Pieces(start, end, places(len(start)))
    order = np.lexsort((-end, start))
    order = order[end[order] > start[order]]
    begins, ends = start[order], end[order]
    if np.all(ends[1:] >= ends[:-1]):  # they may cross, none nests: each owns until the next starts
        ends = np.minimum(ends, np.append(begins[1:], np.iinfo(np.int64).max))
        kept = ends > begins
        return Pieces(begins[kept], ends[kept], order[kept])
    return _owned_nested(begins, ends, order)


def _owned_nested(start: Ints, end: Ints, order: Ints) -> Pieces:
    """Sweep over intervals sorted by start; only clusters that overlap are walked one by one."""
    reach = np.maximum.accumulate(end)
    cluster = np.flatnonzero(np.append(True, start[1:] >= reach[:-1]))
    sizes = np.diff(np.append(cluster, len(start)))
    alone = cluster[sizes == 1]
    parts = [(start[alone], end[alone], order[alone])]
    for left, size in zip(cluster[sizes > 1].tolist(), sizes[sizes > 1].tolist(), strict=True):
        right = left + size
        walked = list(_walk(start[left:right].tolist(), end[left:right].tolist()))
        columns = np.array(walked, np.int64).reshape(-1, 3).T
        parts.append((columns[0], columns[1], order[left + columns[2]]))
    begins, ends, owners = (np.concatenate(column) for column in zip(*parts, strict=True))
    placed = np.argsort(begins, kind="stable")
    return Pieces(begins[placed], ends[placed], owners[placed])


def _walk(starts: list[int], ends: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, index) of each owned piece; the active interval with the largest index owns."""
    active: list[int] = []  # a heap of negated indices: the last started is on top
    at = starts[0]
    for index, start in enumerate([*starts, max(ends)]):
        while active and at < start:
            top = -active[0]
            until = min(ends[top], start)
            if until > at:
                yield at, until, top
                at = until
            if ends[top] <= at:
                heapq.heappop(active)
        at = start
        if index < len(starts):
            heapq.heappush(active, -index)
