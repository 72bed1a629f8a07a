"""`headway cluster worker`: one node of a cluster, started by a launcher or by hand on each host."""

from __future__ import annotations

import os
import sys

import click

from headway.errors import ArgumentError


@click.command("worker")
@click.option("--coordinator", required=True, metavar="HOST:PORT", help="Where the coordinator listens.")
@click.option("--addr", metavar="ADDR", help="Which node this is, as in the configuration.")
@click.option("--nodes", metavar="ADDR,...", help="Which nodes there are; under torchrun this one is by its rank.")
@click.option("--heartbeat", default=5.0, show_default=True, help="After so many seconds without a word it is hung.")
@click.option("--token-stdin", is_flag=True, help="Read the token from standard input, not from the environment.")
@click.option("--with-parent", type=int, metavar="PID", help="End when this process, which started it, ends.")
def command(
    *,
    coordinator: str,
    addr: str | None,
    nodes: str | None,
    heartbeat: float,
    token_stdin: bool,
    with_parent: int | None,
) -> None:
    """Serve a coordinator as one of its nodes.

    The run's token comes in HEADWAY_CLUSTER_TOKEN; `headway cluster run` prints both for the
    launcher torchrun.
    """
    from headway.cluster.launch.launcher import BEATS, TOKEN
    from headway.cluster.worker import die_with_parent, work

    if with_parent is not None:
        die_with_parent(with_parent)
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdigit():
        raise ArgumentError(
            f"Cannot join {coordinator!r}: it is no HOST:PORT", "Give the address the coordinator prints", "bad-address"
        )
    token = sys.stdin.readline().strip() if token_stdin else os.environ.pop(TOKEN, "")
    if not token:
        raise ArgumentError(
            "Cannot join the coordinator: no token was given",
            f"Set {TOKEN} to the one that it prints",
            "no-token",
        )
    status = work(host.strip("[]"), int(port), token, addr or _by_rank(nodes), heartbeat / BEATS)
    os._exit(status)  # its log is closed and its output flushed; to take the engine's modules apart takes seconds


def _by_rank(nodes: str | None) -> str:
    """Return the node of this process's rank under torchrun."""
    names, rank = (nodes or "").split(","), os.environ.get("RANK", "")
    if nodes and rank.isdigit() and int(rank) < len(names):
        return names[int(rank)]
    raise ArgumentError(
        "Cannot tell which node this is: no --addr, and no rank of --nodes",
        "Give --addr, or start it by torchrun with --nodes",
        "no-node",
    )
