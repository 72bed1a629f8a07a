"""Nodes as ``sinfo`` shows them at one moment: how many GPUs there are, and which were out of service."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final

from headway.ledger.history import Outage
from headway.sources.slurm import fields, gpus
from headway.sources.slurm.table import Row
from headway.sources.text import clean

_WORD: Final = re.compile(r"[a-z_]+")
_MARKS: Final = "*~#!%$@^-+"
"""What stands after a state: no answer, powered down, and so on."""
_LONGEST: Final = 40
"""No state has so long a name."""
_MOST_NAMED: Final = 10 * fields.MOST_NODES
"""So many names are made of lists with brackets, and of counts, in all."""
_SHORT, _MOST_LISTS = 500, 1 << 14
"""Lists so short [characters], and so many of them, are known again."""
_OUT: Final = ("drain", "drng", "down", "maint", "fail", "unk", "error", "reboot", "boot", "inval", "perfctrs", "npc")
_HELD: Final = ("alloc", "mix", "comp", "resv", "reserved", "plan", "plnd", "block")
_IDLE: Final = ("idle", "pow", "future", "futr", "no_respond", "cloud")
STATES: Final = (*_OUT, *_HELD, *_IDLE)
"""How the names of the states of nodes begin."""
_BUSY: Final = ("alloc", "mix", "comp")
"""How the states begin of nodes on which jobs run."""
_WHOLE: Final = ("gres", "gres_used", "node")
"""Columns of which a cell that is cut tells something else."""
_LEAVING: Final = ("draining", "drng", "failing", "failg")
"""How the states begin of nodes on which jobs run that get no others."""


def node_state(text: str) -> str:
    """Return a node's state without its marks, in lower case, of several the one that counts; nothing where it is none.

    Example:
        >>> node_state("drained$"), node_state("ALLOCATED*"), node_state("node7")
        ('drained', 'allocated', '')
        >>> node_state("IDLE+DRAIN"), node_state("MIXED+CLOUD+DRAIN"), node_state("mixed+maintenance")
        ('drained', 'draining', 'mixed')
    """
    return _STATES[text]


def _node_state(text: str) -> str:
    words = text.strip().rstrip(_MARKS).rstrip().lower().split("+")
    if not words[0].startswith(STATES) or not all(_WORD.fullmatch(word) and len(word) < _LONGEST for word in words):
        return ""
    out = [word for word in words if word.startswith(_OUT) and word != "reboot_requested"]
    if len(words) == 1 or not out:
        return words[0]
    word = next((word for word in out if word.startswith("dr")), out[0])
    busy = any(word.startswith(_BUSY) for word in words)
    if word.startswith(("drain", "fail")):
        of = "drain" if word.startswith("drain") else "fail"
        return f"{of}ing" if busy else {"drain": "drained"}.get(of, of)
    return words[0] if busy and word.startswith(("maint", "reboot")) else word


_STATES: Final = fields.Short(_node_state)


def _amount(text: str) -> tuple[int | None, bool, frozenset[str]]:
    """Return the devices of a list [1/1000], None where it is cut, whether it has slices, and its other resources."""
    try:
        return gpus.milli(text) or 0, gpus.sliced(text), gpus.others(text)
    except fields.CutError:
        return None, gpus.sliced(text), gpus.others(text)


_AMOUNTS: Final = fields.Short(_amount)


def is_out(state: str) -> bool:
    """Return whether nodes of a state are out of service.

    Example:
        >>> is_out("draining"), is_out("down"), is_out("mixed")
        (True, True, False)
    """
    return state.startswith(_OUT)


def is_leaving(state: str) -> bool:
    """Return whether nodes of a state are out of service but for the jobs that still run on them.

    Example:
        >>> is_leaving("draining"), is_leaving("drained")
        (True, False)
    """
    return state.startswith(_LEAVING)


@dataclass(slots=True)
class _Node:
    milli: int | None
    used: int | None
    state: str
    since_ns: int | None

    @property
    def lost(self) -> int:
        """Devices that are surely out of service [1/1000]."""
        if not is_out(self.state):
            return 0
        held = self.used if is_leaving(self.state) else 0
        return 0 if held is None else max((self.milli or 0) - held, 0)


def _sum(nodes: Iterable[_Node]) -> int:
    return sum(node.milli or 0 for node in nodes)


class Nodes:
    """Nodes as they are read, each once, whatever partitions it is in.

    Attributes:
        sliced: Whether a node has slices of devices.
        others: Which resources that are no GPUs nodes have that have no GPU.
        cut: Whether a record was cut to the width of a column, so that how many devices there are is not known.
    """

    def __init__(self, zone: tzinfo | None = None) -> None:
        self.moments = fields.Moments(zone)
        self._nodes: dict[str, _Node] = {}
        self._unnamed: Counter[str] = Counter()
        self._lists: set[tuple[str, str, str, int | None, int | None, int | None]] = set()
        self._n_named = 0
        self.sliced = False
        self.others: set[str] = set()
        self.cut = False
        self._cluster = ""

    def __len__(self) -> int:
        """Return how many nodes have been read."""
        return len(self._nodes)

    def add(self, row: Row) -> str:
        """Take one record, and return why it cannot be used; nothing where it can.

        Raises:
            CutError: Its name or its resources are cut to the width of a column; of resources it counts as a node.
        """
        state = node_state(row.get("state", ""))
        if "state" in row and not state:
            return f"{row['state'][:40] or 'nothing'} is no state of a node"
        try:
            cut = self._cut(row)
            each = self._gres(row["gres"]) if "gres" in row else None
            used = _AMOUNTS[row["gres_used"]][0] if "gres_used" in row else None
            since = self.moments.read(row.get("since", ""))
            told = (row.get("node", ""), self._of(row) if "cluster" in row else "", state, each, used, since)
            if told in self._lists:
                return ""
            names = self._names(row)
        except ValueError as error:
            return str(error)
        if not names and row.get("node", "") == "" and row.get("count") != "0":
            return "it names no node"
        if len(self._nodes) + len(names) > 2 * fields.MOST_NODES:
            return f"with it there are more than {2 * fields.MOST_NODES} nodes"
        for name in names:
            new = _Node(each, used, state, since)
            name = told[1] + name if told[1] else name  # noqa: PLW2901
            old = self._nodes.get(name)
            if old is None or (is_out(state), each or 0, used or 0) > (
                is_out(old.state),
                old.milli or 0,
                old.used or 0,
            ):
                self._nodes[name] = new
        if len(names) > 1 and len(told[0]) <= _SHORT and told[0] and len(self._lists) < _MOST_LISTS:
            self._lists.add(told)
        if cut:
            raise fields.CutError(cut)
        return ""

    def _cut(self, row: Row) -> str:
        """Return a cell that is cut, of the columns where that matters; nothing where there is none.

        Raises:
            CutError: It is the name of a node.
        """
        cut = ""
        for name in _WHOLE:
            if row.get(name, "").endswith("+"):
                self.cut = True
                cut = row[name][:40]
                if name == "node":
                    raise fields.CutError(cut)
        return cut

    def _gres(self, text: str) -> int | None:
        """Return the devices of a node [1/1000], and note what else its resources say; None where they are cut."""
        each, sliced, others = _AMOUNTS[text]
        if sliced:
            self.sliced = True
        if others and not each:
            self.others |= others
        return each

    def _of(self, row: Row) -> str:
        """Return what stands before the names of nodes of other clusters than the first."""
        cluster = row.get("cluster", "")
        self._cluster = self._cluster or cluster
        return f"{clean(cluster, 60)}/" if cluster != self._cluster else ""

    def _names(self, row: Row) -> list[str]:
        """Return the names of the nodes of a record.

        Raises:
            ValueError: There are too many, or they are no names.
        """
        text, count = row.get("node", ""), row.get("count", "")
        if text and "[" not in text:
            return fields.nodes(text)
        if self._n_named > _MOST_NAMED:
            raise ValueError(f"lists before it have more than {_MOST_NAMED} nodes in all")
        names = fields.nodes(text)
        if not names and count.isdecimal() and count.isascii() and len(count) < 7:
            names = self._stand_ins(row, int(count))
        self._n_named += len(names)
        return names

    def _stand_ins(self, row: Row, count: int) -> list[str]:
        """Return names for nodes that are only counted: those of one partition are others, of two may be the same."""
        if count > fields.MOST_NODES:
            raise ValueError(f"{count} nodes are more than any machine has")
        partition = self._of(row) + clean(row.get("partition", ""))
        at = self._unnamed[partition]
        self._unnamed[partition] += count
        return [f"{partition}\0{number}" for number in range(at, at + count)]

    @property
    def devices(self) -> int | None:
        """How many GPUs the nodes have in all, a part of one as one; None where nobody says."""
        nodes = self._nodes.values()
        if self.cut or len(self._unnamed) > 1 or not nodes or any(node.milli is None for node in nodes):
            return None
        return -(-_sum(self._nodes.values()) // 1000)

    def outages(self) -> list[Outage]:
        """Return what is out of service since a moment that is known."""
        out = Counter[int]()
        for node in self._out():
            if node.since_ns is not None:
                out[node.since_ns] += node.lost
        return [Outage(-(-milli // 1000), since) for since, milli in sorted(out.items()) if milli]

    def _out(self) -> list[_Node]:
        return [node for node in self._nodes.values() if is_out(node.state)]

    def warnings(self) -> Iterator[str]:
        """Yield what was so at the moment, and what cannot be told from it."""
        by_state = Counter(node.state or "unknown" for node in self._nodes.values())
        each = Counter[str]()
        for node in self._nodes.values():
            each[node.state or "unknown"] += node.milli or 0
        sized = self.devices is not None
        told = ", ".join(
            f"{state} {count}" + (f" ({gpus.shown(each[state])} devices)" if sized else "")
            for state, count in sorted(by_state.items())
        )
        yield f"sinfo shows one moment and no length of time: {len(self._nodes)} nodes then, by state: {told}"
        if self.devices is not None and any(node.used is not None for node in self._nodes.values()):
            used = sum(node.used or 0 for node in self._nodes.values())
            yield f"at that moment jobs had {gpus.shown(used)} of {self.devices} devices"
        if len(self._unnamed) > 1:
            yield (
                "nodes are counted by partition and a node can be in several, so that devices cannot be added up: add "
                "NODELIST (%N) to the columns"
            )
        elif not sized and not self.cut:
            yield "no column tells the devices of nodes: add GRES (%G), or give --capacity"
        if self.others:
            yield f"nodes without a GPU have other resources, which count as no devices: {gpus.listed(self.others)}"
        leaving = [node for node in self._out() if is_leaving(node.state)]
        if sized and (unsure := [node for node in leaving if node.used is None]):
            yield (
                f"{len(unsure)} nodes with {gpus.shown(_sum(unsure))} devices were draining: jobs still ran there, and "
                "on how many of their devices is not told, so that none is in the amounts as drained; sinfo -O with "
                "GresUsed tells it"
            )
        since_unknown = [node for node in self._out() if node.since_ns is None and (node.lost or node not in leaving)]
        if since_unknown:
            devices = f" with {gpus.shown(sum(node.lost for node in since_unknown))} devices" if sized else ""
            yield (
                f"{len(since_unknown)} nodes{devices} were out of service, since when is not told: they are not in the "
                "amounts as drained; add TIMESTAMP (%H) to the columns"
            )
