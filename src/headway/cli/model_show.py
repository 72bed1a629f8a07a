"""`headway model show NAME`: what a scenario holds, what it comes to, and what would change it."""

from __future__ import annotations

from typing import Any

import click

from headway.cli.model_list import figure
from headway.cli.model_solve import draw_goodput
from headway.cli.modelscenario import canonical, inputs, kind, named, plain, text
from headway.cli.modeltext import json_option, levers_json, price_option, put, show_levers, show_losses
from headway.errors import ArgumentError
from headway.report.sheet import Sheet
from headway.units import Price, show_percent, show_seconds


@click.command("show")
@click.argument("name", metavar="NAME")
@price_option
@json_option
def command(*, name: str, price: Price | None, as_json: bool) -> None:
    """Show one of them: its inputs, its result, its levers.

    NAME is one of `headway model list`.
    """
    from headway.model.lever import levers, price_of

    name = canonical(name)
    scenario = named(name)
    has_levers = hasattr(scenario, "sweep") or hasattr(scenario, "trade_ratio")
    price = price or price_of(scenario, given=False)
    found = levers(scenario, price=price, devices=scenario.facts.get("n_devices")) if has_levers else []
    document = {
        "name": name,
        "kind": kind(scenario),
        "title": scenario.name,
        "description": scenario.description,
        "source": scenario.source,
        "date": scenario.date,
        "facts": plain(scenario.facts),
        "inputs": plain(inputs(scenario)),
        "result": _result(scenario),
        "levers": levers_json(found),
    }

    def draw(sheet: Sheet) -> None:
        _draw(sheet, scenario, price)
        if has_levers:
            show_levers(sheet, found, price)
        rows = [[key, text(key, value)] for key, value in {**inputs(scenario), **scenario.facts}.items()]
        sheet.head("What it holds")
        width = max((len(row[0]) for row in rows), default=0)
        sheet.table([], [[row[0].ljust(width), row[1]] for row in rows], left=(0, 1), wraps=1)
        sheet.say(scenario.description, f"Source: {scenario.source}{f', {scenario.date}' if scenario.date else ''}")
        if hasattr(scenario, "n_devices"):
            save = "" if hasattr(scenario, "sweep") else ' --save "30 s" --restart "5 min"'
            sheet.say(f"Next: headway model sweep {name}{save} --plot takes it to other sizes.")

    put(document, draw, as_json=as_json)


def _result(scenario: Any) -> Any:
    try:
        result: Any = getattr(scenario, "result", None)
    except ArgumentError:
        return None
    return plain(result.as_dict()) if hasattr(result, "as_dict") else {"figure": figure(scenario)}


def _draw(sheet: Sheet, scenario: Any, price: Price | None) -> None:
    if hasattr(scenario, "sweep"):
        _draw_runtime(sheet, scenario)
        return
    if hasattr(scenario, "trade_ratio") and "?" not in figure(scenario):
        draw_goodput(sheet, scenario.name, scenario.result, price)
        return
    sheet.title(scenario.name, figure(scenario))


def _draw_runtime(sheet: Sheet, scenario: Any) -> None:
    from headway.model.told import is_exact, tell

    result, told = scenario.result, tell(scenario)
    sheet.title(scenario.name, f"R {show_percent(told.runtime or 0.0)} on {int(scenario.n_devices):,} devices")
    show_losses(sheet, {name: share for name, share in told.shares.items() if share})
    mtbf, interval = show_seconds(result.mtbf_s), show_seconds(result.interval_s)
    first, exact = show_percent(result.runtime_goodput), show_percent(result.exact_runtime_goodput)
    sheet.say(
        f"R is the share of the held time whose training is kept. A failure every {mtbf}, a save every {interval}.",
        f"By the exact form; to first order it would be {first}."
        if is_exact(result)
        else f"To first order; the exact form gives {exact}.",
        *(() if is_exact(result) and told.outcome == "ok" else result.notes),
    )
