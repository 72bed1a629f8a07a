"""Moments written as dates and times of day, many at once where all are written alike."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.ledger.jobs import UNTOLD
from headway.sources.table.times import MISSING, Times
from headway.sources.zone import either, zone_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

_FORM: Final = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{3}(?:\d{3})?)?(Z|[+-](?:0\d|1[0-4]):[0-5]\d)?", re.ASCII
)
_LONGEST: Final = len("2020-01-01 00:00:00.000000+00:00")
_LOOKED_AT: Final = 100
"""Of so many cells one at least shows how the others are written."""
_DATE_AND_TIME: Final = len("2020-01-01 00:00:00")
_PLACES: Final = (0, 5, 8, 11, 14, 17)
_MARKS: Final = ((4, "-"), (7, "-"), (13, ":"), (16, ":"))
_WIDTHS: Final = {"%Y": 4, "%m": 2, "%d": 2, "%H": 2, "%M": 2, "%S": 2}
_BETWEEN: Final = len("2020-01-01")
_SPACE, _T, _ZERO = ord(" "), ord("T"), ord("0")


@dataclass(frozen=True, slots=True)
class Form:
    """How a moment is written.

    Attributes:
        length: How many characters it has.
        places: Where year, month, day, hour, minute and second are; -1 of those that are not there.
        marks: What is where besides.
        digits: How many of a second's fraction there are.
        zone: What names the zone; empty where nothing does.
        iso: Whether between date and time is a T or a space, as each likes.
    """

    length: int
    places: tuple[int, ...]
    marks: tuple[tuple[int, str], ...]
    digits: int = 0
    zone: str = ""
    iso: bool = False

    @classmethod
    def told(cls, unit: str) -> Form | None:
        """Return what a format of `datetime.strptime` says; None where its parts may be of several lengths.

        Example:
            >>> Form.told("%d.%m.%Y")
            Form(length=10, places=(6, 3, 0, -1, -1, -1), marks=((2, '.'), (5, '.')), digits=0, zone='', iso=False)
        """
        places: dict[str, int] = {}
        marks = []
        length = 0
        for part in re.findall(r"%.|[^%]", unit):
            if part in places or (part not in _WIDTHS and (part[0] == "%" or not " " <= part <= "~")):
                return None
            if part in _WIDTHS:
                places[part] = length
            else:
                marks.append((length, part))
            length += _WIDTHS.get(part, 1)
        if not places.keys() >= {"%Y", "%m", "%d"}:
            return None
        return cls(length, tuple(places.get(part, -1) for part in _WIDTHS), tuple(marks))

    @classmethod
    def of(cls, texts: Sequence[str]) -> Form | None:
        """Return how the first of some texts that is a moment of ISO 8601 is written; None where none of the first is.

        Example:
            >>> form = Form.of(["", "2020-06-09 18:41:01+08:00"])
            >>> form.length, form.zone
            (25, '+08:00')
        """
        for text in texts[:_LOOKED_AT]:
            if _DATE_AND_TIME <= len(text) <= _LONGEST and (found := _FORM.fullmatch(text)):
                zone, digits = found[2] or "", max(0, len(found[1] or "") - 1)
                marks = (*_MARKS, *enumerate(zone, len(text) - len(zone)))
                marks = (*marks, (_DATE_AND_TIME, ".")) if digits else marks
                return cls(len(text), _PLACES, marks, digits, zone, iso=True)
        return None


class Clock:
    """Reads moments as `Times` does, those that are plain.

    Args:
        times: What reads the others.
    """

    def __init__(self, times: Times) -> None:
        self._times = times

    def read(self, texts: Sequence[str], form: Form) -> tuple[Ints, Ints, Bools]:
        """Return moments [ns since the Unix epoch], numbers that are equal where the texts are, and which are plain.

        What is missing is `UNTOLD` and plain; what is not plain is anything.

        Args:
            texts: As they are in the table.
            form: How they are written.
        """
        told, keys = np.full((2, len(texts)), UNTOLD)
        full = np.fromiter(map(len, texts), np.int64, len(texts)) == form.length
        full &= np.fromiter(map(str.isascii, texts), bool, len(texts))
        plain = full.copy()
        if not full.all():
            for place in np.flatnonzero(~full).tolist():
                plain[place] = texts[place].strip().lower() in MISSING
            texts = [text for text, fits in zip(texts, full.tolist(), strict=True) if fits]
        chars = np.frombuffer("".join(texts).encode(), np.uint8).reshape(-1, form.length).T.copy()
        seconds, good = _seconds(chars, form)
        fraction_ns = np.zeros(len(seconds), np.int64)
        for place in range(_DATE_AND_TIME + 1, _DATE_AND_TIME + 1 + form.digits):
            digit = chars[place] - np.uint8(_ZERO)
            good &= digit < 10
            fraction_ns = fraction_ns * 10 + digit
        fraction_ns *= 10 ** (9 - form.digits) if form.digits else 0
        keys[full] = seconds * NS_PER_S + fraction_ns
        if form.iso:
            good &= (chars[_BETWEEN] == _SPACE) | (chars[_BETWEEN] == _T)
            keys[full] += chars[_BETWEEN] == _T
        before, after = self._placed(np.where(good, seconds, 0) * NS_PER_S, form)
        told[full] = before + fraction_ns
        plain[full] = good & (before == after)
        return told, keys, plain

    def _placed(self, local_ns: Ints, form: Form) -> tuple[Ints, Ints]:
        """Return what clocks showed as moments [ns since the Unix epoch], as before and as after they were changed."""
        named = zone_of("UTC" if form.zone == "Z" else form.zone) if form.zone else self._times.zone
        return either(local_ns, named or UTC)


def _seconds(chars: NDArray[np.uint8], form: Form) -> tuple[Ints, Bools]:
    """Return the local time of dates and times of day [s since 1970], and which are some.

    Args:
        chars: By place in the text and by text.
        form: How they are written.
    """
    good = np.ones(chars.shape[1], bool)
    for place, mark in form.marks:
        good &= chars[place] == ord(mark)
    year, *others = form.places
    century, years, month, day, hour, minute, second = (_two(chars, place, good) for place in (year, year + 2, *others))
    good &= (century == 19) | (century == 20)  # what lies further is no plain moment
    good &= (month - 1 < 12) & (hour < 24) & (minute < 60) & (second < 60)
    months = (century.astype(np.int64) * 100 + years - 1970) * 12 + month - 1
    begins = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    ends = (months + 1).astype("M8[M]").astype("M8[D]").astype(np.int64)
    days = begins + day - 1
    good &= (day >= 1) & (days < ends)
    return ((days * 24 + hour) * 60 + minute) * 60 + second, good


def _two(chars: NDArray[np.uint8], place: int, good: Bools) -> NDArray[np.uint8]:
    """Return the number that two digits are; 0 where no place is told."""
    if place < 0:
        return np.zeros(chars.shape[1], np.uint8)
    tens: NDArray[np.uint8]
    tens, ones = chars[place] - np.uint8(_ZERO), chars[place + 1] - np.uint8(_ZERO)
    good &= (tens < 10) & (ones < 10)
    tens *= np.uint8(10)
    tens += ones
    return tens
