"""Waiting for asynchronous devices: a timer that stops before the work is done measures the launch.

Neither torch nor JAX is imported: a tree can only hold their arrays where they are loaded already.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Self

from headway.record.around import Function, around
from headway.record.faults import Faults

if TYPE_CHECKING:
    from headway.record._hot import Timer


def wait_for(tree: Any, faults: Faults) -> None:
    """Wait until every array in `tree` is ready.

    Known are torch tensors (their device is synchronised; the CPU has nothing to wait for), JAX
    arrays, and any object with ``block_until_ready()`` or ``synchronize()`` (a CUDA event or
    stream, say). Other leaves are passed over.

    Args:
        tree: An array, or dicts, lists, tuples and dataclasses of arrays, or a function without
            arguments that returns one of these.
        faults: Where an exception is counted; none is raised.

    Example:
        >>> class Array:
        ...     def block_until_ready(self):
        ...         print("ready")
        >>> wait_for({"x": [Array()]}, Faults())
        ready
    """
    try:
        if isinstance(tree, FunctionType | MethodType | BuiltinFunctionType | functools.partial):
            tree = tree()
        _wait_jax(tree)
        devices = set()
        for leaf in _leaves(tree, set()):
            device = _torch_device(leaf)
            if device is None:
                _wait_leaf(leaf)
            else:
                devices.add(device)
        for device in devices:
            _synchronize(device)
    except Exception as error:  # noqa: BLE001 - never into training
        faults.note("wait-for", error)


class WaitingTimer:
    """A timer that waits for a value before it stops: `time_transfer(wait_for=x)`.

    Args:
        timer: The phase's own timer.
        tree: What to wait for; see `wait_for`.
        wait: What waits.
    """

    __slots__ = ("_timer", "_tree", "_wait")

    def __init__(self, timer: Timer, tree: Any, wait: Callable[[Any], None]) -> None:
        self._timer, self._tree, self._wait = timer, tree, wait

    def __enter__(self) -> Self:
        self._timer.__enter__()
        return self

    def __exit__(self, error_type: object, error: object, trace: object) -> None:
        try:
            if error_type is None:  # what a body that raised was to make is not there
                self._wait(self._tree)
        finally:
            self._timer.__exit__(error_type, error, trace)

    def __call__(self, function: Function, /) -> Function:
        """Return the function with this timer around each call."""
        return around(self, function)

    def wait_for(self, tree: Any) -> Any:
        """Wait until the arrays in `tree` are ready, inside the timed block; return it."""
        return self._timer.wait_for(tree)


def _waits(leaf: Any) -> bool:
    return hasattr(leaf, "block_until_ready") or hasattr(leaf, "synchronize") or _torch_device(leaf) is not None


def _leaves(tree: Any, seen: set[int]) -> Iterator[Any]:
    """Yield the leaves of containers, each container once: a tree may hold itself."""
    if isinstance(tree, str | bytes | bytearray | int | float | None):
        return
    children: Any
    if isinstance(tree, Mapping):
        children = tree.values()
    elif isinstance(tree, list | tuple | set | frozenset):
        children = tree
    elif hasattr(tree, "__dataclass_fields__") and not isinstance(tree, type) and not _waits(tree):
        children = [getattr(tree, name) for name in tree.__dataclass_fields__ if hasattr(tree, name)]
    else:
        yield tree
        return
    if id(tree) in seen:
        return
    seen.add(id(tree))
    for child in children:
        yield from _leaves(child, seen)


def _torch_device(leaf: Any) -> Any:
    """Return a tensor's device, or None for anything else."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return leaf.device if tensor is not None and isinstance(leaf, tensor) else None


def _synchronize(device: Any) -> None:
    backend = getattr(sys.modules["torch"], device.type, None)
    synchronize = getattr(backend, "synchronize", None)
    if synchronize is None or device.type == "cpu":
        return
    if device.type == "mps":  # it has one device and takes no argument
        synchronize()
    else:
        synchronize(device)


def _wait_jax(tree: Any) -> None:
    """Let JAX wait for the nodes that only it knows; it passes over other leaves."""
    wait = getattr(sys.modules.get("jax"), "block_until_ready", None)
    if wait is not None:
        wait(tree)


def _wait_leaf(leaf: Any) -> None:
    wait = getattr(leaf, "block_until_ready", None) or getattr(leaf, "synchronize", None)
    if wait is not None and not isinstance(leaf, type):
        wait()
