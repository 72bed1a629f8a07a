"""`headway cluster`: a model over nodes. Each of its commands is in ``headway.cli.cluster_<name>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from headway.cli.main import LazyGroup

CLUSTER_COMMANDS: Final[Mapping[str, str]] = {
    "probe": "Measure what each node can do.",
    "plan": "Show which layers go on which node.",
    "run": "Split the model over the nodes, run it, and show what each stage took.",
    "demo": "Split a small model over two local workers, kill one, and go on.",
    "worker": "Serve a coordinator as one of its nodes.",
}
"""By name, what each does."""


@click.group(cls=LazyGroup, table=CLUSTER_COMMANDS, home="headway.cli.cluster_{}:command")
def cluster() -> None:
    """Split a model over nodes, run it, and watch every node.

    The nodes and the model are in a TOML file; docs/cluster.md describes it. Needs the extra: pip
    install 'headway[cluster]'.
    """
