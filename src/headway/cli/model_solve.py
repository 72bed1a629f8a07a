"""`headway model solve`: MPG from its three factors."""

from __future__ import annotations

from typing import Any

import click

from headway.cli.modeltext import json_option, levers_json, price_option, put, show_levers, show_losses
from headway.errors import ArgumentError
from headway.report.sheet import Sheet
from headway.units import Price, show_money, show_percent

_FACTORS = {"S": "scheduling", "R": "runtime", "P": "program"}


class Ceiling(click.ParamType[tuple[str, float]]):
    """What a factor can be brought to, as ``S=0.8``."""

    name = "ceiling"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        """Return the factor's letter and the value.

        Raises:
            ArgumentError: It cannot be read.
        """
        del param, ctx
        letter, _, number = str(value).partition("=")
        try:
            found = float(number)
        except ValueError:
            found = -1.0
        if letter.strip().upper() not in _FACTORS or not 0 < found <= 1:
            raise ArgumentError(
                f"Cannot read the ceiling {value!r}: it is no factor with a value in (0, 1]",
                "Write it as S=0.8, R=0.98 or P=0.65",
                "bad-ceiling",
                value=value,
            )
        return letter.strip().upper(), found


@click.command("solve")
@click.option("--scheduling", metavar="S", type=float, required=True, help="Held by complete allocations over offered.")
@click.option("--runtime", metavar="R", type=float, required=True, help="Retained over held.")
@click.option("--program", metavar="P", type=float, required=True, help="Ideal over retained: the MFU.")
@click.option("--ceiling", "ceilings", metavar="F=X", type=Ceiling(), multiple=True, help="What a factor can be brought to, such as S=0.8. May be repeated.")  # fmt: skip  # noqa: E501
@click.option("--devices", metavar="N", type=click.IntRange(min=1), help="How many devices, for what a gain is worth.")
@price_option
@json_option
def command(
    *,
    scheduling: float,
    runtime: float,
    program: float,
    ceilings: tuple[tuple[str, float], ...],
    devices: int | None,
    price: Price | None,
    as_json: bool,
) -> None:
    """Multiply S, R and P, and show where the rest goes.

    MPG = S x R x P is the share of the offered device-time that did ideal work. Each factor is in
    (0, 1]; every loss is charged once, at the first factor it fails.
    """
    from headway.model.lever import levers
    from headway.model.scenario import GoodputScenario

    scenario = GoodputScenario(scheduling=scheduling, runtime=runtime, program=program, ceilings=dict(ceilings))
    result = scenario.result
    found = levers(scenario, price=price, devices=devices)
    fields = result.as_dict() | {"useful_rate": None, "useful_rate_unit": None}
    if price is not None:
        fields |= {
            "useful_rate": price.per_device_hour * result.cost_multiple,
            "useful_rate_unit": f"{price.currency}/hour",
        }
    document = {
        "inputs": {"scheduling": scheduling, "runtime": runtime, "program": program, "ceilings": dict(ceilings)},
        "result": fields,
        "levers": levers_json(found),
    }

    def draw(sheet: Sheet) -> None:
        draw_goodput(sheet, "ML productivity goodput", result, price)
        show_levers(sheet, found, price)

    put(document, draw, as_json=as_json)


def draw_goodput(sheet: Sheet, title: str, result: Any, price: Price | None) -> None:
    """Write the factors of a result, and where the offered time goes."""
    factors = "   ".join(f"{letter} {show_percent(getattr(result, name))}" for letter, name in _FACTORS.items())
    sheet.title(title, f"MPG {show_percent(result.mpg)}   {factors}")
    shares = {
        "useful": result.mpg,
        "lost to scheduling": result.scheduling_share,
        "lost to the runtime": result.runtime_share,
        "lost in the program": result.program_share,
    }
    show_losses(sheet, {name: share for name, share in shares.items() if share}, kept="useful")
    cost = f"{result.cost_multiple:,.2f} offered ones"
    if price is not None:
        rate = show_money(price.per_device_hour * result.cost_multiple, price.currency)
        cost += f": {rate} at {show_money(price.per_device_hour, price.currency)} each"
    sheet.say(
        f"MPG is the share of the offered device-time that did ideal work: a useful device-hour takes {cost}.",
        "A run's own R: headway report RUN",
    )
