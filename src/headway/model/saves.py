"""How often a run should save: the model's interval, from what the run recorded of its saves and failures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from headway.ledger.categories import BY_NAME
from headway.model.checkpoint import daly
from headway.model.fitting import Fit
from headway.model.renewal import split
from headway.units import show_seconds

_SAME: Final = 1e-3
"""Two distances that differ by less are one."""


@dataclass(frozen=True, slots=True)
class SavePlan:
    """A better distance between two saves.

    Attributes:
        interval_s: The better distance, of training [s].
        now_s: What the run does [s].
        step_s: Time of one step [s]; None where there are none to count.
        save_s: Time of one save, on which it rests [s].
        mtbf_s: Mean time between failures, on which it rests [s].
    """

    interval_s: float
    now_s: float
    step_s: float | None
    save_s: float
    mtbf_s: float

    @property
    def more_often(self) -> bool:
        """Whether the better distance is the shorter one."""
        return self.interval_s < self.now_s

    @property
    def change(self) -> str:
        """What to change, in words."""
        often = "more often" if self.more_often else "less often"
        return f"save {often}: {self.every}"

    @property
    def every(self) -> str:
        """Both distances, in steps where there are steps."""
        if self.step_s is None:
            return f"every {show_seconds(self.interval_s)}, not {show_seconds(self.now_s)}"
        return f"every {round(self.interval_s / self.step_s)} steps, not {round(self.now_s / self.step_s)}"

    @property
    def command(self) -> str:
        """What to type to see where the better distance comes from."""
        return f'headway model interval --save "{show_seconds(self.save_s)}" --mtbf "{show_seconds(self.mtbf_s)}"'

    def gain(self, rework: float, saves: float) -> float:
        """Return what the change returns of two losses, in their unit: less of the one, more of the other.

        Rework grows in proportion to the distance, time spent in saves in inverse proportion.

        Args:
            rework: What was done again or lost.
            saves: What blocking saves took.

        Example:
            >>> SavePlan(25.0, 50.0, 1.0, 10.0, 1000.0).gain(rework=100.0, saves=20.0)
            30.0
        """
        return rework * (1 - self.interval_s / self.now_s) + saves * (1 - self.now_s / self.interval_s)


def kept_gain(told: Fit, *, interval_s: float | None = None, restart_s: float | None = None) -> float | None:
    """Return what another interval or restart adds to goodput, by the exact renewal form; None where it cannot be told.

    It is the kept share after less that before, in the long run, of the held time, times what of the
    time outside of saves, rework and restarts is retained. No more than the losses it comes from.

    Args:
        told: What the run tells; the MTBF, the save, the restart and the interval are needed.
        interval_s: Training between two saves then [s]; None: as it is.
        restart_s: From a failure to the next step then [s]; None: as it is.

    Example:
        >>> from headway.model.mtbf import Mtbf
        >>> told = Fit(save_s=30.0, startup_s=3600.0, recovery_s=0.0, interval_s=600.0, mtbf=Mtbf(3600.0),
        ...            shares={"productive": 1.0})
        >>> round(kept_gain(told, restart_s=1800.0), 3)
        0.208
    """
    now_s, save_s, mtbf_s, again_s = told.interval_s, told.save_s, told.mtbf.value_s, told.restart_s
    if not (now_s and save_s and mtbf_s) or again_s is None:
        return None
    before = split(now_s, save_s, mtbf_s, again_s).kept
    after = split(
        now_s if interval_s is None else interval_s, save_s, mtbf_s, again_s if restart_s is None else restart_s
    ).kept
    factors = {name: BY_NAME[name].factor if name in BY_NAME else "R" for name in told.shares}
    held = 1.0 - sum(share for name, share in told.shares.items() if factors[name] == "S")
    retained = sum(share for name, share in told.shares.items() if factors[name] not in ("S", "R"))
    lost = told.restart_share + told.shares.get("rework", 0.0) + told.shares.get("checkpoint_save", 0.0)
    working = held - lost
    part = min(1.0, retained / working) if working > 0 and retained > 0 else 1.0
    return held * part * (after - before)


def plan_saves(told: Fit) -> SavePlan | None:
    """Return the distance between saves that Daly's formula gives for a run; None where it tells too little.

    Args:
        told: What the run tells.

    Example:
        >>> from headway.model.mtbf import Mtbf
        >>> plan_saves(Fit(save_s=10.0, step_s=10.0, interval_s=500.0, mtbf=Mtbf(1000.0)))
        SavePlan(interval_s=130.0, now_s=500.0, step_s=10.0, save_s=10.0, mtbf_s=1000.0)
    """
    now_s, mtbf_s = told.interval_s, told.mtbf.value_s
    if not (now_s and told.save_s and mtbf_s):
        return None
    best_s = float(daly(told.save_s, mtbf_s))
    if told.step_s:
        best_s = max(1, round(best_s / told.step_s)) * told.step_s
    same = math.isclose(best_s, now_s, rel_tol=_SAME)
    return None if same else SavePlan(best_s, now_s, told.step_s, told.save_s, mtbf_s)
