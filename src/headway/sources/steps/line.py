"""One line of a log: what a launcher and what kept the log put around it, when it was written, what it ends."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from headway.clock import NS_PER_S
from headway.sources import files
from headway.sources.columns import BOUND
from headway.sources.text import clean

if TYPE_CHECKING:
    from pathlib import Path

LONGEST: Final = 366 * 86400 * NS_PER_S
"""No step and no span takes longer [ns]."""
LOOKED_AT: Final = 16 << 20
"""How far into a file a source looks to recognise it [bytes]."""
_PIECE: Final = 1 << 18
_COLOURS: Final = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
RANK: Final = re.compile(
    r"\s*(?:\[(?:default|rank ?|1,)(\d{1,7})\](?:<\w{1,9}>)?:?|(\d{1,7}):(?=\s))\s?", re.IGNORECASE
)
KEPT: Final = re.compile(
    r"(?:\[pod/[^\]\s]{1,300}\] ?)?"
    r"(?:(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)) "
    r"(?:std(?:out|err) [FP] |[^\s\[\]:]{1,64} [^\s\[\]]{1,64}\[\d{1,10}\]: )?)?"
)
"""What containers' logs, ``docker logs -t``, ``kubectl logs --prefix`` and ``journalctl -o short-iso`` put in front."""
KEPT_BEGINS: Final = ("20", "[pod/")
STAMP: Final = re.compile(
    r"(?:\D|(?<!\d)(?:\d{1,3}(?!\d)|\d{4,6}(?![\d/-]))){0,48}?(?<!\d)"
    r"(?:(\d{4})(?:[-/](?=\d\d[-/])|(?<=20\d\d)(?=(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])[ T]))(\d\d)[-/]?(\d\d)"
    r"|(\d\d)/(\d\d)/(\d{4}))[ T](\d\d:\d\d):(\d\d)"
    r"(?:[.,](\d{1,9}))?(?:\s?(Z\b|UTC\b|GMT\b|[+-]\d\d:?\d\d\b))?"
)
_PLAIN_STAMP: Final = re.compile(r" ?\[?(\d{4}-\d\d-\d\d) (\d\d:\d\d):([0-5]\d)(?:[.,](\d{1,9}))?\]")
"""The commonest by far, as `STAMP` would read it."""
MOMENT: Final = rb"20[0-3]\d-\d\d-\d\d (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d[,.]\d{3}(?:\d{3})?"
"""The pattern of a date and a time of day to the millisecond or microsecond, that names no zone."""
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - it is UTC, as all that is read here
_ENDINGS: Final = (
    (b"DUE TO PREEMPTION", "preempted"),
    (b"DUE TO TIME LIMIT", "preempted"),
    (b"Traceback (most recent call last)", "failed"),
    (b"srun: error:", "failed"),
    (b"slurmstepd: error:", "failed"),
    (b"Killing subprocess", "failed"),
    (b"received SIGTERM", "failed"),
    (b"ChildFailedError", "failed"),
    (b"Segmentation fault", "failed"),
    (b"CUDA out of memory", "failed"),
    (b"OutOfMemoryError", "failed"),
)

ENDINGS: Final = tuple(mark for mark, _ in _ENDINGS)
"""A line that holds none of them does not tell of an end."""


class Bare(NamedTuple):
    """A line without what was put around it: its text, and the rank it is from (-1: it does not say)."""

    text: str
    rank: int = -1


def bare(line: bytes) -> Bare:
    r"""Return a line without colour codes, what the keeper of the log put in front, and the prefix of a rank.

    Example:
        >>> bare(b"[rank3]:\x1b[32mstep 1\x1b[0m\r\n"), bare(b" 12: iteration 7"), bare(b"12:30:07 up")
        (Bare(text='step 1', rank=3), Bare(text='iteration 7', rank=12), Bare(text='12:30:07 up', rank=-1))
        >>> bare(b"2024-01-02T03:04:05.123456789Z stdout F [rank0]: step 1")
        Bare(text='step 1', rank=0)
    """
    if b"\x1b" in line:
        line = _COLOURS.sub(b"", line)
    text = line.decode("utf-8", "replace").strip("\r\n\0\ufeff")
    if text.startswith(KEPT_BEGINS) and (kept := KEPT.match(text)):
        text = text[kept.end() :]
    found = None if text[:1].isalpha() else RANK.match(text)
    if found is None:
        return Bare(text)
    return Bare(text[found.end() :], int(found[1] or found[2]))


class Stamp(NamedTuple):
    """A moment at the beginning of a line [ns since the Unix epoch], and whether it names its zone."""

    ns: int
    zoned: bool


