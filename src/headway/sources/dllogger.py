"""Logs of DLLogger, as NeMo and NVIDIA's examples write them: ``DLLL {json}`` or ``DLL date - text``, a line a step."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import msgspec
import numpy as np

from headway.clock import NS_PER_S
from headway.sources.columns import BOUND
from headway.sources.mllog import whole
from headway.sources.steps.column import Column, Table
from headway.sources.steps.lines import LONGEST, StepLines, bare, ending, holds, seconds_ns
from headway.sources.text import clean

if TYPE_CHECKING:
    from pathlib import Path

    from headway.ledger.history import Run
    from headway.sources.asked import Asked

MARK: Final = b"DLLL {"
_LINE: Final = re.compile(rb'DLLL \{[^\r\n]{0,400}?"(?:timestamp|elapsedtime|step|type)"')
PRINTED: Final = b"DLL "
_PRINTED: Final = re.compile(
    r"\bDLL (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?) - (?:(?P<parameter>PARAMETER )|"
    r"(?P<kind>[A-Za-z]{1,20} )?(?:Epoch: (?P<epoch>\d{1,15}),? (?:[A-Za-z]{1,20} )?)?Iteration: (?P<step>\d{1,15}) |"
    r"epoch +(?P<epoch_>\d{1,15}) \| iter +(?P<step_>\d{1,15})/(?P<planned>\d{1,15}) \||"
    r"[\[(](?P<_epoch>\d{1,15}), (?P<_step>\d{1,15})[\])] )"
)
"""What DLLogger prints where nothing else was asked for: its steps in the forms of NVIDIA's examples."""
_PRINTED_LINE: Final = re.compile(
    rb"DLL \d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? - (?:[^\r\n:]{0,60}: \d+ |)"
    rb"(?:[A-Za-z]{1,20} )?(?:Iteration: \d+ |epoch +\d+ \| iter +\d+/\d+ \||[\[(]\d+, \d+[\])] )"
)
_VALUE: Final = re.compile(r"(?<!\S)(\S{1,80}) : (-?[\d.]{1,40}(?:[eE][+-]?\d{1,4})?)(?: (ms)\b)?(?!\S)")
_EVALUATED: Final = re.compile(r"\bDLL (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?) - epoch +\d{1,15} \| avg val ")
_ELAPSED: Final = re.compile(r"\| (?:elapsed|took) +([\d.]{1,40}) s\b")
_TIMES: Final = (
    ("train_step_timing in s", 1.0),
    ("train_step_timing", 1.0),
    ("step_time", 1.0),
    ("iteration_time", 1.0),
    ("iter_time", 1.0),
    ("train_iter_time", 1.0),
    ("step_time_ms", 1e-3),
)
"""Under which name a line says how long its step took, and the unit [s]."""
_WAITS: Final = ("data_time", "train_data_time", "dataloading_time", "data_loading_time")
_DEVICES: Final = ("world_size", "num_gpus", "n_gpus", "num_devices", "number_of_gpus", "gpus")
_EVALUATION: Final = re.compile(r"\b(?:val|valid|validation|eval|test)(?:_|uation|\b)", re.IGNORECASE)
_TRAINING: Final = re.compile(r"train|^loss$|^lr$|learning_rate", re.IGNORECASE)
_COUNTERS: Final = ("global_step", "consumed_samples")
_SHORT: Final = 4096
"""The keys of a record no longer than that are remembered [bytes]."""


@dataclass(frozen=True, slots=True)
class _Keys:
    """What the keys of a record tell, whatever their values.

    Attributes:
        times: Those that may say how long the step took, the best first, and their units [s].
        waits: Those that may say what it waited for data.
        evaluates, trains: Whether one is of an evaluation, or of training.
        counts: Whether one counts steps or samples.
    """

    times: tuple[tuple[str, float], ...]
    waits: tuple[str, ...]
    evaluates: bool
    trains: bool
    counts: bool


def _keys(names: tuple[str, ...]) -> _Keys:
    return _Keys(
        tuple((key, unit) for key, unit in _TIMES if key in names),
        tuple(key for key in _WAITS if key in names),
        any(_EVALUATION.search(key) for key in names),
        any(_TRAINING.search(key) for key in names),
        any(key in names for key in _COUNTERS),
    )


_known_keys: Final = lru_cache(64)(_keys)
"""The records of a log have few forms."""


