"""Small checkpoints of every handled architecture, and the whole models that stages are compared with."""

import inspect
import json
from functools import cache
from pathlib import Path

SIZES = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 64, "initializer_range": 0.3,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "tie_word_embeddings": False,
}  # fmt: skip
LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8,
}  # fmt: skip
MIXED = ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
CASES = {
    "arcee": ("Arcee", {}),
    "llama": ("Llama", {}),
    "llama, tied": ("Llama", {"tie_word_embeddings": True}),
    "llama, no groups": ("Llama", {"num_key_value_heads": 4}),
    "llama, one group": ("Llama", {"num_key_value_heads": 1}),
    "llama, biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, scaled positions": ("Llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama, yarn": ("Llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}}),
    "llama, shards": ("Llama", {"shard": "20KB"}),
    "llama, tied, shards": ("Llama", {"shard": "20KB", "tie_word_embeddings": True}),
    "mistral": ("Mistral", {"sliding_window": None}),
    "mistral, window": ("Mistral", {"sliding_window": 4}),
    "olmo2": ("Olmo2", {}),
    "phi3": ("Phi3", {}),
    "phi3, some positions": ("Phi3", {"rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 1e4}}),
    "qwen2": ("Qwen2", {}),
    "qwen2, window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 4, "layer_types": MIXED}),
    "qwen3": ("Qwen3", {"head_dim": 12}),
    "qwen3, tied, window": (
        "Qwen3",
        {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 2, "tie_word_embeddings": True},
    ),
    "seed oss": ("SeedOss", {"head_dim": 8, "attention_bias": True}),
    "smollm3": ("SmolLM3", {"no_rope_layers": [1, 0, 1, 0]}),
}
"""By name: the architecture, and what its configuration has beside `SIZES`."""


@cache
def models():
    """Return `transformers`, which shows no progress here."""
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    return transformers


def make(folder, architecture="Llama", *, shard=None, dtype=None, seed=0, **config):
    """Write a checkpoint with random weights, biases among them; return its folder."""
    import torch

    torch.manual_seed(seed)
    made = getattr(models(), f"{architecture}Config")(**SIZES | config)
    model = getattr(models(), f"{architecture}ForCausalLM")(made)
    with torch.no_grad():
        for name, one in model.named_parameters():
            if name.endswith("bias"):
                one.normal_()
            elif "norm" in name:
                one.uniform_(0.5, 1.5)
    model.to(dtype).save_pretrained(folder, **({} if shard is None else {"max_shard_size": shard}))
    return Path(folder)


def whole(folder, dtype="float32"):
    """Return the unsplit model of a checkpoint, its weights copied out of the mapped file.

    There they begin at eight bytes off a vector's, and so a matrix-vector product sums in another order.
    """
    import torch

    model = models().AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    with torch.no_grad():
        for one in model.parameters():
            one.data = one.data.clone()
    return model


def run_whole(model, ids, steps=0, micro_batches=1):
    """Return logits ``(batch, length + max(steps - 1, 0), vocab)`` and tokens ``(batch, steps)`` of an unsplit model.

    The greedy loop in its plainest form: each micro-batch by itself, with a cache of its own.
    """
    import torch

    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    logits, tokens = [], []
    with torch.inference_mode():
        for part in torch.as_tensor(ids).chunk(micro_batches):
            held, given, each, chosen = None, part, [], []
            for _ in range(max(1, steps)):
                out = model(given, use_cache=True, **({} if held is None else {name: held}))
                held, given = out[name], out.logits[:, -1:].argmax(-1)
                each.append(out.logits)
                chosen.append(given)
            logits.append(torch.cat(each, 1))
            tokens.append(torch.cat(chosen, 1)[:, :steps])
    return torch.cat(logits), torch.cat(tokens)


def prompts(batch=2, length=9, vocab=96, seed=0):
    """Return random token ids ``(batch, length)``."""
    import torch

    return torch.randint(0, vocab, (batch, length), generator=torch.Generator().manual_seed(seed))


def edit_config(folder, **changes):
    """Change keys of a checkpoint's config."""
    path = Path(folder) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def edit_tensors(folder, change):
    """Let a function change the dictionary of a checkpoint's tensors in one file."""
    from safetensors.torch import load_file, save_file

    path = Path(folder) / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt"})
