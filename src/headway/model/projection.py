"""A measured run taken to another size: the same training, with other failures, saves and restarts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from headway.errors import ArgumentError
from headway.ledger.categories import category
from headway.model.checkpoint import daly
from headway.model.fitting import RESTART, START, Fit, progress
from headway.model.mtbf import Mtbf
from headway.model.renewal import split

NOT_WORK: Final = (*RESTART, "checkpoint_save", "rework", "silent", "shutdown")
"""Categories that come from failures, saves and ends; all others go along with the training."""


def project(
    told: Fit,
    *,
    devices: int | None = None,
    mtbf: Any = None,
    save: Any = None,
    restart: Any = None,
    interval: Any = None,
) -> Fit:
    """Return what the run would tell at another size, in the long run.

    Kept, saving, rework and restarts are the exact renewal form's, see `headway.model.renewal.split`.
    What goes along with the training (waits, evaluations) keeps its proportion to it. Left out are
    the first start, the end, preemptions and hangs. Where a save takes as long as the job lives
    between failures the outcome is ``no-progress``.

    Args:
        told: What the run tells.
        devices: How many devices there would be; None: as many as it had.
        mtbf: Mean time between failures of the whole job at that size [time]; None: the run's own,
            which falls as the devices grow.
        save: How long the training stands for a save [time]; None: as measured.
        restart: From a failure to the next step [time]; None: as measured.
        interval: Training between two saves [time]; None: Daly's, the best.

    Raises:
        ArgumentError: Something is neither measured nor given, or not above zero.

    Example:
        >>> told = Fit(devices=8, step_s=1.0, shares={"productive": 0.9, "input_wait": 0.1}, mtbf=Mtbf(1e6))
        >>> then = project(told, devices=800, save=10.0, restart=60.0)
        >>> then.mtbf.value_s, round(then.runtime, 3), round(sum(then.shares.values()), 12)
        (10000.0, 0.855, 1.0)
    """
    devices = _devices(told, devices)
    scaled = told.mtbf.scaled(devices / (told.devices or devices))
    failing = scaled if mtbf is None else Mtbf(_seconds(mtbf, "mtbf"))
    mtbf_s = _known(failing.value_s, "mtbf", told)
    save_s = _known(told.save_s if save is None else _seconds(save, "save"), "save", told)
    restart_s = _known(told.restart_s if restart is None else _seconds(restart, "restart"), "restart", told)
    interval_s = float(daly(save_s, mtbf_s)) if interval is None else _seconds(interval, "interval")
    times = split(interval_s, save_s, mtbf_s, restart_s)
    shares = {name: times.kept * part for name, part in _work(told.shares).items()}
    shares["checkpoint_save"], shares["rework"] = times.saving, times.rework
    begins = _begins(told, restart_s, given=restart is not None)
    for name, part in begins.items():
        shares[name] = times.restarting * part
    step_s = told.step_s or None
    runtime = sum(share for name, share in shares.items() if category(name).factor != "R")
    return replace(
        told,
        devices=devices,
        held_s=None,
        attempts=None,
        shares={name: share for name, share in shares.items() if share},
        runtime=runtime,
        startup_s=restart_s * (1 - begins["recovery"]),
        recovery_s=restart_s * begins["recovery"],
        save_s=save_s,
        interval_s=interval_s,
        interval_steps=None if step_s is None else max(1, round(interval_s / step_s)),
        mtbf=failing,
        n_preemptions=None,
        preemption_share=None,
        restart_share=times.restarting,
        outcome=progress(save_s, mtbf_s, runtime),
        missing={},
    )


def _work(shares: Mapping[str, float]) -> dict[str, float]:
    """Return what training is made of, as shares of it."""
    work = {name: x for name, x in shares.items() if name not in NOT_WORK and category(name).factor != "S" and x > 0}
    total = sum(work.values())
    return {name: share / total for name, share in work.items()} if total else {"productive": 1.0}


def _begins(told: Fit, restart_s: float, *, given: bool) -> dict[str, float]:
    """Return what a restart is made of, as shares of it; of one that was given it is not known."""
    starts = {name: told.shares.get(name, 0.0) for name in START}
    total = sum(starts.values())
    if given or told.startup_s is None or not total or not restart_s:
        return {"recovery": 1.0}
    part = told.startup_s / restart_s
    return {"recovery": 1 - part, **{name: part * share / total for name, share in starts.items()}}


def _devices(told: Fit, devices: int | None) -> int:
    found = told.devices if devices is None else devices
    if not isinstance(found, int) or found < 1:
        raise ArgumentError(
            f"Cannot model a run on {found!r} devices: it must be a whole number above zero",
            "Give how many devices the job would have",
            "bad-size",
            devices=found,
        )
    return found


def _known(value: float | None, name: str, told: Fit) -> float:
    if value is not None:
        return value
    option, tells = _OPTIONS[name]
    raise ArgumentError(
        f"Cannot model {told.run or 'the run'}: its {tells[0]} is not known; the run would need {tells[1]}",
        f"Give {option}",
        "unmeasured",
        name=name,
    )


_OPTIONS: Final[Mapping[str, tuple[str, tuple[str, str]]]] = {
    "mtbf": ('--mtbf "4 h"', ("time between failures", "to last until a failure")),
    "save": ('--save "30 s"', ("time of a blocking save", "a span checkpoint_save round each")),
    "restart": ('--restart "5 min"', ("time of a restart", "to be started again while its devices are held")),
}


def _seconds(value: Any, name: str) -> float:
    """Return a time [s]; units are loaded only where one is given."""
    if not isinstance(value, float | int):
        from headway.model.quantities import magnitude

        value = magnitude(value, "second", name)
    if not 0 < value < float("inf"):
        raise ArgumentError(
            f"Cannot use {name} = {value!r} s: it must be above zero, and finite",
            'Give a time such as "30 s"',
            "bad-quantity",
            name=name,
        )
    return float(value)
