"""Lines of MLPerf logs: ``:::MLLOG {json}`` anywhere in a line, among whatever else a job prints.

Those of v0.6 are ``:::MLL <seconds> <key>: {json}``, those of v0.5 ``:::MLPv0.5.0 <benchmark> <seconds> (<place>)
<key>: <json>``, where the value is left out if there is none.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from headway.clock import NS_PER_S
from headway.sources import files
from headway.sources.columns import BOUND
from headway.sources.jsonstring import unescaped
from headway.sources.text import Complaints, clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

MARK: Final = b":::MLLOG"
ANY_MARK: Final = re.compile(rb":::ML(?:LOG|L \d|Pv0\.5\.\d \w)")
"""What a line of any version holds."""
_MARKS: Final = b":::ML"
SYSTEM_MARK: Final = b":::SYSJSON"
NS_PER_MS: Final = 1_000_000
KEYS: Final = (
    "*_stop", "block_stop", "epoch_stop", "eval_stop", "staging_stop", "run_stop",
    "init_start", "run_start", "block_start", "epoch_start", "eval_start", "staging_start",
    "eval_accuracy", "*",
)  # fmt: skip
"""Keys whose times count, and all others, in the order in which records of one millisecond are taken."""
FACTS: Final = ("number_of_nodes", "accelerators_per_node", "number_of_ranks")
NAMES: Final = ("submission_benchmark", "submission_org", "submission_platform")
_KEPT: Final = frozenset((*FACTS, *NAMES))
_INSTANCE: Final = "instance_id"
_MANY: Final = 1024
_PLACEHOLDER: Final = "PLACEHOLDER"
_CODES: Final = {key: code for code, key in enumerate(KEYS) if "*" not in key}
_CODES["train_epoch"] = _CODES["epoch_start"]  # of v0.5, which says nothing where an epoch ends
_CODES["eval_error"] = _CODES["eval_accuracy"]
_RUN_STOP: Final = _CODES["run_stop"]
_OTHER_STOP: Final = 0
_OTHER: Final = len(KEYS) - 1
_LAST_MS: Final = BOUND // NS_PER_MS
_BARE: Final = "without metadata"
_NO_NUMBER: Final = -1
_USUAL: Final = 1 << 60
"""An epoch below it is its own hash."""
_V06: Final = re.compile(rb":::MLL (\d{1,12}(?:\.\d{1,9})?) (\w{1,100}):")
_V05: Final = re.compile(
    rb":::MLPv0\.5\.\d (\w{1,100}) (\d{1,12}(?:\.\d{1,9})?) \([^()]{0,4096}\) (\w{1,100})(?::| |\r|\n|\Z)"
)
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
        numbers: That of its epoch, or what stands for it, ``(n,)``; -1 where it names none.
        stops: What each ``run_stop`` says, in the same order.
    """

    times: NDArray[np.int64]
    codes: NDArray[np.uint8]
    numbers: NDArray[np.int64]
    stops: Sequence[Stop] = ()

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.times)

    def of(self, key: str) -> NDArray[np.int64]:
        """Return when the records of a key were written."""
        return self.times[self._places(key)]

    def numbers_of(self, key: str) -> NDArray[np.int64]:
        """Return the numbers of the records of a key, in the same order."""
        return self.numbers[self._places(key)]

    def _places(self, key: str) -> NDArray[np.intp]:
        return np.flatnonzero(self.codes == KEYS.index(key))


@dataclass(frozen=True, eq=False)
class Log:
    """What a file says.

    Attributes:
        records: All its records.
        facts: By key, what its first record says, of the keys in `FACTS` and `NAMES`.
        system: What the submission's system line says; empty where there is none.
        warnings: What could not be read, a sentence each.
        instances: By name, of trainings that HPC's weak scaling runs at one time, when each spoke first and last [ns].
    """

    records: Records
    facts: dict[str, Any]
    system: dict[str, Any]
    warnings: tuple[str, ...]
    instances: dict[str, tuple[int, int]]


class _Metadata(msgspec.Struct):
    status: Any = None
    instance_id: Any = None
    first_epoch_num: Any = None
    epoch_num: Any = None


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
                    said.take(number, _usual(text, number, bad) or _any(unescaped(text), number, bad))
                except ValueError as error:
                    bad.add("no record, passed over", number, str(error))
        elif _MARKS in line:
            for mark in ANY_MARK.finditer(line):
                try:
                    said.older(number, unescaped(line[mark.start() :]))
                except ValueError as error:
                    bad.add("no record, passed over", number, str(error))
        elif SYSTEM_MARK in line and not system:
            system = _object(unescaped(line.split(SYSTEM_MARK, 1)[1])) or {}
    facts = {key: value for key, (_, value) in said.facts.items()}
    return Log(said.records(), facts, system, tuple(bad.sentences()), said.instances)


_Told = tuple[int, str, object, object, object, object]
"""Time [ns], key, value, status and epoch of a record, and of which of several trainings at one time it is."""


