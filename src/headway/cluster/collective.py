"""The all-reduce over a process group that names every disagreement, and linear layers split over the group."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import lru_cache
from math import prod
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn

from headway.cluster.record import shown
from headway.cluster.report import ReduceKind
from headway.errors import ArgumentError, ClusterError

CARRIED_AS: Final = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.int8: torch.int8,
    torch.uint8: torch.uint8,
    torch.int16: torch.int32,
    torch.int32: torch.int32,
    torch.int64: torch.int64,
}
"""The types that can be reduced, and the type in which each travels and is added."""

SHORT_BYTES: Final = 1 << 20
"""What a rank receives of all its peers in one exchange; above it the engine's ring takes over [bytes]."""

_OPERATIONS: Final = {
    ReduceKind.SUM: dist.ReduceOp.SUM,
    ReduceKind.MEAN: dist.ReduceOp.SUM,
    ReduceKind.MAX: dist.ReduceOp.MAX,
    ReduceKind.MIN: dist.ReduceOp.MIN,
}
_COMBINED: Final = {
    ReduceKind.SUM: torch.add,
    ReduceKind.MEAN: torch.add,
    ReduceKind.MAX: torch.maximum,
    ReduceKind.MIN: torch.minimum,
}
_NAN_SHIFTS: Final = {ReduceKind.MAX: 1, ReduceKind.MIN: -1}
_N_NAN: Final = {torch.float32: 2**23 - 1, torch.float64: 2**52 - 1}
_KEYS: Final = {torch.float32: torch.int32, torch.float64: torch.int64}
_HEADER_BYTES: Final = 256
_PAYLOAD_AT: Final = 320
_PIECE: Final = 1 << 16
_TAG: Final = 7340
_KEPT: Final = threading.local()


def all_reduce(group: dist.ProcessGroup | None, tensor: torch.Tensor, kind: ReduceKind | str) -> torch.Tensor:
    """Reduce a tensor over the ranks of a group, in place, and return that same tensor.

    Every rank ends with the same bits. The tensor is overwritten, as by `torch.distributed.all_reduce`; give
    `tensor.clone()` to keep it. No gradient flows through.

    - Sum: integers keep their type and wrap around. Types of 16 bits are added in 32 and rounded once.
    - Mean: the sum, then one division by the number of ranks; floating point only.
    - Max, Min: NaN is ignored, unless every rank has it there; 0.0 is above -0.0.

    Ranks say what they are about to reduce before it is done. Where they disagree, or one of them cannot reduce
    what it was given, every rank raises, its tensor is as it was, and the group can be used on. A rank that does
    not call at all is found by the group's timeout only: then the others raise torch's own `RuntimeError`, and the
    group is lost. Set `timeout` where the group is made.

    Calls of one group come from one thread at a time: ranks pair them by their order, which threads do not keep.

    Over gloo, tensors on an accelerator are reduced on the host. Other engines reduce on the tensor's own device.

    Args:
        group: The process group; None is the default group, or this process alone where there is none.
        tensor: Of any shape and layout in memory, float16, bfloat16, float32, float64, uint8 or int8 to int64; the
            same shape and type on every rank.
        kind: How values become one; the same on every rank.

    Returns:
        The tensor that was given.

    Raises:
        ArgumentError: This type cannot be reduced so, there is no such kind, or this process is not in the group.
        ClusterError: Ranks differ in shape, type or kind.

    Example:
        >>> all_reduce(None, torch.tensor([1.5, 2.0]), ReduceKind.MEAN)
        tensor([1.5000, 2.0000])
    """
    rank, world = place(group)
    refusal = _refusal(tensor, kind)
    if world == 1:
        if refusal:
            raise refusal
        return tensor
    on_gloo = dist.get_backend(group) == "gloo"
    if not (on_gloo or refusal):
        refusal = _refusal_of_device(tensor, group)
    if refusal:
        said = _said(*_described(tensor, kind), refusal.slug)
        try:
            _exchange(group, rank, world, said, 0) if on_gloo else _gather(group, world, said)
        except ClusterError as disagreement:
            raise refusal from disagreement
        raise refusal
    with torch.inference_mode() if tensor.is_inference() else nullcontext():  # elsewhere it cannot be written
        _reduce(group, tensor.detach(), ReduceKind.of(kind), on_gloo)
    return tensor


