"""The cost of a model against published counts of parameters, from headers over files without data."""

import json
from math import prod

import pytest

from headway.cluster.checkpoint import Checkpoint
from headway.cluster.cost import ModelCost
from headway.errors import ClusterError


def llama(hidden, inner, n_layers, vocab, kv, tied=False):
    shapes = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    if not tied:
        shapes["lm_head.weight"] = [vocab, hidden]
    for n in range(n_layers):
        at = f"model.layers.{n}."
        shapes |= {f"{at}self_attn.{x}_proj.weight": [hidden, hidden] for x in "qo"}
        shapes |= {f"{at}self_attn.{x}_proj.weight": [kv, hidden] for x in "kv"}
        shapes |= {f"{at}mlp.{x}_proj.weight": [inner, hidden] for x in ("gate", "up")}
        shapes |= {f"{at}mlp.down_proj.weight": [hidden, inner]}
        shapes |= {f"{at}{x}_layernorm.weight": [hidden] for x in ("input", "post_attention")}
        shapes |= {f"{at}self_attn.rotary_emb.inv_freq": [64]}
    return shapes


def mixtral():
    shapes = llama(4096, 14336, 32, 32000, 1024)
    for name in [name for name in shapes if ".mlp." in name]:
        size, (at, leaf) = shapes.pop(name), name.split(".mlp.")
        shapes |= {f"{at}.block_sparse_moe.experts.{e}.{leaf}": size for e in range(8)}
        shapes[f"{at}.block_sparse_moe.gate.weight"] = [8, 4096]
    return shapes


def cost_of(folder, shapes, dtype="BF16", kv=None, **config):
    entries, at = {}, 0
    for name, shape in shapes.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at := at + prod(shape) * 2]}
    raw = json.dumps(entries).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + at)
    n_layers = len({name.split(".")[2] for name in shapes if ".layers." in name})
    config = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": n_layers} | config
    (folder / "config.json").write_text(json.dumps(config))
    return ModelCost.of(Checkpoint.open(folder), kv)


def n_params(cost):
    """Of the whole model on one node."""
    ends = cost.embedding_bytes("fp32") + cost.head_bytes("fp32", with_embedding=True)
    return (sum(cost.layer_bytes("fp32")) + ends) // 4


