"""`headway model sweep NAME`: a scenario over a range of sizes."""

from __future__ import annotations

import re
from typing import Any, Final

import click
from rich.text import Text

from headway.cli.modeltext import json_option, put, saving_options
from headway.errors import ArgumentError
from headway.report.chart import legend, stack
from headway.report.sheet import Sheet
from headway.units import show_percent, show_seconds

MOST: Final = 200
"""More sizes than that are a slip."""
_WHOLE: Final = re.compile(r"[0-9]{1,12}")
_RANGE: Final = re.compile(r"([0-9]{1,12}):([0-9]{1,12})(?::([0-9]{1,12}))?")


class Sizes(click.ParamType[list[int]]):
    """Numbers of devices: ``128:32768`` doubles from one to the other, ``128:32768:4`` takes four times."""

    name = "sizes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[int]:
        """Return the sizes, the smallest first.

        Raises:
            ArgumentError: They cannot be read.
        """
        del param, ctx
        if isinstance(value, list):
            return value
        text = str(value).replace(",", " ").replace("_", "")
        match = _RANGE.fullmatch(text.strip())
        words = text.split()
        if match:
            sizes = _range(int(match[1]), int(match[2]), int(match[3] or 2))
        else:
            sizes = sorted({int(word) for word in words}) if all(map(_WHOLE.fullmatch, words)) else []
        if not sizes or sizes[0] < 1 or len(sizes) > MOST:
            raise ArgumentError(
                f"Cannot read the sizes {str(value)[:40]!r}: they are no range, and no list of up to {MOST} numbers "
                "above zero",
                "Write them as 128:32768 or 128,512,2048",
                "bad-sizes",
                value=value,
            )
        return sizes


def _range(low: int, high: int, factor: int) -> list[int]:
    sizes = []
    while 0 < low <= high and factor > 1:
        sizes.append(low)
        low *= factor
    if sizes and sizes[-1] < high:
        sizes.append(high)
    return sizes


@click.command("sweep")
@click.argument("name", metavar="NAME")
@click.option(
    "--devices", "sizes", metavar="A:B", type=Sizes(), default="128:32768", show_default=True,
    help="Sizes: a range that doubles, A:B:4 for four times, or a list such as 128,512.",
)  # fmt: skip
@click.option("--plot", is_flag=True, help="Draw a chart of where the time goes.")
@click.option("--html", metavar="FILE", type=click.Path(dir_okay=False), help="Write an interactive chart as a page.")
@saving_options
@json_option
def command(
    *,
    name: str,
    sizes: list[int],
    plot: bool,
    html: str | None,
    save: float | None,
    restart: float | None,
    as_json: bool,
) -> None:
    """Take a scenario over a range of sizes, as a chart.

    NAME is one of `headway model list` with a runtime model. The rate of failures grows with the
    devices; everything else stays.
    """
    from headway.cli.modelscenario import canonical, runtime_scenario
    from headway.model.told import is_exact, tell

    name = canonical(name)
    scenario = runtime_scenario(name, save, restart)
    results = scenario.sweep(sizes)
    told = {size: tell(result) for size, result in results.items()}
    shares = {size: {key: share for key, share in fit.shares.items() if share} for size, fit in told.items()}
    document = {
        "name": name,
        "sweep": [
            {"devices": size, "runtime": fit.runtime, "mtbf_s": fit.mtbf.value_s, "interval_s": fit.interval_s,
             "shares": shares[size], "exact": is_exact(results[size]), "outcome": fit.outcome,
             "first_order": results[size].runtime_goodput} for size, fit in told.items()
        ],
        "html": html,
    }  # fmt: skip
    if html is not None:
        from headway.report.htmlchart import write

        write(html, f"Where the time goes: {name}", shares)

    def draw(sheet: Sheet) -> None:
        sheet.title(*_title(name, told))
        (_chart if plot else _figures)(sheet, told, shares)
        sheet.say(
            "R is the share of the held time whose training is kept; a job twice the size fails twice as often.",
            f"Written: {html}" if html else "",
            "" if plot or html else "Next: --plot draws it, --html FILE as a page.",
            _which([size for size in told if is_exact(results[size])], [*told]),
            _stuck([size for size, fit in told.items() if fit.outcome != "ok"]),
            f"What would change it: headway model show {name}",
        )

    put(document, draw, as_json=as_json)


def _title(name: str, told: dict[int, Any]) -> tuple[str, str]:
    first, last = min(told), max(told)
    before, after = show_percent(told[first].runtime), show_percent(told[last].runtime)
    if first == last:
        return f"{name} on {first:,} {'device' if first == 1 else 'devices'}", f"runtime goodput R {before}"
    turns = "stays at" if before == after else "falls to" if told[last].runtime < told[first].runtime else "rises to"
    return f"{name} from {first:,} to {last:,} devices", f"runtime goodput R {before} {turns} {after}"


def _which(exact: list[int], sizes: list[int]) -> str:
    """Say which sizes are of the exact form."""
    if not exact:
        return "To first order: the exact form is within a point of it."
    rest = "; below that, to first order" if len(exact) < len(sizes) else ""
    where = f"From {exact[0]:,} devices on" if exact == sizes[-len(exact) :] else f"At {_listed(exact)} devices"
    rest = rest if where.startswith("From") else "; elsewhere, to first order" if rest else ""
    return f"{where} by the exact form, as the first-order sum is off by more than a point{rest}."


def _stuck(sizes: list[int]) -> str:
    if not sizes:
        return ""
    return (
        f"No progress at {_listed(sizes)} devices: failures come as fast as saves. Save faster or in the background, "
        "restart faster, or take fewer devices."
    )


def _listed(sizes: list[int]) -> str:
    return ", ".join(f"{size:,}" for size in sizes)


def _figures(sheet: Sheet, told: dict[int, Any], shares: dict[int, dict[str, float]]) -> None:
    rows = []
    for size, fit in told.items():
        lost = {name: share for name, share in shares[size].items() if name != "productive"}
        most = max(lost, key=lost.__getitem__, default="")
        rows.append(
            [
                f"{size:,}",
                show_percent(fit.runtime),
                _time(fit.mtbf.value_s),
                _time(fit.interval_s),
                f"{most} {show_percent(lost[most])}" if most else "",
            ]
        )
    sheet.table(["devices", "R", "MTBF", "save every", "largest loss"], rows, left=(4,))


def _chart(sheet: Sheet, told: dict[int, Any], shares: dict[int, dict[str, float]]) -> None:
    width = min(sheet.width, 100) - 24
    rows: list[list[str | Text]] = [
        [f"{size:,}", show_percent(fit.runtime), stack(shares[size], sheet.glyphs, width)] for size, fit in told.items()
    ]
    sheet.table(["devices", "R", "0 %" + " " * (width - 8) + "100 %"], rows, left=(2,))
    sheet.say(legend(list(shares.values()), sheet.glyphs))


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else show_seconds(seconds)
