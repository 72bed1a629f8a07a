"""Scenarios of the model as what a run would tell, so that measured and modelled ones have the same levers."""

from __future__ import annotations

import math
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
    )


def _number(value: Any) -> float | None:
    return None if value is None else float(value)
