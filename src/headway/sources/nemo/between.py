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
    limit = np.append(moments[1:] + NS_PER_S - 1, BOUND)[before]
    placed, now = np.empty(n, np.int64), 0
    rows = zip(*(values.tolist() for values in (moments[before], length, again, limit)), strict=True)
    for place, (begin, own, is_again, end) in enumerate(rows):
        if not (is_again and begin <= now + own):  # else a step of its own fits in
            now = min(max(now + more.get(place, 0), begin) + own, end)
        placed[place] = now
    return placed
