"""A moment as most programs write it, read quickly: for the line that is plain from its beginning to its end."""

from __future__ import annotations

from datetime import datetime
from typing import Final

MOMENT: Final = rb"20[0-3]\d-\d\d-\d\d (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d[,.]\d{3}(?:\d{3})?"
"""The pattern of a date and a time of day to the millisecond or microsecond, that names no zone."""
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - it is UTC, as all that is read here


def moment(text: bytes) -> int:
    """Return what matches `MOMENT` as `headway.sources.logline.stamp` would read it, as UTC [ns since the Unix epoch].

    Raises:
        ValueError: There is no such day.

    Example:
        >>> moment(b"2024-01-02 03:04:05,250"), moment(b"2024-01-02 03:04:05.250000")
        (1704164645250000000, 1704164645250000000)
    """
    since = datetime.fromisoformat(text.decode("ascii")) - _EPOCH
    return ((since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds) * 1000