def _usual(text: bytes, number: int, bad: Complaints) -> _Told | None:
    """Return what a record says as it mostly is; None where it must be looked at closer."""
    try:
        found = _decode(text[text.find(b"{") : text.rfind(b"}") + 1])
    except (ValueError, RecursionError):
        return None
    at = found.time_ms
    if type(at) is not int or not 0 <= at <= _LAST_MS:
        return None
    if found.metadata is None:
        bad.add(_BARE, number)
        return at * NS_PER_MS, found.key, found.value, None, None, None
    said = found.metadata
    epoch = said.epoch_num if said.first_epoch_num is None else said.first_epoch_num
    return at * NS_PER_MS, found.key, found.value, said.status, epoch, said.instance_id


def _any(text: bytes, number: int, bad: Complaints) -> _Told:
    """Return what a record says, whatever stands around it.

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
    told = key, found.get("value"), metadata.get("status"), _epoch(metadata), metadata.get("instance_id")
    return time_ns(found.get("time_ms")), *told


def _epoch(metadata: dict[str, Any]) -> object:
    first = metadata.get("first_epoch_num")
    return metadata.get("epoch_num") if first is None else first


def _v06(text: bytes) -> _Told:
    """Return what a record of v0.6 says.

    Raises:
        ValueError: It is none.
    """
    mark = _V06.match(text)
    found = _object(text[mark.end() :]) if mark else None
    if mark is None or found is None:
        raise ValueError("it is no time, key and JSON")
    metadata = found.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return _seconds_ns(mark[1]), mark[2].decode(), found.get("value"), metadata.get("status"), _epoch(metadata), None


def _v05(text: bytes) -> tuple[str, _Told]:
    """Return the benchmark, and what a record of v0.5 says: its value is the epoch, if it is a number.

    Raises:
        ValueError: It is none.
    """
    mark = _V05.match(text)
    if mark is None:
        raise ValueError("it is no benchmark, time, place and key")
    value: object = None
    try:
        value, _ = _json.raw_decode(text[mark.end() :].decode("utf-8", "replace").strip())
    except (ValueError, RecursionError):
        value = None
    key, status, epoch = mark[3].decode(), None, value
    if isinstance(value, dict):
        epoch, success = value.get("epoch"), value.get("success")
        if key == "run_stop" and success is not None:
            status = "success" if success in {True, "true", "True"} else "aborted"
    return mark[1].decode(), (_seconds_ns(mark[2]), key, value, status, epoch, None)


def _seconds_ns(text: bytes) -> int:
    """Return seconds, written with at most nine digits behind the point, as nanoseconds [ns].

    Raises:
        ValueError: 64 bits can't hold them.
    """
    whole, _, fraction = text.partition(b".")
    at = int(whole) * NS_PER_S + int(fraction.ljust(9, b"0"))
    if at > BOUND:
        raise ValueError(f"its time, {clean(text.decode(), 40)}, is out of range")
    return at


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
        self.instances: dict[str, tuple[int, int]] = {}
        self._times = array("q")
        self._codes = bytearray()
        self._numbers = array("q")
        self._stops: list[Stop] = []

    def older(self, line: int, text: bytes) -> None:
        """Keep what a record of an older version says, which a line goes on with.

        Raises:
            ValueError: It is none.
        """
        if text.startswith(b":::MLL "):
            self.take(line, _v06(text))
        else:
            benchmark, said = _v05(text)
            self.take(line, (said[0], NAMES[0], benchmark, None, None, None))
            self.take(line, said)

    def take(self, line: int, told: _Told) -> None:
        """Keep what a record says."""
        at, key, value, status, epoch, instance = told
        if key == _INSTANCE:
            instance = value
        if instance is not None and len(self.instances) < _MANY:
            first, last = self.instances.get(name := _shown(instance), (at, at))
            self.instances[name] = min(first, at), max(last, at)
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
        self._numbers.append(_NO_NUMBER if epoch is None else _number_of(epoch))

    def records(self) -> Records:
        """Return all records."""
        times, codes = np.frombuffer(self._times, np.int64), np.frombuffer(self._codes, np.uint8)
        numbers = np.frombuffer(self._numbers, np.int64)
        later = times[1:] > times[:-1]
        later |= (times[1:] == times[:-1]) & (codes[1:] >= codes[:-1])
        if not later.all():
            order = np.lexsort((codes, times))
            times, codes, numbers = times[order], codes[order], numbers[order]
        return Records(times, codes, numbers, sorted(self._stops, key=lambda stop: (stop.time_ns, stop.status)))


def _number_of(epoch: object) -> int:
    """Return the same number for equal epochs, which may be fractions; -1 where there is none.

    Example:
        >>> _number_of(3), _number_of(3.0), _number_of("3"), _number_of(None)
        (3, 3, 3, -1)
    """
    if type(epoch) is int and 0 <= epoch < _USUAL:
        return epoch
    if isinstance(epoch, str) and epoch.isdecimal() and len(epoch) < 19:
        epoch = int(epoch)
    is_number = isinstance(epoch, int | float) and not isinstance(epoch, bool) and not math.isnan(_small(epoch))
    return hash(epoch) if is_number else _NO_NUMBER


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
