"""What a measured run tells a model: how long it starts, saves and steps, and how often it fails.

All amounts are of the whole job, in seconds: device-time over devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeVar

from headway.clock import NS_PER_S
from headway.errors import ArgumentError
from headway.ledger.ledger import Ledger, Part
from headway.model.mtbf import UNKNOWN, Mtbf

START: Final = ("startup", "device_init", "compile", "checkpoint_restore")
"""Categories that every start of an attempt pays."""
RESTART: Final = ("recovery", *START)
"""Categories that a restart pays."""
DAY_S: Final = 86400.0
NO_PROGRESS: Final = "no-progress"
"""The outcome of a modelled run that keeps next to nothing."""
_NOTHING: Final = 1e-3
_NOT_HELD: Final = ("preempted", "released")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fit:
    """What a run tells of itself; what it does not tell is None, and said in ``missing``.

    Attributes:
        run: Its name.
        devices: How many devices the job had.
        held_s: How long it held them [s].
        attempts: How often it was started.
        shares: Share of the window by category, in [0, 1]; they sum to 1.
        scheduling, runtime, program: The factors, in [0, 1].
        startup_s: Time of one start, from its begin to its first step [s].
        recovery_s: Time from the end of an attempt to the next one's begin, devices held [s].
        save_s: Time the training stands for one save [s].
        step_s: Time of one step, its wait for data included [s].
        interval_s: Training between two saves [s].
        interval_steps: The same, as the run counts it [steps].
        input_wait_fraction: Share of a step's time that waits for data, in [0, 1].
        mtbf: How often the job fails.
        n_preemptions: How often it was preempted.
        preemption_share: Share of the window that preemptions took, in [0, 1].
        restart_share: Share of the window that restarts took: recovery, and of the starts all but the first.
        ceilings: By factor, ``S``, ``R`` or ``P``, what it can be brought to; of a scenario that says so.
        outcome: ``ok``; of a modelled run also ``no-progress``, see `progress`.
        missing: By name of an attribute that is None, what would tell it.
    """

    run: str = ""
    devices: int | None = None
    held_s: float | None = None
    attempts: int | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    scheduling: float | None = None
    runtime: float | None = None
    program: float | None = None
    startup_s: float | None = None
    recovery_s: float | None = None
    save_s: float | None = None
    step_s: float | None = None
    interval_s: float | None = None
    interval_steps: int | None = None
    input_wait_fraction: float | None = None
    mtbf: Mtbf = UNKNOWN
    n_preemptions: int | None = None
    preemption_share: float | None = None
    restart_share: float = 0.0
    ceilings: Mapping[str, float] = field(default_factory=dict)
    outcome: str = "ok"
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def restart_s(self) -> float | None:
        """Time from a failure to the next step: recovery and start [s]."""
        return None if self.recovery_s is None or self.startup_s is None else self.recovery_s + self.startup_s

    @property
    def preemptions_per_day(self) -> float | None:
        """How often it was preempted for each day held [1/day]."""
        return None if self.n_preemptions is None or not self.held_s else self.n_preemptions * DAY_S / self.held_s


def progress(save_s: float, mtbf_s: float, runtime: float) -> str:
    """Return ``no-progress`` where failures come before a save is written or nothing is kept, else ``ok``.

    Args:
        save_s: Time of one save [s].
        mtbf_s: Mean time between failures of the job [s].
        runtime: What is kept, in [0, 1].

    Example:
        >>> progress(60.0, 30.0, 0.04), progress(60.0, 3000.0, 0.8)
        ('no-progress', 'ok')
    """
    return NO_PROGRESS if save_s >= mtbf_s or runtime < _NOTHING else "ok"


def fit(ledger: Ledger) -> Fit:
    """Return what a measured run tells a model.

    The MTBF has an interval from the count of failures, see `headway.model.mtbf.Mtbf.of`.

    Args:
        ledger: Of one run, as `headway.account` returns it.

    Raises:
        ArgumentError: It holds no time.

    Example:
        >>> from headway.ledger.ledger import Saving
        >>> told = fit(Ledger(
        ...     {"productive": 80 * 10**9, "recovery": 20 * 10**9}, held_ns=100 * 10**9, attempts=3, ranks=1, devices=1,
        ...     saving=Saving(n_saves=8, n_failures=2, interval_steps=10, step_ns=10**9)))
        >>> told.recovery_s, told.interval_s, told.mtbf.value_s
        (10.0, 10.0, 50.0)
        >>> told.missing["save_s"]
        'a span checkpoint_save round each blocking save'
    """
    devices = ledger.devices or ledger.ranks or 1
    if not ledger.held_ns:
        raise ArgumentError(
            f"Cannot learn from {', '.join(ledger.runs) or 'a run'}: it held no device-time",
            "Give a run that was recorded, or another window of it",
            "nothing-held",
        )
    held_s = ledger.held_ns / NS_PER_S / devices
    preemptions, preempted_ns = _preemptions(ledger)
    fitted: dict[str, Any] = {
        "startup_s": _startup_s(ledger, devices),
        "recovery_s": _recovery_s(ledger, devices),
        "save_s": None if not ledger.saving.save_ns else ledger.saving.save_ns / NS_PER_S,
        "step_s": _step_s(ledger),
        "interval_s": _interval_s(ledger),
        "interval_steps": ledger.saving.interval_steps or None,
        "input_wait_fraction": _waiting(ledger),
        "n_preemptions": preemptions,
        "scheduling": ledger.scheduling,
        "runtime": ledger.runtime,
        "program": ledger.program,
    }
    mtbf = Mtbf.of(ledger.saving.n_failures, held_s)
    missing = {name: _tells(name, ledger) for name, value in fitted.items() if value is None}
    if mtbf.value_s is None:
        missing["mtbf"] = "a run that lasts until a failure, or the cluster's own figure"
    return Fit(
        run=", ".join(ledger.runs),
        devices=devices,
        held_s=held_s,
        attempts=ledger.attempts or None,
        shares=ledger.fractions,
        mtbf=mtbf,
        preemption_share=None if preemptions is None else preempted_ns / ledger.window_ns,
        restart_share=_restart_share(ledger),
        missing=missing,
        **fitted,
    )


def scenario_from_ledger(
    cls: Callable[..., T],
    ledger: Ledger,
    program: float | None = None,
    scheduling: float | None = None,
    device_hour_rate: Any = None,
) -> T:
    """Return a goodput scenario from a measured run: R is measured, S and P are measured or given.

    Args:
        cls: What makes the scenario of its factors.
        ledger: Of one run, or of several.
        program: P, where the ledger has none, in (0, 1].
        scheduling: S, where the ledger has none, in (0, 1].
        device_hour_rate: What a device costs for an hour.

    Raises:
        ArgumentError: A factor is neither measured nor given.
    """
    factors = {
        "scheduling": ledger.scheduling if scheduling is None else scheduling,
        "runtime": ledger.runtime,
        "program": ledger.program if program is None else program,
    }
    missing = [name for name, value in factors.items() if value is None]
    if missing:
        wanted = "; ".join(f"{name} needs {_TELLS[name]}" for name in missing)
        raise ArgumentError(
            f"Cannot make a scenario of {', '.join(ledger.runs) or 'the ledger'}: "
            f"{' and '.join(missing)} not measured; {wanted}",
            f"Give {' and '.join(f'{name}=' for name in missing)} as a number in (0, 1]",
            "unmeasured-factor",
            missing=missing,
        )
    return cls(device_hour_rate=device_hour_rate, **factors)


_TELLS: Final[Mapping[str, str]] = {
    "scheduling": "a scheduler's log",
    "runtime": "a run that held devices",
    "program": "a trace or a FLOP count",
    "startup_s": "a run with a start in it",
    "recovery_s": "a run that is started again while its devices are held",
    "save_s": "a span checkpoint_save round each blocking save",
    "step_s": "steps in the log: headway.track(loader)",
    "interval_s": "rec.saved(step) after each save, and steps in the log",
    "interval_steps": "rec.saved(step) after each save",
    "input_wait_fraction": "steps in the log: headway.track(loader)",
    "n_preemptions": "how each attempt ended",
}


def _tells(name: str, ledger: Ledger) -> str:
    if name == "save_s" and ledger.background_ns.get("checkpoint_save"):
        return "nothing to wait for: its saves run in the background; give the time of one to be sure"
    return _TELLS[name]


def _startup_s(ledger: Ledger, devices: int) -> float | None:
    taken = sum(ledger.amounts_ns.get(name, 0) for name in START)
    return taken / NS_PER_S / devices / ledger.attempts if ledger.attempts and taken else None


def _recovery_s(ledger: Ledger, devices: int) -> float | None:
    """Gaps in which the devices were given back are not held, so they are no restart's time."""
    restarts = ledger.attempts - 1
    restarts -= max((sum(before.ended in _NOT_HELD for before, _ in pairs) for pairs in _pairs(ledger)), default=0)
    return ledger.amounts_ns.get("recovery", 0) / NS_PER_S / devices / restarts if restarts > 0 else None