def _reduce(group: dist.ProcessGroup | None, given: torch.Tensor, kind: ReduceKind, on_gloo: bool) -> None:
    """Reduce what this rank can, in place.

    Raises:
        ClusterError: Ranks differ.
    """
    rank, world = place(group)
    said = _said(kind.value, str(given.dtype), given.shape, None)
    carried_as = CARRIED_AS[given.dtype]
    carried_as = _KEYS.get(carried_as, carried_as) if kind in _NAN_SHIFTS else carried_as
    n_bytes = given.numel() * carried_as.itemsize
    device = torch.device("cpu") if on_gloo else given.device
    as_is = given.dtype == carried_as and given.device == device and given.is_contiguous()
    flat = given.view(-1) if as_is else None
    if on_gloo and n_bytes <= SHORT_BYTES // (world - 1):
        _write(given, kind, _rooms(world)[0].payload(n_bytes, carried_as))
        pieces = [room.payload(n_bytes, carried_as) for room in _exchange(group, rank, world, said, n_bytes)]
        combine: Any = _COMBINED[kind]
        for piece in pieces[1:-1]:
            combine(pieces[0], piece, out=pieces[0])
        flat = combine(pieces[0], pieces[-1], out=pieces[0] if flat is None else flat)
    else:
        _exchange(group, rank, world, said, n_bytes) if on_gloo else _gather(group, world, said)
        if flat is None:
            flat = torch.empty(given.numel(), dtype=carried_as, device=device)
            _write(given, kind, flat)
        if n_bytes:
            dist.all_reduce(flat, _OPERATIONS[kind], group)
    _read(flat, kind, world, given)


def place(group: dist.ProcessGroup | None) -> tuple[int, int]:
    """Return this process's rank in a group and the group's size; (0, 1) without a process group.

    Raises:
        ArgumentError: This process is not in the group.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    rank = dist.get_rank(group)
    if rank < 0:
        raise ArgumentError(
            "Cannot reduce over the group: this process is not in it",
            "Give a group of this process, or leave the call to the group's ranks",
            "not-in-group",
        )
    return rank, dist.get_world_size(group)


def _refusal(tensor: Any, kind: ReduceKind | str) -> ArgumentError | None:
    """Return why this rank cannot reduce what it was given, if so; raised later, once the others know."""
    try:
        kind = ReduceKind.of(kind)
    except ArgumentError as error:
        return error
    if (lack := _lack(tensor)) is not None:
        return lack
    if tensor.dtype not in CARRIED_AS or tensor.layout is not torch.strided or tensor.is_nested:
        layout = "nested" if tensor.is_nested else tensor.layout
        return ArgumentError(
            f"Cannot reduce a tensor of {tensor.dtype}, {layout}: there is no {kind.value} of it here",
            "Give a dense one of float16, bfloat16, float32, float64, uint8 or int8 to int64; "
            "for bool, to(torch.uint8) and max or min",
            "bad-reduce-type",
            dtype=str(tensor.dtype),
        )
    if kind is ReduceKind.MEAN and not tensor.is_floating_point():
        return ArgumentError(
            f"Cannot take the mean of {tensor.dtype}: a mean of integers is no integer",
            "Give the sum and divide as you need, or convert to floating point first",
            "mean-of-integers",
            dtype=str(tensor.dtype),
        )
    if _overlaps(tensor):
        return ArgumentError(
            "Cannot reduce an expanded tensor in place: several of its elements are one in memory",
            "Give tensor.contiguous()",
            "bad-reduce-type",
            dtype=str(tensor.dtype),
        )
    return None


def _lack(tensor: Any) -> ArgumentError | None:
    """Return the error about what holds no values that a reduction could read, if it is that."""
    if not isinstance(tensor, torch.Tensor):
        return ArgumentError(
            f"Cannot reduce a value of type {type(tensor).__name__}: it is no tensor",
            "Give a tensor, of an array torch.from_numpy(array)",
            "bad-reduce-type",
            dtype=type(tensor).__name__,
        )
    if not tensor.is_meta:
        return None
    return ArgumentError(
        f"Cannot reduce a meta tensor of shape {list(tensor.shape)}: it has no values",
        "Give one on a device that holds its values",
        "bad-reduce-type",
        dtype=str(tensor.dtype),
    )


def _overlaps(tensor: torch.Tensor) -> bool:
    """Return whether elements lie on each other: each stride has to be above all that smaller strides reach."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= reach:
            return tensor.numel() > 0
        reach += (size - 1) * stride
    return False


