"""Intervals from the times at which they began and ended, in any order and more than once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

Interval = tuple[int, int]


@dataclass(frozen=True)
class Paired:
    """What starts and stops make.

    Attributes:
        intervals: Each start with its stop, in order.
        left_open: The start that has no stop; None where all have.
        n_unmatched: Stops that have no start.
    """

    intervals: tuple[Interval, ...]
    left_open: int | None = None
    n_unmatched: int = 0


def pair(starts: Collection[int], stops: Collection[int], first: int | None = None) -> Paired:
    """Return the intervals between starts and stops.

    A second start inside an interval does not begin another. A start and a stop of one time are
    the next interval's and the last one's; where none is open, an interval of no length.

    Args:
        starts: When intervals began.
        stops: When intervals ended.
        first: When the first began if its start is missing; None: such a stop has none.

    Example:
        >>> pair([5, 20], [20, 30]).intervals
        ((5, 20), (20, 30))
        >>> pair([20], [20, 30], first=0).intervals
        ((0, 20), (20, 30))
    """
    began, ended = set(starts), set(stops)
    opened = first if ended and (not began or min(ended) <= min(began)) else None
    found: list[Interval] = []
    unmatched = 0
    for time in sorted(began | ended):
        if opened is not None and time in ended:
            found.append((opened, time))
            opened = time if time in began else None
        elif time in ended and time in began:
            found.append((time, time))
        elif time in ended:
            unmatched += 1
        elif opened is None:
            opened = time
    return Paired(tuple(found), opened, unmatched)


def clip(intervals: Iterable[Interval], begin: int, end: int) -> list[Interval]:
    """Return what of the intervals lies between two times; those of no length are dropped.

    Example:
        >>> clip([(0, 5), (4, 20), (20, 30)], 3, 20)
        [(3, 5), (4, 20)]
    """
    cut = ((max(first, begin), min(last, end)) for first, last in intervals)
    return [(first, last) for first, last in cut if first < last]


def outside(intervals: Sequence[Interval], begin: int, end: int) -> int:
    """Return how much of the intervals lies outside two times.

    Example:
        >>> outside([(0, 5), (4, 20)], 3, 18)
        5
    """
    inside = sum(last - first for first, last in clip(intervals, begin, end))
    return sum(last - first for first, last in intervals) - inside
