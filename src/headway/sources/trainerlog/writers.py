"""Lines of several processes that wrote into one file, one after the other or at the same time, told apart."""

from __future__ import annotations

from bisect import bisect, insort
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_MOST: Final = 16
"""So many processes write at the same time; one that has not for the longest has ended."""


def apart(step: Ints, elapsed: Ints, is_step: NDArray[np.bool_]) -> tuple[list[Ints], Ints]:
    """Return the lines of each process that wrote after the one before had ended, and those of all others.

    Steps and times of a process only grow. Where two wrote at the same time, that with more lines counts.

    Args:
        step: The step of each line, ``(n,)``.
        elapsed: Since when its process was training, ``(n,)`` [s].
        is_step: Whether it tells of a step: so no other of its process has the same, ``(n,)``.

    Returns:
        Places of lines, for each process in the order of the file; and those of the lines that are left.

    Example:
        >>> step, elapsed = np.array([10, 10, 20, 20, 10]), np.array([7, 8, 14, 16, 6])
        >>> [part.tolist() for part in apart(step, elapsed, np.ones(5, bool))[0]]
        [[0, 2], [4]]
    """
    n = len(step)
    if not n or ((np.diff(elapsed) >= 0) & (np.diff(step) >= is_step[1:])).all():
        return [np.arange(n)], np.zeros(0, np.int64)
    of = _processes(step, elapsed, is_step)
    order = np.argsort(of, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(of[order])) + 1)
    kept: list[tuple[int, int, int]] = []
    for number in sorted(range(len(parts)), key=lambda number: (-len(parts[number]), number)):
        first, last = int(parts[number][0]), int(parts[number][-1])
        place = bisect(kept, (first,))
        if (place == 0 or kept[place - 1][1] < first) and (place == len(kept) or last < kept[place][0]):
            insort(kept, (first, last, number))
    chosen = [parts[number] for _, _, number in kept]
    return chosen, np.setdiff1d(np.arange(n), np.concatenate(chosen))


def _processes(step: Ints, elapsed: Ints, is_step: NDArray[np.bool_]) -> Ints:
    """Return the number of the process that wrote each line, from 0."""
    of: list[int] = []
    last: dict[int, tuple[int, int, int]] = {}  # of each process its last step, time and line
    n_begun = 0
    for place, (now, time, more) in enumerate(zip(step.tolist(), elapsed.tolist(), is_step.tolist(), strict=True)):
        found, best = -1, (0, False, 0)
        for number, (before, since, where) in last.items():
            if time >= since and now >= before + more:
                # Of those it may go on, the nearest; of processes that take turns, the one whose turn it is.
                key = now - before, place - where > len(last), where
                if found < 0 or key < best:
                    found, best = number, key
        if found < 0:
            found, n_begun = n_begun, n_begun + 1
            if len(last) == _MOST:
                del last[min(last, key=lambda number: last[number][2])]
        last[found] = now, time, place
        of.append(found)
    return np.array(of, np.int64)
