"""`headway model whatif RUN`: a recorded run at another size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final

import click

from headway.cli.modeltext import PRICE, TIME, json_option, levers_json, put, show_levers, show_losses
from headway.errors import ArgumentError
from headway.report.sheet import Sheet
from headway.units import Price, show_percent, show_seconds

if TYPE_CHECKING:
    from headway.ledger.ledger import Ledger
    from headway.model.fitting import Fit

_UNSIZED: Final = "the number of devices is not in the log"
"""In the warning of a run whose log does not say its size."""


@click.command("whatif")
@click.argument("path", metavar="RUN", type=click.Path(path_type=str))
@click.option(
    "--devices", metavar="N", type=click.IntRange(min=1), help="How many devices. Default: as many as it had."
)
@click.option("--mtbf", metavar="TIME", type=TIME, help="Mean time between failures of the whole job at that size.")
@click.option(
    "--mtbf-per-device", metavar="TIME", type=TIME, help="The same of one device: the job's falls with 1/devices."
)
@click.option("--save", metavar="TIME", type=TIME, help="How long the training stands for a save.")
@click.option("--restart", metavar="TIME", type=TIME, help="From a failure to the next step.")
@click.option("--interval", metavar="TIME", type=TIME, help="Training between two saves. Default: Daly's, the best.")
@click.option(
    "--recorded-devices",
    metavar="N",
    type=click.IntRange(min=1),
    help="How many devices it had, where its log does not say.",
)
@click.option("--price", metavar="PRICE", type=PRICE, help='What one device costs, such as "2 USD/h".')
@json_option
def command(
    *,
    path: str,
    devices: int | None,
    mtbf: float | None,
    mtbf_per_device: float | None,
    save: float | None,
    restart: float | None,
    interval: float | None,
    recorded_devices: int | None,
    price: Price | None,
    as_json: bool,
) -> None:
    """Take a recorded run to another size, and show what it would lose.

    RUN is a run as `headway report` takes it. What is not given is the run's own, as it was
    measured; the time between failures falls as the devices grow.
    """
    from headway.model.fitting import NO_PROGRESS, fit
    from headway.model.lever import levers
    from headway.model.projection import project

    if mtbf is not None and mtbf_per_device is not None:
        raise click.UsageError("give --mtbf or --mtbf-per-device, not both")
    ledger = read(path)
    unsized = recorded_devices is None and any(_UNSIZED in warning for warning in ledger.warnings)
    warnings = [text for text in ledger.warnings if unsized or _UNSIZED not in text]
    told = fit(ledger)
    if recorded_devices is not None:
        told = replace(told, devices=recorded_devices)
    size = devices or told.devices or 1
    given = {"save": save, "restart": restart, "mtbf": mtbf if mtbf_per_device is None else mtbf_per_device / size}
    then = project(told, devices=size, interval=interval, **given)
    own = (
        None
        if interval is not None or told.interval_s is None
        else project(told, devices=size, interval=told.interval_s, **given)
    )
    found = levers(then, price=price)
    document = {
        "run": told.run,
        "fit": asdict(told),
        "then": asdict(then),
        "at_own_interval": None if own is None else own.runtime,
        "outcome": then.outcome,
        "warnings": warnings,
        "given": {name: value for name, value in given.items() if value is not None},
        "levers": levers_json(found),
    }

    def draw(sheet: Sheet) -> None:
        _draw(sheet, told, then, unsized=unsized)
        how = f"R is the share of the held time whose training is kept{_saving(told, then, own, interval)}"
        sheet.say(how, *_rests(told, then, given, unsized=unsized))
        sheet.say(*(f"warning: {text}" for text in warnings))
        if then.outcome == NO_PROGRESS:
            sheet.say(_stuck(then))
        show_levers(sheet, found, price)

    put(document, draw, as_json=as_json)


def read(path: str) -> Ledger:
    """Return the ledger of the one run at a path.

    Raises:
        ArgumentError: There are several.
    """
    from headway.ledger.account import account
    from headway.sources import load_all

    runs = load_all([path])
    if len(runs) > 1:
        names = ", ".join(run.path for run in runs[:3])
        raise ArgumentError(
            f"Cannot model {path}: it holds {len(runs)} runs",
            f"Give one of them, such as {names}",
            "several-runs",
            path=path,
        )
    return account(runs[0])


def _draw(sheet: Sheet, told: Fit, then: Fit, *, unsized: bool) -> None:
    before, after = show_percent(told.runtime or 0.0), show_percent(then.runtime or 0.0)
    size = "an unknown size (1 counted)" if unsized else f"{told.devices:,}"
    stuck = "   no progress" if then.outcome != "ok" else ""
    sheet.title(
        f"{told.run} on {then.devices:,} {'device' if then.devices == 1 else 'devices'}",
        f"runtime goodput R {after}   on {size} as recorded {before}{stuck}",
    )
    show_losses(sheet, then.shares, told.shares)


def _stuck(then: Fit) -> str:
    """Say why a run makes no progress, and what to do instead."""
    save, mtbf, restart = (show_seconds(x or 0.0) for x in (then.save_s, then.mtbf.value_s, then.restart_s))
    return (
        f"No progress: a failure every {mtbf}, with a save of {save} and a restart of {restart}, leaves next to "
        "nothing. Save faster or in the background, restart faster, or take fewer devices."
    )


def _saving(told: Fit, then: Fit, own: Fit | None, interval: float | None) -> str:
    every = f": saved every {show_seconds(then.interval_s or 0.0)}"
    if interval is not None:
        return f"{every}, as given."
    if own is None:
        return f"{every}, the best (Daly's); the run's own is not known: it needs {told.missing['interval_s']}."
    at, runtime = show_seconds(own.interval_s or 0.0), show_percent(own.runtime or 0.0)
    return f"{every}, the best; at the run's own {at} R would be {runtime}."


def _rests(told: Fit, then: Fit, given: dict[str, Any], *, unsized: bool) -> Iterator[str]:
    """Say what was given and what was measured."""
    values = {"mtbf": then.mtbf.value_s, "save": then.save_s, "restart": then.restart_s}
    words = {"mtbf": "a failure every", "save": "a save of", "restart": "a restart of"}
    for name, value in values.items():
        source = "given" if given[name] is not None else "measured"
        if source == "measured" and name == "mtbf":
            seen = told.mtbf.n_failures
            on = "an unknown size (1 counted)" if unsized else f"{told.devices:,}"
            limits = f"{show_seconds(then.mtbf.low_s or 0.0)} to {show_seconds(then.mtbf.high_s or 0.0)}"
            source = f"measured: {seen} seen on {on}; 95 %: {limits}"
        yield f"{words[name]} {show_seconds(value or 0.0)} ({source})"
    if "productive" in then.shares and told.step_s:
        yield "Steps and waits for data are taken to stay as they are: larger jobs also wait for each other."
