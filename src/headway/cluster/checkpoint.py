"""A checkpoint on disk, known by its config and the headers of its weight files; no byte of a tensor is read."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Annotated, Any, Final, Self

import msgspec

from headway.errors import ClusterError

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
INDEX: Final = "model.safetensors.index.json"
DTYPE_BYTES: Final[Mapping[str, int]] = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "BOOL": 1,
    "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2, "U8": 1,
}  # fmt: skip
"""Bytes an element of each type that a header may name."""

_LARGEST_HEADER: Final = 100_000_000
_MOST_LAYERS: Final = 100_000
_LONGEST_NAME: Final = 255
_LAYER: Final = re.compile(r"(?:model\.)?layers\.([0-9]{1,6})\.")
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Entry(msgspec.Struct):
    """What a header says of one tensor."""

    dtype: str
    shape: tuple[_Count, ...]
    data_offsets: tuple[_Count, _Count]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a checkpoint.

    Attributes:
        file: The file that holds it.
        dtype: The type of its elements, as safetensors names it.
        shape: Its extents.
        nbytes: Its size [bytes].
    """

    file: Path
    dtype: str
    shape: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A folder with ``config.json`` and safetensors weights, as Hugging Face lays it out.

    Attributes:
        folder: Where it lies.
        config: What ``config.json`` says.
        tensors: Its tensors by name, sorted.
    """

    folder: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, TensorInfo]

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Return the checkpoint in a folder, from its config and the headers of its weight files alone.

        Args:
            folder: It holds ``config.json`` and ``model.safetensors``, or the shards that
                ``model.safetensors.index.json`` names.

        Raises:
            ClusterError: A file is missing or torn, or the files contradict the config or each other.
        """
        folder = Path(folder)
        config = _read_object(_found(folder, CONFIG))
        checkpoint = cls(folder, config, dict(sorted(_read_tensors(folder).items())))
        _ = checkpoint.architecture
        checkpoint._check_layers()
        return checkpoint

    @property
    def architecture(self) -> str:
        """The class of the model, such as ``LlamaForCausalLM``.

        Raises:
            ClusterError: The config does not say.
        """
        names = self.config.get("architectures")
        if not isinstance(names, list) or not names or not isinstance(names[0], str):
            raise _contradiction(self.folder / CONFIG, f"architectures is {names!r}; it has to name a class of model")
        return names[0]

    @property
    def n_layers(self) -> int:
        """How many decoder layers the config states.

        Raises:
            ClusterError: The config does not say.
        """
        count = self.config.get("num_hidden_layers")
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= _MOST_LAYERS:
            wanted = f"it has to be a whole number from 1 to {_MOST_LAYERS}"
            raise _contradiction(self.folder / CONFIG, f"num_hidden_layers is {count!r}; {wanted}")
        return count

    @property
    def fingerprint(self) -> str:
        """Sixteen digits that two nodes compare: equal where config, names, types and shapes are equal.

        The values of the tensors are no part of it, nor how they are spread over files.
        """
        facts = [(name, tensor.dtype, tensor.shape) for name, tensor in self.tensors.items()]
        return hashlib.sha256(json.dumps([self.config, facts], sort_keys=True).encode()).hexdigest()[:16]

    @staticmethod
    def layer_of(name: str) -> int | None:
        """Return the decoder layer a tensor belongs to, counted from 0; None for embedding, last norm and head.

        Example:
            >>> Checkpoint.layer_of("model.layers.12.mlp.up_proj.weight"), Checkpoint.layer_of("lm_head.weight")
            (12, None)
        """
        match = _LAYER.match(name)
        return int(match[1]) if match else None

    def _check_layers(self) -> None:
        held = {layer for name in self.tensors if (layer := self.layer_of(name)) is not None}
        stated = set(range(self.n_layers))
        if stated - held:
            raise self._unlike(f"its files hold no tensor of layer {_listed(stated - held)}")
        if held - stated:
            raise self._unlike(f"its files hold layer {_listed(held - stated)} beyond the last")

    def _unlike(self, found: str) -> ClusterError:
        return ClusterError(
            f"Cannot use the checkpoint {self.folder}: {found}; num_hidden_layers is {self.n_layers}",
            "Give the config and the weights of one model, with layers named model.layers.N",
            "unlike-layers",
            folder=str(self.folder),
        )


def _listed(layers: Iterable[int], most: int = 8) -> str:
    """Return numbers as text, the first few of many."""
    numbers = sorted(layers)
    return ", ".join(map(str, numbers[:most])) + (f" and {len(numbers) - most} more" if len(numbers) > most else "")


def _found(folder: Path, name: str) -> Path:
    path = folder / name
    try:
        found = None if path.is_file() else f"it has no {name}" if folder.is_dir() else "there is no such folder"
    except OSError as error:
        found = error.strerror or str(error)
    if found:
        raise ClusterError(
            f"Cannot open the checkpoint {folder}: {found}",
            f"Give a folder with {CONFIG} and {WEIGHTS}, or its shards with {INDEX}",
            "no-checkpoint",
            folder=str(folder),
        )
    return path


