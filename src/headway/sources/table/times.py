"""Moments and lengths as tables write them, in whole nanoseconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

from headway.clock import NS_PER_S

UNITS_NS: Final = {
    "ns": 1, "us": 1000, "ms": 1000**2, "s": NS_PER_S, "min": 60 * NS_PER_S, "h": 3600 * NS_PER_S,
}  # fmt: skip
"""Units of numbers [ns]."""
MISSING: Final = frozenset({"", "-", "na", "n/a", "nan", "nat", "nil", "none", "null", "unknown", "\\n"})
"""What tables write where they know nothing, in lower case."""
LIMIT_NS: Final = 1 << 62
"""Moments and lengths beyond are damage: 146 years [ns]."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER: Final = re.compile(r"[+-]?(\d{1,25}(\.\d{0,25})?|\.\d{1,25})([eE][+-]?\d{1,2})?", re.ASCII)
_FEW_DIGITS: Final = 20
_MOST_DIGITS: Final = 60
_SHORTEST: Final = len("2020-01-01 00:00")


def number(text: str) -> Decimal:
    """Return the decimal number that a text is, exactly.

    Raises:
        ValueError: It is none, or none of a size that anything here has.

    Example:
        >>> number("10.50"), number(" 7 ")
        (Decimal('10.50'), Decimal('7'))
    """
    if _NUMBER.fullmatch(text := text.strip()) is None:
        comma = text.count(",") == 1 and len(text) < _MOST_DIGITS and _NUMBER.fullmatch(text.replace(",", "."))
        raise ValueError("is no number: write its comma as a point" if comma else "is no number")
    return Decimal(text)


def length_ns(text: str, unit_ns: int) -> int:
    """Return a length of time [ns].

    Args:
        text: The number.
        unit_ns: Its unit [ns].

    Raises:
        ValueError: It is no number, or gigantic.

    Example:
        >>> length_ns("1.5", UNITS_NS["ms"])
        1500000
    """
    digits = text.replace(".", "", 1)
    scale = 10 ** len(text.partition(".")[2]) if len(text) < _FEW_DIGITS else 0
    if scale and unit_ns % scale == 0 and digits.isascii() and digits.isdigit():
        ns = int(digits) * (unit_ns // scale)
    else:
        ns = round(number(text) * unit_ns)
    if abs(ns) > LIMIT_NS:
        raise ValueError("is longer than 146 years")
    return ns


@dataclass
class Times:
    """How a table writes moments, and what reading them left open.

    Attributes:
        unit: ``iso``, a unit of numbers, or a format of `datetime.strptime`.
        zone: Of times that name none; None: UTC, and how many there were is counted.
        origin_ns: What numbers are counted from [ns since the Unix epoch].
        n_local: Times without a zone that were taken for UTC.
        n_twice: Local times that clocks show twice, or never, where they are put forward or back.
    """

    unit: str = "iso"
    zone: tzinfo | None = None
    origin_ns: int = 0
    n_local: int = 0
    n_twice: int = 0
    _text: str | None = None
    _ns: int = 0
    _fold: int = 0

    def read(self, text: str) -> int:
        """Return a moment [ns since the Unix epoch].

        Raises:
            ValueError: It is none.

        Example:
            >>> Times().read("2020-06-09 18:41:01+08:00")
            1591699261000000000
            >>> Times("ms").read("1591699261000")
            1591699261000000000
        """
        if text == self._text:  # many jobs start as they are submitted
            return self._ns
        unit_ns = UNITS_NS.get(self.unit)
        ns = self._clock(text) if unit_ns is None else length_ns(text, unit_ns) + self.origin_ns
        if not -LIMIT_NS <= ns <= LIMIT_NS:
            raise ValueError("is more than 146 years from 1970")
        self._text, self._ns = text, ns
        return ns

    def after(self, text: str) -> int:
        """Return a moment as `read` does, but one that clocks show twice as after they were put back; uncounted.

        Example:
            >>> times = Times(zone=ZoneInfo("Europe/Zurich"))
            >>> times.after("2024-10-27 02:30:00") - times.read("2024-10-27 02:30:00") == 3600 * NS_PER_S
            True
        """
        left = self.n_local, self.n_twice, self._text, self._ns
        self._text, self._fold = None, 1
        try:
            return self.read(text)
        finally:
            self._fold = 0
            self.n_local, self.n_twice, self._text, self._ns = left

    def passed(self, first: str, last: str, n_others: int, *, local: bool) -> None:
        """Count moments that were read elsewhere as if each had been read here, and none of them twice by the clock.

        Args:
            first: The first of them.
            last: The last.
            n_others: How many of those after the first differ from the one before.
            local: Whether they name no zone.
        """
        if local and self.zone is None:
            self.n_local += n_others + (first != self._text)
        n_local, n_twice = self.n_local, self.n_twice
        self._text = None
        self.read(last)
        self.n_local, self.n_twice = n_local, n_twice

    def _clock(self, text: str) -> int:
        try:
            if self.unit != "iso":
                moment = datetime.strptime(text.strip(), self.unit)  # noqa: DTZ007 - its zone is given below
            elif len(text) >= _SHORTEST:
                moment = datetime.fromisoformat(text if text[-1] > " " and text[0] > " " else text.strip())
            else:
                raise ValueError  # noqa: TRY301 - the same sentence as below
            since = (moment if moment.tzinfo is not None else self._placed(moment)) - _EPOCH
        except (ValueError, OverflowError):
            raise ValueError("is no time") from None
        return (since.days * 86_400 + since.seconds) * NS_PER_S + since.microseconds * 1000

    def _placed(self, moment: datetime) -> datetime:
        if self.zone is None:
            self.n_local += 1
            return moment.replace(tzinfo=UTC)
        moment = moment.replace(tzinfo=self.zone, fold=self._fold)
        if isinstance(self.zone, ZoneInfo) and moment.utcoffset() != moment.replace(fold=1 - self._fold).utcoffset():
            self.n_twice += 1
        return moment

    def sentences(self) -> list[str]:
        """Return what reading left open, a sentence each."""
        said = []
        if self.n_local:
            said.append(
                f"{self.n_local} times name no zone and are read as UTC: where local clocks were put forward or back "
                "in between, lengths are wrong by that hour; a mapping can name the zone"
            )
        if self.n_twice:
            said.append(
                f"{self.n_twice} local times are in an hour in which clocks were put forward or back: each is read "
                "as before the change where it can be, and lengths may be wrong by that hour"
            )
        return said
