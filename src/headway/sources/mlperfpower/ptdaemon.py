"""Lines of SPEC's PTDaemon: ``Time,MM-DD-YYYY hh:mm:ss.mmm,Watts,…``, local times without a zone."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta, tzinfo
from typing import Final

from headway.clock import NS_PER_S
from headway.sources.mllog import time_ns
from headway.sources.text import clean

BEGINS: Final = b"Time,"
_MINUTE: Final = re.compile(rb"(\d\d)-(\d\d)-(\d{4}) (\d\d):(\d\d)")
_MARK: Final = re.compile(rb",Mark,(\d{4})-(\d\d)-(\d\d)_")
"""What power-dev, which drives MLPerf's measurements, calls each: after when it began."""
_NEAR: Final = timedelta(days=7)
"""A measurement takes less; the two readings of one date are four weeks apart or more."""


class Clock:
    """The times of the lines of one file.

    Args:
        zone: Whose they are.
        is_day_first: Whether the day stands before the month, as a meter's computer may be set to.

    Attributes:
        n_lines: How many it was asked for.

    Example:
        >>> from datetime import UTC
        >>> clock = Clock(UTC)
        >>> clock.ns(b"Time,01-13-1970 00:00:01.500,Watts,22.95") / NS_PER_S
        1036801.5
        >>> clock.is_either, clock.is_otherwise
        (False, False)
    """

    def __init__(self, zone: tzinfo, is_day_first: bool = False) -> None:
        self.n_lines = 0
        self._zone = zone
        self._is_day_first = is_day_first
        self._minute: tuple[bytes, int] = (b"", 0)
        self._n_fit = self._n_other = self._n_either = 0

    @property
    def _order(self) -> str:
        return "day" if self._is_day_first else "month"

    @property
    def is_either(self) -> bool:
        """Whether a date is another one in the other order, and no line tells which it is."""
        return self._n_either > 0 and self._n_fit == 0

    @property
    def is_otherwise(self) -> bool:
        """Whether more dates are wrong in this order than in the other one."""
        return self._n_other > self._n_fit

    def ns(self, line: bytes) -> int:
        """Return the time of a line [ns since the Unix epoch]; that of its minute is kept for the next one.

        Raises:
            ValueError: It is none.
        """
        self.n_lines += 1
        text = line[5 : line.find(b",", 5)]
        minute, second = text[:16], text[17:]
        if minute != self._minute[0]:
            self._minute = (minute, self._minute_ns(minute, _MARK.search(line)))
        seconds = float(second)
        if not 0 <= seconds < 61:
            raise ValueError("its time is no time of day")
        return self._minute[1] + round(seconds * NS_PER_S)

    def _minute_ns(self, minute: bytes, mark: re.Match[bytes] | None) -> int:
        found = _MINUTE.fullmatch(minute)
        if found is None:
            raise ValueError(f"its time, {clean(minute.decode('ascii', 'replace'))}, is none")
        first, second, year, hour, minutes = map(int, found.groups())
        month, day = (second, first) if self._is_day_first else (first, second)
        this, other = _date(year, month, day), _date(year, day, month)
        if this is not None and other is not None and this != other:
            began = _date(*map(int, mark.groups())) if mark else None
            fits, differs = (began is not None and abs(one - began) < _NEAR for one in (this, other))
            self._n_either += not (fits or differs)
        else:
            fits, differs = other is None, this is None
        self._n_fit += fits and this is not None
        self._n_other += differs and other is not None
        if this is None:
            raise ValueError(f"its date, {minute[:10].decode()}, is none with the {self._order} first")
        moment = datetime(year, month, day, hour, minutes, tzinfo=self._zone)
        return time_ns(round(moment.timestamp() * 1000))


def _date(year: int, month: int, day: int) -> date | None:
    """Return a date; None where there is none such."""
    try:
        return date(year, month, day)
    except ValueError:
        return None


def watts(line: bytes) -> float:
    """Return the power that a line says: of several channels the first, which is their sum [W].

    Raises:
        ValueError: It says none, as where the meter failed.
    """
    fields = line.split(b",", 4)
    try:
        if fields[2] == b"Watts":
            return float(fields[3])
        if fields[2] == b"ERROR":
            said = b",".join(fields[3:]).decode("utf-8", "replace")
            raise ValueError(f"the meter's error: {clean(said)}")
        fields = line.split(b",")
        if b"Watts" in fields:
            return float(fields[fields.index(b"Watts") + 1])
    except IndexError:
        pass
    raise ValueError("it has no Watts")
