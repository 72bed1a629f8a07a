"""Intervals from the times at which they began and ended, in any order and more than once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Ints = NDArray[np.int64]

Interval = tuple[int, int]
_NEVER: Final = 1 << 62


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


def pair(starts: ArrayLike, stops: ArrayLike, first: int | None = None, again: int = 0) -> Paired:
    """Return the intervals between starts and stops.

    A second start inside an interval does not begin another. A start and a stop of one time are
    the next interval's and the last one's; where none is open, an interval of no length.

    Args:
        starts: When intervals began, ``(n,)``.
        stops: When intervals ended, ``(m,)``.
        first: When the first began if its start is missing; None: such a stop has none.
        again: A stop so soon after another one, and without a start between, is that one, told again.

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
    apart = np.diff(times, prepend=times[:1] - again - 1)
    unmatched = int(np.count_nonzero(stops_here & ~starts_here & ~before & (apart > again)))
    return Paired(np.stack([np.where(alone, times, since)[found], times[found]], axis=1), left, unmatched)


def pair_numbered(
    starts: Ints, stops: Ints, of_starts: Ints, of_stops: Ints, first: int | None = None
) -> Paired | None:
    """Return the intervals between starts and stops that have numbers; None where these tell not what is together.

    An interval goes from the first start of a number to its first stop, and to the next interval's start where it has
    no stop. Of those that overlap each ends where the next begins, so that they cover the same time.

    Args:
        starts: When intervals began, ``(n,)``.
        stops: When intervals ended, ``(m,)``.
        of_starts: The numbers of the starts, ``(n,)``; below 0 for none.
        of_stops: The numbers of the stops, ``(m,)``.
        first: When the first began if its start is missing; None: no start may be missing.

    Example:
        >>> start, stop, numbers = np.array([0, 40, 90]), np.array([60, 99]), np.array([1, 2, 3])
        >>> found = pair_numbered(start, stop, numbers, numbers[:2])
        >>> found.intervals.tolist(), found.left_open
        ([[0, 40], [40, 90]], 90)
    """
    if not len(starts) or min(of_starts.min(), of_stops.min(initial=0)) < 0:
        return None
    numbers, which = np.unique(np.concatenate([of_starts, of_stops]), return_inverse=True)
    began, began_last, ended = (np.full(len(numbers), bound) for bound in (_NEVER, -_NEVER, _NEVER))
    np.minimum.at(began, which[: len(starts)], starts)
    np.maximum.at(began_last, which[: len(starts)], starts)
    np.minimum.at(ended, which[len(starts) :], stops)
    without = np.flatnonzero(began == _NEVER)
    if len(without):
        place = int(without[0])
        if (
            first is None
            or len(without) > 1
            or ended[place] > min(int(starts.min()), int(np.delete(ended, place).min()))
        ):
            return None
        began[place] = first
    if (began_last > ended).any():
        return None  # a number is used again
    order = np.lexsort((ended, began))
    began, ended = began[order], ended[order]
    upto = np.append(began[1:], _NEVER)
    ended = np.where(ended == _NEVER, upto, ended)
    ended = np.minimum(np.maximum.accumulate(ended), upto)
    left = int(began[-1]) if ended[-1] == _NEVER else None
    n = len(began) - (left is not None)
    return Paired(np.stack([began[:n], ended[:n]], axis=1), left)


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


def without(interval: Interval, taken: Ints) -> list[Interval]:
    """Return what of an interval none of the others, which are in order and apart, takes.

    Example:
        >>> without((0, 9), np.array([[-5, 2], [4, 6]]))
        [(2, 4), (6, 9)]
        >>> without((0, 9), np.array([[0, 9]]))
        []
    """
    some = taken[np.searchsorted(taken[:, 1], interval[0], "right") : np.searchsorted(taken[:, 0], interval[1])]
    begins, ends = [interval[0], *some[:, 1].tolist()], [*some[:, 0].tolist(), interval[1]]
    return [(begin, end) for begin, end in zip(begins, ends, strict=True) if begin < end]
