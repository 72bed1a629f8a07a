"""Which models can be split, and the smaller model that a stage of one is.

A stage is a model of the same architecture with fewer layers, built by `transformers`: its layers,
attention, positions and KV cache are the published ones. Only what the ends do (embedding, last
norm, head) differs from stage to stage.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from headway.cluster.checkpoint import Checkpoint
from headway.errors import ClusterError
from headway.sources.text import clean

HANDLED: Final = (
    "ArceeForCausalLM",
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Olmo2ForCausalLM",
    "Phi3ForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "SeedOssForCausalLM",
    "SmolLM3ForCausalLM",
)
"""Models whose stages were compared with the whole: nothing happens between their layers."""
_BY_LAYER: Final = ("layer_types", "no_rope_layers")  # what a configuration lists layer by layer


def check_architecture(checkpoint: Checkpoint) -> None:
    """Pass a checkpoint whose architecture can be split.

    Raises:
        ClusterError: It cannot; the message names those that can.
    """
    if checkpoint.architecture not in HANDLED:
        raise ClusterError(
            f"Cannot split {checkpoint.folder}: its architecture is {checkpoint.architecture}; "
            f"handled are {', '.join(HANDLED)}",
            "Give a checkpoint of one of these",
            "unknown-architecture",
        )


def stage_config(checkpoint: Checkpoint, layers: range) -> Any:
    """Return the `transformers` configuration of a model that has these layers alone."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

    check_architecture(checkpoint)
    try:
        config = copy.deepcopy(
            AutoConfig.from_pretrained(checkpoint.folder, local_files_only=True, trust_remote_code=False)
        )
        found = getattr(MODEL_FOR_CAUSAL_LM_MAPPING[type(config)], "__name__", "")
    except Exception as error:
        raise _unlike(
            checkpoint, f"transformers cannot read its config.json ({type(error).__name__}: {error})"
        ) from error
    if found != checkpoint.architecture:
        raise _unlike(checkpoint, f"its model_type is that of {found}, its architectures say {checkpoint.architecture}")
    for name in _BY_LAYER:
        if (each := getattr(config, name, None)) is not None:
            setattr(config, name, list(each)[layers.start : layers.stop])
    config.num_hidden_layers = len(layers)
    return config


def _unlike(checkpoint: Checkpoint, found: str) -> ClusterError:
    return ClusterError(
        f"Cannot split {checkpoint.folder}: {clean(found, 500)}",
        "Give a checkpoint with the config.json that belongs to it",
        "unlike-config",
    )
