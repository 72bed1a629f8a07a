"""`headway cluster plan`: which layers go on which node."""

from __future__ import annotations

from pathlib import Path

import click

from headway.cli.clustertext import draw_command, draw_plan, probes_json
from headway.cli.clusterview import working
from headway.cli.modeltext import json_option, put
from headway.report.sheet import Sheet


@click.command("plan")
@click.argument("config", metavar="CONFIG", type=click.Path(path_type=Path))
@json_option
def command(*, config: Path, as_json: bool) -> None:
    """Show which layers go on which node.

    CONFIG is a cluster's TOML file. The nodes are measured first; of the model only the headers of
    its weight files are read, and nothing is started.
    """
    from headway.cluster.cluster import Cluster

    cluster = Cluster.from_path(config)
    with working("Measuring the nodes", quiet=as_json):
        probes = cluster.probe()
    placement = cluster.plan()

    def draw(sheet: Sheet) -> None:
        draw_plan(sheet, placement, cluster.checkpoint.n_layers, cluster.config.model, cluster.config)
        draw_command(sheet, "Next:", "headway", "cluster", "run", config)

    put({"plan": placement.to_json(), "nodes": probes_json(probes)}, draw, as_json=as_json)
