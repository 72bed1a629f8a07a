"""Stages against the unsplit model of `transformers`: the same logits to the last bit, wherever it is cut."""

import re
import shutil
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.cluster.small_models import CASES, edit_config, edit_tensors, make, prompts, run_whole, whole

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("safetensors")

from headway.cluster import stage as stage_module  # noqa: E402
from headway.cluster.architecture import HANDLED, check_architecture  # noqa: E402
from headway.cluster.checkpoint import Checkpoint  # noqa: E402
from headway.cluster.cost import ModelCost  # noqa: E402
from headway.cluster.packed import PackedLinear  # noqa: E402
from headway.cluster.stage import Stage  # noqa: E402
from headway.errors import ClusterError  # noqa: E402

CUTS = ([0, 4], [0, 2, 4], [0, 1, 3, 4], [0, 1, 2, 3, 4])
N_DECODED = 4


def stages_of(folder, cuts, precision="fp32"):
    checkpoint = Checkpoint.open(folder)
    return [Stage(checkpoint, range(start, stop), precision) for start, stop in pairwise(cuts)]


def run_stages(stages, ids, steps):
    """Return logits and greedy tokens of stages in one process, one after the other."""
    for stage in stages:
        stage.begin(1)
    given, logits, tokens = ids, [], []
    for _ in range(max(1, steps)):
        for stage in stages:
            given = stage(given)
        logits.append(given)
        given = given[:, -1:].argmax(-1)
        tokens.append(given)
    return torch.cat(logits, 1), torch.cat(tokens, 1)[:, :steps]


def difference(left, right):
    return (left - right).abs().max().item()


def relative(found, wanted):
    """Return the root mean square of a difference over that of what is wanted."""
    return ((found.float() - wanted.float()).norm() / wanted.float().norm()).item()


def test_every_handled_architecture_is_tested():
    assert {f"{architecture}ForCausalLM" for architecture, _ in CASES.values()} == set(HANDLED)


@pytest.mark.parametrize("case", CASES)
def test_stages_give_the_logits_of_the_whole(checkpoint_of, case):
    folder, ids = checkpoint_of(case), prompts()
    wanted, tokens = run_whole(whole(folder), ids, N_DECODED)
    assert wanted.std() > 0.5
    assert len(tokens.unique()) > 1
    for cuts in CUTS:
        found, chosen = run_stages(stages_of(folder, cuts), ids, N_DECODED)
        assert difference(found, wanted) == 0.0, cuts
        assert torch.equal(chosen, tokens), cuts


def test_the_cases_differ_from_each_other(checkpoint_of):
    """A window, scaled positions and their like do change these models: a stage that forgot them would show."""

    def logits(folder):
        return run_whole(whole(folder), prompts())[0]

    for case, change in {
        "mistral, window": {"sliding_window": 64},
        "qwen2, window": {"layer_types": ["full_attention"] * 4},
        "llama, scaled positions": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        "smollm3": {"no_rope_layers": [1, 1, 1, 1]},
    }.items():
        folder = checkpoint_of(case)
        before = logits(folder)
        other = folder.with_name(f"{folder.name}-other")
        shutil.copytree(folder, other)
        edit_config(other, **change)
        assert difference(logits(other), before) > 0.01, case


@settings(max_examples=12, deadline=None)
@given(
    cuts=st.sets(st.integers(1, 6)).map(lambda inner: [0, *sorted(inner), 7]),
    case=st.sampled_from(["seven", "seven, window"]),
    batch=st.integers(1, 3),
    length=st.integers(1, 12),
)
def test_any_cut_gives_the_logits_of_the_whole(seven_layers, cuts, case, batch, length):
    folder, model = seven_layers[case]
    ids = prompts(batch, length)
    wanted, tokens = run_whole(model, ids, 3)
    found, chosen = run_stages(stages_of(folder, cuts), ids, 3)
    assert difference(found, wanted) == 0.0
    assert torch.equal(chosen, tokens)


