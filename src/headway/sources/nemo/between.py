"""Steps of lines without a time, placed between other lines that have one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.sources.columns import BOUND

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_MOST: Final = 0.5
"""Where so many of the steps have a line with a time in front of them, it may be one that each step writes."""
_ENOUGH: Final = 0.9
"""Where other lines with a time come behind so many of the steps, these have their places between them."""


def between(
    line: Ints,
    step: Ints,
    took: Ints,
    *,
    dated: Ints,
    moments: Ints,
    more: Mapping[int, int],
    begun: Collection[int] = (),
) -> Ints | None:
    """Return when steps ended that have no time, from other lines that have one; None where these do not tell.

    Args:
        line: The lines of the steps, ``(n,)``.
        step: Their numbers: a line with that of the line before it tells of the same step again.
        took: What one step of each took, `UNKNOWN` where it does not say [ns].
        dated: The other lines that have a time, in whole seconds, ``(m,)``.
        moments: Their times [ns since the Unix epoch], ``(m,)``.
        more: What else took how long before a step, by the step's place [ns].
        begun: The places before which a program began or ended: none of these steps is told again.

    Example:
        >>> line, second = np.arange(1, 8, 2), NS_PER_S
        >>> some = {"dated": np.array([0, 4, 8]), "moments": np.array([10, 13, 15]) * second, "more": {1: second}}
        >>> (between(line, np.arange(4), np.full(4, second // 2), **some) / second).tolist()
        [10.5, 12.0, 13.5, 14.0]
    """
    n = len(line)
    if not n or not len(dated) or dated[0] > line[0] or dated[-1] < line[int(_ENOUGH * (n - 1))]:
        return None
    apart = np.diff(step.astype(np.int64), prepend=int(step[0]) - 1)
    again = apart == 0
    again[[place for place in begun if place < n]] = False
    count: Ints = np.clip(apart, 1, max(1, int(np.median(apart[~again]))))
    length = np.minimum(np.maximum(took, 0), BOUND // count) * count
    moments = np.maximum.accumulate(moments.astype(np.int64))
    before = np.searchsorted(dated, line) - 1
    room = np.append(np.diff(moments) + NS_PER_S - 1, BOUND)
    limit = moments[before] + room[before]
    ends = _end_there(before, length, moments, room)
    placed, now = np.empty(n, np.int64), 0
    rows = zip(*(values.tolist() for values in (moments[before], length, again, limit, ends)), strict=True)
    for place, (begin, own, is_again, end, ends_there) in enumerate(rows):
        if not (is_again and begin <= now + own):  # else a step of its own fits in
            free = now + more.get(place, 0)
            now = min(max(free + own, begin) if ends_there else max(free, begin) + own, end)
        placed[place] = now
    return placed


def _end_there(before: Ints, length: Ints, moments: Ints, room: Ints) -> NDArray[np.bool_]:
    """Return which steps end with the line in front of them that has a time, as where each writes one at its end.

    Else they begin with it at the earliest, as behind an evaluation: which of the two it is tell the lengths of steps,
    for which there is room between these lines or not.

    Args:
        before: The last line with a time before each step, by its place, ``(n,)``.
        length: How long each took [ns].
        moments: The times of these lines, ``(m,)`` [ns].
        room: What may lie between each and the next at most, ``(m,)`` [ns].
    """
    has = np.diff(before, prepend=-1) > 0
    if np.count_nonzero(has) < _MOST * len(has):
        return np.zeros(len(has), bool)
    begins = np.maximum(length - room[before], 0)[has]
    both = np.flatnonzero(has[1:] & has[:-1]) + 1
    ends = np.maximum(length[both] - (moments[before[both]] - moments[before[both - 1]] + NS_PER_S), 0)
    return has if ends.sum(dtype=float) < begins.sum(dtype=float) else np.zeros(len(has), bool)