def _refusal_of_device(tensor: torch.Tensor, group: dist.ProcessGroup | None) -> ArgumentError | None:
    """Return why an engine other than gloo cannot reduce a tensor where it lies, if so."""
    if tensor.device.type in (known := _device_types(group)):
        return None
    return ArgumentError(
        f"Cannot reduce a tensor on {tensor.device}: the group's engines serve {', '.join(known)}",
        f"Give tensor.to({known[0]!r}), or a group of gloo",
        "bad-reduce-type",
        dtype=str(tensor.dtype),
    )


def _device_types(group: dist.ProcessGroup | None) -> list[str]:
    """Return the kinds of devices that a group's engines serve, the same on every rank; the host first."""
    served = {pair.partition(":")[0] for pair in dist.get_backend_config(group).split(",")}
    return sorted(served, key=lambda kind: (kind != "cpu", kind))


def _described(tensor: Any, kind: ReduceKind | str) -> tuple[str, str, Sequence[int]]:
    """Return kind, type and shape of what was refused, whatever it is, as `_said` takes them."""
    named = kind.value if isinstance(kind, ReduceKind) else shown(kind)
    if not isinstance(tensor, torch.Tensor):
        return named, type(tensor).__name__, ()
    return named, str(tensor.dtype), () if tensor.is_nested else tensor.shape


@lru_cache(maxsize=1024)
def _said(kind: str, dtype: str, shape: Sequence[int], refused: str | None) -> bytes:
    """Return what this rank tells the others, all that must agree, as text of a fixed length [bytes].

    In the place of what is too long for it, there is a digest of the whole.
    """
    text = f"{kind} of {prod(shape)} {dtype}, shape {list(shape)}"
    said = (f"refused ({refused}): {text}" if refused else text).encode(errors="backslashreplace")
    if len(said) > _HEADER_BYTES:
        digest = b"... of digest " + hashlib.sha256(said).hexdigest()[:32].encode()
        said = said[: _HEADER_BYTES - len(digest)] + digest
    return said.ljust(_HEADER_BYTES)


def _agree(all_said: list[bytes]) -> None:
    """Raise where what the ranks said differs.

    Raises:
        ClusterError: It does.
    """
    if all_said.count(all_said[0]) == len(all_said):
        return
    texts = [said.decode(errors="replace").rstrip() for said in all_said]
    ranks: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        ranks.setdefault(text, []).append(rank)
    found = "; ".join(f"ranks {those} gave {text}" for text, those in ranks.items())
    raise ClusterError(
        f"Cannot reduce over {len(texts)} ranks: {found}",
        "Give the same kind, type and shape on every rank",
        "unequal-reduce",
        given=texts,
    )


def _gather(group: dist.ProcessGroup | None, world: int, said: bytes) -> None:
    """Tell every rank what this one reduces, and learn it of them, on any engine.

    It meets on a device that the group decides, not the tensor: that one may differ from rank to rank.

    Raises:
        ClusterError: Ranks differ.
    """
    device = _device_types(group)[0]
    headers = list(torch.empty(world, _HEADER_BYTES, dtype=torch.uint8, device=device))
    dist.all_gather(headers, torch.frombuffer(bytearray(said), dtype=torch.uint8).to(device), group)
    _agree([one.cpu().numpy().tobytes() for one in headers])


class _Room:
    """Memory for one message: a header, whether its sender's tensor is long, and the tensor where it is not."""

    def __init__(self, n_bytes: int) -> None:
        self.message = torch.zeros(_PAYLOAD_AT + n_bytes, dtype=torch.uint8)
        self.header = self.message.numpy()[: _HEADER_BYTES + 1].data

    def payload(self, n_bytes: int, dtype: torch.dtype) -> torch.Tensor:
        return self.message[_PAYLOAD_AT : _PAYLOAD_AT + n_bytes].view(dtype)


