"""What a node has room for, and how long layers take on it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from typing import Final

from headway.cluster.config import ClusterConfig, NodeConfig
from headway.cluster.cost import ModelCost
from headway.cluster.partition import Load
from headway.cluster.probe import NodeProbe
from headway.errors import ClusterError

_GB: Final = 1e9
_GIGA: Final = 1e9


class Holder:
    """One node: what layers take of it, and how long they take on it.

    Attributes:
        node: As the config names it.
        precision: Of the linear weights: the one given, or the node's own.
        budget: Memory for weights and KV window [bytes].
        gflops: Speed for one token, measured or assumed [GFLOP/s]; None: not known.
        gflops_prefill: Speed for many tokens [GFLOP/s]; None: not known.
        each: What each layer takes, its KV window included [bytes].
    """

    def __init__(
        self,
        config: ClusterConfig,
        node: NodeConfig,
        precision: str | None,
        cost: ModelCost,
        *,
        budget: int,
        probed: NodeProbe | None,
    ) -> None:
        self.node, self.cost, self.seq = node, cost, config.seq
        self.precision = precision or node.precision
        self.budget = budget
        self.gflops = (probed.gflops if probed else None) or config.placement.assume_gflops
        self.gflops_prefill = probed.gflops_prefill if probed else None
        kv = (0,) * cost.n_layers
        if node.kv_cache:
            kv = cost.kv_bytes_per_token_layer(self.precision) or _refuse_kv()
        sizes = zip(cost.layer_bytes(self.precision), kv, strict=True)
        self.each = [weights + window * config.placement.context for weights, window in sizes]
        self._sums = [0, *accumulate(self.each)]

    def ends(self, *, first: bool, last: bool) -> int:
        """Return what embedding and head take [bytes]."""
        embedding = self.cost.embedding_bytes(self.precision) if first else 0
        return embedding + (self.cost.head_bytes(self.precision, with_embedding=first) if last else 0)

    def need(self, layers: range) -> int:
        """Return what a stage takes [bytes]."""
        ends = self.ends(first=layers.start == 0, last=layers.stop == self.cost.n_layers)
        return self._sums[layers.stop] - self._sums[layers.start] + ends

    def holds(self, layers: range) -> bool:
        """Tell whether a stage fits the budget."""
        return self.need(layers) <= self.budget

    def capacity(self, *, first: bool, last: bool, largest: int) -> int:
        """Return how many layers of a size fit beside the ends; below 0 where those do not fit."""
        return (self.budget - self.ends(first=first, last=last)) // max(largest, 1)

    @property
    def load(self) -> Load:
        """What stages take of it [bytes]."""
        first, last, whole = (self.ends(first=f, last=n) for f, n in ((True, False), (False, True), (True, True)))
        return Load(self._sums, first, last, whole)

    def time_ms(self, layers: range, tokens: int, gflops: float | None) -> float | None:
        """Return the time of a stage for so many tokens at that speed [ms]; None where work or speed is not known."""
        flops = self.cost.layer_flops
        if flops is None or gflops is None:
            return None
        head = self.cost.head_flops if layers.stop == self.cost.n_layers else 0
        return tokens * (sum(flops[layers.start : layers.stop]) + head) / (gflops * _GIGA) * 1e3


def budgets_of(config: ClusterConfig, probes: Mapping[str, NodeProbe]) -> dict[str, int]:
    """Return the memory of each node for weights and KV window [bytes]."""
    nodes = [node for node in config.nodes if node.role != "draining"]
    reserve, assumed = config.reserve_ram_gb * _GB, config.placement.assume_ram_gb
    budgets, unknown = {}, []
    shared: dict[tuple[str, str], list[str]] = {}
    taken: dict[tuple[str, str], float] = {}
    left: dict[tuple[str, str], int] = {}
    for node in nodes:
        probed = probes.get(node.addr)
        whole, available = probed.memory_of(node.device) if probed else (None, None)
        place = (probed.host if probed else node.addr, "cuda:0" if node.device == "cuda" else node.device)
        if node.max_ram_gb is not None:
            most = node.max_ram_gb * _GB
            most = most if whole is None else min(most, whole)
            taken[place] = taken.get(place, 0) + most
            budgets[node.addr] = int(most - reserve)
        elif available is not None:
            left[place] = min(available, left.get(place, available))
            shared.setdefault(place, []).append(node.addr)
        elif assumed is not None:
            budgets[node.addr] = int(assumed * _GB - reserve)
        else:
            unknown.append(node.addr)
    if unknown:
        raise unmeasured("available memory", unknown, "max_ram_gb of the node or assume_ram_gb")
    for place, addrs in shared.items():
        budgets |= dict.fromkeys(addrs, int((left[place] - taken.get(place, 0) - reserve) // len(addrs)))
    return budgets


def unmeasured(what: str, addrs: list[str], instead: str) -> ClusterError:
    """Return the error that something of nodes is not known."""
    return ClusterError(
        f"Cannot plan: the {what} of {', '.join(addrs)} is not known",
        f"Probe the nodes, or give {instead}",
        "unmeasured-node",
        addrs=addrs,
    )


def _refuse_kv() -> tuple[int, ...]:
    raise ClusterError(
        "Cannot plan a KV window: the checkpoint has not one k_proj and one v_proj in each layer to read its size from",
        "Give kv_bytes_per_token [bytes of one layer and token], or kv_cache = false for the nodes",
        "unknown-kv",
    )
