"""`headway cluster probe`: what each node has, and how fast it is."""

from __future__ import annotations

import socket
from pathlib import Path

import click

from headway.cli.clustertext import counted, draw_command, draw_probes, probes_json
from headway.cli.clusterview import working
from headway.cli.modeltext import json_option, put
from headway.report.sheet import Sheet


@click.command("probe")
@click.argument("config", required=False, metavar="[CONFIG]", type=click.Path(path_type=Path))
@click.option("--here", is_flag=True, help="Measure this machine alone; so it is without CONFIG.")
@click.option("--device", metavar="DEVICE", help="Of this machine: cpu, cuda or cuda:N.  [default: cpu]")
@click.option("--folder", metavar="DIR", type=click.Path(), help="Of this machine: whose disk is measured.")
@click.option("--threads", metavar="N", type=click.IntRange(min=1), help="Of this machine. Default: all cores.")
@json_option
def command(
    *, config: Path | None, here: bool, device: str | None, folder: str | None, threads: int | None, as_json: bool
) -> None:
    """Measure what each node can do.

    CONFIG is a cluster's TOML file; nodes with ssh are measured by Headway there. Without CONFIG it
    is this machine.
    """
    from headway.cluster.config import ClusterConfig
    from headway.cluster.probe import probe, probe_here

    if config is not None and (here or device or folder or threads):
        raise click.UsageError("--here, --device, --folder and --threads are of this machine; leave CONFIG out.")
    with working("Measuring", quiet=as_json):
        if config is None:
            one = probe_here(socket.gethostname(), folder, threads, device or "cpu")
            document, found = one.to_json(), {one.addr: one}
        else:
            found = probe(ClusterConfig.from_path(config))
            document = {"nodes": probes_json(found)}

    def draw(sheet: Sheet) -> None:
        sheet.title(str(config) if config else "This machine", f"{counted(len(found), 'node')} measured")
        draw_probes(sheet, found.values())
        if config:
            draw_command(sheet, "Next:", "headway", "cluster", "plan", config)
        elif folder is None:
            sheet.say("The disk is measured where --folder or CONFIG says which.")

    put(document, draw, as_json=as_json)
