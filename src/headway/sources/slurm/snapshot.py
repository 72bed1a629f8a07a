"""What lists of the jobs of one moment, or of several, tell of a pool and what they cannot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.ledger.jobs import UNTOLD, Jobs
from headway.sources.slurm import fields
from headway.sources.slurm.table import SQUEUE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headway.sources.slurm.seen import Seen

_UP_TO: Final = "is not told (no TIME): device-time counts up to the last Start or Submit"


def told(jobs: Jobs, seen: Seen, capacity: int | None, *, timed: bool) -> Iterator[str]:
    """Yield what lists tell of how many jobs had their devices, and what cannot be told.

    Args:
        jobs: Those of all lists.
        seen: When the lists were made.
        capacity: Devices of the pool; None where nobody says.
        timed: Whether a record names a beginning or an end.

    Example:
        >>> from headway.sources.slurm.seen import Seen
        >>> (line,) = told(Jobs(), Seen(), 8, timed=True)
        >>> line[:60]
        'squeue shows one moment: 0 of 0 jobs had 0 of 8 devices then'
    """
    had, milli = _had(jobs), jobs.column("milli")
    if timed and milli[had].any() and (seen.told_ns is None or seen.untold):
        one = "when one of these moments was" if seen.several else "when that moment was"
        yield f"{one} {_UP_TO}" + " of its list" * seen.several
    several = seen.several if timed else seen.n_lists > 1
    if several and timed:
        had &= jobs.column("end_ns") == UNTOLD
    shown = f"{int(had.sum())} of {len(jobs)} jobs had {int(milli[had].sum()) / 1000:g}"
    if not several:
        of = f" of {capacity}" if capacity else ""
        yield (
            f"{SQUEUE} shows one moment: {shown}{of} devices then; jobs that ended before are not in it, so that what "
            "was free, queued or held before cannot be told: use sacct for that"
        )
        return
    when = "at the latest" if timed else "at one of them, and no column tells when that was"
    yield (
        f"{SQUEUE} shows several moments: {shown} devices {when}; jobs that ended before the first or between them are "
        "not in it, so that what was free, queued or held otherwise cannot be told: use sacct for that"
    )


def _had(jobs: Jobs) -> NDArray[np.bool_]:
    """Return which jobs had their devices as a list showed them."""
    lasts = np.array([word not in fields.OVER for word in jobs.words], bool)
    had: NDArray[np.bool_] = (jobs.column("start_ns") != UNTOLD) & lasts[jobs.column("state")]
    return had
