"""Laws of placement, against every partition there is of small models over few nodes."""

from fractions import Fraction
from itertools import accumulate, combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.cluster.config import ClusterConfig, NodeConfig, PlacementConfig
from headway.cluster.cost import ModelCost
from headway.cluster.partition import Bearer, Load, best_partition, share_out
from headway.cluster.placement import plan, retire
from headway.cluster.probe import NodeProbe
from headway.errors import ClusterError

CONTEXT = 10
POLICIES = [("ram_balanced", "throughput"), ("throughput", "throughput")]
POLICIES += [("auto", optimize) for optimize in ("throughput", "latency", "memory")]
sizes = st.integers(1, 60)


@st.composite
def models(draw, most_layers=6):
    n_layers = draw(st.integers(1, most_layers))
    if draw(st.booleans()):
        params, kv = [draw(sizes)] * n_layers, [draw(st.integers(0, 3))] * n_layers
    else:
        params = draw(st.lists(sizes, min_size=n_layers, max_size=n_layers))
        kv = draw(st.lists(st.integers(0, 3), min_size=n_layers, max_size=n_layers))
    return ModelCost(
        layer_params=tuple(params),
        layer_rows=tuple(1 for _ in params),
        layer_other=tuple(0 for _ in params),
        layer_touched=tuple(params),
        kv_rows=tuple(kv),
        vocab=draw(st.integers(1, 12)),
        hidden=draw(st.integers(1, 4)),
        norm_params=draw(st.integers(0, 2)),
        tied=draw(st.booleans()),
    )


@st.composite
def clusters(draw):
    nodes = tuple(
        NodeConfig(
            addr=f"n{n}",
            max_ram_gb=draw(st.integers(1, 700)) / 1e9,
            precision=draw(st.sampled_from(["fp32", "bf16", "int8"])),
            kv_cache=draw(st.booleans()),
        )
        for n in range(draw(st.integers(1, 4)))
    )
    speeds = {node.addr: draw(st.sampled_from([1.0, 2.0, 3.0, 7.5])) for node in nodes}
    probes = {addr: NodeProbe(addr=addr, host=addr, os="", gflops=speed) for addr, speed in speeds.items()}
    return nodes, probes


def config_of(nodes, policy="auto", optimize="throughput", **placement):
    told = PlacementConfig(policy=policy, optimize=optimize, context=CONTEXT, **placement)
    return ClusterConfig(model="m", reserve_ram_gb=0, placement=told, nodes=nodes)


def need(cost, node, begin, end):
    """What layers begin..end take of a node [bytes]."""
    precision, n_layers = node.precision, cost.n_layers
    kv = cost.kv_bytes_per_token_layer(precision)
    took = sum(cost.layer_bytes(precision)[n] + kv[n] * CONTEXT * node.kv_cache for n in range(begin, end))
    took += cost.embedding_bytes(precision) * (begin == 0)
    return took + (cost.head_bytes(precision, with_embedding=begin == 0) if end == n_layers else 0)


def budget(node):
    return int(node.max_ram_gb * 1e9)


def seconds(cost, probe, begin, end):
    flops = sum(cost.layer_flops[begin:end]) + cost.head_flops * (end == cost.n_layers)
    return flops / probe.gflops


def partitions(n_layers, n_nodes):
    """Every way to cut layers into consecutive parts and to give those to nodes in order."""
    for n_parts in range(1, min(n_layers, n_nodes) + 1):
        for cuts in combinations(range(1, n_layers), n_parts - 1):
            ends = (0, *cuts, n_layers)
            for members in combinations(range(n_nodes), n_parts):
                yield [(node, begin, end) for node, begin, end in zip(members, ends, ends[1:], strict=False)]


def feasible(cost, nodes):
    every = partitions(cost.n_layers, len(nodes))
    return [parts for parts in every if all(need(cost, nodes[n], a, b) <= budget(nodes[n]) for n, a, b in parts)]


def value(optimize, cost, nodes, probes, parts):
    times = [seconds(cost, probes[nodes[n].addr], a, b) for n, a, b in parts]
    if optimize == "memory":
        return max(need(cost, nodes[n], a, b) / budget(nodes[n]) for n, a, b in parts)
    return max(times) if optimize == "throughput" else sum(times)


def parts_of(placement, nodes):
    order = [node.addr for node in nodes]
    return [(order.index(one.addr), one.layers.start, one.layers.stop) for one in placement.stages]


@pytest.mark.parametrize(("policy", "optimize"), POLICIES)
@settings(max_examples=150, deadline=None)
@given(cost=models(), cluster=clusters())
def test_every_layer_is_placed_once_where_it_fits_and_only_then(policy, optimize, cost, cluster):
    nodes, probes = cluster
    possible = feasible(cost, nodes)
    config = config_of(nodes, policy, optimize)
    if not possible:
        with pytest.raises(ClusterError, match="no-room"):
            plan(config, cost, probes)
        return
    placement = plan(config, cost, probes)
    parts = parts_of(placement, nodes)
    assert parts in possible
    assert [n for one in placement.stages for n in one.layers] == list(range(cost.n_layers))
    for (n, a, b), stage in zip(parts, placement.stages, strict=True):
        assert stage.need_bytes == need(cost, nodes[n], a, b) <= stage.budget_bytes == budget(nodes[n])
        assert len(stage.layers) <= stage.capacity
        assert stage.predicted_ms == pytest.approx(seconds(cost, probes[stage.addr], a, b) / 1e6)