def stamp(text: str) -> Stamp | None:
    """Return the date and time that a line begins with, up to 48 characters in; None where it has none.

    A time without a zone is read as UTC: `StepLines` says so.

    Raises:
        ValueError: It looks like one and is none, or is before 1970 or after 2042.

    Example:
        >>> stamp("[2024-01-02 03:04:05,25] step 1"), stamp("[titan] 2024-01-02T05:04:05.25+02:00 x"), stamp("step 1")
        (Stamp(ns=1704164645250000000, zoned=False), Stamp(ns=1704164645250000000, zoned=True), None)
        >>> stamp("[20240102 03:04:05][rank-0/8] step 1"), stamp("[12345678 03:04:05] step 1")
        (Stamp(ns=1704164645000000000, zoned=False), None)
    """
    if found := _PLAIN_STAMP.match(text):
        day, clock, second, fraction = found.groups()
        ns = (_minute(f"{day} {clock}") + int(second)) * NS_PER_S + int((fraction or "0").ljust(9, "0"))
        if 0 <= ns < BOUND:
            return Stamp(ns, zoned=False)
    found = STAMP.match(text)
    if found is None:
        return None
    year, month, day, us_month, us_day, us_year, clock, second, fraction, zone = found.groups()
    minute = _minute(f"{year or us_year}-{month or us_month}-{day or us_day} {clock}")
    ns = (minute + int(second)) * NS_PER_S + int((fraction or "0").ljust(9, "0"))
    if zone and zone[0] in "+-":
        away = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        ns -= (away if zone[0] == "+" else -away) * NS_PER_S
    if not 0 <= ns < BOUND or int(second) > 60:
        raise ValueError(f"{clean(found[0].strip(), 60)!r} is out of range")
    return Stamp(ns, zone is not None)


def kept(line: bytes) -> str | None:
    """Return the time that the keeper of a log put in front of a line; None where it put none.

    Example:
        >>> kept(b"2024-01-02T03:04:05.123456789Z stdout F step 1"), kept(b"2024-01-02 03:04:05 step 1")
        ('2024-01-02T03:04:05.123456789Z', None)
    """
    begins = line[:400].decode("utf-8", "replace")
    found = KEPT.match(begins) if begins.startswith(KEPT_BEGINS) else None
    return found[1] if found else None


def moment(text: bytes) -> int:
    """Return what matches `MOMENT` as `stamp` would read it, as UTC [ns since the Unix epoch].

    Raises:
        ValueError: There is no such day.

    Example:
        >>> moment(b"2024-01-02 03:04:05,250"), moment(b"2024-01-02 03:04:05.250000")
        (1704164645250000000, 1704164645250000000)
    """
    since = datetime.fromisoformat(text.decode("ascii")) - _EPOCH
    return ((since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds) * 1000


@lru_cache(4096)
def _minute(text: str) -> int:
    """Return a date and time of day [s since the Unix epoch]."""
    return int(datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC).timestamp())


def ending(line: bytes) -> str | None:
    """Return how a program ended, as `headway.events.CLOSE_REASONS` say it, if the line tells; else None.

    Example:
        >>> ending(b"Traceback (most recent call last):"), ending(b"all is well")
        ('failed', None)
    """
    for mark, reason in _ENDINGS:
        if mark in line:
            return reason
    return None


def holds(path: Path, head: bytes, mark: bytes, line: re.Pattern[bytes]) -> bool:
    """Return whether a line near the beginning of a file is of a kind, for a source that is asked to recognise it.

    Args:
        path: The file.
        head: Its beginning, see `headway.sources.registry.Source`.
        mark: What such a line holds: looked for first, as it is quick.
        line: What such a line matches, anywhere in it.
    """
    if _found(head, mark, line):
        return True
    left, before = LOOKED_AT, b""
    with suppress(OSError, files.TornError), files.plain(path) as file:
        while left > 0 and (piece := file.read(min(left, _PIECE))):
            left -= len(piece)
            if _found(before + piece, mark, line):
                return True
            before = piece[-4096:]
    return False


def _found(text: bytes, mark: bytes, line: re.Pattern[bytes]) -> bool:
    """Return whether a text holds a line of a kind, without the colours in it."""
    if b"\x1b" in text:
        text = _COLOURS.sub(b"", text)
    return mark in text and line.search(text) is not None


def seconds_ns(text: str | float, unit: float = 1.0) -> int | None:
    """Return a length as nanoseconds; None where it is no number from 0 to a year.

    Args:
        text: A number, or what spells one.
        unit: What it counts [s].

    Example:
        >>> seconds_ns("1.5"), seconds_ns("250", 1e-3), seconds_ns("nan"), seconds_ns("-1")
        (1500000000, 250000000, None, None)
    """
    try:
        value = float(text) * unit
    except (ValueError, OverflowError):
        return None
    return round(value * NS_PER_S) if 0 <= value <= LONGEST / NS_PER_S else None
