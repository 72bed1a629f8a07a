"""Scenarios by name, and their fields as text and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any, Final

from headway.errors import ArgumentError
from headway.units import show_percent, show_seconds

_FACTORS: Final = frozenset({"scheduling", "runtime", "program", "S", "R", "P"})
_ABOUT: Final = frozenset({"name", "description", "source", "date", "facts"})
_SHARES: Final = ("share", "wait", "over", "fraction")


def named(name: str) -> Any:
    """Return the scenario of a name; upper and lower case are the same.

    Raises:
        ArgumentError: There is none.
    """
    from headway.model.scenarios import Scenarios

    return Scenarios.get(canonical(name))


def canonical(name: str) -> str:
    """Return a name as it is written in the list.

    Raises:
        ArgumentError: There is none like it.
    """
    from headway.model.scenarios import Scenarios

    by_fold = {known.casefold(): known for known in Scenarios.names()}
    found = by_fold.get(name.casefold())
    if found is not None:
        return found
    near = get_close_matches(name.casefold(), by_fold, n=1, cutoff=0.4)
    step = f"Did you mean {by_fold[near[0]]}? All: headway model list" if near else "See headway model list"
    raise ArgumentError(
        f"Cannot find the scenario {name[:60]!r}: none has that name", step, "unknown-scenario", name=name
    )


def runtime_scenario(name: str, save: float | None = None, restart: float | None = None) -> Any:
    """Return the scenario of a name as one with a runtime model; of one that has failures alone it is made.

    Args:
        name: Its name.
        save: How long the training stands for a save [s]; needed where only its failures are known.
        restart: From a failure to the next step [s].

    Raises:
        ArgumentError: There is none, it is of another kind, or a save's time is needed.
    """
    from headway.model.failures import ObservedFailureScenario, SeriesFailureScenario
    from headway.model.runtime_scenario import RuntimeGoodputScenario

    scenario = named(name)
    given: dict[str, Any] = {"save": save, "load": None if restart is None else 0.0, "restart": restart}
    given = {key: value for key, value in given.items() if value is not None}
    if isinstance(scenario, RuntimeGoodputScenario):
        whole = {} if restart is None else {"detection": 0.0, "warmup": 0.0}
        return scenario.variant(**given, **whole) if given else scenario
    if not isinstance(scenario, ObservedFailureScenario | SeriesFailureScenario):
        raise ArgumentError(
            f"Cannot use {canonical(name)} here: it says nothing of failures (its kind is {kind(scenario)})",
            "Give one of the kinds runtime goodput, observed failure or series failure: headway model list",
            "no-runtime-model",
            name=name,
        )
    if save is None:
        raise ArgumentError(
            f"Cannot model {canonical(name)}: it says how often it fails, and not how long a save takes",
            'Give --save "30 s", and --restart "5 min"',
            "unmeasured",
            name=name,
        )
    return RuntimeGoodputScenario(failures=scenario, name=scenario.name, **given)


def kind(scenario: Any) -> str:
    """Return what a scenario is, in words.

    Example:
        >>> class RuntimeGoodputScenario: ...
        >>> kind(RuntimeGoodputScenario())
        'runtime goodput'
    """
    name = type(scenario).__name__.removesuffix("Scenario")
    return "".join(f" {char.lower()}" if char.isupper() else char for char in name).strip()


def inputs(scenario: Any) -> dict[str, Any]:
    """Return the inputs of a scenario by name, those that are unknown left out."""
    found = {field.name: getattr(scenario, field.name) for field in fields(scenario) if field.name not in _ABOUT}
    return {name: value for name, value in found.items() if value is not None and value != {}}


def plain(value: Any) -> Any:
    """Return a value as JSON has it; a quantity as its value and unit."""
    if hasattr(value, "magnitude"):
        return {"value": plain(value.magnitude), "unit": f"{value.units}"}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "tolist"):
        return value.tolist()
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def text(name: str, value: Any) -> str:
    """Return a value for a person; a share as percent.

    Example:
        >>> text("input_wait", 0.077), text("n_devices", 16384), text("parameters", 7e10)
        ('7.7 %', '16,384', '7e+10')
    """
    if hasattr(value, "magnitude"):
        return _quantity(value)
    if isinstance(value, Mapping) or is_dataclass(value):
        pairs = value if isinstance(value, Mapping) else inputs(value)
        return ", ".join(f"{key} {text(str(key), item)}" for key, item in pairs.items())
    if isinstance(value, float) and (name in _FACTORS or (0 < value < 1 and name.endswith(_SHARES))):
        return show_percent(value)
    is_number = isinstance(value, float | int) and not isinstance(value, bool)
    return f"{value:,.6g}" if is_number else str(value)


def _quantity(value: Any) -> str:
    if value.check("[time]"):
        return show_seconds(float(value.to("second").magnitude))
    if value.check("1/[time]") and "byte" not in f"{value.units}":
        return f"{value.to('1/day').magnitude:.4g} a day"
    return f"{value.to_compact() if value.magnitude else value:.4~g}"
