"""Numbers in, numbers out: what the goodput could be, with the ledger's categories, and what that is worth."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headway.model.accelerators import peak_flops
    from headway.model.checkpoint import (
        CheckpointInterval,
        best_interval,
        efficiency,
        expected_ettr,
        optimal_interval,
    )
    from headway.model.failures import FailureResult, ObservedFailureScenario, SeriesFailureScenario
    from headway.model.fitting import Fit, fit
    from headway.model.flops import FleetMfuScenario, mfu
    from headway.model.lever import Lever, levers
    from headway.model.mpg import GoodputModel, GoodputResult
    from headway.model.projection import project
    from headway.model.runtime import RuntimeGoodputModel, RuntimeGoodputResult
    from headway.model.runtime_scenario import RuntimeGoodputScenario
    from headway.model.scenario import GoodputScenario
    from headway.model.scenarios import Scenarios
    from headway.model.scheduling import SchedulingSnapshotScenario
    from headway.model.simulator import Simulation, simulate

_HOME: Final = {
    "CheckpointInterval": "checkpoint",
    "FailureResult": "failures",
    "Fit": "fitting",
    "FleetMfuScenario": "flops",
    "GoodputModel": "mpg",
    "GoodputResult": "mpg",
    "GoodputScenario": "scenario",
    "Lever": "lever",
    "ObservedFailureScenario": "failures",
    "RuntimeGoodputModel": "runtime",
    "RuntimeGoodputResult": "runtime",
    "RuntimeGoodputScenario": "runtime_scenario",
    "Scenarios": "scenarios",
    "SchedulingSnapshotScenario": "scheduling",
    "SeriesFailureScenario": "failures",
    "Simulation": "simulator",
    "best_interval": "checkpoint",
    "efficiency": "checkpoint",
    "expected_ettr": "checkpoint",
    "fit": "fitting",
    "levers": "lever",
    "mfu": "flops",
    "optimal_interval": "checkpoint",
    "peak_flops": "accelerators",
    "project": "projection",
    "simulate": "simulator",
}

__all__ = [
    "CheckpointInterval",
    "FailureResult",
    "Fit",
    "FleetMfuScenario",
    "GoodputModel",
    "GoodputResult",
    "GoodputScenario",
    "Lever",
    "ObservedFailureScenario",
    "RuntimeGoodputModel",
    "RuntimeGoodputResult",
    "RuntimeGoodputScenario",
    "Scenarios",
    "SchedulingSnapshotScenario",
    "SeriesFailureScenario",
    "Simulation",
    "best_interval",
    "efficiency",
    "expected_ettr",
    "fit",
    "levers",
    "mfu",
    "optimal_interval",
    "peak_flops",
    "project",
    "simulate",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