@dataclass
class Log:
    """What a log says.

    Attributes:
        steps: Its step lines and marks.
        elapsed_ns: What the last line says has passed since the program began [ns].
        devices: How many devices its parameters name; None where they name none.
        paired: Which lines of steps tell an epoch and a step, as two numbers, and the epoch.
        planned: How many steps an epoch has, where lines say so; else 0.
    """

    steps: StepLines
    elapsed_ns: int | None = None
    devices: int | None = None
    paired: Table = field(default_factory=lambda: Table("place", "epoch"))
    planned: int = 0


class DLLogger:
    """The source of DLLogger logs."""

    name = "dllogger"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no DLLogger log, or None when it is one."""
        if holds(path, head, MARK, _LINE) or holds(path, head, PRINTED, _PRINTED_LINE):
            return None
        return 'no line in it holds DLLL {"timestamp": ...}, or DLL, a date and an iteration'

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the run of a log.

        Raises:
            SourceError: No line tells of a step, slug ``no-runs``.
            OSError: It cannot be read.
        """
        log = read(path)
        return [log.steps.run(clean(path.stem), asked, devices=log.devices)]


def read(path: Path) -> Log:
    """Return what a log says.

    Raises:
        OSError: It cannot be read.
    """
    log = Log(StepLines(DLLogger.name, path, first=0))
    is_printed = not holds(path, b"", MARK, _LINE)  # else it is there twice
    for number, line in log.steps.lines():
        if MARK in line:
            _record(log, line, number)
        elif is_printed and PRINTED in line:
            _text(log, line, number)
        elif (reason := ending(line)) is not None:
            log.steps.close(reason, line=number)
    if len(log.paired):
        _count_on(log)
    return log


def _record(log: Log, line: bytes, number: int) -> None:
    text = line[line.index(MARK) + len(MARK) - 1 :].strip(b"\r\n\0 ")
    try:
        found = msgspec.json.decode(text[: text.rindex(b"}") + 1])
    except (ValueError, RecursionError, msgspec.DecodeError) as error:
        log.steps.bad.add("no record, left out", number, str(error))
        return
    data = found.get("data")
    if not isinstance(data, dict) or found.get("type", "LOG") != "LOG":
        return
    at_ns = _clock(log, found, number)
    step = found.get("step")
    if isinstance(step, str):
        if step == "PARAMETER":
            _parameters(log, data)
        return
    numbers = [step] if not isinstance(step, list) else step
    if not numbers or not all(type(value) is int for value in numbers):
        return  # a summary of all
    keys = (_known_keys if len(text) <= _SHORT else _keys)(tuple(data))
    _line(log, numbers, data, keys, number=number, at_ns=at_ns)


def _text(log: Log, line: bytes, number: int) -> None:
    """Read a line as DLLogger prints it: the same as a record would say, but for what it does not print."""
    text = bare(line).text
    if (found := _PRINTED.search(text)) is None:
        if found := _EVALUATED.search(text):
            took = _ELAPSED.search(text, found.end())
            took_ns = seconds_ns(took[1]) if took else None
            log.steps.span("evaluation", line=number, at_ns=log.steps.stamp(found[1], number), took_ns=took_ns)
        return
    at_ns = log.steps.stamp(found[1], number)
    data: dict[str, Any] = {
        name: float(value) * (1e-3 if unit else 1)
        for name, value, unit in _VALUE.findall(text, found.end() - 1)
        if _is(value)
    }
    if found["parameter"]:
        _parameters(log, {name: int(value) for name, value in data.items() if value.is_integer()})
        return
    if (elapsed := _ELAPSED.search(text, found.end() - 1)) and _is(elapsed[1]):
        data["iter_time"] = float(elapsed[1])
    kind = found["kind"] or ""
    if _EVALUATION.search(kind):
        data = {"validation": 0}
    elif not any(_EVALUATION.search(name) or _TRAINING.search(name) for name in data):
        data["loss"] = None  # an iteration of nothing else is one of training
    epoch = found["epoch"] or found["epoch_"] or found["_epoch"]
    step = int(found["step"] or found["step_"] or found["_step"])
    log.planned = max(log.planned, int(found["planned"] or 0))
    _line(log, [step] if epoch is None else [int(epoch), step], data, _keys(tuple(data)), number=number, at_ns=at_ns)


def _is(value: str) -> bool:
    """Return whether a text spells a number."""
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False


