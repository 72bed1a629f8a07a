"""What stands in front of a line, the rank and the time, for many lines that are alike but for their digits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from headway.clock import NS_PER_S
from headway.sources.steps.columns import UNKNOWN
from headway.sources.steps.line import KEPT, KEPT_BEGINS, RANK, STAMP

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headway.sources.steps.alike import Spans

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

FIELDS: Final = 8
"""So many numbers `find` tells of: rank, year, month, day, hour, minute, second, and one if the time names its zone."""
_NONE: Final = (0, 0)
_NO_TIME: Final = (_NONE,) * (FIELDS - 1)
_ODD: Final = re.compile(r"[\r\n\0]|(?!20)\d{4}-|[^\x1b]{0,400}\[\d+,")
"""Where single digits count in what is in front, or what is stripped comes first."""
_YEARS: Final = (2000, 2042)
_DATELIKE: Final = re.compile(r"[^\x1b]{0,60}?(?<!\d)\d{8}[ T]\d\d:\d\d:\d\d")
"""Which digits it has decides whether it is a date."""


class Found(NamedTuple):
    """What a line says.

    Attributes:
        said: The match, in the whole line.
        begin: Where the line's own text begins, behind what a launcher and what kept the log put in front.
        front: Where the numbers are that stand in front, as `FIELDS` names them.
    """

    said: re.Match[str]
    begin: int
    front: Spans


def find(line: bytes, says: re.Pattern[str], *, before: bool = True) -> Found | None:
    r"""Return what a line says, without what stands in front of it, and where the numbers of that are.

    It is as `headway.sources.steps.line.bare` and `headway.sources.steps.moments.Moments.stamp` would have it.

    Args:
        line: The line.
        says: What is looked for in it.
        before: Whether the line's time is in front of that, and not further in.

    Returns:
        None where nothing is found, or where it takes more to understand the line than where its digits are.

    Example:
        >>> found = find(b"[rank3]: 2024-01-02 03:04:05,250 iter 7: x", re.compile(r"iter (\d+)"))
        >>> found.said.span(1), found.begin, found.front
        ((38, 39), 9, ((5, 6), (9, 13), (14, 16), (17, 19), (20, 22), (23, 25), (26, 32), (0, 0)))
    """
    text = line.decode("ascii") if line.isascii() and b"\x1b" not in line else "\0"
    if _ODD.match(text):
        return None
    kept = KEPT.match(text) if text.startswith(KEPT_BEGINS) else None
    begin = kept.end() if kept else 0
    ranked = None if text[begin : begin + 1].isalpha() else RANK.match(text, begin)
    rank = _NONE if ranked is None else ranked.span(1) if ranked[1] else ranked.span(2)
    begin = ranked.end() if ranked else begin
    if (said := says.search(text, begin)) is None:
        return None
    front = text[begin : said.start() if before else None]
    own, at = STAMP.match(front), begin
    if own is None and _DATELIKE.match(front):
        return None
    if kept is not None and kept[1]:
        if own is not None:
            return None
        own, at = STAMP.match(kept[1]), kept.start(1)
    time = _time(own, at)
    return None if time is None else Found(said, begin, (rank, *time))


def _time(own: re.Match[str] | None, at: int) -> Spans | None:
    """Return where the numbers of a time are that begins so far into a line; None of a kind to be read by itself."""
    if own is None:
        return _NO_TIME
    if not own[1] or (own[10] and own[10][0] in "+-"):
        return None
    names = (own.span(1), own.span(2), own.span(3), (own.start(7), own.start(7) + 2), (own.end(7) - 2, own.end(7)))
    year, *rest = ((first + at, last + at) for first, last in names)
    second = own.start(8) + at, (own.end(9) if own[9] else own.end(8)) + at
    return (year, *rest, second, year if own[10] else _NONE)


def ranks(values: Floats) -> Ints:
    """Return the ranks of lines, -1 where a line does not say."""
    said = np.isfinite(values)
    return np.where(said, np.where(said, values, 0), -1).astype(np.int64) if said.any() else np.full(len(values), -1)


def moments(year: Floats, *rest: Floats) -> Ints | None:
    """Return times [ns since the Unix epoch]; None if one of them cannot be, or is no ordinary one.

    Args:
        year: Of each, ``(n,)``.
        rest: Month, day, hour, minute and second, each ``(n,)``.

    Example:
        >>> moments(*(np.array([number]) for number in (2024.0, 2.0, 29.0, 0.0, 0.0, 1.5))).tolist()
        [1709164801500000000]
    """
    month, day, hour, minute, second = rest
    bounds = ((month, 1, 12), (hour, 0, 23), (minute, 0, 59), (second, 0, 59.9999999999))
    if not all(low <= values.min() and values.max() <= high for values, low, high in bounds):
        return None
    months = (year.astype(np.int64) - 1970) * 12 + month.astype(np.int64) - 1
    begins, ends = (both.astype("M8[M]").astype("M8[D]").astype(np.int64) for both in (months, months + 1))
    days = begins + day.astype(np.int64) - 1
    if (days < begins).any() or (days >= ends).any():
        return None
    minutes = (days * 24 + hour.astype(np.int64)) * 60 + minute.astype(np.int64)
    return minutes * (60 * NS_PER_S) + np.rint(second * NS_PER_S).astype(np.int64)


def times(year: Floats, *rest: Floats) -> Ints | None:
    """Return times as `moments`, `UNKNOWN` where a line has none; None if one of them is no ordinary one."""
    at = np.full(len(year), UNKNOWN)
    timed = np.isfinite(year)
    if timed.any():
        if not _YEARS[0] <= year[timed].min() <= year[timed].max() <= _YEARS[1]:
            return None
        found = moments(year[timed], *(values[timed] for values in rest))
        if found is None:
            return None
        at[timed] = found
    return at
