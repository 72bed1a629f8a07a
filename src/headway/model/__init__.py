"""Numbers in, numbers out: what the goodput could be, with the ledger's categories, and what that is worth."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
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
    from headway.model.fit import Fit, fit
    from headway.model.levers import Lever, levers
    from headway.model.mfu import FleetMfuScenario, mfu
    from headway.model.mpg import GoodputModel, GoodputResult
    from headway.model.runtime import RuntimeGoodputModel, RuntimeGoodputResult
    from headway.model.runtime_scenario import RuntimeGoodputScenario
    from headway.model.scenario import GoodputScenario
    from headway.model.scenarios import Scenarios
    from headway.model.scheduling import SchedulingSnapshotScenario
    from headway.model.simulate import Simulation, simulate

_HOME: Final = {
    "CheckpointInterval": "checkpoint",
    "FailureResult": "failures",
    "Fit": "fit",
    "FleetMfuScenario": "mfu",
    "GoodputModel": "mpg",
    "GoodputResult": "mpg",
    "GoodputScenario": "scenario",
    "Lever": "levers",
    "ObservedFailureScenario": "failures",
    "RuntimeGoodputModel": "runtime",
    "RuntimeGoodputResult": "runtime",
    "RuntimeGoodputScenario": "runtime_scenario",
    "Scenarios": "scenarios",
    "SchedulingSnapshotScenario": "scheduling",
    "SeriesFailureScenario": "failures",
    "Simulation": "simulate",
    "best_interval": "checkpoint",
    "efficiency": "checkpoint",
    "expected_ettr": "checkpoint",
    "fit": "fit",
    "levers": "levers",
    "mfu": "mfu",
    "optimal_interval": "checkpoint",
    "peak_flops": "accelerators",
    "simulate": "simulate",
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
    "simulate",
]


class _Package(ModuleType):
    """A package whose public names stay what they are when a module of the same name is imported, as `fit` is."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and name in _HOME):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