@pytest.mark.parametrize("optimize", ["throughput", "latency", "memory"])
@settings(max_examples=150, deadline=None)
@given(cost=models(), cluster=clusters())
def test_auto_is_the_best_there_is_then_has_fewest_nodes_then_is_most_even(optimize, cost, cluster):
    nodes, probes = cluster
    possible = feasible(cost, nodes)
    if not possible:
        return
    found = parts_of(plan(config_of(nodes, "auto", optimize), cost, probes), nodes)
    values = [value(optimize, cost, nodes, probes, parts) for parts in possible]
    least = min(values)
    assert value(optimize, cost, nodes, probes, found) == pytest.approx(least, rel=1e-9)
    effort = {
        (len(parts), sum((b - a) ** 2 for _, a, b in parts))
        for parts, one in zip(possible, values, strict=True)
        if one == pytest.approx(least, rel=1e-12)
    }
    assert (len(found), sum((b - a) ** 2 for _, a, b in found)) == min(effort)


small = st.integers(0, 4)


@st.composite
def loads(draw, n_layers, size):
    sums = [0, *accumulate(draw(st.lists(size, min_size=n_layers, max_size=n_layers)))]
    first, last = draw(small), draw(small)
    return Load(sums, first, last, first + last)


@st.composite
def bearers(draw):
    n_layers = draw(st.integers(1, 6))
    size = st.just(draw(small)) if draw(st.booleans()) else small
    rates = st.sampled_from([Fraction(1), Fraction(2), Fraction(5), Fraction("0.1"), Fraction("0.3")])
    return [
        Bearer(draw(loads(n_layers, size)), draw(st.integers(0, 25)), draw(loads(n_layers, size)), draw(rates))
        for _ in range(draw(st.integers(1, 4)))
    ]


@pytest.mark.parametrize("total", [False, True])
@settings(max_examples=400, deadline=None)
@given(nodes=bearers())
def test_the_best_partition_is_the_best_to_the_last_digit(total, nodes):
    n_layers = len(nodes[0].need.sums) - 1

    def effort(parts):
        costs = [nodes[n].work.of(a, b) / nodes[n].rate for n, a, b in parts]
        return sum(costs) if total else max(costs), len(parts), sum((b - a) ** 2 for _, a, b in parts)

    every = partitions(n_layers, len(nodes))
    fit = [parts for parts in every if all(nodes[n].need.of(a, b) <= nodes[n].budget for n, a, b in parts)]
    found = best_partition(nodes, total=total)
    if not fit:
        assert found is None
        return
    assert [n for part in found for n in part] == list(range(n_layers))
    parts = [(n, part.start, part.stop) for n, part in enumerate(found) if part]
    assert parts in fit
    assert effort(parts) == min(map(effort, fit))


@settings(max_examples=150, deadline=None)
@given(cost=models(), cluster=clusters())
def test_the_first_precision_of_the_ladder_that_fits_is_taken(cost, cluster):
    nodes, probes = cluster
    ladder = ("fp32", "bf16", "int8")
    fits = [bool(feasible(cost, [NodeConfig(**vars(one) | {"precision": p}) for one in nodes])) for p in ladder]
    config = config_of(nodes, "ram_balanced", precision_ladder=ladder)
    if not any(fits):
        with pytest.raises(ClusterError, match="no-room"):
            plan(config, cost, probes)
        return
    placement = plan(config, cost, probes)
    n_tried = fits.index(True) + 1
    assert [(one.precision, one.fits) for one in placement.trials] == list(zip(ladder, fits, strict=True))[:n_tried]
    assert {one.precision for one in placement.stages} == {ladder[n_tried - 1]}


@settings(max_examples=150, deadline=None)
@given(cost=models(), cluster=clusters(), data=st.data())
def test_what_is_left_after_a_retirement_holds_every_layer_once_or_there_is_no_room(cost, cluster, data):
    nodes, probes = cluster
    spare = NodeConfig(addr="s", max_ram_gb=data.draw(st.integers(1, 700)) / 1e9, role="standby")
    config = config_of((*nodes, spare), "ram_balanced")
    if not feasible(cost, nodes):
        return
    placement, refused = plan(config, cost, probes), ("no-room", False)
    for addr in data.draw(st.permutations([node.addr for node in nodes])):
        promoted = placement.can_hold("s", addr)
        try:
            placement = retire(placement, config, cost, probes, addr)
        except ClusterError as error:
            refused = error.slug, promoted
            break
        assert [n for one in placement.stages for n in one.layers] == list(range(cost.n_layers))
        assert not {one.addr for one in placement.stages} & set(placement.retired)
        assert all(one.need_bytes <= one.budget_bytes for one in placement.stages)
    assert refused == ("no-room", False)


@given(st.integers(0, 200), st.lists(st.tuples(st.floats(0.01, 1e6), st.integers(0, 60), st.integers(0, 60))))
def test_shares_sum_to_the_whole_within_their_limits(total, members):
    weights = [weight for weight, _, _ in members]
    least = [min(a, b) for _, a, b in members]
    most = [max(a, b) for _, a, b in members]
    counts = share_out(total, weights, most, least)
    if not sum(least) <= total <= sum(most):
        assert counts is None
        return
    assert sum(counts) == total
    assert all(low <= count <= high for low, count, high in zip(least, counts, most, strict=True))
