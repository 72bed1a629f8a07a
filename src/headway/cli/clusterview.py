"""What a cluster does, while it does it: a table on the terminal that is redrawn, or a line for each change."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from headway.cli.clustertext import dots, gb, ms
from headway.cli.main import say

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from headway.cluster.cluster import Cluster, NodeState

_REDRAW_S: Final = 1 / 8
_SILENT_S: Final = 2.0
"""A node that was heard sooner is well; how long ago that was would only flicker [s]."""


class ClusterView:
    """Shows a cluster on stderr while a with-statement lasts; it is the `watch` of that cluster.

    Who is lost, and who takes its layers, is a line that stays.

    Nothing is drawn before the first call, so that what a launcher prints before stays. On a terminal
    the table is gone at the end.

    Args:
        quiet: Show nothing.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._live: Live | None = None
        self._drawn = -_REDRAW_S
        self._said: dict[str, str] = {}
        self._news: set[str] = set()
        self._cluster: Cluster | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._cluster is not None:
            self._announce(self._cluster)  # what came after the last look
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, cluster: Cluster) -> None:
        """Show what is known now, at most some eight times a second."""
        now = time.monotonic()
        if self._quiet or now - self._drawn < _REDRAW_S:
            return
        self._drawn, self._cluster = now, cluster
        self._announce(cluster)
        states = cluster.state()
        if sys.stderr.isatty() or self._live is not None:
            self._draw(states, cluster.lost)
        else:
            self._tell([state for state in states if state.addr not in cluster.lost])

    def _announce(self, cluster: Cluster) -> None:
        """Say once who is lost and how it ended, and which standby takes its layers."""
        for line in news(cluster):
            if line in self._news:
                continue
            self._news.add(line)
            if self._live is None:
                say(line)
            else:
                self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _draw(self, states: list[NodeState], lost: Mapping[str, str]) -> None:
        table = state_table(states, lost)
        if self._live is None:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(table, console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(table, refresh=True)

    def _tell(self, states: list[NodeState]) -> None:
        for state in states:
            about = [] if state.layers is None else [f"layers {dots(state.layers)}"]
            about += [] if state.pid is None else [f"process {state.pid}"]
            name = f"{state.addr} ({', '.join(about)})" if about else state.addr
            line = f"headway: {name}: {state.doing}"
            if self._said.get(state.addr) != line:
                self._said[state.addr] = line
                say(line)


@contextmanager
def working(doing: str, *, quiet: bool) -> Iterator[None]:
    """Say on a terminal what takes its time in a with-statement."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(doing):
        yield


def news(cluster: Cluster) -> list[str]:
    """Return who was lost and how it ended, and which standby took whose layers, a line each."""
    from headway.sources.text import clean

    lines = [f"{addr} lost: {why}" for addr, why in cluster.lost.items()]
    placement = cluster.placement
    for addr, heir in placement.retired.items() if placement is not None else ():
        stage = None if placement is None or heir is None else placement.stage_of(heir)
        if stage is not None:
            lines.append(f"{heir} takes layers {dots(stage.layers)} of {addr}")
    return [f"headway: {clean(line, 1000)}" for line in lines]


def state_table(states: list[NodeState], lost: Mapping[str, str]) -> Table:
    """Return what is known of each node, and how those that are gone ended, as a table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    from headway.sources.text import clean

    table = Table(box=None, pad_edge=False)
    for name in ("node", "layers", "doing"):
        table.add_column(name, overflow="ellipsis", no_wrap=True)
    for name in ("process", "built in", "forwards", "memory/budget", "heard"):
        table.add_column(name, justify="right", no_wrap=True)
    for state in states:
        silent = state.silent_s
        cells = (
            *(state.addr, "-" if state.layers is None else dots(state.layers)),
            f"lost: {lost[state.addr]}" if state.addr in lost else state.doing,
            "-" if state.pid is None else f"{state.pid}",
            *(ms(state.build_ms), f"{state.forwards}", f"{gb(state.rss_bytes)}/{gb(state.budget_bytes)}"),
            "-" if silent is None else "now" if silent < _SILENT_S else f"{silent:.0f} s ago",
        )
        table.add_row(*(Text(clean(cell)) for cell in cells))
    return table
