"""Drives over real workers against the unsplit model: the same logits to the last bit, and the same tokens."""

import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from unit.cluster.small_models import prompts, run_whole, whole

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("safetensors")

import torch.distributed as dist  # noqa: E402

import headway  # noqa: E402
from headway.cluster.checkpoint import Checkpoint  # noqa: E402
from headway.cluster.cluster import Cluster  # noqa: E402
from headway.cluster.config import ClusterConfig, NodeConfig, PlacementConfig  # noqa: E402
from headway.cluster.pipeline import Pipeline  # noqa: E402
from headway.cluster.probe import NodeProbe  # noqa: E402
from headway.cluster.report import ClusterRun  # noqa: E402
from headway.cluster.stage import Stage  # noqa: E402
from headway.errors import ArgumentError, ClusterError  # noqa: E402

SEED, SEQ, CONTEXT = 7, 6, 40
MODEL = {1: "llama", 2: "qwen2, window", 3: "llama, tied, shards", 4: "qwen3, tied, window"}
"""Which model runs on so many stages."""


def nodes(*precisions, **given):
    return [NodeConfig(addr=f"n{n}", precision=precision, **given) for n, precision in enumerate(precisions)]


def planned(folder, members, log_dir, **placement):
    """Return a cluster that is placed without a measurement, to be launched."""
    config = ClusterConfig(
        model=str(folder), seq=SEQ, rng_seed=SEED, reserve_ram_gb=0, threads=1, log_dir=str(log_dir),
        placement=PlacementConfig(context=CONTEXT, **placement), nodes=tuple(members),
    )  # fmt: skip
    cluster = Cluster(config)
    ram = 8 * 10**9
    cluster.plan(
        {
            one.addr: NodeProbe(
                addr=one.addr, host="here", os="Linux", cores=2, ram_bytes=ram, available_bytes=ram, gflops=10.0,
                gflops_prefill=50.0,
            )
            for one in members
        }
    )  # fmt: skip
    return cluster


@pytest.fixture(scope="module")
def cluster_of(checkpoint_of, tmp_path_factory):
    """Return a function from a number of stages to a launched cluster and its whole model."""
    made = {}

    def launched(n_stages):
        if n_stages not in made:
            folder = checkpoint_of(MODEL[n_stages])
            cluster = planned(folder, nodes(*["fp32"] * n_stages), tmp_path_factory.mktemp("logs"))
            made[n_stages] = cluster, whole(folder)
            cluster.launch()
        return made[n_stages]

    yield launched
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda pair: pair[0].close(), made.values()))


def difference(run, wanted):
    assert run.logits.shape == tuple(wanted.shape)
    return np.abs(run.logits - wanted.numpy()).max()


@pytest.mark.parametrize("n_stages", [1, 2, 3, 4])
def test_a_drive_gives_the_logits_and_tokens_of_the_whole(cluster_of, n_stages):
    """Parts of a batch are other matrix products than the batch: the whole model is run on the same parts."""
    cluster, model = cluster_of(n_stages)
    ids = prompts(12)
    for mode, parts in [("relay", None), *(("pipelined", n) for n in (1, 2, 3, 4))]:
        run = cluster.drive(ids, mode=mode, steps=16, micro_batches=parts)
        wanted, tokens = run_whole(model, ids, 16, parts or 1)
        assert difference(run, wanted) == 0.0, (mode, parts)
        assert run.tokens == tokens.tolist(), (mode, parts)
        generated = [
            model.generate(part, max_new_tokens=16, do_sample=False)[:, ids.shape[1] :]
            for part in ids.chunk(parts or 1)
        ]
        assert run.tokens == torch.cat(generated).tolist(), (mode, parts)
        assert (run.mode, run.micro_batches, run.recovered) == (mode, parts or 1, ())
        assert len(run.timings) == n_stages


