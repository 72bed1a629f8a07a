"""A loader with its items recorded as steps; in all else it is the loader.

A step reaches from before the loader's ``next()`` until the loop comes back for the next item. Only
the raw ``next()`` is timed as ``source``: the time of the loop's own body is the step's, not the
loader's.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, nullcontext
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, cast

from headway.clock import SYSTEM
from headway.record.identity import show
from headway.record.progress import Bar, wants_bar
from headway.record.span import outside_training

if TYPE_CHECKING:
    from headway.record.tracker import GoodputTracker

_Item = TypeVar("_Item")
_Item_co = TypeVar("_Item_co", covariant=True)
_END: Final = object()


class StepRecorder(Protocol):
    """Where steps are recorded; nothing of it raises."""

    tracker: GoodputTracker
    step_thread: int | None

    def step_number(self, n: object) -> int:
        """Return the number of the step that begins next."""

    def source_timer(self) -> AbstractContextManager[Any]:
        """Return what times the open step's wait for its data."""


class Track(Generic[_Item_co]):
    """One line round a loader; `headway.track` and `headway.Recorder.track` make it.

    ``len()``, ``state_dict``, ``set_epoch`` and all other attributes are the loader's, to read and to set.
    """

    __slots__ = ("_description", "_find_recorder", "_first_step", "_initial", "_loader", "_on_bar", "_quiet", "_total")

    def __init__(
        self,
        loader: Iterable[_Item_co],
        find_recorder: Callable[[], StepRecorder],
        *,
        total: int | None = None,
        initial: int | None = None,
        description: str | None = None,
        quiet: bool | None = None,
        first_step: int | None = None,
        on_bar: Callable[[Any], object] | None = None,
    ) -> None:
        set_own = object.__setattr__
        set_own(self, "_loader", loader)
        set_own(self, "_find_recorder", find_recorder)
        set_own(self, "_total", total)
        set_own(self, "_description", description)
        set_own(self, "_quiet", quiet)
        set_own(self, "_first_step", first_step)
        set_own(self, "_initial", initial)
        set_own(self, "_on_bar", on_bar)

    def __iter__(self) -> Iterator[_Item_co]:
        items = iter(self._loader)
        recorder = self._find_recorder()
        bar = self._open_bar(recorder) if wants_bar(sys.stderr, self._quiet) else None
        close = getattr(items, "close", None) if items is not self._loader or isinstance(items, GeneratorType) else None
        shown = items if bar is None else bar.watch(items)
        return _steps(recorder, shown, self._take_first_step(), bar, close)

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

    def _open_bar(self, recorder: StepRecorder) -> Bar:
        if self._on_bar is not None:
            self._on_bar(recorder)
        description = "" if self._description is None else show(self._description)
        initial, total = self._extent(recorder)
        return Bar(description, total, sys.stderr, SYSTEM.monotonic_ns(), initial)

    def _take_first_step(self) -> int | None:
        """Return the number to begin with, the first time; later passes go on where the last one ended."""
        first = self._first_step
        object.__setattr__(self, "_first_step", None)
        return cast("int | None", first)

    def _extent(self, recorder: StepRecorder) -> tuple[int, int | None]:
        """Return where the bar begins and where it ends.

        A resumed loop begins at its first step where the total given counts all steps: where it is
        what was done before and what the loader still has.
        """
        first = recorder.tracker.next_step if self._first_step is None else self._first_step
        length = self._length()
        initial = self._initial if isinstance(self._initial, int) else 0
        if not isinstance(self._total, int):
            return initial, None if self._total is not None or length is None else initial + length
        if self._initial is None and isinstance(first, int) and length is not None and first + length == self._total:
            initial = first
        return initial, self._total

    def _length(self) -> int | None:
        try:
            return len(self)
        except Exception:  # noqa: BLE001 - a length is asked for the bar only
            return None


def _steps(
    recorder: StepRecorder,
    items: Iterator[_Item],
    first_step: int | None,
    bar: Bar | None,
    close: Callable[[], object] | None,
) -> Generator[_Item, None, None]:
    """Yield the items, each as one step; the last one ends also when the loop breaks or raises.

    The body of a real loop leaves nothing of this in the processor's caches, so it does as little as it can.
    """
    tracker, me, item, mine = recorder.tracker, threading.get_ident(), _END, False
    begin, end, waiting = tracker.begin_step, tracker.end_step, recorder.source_timer()
    try:
        if recorder.step_thread is not None or outside_training():
            yield from _part_of_a_step(recorder, items)
            return
        tracker.next_step = recorder.step_number(first_step)
        while True:
            item = _END
            if recorder.step_thread is None:
                recorder.step_thread, mine = me, True
                begin(tracker.next_step)
            with waiting:
                item = next(items, _END)
            if item is _END:
                return
            yield item  # type: ignore[misc]
            if mine:
                recorder.step_thread, mine = None, False
                end()
    finally:
        if mine:
            recorder.step_thread = None
            (tracker.cancel_step if item is _END else end)()  # without an item there was no step
        _leave(bar, close)


def _part_of_a_step(recorder: StepRecorder, items: Iterator[_Item]) -> Generator[_Item, None, None]:
    """Yield the items inside a step, whose wait they are, or inside a span, which owns all its time."""
    waiting = nullcontext() if outside_training() else recorder.source_timer()
    me, item = threading.get_ident(), _END
    while True:
        timer = waiting if recorder.step_thread == me else nullcontext()
        with timer:
            item = next(items, _END)
        if item is _END:
            return
        yield item  # type: ignore[misc]


def _leave(bar: Bar | None, close: Callable[[], object] | None) -> None:
    if bar is not None:
        bar.close(SYSTEM.monotonic_ns())
    if callable(close):
        close()