@pytest.fixture(scope="module")
def seven_layers(tmp_path_factory):
    kinds = ["sliding_attention", "full_attention"] * 4
    made = {
        "seven": make(tmp_path_factory.mktemp("seven"), "Llama", num_hidden_layers=7),
        "seven, window": make(
            tmp_path_factory.mktemp("window"), "Qwen3", num_hidden_layers=7, head_dim=8, use_sliding_window=True,
            sliding_window=3, layer_types=kinds[:7], tie_word_embeddings=True,
        ),
    }  # fmt: skip
    return {name: (folder, whole(folder)) for name, folder in made.items()}


@pytest.mark.parametrize("case", ["llama, biases", "olmo2", "phi3", "qwen2, window", "qwen3", "smollm3"])
def test_bf16_stages_give_the_logits_of_the_whole_in_bf16(checkpoint_of, case):
    """The bound is none: what is computed, and how it is rounded, is the same."""
    folder, ids = checkpoint_of(case), prompts()
    wanted, tokens = run_whole(whole(folder, "bfloat16"), ids, N_DECODED)
    for cuts in CUTS[1:]:
        found, chosen = run_stages(stages_of(folder, cuts, "bf16"), ids, N_DECODED)
        assert found.dtype == torch.bfloat16
        assert difference(found, wanted) == 0.0
        assert torch.equal(chosen, tokens)


def test_a_checkpoint_in_bf16_is_widened_to_fp32(tmp_path):
    folder, ids = make(tmp_path, dtype=torch.bfloat16), prompts()
    wanted, _ = run_whole(whole(folder), ids, N_DECODED)
    found, _ = run_stages(stages_of(folder, [0, 2, 4]), ids, N_DECODED)
    assert found.dtype == torch.float32
    assert difference(found, wanted) == 0.0


def test_a_packed_weight_is_within_half_a_step_of_its_row():
    weight = torch.randn(7, 33, generator=torch.Generator().manual_seed(0)) * torch.logspace(-6, 6, 7)[:, None]
    weight[3] = 0
    packed = PackedLinear(weight)
    back = packed.weight.float() * packed.scale
    assert ((back - weight).abs() <= weight.abs().amax(1, keepdim=True) / 127 * 0.5001).all()
    ids = torch.eye(33)
    assert difference(packed(ids).T, back) == 0.0


@pytest.mark.parametrize("case", ["llama", "phi3", "qwen3"])
def test_int8_stages_are_near_bf16_in_half_its_bytes(tmp_path, case):
    """Weights of 0.05, as trained models have them, move the logits by less than 2 % of their size."""
    architecture, config = CASES[case]
    folder, ids = make(tmp_path, architecture, **config | {"initializer_range": 0.05, "hidden_size": 64}), prompts()
    cuts = [0, 1, 3, 4]
    bf16, int8 = stages_of(folder, cuts, "bf16"), stages_of(folder, cuts, "int8")
    wanted, _ = run_stages(bf16, ids, 0)
    found, _ = run_stages(int8, ids, 0)
    assert found.dtype == torch.bfloat16
    assert 0 < relative(found, wanted) < 0.02
    cost = ModelCost.of(Checkpoint.open(folder))
    for precision, stages in (("bf16", bf16), ("int8", int8)):
        assert stages[1].resident_bytes == sum(cost.layer_bytes(precision)[1:3])
    assert 0.5 <= int8[1].resident_bytes / bf16[1].resident_bytes < 0.54
    assert [stage.n_packed for stage in int8] == [sum(cost.layer_params[a:b]) for a, b in pairwise(cuts)]
    assert [stage.n_packed for stage in bf16] == [0, 0, 0]
    assert [stage.n_params for stage in int8] == [stage.n_params for stage in bf16]


def test_a_head_of_its_own_goes_before_a_tied_one(tmp_path):
    """So does transformers, which ties nothing where both are in the file and differ."""
    folder = make(tmp_path / "m", tie_word_embeddings=True)
    edit_tensors(folder, lambda tensors: tensors.update({"lm_head.weight": torch.randn(96, 32)}))
    ids = prompts(2)
    wanted, tokens = run_whole(whole(folder), ids, 2)
    for cuts in ([0, 4], [0, 2, 4]):
        stages = stages_of(folder, cuts)
        logits, found = run_stages(stages, ids, 2)
        assert (difference(logits, wanted), found.tolist()) == (0.0, tokens.tolist())
        cost = ModelCost.of(Checkpoint.open(folder))
        held = sum(cost.layer_bytes("fp32")) + cost.embedding_bytes("fp32") + cost.head_bytes("fp32")
        assert sum(stage.resident_bytes for stage in stages) == held


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "granite"}, "GraniteForCausalLM"),
        ({"model_type": "mamba"}, "config.json"),
        ({"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config"}}, "config.json"),
    ],
)
def test_a_config_of_another_model_than_it_names_is_refused_and_runs_nothing(tmp_path, changes, said):
    folder = make(tmp_path / "m")
    marker = tmp_path / "ran"
    (folder / "evil.py").write_text(f"open({str(marker)!r}, 'w')\n")
    edit_config(folder, **changes)
    with pytest.raises(ClusterError, match=rf"{said}.*\[unlike-config\]"):
        stages_of(folder, [0, 4])
    assert not marker.exists()