def test_the_whole_differs_little_on_parts_of_a_batch(cluster_of):
    cluster, model = cluster_of(2)
    ids = prompts(8)
    run = cluster.drive(ids, mode="pipelined", micro_batches=8)
    assert difference(run, run_whole(model, ids)[0]) < 1e-4


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_few_steps_and_which_logits(cluster_of, steps):
    """Without a step, and with one, the prompts are all that is run."""
    cluster, model = cluster_of(3)
    ids = prompts(2, 5)
    wanted, tokens = run_whole(model, ids, steps)
    n_decoded = max(0, steps - 1)
    every = cluster.drive(ids, steps=steps)
    assert every.shape == (2, 5 + n_decoded, 96)
    assert difference(every, wanted) == 0.0
    assert every.tokens == (tokens.tolist() if steps else [])
    assert (every.decode_ms is None) == (n_decoded == 0)
    last = cluster.drive(ids, steps=steps, logits="last")
    assert difference(last, wanted[:, 4:]) == 0.0
    none = cluster.drive(ids, steps=steps, logits="none")
    assert none.logits.shape == (2, 0, 96)
    assert none.tokens == last.tokens == every.tokens


def test_random_prompts_are_those_of_the_seed(cluster_of):
    cluster, model = cluster_of(2)
    ids = np.random.default_rng(SEED).integers(0, 96, (3, SEQ))
    for _ in range(2):
        assert difference(cluster.drive(batch=3), run_whole(model, torch.tensor(ids))[0]) == 0.0
    assert cluster.drive().shape == (1, SEQ, 96)


def test_prompts_in_any_form(cluster_of):
    cluster, model = cluster_of(2)
    ids = prompts(1, 7)
    wanted, _ = run_whole(model, ids)
    array = ids.numpy()
    forms = [ids, ids[0], array, array[0], array.tolist(), array[0].tolist(), tuple(array[0].tolist())]
    forms += [array.astype(kind) for kind in ("uint8", "int16", ">i4", "uint64")]
    forms += [np.asfortranarray(array), np.repeat(array, 2, axis=1)[:, ::2]]
    for form in forms:
        assert difference(cluster.drive(form), wanted) == 0.0
    assert difference(cluster.drive([[0]]), run_whole(model, torch.tensor([[0]]))[0]) == 0.0


