"""`headway report PATH...`: where the device-time of runs went, as a page or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from headway.clock import SYSTEM
from headway.errors import ArgumentError
from headway.units import Price, parse_duration, parse_instant

if TYPE_CHECKING:
    from headway.ledger.history import Pool, Run, Served
    from headway.ledger.ledger import Ledger
    from headway.report.entry import Entry, Options

MAX_WINDOWS: Final = 10_000
"""More windows than that are a slip of the unit, and nobody reads them."""

_NOUNS: Final = {"Run": "run", "Pool": "pool", "Served": "test of a server", "table": "table"}
_NEEDED: Final = {
    "--slo": ("Served",),
    "--devices": ("Run", "Served"),
    "--capacity": ("Pool",),
    "--mapping": ("table",),
}
"""Of which of them an option is; the others are of runs and pools."""


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(path_type=str))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, schema 1, instead of the page.")
@click.option(
    "--until",
    metavar="T",
    help="End the window there: now, epoch seconds or ISO 8601 (without an offset of --zone, else UTC).",
)
@click.option("--every", metavar="TIME", help="Show each window of that length too, such as 1h.")
@click.option("--last", metavar="TIME", help="Only so much before the end, such as 10m.")
@click.option(
    "--devices", metavar="N", type=click.IntRange(min=1), help="Devices of each rank, instead of what logs say."
)
@click.option(
    "--by",
    type=click.Choice(["rank", "attempt", "state", "user", "account", "partition"]),
    help="Show each rank or attempt of a run too, or who held a pool.",
)
@click.option(
    "--capacity", metavar="N", type=click.IntRange(min=1), help="Devices of a pool, instead of what files say."
)
@click.option(
    "--mapping", metavar="FILE", type=click.Path(path_type=str), help="TOML that says what a table's columns mean."
)
@click.option("--zone", metavar="ZONE", help="Zone of times that name none, such as Europe/Zurich; else UTC.")
@click.option("--slo", metavar="SLO", help='What a request must keep, such as "ttft:500ms tpot:50ms".')
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
    capacity: int | None,
    mapping: str | None,
    zone: str | None,
    slo: str | None,
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
        capacity=capacity,
        mapping=mapping,
        zone=zone,
        slo=slo,
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
    capacity: int | None = None,
    mapping: str | None = None,
    zone: str | None = None,
    slo: str | None = None,
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
        devices: Devices of each rank, instead of what logs say.
        by: One of `headway.ledger.ledger.KEYS`.
        capacity: Devices of a pool, instead of what files say.
        mapping: A TOML file about a table's columns.
        zone: The zone of times that name none.
        slo: What a request must keep, as a person writes it.
        price: What one device costs, as a person writes it.

    Raises:
        HeadwayError: A path cannot be read, or an option cannot be used.
    """
    from headway.ledger.history import Served
    from headway.report.entry import Options, split_key
    from headway.sources import load_all

    cut = Cut(
        until_ns=None if until is None else _instant(until, zone),
        every_ns=None if every is None else parse_duration(every),
        last_ns=None if last is None else parse_duration(last),
    )
    options = Options(None if price is None else Price.parse(price), by, windows=every is not None)
    targets = None
    if slo is not None:
        from headway.ledger.serving import parse_slo

        targets = parse_slo(slo)
    found = load_all(paths, devices=devices, capacity=capacity, mapping=mapping, zone=zone)
    of_time = {"--until": until, "--every": every, "--last": last, "--by": by, "--price": price}
    given = {"--slo": slo, "--devices": devices, "--capacity": capacity, "--mapping": mapping, **of_time}
    for said in _in_vain(found, [option for option, value in given.items() if value is not None]):
        click.echo(f"warning: {said}", err=True)
    entries = [cut.entry(one) for one in found if not isinstance(one, Served)]
    split_key(entries, by)
    served = [one for one in found if isinstance(one, Served)]
    _print(entries, options, served, targets, err=err, as_json=as_json)


def _in_vain(found: Sequence[Run | Pool | Served], given: Sequence[str]) -> Iterator[str]:
    """Yield which of the given options are of something that was not read."""
    kinds = {type(one).__name__ for one in found}
    kinds |= {"table"} if any(one.source == "table" for one in found) else set()
    for option in given:
        needed = _NEEDED.get(option, ("Run", "Pool"))
        if kinds.isdisjoint(needed):
            yield f"{option} changes nothing: what was read is no {' and no '.join(_NOUNS[kind] for kind in needed)}"


def _instant(text: str, zone: str | None) -> int:
    from headway.sources.zone import zone_of

    if text.strip().lower() == "now":
        return SYSTEM.wall_ns()
    try:
        own = zone_of(zone or "UTC")
    except ValueError:  # no zone has that name: whoever reads the files says so
        own = UTC
    return parse_instant(text, own)


def _print(
    entries: Sequence[Entry],
    options: Options,
    served: Sequence[Served],
    targets: Mapping[str, float] | None,
    *,
    err: bool,
    as_json: bool,
) -> None:
    stream = sys.stderr if err else sys.stdout
    if as_json:
        from headway.report.document import dump

        stream.write(dump(entries, options, served, targets) + "\n")
        return
    from rich.console import Console

    from headway.report.terminal import MIN_WIDTH, print_report

    console = Console(file=stream)
    console.width = max(console.width, MIN_WIDTH)
    if entries:
        print_report(entries, options, console)
    for number, one in enumerate(served):
        from headway.report.serving import print_serving

        if entries or number:
            console.print()
        print_serving(one, targets, console)


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

    def entry(self, run: Run | Pool) -> Entry:
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
            warnings=(*run.warnings, *whole.warnings, *_outside(run, shown), *self._in_vain(whole)),
            windows=self._windows(whole),
            history=None if shown is whole else whole,
        )

    def _in_vain(self, whole: Ledger) -> Iterator[str]:
        """Say when a window was asked for of what has no times."""
        if whole.window_ns and whole.start_ns is None and (self.last_ns, self.every_ns) != (None, None):
            yield "all of it is shown: when it was is not told, so that --last and --every change nothing"

    def _windows(self, whole: Ledger) -> tuple[Ledger, ...]:
        if self.every_ns is None or whole.start_ns is None:  # an empty run has no windows
            return ()
        return tuple(whole.windows(every_ns=self.every_ns, last_ns=self.last_ns))

    def _check(self, run: Run | Pool, whole: Ledger) -> None:
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


def _outside(run: Run | Pool, shown: Ledger) -> Iterator[str]:
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
