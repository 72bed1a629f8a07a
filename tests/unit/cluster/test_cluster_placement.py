"""Placement: budgets, the policies on cases one can follow, standbys, retirement, and what it refuses."""

import json
import pickle
import time
import tracemalloc

import pytest

from headway.cluster.config import ClusterConfig, NodeConfig, PlacementConfig
from headway.cluster.cost import ModelCost
from headway.cluster.placement import plan, retire
from headway.cluster.probe import Device, NodeProbe
from headway.errors import ClusterError

GB = 10**9


def model(n_layers=8, layer_gb=1.0, kv=0, ends_gb=0.0, tied=False):
    """A model whose layers take so much in bf16, and so much each of its ends."""
    params = round(layer_gb * GB / 2)
    return ModelCost(
        layer_params=(params,) * n_layers,
        layer_rows=(1000,) * n_layers,
        layer_other=(0,) * n_layers,
        layer_touched=(params,) * n_layers,
        kv_rows=(kv,) * n_layers,
        vocab=round(ends_gb * GB / 2),
        hidden=1,
        tied=tied,
    )


def node(addr, gb=None, **told):
    return NodeConfig(addr=addr, max_ram_gb=gb, **told)


def seen(addr, gb=64, speed=10.0, host=None, **told):
    whole = {"ram_bytes": gb * GB, "available_bytes": gb * GB, "gflops": speed, "gflops_prefill": 100.0}
    return NodeProbe(**{"addr": addr, "host": host or addr, "os": "x"} | whole | told)


def planned(nodes, cost, probes=None, reserve=0, seq=8, **placement):
    config = ClusterConfig(
        model="m", nodes=tuple(nodes), reserve_ram_gb=reserve, seq=seq, placement=PlacementConfig(**placement)
    )
    probes = {one.addr: seen(one.addr) for one in nodes} if probes is None else {one.addr: one for one in probes}
    return plan(config, cost, probes), config, probes


def layers(placement):
    return {one.addr: (one.layers.start, one.layers.stop) for one in placement.stages}


def refused(slug, *args, **kwargs):
    with pytest.raises(ClusterError) as caught:
        planned(*args, **kwargs)
    assert caught.value.slug == slug
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return str(caught.value)


def test_layers_follow_budgets():
    placement, _, _ = planned([node("a", 12), node("b", 4)], model(8))
    assert layers(placement) == {"a": (0, 6), "b": (6, 8)}
    assert [(one.budget_bytes, one.need_bytes) for one in placement.stages] == [(12 * GB, 6 * GB), (4 * GB, 2 * GB)]
    assert [one.capacity for one in placement.stages] == [12, 4]


def test_layers_follow_speeds_within_what_nodes_hold():
    probes = [seen("a", speed=30.0), seen("b", speed=10.0), seen("c", speed=40.0)]
    placement, _, _ = planned([node("a"), node("b"), node("c", 3)], model(8), probes, policy="throughput")
    assert layers(placement) == {"a": (0, 3), "b": (3, 5), "c": (5, 8)}


def test_the_budget_is_the_lesser_of_memory_and_limit_less_the_reserve():
    probes = [seen("a", 10), seen("b", 10, available_bytes=7 * GB), seen("c", 10, available_bytes=1)]
    placement, _, _ = planned([node("a", 100), node("b"), node("c", 8)], model(8), probes, reserve=2)
    assert {one.addr: one.budget_bytes for one in placement.stages} == {"a": 8 * GB, "b": 5 * GB, "c": 6 * GB}


