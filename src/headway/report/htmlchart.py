"""A chart as a page of its own, which can be zoomed and read with the mouse: needs the extra ``html``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.errors import HeadwayError
from headway.report.chart import KEPT


def write(path: str, title: str, points: Mapping[int, Mapping[str, float]]) -> None:
    """Write shares by category over sizes as an HTML page that needs no network.

    Args:
        path: Where to.
        title: What the page is of.
        points: By number of devices: shares by category, which sum to 1.

    Raises:
        HeadwayError: plotly is not installed, or the file cannot be written.
    """
    graph = _plotly()
    names = list(dict.fromkeys(name for shares in points.values() for name in shares))
    names.sort(key=lambda name: name != KEPT)
    figure = graph.Figure()
    for name in names:
        figure.add_trace(
            graph.Scatter(
                x=list(points),
                y=[shares.get(name, 0.0) for shares in points.values()],
                name=name,
                mode="lines+markers",
                stackgroup="time",
                hovertemplate="%{x:,} devices: %{y:.2%}",
            )
        )
    figure.update_layout(title=title, hovermode="x unified", template="plotly_white")
    figure.update_xaxes(title="devices", type="log")
    figure.update_yaxes(title="share of the held time", tickformat=".0%", range=[0, 1])
    try:
        Path(path).write_text(figure.to_html(include_plotlyjs=True, full_html=True), encoding="utf-8")
    except OSError as error:
        raise HeadwayError(
            f"Cannot write {path}: {error.strerror or error}",
            "Give --html a file in a folder that you can write",
            "unwritable-file",
            path=path,
        ) from error


def _plotly() -> Any:
    try:
        from plotly import graph_objects
    except ImportError as error:
        raise HeadwayError(
            "Cannot draw an HTML chart: plotly is not installed",
            'Run: pip install "headway[html]"',
            "missing-extra",
            extra="html",
        ) from error
    return graph_objects