REFUSED = {
    "an id too high": ({"input_ids": [[1, 96]]}, "96 is no token of a vocabulary of 96"),
    "an id below 0": ({"input_ids": [[-1, 3]]}, "-1 is no token"),
    "an id that wraps": ({"input_ids": np.array([[2**64 - 1]], dtype=np.uint64)}, "no token"),
    "ragged": ({"input_ids": [[1, 2], [3]]}, "differ in length"),
    "floats": ({"input_ids": [[1.0, 2.0]]}, "float64"),
    "truths": ({"input_ids": [[True, False]]}, "bool"),
    "words": ({"input_ids": "abc"}, "<U3"),
    "objects": ({"input_ids": [[2**70]]}, "object"),
    "empty": ({"input_ids": []}, r"shape \(0,\)|shape \(1, 0\)"),
    "no prompt": ({"input_ids": np.zeros((0, 4), dtype=int)}, r"shape \(0, 4\)"),
    "no token": ({"input_ids": [[], []]}, r"shape \(2, 0\)"),
    "too deep": ({"input_ids": [[[1]]]}, r"shape \(1, 1, 1\)"),
    "too long": ({"input_ids": [[1] * (CONTEXT + 1)]}, f"{CONTEXT + 1} tokens exceed the context of {CONTEXT}"),
    "generated beyond": ({"input_ids": [[1] * CONTEXT], "steps": 2}, f"{CONTEXT + 1} tokens exceed"),
    "no batch": ({"batch": 0}, "batch is 0"),
    "batch of half": ({"batch": 1.5}, "batch is 1.5"),
    "a truth for a batch": ({"batch": True}, "batch is True"),
    "a truth for steps": ({"steps": True}, "steps is True"),
    "mode": ({"mode": "fast"}, "'fast'.*relay, pipelined"),
    "relay in parts": ({"mode": "relay", "micro_batches": 2, "batch": 2}, "relay has one"),
    "no part": ({"mode": "pipelined", "micro_batches": 0}, "micro_batches is 0"),
    "below no part": ({"mode": "pipelined", "micro_batches": -1}, "micro_batches is -1"),
    "no divisor": ({"mode": "pipelined", "micro_batches": 2, "batch": 3}, "is 2, and no divisor of a batch of 3"),
    "half a part": ({"mode": "pipelined", "micro_batches": 1.5, "batch": 3}, "is 1.5"),
    "steps below 0": ({"steps": -1}, "steps is -1"),
    "steps of half": ({"steps": 1.5}, "steps is 1.5"),
    "logits": ({"logits": "first"}, "'first'.*all, last, none"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_arguments_that_cannot_be_driven(cluster_of, how):
    cluster, _ = cluster_of(2)
    given, found = REFUSED[how]
    with pytest.raises(ArgumentError, match=found) as caught:
        cluster.drive(**given)
    assert caught.value.slug == "bad-drive"


def test_the_longest_that_fits_the_context_runs(cluster_of):
    cluster, model = cluster_of(2)
    ids = prompts(1, CONTEXT - 2)
    run = cluster.drive(ids, steps=3)
    wanted, tokens = run_whole(model, ids, 3)
    assert (difference(run, wanted), run.tokens) == (0.0, tokens.tolist())


def test_a_cluster_that_was_not_launched_says_so(checkpoint_of, tmp_path):
    folder = checkpoint_of("llama")
    for cluster in (
        planned(folder, nodes("fp32"), tmp_path),
        Cluster(ClusterConfig(model=str(folder), nodes=nodes("fp32"))),
    ):
        for given in ({}, {"mode": "pipelined"}, {"steps": 2}):
            with pytest.raises(ClusterError, match="not-launched"):
                cluster.drive(**given)


@pytest.mark.parametrize("n_stages", [1, 3])
def test_times_of_a_drive_fit_together(cluster_of, n_stages):
    cluster, _ = cluster_of(n_stages)
    for mode in ("relay", "pipelined"):
        run = cluster.drive(batch=4, mode=mode, steps=5)
        forward = [one.forward_ms for one in run.timings]
        assert all(one.forward_ms > 0 and one.wait_ms >= 0 for one in run.timings)
        assert all(one.forward_ms + one.wait_ms <= run.wall_ms * (1 + 1e-9) for one in run.timings)
        assert run.total_forward_ms == (sum(forward) if mode == "relay" else run.wall_ms)
        if mode == "relay":
            assert sum(forward) <= run.wall_ms  # stages that wait for each other do not overlap
        assert run.critical_path_ms() == max(forward)
        assert 0 < run.prefill_ms < run.wall_ms
        assert run.prefill_ms + run.decode_ms == pytest.approx(run.wall_ms)
        assert all(one.predicted_ms > 0 and one.rss_bytes > one.resident_bytes for one in run.timings)
        reports = [cluster.reports[one.addr] for one in run.timings]
        assert [one.layers for one in run.timings] == [stage.layers for stage in cluster.placement.stages]
        assert [(one.build_ms, one.resident_bytes) for one in run.timings] == [
            (one.build_ms, one.resident_bytes) for one in reports
        ]
        assert run.tokens_per_s(4 * SEQ) == pytest.approx(4 * SEQ / run.total_forward_ms * 1000)


def test_a_run_goes_into_json_and_back(cluster_of):
    cluster, _ = cluster_of(2)
    run = cluster.drive(batch=2, mode="pipelined", steps=3)
    told = json.loads(json.dumps(run.to_json(output=True)))
    back = ClusterRun.from_json(told)
    assert np.array_equal(back.logits, run.logits)
    assert (back.timings, back.tokens, back.shape, back.table()) == (run.timings, run.tokens, run.shape, run.table())
    assert back.to_json() == run.to_json()
    assert re.match(r"node +layers +device", run.table())


def test_many_drives_after_one_launch(cluster_of):
    """Shapes that come and go, and a cache that each drive begins anew."""
    cluster, model = cluster_of(4)
    pids = {addr: hello.pid for addr, hello in cluster._coordinator.hub.hellos.items()}
    for round_, (batch, length) in zip(range(12), [(2, 3), (1, 9), (2, 3), (4, 1)] * 3, strict=True):
        ids = prompts(batch, length, seed=round_)
        mode = ("relay", "pipelined")[round_ % 2]
        run = cluster.drive(ids, mode=mode, steps=round_ % 4)
        assert difference(run, run_whole(model, ids, round_ % 4, run.micro_batches)[0]) == 0.0
    assert pids == {addr: hello.pid for addr, hello in cluster._coordinator.hub.hellos.items()}
    assert {state.doing for state in cluster.state()} == {"ready"}


def test_a_pipeline_keeps_few_shapes_ready(checkpoint_of):
    """Prompts of ever other lengths would fill the memory; those of one drive stay."""
    folder = checkpoint_of("llama")
    model, stage = whole(folder), Stage(Checkpoint.open(folder), range(4), "fp32")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        pipeline = Pipeline(stage)
        for length in range(1, 12):
            ids = prompts(2, length)
            stage.begin(2)
            assert torch.equal(pipeline.forward(ids, 2, length, 2), run_whole(model, ids, micro_batches=2)[0])
            assert pipeline.warmed(2, length, 2)
            stage.begin(2)
            pipeline.forward(ids[:, :1], 2, 1, 2)
            assert pipeline.warmed(2, length, 2)
            assert len(pipeline._schedules) <= 4
        assert not pipeline.warmed(2, 2, 2)
    finally:
        dist.destroy_process_group()


def test_a_launch_while_launched_is_refused(cluster_of):
    cluster, _ = cluster_of(2)
    with pytest.raises(ClusterError, match="launched-twice"):
        cluster.launch()
    assert cluster.drive().tokens == []


def test_retired_nodes_leave_the_weights_of_others_where_they_are(checkpoint_of, tmp_path):
    """Three stages and a standby: the standby takes one over, then the rest is placed anew, down to one node."""
    folder, ids, n_stages = checkpoint_of("llama"), prompts(2), []
    wanted, tokens = run_whole(whole(folder), ids, 3)
    standby = NodeConfig(addr="s", precision="fp32", role="standby", standby_for="n1")

    def drive_and_check(addrs):
        run = cluster.drive(ids, steps=3)
        n_stages.append(len(addrs))
        assert (difference(run, wanted), run.tokens) == (0.0, tokens.tolist())
        assert [one.addr for one in run.timings] == addrs

    with planned(folder, [*nodes("fp32", "fp32", "fp32"), standby], tmp_path) as cluster:
        reports = cluster.launch()
        assert [one.addr for one in reports] == ["n0", "n1", "n2", "s"]
        assert reports[3].layers == reports[1].layers
        drive_and_check(["n0", "n1", "n2"])
        before = dict(cluster.reports)
        cluster.retire("n1")
        drive_and_check(["n0", "s", "n2"])
        assert all(cluster.reports[addr] is before[addr] for addr in ("n0", "s", "n2"))
        with pytest.raises(ArgumentError, match=r"Cannot retire 'n9'.*unknown-node"):
            cluster.retire("n9")
        cluster.retire("n2")
        layers = {stage.addr: stage.layers for stage in cluster.placement.stages}
        assert list(layers) == ["n0", "s"]
        for addr, held in layers.items():
            assert (cluster.reports[addr] is before[addr]) == (held == before[addr].layers)
        drive_and_check(["n0", "s"])
        cluster.retire("n0")
        drive_and_check(["s"])
        with pytest.raises(ClusterError, match="no-room"):
            cluster.retire("s")
        drive_and_check(["s"])
        run, root = cluster.run, cluster.log_root
    ledger = headway.account(headway.load(f"{root}/{run}"))
    assert n_stages == [3, 3, 2, 1, 1]
    assert ledger.steps.executed == ledger.steps.retained == 3 * sum(n_stages)
    assert (ledger.ranks, ledger.attempts) == (3, 4)
    assert sum(ledger.amounts_ns.values()) == ledger.held_ns


def test_a_retire_that_fails_is_made_good_and_an_unwritten_log_is_said(checkpoint_of, tmp_path):
    folder, ids = shutil.copytree(checkpoint_of("llama"), tmp_path / "here"), prompts(2)
    there = shutil.copytree(folder, tmp_path / "there")
    wanted, _ = run_whole(whole(folder), ids, 2)
    members = [*nodes("fp32", ckpt_dir=str(there)), NodeConfig(addr="n1", precision="fp32")]
    with planned(folder, members, os.devnull) as cluster:
        cluster.launch()
        assert set(cluster.log_faults) == {"n0", "n1"}
        (there / "config.json").rename(there / "away.json")
        for _ in range(2):
            with pytest.raises(ClusterError, match=r"\[worker-failed\]"):
                cluster.retire("n1") if "n1" in cluster.pids() else cluster.drive(ids)
        assert [stage.addr for stage in cluster.placement.stages] == ["n0"]
        (there / "away.json").rename(there / "config.json")
        assert difference(cluster.drive(ids, steps=2), wanted) == 0.0


def test_another_thread_is_told_that_a_drive_runs(cluster_of):
    cluster, _ = cluster_of(2)
    refused = []

    def watch(it):
        if not refused and any(state.doing == "driving" for state in it.state()):
            with pytest.raises(ClusterError, match=r"\[busy-cluster\]") as error:
                it.drive()
            refused.append(error)

    cluster.watch = watch
    try:
        cluster.drive(steps=20)
    finally:
        cluster.watch = None
    assert len(refused) == 1


def test_each_node_computes_in_its_own_precision_and_the_log_has_a_rank_a_stage(checkpoint_of, tmp_path):
    """What is handed on is of the giver's type; the taker turns it into its own."""
    folder, ids, precisions = checkpoint_of("llama"), prompts(4), ["int8", "fp32", "bf16"]
    with planned(folder, nodes(*precisions), tmp_path) as cluster:
        reports = cluster.launch()
        runs = [cluster.drive(ids, mode=mode, steps=4, micro_batches=1) for mode in ("relay", "pipelined")]
    stages = [Stage(Checkpoint.open(folder), one.layers, one.precision) for one in reports]
    assert [one.precision for one in reports] == [one.precision for one in runs[0].timings] == precisions
    assert [one.resident_bytes for one in reports] == [stage.resident_bytes for stage in stages]
    assert [one.n_packed for one in reports] == [stage.n_packed for stage in stages]
    given = ids
    for stage in stages:
        stage.begin(1)
        given = stage(given)
    assert all(np.array_equal(run.logits[:, : ids.shape[1]], given.float().numpy()) for run in runs)

    ledger = headway.account(headway.load(f"{cluster.log_root}/{cluster.run}"))
    assert (ledger.ranks, ledger.devices, ledger.attempts) == (3, 3, 1)
    assert ledger.steps.executed == ledger.steps.retained == 3 * 8
    assert sum(ledger.amounts_ns.values()) == ledger.held_ns
    timings = [one for run in runs for one in run.timings]
    booked = {name: 1000 * seconds for name, seconds in ledger.seconds.items()}
    assert booked["productive"] == pytest.approx(sum(one.forward_ms for one in timings))
    assert booked["bubble"] == pytest.approx(sum(one.wait_ms for one in timings))
    assert booked["checkpoint_restore"] >= sum(one.build_ms for one in reports)
    assert {"custom:warmup", "device_init", "custom:idle", "startup"} <= booked.keys()


def test_the_precision_that_a_ladder_found_is_what_runs(checkpoint_of, tmp_path):
    """With room for a bf16 model and not for an fp32 one; and none for a KV cache, so that one token is all."""
    folder, ids = checkpoint_of("llama"), prompts()
    members = nodes("fp32", "fp32", max_ram_gb=70e-6, kv_cache=False)
    with planned(folder, members, tmp_path, precision_ladder=("fp32", "bf16", "int8")) as cluster:
        assert [(one.precision, one.fits) for one in cluster.placement.trials] == [("fp32", False), ("bf16", True)]
        assert [one.precision for one in cluster.launch()] == ["bf16", "bf16"]
        with pytest.raises(ArgumentError, match=r"n0, n1 keeps no KV cache.*bad-drive"):
            cluster.drive(ids, steps=2)
        run = cluster.drive(ids, steps=1)
    wanted, tokens = run_whole(whole(folder, "bfloat16"), ids, 1)
    assert (difference(run, wanted.float()), run.tokens) == (0.0, tokens.tolist())
    assert all(one.resident_bytes <= one.budget_bytes for one in run.timings)
