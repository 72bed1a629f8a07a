"""A timer as a decorator: its with-statement around each call of a function."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager, aclosing
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def around(timer: AbstractContextManager[Any], function: Function) -> Function:
    """Return the function with the timer around each call; see `around_each`.

    Example:
        >>> from contextlib import nullcontext
        >>> around(nullcontext(), len)([1, 2])
        2
    """
    return around_each(lambda: timer, function)


def around_each(enter: Callable[[], AbstractContextManager[Any]], function: Function) -> Function:
    """Return the function with a with-statement around each call.

    Of an async function it reaches until that has returned, of a generator from its first item
    until its end. What a caller sends or throws into a generator arrives there.

    Args:
        enter: Returns what the with-statement of one call enters.
        function: What is called.
    """
    import inspect  # costs more to import than all the rest, and only decorators need it

    if inspect.isasyncgenfunction(function):
        wrapper = _around_async_generator(enter, function)
    elif inspect.iscoroutinefunction(function):
        wrapper = _around_coroutine(enter, function)
    elif inspect.isgeneratorfunction(function):
        wrapper = _around_generator(enter, function)
    else:
        wrapper = _around_call(enter, function)
    return cast("Function", functools.wraps(function)(wrapper))


def _around_call(enter: Callable[[], AbstractContextManager[Any]], function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        with enter():
            return function(*args, **kwargs)

    return timed


def _around_coroutine(
    enter: Callable[[], AbstractContextManager[Any]], function: Callable[..., Any]
) -> Callable[..., Any]:
    async def timed(*args: Any, **kwargs: Any) -> Any:
        with enter():
            return await function(*args, **kwargs)

    return timed


def _around_generator(
    enter: Callable[[], AbstractContextManager[Any]], function: Callable[..., Any]
) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with enter():
            return (yield from function(*args, **kwargs))

    return timed


def _around_async_generator(
    enter: Callable[[], AbstractContextManager[Any]], function: Callable[..., Any]
) -> Callable[..., Any]:
    async def timed(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with enter():
            async with aclosing(function(*args, **kwargs)) as items:
                step = items.__anext__()
                while True:
                    try:
                        item = await step
                    except StopAsyncIteration:
                        return
                    try:
                        sent = yield item
                    except GeneratorExit:  # `aclosing` passes it on
                        raise
                    except BaseException as error:  # noqa: BLE001 - the generator's to handle
                        step = items.athrow(error)
                    else:
                        step = items.asend(sent)

    return timed