def test_llama_3_1_8b_has_its_published_size(tmp_path):
    """8.03 B parameters, 128 KiB of keys and values a token (32 layers, 8 heads of 128, bf16)."""
    cost = cost_of(tmp_path, llama(4096, 14336, 32, 128256, 1024))
    assert n_params(cost) == 8_030_261_248
    assert (cost.n_layers, cost.hidden, cost.vocab, cost.tied) == (32, 4096, 128256, False)
    assert sum(cost.kv_bytes_per_token_layer("bf16")) == sum(cost.kv_bytes_per_token_layer("int8")) == 131_072
    assert sum(cost.kv_bytes_per_token_layer("fp32")) == 2 * 131_072
    assert sum(cost.layer_flops) + cost.head_flops == 2 * (8_030_261_248 - 128256 * 4096 - 4096)
    assert cost.layer_bytes("bf16") == (2 * (sum(cost.layer_params) + sum(cost.layer_other)) // 32,) * 32


def test_a_tied_head_is_held_once_with_the_embedding_and_again_without(tmp_path):
    """Llama 3.2 1B: 1.24 B parameters, embeddings shared."""
    cost = cost_of(tmp_path, llama(2048, 8192, 16, 128256, 512, tied=True))
    assert n_params(cost) == 1_235_814_400
    assert cost.tied
    assert cost.head_bytes("bf16") == 2 * (128256 * 2048 + 2048)
    assert cost.head_bytes("bf16", with_embedding=True) == 2 * 2048


def test_a_head_that_the_files_hold_is_none_that_is_tied(tmp_path):
    shapes = llama(8, 16, 1, 32, 4)
    assert not cost_of(tmp_path, shapes, tie_word_embeddings=True).tied
    assert not cost_of(tmp_path, shapes, tie_word_embeddings=False).tied


def test_of_experts_a_token_touches_its_own(tmp_path):
    """Mixtral 8x7B: 46.7 B parameters, 12.9 B active a token (arXiv 2401.04088)."""
    cost = cost_of(tmp_path, mixtral(), num_experts_per_tok=2)
    assert n_params(cost) == 46_702_792_704
    touched = sum(cost.layer_touched) + cost.norm_params + 2 * 32000 * 4096
    assert touched == 12_879_925_248
    assert cost_of(tmp_path, mixtral()).layer_flops is None
    assert cost_of(tmp_path, mixtral(), num_experts_per_tok=9).layer_flops is None


def test_the_work_of_fused_experts_is_unknown(tmp_path):
    shapes = llama(8, 16, 2, 32, 4) | {"model.layers.1.mlp.experts.gate_up_proj": [4, 8, 32]}
    assert cost_of(tmp_path, shapes, num_experts_per_tok=2).layer_flops is None


def test_int8_packs_the_linear_weights_of_layers_alone(tmp_path):
    cost = cost_of(tmp_path, llama(8, 16, 1, 32, 4))
    linear, rows, norms = 2 * 64 + 2 * 32 + 3 * 128, 8 + 8 + 4 + 4 + 16 + 16 + 8, 16
    assert cost.layer_bytes("int8") == (linear + 4 * rows + 2 * norms,)
    assert cost.embedding_bytes("int8") == cost.embedding_bytes("bf16") == 2 * 32 * 8
    assert cost.head_bytes("int8") == cost.head_bytes("fp16")


def test_layers_may_differ(tmp_path):
    shapes = llama(8, 16, 2, 32, 4) | {
        "model.layers.1.self_attn.k_proj.weight": [6, 8],
        "model.layers.1.self_attn.k_proj.bias": [6],
    }
    cost = cost_of(tmp_path, shapes)
    assert cost.kv_bytes_per_token_layer("bf16") == (16, 20)
    assert cost.layer_other == (16, 22)
    assert cost.layer_bytes("bf16")[1] - cost.layer_bytes("bf16")[0] == 2 * (16 + 6)


def test_keys_and_values_that_cannot_be_read_are_unknown_unless_told(tmp_path):
    shapes = llama(8, 16, 2, 32, 4)
    del shapes["model.layers.1.self_attn.k_proj.weight"]
    assert cost_of(tmp_path, shapes).kv_bytes_per_token_layer("bf16") is None
    assert cost_of(tmp_path, shapes, kv=33).kv_bytes_per_token_layer("bf16") == (33, 33)


def test_quantised_weights_and_a_model_without_embedding_are_refused(tmp_path):
    shapes = llama(8, 16, 1, 32, 4)
    with pytest.raises(ClusterError, match="is I16; only F64"):
        cost_of(tmp_path, shapes, dtype="I16")
    del shapes["model.embed_tokens.weight"]
    with pytest.raises(ClusterError, match=r"no matrix model.embed_tokens.weight.*unknown-cost"):
        cost_of(tmp_path, shapes)


def test_it_states_what_a_stage_then_holds(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("safetensors")
    from headway.cluster.stage import Stage

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = transformers.LlamaConfig(vocab_size=64, num_hidden_layers=3, tie_word_embeddings=True, **sizes)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path)
    checkpoint = Checkpoint.open(tmp_path)
    cost = ModelCost.of(checkpoint)
    for precision in ("fp32", "bf16", "int8"):
        each = cost.layer_bytes(precision)
        for layers in (range(3), range(1), range(1, 2), range(2, 3)):
            ends = (layers.start == 0) * cost.embedding_bytes(precision)
            if layers.stop == 3:
                ends += cost.head_bytes(precision, with_embedding=layers.start == 0)
            stage = Stage(checkpoint, layers, precision)
            assert stage.resident_bytes == sum(each[n] for n in layers) + ends
