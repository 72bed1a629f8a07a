"""Scenarios of the model as what a run would tell, so that measured and modelled ones have the same levers."""

from __future__ import annotations

import math
from typing import Any

from headway.errors import ArgumentError
from headway.model.fitting import Fit, progress
from headway.model.mtbf import UNKNOWN, Mtbf
from headway.model.renewal import split
from headway.model.runtime import POINT


def tell(source: Any) -> Fit:
    """Return what a scenario of goodput, or of runtime goodput, tells.

    Args:
        source: A `GoodputScenario`, a `RuntimeGoodputScenario`, or the result of one.

    Raises:
        ArgumentError: It is no such thing.
    """
    if hasattr(source, "ceilings") and hasattr(source, "scheduling"):
        return Fit(
            scheduling=_number(source.scheduling),
            runtime=_number(source.runtime),
            program=_number(source.program),
            ceilings={name: float(value) for name, value in source.ceilings.items()},
        )
    result = getattr(source, "result", source)
    if hasattr(result, "rework_share"):
        return _of_runtime(source, result)
    raise ArgumentError(
        f"Cannot find levers of {source!r:.60}: it is no ledger, fit or scenario",
        "Give a ledger, what headway.model.fit returns, or a scenario",
        "no-levers",
    )


def is_exact(result: Any) -> bool:
    """Return whether the exact form takes the place of the first-order sum.

    It does where the sum leaves nothing, or is off by more than a point.

    Args:
        result: A `RuntimeGoodputResult` of one size.
    """
    return float(result.runtime_loss) >= 1 or abs(float(result.first_order_error)) > POINT


def _shares(result: Any) -> dict[str, float]:
    """Return where the time goes; the shares sum to 1."""
    others = {
        "startup": float(result.startup_share),
        "input_wait": float(result.input_wait_share),
        "preemption": float(result.preemption_share),
    }
    if not is_exact(result):
        return {
            "productive": float(result.runtime_goodput),
            **others,
            "checkpoint_save": float(result.write_share),
            "rework": float(result.rework_share),
            "recovery": float(result.recovery_share),
        }
    taken = sum(others.values())
    others = {name: share / max(taken, 1.0) for name, share in others.items()}
    left = max(0.0, 1 - taken)
    times = split(float(result.interval_s), float(result.write_s), float(result.mtbf_s), float(result.recovery_s))
    return {
        "productive": times.kept * left,
        **others,
        "checkpoint_save": times.saving * left,
        "rework": max(0.0, times.rework) * left,
        "recovery": times.restarting * left,
    }


def _of_runtime(source: Any, result: Any) -> Fit:
    shares = _shares(result)
    devices = _number(getattr(source, "n_devices", None))
    mtbf_s = float(result.mtbf_s)
    return Fit(
        run=getattr(source, "name", ""),
        devices=None if devices is None else int(devices),
        shares=shares,
        runtime=shares["productive"],
        startup_s=float(result.startup_s),
        recovery_s=float(result.recovery_s) - float(result.startup_s),
        save_s=float(result.write_s) or None,
        interval_s=float(result.interval_s),
        mtbf=Mtbf(mtbf_s) if math.isfinite(mtbf_s) else UNKNOWN,
        preemption_share=shares["preemption"],
        restart_share=shares["recovery"],
        outcome=progress(float(result.write_s), mtbf_s, shares["productive"]),
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