def _clock(log: Log, found: dict[str, Any], number: int) -> int | None:
    """Return when a record was written [ns since the Unix epoch]; the first one tells when the program began."""
    at_ns = _number_ns(found.get("timestamp"), 1 << 31)
    elapsed_ns = _number_ns(found.get("elapsedtime"))
    if at_ns is None and isinstance(found.get("datetime"), str):
        at_ns = log.steps.stamp(found["datetime"], number)
    if at_ns is None:
        return None
    if elapsed_ns is not None and elapsed_ns <= at_ns:
        if log.elapsed_ns is None or elapsed_ns < log.elapsed_ns - NS_PER_S:
            log.steps.banner(line=number, at_ns=at_ns - elapsed_ns)
        log.elapsed_ns = elapsed_ns
    log.steps.seen(at_ns)
    return at_ns


def _number_ns(value: object, most: float = LONGEST / NS_PER_S) -> int | None:
    """Return seconds, or what spells them, as nanoseconds; to the microsecond, as they are written."""
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return round(seconds * 1e6) * 1000 if 0 <= seconds <= most else None


def _parameters(log: Log, data: dict[str, Any]) -> None:
    for name, value in data.items():
        if name.rsplit("/", 1)[-1].lower() in _DEVICES and (count := whole(value)):
            log.devices = max(log.devices or 1, count)


def _line(log: Log, numbers: list[int], data: dict[str, Any], keys: _Keys, *, number: int, at_ns: int | None) -> None:
    """Note the step, or the evaluation, that a record tells of."""
    took_ns = None
    for key, unit in keys.times:
        if _is_number(data[key]):
            took_ns = seconds_ns(data[key], unit)
            break
    trains = took_ns is not None or keys.trains
    if keys.evaluates and not trains:
        log.steps.span("evaluation", line=number, at_ns=at_ns)
    if not trains and (keys.evaluates or not keys.counts):
        return
    if len(numbers) == 1 and len(log.paired):
        return  # the summary of an epoch, in a log whose steps are [epoch, step]
    waits: dict[str, int] | None = None
    if keys.waits:
        told = {key: seconds_ns(data[key]) for key in keys.waits if _is_number(data[key])}
        waits = {key: wait for key, wait in told.items() if wait is not None}
    _step(log, numbers, data, number, at_ns=at_ns, took_ns=took_ns, waits=waits)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _step(log: Log, numbers: list[int], data: dict[str, Any], number: int, **told: Any) -> None:
    """Note a step; one that is told as an epoch and a step is numbered when all are known, see `_count_on`."""
    known = data.get("global_step")
    if _is_number(known) and 0 <= known < 1 << 53:
        log.steps.step(int(known), line=number, **told)
    elif not 0 <= numbers[0] < BOUND:
        log.steps.bad.add("no step, left out", number, "its number is out of range")
    elif log.steps.step(numbers[-1], line=number, **told) and len(numbers) > 1:
        log.paired.append((len(log.steps) - 1, numbers[0]))


def _count_on(log: Log) -> None:
    """Number the steps that are told as an epoch and a step over all epochs.

    An epoch that begins at no higher number than the one before it came to counts anew, from where that ended; how far
    an epoch goes is what any attempt tells of it, as one may have ended within it.
    """
    place, epoch = (column.values() for column in log.paired.columns.values())
    numbers = np.array(log.steps.columns["step"])
    step, (epochs, of) = numbers[place], np.unique(epoch, return_inverse=True)
    least, most = np.full(len(epochs), BOUND), np.zeros(len(epochs), np.int64)
    np.minimum.at(least, of, step)
    np.maximum.at(most, of, step)
    begins, begin, before = [], 0, -1
    from_0 = int(not least.min())
    for low, high in zip(least.tolist(), most.tolist(), strict=True):
        if low <= before:
            begin = min(begin + max(before + from_0, log.planned), BOUND - 1)
        begins.append(begin)
        before = high
    if begin:
        numbers[place] = np.minimum(step + np.array(begins)[of], BOUND - 1)
        log.steps.columns["step"] = column = Column()
        column.extend(numbers)
        apart = np.diff(step)[np.diff(epoch) == 0]
        every = int(apart[apart > 0].min(initial=BOUND))
        if 1 < every < BOUND and not log.planned:
            log.steps.warnings.append(
                f"one step in {every} has a line, and each epoch counts anew: how many came after the last line of an "
                "epoch is not in the log, and they are not counted"
            )
