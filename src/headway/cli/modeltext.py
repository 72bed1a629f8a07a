"""What the commands of `headway model` share: options as people write them, losses and levers on a screen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from rich.text import Text

from headway.clock import NS_PER_S
from headway.ledger.categories import BY_NAME, category
from headway.report.bars import Line, draw
from headway.report.glyphs import wrap
from headway.report.sheet import MAX_WIDTH, Sheet, dump
from headway.units import Price, parse_duration, show_money, show_percent

if TYPE_CHECKING:
    from headway.model.lever import Lever

F = TypeVar("F", bound=Callable[..., Any])
SHOWN: Final = 5
"""How many levers a screen shows."""
MIN_GAIN: Final = 0.001
"""Goodput below which a lever is not worth a reader's time."""
_STYLES: Final = {None: "green", "R": "yellow", "S": "magenta", "P": "cyan"}
_WIDE: Final = 34
"""Columns that names and figures of a table of losses take, at the most."""


class Seconds(click.ParamType[float]):
    """A length of time, in seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return it [s].

        Raises:
            ArgumentError: It cannot be read.
        """
        del param, ctx
        return value if isinstance(value, float) else parse_duration(value) / NS_PER_S


class Money(click.ParamType[Price]):
    """What a device costs for an hour."""

    name = "price"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Price:
        """Return it.

        Raises:
            ArgumentError: It cannot be read.
        """
        del param, ctx
        return value if isinstance(value, Price) else Price.parse(value)


TIME: Final = Seconds()
PRICE: Final = Money()


def json_option(function: F) -> F:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON object, schema 1.")(function)


def price_option(function: F) -> F:
    """Add ``--price``."""
    text = 'What one device costs, such as "2 USD/h".'
    return click.option("--price", metavar="PRICE", type=PRICE, help=text)(function)


def saving_options(function: F) -> F:
    """Add ``--save`` and ``--restart``."""
    restart = "From a failure to the next step. Default: the scenario's, else as long as a save."
    function = click.option("--restart", metavar="TIME", type=TIME, help=restart)(function)
    save = "How long the training stands for a save."
    return click.option("--save", metavar="TIME", type=TIME, help=save)(function)


def put(document: Mapping[str, Any], draw_on: Callable[[Sheet], None], *, as_json: bool) -> None:
    """Print a document as JSON, or as a screen."""
    if as_json:
        sys.stdout.write(dump(document) + "\n")
        return
    sheet = Sheet(sys.stdout)
    draw_on(sheet)
    sys.stdout.flush()


def show_losses(
    sheet: Sheet, shares: Mapping[str, float], before: Mapping[str, float] | None = None, kept: str = "productive"
) -> None:
    """Write a table of shares by category, what is kept first, then the losses, widest first.

    Args:
        sheet: Where to.
        shares: By category, in [0, 1].
        before: The same of what it is held against; None for nothing.
        kept: The category that was not lost.
    """
    names = sorted({*shares, *(before or {})}, key=lambda name: (name != kept, -shares.get(name, 0.0), name))
    lines = [Line("green" if name == kept else _style(name), shares.get(name, 0.0), "") for name in names]
    bars = draw(lines, sheet.glyphs, sheet.width - _WIDE - (12 if before else 0))
    rows: list[list[str | Text]] = []
    for name, bar in zip(names, bars, strict=True):
        cells = [name] if before is None else [name, show_percent(before.get(name, 0.0))]
        rows.append([*cells, show_percent(shares.get(name, 0.0)), bar])
    head = ["", "", ""] if before is None else ["", "now", "then", ""]
    sheet.table(head, rows, left=(0, len(head) - 1))


def show_levers(sheet: Sheet, found: Sequence[Lever], price: Price | None = None, month: str = "30 d") -> None:
    """Write the best levers, each with what it returns and where to look."""
    shown = [lever for lever in found if lever.gain >= MIN_GAIN][:SHOWN]
    if not shown:
        sheet.say("No lever would return 0.1 points or more.")
        return
    sheet.head("What would return most")
    worth = [
        [("up to " if lever.up_to else "") + f"+{100 * lever.gain:.1f} points", *_worth(lever, price)]
        for lever in shown
    ]
    taken = sum(2 + max(map(len, column)) for column in zip(*worth, strict=True))
    width = min(sheet.width, MAX_WIDTH) - 2 - taken
    rows: list[list[str | Text]] = []
    for place, (lever, cells) in enumerate(zip(shown, worth, strict=True), 1):
        lines = wrap(sheet.glyphs.clean(lever.text), width - 3)
        rows.append([Text(f"{place}. " + "\n   ".join(lines)), *cells])
    sheet.table([], rows, wraps=0)
    sheet.say(f"Begin with 1: {shown[0].where}.", _range(shown[0]), _counted(shown, price, month))


def levers_json(found: Sequence[Lever]) -> list[dict[str, Any]]:
    """Return levers as plain dicts."""
    return [asdict(lever) for lever in found]


def _worth(lever: Lever, price: Price | None) -> list[str]:
    if lever.money is not None and price is not None:
        return [show_money(lever.money, price.currency)]
    return [] if lever.device_hours is None else [f"{lever.device_hours:,.0f} device-h"]


def _counted(found: Sequence[Lever], price: Price | None, month: str) -> str:
    counted = "" if found[0].device_hours is None else f" Money is of {month}." if price else f" Hours are of {month}."
    return f"A point is 1 % of the window; of a gain with up to some may stay.{counted}"


def _range(lever: Lever) -> str:
    if lever.low is None or lever.high is None:
        return ""
    low, high = 100 * lever.low, 100 * lever.high
    return f"From so few failures its gain is only known to lie between {low:+.1f} and {high:+.1f} points (95 %)."


def _style(name: str) -> str:
    known = name in BY_NAME or name.startswith("custom:")
    return _STYLES[category(name).factor] if known else "yellow"
