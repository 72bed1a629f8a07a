"""A loader with its items recorded as steps; in all else it is the loader.

A step reaches from before the loader's ``next()`` until the loop comes back for the next item. Only
the raw ``next()`` is timed as ``source``: the time of the loop's own body is the step's, not the
loader's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, nullcontext
from types import GeneratorType
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from headway.clock import SYSTEM
from headway.record.identity import show
from headway.record.progress import Bar, open_bar
from headway.record.span import outside_training

_Item = TypeVar("_Item")
_Item_co = TypeVar("_Item_co", covariant=True)
_END: Final = object()


class StepRecorder(Protocol):
    """Where steps are recorded; nothing of it raises."""

    def begin_step(self, n: object = None) -> bool:
        """Begin a step, unless one is open; return whether it did."""

    def time_source(self) -> AbstractContextManager[Any]:
        """Time what this thread's open step waits for its data."""

    def end_step(self) -> None:
        """End the step."""

    def discard_step(self) -> None:
        """Forget the step that was begun."""


class Track(Generic[_Item_co]):
    """One line round a loader; `headway.track` and `headway.Recorder.track` make it.

    ``len()``, ``state_dict``, ``set_epoch`` and all other attributes are the loader's, to read and to set.
    """

    __slots__ = ("_description", "_find_recorder", "_first_step", "_loader", "_quiet", "_total")

    def __init__(
        self,
        loader: Iterable[_Item_co],
        find_recorder: Callable[[], StepRecorder],
        *,
        total: int | None = None,
        description: str | None = None,
        quiet: bool | None = None,
        first_step: int | None = None,
    ) -> None:
        set_own = object.__setattr__
        set_own(self, "_loader", loader)
        set_own(self, "_find_recorder", find_recorder)
        set_own(self, "_total", total)
        set_own(self, "_description", description)
        set_own(self, "_quiet", quiet)
        set_own(self, "_first_step", first_step)

    def __iter__(self) -> Iterator[_Item_co]:
        items = iter(self._loader)
        recorder = self._find_recorder()
        now = SYSTEM.monotonic_ns()
        bar = open_bar("" if self._description is None else show(self._description), self._length(), self._quiet, now)
        loop = _record(recorder, items, self._take_first_step(), bar)
        return _close_after(loop, items, bar, close_items=items is not self._loader or isinstance(items, GeneratorType))

    def __len__(self) -> int:
        return len(cast("Sized", self._loader))  # one without a length raises, as it does without this

    def __bool__(self) -> bool:
        return bool(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name in Track.__slots__:  # an object that is being copied has none of its own yet
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._loader, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._loader, name)

    def __repr__(self) -> str:
        return f"track({self._loader!r})"

    def _take_first_step(self) -> int | None:
        """Return the number to begin with, the first time; later passes go on where the last one ended."""
        first = self._first_step
        object.__setattr__(self, "_first_step", None)
        return cast("int | None", first)

    def _length(self) -> int | None:
        if self._total is not None:
            return self._total if isinstance(self._total, int) else None
        try:
            return len(self)
        except Exception:  # noqa: BLE001 - a length is asked for the bar only
            return None


def _record(
    recorder: StepRecorder, items: Iterator[_Item], first_step: int | None, bar: Bar | None
) -> Generator[_Item, None, None]:
    """Yield the items, each as one step; the last one ends also when the loop breaks or raises."""
    rows = not outside_training()
    time_source = recorder.time_source if rows else nullcontext
    mine = False
    try:
        while True:
            mine = rows and recorder.begin_step(first_step)
            first_step = None
            asked = SYSTEM.monotonic_ns() if bar is not None else 0
            item = _END
            try:
                with time_source():
                    item = next(items, _END)
            finally:
                if item is _END and mine:
                    mine = False
                    recorder.discard_step()
            if item is _END:
                return
            if bar is not None:
                now = SYSTEM.monotonic_ns()
                bar.update(now, now - asked)
            yield cast("_Item", item)
            if mine:
                mine = False
                recorder.end_step()
    finally:
        if mine:
            recorder.end_step()


def _close_after(
    loop: Generator[_Item, None, None], items: Iterator[_Item], bar: Bar | None, *, close_items: bool
) -> Generator[_Item, None, None]:
    """Yield from the loop, and close what it reads from when it ends, breaks or raises."""
    try:
        yield from loop
    finally:
        if bar is not None:
            bar.close(SYSTEM.monotonic_ns())
        close = getattr(items, "close", None) if close_items else None
        if callable(close):
            close()
