"""A run as a table for a terminal: what was predicted and measured, held and allowed."""

from __future__ import annotations

from typing import Final

from rich.table import Table
from rich.text import Text

from headway.cluster.record import dots
from headway.cluster.report import ClusterRun
from headway.sources.text import clean
from headway.units import show_bytes, show_seconds

_NAMED: Final = 1.1
"""So far above the median of the others the straggler is worth a word [ratio]."""


def rich_table(run: ClusterRun) -> Table:
    """Return a run as a table for a terminal: what was predicted and measured, held and allowed.

    Names are shown without what could steer a terminal. What is not known is a dash.

    Args:
        run: The run to show.
    """

    def ms(time: float | None) -> str:
        return "-" if time is None else show_seconds(time / 1000)

    table = Table(box=None, pad_edge=False, title_justify="left", caption_justify="left")
    for name in ("node", "layers", "as"):
        table.add_column(name, overflow="fold")
    for name in ("forward", "predicted", "predicted\n/forward", "wait", "memory\n/budget"):
        table.add_column(name, justify="right")
    for one in run.timings:
        share = "-"
        if one.predicted_ms is not None and one.forward_ms:
            share = f"{one.predicted_ms / one.forward_ms:.2f}"
        sizes = [one.resident_bytes] if one.budget_bytes is None else [one.resident_bytes, one.budget_bytes]
        cells = (
            *(one.addr, dots(one.layers), " ".join(filter(None, (one.device, one.precision)))),
            *(ms(one.forward_ms), ms(one.predicted_ms), share, ms(one.wait_ms)),
            show_bytes(*sizes).replace(" of ", "/"),
        )
        table.add_row(*(Text(clean(cell)) for cell in cells))
    told = [f"{run.mode}, total {ms(run.total_forward_ms)}, critical path {ms(run.critical_path_ms())}"]
    told.extend(_straggler(run))
    table.caption = Text("\n".join([*told, *(clean(one, 1000) for one in run.recovered)]))
    return table


def _straggler(run: ClusterRun) -> list[str]:
    """Name the straggler, where it stands out by more than what times of one drive scatter."""
    others_ms = run.median_of_others_ms()
    if run.straggler is None or run.critical_path_ms() < _NAMED * others_ms:
        return []
    whose = "that of the other" if len(run.timings) == 2 else "the median of the others"
    more = f", {run.critical_path_ms() / others_ms:.2f} times {whose}" if others_ms else ""
    return [f"straggler {clean(run.straggler)}{more}"]
