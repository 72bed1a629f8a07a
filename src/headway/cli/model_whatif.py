"""`headway model whatif RUN`: a recorded run at another size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from headway.cli.modeltext import PRICE, TIME, json_option, levers_json, put, show_levers, show_losses
from headway.errors import ArgumentError
from headway.report.sheet import Sheet
from headway.units import Price, show_percent, show_seconds

if TYPE_CHECKING:
    from headway.ledger.ledger import Ledger
    from headway.model.fitting import Fit


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
    price: Price | None,
    as_json: bool,
) -> None:
    """Take a recorded run to another size, and show what it would lose.

    RUN is a run as `headway report` takes it. What is not given is the run's own, as it was
    measured; the time between failures falls as the devices grow.
    """
    from headway.model.fitting import fit
    from headway.model.lever import levers
    from headway.model.projection import project

    if mtbf is not None and mtbf_per_device is not None:
        raise click.UsageError("give --mtbf or --mtbf-per-device, not both")
    told = fit(read(path))
    size = devices or told.devices or 1
    given = {"save": save, "restart": restart, "mtbf": mtbf if mtbf_per_device is None else mtbf_per_device / size}
    then = project(told, devices=size, interval=interval, **given)
    own = (
        None if interval or told.interval_s is None else project(told, devices=size, interval=told.interval_s, **given)
    )
    found = levers(then, price=price)
    document = {
        "run": told.run,
        "fit": asdict(told),
        "then": asdict(then),
        "at_own_interval": None if own is None else own.runtime,
        "given": {name: value for name, value in given.items() if value is not None},
        "levers": levers_json(found),
    }

    def draw(sheet: Sheet) -> None:
        _draw(sheet, told, then, own, given)
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


def _draw(sheet: Sheet, told: Fit, then: Fit, own: Fit | None, given: dict[str, Any]) -> None:
    before, after = show_percent(told.runtime or 0.0), show_percent(then.runtime or 0.0)
    sheet.title(
        f"{told.run} on {then.devices:,} {'device' if then.devices == 1 else 'devices'}",
        f"runtime goodput R {after}   on {told.devices:,} as recorded {before}",
    )
    show_losses(sheet, then.shares, told.shares)
    sheet.say(f"R is the share of the held time whose training is kept{_saving(then, own)}", *_rests(told, then, given))


def _saving(then: Fit, own: Fit | None) -> str:
    every = f": saved every {show_seconds(then.interval_s or 0.0)}"
    if own is None:
        return f"{every}, as given."
    interval, runtime = show_seconds(own.interval_s or 0.0), show_percent(own.runtime or 0.0)
    return f"{every}, the best; at the run's own {interval} R would be {runtime}."


def _rests(told: Fit, then: Fit, given: dict[str, Any]) -> Iterator[str]:
    """Say what was given and what was measured."""
    values = {"mtbf": then.mtbf.value_s, "save": then.save_s, "restart": then.restart_s}
    words = {"mtbf": "a failure every", "save": "a save of", "restart": "a restart of"}
    for name, value in values.items():
        source = "given" if given[name] is not None else "measured"
        if source == "measured" and name == "mtbf":
            seen = told.mtbf.n_failures
            limits = f"{show_seconds(then.mtbf.low_s or 0.0)} to {show_seconds(then.mtbf.high_s or 0.0)}"
            source = f"measured: {seen} seen on {told.devices:,}; 95 %: {limits}"
        yield f"{words[name]} {show_seconds(value or 0.0)} ({source})"
    if "productive" in then.shares and told.step_s:
        yield "Steps and waits for data are taken to stay as they are: larger jobs also wait for each other."
