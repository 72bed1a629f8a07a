"""Lines of MLPerf logs: ``:::MLLOG {json}`` anywhere in a line, among whatever else a job prints."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from headway.sources import files
from headway.sources.columns import BOUND
from headway.sources.text import Complaints, clean

MARK: Final = b":::MLLOG"
SYSTEM_MARK: Final = b":::SYSJSON"
NS_PER_MS: Final = 1_000_000
_ORDER: Final = {"run_stop": 1, "init_start": 2, "run_start": 3}
_json: Final = json.JSONDecoder()


@dataclass(frozen=True)
class Record:
    """One line.

    Attributes:
        time_ns: When it was written [ns since the Unix epoch].
        key: What it says.
        value: Its value.
        metadata: What else it says.
        line: Its number in the file, from 1.
    """

    time_ns: int
    key: str
    value: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    line: int = 0

    @property
    def status(self) -> str:
        """What ``run_stop`` says of the run; empty when nothing."""
        status = self.metadata.get("status")
        return clean(str(status)) if status is not None else ""

    @property
    def order(self) -> tuple[int, int, str]:
        """By time; in one millisecond what ends comes before what begins, wherever the lines stand."""
        rank = _ORDER.get(self.key, 0 if self.key.endswith("_stop") else 4)
        return self.time_ns, rank, self.status


@dataclass(frozen=True)
class Log:
    """A file's records in the order of time.

    Attributes:
        records: Each record.
        system: What the submission's system line says; empty where there is none.
        warnings: What could not be read, a sentence each.
    """

    records: tuple[Record, ...]
    system: dict[str, Any]
    warnings: tuple[str, ...]


def read(path: Path) -> Log:
    """Return the records of a file.

    Raises:
        OSError: It cannot be read.
    """
    bad = Complaints(clean(path.name))
    records: list[Record] = []
    system: dict[str, Any] = {}
    for number, line in files.lines(path):
        if MARK in line:
            records += _records(line, number, bad)
        elif SYSTEM_MARK in line and not system:
            system = _object(line.split(SYSTEM_MARK, 1)[1]) or {}
    return Log(tuple(sorted(records, key=lambda record: record.order)), system, tuple(bad.sentences()))


def _records(line: bytes, number: int, bad: Complaints) -> Iterator[Record]:
    for text in line.split(MARK)[1:]:
        try:
            yield _record(_object(text), number, bad)
        except ValueError as error:
            bad.add("no record, passed over", number, str(error))


def _object(text: bytes) -> dict[str, Any] | None:
    """Return the first JSON object in a text; None where there is none."""
    decoded = text.decode("utf-8", "replace")
    start = decoded.find("{")
    if start < 0:
        return None
    try:
        found, _ = _json.raw_decode(decoded, start)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _record(found: dict[str, Any] | None, number: int, bad: Complaints) -> Record:
    if found is None:
        raise ValueError("its JSON is malformed")
    key = found.get("key")
    if not isinstance(key, str):
        raise ValueError("it has no key")  # noqa: TRY004  a value from a file, not an argument
    metadata = found.get("metadata")
    if not isinstance(metadata, dict):
        bad.add("without metadata", number)
        metadata = {}
    return Record(time_ns(found.get("time_ms")), key, found.get("value"), metadata, number)


def time_ns(value: object) -> int:
    """Return a ``time_ms`` as nanoseconds [ns since the Unix epoch].

    Raises:
        ValueError: It is no moment from 1970 on that 64 bits can hold.

    Example:
        >>> time_ns(1755476345692), time_ns("1755476345692"), time_ns(0.5)
        (1755476345692000000, 1755476345692000000, 500000)
    """
    number = _number(value)
    if not 0 <= number * NS_PER_MS <= BOUND:
        raise ValueError(f"its time_ms, {clean(str(value), 40)}, is out of range")
    whole = int(number)
    return whole * NS_PER_MS + round((number - whole) * NS_PER_MS)


def _number(value: object) -> int | float:
    """Return the number a value is, or spells."""
    if isinstance(value, str) and len(value) < 40:
        try:
            value = int(value) if value.strip().isdecimal() else float(value)
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(_small(value)):
        raise ValueError("its time_ms is no number")
    return value


def _small(value: float) -> float:
    """Return the number, or 0 for an int no float can hold: it is finite, and out of range."""
    return 0.0 if isinstance(value, int) else value


def whole(value: object) -> int | None:
    """Return a count from a log, which may be spelt in a string; None when it is no count above zero.

    Example:
        >>> whole("8"), whole(36), whole("many"), whole(-1)
        (8, 36, None, None)
    """
    if isinstance(value, str) and len(value) < 10 and value.isdecimal():
        value = int(value)
    good = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31
    return value if good and isinstance(value, int) else None
