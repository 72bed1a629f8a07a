"""Lines of MLPerf logs: ``:::MLLOG {json}`` anywhere in a line, among whatever else a job prints."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from headway.sources import files
from headway.sources.columns import BOUND
from headway.sources.text import Complaints, clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

MARK: Final = b":::MLLOG"
SYSTEM_MARK: Final = b":::SYSJSON"
NS_PER_MS: Final = 1_000_000
KEYS: Final = (
    "*_stop", "block_stop", "epoch_stop", "eval_stop", "run_stop",
    "init_start", "run_start", "block_start", "epoch_start", "eval_start", "*",
)  # fmt: skip
"""Keys whose times count, and all others, in the order in which records of one millisecond are taken."""
FACTS: Final = ("number_of_nodes", "accelerators_per_node", "number_of_ranks")
NAMES: Final = ("submission_benchmark", "submission_org", "submission_platform")
_KEPT: Final = frozenset((*FACTS, *NAMES))
_PLACEHOLDER: Final = "PLACEHOLDER"
_CODES: Final = {key: code for code, key in enumerate(KEYS) if "*" not in key}
_RUN_STOP: Final = _CODES["run_stop"]
_OTHER_STOP: Final = 0
_OTHER: Final = len(KEYS) - 1
_LAST_MS: Final = BOUND // NS_PER_MS
_BARE: Final = "without metadata"
_json: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Stop:
    """What a ``run_stop`` says.

    Attributes:
        time_ns: When it was written [ns since the Unix epoch].
        status: How the run ended; empty where that is not said.
        line: Its number in the file, from 1.
    """

    time_ns: int
    status: str
    line: int


@dataclass(frozen=True, eq=False)
class Records:
    """Records as columns, in the order of time; in one millisecond what ends comes before what begins.

    Attributes:
        times: When each was written, ``(n,)`` [ns since the Unix epoch].
        codes: The place of its key in `KEYS`, ``(n,)``.
        stops: What each ``run_stop`` says, in the same order.
    """

    times: NDArray[np.int64]
    codes: NDArray[np.uint8]
    stops: Sequence[Stop] = ()

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.times)

    def of(self, key: str) -> NDArray[np.int64]:
        """Return when the records of a key were written."""
        return self.times[np.flatnonzero(self.codes == KEYS.index(key))]


@dataclass(frozen=True, eq=False)
class Log:
    """What a file says.

    Attributes:
        records: All its records.
        facts: By key, what its first record says, of the keys in `FACTS` and `NAMES`.
        system: What the submission's system line says; empty where there is none.
        warnings: What could not be read, a sentence each.
    """

    records: Records
    facts: dict[str, Any]
    system: dict[str, Any]
    warnings: tuple[str, ...]


class _Metadata(msgspec.Struct):
    status: Any = None


class _Record(msgspec.Struct):
    key: str
    time_ms: Any = None
    metadata: _Metadata | None = None
    value: Any = None


_decode: Final = msgspec.json.Decoder(_Record).decode


def read(path: Path) -> Log:
    """Return what a file says.

    Raises:
        OSError: It cannot be read.
    """
    bad = Complaints(clean(path.name))
    said = _Said()
    system: dict[str, Any] = {}
    for number, line in files.lines(path):
        if MARK in line:
            for text in line.split(MARK)[1:]:
                try:
                    said.take(number, *(_usual(text, number, bad) or _any(text, number, bad)))
                except ValueError as error:
                    bad.add("no record, passed over", number, str(error))
        elif SYSTEM_MARK in line and not system:
            system = _object(line.split(SYSTEM_MARK, 1)[1]) or {}
    return Log(said.records(), {key: value for key, (_, value) in said.facts.items()}, system, tuple(bad.sentences()))


def _usual(text: bytes, number: int, bad: Complaints) -> tuple[int, str, object, object] | None:
    """Return time [ns], key, value and status of a record as it mostly is; None where it must be looked at closer."""
    try:
        found = _decode(text[text.find(b"{") : text.rfind(b"}") + 1])
    except (ValueError, RecursionError):
        return None
    at = found.time_ms
    if type(at) is not int or not 0 <= at <= _LAST_MS:
        return None
    if found.metadata is None:
        bad.add(_BARE, number)
        return at * NS_PER_MS, found.key, found.value, None
    return at * NS_PER_MS, found.key, found.value, found.metadata.status


def _any(text: bytes, number: int, bad: Complaints) -> tuple[int, str, object, object]:
    """Return time [ns], key, value and status of a record, whatever stands around it.

    Raises:
        ValueError: It is none.
    """
    found = _object(text)
    if found is None:
        raise ValueError("its JSON is malformed")
    key = found.get("key")
    if not isinstance(key, str):
        raise ValueError("it has no key")  # noqa: TRY004  a value from a file, not an argument
    metadata = found.get("metadata")
    if not isinstance(metadata, dict):
        bad.add(_BARE, number)
        metadata = {}
    return time_ns(found.get("time_ms")), key, found.get("value"), metadata.get("status")


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


class _Said:
    """What was said so far: of every record its time and the code of its key, all else of few."""

    def __init__(self) -> None:
        self.facts: dict[str, tuple[tuple[int, str], object]] = {}
        self._times = array("q")
        self._codes = bytearray()
        self._stops: list[Stop] = []

    def take(self, line: int, at: int, key: str, value: object, status: object) -> None:
        """Keep what a record says."""
        code = _CODES.get(key)
        if code is None:
            code = _OTHER_STOP if key.endswith("_stop") else _OTHER
            if key in _KEPT and (key not in NAMES or (isinstance(value, str) and _PLACEHOLDER not in value)):
                order = at, _shown(status)
                if key not in self.facts or order < self.facts[key][0]:
                    self.facts[key] = order, value
        elif code == _RUN_STOP:
            self._stops.append(Stop(at, _shown(status), line))
        self._times.append(at)
        self._codes.append(code)

    def records(self) -> Records:
        """Return all records."""
        times, codes = np.frombuffer(self._times, np.int64), np.frombuffer(self._codes, np.uint8)
        later = times[1:] > times[:-1]
        later |= (times[1:] == times[:-1]) & (codes[1:] >= codes[:-1])
        if not later.all():
            order = np.lexsort((codes, times))
            times, codes = times[order], codes[order]
        return Records(times, codes, sorted(self._stops, key=lambda stop: (stop.time_ns, stop.status)))


def _shown(status: object) -> str:
    return clean(str(status)) if status is not None else ""


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
