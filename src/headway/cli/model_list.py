"""`headway model list`: the scenarios that have a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from headway.cli.modelscenario import kind
from headway.cli.modeltext import json_option, put
from headway.errors import ArgumentError
from headway.report.sheet import Sheet
from headway.units import show_percent, show_seconds


@click.command("list")
@json_option
def command(*, as_json: bool) -> None:
    """List the scenarios and published runs that have a name.

    Each has a source and a date; what a source does not give is left out.
    """
    from headway.model.scenarios import Scenarios

    found = {name: Scenarios.get(name) for name in Scenarios.names()}
    document = {
        "scenarios": [
            {"name": name, "kind": kind(item), "title": item.name, "source": item.source, "date": item.date,
             "figure": figure(item)} for name, item in found.items()
        ]
    }  # fmt: skip

    def draw(sheet: Sheet) -> None:
        sheet.title("Scenarios and published runs")
        cells = [(kind(item), [name, figure(item), item.date[:7]]) for name, item in found.items()]
        widths = [max(len(row[place]) for _, row in cells) for place in range(3)]
        for what in dict.fromkeys(group for group, _ in cells):
            sheet.head(what)
            rows = [
                [cell.ljust(n) for cell, n in zip(row, widths, strict=True)] for group, row in cells if group == what
            ]
            sheet.table([], rows, left=(0, 1, 2))
        sheet.say("Next: headway model show NAME says what one holds, where it is from, and what would change it.")

    put(document, draw, as_json=as_json)


def figure(scenario: Any) -> str:
    """Return what a scenario comes to, in a few words; a factor that its source does not give is a question mark."""
    found = next((write for attribute, write in _FIGURES.items() if hasattr(scenario, attribute)), lambda _: "")
    try:
        return found(scenario)
    except ArgumentError:
        names = {"S": "scheduling", "R": "runtime", "P": "program"}
        values = {letter: getattr(scenario, name, None) for letter, name in names.items()}
        return "  ".join(f"{key} {'?' if value is None else show_percent(value)}" for key, value in values.items())


def _runtime(scenario: Any) -> str:
    return f"R {show_percent(scenario.result.runtime_goodput)} on {int(scenario.n_devices):,} devices"


def _failures(scenario: Any) -> str:
    return f"fails every {show_seconds(float(scenario.result.mtbf_s))} on {int(scenario.n_devices):,} devices"


_FIGURES: Final[Mapping[str, Callable[[Any], str]]] = {
    "trade_ratio": lambda scenario: f"MPG {show_percent(scenario.result.mpg)}",
    "sweep": _runtime,
    "scheduling_goodput": lambda scenario: f"S {show_percent(scenario.scheduling_goodput)}",
    "fleet_mfu": lambda scenario: f"P {show_percent(scenario.fleet_mfu)} (MFU)",
    "n_devices": _failures,
    "interval": lambda scenario: f"save every {show_seconds(scenario.interval.to('second').magnitude)}",
}
"""By an attribute that only one kind of scenario has, the first that is there."""
