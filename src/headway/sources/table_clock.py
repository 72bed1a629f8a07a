"""Moments of ISO 8601, many at once where all are written alike."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import numpy as np

from headway.clock import NS_PER_S
from headway.ledger.jobs import UNTOLD
from headway.sources.table_times import MISSING, Times

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
_MARKS: Final = {4: "-", 7: "-", 13: ":", 16: ":"}
_DAY_S: Final = 86_400
_MOST_DAYS: Final = 1 << 16
_SPACE, _T, _ZERO = ord(" "), ord("T"), ord("0")


@dataclass(frozen=True, slots=True)
class Form:
    """How a moment is written.

    Attributes:
        length: How many characters it has.
        digits: Of those, digits of a second's fraction.
        zone: What names the zone; empty where nothing does.
    """

    length: int
    digits: int
    zone: str

    @classmethod
    def of(cls, texts: Sequence[str]) -> Form | None:
        """Return how the first of some texts that is a moment is written; None where none of the first is.

        Example:
            >>> Form.of(["", "2020-06-09 18:41:01+08:00"])
            Form(length=25, digits=0, zone='+08:00')
        """
        for text in texts[:_LOOKED_AT]:
            if _DATE_AND_TIME <= len(text) <= _LONGEST and (found := _FORM.fullmatch(text)):
                return cls(len(text), max(0, len(found[1] or "") - 1), found[2] or "")
        return None


class Clock:
    """Reads moments as `Times` does, those that are plain.

    Args:
        times: What reads the others.
    """

    def __init__(self, times: Times) -> None:
        self._times = times
        self._offsets: dict[int, int | None] = {}

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
        seconds, good = _seconds(chars)
        fraction_ns = np.zeros(len(seconds), np.int64)
        for place in range(_DATE_AND_TIME + 1, _DATE_AND_TIME + 1 + form.digits):
            digit = chars[place] - np.uint8(_ZERO)
            good &= digit < 10
            fraction_ns = fraction_ns * 10 + digit
        if form.digits:
            fraction_ns *= 10 ** (9 - form.digits)
            good &= chars[_DATE_AND_TIME] == ord(".")
        for place, char in enumerate(form.zone.encode(), form.length - len(form.zone)):
            good &= chars[place] == char
        offset_s, known = self._offset_s(seconds, good, form)
        keys[full] = seconds * NS_PER_S + fraction_ns + (chars[_DATE_AND_TIME - 9] == _T)
        told[full] = (seconds - offset_s) * NS_PER_S + fraction_ns
        plain[full] = good & known
        return told, keys, plain

    def _offset_s(self, seconds: Ints, good: Bools, form: Form) -> tuple[Ints | int, Bools | bool]:
        """Return by how much local clocks were ahead [s], and where that is sure."""
        if form.zone == "Z":
            return 0, True
        if form.zone:
            minutes = int(form.zone[1:3]) * 60 + int(form.zone[4:6])
            return (-60 if form.zone[0] == "-" else 60) * minutes, True
        zone = self._times.zone
        if isinstance(zone, ZoneInfo):
            days, places = np.unique(np.where(good, seconds // _DAY_S, 0), return_inverse=True)
            offsets = [self._of_day(day, zone) for day in days.tolist()]
            known = np.array([offset is not None for offset in offsets], bool)
            return np.array([offset or 0 for offset in offsets], np.int64)[places], known[places]
        offset = zone.utcoffset(None) if isinstance(zone, timezone) else timedelta(0)
        return round((offset or timedelta(0)).total_seconds()), True

    def _of_day(self, day: int, zone: ZoneInfo) -> int | None:
        """Return by how much clocks were ahead all of a day [s]; None where they were put forward or back."""
        if day not in self._offsets:
            begin = datetime.fromtimestamp(day * _DAY_S, UTC).replace(tzinfo=None)
            moments = [(begin + timedelta(hours=hour)).replace(tzinfo=zone) for hour in range(-1, 26)]
            found = {one.replace(fold=fold).utcoffset() for one in moments for fold in (0, 1)}
            offset = found.pop()
            self._forget()
            self._offsets[day] = None if found or offset is None else round(offset.total_seconds())
        return self._offsets[day]

    def _forget(self) -> None:
        if len(self._offsets) >= _MOST_DAYS:
            self._offsets.clear()


def _seconds(chars: NDArray[np.uint8]) -> tuple[Ints, Bools]:
    """Return the local time of dates and times of day [s since 1970], and which are some.

    Args:
        chars: By place in the text and by text.
    """
    good = (chars[10] == _SPACE) | (chars[10] == _T)
    for place, mark in _MARKS.items():
        good &= chars[place] == ord(mark)
    century, years, month, day, hour, minute, second = (_two(chars, place, good) for place in (0, 2, 5, 8, 11, 14, 17))
    good &= (century == 19) | (century == 20)
    good &= (month - 1 < 12) & (hour < 24) & (minute < 60) & (second < 60)
    months = (century.astype(np.int64) * 100 + years - 1970) * 12 + month - 1
    begins = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    ends = (months + 1).astype("M8[M]").astype("M8[D]").astype(np.int64)
    days = begins + day - 1
    good &= (day >= 1) & (days < ends)
    return ((days * 24 + hour) * 60 + minute) * 60 + second, good


def _two(chars: NDArray[np.uint8], place: int, good: Bools) -> NDArray[np.uint8]:
    """Return the number that two digits are."""
    tens: NDArray[np.uint8]
    tens, ones = chars[place] - np.uint8(_ZERO), chars[place + 1] - np.uint8(_ZERO)
    good &= (tens < 10) & (ones < 10)
    tens *= np.uint8(10)
    tens += ones
    return tens
