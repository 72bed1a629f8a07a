"""`headway model interval`: how often to save, and how much it matters."""

from __future__ import annotations

from typing import Any

import click

from headway.cli.modeltext import TIME, json_option, put
from headway.report.sheet import Sheet
from headway.units import show_percent, show_seconds


@click.command("interval")
@click.option(
    "--save", "save_s", metavar="TIME", type=TIME, required=True, help="How long the training stands for a save."
)
@click.option(
    "--mtbf", "mtbf_s", metavar="TIME", type=TIME, required=True, help="Mean time between failures of the whole job."
)
@click.option(
    "--restart",
    "restart_s",
    metavar="TIME",
    type=TIME,
    default="5 min",
    show_default=True,
    help="From a failure to the next step.",
)
@json_option
def command(*, save_s: float, mtbf_s: float, restart_s: float, as_json: bool) -> None:
    """Compute how often to save.

    The interval is the training between two saves, Daly's (2006). What is kept is the exact renewal
    form's, for failures that come at random.
    """
    document = compute(save_s, mtbf_s, restart_s)
    put(document, lambda sheet: _draw(sheet, document), as_json=as_json)


def compute(save_s: float, mtbf_s: float, restart_s: float) -> dict[str, Any]:
    """Return the best interval and what is kept at it, beside Young's and others."""
    from headway.model.checkpoint import daly, exact, young
    from headway.model.renewal import split

    best_s = float(daly(save_s, mtbf_s))
    rows = {name: best_s * ratio for name, ratio in _RATIOS.items()}
    rows |= {"Young (1974)": young(save_s, mtbf_s), "exact": float(exact(save_s, mtbf_s))}
    compared = []
    for name, interval_s in rows.items():
        times = split(interval_s, save_s, mtbf_s, restart_s)
        compared.append({
            "name": name, "interval_s": interval_s, "kept": times.kept, "saving": times.saving,
            "rework": times.rework, "restarting": times.restarting,
        })  # fmt: skip
    return {
        "interval_s": best_s,
        "method": "daly",
        "save_s": save_s,
        "mtbf_s": mtbf_s,
        "restart_s": restart_s,
        "kept": compared[2]["kept"],
        "compared": compared,
        "saves_last": save_s >= mtbf_s,
    }


def _draw(sheet: Sheet, document: dict[str, Any]) -> None:
    given = {name: show_seconds(document[f"{name}_s"]) for name in ("save", "mtbf", "restart")}
    sheet.title(
        f"Save every {show_seconds(document['interval_s'])} of training",
        f"save {given['save']}   MTBF {given['mtbf']}   restart {given['restart']}",
    )
    rows = [
        [row["name"], show_seconds(row["interval_s"]), *(show_percent(row[key]) for key in _SHARES)]
        for row in document["compared"]
    ]
    sheet.table(["interval", "", "kept", "saves", "rework", "restarts"], rows)
    worst = document["compared"][3]
    kept, less = show_percent(document["kept"]), show_percent(worst["kept"])
    sheet.say(f"At best {kept} of the held time is kept; at twice the interval {less}.")
    if document["saves_last"]:
        sheet.say(
            "warning: a save takes as long as the job lives between failures. "
            "No interval helps: make the save shorter first.",
            style="yellow",
        )
    else:
        sheet.say("Next: a shorter save or restart returns more than a finer interval. Try --save with half the time.")


_RATIOS = {"a quarter": 0.25, "half": 0.5, "Daly (2006)": 1.0, "double": 2.0, "four times": 4.0}
_SHARES = ("kept", "saving", "rework", "restarting")
