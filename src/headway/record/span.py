"""Spans: named intervals, as a with-statement or around a function."""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing
from typing import Any, Final, Protocol, Self, TypeVar, cast

from headway.events import SPAN_CATEGORIES

_Function = TypeVar("_Function", bound=Callable[..., Any])
_local: Final = threading.local()


class SpanLog(Protocol):
    """Where a span says that it begins and ends; neither raises."""

    def begin_span(self, category: str, *, background: bool) -> int:
        """Return the id of a span that begins now."""

    def end_span(self, span: int, *, ok: bool) -> None:
        """End that span now."""


class SpanTimer:
    """One named interval; `headway.Recorder.span` makes it.

    A with-statement books its body. As a decorator it books every call, each by itself: of an
    async function until it has returned, of a generator from its first item until its end, the
    time its caller takes between two items included.
    """

    def __init__(self, log: SpanLog, category: str, *, background: bool = False) -> None:
        self._log = log
        self._category = category
        self._background = background
        self._entered: dict[int, list[tuple[int, list[str]]]] = {}  # by thread, innermost last

    def __enter__(self) -> Self:
        span = self._log.begin_span(self._category, background=self._background)
        here = [] if self._background else _open_here()
        here.append(self._category)
        self._entered.setdefault(threading.get_ident(), []).append((span, here))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        entered = self._entered.get(threading.get_ident()) or next(filter(None, list(self._entered.values())), None)
        if not entered:
            return
        span, here = entered.pop()
        self._log.end_span(span, ok=kind is None or issubclass(kind, GeneratorExit))
        if self._category in here:
            here.remove(self._category)

    def __call__(self, function: _Function) -> _Function:
        """Return the function with a span around each call."""
        import inspect  # costs more to import than all the rest, and only decorators need it

        if inspect.isasyncgenfunction(function):
            wrapper = self._around_async_generator(function)
        elif inspect.iscoroutinefunction(function):
            wrapper = self._around_coroutine(function)
        elif inspect.isgeneratorfunction(function):
            wrapper = self._around_generator(function)
        else:
            wrapper = self._around_call(function)
        return cast("_Function", functools.wraps(function)(wrapper))

    def _fresh(self) -> SpanTimer:
        return SpanTimer(self._log, self._category, background=self._background)

    def _around_call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            with self._fresh():
                return function(*args, **kwargs)

        return timed

    def _around_coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def timed(*args: Any, **kwargs: Any) -> Any:
            with self._fresh():
                return await function(*args, **kwargs)

        return timed

    def _around_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
            with self._fresh():
                return (yield from function(*args, **kwargs))

        return timed

    def _around_async_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        async def timed(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
            with self._fresh():
                async with aclosing(function(*args, **kwargs)) as items:
                    async for item in items:
                        yield item

        return timed


def outside_training() -> bool:
    """Return whether this thread is in a span, such as evaluation, whose loops are no training steps."""
    return any(category in SPAN_CATEGORIES for category in _open_here())


def _open_here() -> list[str]:
    """Return the categories of this thread's open spans."""
    try:
        return cast("list[str]", _local.categories)
    except AttributeError:
        _local.categories = []
        return cast("list[str]", _local.categories)