def _restart_share(ledger: Ledger) -> float:
    shares = ledger.fractions
    again = (ledger.attempts - 1) / ledger.attempts if ledger.attempts else 0.0
    return shares.get("recovery", 0.0) + again * sum(shares.get(name, 0.0) for name in START)


def _waiting(ledger: Ledger) -> float | None:
    waits = ledger.amounts_ns.get("input_wait", 0)
    steps = waits + ledger.amounts_ns.get("productive", 0) + ledger.loss_ns("P")
    return waits / steps if steps and (ledger.saving.step_ns or ledger.steps.executed) else None


def _step_s(ledger: Ledger) -> float | None:
    """The median step; what a step waited for its data is part of it."""
    return ledger.saving.step_ns / NS_PER_S if ledger.saving.step_ns else None


def _interval_s(ledger: Ledger) -> float | None:
    step_s, steps = _step_s(ledger), ledger.saving.interval_steps
    return None if step_s is None or not steps else step_s * steps


def _pairs(ledger: Ledger) -> Iterator[list[tuple[Part, Part]]]:
    """Yield for each rank its attempts, each with the one that came after it."""
    ranks: dict[int, list[Part]] = {}
    for part in ledger.parts:
        ranks.setdefault(part.rank, []).append(part)
    yield from ([*pairwise(parts)] for parts in ranks.values())


def _preemptions(ledger: Ledger) -> tuple[int | None, int]:
    """Return how often the job was preempted, and what that took: lost steps and the next start [device-ns]."""
    if not ledger.parts:
        return None, 0
    counts: dict[int, int] = {}
    for part in ledger.parts:
        counts[part.rank] = counts.get(part.rank, 0) + (part.ended == "preempted")
    lost = sum(part.ledger.amounts_ns.get("rework", 0) for part in ledger.parts if part.ended == "preempted")
    starts = sum(
        after.ledger.amounts_ns.get(name, 0)
        for pairs in _pairs(ledger)
        for before, after in pairs
        if before.ended == "preempted"
        for name in RESTART
    )
    return max(counts.values()), lost + starts