def _rooms(world: int) -> list[_Room]:
    """Return where this thread sends from, and receives of each peer: kept, because fresh memory is slow."""
    kept: dict[int, list[_Room]] = _KEPT.__dict__.setdefault("rooms", {})
    if world not in kept:
        with torch.inference_mode(False):  # else no later call outside of it could write there
            kept[world] = [_Room(SHORT_BYTES // (world - 1)) for _ in range(world)]
    return kept[world]


def _exchange(group: dist.ProcessGroup | None, rank: int, world: int, said: bytes, n_bytes: int) -> list[_Room]:
    """Tell every rank what this one reduces, and learn it of them, in one message that takes along what is short.

    A message of gloo may be shorter than the room made for it, so peers that disagree still understand each other:
    each sends and receives one message of bounded size a peer. Where one is long all meet in a barrier: the ring
    that follows starts faster out of it than out of a wait for messages.

    Args:
        group: The process group.
        rank: This rank.
        world: How many there are.
        said: What must agree.
        n_bytes: Size of what is reduced; where it is short, it is in this thread's room already [bytes].

    Returns:
        What each rank sent, by rank.

    Raises:
        ClusterError: Ranks differ.
    """
    mine, *theirs = _rooms(world)
    is_long = n_bytes > SHORT_BYTES // (world - 1)
    mine.header[:] = said + (b"L" if is_long else b"S")
    message = mine.message[: _PAYLOAD_AT + (0 if is_long else n_bytes)]
    peers = [peer for peer in range(world) if peer != rank]
    try:
        works = [
            dist.irecv(room.message, group=group, group_src=peer, tag=_TAG)
            for peer, room in zip(peers, theirs, strict=True)
        ]
        works += [dist.isend(message, group=group, group_dst=peer, tag=_TAG) for peer in peers]
        if is_long:
            dist.barrier(group)
        for work in works:
            if work:
                work.wait()
        if not is_long and any(room.header[-1] == ord("L") for room in theirs):
            dist.barrier(group)
    except BaseException:
        del _KEPT.rooms[world]  # a late message may still be written there
        raise
    rooms = [*theirs[:rank], mine, *theirs[rank:]]
    _agree([bytes(room.header[:-1]) for room in rooms])
    return rooms


def _write(tensor: torch.Tensor, kind: ReduceKind, into: torch.Tensor) -> None:
    """Write what travels: the numbers, or for Max and Min of floats integers in their order, where every NaN loses.

    The bits of a float are in its order once those of negative numbers are turned round. NaN is then beyond the
    infinities at both ends; going round by as many integers as there are NaN at one end brings them to the other.
    """
    if into.dtype == CARRIED_AS[tensor.dtype]:
        into.copy_(tensor.reshape(-1))
        return
    floats = tensor.to(into.device, CARRIED_AS[tensor.dtype]).contiguous().view(-1)
    shift = _NAN_SHIFTS[kind] * _N_NAN[floats.dtype]
    for bits, keys in _pieces(floats.view(into.dtype), into):
        _turn(bits, keys).add_(shift)


def _read(flat: torch.Tensor, kind: ReduceKind, world: int, tensor: torch.Tensor) -> None:
    """Write what was reduced into the tensor; what travelled is used up."""
    carried_as = CARRIED_AS[tensor.dtype]
    if kind is ReduceKind.MEAN:
        flat.div_(world)
    if flat.dtype != carried_as:
        as_is = tensor.dtype == carried_as and tensor.device == flat.device and tensor.is_contiguous()
        floats = tensor.view(-1) if as_is else torch.empty_like(flat, dtype=carried_as)
        shift = _NAN_SHIFTS[kind] * _N_NAN[carried_as]
        for keys, bits in _pieces(flat, floats.view(flat.dtype)):
            _turn(keys.sub_(shift), bits)
        flat = floats
    if flat.data_ptr() != tensor.data_ptr():
        tensor.copy_(flat.view(tensor.shape))


def _pieces(source: torch.Tensor, into: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield both piece by piece, each small enough to stay in a core's cache."""
    for at in range(0, len(source), _PIECE):
        yield source[at : at + _PIECE], into[at : at + _PIECE]


def _turn(bits: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    """Turn the order of negative floats round, in their bits; done twice, it is undone."""
    limits = torch.iinfo(bits.dtype)
    torch.bitwise_right_shift(bits, limits.bits - 1, out=into)
    return into.bitwise_and_(limits.max).bitwise_xor_(bits)


class ColumnParallelLinear(nn.Module):
    """This rank's output features of a linear layer; see `shard_columns`.

    Attributes:
        weight: (own outputs, all inputs), without gradient.
        bias: (own outputs,) or None.
        outputs: Which of the layer's outputs are this rank's.
    """

    def __init__(self, linear: nn.Linear, group: dist.ProcessGroup | None, *, gather: bool = False) -> None:
        super().__init__()
        self.group, self.gather, self.out_features = group, gather, linear.out_features
        self.outputs = share_of(linear.out_features, group)
        own = slice(self.outputs.start, self.outputs.stop)
        self.weight = _frozen(linear.weight, own)
        self.bias = _frozen(linear.bias, own) if _has_bias(linear) else None

    @torch.no_grad()
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return this rank's outputs, or all of them where it gathers.

        Args:
            inputs: (..., all inputs), the same on every rank.
        """
        own = nn.functional.linear(inputs, self.weight, self.bias)
        if not self.gather:
            return own
        whole = own.new_zeros(*own.shape[:-1], self.out_features)
        whole[..., self.outputs.start : self.outputs.stop] = own
        return all_reduce(self.group, whole, ReduceKind.SUM)


class RowParallelLinear(nn.Module):
    """This rank's input features of a linear layer; see `shard_rows`.

    Attributes:
        weight: (all outputs, own inputs), without gradient.
        bias: (all outputs,) or None, added once, after the ranks' products are summed.
        inputs: Which of the layer's inputs are this rank's.
    """

    def __init__(self, linear: nn.Linear, group: dist.ProcessGroup | None) -> None:
        super().__init__()
        self.group = group
        self.inputs = share_of(linear.in_features, group)
        self.weight = _frozen(linear.weight, (slice(None), slice(self.inputs.start, self.inputs.stop)))
        self.bias = _frozen(linear.bias, ...) if _has_bias(linear) else None

    @torch.no_grad()
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return all outputs, the same on every rank.

        Args:
            inputs: (..., own inputs): what a column-parallel layer on this rank leaves.
        """
        products = all_reduce(self.group, nn.functional.linear(inputs, self.weight), ReduceKind.SUM)
        return products if self.bias is None else products.add_(self.bias)


def shard_columns(linear: nn.Linear, group: dist.ProcessGroup | None, *, gather: bool = False) -> ColumnParallelLinear:
    """Return this rank's share of a layer's output features, for inference.

    Args:
        linear: The whole layer, the same on every rank; its weights are copied.
        group: The ranks that share it.
        gather: Give every rank all outputs, not its own alone.

    Raises:
        ArgumentError: This process is not in the group.

    Example:
        >>> layer = nn.Linear(4, 6)
        >>> shard_columns(layer, None).weight.shape
        torch.Size([6, 4])
    """
    return ColumnParallelLinear(linear, group, gather=gather)


def shard_rows(linear: nn.Linear, group: dist.ProcessGroup | None) -> RowParallelLinear:
    """Return this rank's share of a layer's input features, for inference.

    Args:
        linear: The whole layer, the same on every rank; its weights are copied.
        group: The ranks that share it.

    Raises:
        ArgumentError: This process is not in the group.

    Example:
        >>> layer = nn.Linear(4, 6)
        >>> torch.equal(shard_rows(layer, None)(torch.ones(4)), layer(torch.ones(4)))
        True
    """
    return RowParallelLinear(linear, group)


def share_of(n_features: int, group: dist.ProcessGroup | None) -> range:
    """Return which features are this rank's: contiguous by rank, at most one more on a rank than on another.

    Raises:
        ArgumentError: This process is not in the group.

    Example:
        >>> share_of(10, None)
        range(0, 10)
    """
    rank, world = place(group)
    return range(n_features * rank // world, n_features * (rank + 1) // world)


def _frozen(weights: torch.Tensor, part: Any) -> nn.Parameter:
    """Return a part of the weights as its own, without gradient."""
    return nn.Parameter(weights.detach()[part].clone(memory_format=torch.contiguous_format), requires_grad=False)


def _has_bias(linear: nn.Linear) -> bool:
    return "bias" in dict(linear.named_parameters())
