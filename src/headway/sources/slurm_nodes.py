"""Nodes as ``sinfo`` shows them at one moment: how many GPUs there are, and which were out of service."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from headway.ledger.history import Outage
from headway.sources import slurm_fields as fields
from headway.sources.slurm_table import Row
from headway.sources.text import clean

_STATE: Final = re.compile(r"[A-Za-z_]+")
_OUT: Final = ("drain", "drng", "down", "maint", "fail", "unk", "error", "reboot", "boot", "inval", "perfctrs", "npc")
_HELD: Final = ("alloc", "mix", "comp", "resv", "reserved", "plan", "block")
_IDLE: Final = ("idle", "pow", "future", "futr", "no_respond", "cloud")
STATES: Final = (*_OUT, *_HELD, *_IDLE)
"""How the names of the states of nodes begin."""


def node_state(text: str) -> str:
    """Return a node's state without its marks, in lower case; nothing where it is none.

    Example:
        >>> node_state("drained$"), node_state("ALLOCATED*"), node_state("node7")
        ('drained', 'allocated', '')
    """
    match = _STATE.match(text.strip())
    word = match[0].lower() if match else ""
    rest = text.strip()[len(word) :]
    return word if word.startswith(STATES) and not rest.strip("*~#!%$@^-+") else ""


def is_out(state: str) -> bool:
    """Return whether nodes of a state are out of service.

    Example:
        >>> is_out("draining"), is_out("down"), is_out("mixed")
        (True, True, False)
    """
    return state.startswith(_OUT)


@dataclass(slots=True)
class _Node:
    gpus: int | None
    used: int | None
    state: str
    since_ns: int | None


class Nodes:
    """Nodes as they are read, each once, whatever partitions it is in."""

    def __init__(self) -> None:
        self.moments = fields.Moments()
        self._nodes: dict[str, _Node] = {}
        self._unnamed: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return how many nodes have been read."""
        return len(self._nodes)

    def add(self, row: Row) -> str:
        """Take one record, and return why it cannot be used; nothing where it can."""
        state = node_state(row.get("state", ""))
        if "state" in row and not state:
            return f"{row['state'][:40] or 'nothing'} is no state of a node"
        try:
            each = fields.gpus(row["gres"]) or 0 if "gres" in row else None
            used = fields.gpus(row["gres_used"]) or 0 if "gres_used" in row else None
            since = self.moments.read(row.get("since", ""))
            names = fields.nodes(row.get("node", ""))
            count = row.get("count", "")
            if not names and count.isdecimal() and count.isascii() and len(count) < 7:
                names = self._stand_ins(row, int(count))
        except ValueError as error:
            return str(error)
        if not names and row.get("node", "") == "" and row.get("count") != "0":
            return "it names no node"
        if len(self._nodes) + len(names) > 2 * fields.MOST_NODES:
            return f"with it there are more than {2 * fields.MOST_NODES} nodes"
        for name in names:
            new = _Node(each, used, state, since)
            old = self._nodes.get(name)
            if old is None or (is_out(state), each or 0, used or 0) > (is_out(old.state), old.gpus or 0, old.used or 0):
                self._nodes[name] = new
        return ""

    def _stand_ins(self, row: Row, count: int) -> list[str]:
        """Return names for nodes that are only counted: those of one partition are others, of two may be the same."""
        if count > fields.MOST_NODES:
            raise ValueError(f"{count} nodes are more than any machine has")
        partition = clean(row.get("partition", ""))
        at = self._unnamed[partition]
        self._unnamed[partition] += count
        return [f"{partition}\0{number}" for number in range(at, at + count)]

    @property
    def devices(self) -> int | None:
        """How many GPUs the nodes have in all; None where nobody says."""
        if len(self._unnamed) > 1 or not self._nodes or any(node.gpus is None for node in self._nodes.values()):
            return None
        return sum(node.gpus or 0 for node in self._nodes.values())

    def outages(self) -> list[Outage]:
        """Return what is out of service since a moment that is known."""
        out = Counter(
            {
                since: sum(node.gpus or 0 for node in self._nodes.values() if node.since_ns == since)
                for since in {node.since_ns for node in self._out() if node.since_ns is not None}
            }
        )
        return [Outage(devices, since) for since, devices in sorted(out.items()) if devices]

    def _out(self) -> list[_Node]:
        return [node for node in self._nodes.values() if is_out(node.state)]

    def warnings(self) -> Iterator[str]:
        """Yield what was so at the moment, and what cannot be told from it."""
        by_state = Counter(node.state or "unknown" for node in self._nodes.values())
        gpus = Counter[str]()
        for node in self._nodes.values():
            gpus[node.state or "unknown"] += node.gpus or 0
        sized = self.devices is not None
        told = ", ".join(
            f"{state} {count}" + (f" ({gpus[state]} devices)" if sized else "")
            for state, count in sorted(by_state.items())
        )
        yield f"sinfo shows one moment and no length of time: {len(self._nodes)} nodes then, by state: {told}"
        if self.devices is not None and any(node.used is not None for node in self._nodes.values()):
            used = sum(node.used or 0 for node in self._nodes.values())
            yield f"at that moment jobs had {used} of {self.devices} devices"
        if len(self._unnamed) > 1:
            yield (
                "nodes are counted by partition and a node can be in several, so that devices cannot be added up: add "
                "NODELIST (%N) to the columns"
            )
        elif not sized:
            yield "no column tells the devices of nodes: add GRES (%G), or give --capacity"
        since_unknown = [node for node in self._out() if node.since_ns is None]
        if since_unknown:
            devices = f" with {sum(node.gpus or 0 for node in since_unknown)} devices" if sized else ""
            yield (
                f"{len(since_unknown)} nodes{devices} were out of service, since when is not told: they are not in the "
                "amounts as drained; add TIMESTAMP (%H) to the columns"
            )