@pytest.mark.parametrize("case", ["llama", "llama, tied", "llama, biases", "phi3", "qwen3, tied, window"])
def test_a_stage_holds_its_tensors_and_no_others(checkpoint_of, monkeypatch, case):
    folder, read = checkpoint_of(case), []
    get = stage_module._Reader.get
    monkeypatch.setattr(
        stage_module._Reader, "get", lambda self, name, *rest: read.append(name) or get(self, name, *rest)
    )
    checkpoint = Checkpoint.open(folder)
    tied = "lm_head.weight" not in checkpoint.tensors
    embedding, head = "model.embed_tokens.weight", "lm_head.weight"
    ends = {0: {embedding}, 4: {embedding if tied else head, "model.norm.weight"}}
    for cuts in CUTS:
        for layers in (range(*pair) for pair in pairwise(cuts)):
            read.clear()
            stage = Stage(checkpoint, layers, "fp32")
            own = {name for name in checkpoint.tensors if checkpoint.layer_of(name) in layers}
            own |= ends.get(layers.start, set()) | ends.get(layers.stop, set())
            assert sorted(read) == sorted(own)
            n_bytes = sum(checkpoint.tensors[name].nbytes for name in own)
            assert (stage.resident_bytes, stage.n_params, stage.n_packed) == (n_bytes, n_bytes // 4, 0)
            report = stage.report("n0", 5)
            assert (report.addr, report.layers, report.device, report.precision) == ("n0", layers, "cpu", "fp32")
            assert (report.resident_bytes, report.n_params, report.rss_bytes) == (n_bytes, n_bytes // 4, 5)
            assert report.build_ms == stage.build_ms > 0


def test_a_stage_needs_no_shard_of_other_layers(tmp_path):
    folder = make(tmp_path, shard="20KB")
    ids = prompts()
    wanted, _ = run_whole(whole(folder), ids)
    checkpoint = Checkpoint.open(folder)
    first = Stage(checkpoint, range(2), "fp32")
    first.begin(1)
    hidden = first(ids)
    of_last = {
        info.file for name, info in checkpoint.tensors.items()
        if checkpoint.layer_of(name) in {2, 3} or name in {"lm_head.weight", "model.norm.weight"}
    }  # fmt: skip
    gone = set(folder.glob("*.safetensors")) - of_last
    assert gone
    for path in gone:
        path.unlink()
    last = Stage(checkpoint, range(2, 4), "fp32")
    last.begin(1)
    assert difference(last(hidden), wanted) == 0.0


def test_weights_stay_when_their_file_is_overwritten(tmp_path):
    folder, ids = make(tmp_path), prompts()
    stages = stages_of(folder, [0, 2, 4])
    wanted, _ = run_stages(stages, ids, 2)
    path = folder / "model.safetensors"
    with path.open("r+b") as file:
        file.write(b"\0" * path.stat().st_size)
    assert difference(run_stages(stages, ids, 2)[0], wanted) == 0.0


def test_begin_forgets_what_was_cached_and_counts_the_time(checkpoint_of):
    (stage,) = stages_of(checkpoint_of("llama"), [0, 4])
    ids = prompts(4)
    stage.begin(1)
    first = stage(ids)
    assert difference(stage(ids), first) > 0.01
    stage.begin(2)
    halves = [stage(part) for part in ids.chunk(2)]
    nexts = [stage(part[:, :1]) for part in ids.chunk(2)]
    stage.begin(1)
    stage.compute_ns = 0
    alone = stage(ids[2:])
    assert stage.compute_ns > 0
    assert difference(halves[1], alone) == 0.0
    assert difference(nexts[1], stage(ids[2:, :1])) == 0.0


def test_an_architecture_that_is_not_handled_names_those_that_are(tmp_path):
    folder = make(tmp_path)
    edit_config(folder, architectures=["Gemma3ForCausalLM"])
    checkpoint = Checkpoint.open(folder)
    for refused in (lambda: check_architecture(checkpoint), lambda: Stage(checkpoint, range(2))):
        with pytest.raises(ClusterError, match="its architecture is Gemma3ForCausalLM") as caught:
            refused()
        assert caught.value.slug == "unknown-architecture"
        assert all(name in str(caught.value) for name in HANDLED)


def lacks(name):
    return lambda tensors: tensors.pop(name)


def has_more(name, tensor):
    return lambda tensors: tensors.update({name: tensor})


GATE = "model.layers.1.mlp.gate_proj.weight"
SPOILT = {
    "one of a layer is missing": (lacks(GATE), "missing-tensor"),
    "the last norm is missing": (lacks("model.norm.weight"), "missing-tensor"),
    "the head is missing, and not tied": (lacks("lm_head.weight"), "missing-tensor"),
    "the embedding is missing": (lacks("model.embed_tokens.weight"), "missing-tensor"),
    "a layer has one more": (has_more("model.layers.1.mlp.extra.weight", torch.ones(2)), "foreign-tensor"),
    "a layer has a bias its config does not": (
        has_more("model.layers.1.self_attn.q_proj.bias", torch.ones(32)),
        "foreign-tensor",
    ),
    "int8 with its scale": (
        lambda tensors: tensors.update({GATE: tensors[GATE].to(torch.int8), f"{GATE}_scale": torch.ones(48)}),
        "unlike-tensor",
    ),
    "packed words": (
        lambda tensors: tensors.update({GATE.replace("weight", "qweight"): tensors.pop(GATE).to(torch.int32)}),
        "missing-tensor",
    ),
    "float8": (lambda tensors: tensors.update({GATE: tensors[GATE].to(torch.float8_e4m3fn)}), "unlike-tensor"),
    "int8 without a scale": (has_more(GATE, torch.ones(48, 32, dtype=torch.int8)), "unlike-tensor"),
    "another shape": (has_more(GATE, torch.ones(32, 48)), "unlike-tensor"),
    "fewer rows": (has_more(GATE, torch.ones(1, 32)), "unlike-tensor"),
    "another vocabulary": (has_more("lm_head.weight", torch.ones(95, 32)), "unlike-tensor"),
    "another embedding": (has_more("model.embed_tokens.weight", torch.ones(97, 32)), "unlike-tensor"),
}


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("how", SPOILT)
def test_a_checkpoint_that_does_not_fit_its_config_is_refused(checkpoint_of, tmp_path, how, precision):
    change, slug = SPOILT[how]
    folder = shutil.copytree(checkpoint_of("llama"), tmp_path / "spoilt")
    edit_tensors(folder, change)
    with pytest.raises(ClusterError, match=re.escape(f"[{slug}]")):
        stages_of(folder, [0, 4], precision)


def test_tensors_of_other_layers_do_not_matter_to_a_stage(checkpoint_of, tmp_path):
    folder = shutil.copytree(checkpoint_of("llama"), tmp_path / "spoilt")
    edit_tensors(folder, has_more("model.layers.3.mlp.extra.weight", torch.ones(2)))
    checkpoint = Checkpoint.open(folder)
    Stage(checkpoint, range(3))
    with pytest.raises(ClusterError, match=r"foreign-tensor"):
        Stage(checkpoint, range(3, 4))


def test_old_positions_in_a_checkpoint_are_no_weights(checkpoint_of, tmp_path):
    folder = shutil.copytree(checkpoint_of("llama"), tmp_path / "old")
    edit_tensors(folder, has_more("model.layers.1.self_attn.rotary_emb.inv_freq", torch.ones(4)))
    ids = prompts()
    found, _ = run_stages(stages_of(folder, [0, 2, 4]), ids, 2)
    wanted, _ = run_whole(whole(checkpoint_of("llama")), ids, 2)
    assert difference(found, wanted) == 0.0