def _contradiction(path: Path, found: str) -> ClusterError:
    return ClusterError(
        f"Cannot read {path}: {found}",
        "Give the checkpoint as it was saved, or copy the file again",
        "bad-checkpoint",
        path=str(path),
    )


def _torn(path: Path, found: str) -> ClusterError:
    return ClusterError(
        f"Cannot read the header of {path}: {found}",
        "Copy or download the file again",
        "torn-weights",
        path=str(path),
    )


def _read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    try:
        if path.stat().st_size > _LARGEST_HEADER:
            raise _contradiction(path, f"it has {path.stat().st_size} bytes; at most {_LARGEST_HEADER} make sense")
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _contradiction(path, f"it holds no JSON ({error})") from error
    if not isinstance(found, dict):
        raise _contradiction(path, f"it holds a {type(found).__name__}; it has to be an object")
    return found


def _read_tensors(folder: Path) -> dict[str, TensorInfo]:
    """Return all tensors of the folder's weight files by name."""
    if (folder / WEIGHTS).is_file():
        return _read_header(folder / WEIGHTS)
    if not (folder / INDEX).is_file():
        _refuse_pickles(folder)
        return _read_header(_found(folder, WEIGHTS))
    homes = _read_object(folder / INDEX).get("weight_map")
    if not isinstance(homes, dict) or not homes:
        raise _contradiction(folder / INDEX, "it has no weight_map; that says which file holds which tensor")
    shards = {
        shard: _read_header(_shard(folder, shard)) for shard in sorted({_plain(folder, s) for s in homes.values()})
    }
    for name, shard in homes.items():
        if name not in shards[shard]:
            raise _contradiction(folder / INDEX, f"it puts {name} into {shard}, which does not hold it")
    return {name: shards[shard][name] for name, shard in homes.items()}


def _refuse_pickles(folder: Path) -> None:
    pickled = sorted(path.name for ending in ("*.bin", "*.pt", "*.pth") for path in folder.glob(ending))
    if pickled:
        raise ClusterError(
            f"Cannot open the checkpoint {folder}: its weights are pickled ({pickled[0]}); only safetensors is read",
            "Convert it: load it with transformers and call save_pretrained",
            "pickled-weights",
            folder=str(folder),
        )


def _plain(folder: Path, shard: object) -> str:
    """Return a shard's name, which leads to no other folder."""
    if not isinstance(shard, str) or not shard or shard in {".", ".."} or set(shard) & set("/\\\0"):
        raise _contradiction(folder / INDEX, f"it names the shard {shard!r}; a shard is a file in the same folder")
    if len(shard.encode(errors="replace")) > _LONGEST_NAME:
        found = f"it names a shard by {len(shard)} characters; a file's name has {_LONGEST_NAME} bytes at most"
        raise _contradiction(folder / INDEX, found)
    return shard


def _shard(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise ClusterError(
            f"Cannot open the checkpoint {folder}: {INDEX} names {name}, which is not there",
            "Copy or download the missing shard",
            "missing-shard",
            folder=str(folder),
            shard=name,
        )
    return path


def _read_header(path: Path) -> dict[str, TensorInfo]:
    """Return the tensors of one safetensors file: eight bytes of length, then a JSON object, then their data."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 2 <= length <= min(size - 8, _LARGEST_HEADER):
                limit = f"{size} bytes of file, at most {_LARGEST_HEADER} of header"
                raise _torn(path, f"it states a header of {length} bytes; {limit}")
            header = msgspec.json.decode(file.read(length), type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        entries = {name: msgspec.json.decode(raw, type=_Entry) for name, raw in header.items()}
    except (OSError, UnicodeError, RecursionError, msgspec.MsgspecError) as error:
        raise _torn(path, f"{error}") from error
    _check_offsets(path, entries, size - 8 - length)
    return {
        name: TensorInfo(path, e.dtype, e.shape, e.data_offsets[1] - e.data_offsets[0]) for name, e in entries.items()
    }


def _check_offsets(path: Path, entries: Mapping[str, _Entry], data_bytes: int) -> None:
    """Refuse tensors that leave a gap, overlap, are not as large as their shape, or reach beyond the file."""
    reached = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        begin, end = entry.data_offsets
        if entry.dtype not in DTYPE_BYTES:
            raise _torn(path, f"{name} has the type {entry.dtype!r}; known are {', '.join(DTYPE_BYTES)}")
        wanted = prod(entry.shape) * DTYPE_BYTES[entry.dtype]
        if end - begin != wanted:
            raise _torn(path, f"{name} spans {end - begin} bytes; its type and shape need {wanted}")
        if begin != reached:
            raise _torn(path, f"{name} begins at byte {begin} of the data; the tensor before it ends at {reached}")
        reached = end
    if reached != data_bytes:
        raise _torn(path, f"its tensors need {reached} bytes of data; {data_bytes} are there")
