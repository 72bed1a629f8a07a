"""How layers are shared among nodes: by budget, by speed, as well as can be, or as told."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

from headway.cluster.config import ClusterConfig
from headway.cluster.cost import ModelCost
from headway.cluster.holder import Holder, unmeasured
from headway.cluster.partition import Bearer, Load, best_partition, share_out
from headway.errors import ClusterError


def split(config: ClusterConfig, holders: list[Holder], notes: list[str]) -> list[range] | None:
    """Return the layers of each node by the policy, empty for one that gets none; None where there is no room.

    Under ``manual`` they are as told, whether they fit or not.

    Args:
        config: It names the policy.
        holders: The active nodes, in order.
        notes: Gets a sentence where the plan does not follow the policy.

    Raises:
        ClusterError: Manual ranges leave layers out, place them twice or out of order; or speed or work is not known.
    """
    cost = holders[0].cost
    policy, optimize = config.placement.policy, config.placement.optimize
    if policy == "manual":
        return _told(holders, cost.n_layers)
    if policy == "auto":
        return _best(holders, cost, optimize)
    if policy == "throughput":
        _check_speeds(holders)
    weights = [float(one.budget if policy == "ram_balanced" else one.gflops or 0) for one in holders]
    counts = _counts(holders, weights, list(range(len(holders))), cost.n_layers)
    if counts is None:
        parts = _best(holders, cost, "memory")
        if parts is not None:
            notes.append(f"no shares of {policy} fit; placed by the largest share of a budget instead")
        return parts
    ends = list(accumulate(counts.get(n, 0) for n in range(len(holders))))
    return [range(end - counts.get(n, 0), end) for n, end in enumerate(ends)]


def _told(holders: list[Holder], n_layers: int) -> list[range]:
    """Return the ranges of the config, every layer exactly once and in order."""
    parts = [one.node.layers or range(0) for one in holders]
    times = [0] * n_layers
    for one, part in zip(holders, parts, strict=True):
        if part.stop > n_layers:
            raise _bad_ranges(f"{one.node.addr} has layers {_dots(part)}; the model has {n_layers}")
        for layer in part:
            times[layer] += 1
    for found, layers in (
        ("on no node", [n for n in range(n_layers) if times[n] == 0]),
        ("on several nodes", [n for n in range(n_layers) if times[n] > 1]),
    ):
        if layers:
            said = f"layers {_runs(layers)} are" if len(layers) > 1 else f"layer {layers[0]} is"
            raise _bad_ranges(f"{said} {found}")
    for before, part, one in zip(parts, parts[1:], holders[1:], strict=False):
        if part.start < before.stop:
            raise _bad_ranges(f"{one.node.addr} has layers {_dots(part)}, and the node before it {_dots(before)}")
    return parts


def _best(holders: list[Holder], cost: ModelCost, optimize: str) -> list[range] | None:
    """Return the best partition there is."""
    loads = [one.load for one in holders]
    if optimize == "memory":
        shares = [
            Bearer(load, one.budget, load, Fraction(one.budget)) for one, load in zip(holders, loads, strict=True)
        ]
        return best_partition(shares, total=False)
    _check_speeds(holders)
    if cost.layer_flops is None:
        raise ClusterError(
            "Cannot plan by time: the work of the model's experts for one token cannot be read from its checkpoint",
            'Give optimize = "memory", or the policy ram_balanced or throughput',
            "unmeasured-node",
        )
    work = Load([0, *accumulate(cost.layer_flops)], 0, cost.head_flops, cost.head_flops)
    paced = [
        Bearer(load, one.budget, work, Fraction(str(one.gflops))) for one, load in zip(holders, loads, strict=True)
    ]
    return best_partition(paced, total=optimize == "latency")


def _counts(holders: list[Holder], weights: list[float], members: list[int], n_layers: int) -> dict[int, int] | None:
    """Return how many layers each of some nodes gets by its weight; None where they have no room.

    Embedding and head lie on the first and the last node that get any. So a node that has no room for one layer in
    its place is left out, and what its neighbours hold is reckoned again.
    """
    if not members:
        return None
    most = [
        holders[n].capacity(first=n == members[0], last=n == members[-1], largest=max(holders[n].each)) for n in members
    ]
    roomy = [n for n, high in zip(members, most, strict=True) if high >= 1]
    if len(roomy) < len(members):
        return _counts(holders, weights, roomy, n_layers)
    of = [weights[n] for n in members]
    counts = share_out(n_layers, of, most, [0] * len(members))
    if counts is None or (counts[0] and counts[-1]):
        return None if counts is None else dict(zip(members, counts, strict=True))
    inner = members[counts[0] == 0 : len(members) - (counts[-1] == 0)]
    fewer = _counts(holders, weights, inner, n_layers)
    if fewer is not None:
        return fewer
    least = [int(n in {members[0], members[-1]}) for n in members]
    forced = share_out(n_layers, of, most, least)
    return None if forced is None else dict(zip(members, forced, strict=True))


def _check_speeds(holders: list[Holder]) -> None:
    unknown = [one.node.addr for one in holders if one.gflops is None]
    if unknown:
        raise unmeasured("speed", unknown, "assume_gflops, or the policy ram_balanced")


def _bad_ranges(found: str) -> ClusterError:
    return ClusterError(
        f"Cannot place the layers as the nodes say: {found}",
        "Give every layer to exactly one active node, in the order of the nodes",
        "bad-ranges",
    )


def _runs(layers: list[int]) -> str:
    """Return layers as text, three neighbours and more joined: 3, 5 to 8 and 10 (8 is meant too)."""
    runs: list[range] = []
    for layer in layers:
        if runs and runs[-1].stop == layer:
            runs[-1] = range(runs[-1].start, layer + 1)
        else:
            runs.append(range(layer, layer + 1))
    words = [word for run in runs for word in ([f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run))]
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _dots(layers: range) -> str:
    return f"{layers.start}..{layers.stop}"
