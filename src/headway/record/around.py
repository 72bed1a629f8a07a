"""A timer as a decorator: its with-statement around each call of a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def around(timer: AbstractContextManager[Any], function: Function) -> Function:
    """Return the function with the timer around each call.

    Example:
        >>> from contextlib import nullcontext
        >>> around(nullcontext(), len)([1, 2])
        2
    """

    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with timer:
            return function(*args, **kwargs)

    return cast("Function", timed)
