"""How often a run should save: from what it recorded of its saves, its steps and its failures."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.ledger.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Interval:
    """A better distance between two saves.

    Attributes:
        steps: The better distance [steps].
        now_steps: What the run does [steps].
        gain_ns: What the change returns: less rework less more saving, or the reverse [device-ns], > 0.
    """

    steps: int
    now_steps: int
    gain_ns: int

    @property
    def more_often(self) -> bool:
        """Whether the better distance is the shorter one."""
        return self.steps < self.now_steps


def best_interval(ledger: Ledger, history: Ledger | None = None) -> Interval | None:
    """Return the distance between saves that would have lost less; None where nothing is known or better.

    Young (1974): the interval that loses least is ``sqrt(2 * save * MTBF)``. Here it is counted in
    steps, and the mean time between failures is the steps a rank executed for each failure. Rework
    grows in proportion to the distance, time spent in blocking saves in inverse proportion.

    Args:
        ledger: Of one run: what its rework and its saves cost.
        history: The whole run, where ``ledger`` is a window of it: how it saves and fails.

    Example:
        >>> from headway.ledger.ledger import Saving, Steps
        >>> ledger = Ledger(
        ...     {"productive": 700, "rework": 280, "checkpoint_save": 20}, held_ns=1000,
        ...     steps=Steps(executed=98, retained=70, reworked=28),
        ...     saving=Saving(n_saves=2, n_failures=1, interval_steps=50, save_ns=10, step_ns=10))
        >>> best_interval(ledger)
        Interval(steps=14, now_steps=50, gain_ns=150)
    """
    whole = history or ledger
    saving = whole.saving
    now = saving.interval_steps
    if not (now and saving.save_ns and saving.step_ns and saving.n_failures and whole.steps.executed):
        return None
    save_in_steps = saving.save_ns / saving.step_ns
    between_failures = whole.steps.executed / max(whole.ranks, 1) / saving.n_failures
    steps = max(1, round(math.sqrt(2 * save_in_steps * between_failures)))
    rework = ledger.amounts_ns.get("rework", 0)
    saves = ledger.amounts_ns.get("checkpoint_save", 0)
    gain = math.floor(rework * (1 - steps / now) + saves * (1 - now / steps))
    return Interval(steps, now, gain) if gain > 0 else None
