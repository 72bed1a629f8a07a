"""Files of served requests: JSON that a benchmark of a server wrote, of any size, and whole or not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path as FilePath
from typing import Any, Protocol, TypeVar

from headway.errors import SourceError
from headway.sources import files
from headway.sources.jsonwalk import LIMIT, Path, Walk
from headway.sources.text import clean


class _Result(Protocol):
    @property
    def is_one(self) -> bool:
        """Whether what was found is a result, and not other JSON."""


_AResult = TypeVar("_AResult", bound=_Result)


def no_object(head: bytes) -> str | None:
    """Return why a file does not begin with an object of JSON; None when it does.

    Example:
        >>> no_object(b'[{"completed": 3}]')
        'it does not begin with an object of JSON'
    """
    begins = head.lstrip().startswith((b"{", b"\xef\xbb\xbf{"))
    return None if begins else "it does not begin with an object of JSON"


def numbered(names: Sequence[str]) -> list[str]:
    """Return the names of the tests in a file, of those that are there more than once each with its place.

    Example:
        >>> numbered(["m", "m, 4/s", "m"])
        ['m #1', 'm, 4/s', 'm #3']
    """
    uses = Counter(names)
    return [name if uses[name] == 1 else f"{name} #{place}" for place, name in enumerate(names, 1)]


def is_list(head: bytes) -> bool:
    r"""Return whether a file begins with a list of objects.

    Example:
        >>> is_list(b'[\n  {"completed": 3}]'), is_list(b'{"completed": 3}'), is_list(b"[1]")
        (True, False, False)
    """
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return text.startswith(b"[") and text[1:].lstrip().startswith(b"{")


def results(
    path: FilePath,
    opened: Iterable[Path],
    kept: Iterable[Path],
    find: Callable[[Walk], Iterator[_AResult]],
    lacking: tuple[str, str],
) -> tuple[list[_AResult], list[str]]:
    """Return the results in a file, and what was wrong with it, a sentence each.

    Args:
        path: The file.
        opened: Containers of it that are looked into.
        kept: Containers that are given whole.
        find: Yields what may be a result.
        lacking: What to say where there is none, and what to do then.

    Raises:
        OSError: It cannot be read.
        SourceError: There is none.
    """
    shown = clean(str(path), 4096)
    with files.plain(path) as file:
        walk = Walk(file, opened, kept)
        found = [result for result in find(walk) if result.is_one]
    if not found:
        what, step = lacking
        why = f": {walk.torn}" if walk.torn else ""
        raise SourceError(f"Cannot read {shown}: {what}{why}", step, "no-runs", path=str(path))
    return found, list(_complaints(walk, shown))


def _complaints(walk: Walk, shown: str) -> Iterator[str]:
    if walk.torn:
        yield f"{shown}: {walk.torn}; what stands before is read"
    if walk.junk:
        yield f"{shown}: what is no JSON in it is left out, in {walk.junk} place{'s' * (walk.junk != 1)}"
    if walk.too_long:
        yield f"{shown}: {walk.too_long} value{'s' * (walk.too_long != 1)} of more than {LIMIT >> 20} MiB, left out"


def number(value: Any) -> float:
    """Return a number of a file; NaN where it is none.

    Example:
        >>> number(3), number("3"), number(True)
        (3.0, nan, nan)
    """
    if type(value) is float:
        return value
    if type(value) is not int:
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def count(value: Any) -> int:
    """Return how many, as a file says; -1 where it says no whole number from 0 on.

    Example:
        >>> count(3), count(3.0), count(-2), count(None), count(1e300)
        (3, 3, -1, -1, -1)
    """
    amount = number(value)
    return int(amount) if 0 <= amount < 1 << 53 and amount == int(amount) else -1
