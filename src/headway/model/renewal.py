"""Where a job's time goes between failures, exactly, in plain floats.

Failures come as a Poisson process, also while the job restarts; each begins a restart anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.model.checkpoint import renewal


@dataclass(frozen=True, slots=True)
class Split:
    """Shares of a job's held time, in [0, 1]; they sum to 1.

    Attributes:
        kept: Training that was saved.
        saving: Saves that were completed.
        rework: Training and saves that a failure undid.
        restarting: Restarts, those that failed included.
    """

    kept: float
    saving: float
    rework: float
    restarting: float


def split(interval_s: float, save_s: float, mtbf_s: float, restart_s: float) -> Split:
    """Return where the time goes, by the exact renewal form.

    Kept is as in `headway.model.checkpoint.renewal`, after Daly (2006). A restart begins at each of
    the failures, 1/M of them in a unit of time, and lasts M (1 - e^(-R/M)) on average, because the
    next failure may end it.

    Args:
        interval_s: Training between two saves, t [s], > 0.
        save_s: Time of one save, d [s], >= 0.
        mtbf_s: Mean time between failures of the job, M [s], > 0; infinite for none.
        restart_s: From a failure to the next step, R [s], >= 0.

    Example:
        >>> split(300.0, 60.0, 11135.0, 300.0).kept < split(1200.0, 60.0, 11135.0, 300.0).kept
        True
        >>> split(100.0, 0.0, math.inf, 300.0)
        Split(kept=1.0, saving=0.0, rework=0.0, restarting=0.0)
    """
    kept = float(renewal(interval_s, save_s, mtbf_s, restart_s))
    up = math.exp(-restart_s / mtbf_s)
    finished = kept * (interval_s + save_s) / interval_s
    saving = kept * save_s / interval_s
    rework = 0.0 if math.isinf(mtbf_s) else up - finished
    return Split(kept, saving, rework, -math.expm1(-restart_s / mtbf_s))
