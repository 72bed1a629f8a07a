"""`headway report PATH...`: where the device-time of runs went, as a page or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from headway.clock import SYSTEM
from headway.errors import ArgumentError
from headway.units import Price, parse_duration, parse_instant

if TYPE_CHECKING:
    from headway.ledger.history import Run
    from headway.ledger.ledger import Ledger
    from headway.report.entry import Entry, Options

MAX_WINDOWS: Final = 10_000
"""More windows than that are a slip of the unit, and nobody reads them."""


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=str))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, schema 1, instead of the page.")
@click.option(
    "--until", metavar="T", help="End the window there: now, epoch seconds or ISO 8601 (UTC without an offset)."
)
@click.option("--every", metavar="TIME", help="Show each window of that length too, such as 1h.")
@click.option("--last", metavar="TIME", help="Only so much before the end, such as 10m.")
@click.option(
    "--devices", metavar="N", type=click.IntRange(min=1), help="Devices of a rank, where the log does not say."
)
@click.option("--by", type=click.Choice(["rank", "attempt"]), help="Show each rank, or each attempt, too.")
@click.option("--price", metavar="PRICE", help='What one device costs, such as "2 USD/h": adds what each loss costs.')
def report(
    paths: tuple[str, ...],
    *,
    as_json: bool,
    until: str | None,
    every: str | None,
    last: str | None,
    devices: int | None,
    by: str | None,
    price: str | None,
) -> None:
    """Show where the device-time of runs went, and what would return most.

    PATH is a run's folder, a root of runs, one attempt's folder, or any log that is recognised by
    its content. Without one it is the folder of all runs: $HEADWAY_DIR, else ./headway-logs.
    """
    show(
        paths or [_default_root()],
        as_json=as_json,
        until=until,
        every=every,
        last=last,
        devices=devices,
        by=by,
        price=price,
    )


def show(
    paths: Sequence[str],
    err: bool = False,
    *,
    as_json: bool = False,
    until: str | None = None,
    every: str | None = None,
    last: str | None = None,
    devices: int | None = None,
    by: str | None = None,
    price: str | None = None,
) -> None:
    """Print the report of those paths.

    Args:
        paths: What to read, in the order to show it.
        err: To stderr instead of stdout.
        as_json: As one JSON object.
        until: End of the window, as a person writes it.
        every: Length of windows, as a person writes it.
        last: Length before the end, as a person writes it.
        devices: Devices of a rank where the log does not say.
        by: ``rank`` or ``attempt``.
        price: What one device costs, as a person writes it.

    Raises:
        HeadwayError: A path cannot be read, or an option cannot be used.
    """
    from headway.report.entry import Options
    from headway.sources import load_all

    cut = Cut(
        until_ns=None if until is None else _instant(until),
        every_ns=None if every is None else parse_duration(every),
        last_ns=None if last is None else parse_duration(last),
    )
    options = Options(None if price is None else Price.parse(price), by, windows=every is not None)
    runs = load_all(paths, devices=devices)
    _print([cut.entry(run) for run in runs], options, err=err, as_json=as_json)


def _instant(text: str) -> int:
    return SYSTEM.wall_ns() if text.strip().lower() == "now" else parse_instant(text)


def _print(entries: Sequence[Entry], options: Options, *, err: bool, as_json: bool) -> None:
    stream = sys.stderr if err else sys.stdout
    if as_json:
        from headway.report.document import dump

        stream.write(dump(entries, options) + "\n")
        return
    from rich.console import Console

    from headway.report.terminal import MIN_WIDTH, print_report

    console = Console(file=stream)
    console.width = max(console.width, MIN_WIDTH)
    print_report(entries, options, console)


@dataclass(frozen=True, slots=True)
class Cut:
    """Which time of a run is shown.

    Attributes:
        until_ns: Where it ends [ns since the Unix epoch]; None for where the run does.
        every_ns: Length of the windows it is divided into [ns]; None for none.
        last_ns: How much before the end is shown [ns]; None for all.
    """

    until_ns: int | None = None
    every_ns: int | None = None
    last_ns: int | None = None

    def entry(self, run: Run) -> Entry:
        """Return the run as it is shown."""
        from headway.ledger.account import account
        from headway.report.entry import Entry

        whole = account(run, until_ns=self.until_ns)
        self._check(run, whole)
        shown = whole
        if self.last_ns is not None and whole.start_ns is not None:
            shown = next(whole.windows(last_ns=self.last_ns), whole)
        return Entry(
            run=run.name,
            source=run.source,
            ledger=shown,
            path=run.path,
            warnings=(*run.warnings, *whole.warnings, *_outside(run, shown)),
            windows=self._windows(whole),
            history=None if shown is whole else whole,
        )

    def _windows(self, whole: Ledger) -> tuple[Ledger, ...]:
        if self.every_ns is None or whole.start_ns is None:  # an empty run has no windows
            return ()
        return tuple(whole.windows(every_ns=self.every_ns, last_ns=self.last_ns))

    def _check(self, run: Run, whole: Ledger) -> None:
        """Refuse what would show nothing, or far too much."""
        if whole.start_ns is None or whole.end_ns is None:
            return
        length_ns = min(whole.end_ns - whole.start_ns, self.last_ns or whole.end_ns)
        if self.every_ns is not None and length_ns > MAX_WINDOWS * self.every_ns:
            raise ArgumentError(
                f"Cannot divide run {run.name}: {-(-length_ns // self.every_ns)} windows; at most {MAX_WINDOWS}",
                "Give --every a longer time, or --last a shorter one",
                "too-many-windows",
                run=run.name,
                every_ns=self.every_ns,
            )


def _outside(run: Run, shown: Ledger) -> Iterator[str]:
    """Say when a run was of which nothing lies in the window that was asked for."""
    from headway.ledger.account import account
    from headway.report.notes import moment

    whole = None if shown.held_ns else account(run)
    if whole is not None and whole.held_ns:
        began, ended = moment(whole.start_ns), moment(whole.end_ns)
        yield f"nothing of the run lies in this window: it was from {began} to {ended} UTC"


def _default_root() -> str:
    """Return the folder of all runs.

    Raises:
        UsageError: There is none yet.
    """
    from headway.record.identity import log_root

    root = log_root(None)
    if not Path(root).is_dir():
        raise click.UsageError(f"give a PATH: there is no folder {root} yet. To see a report, try: headway demo")
    return root
