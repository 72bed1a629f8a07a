"""A run as a table for a terminal: what was predicted and measured, held and allowed."""

from __future__ import annotations

from statistics import median

from rich.table import Table
from rich.text import Text

from headway.cluster.record import dots
from headway.cluster.report import ClusterRun
from headway.sources.text import clean
from headway.units import show_seconds


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
    for name in ("forward", "predicted", "predicted\n/forward", "wait", "GB/budget"):
        table.add_column(name, justify="right")
    for one in run.timings:
        share = "-"
        if one.predicted_ms is not None and one.forward_ms:
            share = f"{one.predicted_ms / one.forward_ms:.2f}"
        budget = "-" if one.budget_bytes is None else f"{one.budget_bytes / 1e9:.2f}"
        cells = (
            *(one.addr, dots(one.layers), " ".join(filter(None, (one.device, one.precision)))),
            *(ms(one.forward_ms), ms(one.predicted_ms), share, ms(one.wait_ms)),
            f"{one.resident_bytes / 1e9:.2f}/{budget}",
        )
        table.add_row(*(Text(clean(cell)) for cell in cells))
    told = [f"{run.mode}, total {ms(run.total_forward_ms)}, critical path {ms(run.critical_path_ms())}"]
    if run.straggler is not None:
        others = median(one.forward_ms for one in run.timings if one.addr != run.straggler)
        more = f", {run.critical_path_ms() / others:.2f} times the median of the others" if others else ""
        told.append(f"straggler {clean(run.straggler)}{more}")
    table.caption = Text("\n".join([*told, *(clean(one, 1000) for one in run.recovered)]))
    return table
