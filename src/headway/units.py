"""Time and money as people write and read them: ``10m`` in, ``6.1 s`` out.

Rounding happens here and nowhere else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from headway.clock import NS_PER_S
from headway.errors import ArgumentError

_SECONDS: Final = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3,
    "s": 1, "sec": 1, "second": 1, "seconds": 1,
    "m": 60, "min": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hr": 3600, "hour": 3600, "hours": 3600,
    "d": 86400, "day": 86400, "days": 86400,
    "w": 604800, "week": 604800, "weeks": 604800,
}  # fmt: skip
_DURATION: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)", re.IGNORECASE)
_PRICE: Final = re.compile(
    r"\s*(?P<sign>[$€£])?\s*(?P<amount>\d+(?:\.\d+)?)\s*(?P<currency>[A-Za-z]{3})?\s*(?:/|\s+per\s+)\s*(?P<per>[a-z]+)\s*"
)
_LONGEST_NS: Final = 1000 * 366 * 86400 * NS_PER_S
_MOST_DIGITS: Final = 20
_DAY_S: Final = 86_400
_SIGNS: Final = {"$": "USD", "€": "EUR", "£": "GBP"}


def parse_duration(text: str) -> int:
    """Return a length of time [ns].

    Args:
        text: A number with its unit, such as ``90s``, ``10m``, ``1h30m``, ``2 days``.

    Raises:
        ArgumentError: It is no such text, or not above zero.

    Example:
        >>> parse_duration("1h30m") == 5400 * 10**9
        True
    """
    rest, total_ns = text.strip(), 0
    while rest and (match := _DURATION.match(rest)) and match[2].lower() in _SECONDS:
        seconds = float(match[1]) * _SECONDS[match[2].lower()]
        total_ns += round(min(seconds, _LONGEST_NS) * NS_PER_S)
        rest = rest[match.end() :]
    if rest or not 0 < total_ns <= _LONGEST_NS:
        raise ArgumentError(
            f"Cannot read the duration {text[:40]!r}: it is no number with a unit, above 0 and below 1000 years",
            "Write it as 30s, 10m, 1h30m or 2d",
            "bad-duration",
            text=text,
        )
    return total_ns


def parse_instant(text: str, zone: tzinfo = UTC) -> int:
    """Return a moment of the wall clock [ns since the Unix epoch].

    Args:
        text: Epoch seconds, or ISO 8601.
        zone: Whose time it is where it has no offset.

    Raises:
        ArgumentError: It is neither.

    Example:
        >>> parse_instant("1700000600.5") == parse_instant("2023-11-14T22:23:20.5Z")
        True
    """
    try:
        if re.fullmatch(r"\s*[+-]?\d+(\.\d+)?\s*", text):
            whole, _, part = text.strip().partition(".")
            sign = -1 if whole.startswith("-") else 1
            datetime.fromtimestamp(int(whole) + sign * _DAY_S, UTC)  # no year that cannot be shown, in any zone
            return int(whole) * NS_PER_S + sign * int(part.ljust(9, "0")[:9] or 0)
        moment = datetime.fromisoformat(text.strip())
        moment = moment if moment.tzinfo else moment.replace(tzinfo=zone)
        (moment - timedelta(days=1), moment + timedelta(days=1))
    except (ValueError, OverflowError, OSError) as error:
        raise ArgumentError(
            f"Cannot read the time {text!r}: it is neither epoch seconds nor ISO 8601, or no year from 1 to 9999",
            "Write it as 1700000600 or 2023-11-14T22:23:20Z",
            "bad-time",
            text=text,
        ) from error
    return instant_ns(moment)


def instant_ns(moment: datetime) -> int:
    """Return a moment [ns since the Unix epoch]; without a zone it is UTC.

    Example:
        >>> instant_ns(datetime(2023, 11, 14, 22, 13, 20, 500_000))
        1700000000500000000
    """
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * NS_PER_S + since.microseconds * 1000


@dataclass(frozen=True, slots=True)
class Price:
    """What one device costs for one hour.

    Attributes:
        per_device_hour: The amount of money [currency / h], >= 0.
        currency: Its three-letter code.
    """

    per_device_hour: float
    currency: str = "USD"

    @classmethod
    def parse(cls, text: str) -> Price:
        """Return the price a text such as ``2 USD/h`` names; without a currency it is USD.

        Raises:
            ArgumentError: The text is no price.

        Example:
            >>> Price.parse("$48 per day")
            Price(per_device_hour=2.0, currency='USD')
        """
        match = _PRICE.fullmatch(text)
        if match is None or match["per"].lower() not in _SECONDS or len(match["amount"]) > _MOST_DIGITS:
            raise ArgumentError(
                f"Cannot read the price {text[:40]!r}: it is no amount of money for a time",
                'Write it as "2 USD/h", the price of one device for one hour',
                "bad-price",
                text=text,
            )
        hours = _SECONDS[match["per"].lower()] / 3600
        currency = match["currency"] or _SIGNS.get(match["sign"] or "$", "USD")
        return cls(float(match["amount"]) / hours, currency.upper())

    def cost(self, device_seconds: float) -> float:
        """Return what that much device-time costs [currency].

        Example:
            >>> Price(2.0).cost(1800)
            1.0
        """
        return self.per_device_hour * device_seconds / 3600


def show_seconds(seconds: float) -> str:
    """Return a length of time for a person, three figures or so.

    Example:
        >>> [show_seconds(s) for s in (0.00002, 0.25, 41.23, 5400, 259200)]
        ['20 us', '250 ms', '41.2 s', '1.50 h', '3.00 d']
    """
    size = abs(seconds)
    for limit, scale, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "us"), (1, 1e3, "ms")):
        if 0 < size < limit:
            return f"{seconds * scale:.3g} {unit}"
    if size < 600:
        return f"{seconds:.1f} s"
    for limit, scale, unit in ((5400, 60, "min"), (172800, 3600, "h")):
        if size < limit:
            return f"{seconds / scale:.{1 if unit == 'min' else 2}f} {unit}"
    return f"{seconds / 86400:,.2f} d"


def show_bytes(*sizes: float) -> str:
    """Return sizes for a person, in one unit: that of the largest; 1e9 bytes are a GB.

    Example:
        >>> show_bytes(4_104_000_000), show_bytes(94_000_000, 12_345_678_901), show_bytes(0)
        ('4.10 GB', '0.09 of 12.35 GB', '0 kB')
    """
    largest, (scale, unit, digits) = max(map(abs, sizes)), (1e3, "kB", 0)
    for larger in ((1e6, "MB", 0), (1e9, "GB", 2), (1e12, "TB", 2)):
        if largest >= 0.9995 * larger[0]:
            scale, unit, digits = larger
    return f"{' of '.join(f'{size / scale:,.{digits}f}' for size in sizes)} {unit}"


def show_percent(fraction: float) -> str:
    """Return a fraction as percent; 100.0 and 0.0 are printed only when they are true.

    Example:
        >>> [show_percent(f) for f in (1, 0.99999, 0.613, 0.00001, 0)]
        ['100.0 %', '99.9 %', '61.3 %', '<0.1 %', '0.0 %']
    """
    percent = round(fraction * 100, 1)
    if percent >= 100 and fraction < 1:
        percent = 99.9
    return "<0.1 %" if percent == 0 and fraction > 0 else f"{percent:.1f} %"


def show_money(amount: float, currency: str) -> str:
    """Return an amount of money; cents only where they matter.

    Example:
        >>> show_money(41573.376, "USD"), show_money(1.5, "EUR")
        ('41,573 USD', '1.50 EUR')
    """
    return f"{amount:,.0f} {currency}" if abs(amount) >= 1000 else f"{amount:,.2f} {currency}"
