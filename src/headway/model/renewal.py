"""Where a job's time goes between failures, exactly: plain floats in seconds, so that a report need load no units.

Failures come as a Poisson process, also while the job restarts; each begins a restart anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


def young_s(save_s: float, mtbf_s: float) -> float:
    """Return Young's interval (1974), the limit of Daly's for a save far below the MTBF [s].

    Args:
        save_s: Time of one save [s], > 0.
        mtbf_s: Mean time between failures of the job [s], > 0.

    Example:
        >>> young_s(5 * 60, 24 * 3600) / 60
        120.0
    """
    return math.sqrt(2 * save_s * mtbf_s)


def daly_s(save_s: float, mtbf_s: float) -> float:
    """Return the time between two saves that loses least [s].

    Daly (2006), Future Generation Computer Systems 22, equation 37: for a save under twice the
    MTBF; from there on the MTBF itself.

    Args:
        save_s: Time of one save [s], > 0.
        mtbf_s: Mean time between failures of the job [s], > 0.

    Example:
        >>> round(daly_s(5 * 60, 24 * 3600) / 60, 2)
        116.69
    """
    half = save_s / (2 * mtbf_s)
    if half >= 1:
        return mtbf_s
    return young_s(save_s, mtbf_s) * (1 + math.sqrt(half) / 3 + half / 9) - save_s


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

    Kept is t / (M e^(R/M) (e^((t+d)/M) - 1)), Daly (2006), equation 20. A restart begins at each of
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
    cycle_s = interval_s + save_s
    if math.isinf(mtbf_s):
        return Split(interval_s / cycle_s, save_s / cycle_s, 0.0, 0.0)
    up = math.exp(-restart_s / mtbf_s)
    # x / (e^x - 1) without a loss of digits where x is small, and without overflow where it is large.
    x = cycle_s / mtbf_s
    finished = up * (x * math.exp(-x) / -math.expm1(-x))
    return Split(
        kept=finished * interval_s / cycle_s,
        saving=finished * save_s / cycle_s,
        rework=up - finished,
        restarting=-math.expm1(-restart_s / mtbf_s),
    )
