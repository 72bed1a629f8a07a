"""Intervals from the times at which they began and ended, in any order and more than once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Ints = NDArray[np.int64]

Interval = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Paired:
    """What starts and stops make.

    Attributes:
        intervals: Each start with its stop, in order, ``(n, 2)``.
        left_open: The start that has no stop; None where all have.
        n_unmatched: Stops that have no start.
    """

    intervals: Ints
    left_open: int | None = None
    n_unmatched: int = 0


def once(times: ArrayLike) -> Ints:
    """Return times in their order, each once.

    Example:
        >>> once([20, 5, 20]).tolist()
        [5, 20]
    """
    column = np.asarray(times, np.int64)
    return column if np.all(column[1:] > column[:-1]) else np.unique(column)


def pair(starts: ArrayLike, stops: ArrayLike, first: int | None = None) -> Paired:
    """Return the intervals between starts and stops.

    A second start inside an interval does not begin another. A start and a stop of one time are
    the next interval's and the last one's; where none is open, an interval of no length.

    Args:
        starts: When intervals began, ``(n,)``.
        stops: When intervals ended, ``(m,)``.
        first: When the first began if its start is missing; None: such a stop has none.

    Example:
        >>> pair([5, 20], [20, 30]).intervals.tolist()
        [[5, 20], [20, 30]]
        >>> pair([20], [20, 30], first=0).intervals.tolist()
        [[0, 20], [20, 30]]
    """
    began, ended = once(starts), once(stops)
    if len(began) == len(ended) and np.all(began < ended) and np.all(ended[:-1] <= began[1:]):
        return Paired(np.stack([began, ended], axis=1))  # one after the other, as they mostly are
    if first is not None and len(ended) and (not len(began) or ended[0] <= began[0]):
        opened = first
    else:
        opened, first = 0, None
    times = np.union1d(began, ended)
    starts_here, stops_here = (np.isin(times, some, assume_unique=True) for some in (began, ended))
    place = np.arange(1, len(times) + 1)
    # Where both are, what was open before is open after: the last time that has only one of them decides.
    decided = np.maximum.accumulate(np.where(starts_here != stops_here, place, 0))
    is_open = np.append(first is not None, np.append(first is not None, starts_here)[decided])
    before, after = is_open[:-1], is_open[1:]
    begins = np.maximum.accumulate(np.where(after & (stops_here | ~before), place, 0))
    since = np.append(opened, times)[np.append(0, begins)[:-1]]
    alone = stops_here & starts_here & ~before
    found = (stops_here & before) | alone
    left = int(np.append(opened, times)[begins[-1]]) if len(times) and after[-1] else None
    unmatched = int(np.count_nonzero(stops_here & ~starts_here & ~before))
    return Paired(np.stack([np.where(alone, times, since)[found], times[found]], axis=1), left, unmatched)


def clip(intervals: ArrayLike, begin: int, end: int) -> Ints:
    """Return what of the intervals, ``(n, 2)``, lies between two times; those of no length are dropped.

    Example:
        >>> clip([(0, 5), (4, 20), (20, 30)], 3, 20).tolist()
        [[3, 5], [4, 20]]
    """
    every = np.asarray(intervals, np.int64).reshape(-1, 2)
    if np.all(every[:, 0] >= begin) and np.all(every[:, 1] <= end) and np.all(every[:, 0] < every[:, 1]):
        return every  # as they mostly are
    first, last = np.maximum(every[:, 0], begin), np.minimum(every[:, 1], end)
    some = first < last
    return np.stack([first[some], last[some]], axis=1)


def outside(intervals: ArrayLike, begin: int, end: int) -> int:
    """Return how much of the intervals, ``(n, 2)``, lies outside two times.

    Example:
        >>> outside([(0, 5), (4, 20)], 3, 18)
        5
    """
    every, inside = np.asarray(intervals, np.int64).reshape(-1, 2), clip(intervals, begin, end)
    return int((every[:, 1] - every[:, 0]).sum() - (inside[:, 1] - inside[:, 0]).sum())