def test_nodes_of_one_host_share_what_is_available_there():
    probes = [seen(addr, 20, host="h") for addr in "abc"] + [seen("d", 20)]
    placement, _, _ = planned([node("a"), node("b"), node("c", 6), node("d")], model(20, 0.5), probes, reserve=2)
    assert {one.addr: one.budget_bytes // GB for one in placement.stages} == {"a": 6, "b": 6, "c": 4, "d": 18}


def test_a_graphics_card_has_its_own_memory():
    card = Device(device="cuda:0", name="x", memory_bytes=40 * GB, available_bytes=30 * GB)
    probes = [seen("a", host="h", devices=(card,)), seen("b", host="h", devices=(card,))]
    placement, _, _ = planned([node("a", device="cuda"), node("b")], model(), probes)
    assert [one.budget_bytes // GB for one in placement.stages] == [30, 64]
    message = refused("unmeasured-node", [node("a", device="cuda:1")], model(), probes)
    assert "available memory of a" in message


def test_embedding_head_and_kv_window_take_their_room():
    cost = model(8, kv=1000, ends_gb=2.0)
    placement, _, _ = planned([node("a", 10), node("b", 10)], cost, context=500_000)
    assert [one.need_bytes for one in placement.stages] == [4 * 2 * GB + 2 * GB] * 2
    assert [one.capacity for one in placement.stages] == [4, 4]
    message = refused("no-room", [node("a", 10), node("b", 9.9)], cost, context=500_000)
    assert "needs 20.00 of 19.90 GB" in message
    planned([node("a", 6, kv_cache=False), node("b", 6, kv_cache=False)], cost, context=500_000)


def test_a_node_without_room_for_its_end_and_a_layer_is_left_out():
    placement, _, _ = planned([node("a", 1.5), node("b", 20), node("c", 1.5)], model(8, ends_gb=2.0))
    assert layers(placement) == {"b": (0, 8)}


def test_a_tied_head_is_counted_once_on_one_node_and_twice_on_two():
    cost = model(2, ends_gb=2.0, tied=True)
    assert planned([node("a", 4)], cost)[0].stages[0].need_bytes == 4 * GB
    assert [one.need_bytes for one in planned([node("a", 3), node("b", 3)], cost)[0].stages] == [3 * GB, 3 * GB]


@pytest.mark.parametrize(
    ("optimize", "expected"),
    [
        ("throughput", {"a": (0, 2), "b": (2, 8)}),
        ("latency", {"b": (0, 8)}),
        ("memory", {"a": (0, 5), "b": (5, 8)}),
    ],
)
def test_auto_looks_for_what_it_is_told(optimize, expected):
    probes = [seen("a", speed=10.0), seen("b", speed=30.0)]
    placement, _, _ = planned([node("a", 14), node("b", 8)], model(8), probes, policy="auto", optimize=optimize)
    assert layers(placement) == expected


def test_the_head_counts_as_work_of_the_last_stage():
    cost = model(8, ends_gb=2.0)
    placement, _, _ = planned([node("a"), node("b")], cost, policy="auto")
    assert layers(placement) == {"a": (0, 5), "b": (5, 8)}
    assert [one.predicted_ms for one in placement.stages] == [500.0, 500.0]
    assert [one.predicted_prefill_ms for one in placement.stages] == [400.0, 400.0]


def test_time_is_unknown_where_speed_or_work_is():
    probes = [seen("a", gflops=None, gflops_prefill=None)]
    assert planned([node("a")], model(), probes)[0].stages[0].predicted_ms is None
    assert planned([node("a")], model(), probes, assume_gflops=8.0)[0].stages[0].predicted_ms == 1000.0
    for policy in ("throughput", "auto"):
        assert "speed of a" in refused("unmeasured-node", [node("a")], model(), probes, policy=policy)
    assert planned([node("a")], model(), probes, policy="auto", optimize="memory")[0].stages[0].addr == "a"
    unread = ModelCost(**vars(model()) | {"layer_touched": None})
    assert planned([node("a")], unread)[0].stages[0].predicted_ms is None
    assert "work of the model" in refused("unmeasured-node", [node("a")], unread, policy="auto")


def test_unknown_memory_has_to_be_told():
    probes = [seen("a", ram_bytes=None, available_bytes=None)]
    assert "memory of a, b" in refused("unmeasured-node", [node("a"), node("b")], model(), probes)
    told = planned([node("a"), node("b", 9)], model(), probes, assume_ram_gb=12.0, reserve=1)[0]
    assert [one.budget_bytes // GB for one in told.stages] == [11, 8]


def test_an_unknown_kv_window_has_to_be_told():
    unread = ModelCost(**vars(model()) | {"kv_rows": None})
    assert "kv_bytes_per_token" in refused("unknown-kv", [node("a")], unread)
    assert planned([node("a", kv_cache=False)], unread)[0].stages[0].need_bytes == 8 * GB
    told = ModelCost(**vars(unread) | {"kv_bytes_per_token": 1000})
    assert planned([node("a")], told, context=1000)[0].stages[0].need_bytes == 8 * (GB + 1_000_000)


def manual(*ranges, gb=64):
    return [node(f"n{n}", gb, layers=range(*each)) for n, each in enumerate(ranges)]


def test_manual_ranges_are_taken_as_they_are():
    placement, _, _ = planned(manual((0, 1), (1, 8)), model(8), policy="manual")
    assert layers(placement) == {"n0": (0, 1), "n1": (1, 8)}


@pytest.mark.parametrize(
    ("ranges", "word"),
    [
        ([(0, 3), (4, 8)], "layer 3 is on no node"),
        ([(1, 3), (5, 7)], "layers 0, 3, 4 and 7 are on no node"),
        ([(0, 5), (3, 8)], "layers 3 and 4 are on several nodes"),
        ([(0, 1), (4, 8)], "layers 1 to 3 are on no node"),
        ([(0, 4), (4, 9)], "n1 has layers 4..9; the model has 8"),
        ([(4, 8), (0, 4)], "n1 has layers 0..4, and the node before it 4..8"),
    ],
)
def test_manual_ranges_that_are_wrong_are_named(ranges, word):
    assert word in refused("bad-ranges", manual(*ranges), model(8), policy="manual")


def test_manual_ranges_that_do_not_fit_are_named():
    nodes = manual((0, 6), (6, 8), gb=5)
    assert "layers 0..6 of n0 need 6.00 GB" in refused("no-room", nodes, model(8), policy="manual")
    placement, _, _ = planned(nodes, model(8), policy="manual", precision_ladder=("bf16", "int8"))
    assert [one.precision for one in placement.stages] == ["int8", "int8"]


def test_the_ladder_says_what_fits_and_what_does_not():
    ladder = ("fp32", "bf16", "int8")
    placement, _, _ = planned([node("a", 5), node("b", 5)], model(8), precision_ladder=ladder)
    assert [(one.precision, one.fits, one.need_bytes // GB) for one in placement.trials] == [
        ("fp32", False, 16),
        ("bf16", True, 8),
    ]
    assert "fp32 does not fit: needs 16.00 of 10.00 GB" in placement.table()
    message = refused("no-room", [node("a", 1), node("b", 2)], model(8), precision_ladder=ladder)
    for word in ("fp32 needs 16.00 of 3.00 GB", "int8 needs 4.00 of 3.00 GB", "a 1.00 GB, b 2.00 GB"):
        assert word in message


def test_a_negative_budget_is_no_room():
    probes = [seen("a", 5)]
    assert "after 6 GB of reserve: a none" in refused("no-room", [node("a")], model(8), probes, reserve=6)


def test_a_limit_below_the_reserve_is_named():
    nodes = [node("a", 4), node("b", 2.5), node("c", 16)]
    assert refused("no-room", nodes[:2], model(8), reserve=6) == (
        "Cannot place 8 layers: max_ram_gb is below reserve_ram_gb = 6 on a (4), b (2.5). "
        "Raise max_ram_gb, or lower reserve_ram_gb. [no-room]"
    )
    placement, _, _ = planned(nodes, model(8), reserve=6)
    assert layers(placement) == {"c": (0, 8)}
    assert placement.notes == ("max_ram_gb is below reserve_ram_gb = 6 on a (4), b (2.5): no layers there",)


def test_draining_nodes_get_no_layers():
    placement, _, _ = planned([node("a"), node("b", role="draining")], model(8))
    assert layers(placement) == {"a": (0, 8)}


def standbys():
    nodes = [node("a", 10), node("b", 4), node("s", 20, role="standby", standby_for="b")]
    return [*nodes, node("t", 3, role="standby"), node("u", 1, role="standby", standby_for="a")]


def test_a_standby_holds_only_what_fits():
    placement, _, _ = planned(standbys(), model(8))
    assert layers(placement) == {"a": (0, 6), "b": (6, 8)}
    assert [(one.addr, one.stage_addr, list(one.fits)) for one in placement.standbys] == [
        ("s", "b", ["b"]),
        ("t", None, ["b"]),
        ("u", None, []),
    ]
    assert (placement.standby_of("a"), placement.uncovered) == (None, ["a"])
    assert planned([node("a", 10)], model(8))[0].uncovered == []
    assert (placement.can_hold("t", "b"), placement.can_hold("t", "a")) == (True, False)


def test_a_standby_mirrors_the_precision_of_its_stage():
    nodes = [node("a", 10), node("s", 5, role="standby", precision="fp32")]
    placement, _, _ = planned(nodes, model(8), precision_ladder=("int8",))
    assert placement.standbys[0].fits["a"].precision == "int8"


def test_retiring_promotes_the_standby_and_moves_nothing_else():
    placement, config, probes = planned(standbys(), model(8))
    after = retire(placement, config, model(8), probes, "b")
    assert layers(after) == {"a": (0, 6), "s": (6, 8)}
    assert after.stages[0] == placement.stages[0]
    assert (after.stages[1].budget_bytes, after.retired) == (20 * GB, {"b": "s"})
    again = retire(after, config, model(8), probes, "s")
    assert layers(again) == {"a": (0, 6), "t": (6, 8)}
    assert [one.addr for one in again.standbys] == ["u"]


def test_retiring_without_a_standby_plans_again_in_the_order_there_is_now():
    nodes = [node("a", 10), node("b", 4), node("s", 4, role="standby", standby_for="b"), node("c", 10)]
    placement, config, probes = planned(nodes, model(12))
    after = retire(retire(placement, config, model(12), probes, "b"), config, model(12), probes, "a")
    assert list(layers(after)) == ["s", "c"]
    assert after.retired == {"b": "s", "a": None}
    with pytest.raises(ClusterError, match="no-room"):
        retire(after, config, model(12), probes, "c")


def test_retiring_a_standby_or_a_node_without_layers_moves_nothing():
    nodes = [node("a", 20), node("b", 0.5), node("s", 20, role="standby")]
    placement, config, probes = planned(nodes, model(8))
    for addr in ("s", "b"):
        placement = retire(placement, config, model(8), probes, addr)
        assert layers(placement) == {"a": (0, 8)}
    assert not placement.standbys
    with pytest.raises(ClusterError, match="last active one"):
        retire(placement, config, model(8), probes, "a")
    with pytest.raises(ClusterError, match="'x': there is none"):
        retire(placement, config, model(8), probes, "x")


def test_retiring_a_node_that_is_out_changes_nothing():
    nodes = [node("a"), node("b"), node("c"), node("s", role="standby", standby_for="a")]
    placement, config, probes = planned(nodes, model(12))
    once = retire(placement, config, model(12), probes, "a")
    again = retire(once, config, model(12), probes, "a")
    assert again is once
    assert again.retired == {"a": "s"}
    assert list(layers(retire(again, config, model(12), probes, "b"))) == ["s", "c"]


def test_a_manual_stage_goes_to_its_standby_with_its_layers():
    nodes = [*manual((0, 4), (4, 8)), node("s", 20, role="standby", standby_for="n1")]
    placement, config, probes = planned(nodes, model(8), policy="manual")
    after = retire(placement, config, model(8), probes, "n1")
    assert layers(after) == {"n0": (0, 4), "s": (4, 8)}
    with pytest.raises(ClusterError, match=r"layers 0 to 3 are on no node"):
        retire(after, config, model(8), probes, "n0")


def test_only_a_standby_that_fits_is_promoted():
    placement, _, _ = planned(standbys(), model(8))
    with pytest.raises(ClusterError, match="no-standby"):
        placement.promoted("a", "t")


def test_the_table_and_the_json_say_the_same():
    placement, _, _ = planned(standbys(), model(8))
    assert placement.table().splitlines() == [
        "node              layers   device  precision       need    budget holds    token",
        "a                 0..6     cpu     bf16         6.00 GB  10.00 GB    10   600 ms",
        "b                 6..8     cpu     bf16         2.00 GB   4.00 GB     4   200 ms",
        "s                 standby for b; budget 20.00 GB",
        "t                 standby for b; budget 3.00 GB",
        "u                 standby, holds no stage; budget 1.00 GB",
        "no standby for a",
        "the model fits: needs 8.00 of 14.00 GB",
    ]
    told = placement.to_json()
    assert json.loads(json.dumps(told)) == told
    assert told["stages"][1]["layers"] == {"start": 6, "end": 8}
    assert told["standbys"][0]["fits"]["b"]["addr"] == "s"


def test_auto_takes_the_fewest_nodes_of_those_that_end_at_the_same_time():
    nodes = [node("a"), node("b", 0.5), node("c"), node("d")]
    probes = [seen(addr, speed=speed) for addr, speed in zip("abcd", (1.0, 5.0, 2.0, 2.0), strict=True)]
    placement, _, _ = planned(nodes, model(3, 1.0), probes, policy="auto")
    assert layers(placement) == {"a": (0, 1), "c": (1, 3)}
    placement, _, _ = planned(
        [node("a"), node("b")], model(4), [seen("a", speed=0.3), seen("b", speed=0.1)], policy="auto"
    )
    assert layers(placement) == {"a": (0, 3), "b": (3, 4)}


@pytest.mark.parametrize("optimize", ["throughput", "latency", "memory"])
def test_thousands_of_layers_are_planned_in_memory_that_grows_with_them(optimize):
    nodes = [node(addr, 3_000) for addr in "ab"]
    tracemalloc.start()
    placement, _, _ = planned(
        nodes, model(5_000), [seen(addr, 3_000) for addr in "ab"], policy="auto", optimize=optimize
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert layers(placement) == {"a": (0, 2_500), "b": (2_500, 5_000)}
    assert peak < 20e6


@pytest.mark.parametrize("optimize", ["throughput", "latency", "memory"])
def test_layers_of_no_size_are_planned(optimize):
    placement, _, _ = planned([node("a", 1), node("b", 1)], model(3, 0), policy="auto", optimize=optimize)
    assert layers(placement) == {"a": (0, 3)}


def test_128_layers_over_64_nodes_are_planned_at_once():
    """Measured: 0.05 to 0.15 s each; the bound leaves room for a busy machine."""
    nodes = [node(f"n{n}", 8) for n in range(64)]
    probes = [seen(f"n{n}", speed=5.0 + n % 7) for n in range(64)]
    for optimize in ("throughput", "latency", "memory"):
        began = time.perf_counter()
        placement, _, _ = planned(nodes, model(128), probes, policy="auto", optimize=optimize)
        assert time.perf_counter() - began < 1.0
        assert placement.stages[-1].layers.stop == 128


def test_an_end_keeps_one_layer_where_its_neighbour_has_no_room_for_the_embedding():
    probes = [seen("a", speed=1.0), seen("b", speed=100.0)]
    for gb, expected in ((12, {"b": (0, 8)}), (10, {"a": (0, 1), "b": (1, 8)})):
        nodes = [node("a", 3), node("b", gb)]
        placement, _, _ = planned(nodes, model(8, ends_gb=2.0), probes, policy="throughput")
        assert layers(placement) == expected
        assert placement.notes == ()


def test_uneven_layers_that_no_shares_fit_are_placed_all_the_same_and_it_is_said():
    uneven = ModelCost(**vars(model(3)) | {"layer_params": (2 * GB, GB // 2, GB // 2)})
    placement, _, _ = planned([node("a", 4), node("b", 2)], uneven)
    assert layers(placement) == {"a": (0, 1), "b": (1, 3)}
    assert "no shares of ram_balanced fit" in placement.table()
