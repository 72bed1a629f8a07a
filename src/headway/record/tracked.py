"""A loader with its items recorded as steps; in all else it is the loader.

A step reaches from before the loader's ``next()`` until the loop comes back for the next item. Only
the raw ``next()`` is timed as ``source``: the time of the loop's own body is the step's, not the
loader's.
"""

from __future__ import annotations

import copy
import functools
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from contextlib import AbstractContextManager, nullcontext
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar, cast

from headway.clock import SYSTEM
from headway.record.identity import show
from headway.record.progress import Bar, wants_bar

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

    def step_is_open(self) -> bool:
        """Return whether a step is open; one that an interrupt has left behind is none."""

    def source_timer(self) -> AbstractContextManager[Any]:
        """Return what times the open step's wait for its data."""

    def outside_training(self) -> bool:
        """Return whether the running code is in a span whose loops are no training steps."""

    def pass_over(self, *, of_another_thread: bool) -> None:
        """Take note of an item that is no step, since one is open."""

    def end_items(self) -> None:
        """Count such items inside the open step, which will not go on."""


class Given:
    """Finds the recorder that was given; in another process that is the one which is open there.

    Args:
        recorder: Where to record.
    """

    def __init__(self, recorder: StepRecorder) -> None:
        self._recorder = recorder

    def __call__(self) -> StepRecorder:
        """Return it."""
        return self._recorder

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself: the copy of a loader records where the loader does."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the recorder behind."""
        from headway.record.track import recorder_for

        return (functools.partial, (recorder_for, None, None))


class Track(Generic[_Item_co]):
    """One line round a loader; `headway.track` and `headway.Recorder.track` make it.

    It can be copied and pickled where the loader can. ``len()``, ``state_dict``, ``set_epoch`` and
    all other attributes are the loader's, to read and to set.
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
        shown = items if bar is None else bar.watch(items)
        return _steps(
            recorder, shown, self._take_first_step(), bar, items if isinstance(items, GeneratorType) else None
        )

    def __len__(self) -> int:
        return len(cast("Sized", self._loader))  # one without a length raises, as it does without this

    def __bool__(self) -> bool:
        return bool(self._loader)

    def __copy__(self) -> Track[_Item_co]:
        return _restored(copy.copy(self._loader), self._options())

    def __deepcopy__(self, memo: dict[int, Any]) -> Track[_Item_co]:
        return _restored(copy.deepcopy(self._loader, memo), self._options())

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return (_restored, (self._loader, self._options()))

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

    def _options(self) -> dict[str, Any]:
        return {name.removeprefix("_"): getattr(self, name) for name in Track.__slots__ if name != "_loader"}

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


def _restored(loader: Iterable[_Item], options: dict[str, Any]) -> Track[_Item]:
    return Track(loader, **options)


def _steps(
    recorder: StepRecorder,
    items: Iterator[_Item],
    first_step: int | None,
    bar: Bar | None,
    generator: GeneratorType[_Item, Any, Any] | None,
) -> Generator[_Item, None, None]:
    """Yield the items, each as one step; the last one ends also when the loop breaks or raises.

    With this generator goes the loader's, also one that the caller holds; any other iterator, such
    as a file, can be gone on with. The body of a real loop leaves nothing of this in the processor's
    caches, so it does as little as it can.
    """
    tracker, me, item, mine = recorder.tracker, threading.get_ident(), _END, False
    begin, end, waiting = tracker.begin_step, tracker.end_step, recorder.source_timer()
    try:
        if recorder.step_is_open() or recorder.outside_training():
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
            else:
                item = _next_inside(recorder, items, waiting, of_another_thread=recorder.step_thread != me)
            if item is _END:
                return
            yield item  # type: ignore[misc]
            if mine:
                recorder.step_thread, mine = None, False
                end()
    finally:
        if mine:
            try:
                recorder.end_items()
            finally:  # an interrupt in there leaves no step open
                recorder.step_thread = None
                (tracker.cancel_step if item is _END else end)()  # without an item there was no step
        if bar is not None:
            bar.close(SYSTEM.monotonic_ns())
        if generator is not None:
            generator.close()


def _part_of_a_step(recorder: StepRecorder, items: Iterator[_Item]) -> Generator[_Item, None, None]:
    """Yield the items inside a step, whose wait they are, or inside a span, which owns all its time."""
    if recorder.outside_training():
        for item in items:  # and no `yield from`, which closes what has a close()
            yield item
        return
    of_another_thread, waiting = recorder.step_thread != threading.get_ident(), recorder.source_timer()
    while True:
        item = _next_inside(recorder, items, waiting, of_another_thread=of_another_thread)
        if item is _END:
            return
        yield item


def _next_inside(
    recorder: StepRecorder, items: Iterator[Any], waiting: AbstractContextManager[Any], *, of_another_thread: bool
) -> Any:
    """Return the next item, or the end; it is no step, and the wait for it is the open step's of this thread."""
    with waiting if recorder.step_thread == threading.get_ident() else nullcontext():
        item = next(items, _END)
    if item is not _END:
        recorder.pass_over(of_another_thread=of_another_thread)
    return item
