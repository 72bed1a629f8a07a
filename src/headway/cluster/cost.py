"""What a model costs its nodes: bytes and FLOPs of each layer and of the ends, from a checkpoint's index alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final, Self

from headway.cluster.checkpoint import Checkpoint, TensorInfo
from headway.cluster.config import PRECISIONS
from headway.errors import ClusterError

EMBEDDING: Final = "model.embed_tokens.weight"
HEAD: Final = "lm_head.weight"
NORM: Final = "model.norm.weight"

_FLOATS: Final = ("F64", "F32", "F16", "BF16")
_COMPUTED: Final = "rotary_emb.inv_freq"  # old checkpoints carry it; it is no weight
_EXPERT: Final = re.compile(r"\.experts\.(?:([0-9]+)\.)?")
_KEYS_VALUES: Final = re.compile(r"\.([kv])_proj\.weight$")
_SCALE_BYTES: Final = 4
_WIDE_BYTES: Final = {name: 2 if name == "int8" else round(size) for name, size in PRECISIONS.items()}
"""Bytes a parameter that is no linear weight of a layer, and a value of the KV cache; of int8 they stay bf16."""


@dataclass(frozen=True, kw_only=True)
class ModelCost:
    """Sizes and work of a model, layer by layer; what its index does not tell is None.

    Attributes:
        layer_params: Linear weights of each layer [parameters], all experts included.
        layer_rows: Output rows of those weights: int8 keeps one scale for each.
        layer_other: Norms and biases of each layer [parameters].
        layer_touched: Of both, what one token goes through: of the experts only those it is routed to.
        kv_rows: Keys and values that each layer keeps for a token [values].
        vocab: Width of the logits.
        hidden: Width of what layers hand on.
        norm_params: The last norm [parameters].
        tied: The head is the embedding. A last stage that is not the first still holds a copy.
        kv_bytes_per_token: What a layer keeps for a token [bytes], where that was told and not read.
    """

    layer_params: tuple[int, ...]
    layer_rows: tuple[int, ...]
    layer_other: tuple[int, ...]
    layer_touched: tuple[int, ...] | None
    kv_rows: tuple[int, ...] | None
    vocab: int
    hidden: int
    norm_params: int = 0
    tied: bool = False
    kv_bytes_per_token: int | None = None

    @classmethod
    def of(cls, checkpoint: Checkpoint, kv_bytes_per_token: int | None = None) -> Self:
        """Return the cost of the model in a checkpoint.

        Args:
            checkpoint: Its index is read, none of its tensors.
            kv_bytes_per_token: What a layer keeps for one token [bytes]; None: read from the k and v projections.

        Raises:
            ClusterError: The weights are quantised, or there is no embedding to tell vocabulary and width from.
        """
        layers: list[dict[str, TensorInfo]] = [{} for _ in range(checkpoint.n_layers)]
        for name, tensor in checkpoint.tensors.items():
            layer = checkpoint.layer_of(name)
            if len(tensor.shape) > 1 and tensor.dtype not in _FLOATS:
                raise _unreadable(checkpoint, f"{name} is {tensor.dtype}; only {', '.join(_FLOATS)} have a known cost")
            if layer is not None and not name.endswith(_COMPUTED):
                layers[layer][name] = tensor
        embedding = checkpoint.tensors.get(EMBEDDING)
        if embedding is None or len(embedding.shape) != 2:
            raise _unreadable(checkpoint, f"it has no matrix {EMBEDDING}; that tells vocabulary and width")
        per_token = checkpoint.config.get("num_experts_per_tok")
        touched = [_touched(layer, per_token if isinstance(per_token, int) else None) for layer in layers]
        kv_rows = [_kv_rows(layer) for layer in layers]
        return cls(
            layer_params=tuple(sum(_size(t) for t in layer.values() if _linear(t)) for layer in layers),
            layer_rows=tuple(sum(prod(t.shape[:-1]) for t in layer.values() if _linear(t)) for layer in layers),
            layer_other=tuple(sum(_size(t) for t in layer.values() if not _linear(t)) for layer in layers),
            layer_touched=_all_known(touched),
            kv_rows=_all_known(kv_rows),
            vocab=embedding.shape[0],
            hidden=embedding.shape[1],
            norm_params=_size(checkpoint.tensors[NORM]) if NORM in checkpoint.tensors else 0,
            tied=HEAD not in checkpoint.tensors,
            kv_bytes_per_token=kv_bytes_per_token,
        )

    @property
    def n_layers(self) -> int:
        """How many layers there are."""
        return len(self.layer_params)

    def layer_bytes(self, precision: str) -> tuple[int, ...]:
        """Return the size of each layer [bytes].

        Args:
            precision: One of `headway.cluster.config.PRECISIONS`.

        Example:
            >>> cost = ModelCost(layer_params=(1000,), layer_rows=(10,), layer_other=(20,), layer_touched=None,
            ...                  kv_rows=None, vocab=100, hidden=10)
            >>> [cost.layer_bytes(p)[0] for p in ("fp32", "bf16", "int8")]
            [4080, 2040, 1080]
        """
        scale = _SCALE_BYTES if precision == "int8" else 0
        each = zip(self.layer_params, self.layer_rows, self.layer_other, strict=True)
        width, wide = PRECISIONS[precision], _WIDE_BYTES[precision]
        return tuple(round(params * width) + rows * scale + other * wide for params, rows, other in each)

    def embedding_bytes(self, precision: str) -> int:
        """Return what the first stage holds besides its layers [bytes]."""
        return self.vocab * self.hidden * _WIDE_BYTES[precision]

    def head_bytes(self, precision: str, *, with_embedding: bool = False) -> int:
        """Return what the last stage holds besides its layers: last norm and head [bytes].

        Args:
            precision: One of `headway.cluster.config.PRECISIONS`.
            with_embedding: That stage is the first as well, so a tied head takes nothing more.
        """
        head = 0 if self.tied and with_embedding else self.vocab * self.hidden
        return (self.norm_params + head) * _WIDE_BYTES[precision]

    @property
    def layer_flops(self) -> tuple[int, ...] | None:
        """Work of each layer for one token: 2 x the parameters it touches [FLOP]; attention over the context aside."""
        return None if self.layer_touched is None else tuple(2 * params for params in self.layer_touched)

    @property
    def head_flops(self) -> int:
        """Work of the head for one token: 2 x vocabulary x width [FLOP]."""
        return 2 * self.vocab * self.hidden

    def kv_bytes_per_token_layer(self, precision: str) -> tuple[int, ...] | None:
        """Return what each layer keeps for one token of the context [bytes]; None where that is not known.

        Example:
            >>> cost = ModelCost(layer_params=(1000,), layer_rows=(10,), layer_other=(20,), layer_touched=None,
            ...                  kv_rows=(2 * 128,), vocab=100, hidden=10)
            >>> cost.kv_bytes_per_token_layer("bf16")
            (512,)
        """
        if self.kv_bytes_per_token is not None:
            return (self.kv_bytes_per_token,) * self.n_layers
        return None if self.kv_rows is None else tuple(rows * _WIDE_BYTES[precision] for rows in self.kv_rows)


def _unreadable(checkpoint: Checkpoint, found: str) -> ClusterError:
    return ClusterError(
        f"Cannot tell the cost of {checkpoint.folder}: {found}",
        "Give an unquantised checkpoint with the names that transformers saves",
        "unknown-cost",
        folder=str(checkpoint.folder),
    )


def _size(tensor: TensorInfo) -> int:
    return prod(tensor.shape)


def _linear(tensor: TensorInfo) -> bool:
    return len(tensor.shape) > 1


def _all_known(values: list[int | None]) -> tuple[int, ...] | None:
    """Return values of which none is None, else None."""
    known = tuple(value for value in values if value is not None)
    return known if len(known) == len(values) else None


def _touched(layer: Mapping[str, TensorInfo], per_token: int | None) -> int | None:
    """Return the parameters one token goes through; None where experts are fused, or how many it takes is not said."""
    dense, in_experts, experts = 0, 0, set()
    for name, tensor in layer.items():
        match = _EXPERT.search(name)
        if match is None:
            dense += _size(tensor)
            continue
        experts.add(match[1])
        in_experts += _size(tensor)
    if not experts:
        return dense
    if None in experts or per_token is None or not 0 < per_token <= len(experts):
        return None
    return dense + in_experts * per_token // len(experts)


def _kv_rows(layer: Mapping[str, TensorInfo]) -> int | None:
    """Return the output rows of the k and v projections together; None where a layer has not one of each."""
    rows = {match[1]: tensor.shape[0] for name, tensor in layer.items() if (match := _KEYS_VALUES.search(name))}
    return sum(rows.values()) if len(rows) == 2 else None
