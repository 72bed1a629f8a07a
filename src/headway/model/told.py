"""Scenarios of the model as what a run would tell, so that measured and modelled ones have the same levers."""

from __future__ import annotations

from typing import Any

from headway.errors import ArgumentError
from headway.model.fitting import Fit
from headway.model.mtbf import UNKNOWN, Mtbf


def tell(source: Any) -> Fit:
    """Return what a scenario of goodput, or of runtime goodput, tells.

    Args:
        source: A `GoodputScenario`, a `RuntimeGoodputScenario`, or the result of one.

    Raises:
        ArgumentError: It is no such thing.
    """
    if hasattr(source, "ceilings") and hasattr(source, "scheduling"):
        return Fit(
            scheduling=float(source.scheduling),
            runtime=float(source.runtime),
            program=float(source.program),
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


def _of_runtime(source: Any, result: Any) -> Fit:
    shares = {
        "productive": float(result.runtime_goodput),
        "startup": float(result.startup_share),
        "input_wait": float(result.input_wait_share),
        "checkpoint_save": float(result.write_share),
        "rework": float(result.rework_share),
        "recovery": float(result.recovery_share),
        "preemption": float(result.preemption_share),
    }
    interval_s = _seconds(result.interval)
    mtbf_s = _seconds(result.mtbf)
    devices = getattr(source, "n_devices", None)
    return Fit(
        devices=None if devices is None else int(devices),
        shares=shares,
        runtime=shares["productive"],
        recovery_s=_seconds(result.recovery_time),
        save_s=_seconds(result.write_time),
        interval_s=interval_s,
        mtbf=UNKNOWN if mtbf_s is None else Mtbf(mtbf_s),
        preemption_share=shares["preemption"],
        restart_share=shares["recovery"],
    )


def _seconds(value: Any) -> float | None:
    return float(value.to("second").magnitude) if hasattr(value, "to") else None
