"""Workers that others start, by torchrun or by hand on each host: the commands for it are printed.

torchrun is only a way to a process here: its group is not used, and a worker finds its coordinator
by its arguments. What torchrun does when a worker of its dies decides how it is called (torch 2.13):

- It ends the other workers of the same torchrun at once. So each node has a torchrun of its own,
  also where a host has several; else a standby would end with the stage it stands for.
- Under one rendezvous of all hosts the others go on, but when they are done each torchrun waits
  300 s for the one that failed. So each is ``--standalone``: no host has to know of another, and
  they start in any order.
"""

from __future__ import annotations

import shlex
import sys
from typing import Final

from headway.cluster.config import ClusterConfig
from headway.cluster.launch.launcher import TOKEN, Meeting

_TORCHRUN: Final = "torchrun --standalone --nproc-per-node 1 --no-python"
_ANYWHERE: Final = ("0.0.0.0", "::")  # noqa: S104 - these are told apart, not listened on


class TorchrunLauncher:
    """Says what to run on each host; the workers come by themselves.

    They are out of reach: how one ended is not known, and one whose connection ends ends itself.
    """

    def __init__(self, config: ClusterConfig) -> None:
        """Start nothing; the commands are the same whatever the configuration says."""

    def start(self, addrs: list[str], meeting: Meeting) -> None:
        """Print on standard error what to run for each of these nodes."""
        sys.stderr.write(told(addrs, meeting))
        sys.stderr.flush()

    def ended(self, addr: str) -> str | None:  # noqa: ARG002 - the protocol's
        """Return None: it is not known."""
        return None

    def kill(self, addr: str) -> None:
        """Do nothing: it is out of reach."""

    def close(self) -> None:
        """Do nothing: each worker ends when its connection does, and its torchrun with it."""


def told(addrs: list[str], meeting: Meeting) -> str:
    r"""Return what to run for these nodes.

    The token is in a line of its own, for the shell's environment: the arguments of a process can
    be read by everyone on its host.

    Example:
        >>> print(told(["n0"], Meeting("10.0.0.5", 4711, "7f3a", 5.0)))
        headway: waiting at 10.0.0.5:4711 for n0. In a shell on the host of each node:
          export HEADWAY_CLUSTER_TOKEN=7f3a
        and there, each node by a torchrun of its own, or from `headway` on without one:
          torchrun --standalone --nproc-per-node 1 --no-python \
            headway cluster worker --coordinator 10.0.0.5:4711 --addr n0 --heartbeat 5
        <BLANKLINE>
    """
    place = f"{meeting.host}:{meeting.port}"
    lines = [
        f"headway: waiting at {place} for {', '.join(addrs)}. In a shell on the host of each node:",
        f"  export {TOKEN}={meeting.token}",
        "and there, each node by a torchrun of its own, or from `headway` on without one:",
        *(f"  {_TORCHRUN} \\\n    {shlex.join(['headway', *meeting.command(addr)])}" for addr in addrs),
        *_by_rank(addrs, meeting),
    ]
    if meeting.here_only:
        lines.append(
            f'{meeting.host} is reached from this host alone; for others set listen = "<address>" to one of this '
            "host's that they reach."
        )
    elif meeting.host in _ANYWHERE:
        lines.append(f"In place of {meeting.host} give an address of this host that the others reach.")
    return "\n".join(lines) + "\n"


def _by_rank(addrs: list[str], meeting: Meeting) -> list[str]:
    """Return what starts any of several nodes, by its rank."""
    if len(addrs) == 1 or any("," in addr for addr in addrs):
        return []
    command = shlex.join(["headway", *meeting.command(addrs[0])])
    own, names = shlex.join(["--addr", addrs[0]]), shlex.join(["--nodes", ",".join(addrs)])
    torchrun = f"torchrun --nnodes {len(addrs)} --node-rank RANK --master-addr HOST0 --nproc-per-node 1 --no-python"
    return [
        "or where one command is started on every host (each waits 300 s in the end for one that failed):",
        f"  {torchrun} \\\n    {command.replace(own, names)}",
    ]
