"""The part of a model that one node holds: built from its own tensors, run with a KV cache a micro-batch."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any, Final

import torch
from torch import nn

from headway.cluster.architecture import stage_config
from headway.cluster.checkpoint import Checkpoint
from headway.cluster.cost import EMBEDDING, HEAD
from headway.cluster.packed import PackedLinear
from headway.cluster.report import NodeReport
from headway.errors import ClusterError

DTYPES: Final = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "int8": torch.bfloat16}
"""What a stage computes in; of int8 the weights alone are packed."""
_NOT_WEIGHTS: Final = "rotary_emb.inv_freq"  # old checkpoints carry it; it is computed
_FLOATS: Final = ("F64", "F32", "F16", "BF16")  # weights of other types mean nothing without their scales


def prepare(checkpoint: Checkpoint) -> None:
    """Import what builds a stage of this checkpoint: it takes seconds, which are no part of any stage's time.

    Raises:
        ClusterError: The architecture is not handled.
    """
    from transformers import MODEL_MAPPING

    _ = MODEL_MAPPING[type(stage_config(checkpoint, range(1)))]


class Stage(nn.Module):
    """Some consecutive layers of a causal language model, with its embedding and head where it is an end.

    Attributes:
        layers: Which.
        first, last: Whether it holds the embedding, and the last norm and the head.
        dtype: What it computes in.
        hidden, vocab: Widths of what it hands on, and of the logits.
        compute_ns: Time inside `forward` since it was last set to 0 [ns].
        build_ms: How long it took to build and to load its weights [ms].
    """

    def __init__(self, checkpoint: Checkpoint, layers: range, precision: str = "bf16", device: str = "cpu") -> None:
        """Build a stage and load its tensors, and no others, into memory of its own.

        Args:
            checkpoint: Where they are.
            layers: Which layers; not empty.
            precision: One of `DTYPES`.
            device: Where torch keeps it.

        Raises:
            ClusterError: The architecture is not handled, or the checkpoint lacks a tensor, has one more, or one of
                another shape or type than its config says.
        """
        from transformers import AutoModel

        prepare(checkpoint)
        super().__init__()
        config = stage_config(checkpoint, layers)
        began = perf_counter_ns()
        self.layers = layers
        self.first, self.last = layers.start == 0, layers.stop == checkpoint.n_layers
        self.precision, self.dtype, self.device = precision, DTYPES[precision], torch.device(device)
        self.hidden, self.vocab = int(config.hidden_size), int(config.vocab_size)
        self.compute_ns = 0
        self._turn = 0
        self._caches: list[Any] = []
        self._config = config
        with torch.device("meta"):
            body = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
        body.eval()
        if not self.first:
            body.embed_tokens = None
        if not self.last:
            body.norm = nn.Identity()
        self.body = body
        self.head: torch.Tensor | None = None
        takes = inspect.signature(type(body).forward).parameters
        self._cache_name = "cache" if "cache" in takes else "past_key_values"
        self.n_params = self.n_packed = 0
        self._load(checkpoint)
        # positions are computed and not stored, so they are no weights
        body.rotary_emb = type(body.rotary_emb)(config=config).to(self.device)
        self._nothing_left_empty()
        self.build_ms = (perf_counter_ns() - began) / 1e6

    def _load(self, checkpoint: Checkpoint) -> None:
        """Put the checkpoint's tensors in the place of the empty ones."""
        reader = _Reader(checkpoint, self.device, self.dtype)
        packs = self.precision == "int8"
        named = {f"{path}.weight": path for path, module in self.body.layers.named_modules() if _is_linear(module)}
        used = set()
        for name, empty in list(self.body.named_parameters()):
            source = self._source(name)
            if source in used:
                continue
            inner = name.removeprefix("layers.")
            used.add(source)
            if packs and name.startswith("layers.") and inner in named:
                path = f"layers.{named[inner]}"
                bias = getattr(self.body.get_submodule(path), "bias", None)
                if bias is not None:
                    used.add(self._source(f"{path}.bias"))
                    bias = reader.get(self._source(f"{path}.bias"), bias.shape)
                linear = PackedLinear(reader.get(source, empty.shape, torch.float32), bias)
                self.body.set_submodule(path, linear)
                self.n_packed += linear.weight.numel()
                self.n_params += linear.weight.numel() + (0 if bias is None else bias.numel())
                continue
            self._place(name, reader.get(source, empty.shape))
        if self.last:
            self.head = self._head(checkpoint, reader)
        self._all_used(checkpoint, used)

    def _place(self, name: str, tensor: torch.Tensor) -> None:
        path, _, leaf = name.rpartition(".")
        setattr(self.body.get_submodule(path), leaf, nn.Parameter(tensor, requires_grad=False))
        self.n_params += tensor.numel()

    def _source(self, name: str) -> str:
        """Return the checkpoint's name of a parameter of this stage: its layers count from the model's first."""
        head, _, rest = name.partition(".")
        if head != "layers":
            return f"model.{name}"
        number, _, leaf = rest.partition(".")
        return f"model.layers.{int(number) + self.layers.start}.{leaf}"

    def _head(self, checkpoint: Checkpoint, reader: _Reader) -> torch.Tensor:
        """Return the head's weight, the checkpoint's own before a tied one, of which a first stage shares its own."""
        tied = bool(self._config.tie_word_embeddings) and HEAD not in checkpoint.tensors
        if tied and self.first:
            return self.body.embed_tokens.weight  # type: ignore[no-any-return]
        weight = reader.get(EMBEDDING if tied else HEAD, (self.vocab, self.hidden))
        self.n_params += weight.numel()
        return weight

    def _all_used(self, checkpoint: Checkpoint, used: set[str]) -> None:
        """Refuse a checkpoint with a tensor in these layers that the model would leave out."""
        left = [
            name
            for name in checkpoint.tensors
            if checkpoint.layer_of(name) in self.layers and name not in used and not name.endswith(_NOT_WEIGHTS)
        ]
        if left:
            raise ClusterError(
                f"Cannot load layers {self.layers.start}..{self.layers.stop} of {checkpoint.folder}: "
                f"{checkpoint.architecture} has no place for {len(left)} of their tensors, such as {left[0]}",
                "Give an unquantised checkpoint whose config.json fits its tensors",
                "foreign-tensor",
            )

    def _nothing_left_empty(self) -> None:
        held = [*self.body.named_parameters(), *self.body.named_buffers()]
        empty = [name for name, tensor in held if tensor.is_meta]
        if empty:
            raise ClusterError(
                f"Cannot build layers {self.layers.start}..{self.layers.stop}: {empty[0]} was not loaded",
                "Report this with the checkpoint's config.json: it is a defect of Headway",
                "empty-tensor",
            )

    @property
    def resident_bytes(self) -> int:
        """Bytes of its parameters and packed weights, each once."""
        packed = [module for module in self.body.modules() if isinstance(module, PackedLinear)]
        held = [*self.body.parameters(), *(tensor for module in packed for tensor in module.buffers())]
        if self.head is not None:
            held.append(self.head)
        each = {tensor.data_ptr(): tensor.numel() * tensor.element_size() for tensor in held}
        return sum(each.values())

    def report(self, addr: str, rss_bytes: int | None = None) -> NodeReport:
        """Return what this node says of its stage."""
        return NodeReport(
            addr=addr,
            layers=self.layers,
            device=str(self.device),
            precision=self.precision,
            build_ms=self.build_ms,
            resident_bytes=self.resident_bytes,
            n_params=self.n_params,
            n_packed=self.n_packed,
            rss_bytes=rss_bytes,
        )

    def begin(self, micro_batches: int) -> None:
        """Forget what was cached; the next forwards are of so many micro-batches, in turn."""
        from transformers import DynamicCache

        self._caches = [DynamicCache(config=self._config) for _ in range(micro_batches)]
        self._turn = 0

    @torch.inference_mode()
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Run the next micro-batch through these layers, after what its cache holds.

        Args:
            inputs: Token ids ``(batch, length)`` int64 for the first stage, else hidden states
                ``(batch, length, hidden)`` of any floating type.

        Returns:
            Hidden states ``(batch, length, hidden)``, of the last stage logits ``(batch, length, vocab)``.
        """
        began = perf_counter_ns()
        cache = self._caches[self._turn]
        self._turn = (self._turn + 1) % len(self._caches)
        given = {"input_ids": inputs} if self.first else {"inputs_embeds": inputs.to(self.dtype)}
        out = self.body(**given, **{self._cache_name: cache}, use_cache=True).last_hidden_state
        if self.head is not None:
            out = nn.functional.linear(out, self.head)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.compute_ns += perf_counter_ns() - began
        return out  # type: ignore[no-any-return]


class _Reader:
    """Tensors of a checkpoint by name, each copied into memory of its own: its pages are there, and stay."""

    def __init__(self, checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype) -> None:
        self._checkpoint, self._device, self._dtype = checkpoint, device, dtype
        self._open: dict[str, Any] = {}

    def get(self, name: str, shape: Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
        from safetensors import safe_open

        info = self._checkpoint.tensors.get(name)
        if info is None:
            raise ClusterError(
                f"Cannot load {name}: {self._checkpoint.folder} has no such tensor",
                "Give the whole checkpoint, with the config.json that belongs to it",
                "missing-tensor",
            )
        if info.shape != tuple(shape) or info.dtype not in _FLOATS:
            raise ClusterError(
                f"Cannot load {name} of {self._checkpoint.folder}: it is {info.dtype} of shape {list(info.shape)}; "
                f"its config.json needs {list(shape)}, of one of {', '.join(_FLOATS)}",
                "Give an unquantised checkpoint whose config.json fits its tensors",
                "unlike-tensor",
            )
        path = str(info.file)
        if path not in self._open:
            self._open[path] = safe_open(path, framework="pt")
        tensor = self._open[path].get_tensor(name)
        return tensor.to(device=self._device, dtype=dtype or self._dtype, copy=True)  # type: ignore[no-any-return]


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear)
