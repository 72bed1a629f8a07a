"""Logs of DeepSpeed: every so many steps a line with the time of day and the samples per second of the last step."""

from __future__ import annotations

import codecs
import re
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.sources import megatron
from headway.sources.steplines import Bare, StepLines, bare, ending, holds, seconds_ns
from headway.sources.text import clean

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from headway.ledger.history import Run
    from headway.sources.asked import Asked

_TIMER_MARK: Final = b"SamplesPerSec="
_STEP_MARK: Final = b", skipped="
_LINES: Final = (
    (_TIMER_MARK, re.compile(rb"(?:global_step=|\d/)\d+, (?:RunningAvg)?SamplesPerSec=\d")),
    (_STEP_MARK, re.compile(rb"\[Rank -?\d+\] step=\d+, skipped=\d+, lr=")),
)
_SPEED: Final = r", (?:RunningAvg)?SamplesPerSec=([^\s,]{1,40})(?:, CurrSamplesPerSec=([^\s,]{1,40}))?"
_TIMER: Final = re.compile(rf"global_step=(\d{{1,18}}){_SPEED}")
_OLD_TIMER: Final = re.compile(rf"\b\d{{1,18}}/(\d{{1,18}}){_SPEED}")
_STEP: Final = re.compile(r"\bstep=(\d{1,18}), skipped=(\d{1,18})")
_WORLD: Final = re.compile(r"\b(?:dist_world_size=|world_size=|world_size \.{3,} *|world size: *)(\d{1,7})\b")
_BATCH: Final = re.compile(r"\btrain_batch_size(?: \.{3,} *|['\"]?[:=] *)(\d{1,9})\b")
_PER_DEVICE: Final = re.compile(r"--per_device_train_batch_size[ =](\d{1,9})")
_ACCUMULATED: Final = re.compile(r"--gradient_accumulation_steps[ =](\d{1,9})")
_EXITS: Final = re.compile(r"Process (\d{1,10}) exits successfully")
_SAVED: Final = re.compile(r"Checkpoint (?:\S*?global_step)?(\d{1,18}) is (?:ready|commit)")
_LOADED: Final = re.compile(r"\bLoad(?:ing|ed) checkpoint from \S*?global_step(\d{1,18})")
_EVALUATES: Final = re.compile(r"(?:^|\*\s*)(?:running )?evaluat(?:ing|ion)\b", re.IGNORECASE)
_FAILED: Final = (b"exits with return code", b"Killing subprocess")
_OTHERS: Final = (
    b"world_size", b"world size", b"train_batch_size", b"exits successfully", b"global_step", b"is ready now",
    b"valuati", b"DeepSpeed info: version",
)  # fmt: skip
_PRECISE: Final = 12
"""A mean rate with so many characters tells what passed between two lines, by the difference of two sums."""
_WARMUP: Final = 2
"""So many steps the timer leaves out of its mean."""
_NEAR_NS: Final = 60 * NS_PER_S
"""The lines of the schedule and of the timer that tell of one step are not further apart."""
_PROCESSES: Final = 1 << 16
"""So many processes that exit are told apart at most."""


@dataclass
class Log:
    """What a log says.

    Attributes:
        steps: Its marks, and its step lines once they are told.
        timed: Whether its step lines are those of the timer, or without any those of the schedule.
        rate: By line of the timer, samples per second of its last step; 0 where it does not say, ``(n,)``.
        mean: By line of the timer, samples per second of all its steps so far but the first two; 0 as for ``rate``.
        devices: The world size; None where it does not say.
        batch: Samples a step, as the configuration says; None where it does not.
        per_device, accumulated: Samples of a device and how often a step adds up, as the command says.
        exited: Processes that exited, by number.
        skipped: How many steps were skipped for an overflow, by the last line that says so.
    """

    steps: StepLines
    number: array[int] = field(default_factory=lambda: array("q"))
    step: array[int] = field(default_factory=lambda: array("q"))
    at: array[int] = field(default_factory=lambda: array("q"))
    rank: array[int] = field(default_factory=lambda: array("q"))
    timed: array[int] = field(default_factory=lambda: array("b"))
    rate: array[float] = field(default_factory=lambda: array("d"))
    mean: array[float] = field(default_factory=lambda: array("d"))
    devices: int | None = None
    batch: int | None = None
    per_device: int | None = None
    accumulated: int = 1
    exited: set[int] = field(default_factory=set)
    skipped: int = 0


class DeepSpeed:
    """The source of DeepSpeed logs."""

    name = "deepspeed"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no DeepSpeed log, or None when it is one."""
        if path.is_dir():
            return "it is a folder and not a log file"
        if not any(holds(path, head, mark, line) for mark, line in _LINES):
            return "no line tells of SamplesPerSec of a step, or of a step and how many were skipped"
        if megatron.Megatron().recognise(path, head) is None:
            return "it is a log of Megatron"
        return None

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the run of a log.

        Raises:
            SourceError: No line tells of a step, slug ``no-runs``.
            OSError: It cannot be read.
        """
        log = read(path)
        tell(log, asked.devices)
        if log.skipped:
            log.steps.warnings.append(f"{log.skipped} steps were skipped for an overflow: they changed nothing")
        return [log.steps.run(clean(path.stem), asked, devices=log.devices)]


def read(path: Path) -> Log:
    """Return what a log says; `tell` makes steps of it.

    Raises:
        OSError: It cannot be read.
    """
    log = Log(StepLines(DeepSpeed.name, path))
    number, bounds = 0, _Bounds()
    for number, raw in log.steps.lines():
        line = raw.removeprefix(codecs.BOM_UTF8)
        bounds.see(log, line, number)
        _line(log, line, number)
    log.steps.stamp(bounds.high.decode("latin-1"), number)
    return log


@dataclass
class _Bounds:
    """The times of the first and the last line, whether it says anything else or not: they sort as their text does."""

    low: bytes = b"[3"
    high: bytes = b""

    def see(self, log: Log, line: bytes, number: int) -> None:
        """Look at a line."""
        if line.startswith(b"[2") and line[24:25] == b"]":
            self.high = max(self.high, line[:25])
            if line[:25] < self.low:
                self.low = line[:25]
                log.steps.stamp(self.low.decode("latin-1"), number)
        elif not log.number and b"[INFO]" in line:
            log.steps.stamp(bare(line).text, number)


def _line(log: Log, line: bytes, number: int) -> None:
    if _TIMER_MARK in line:
        _timer(log, line, number)
    elif _STEP_MARK in line:
        _scheduled(log, line, number)
    elif log.per_device is None and b"--per_device_train_batch_size" in line:
        _command(log, line)
    elif _says(line):
        _other(log, line, number)
    elif (reason := ending(line) or _failed(line)) is not None:
        log.steps.close(reason, line=number, at_ns=log.steps.stamp(bare(line).text, number))


def _failed(line: bytes) -> str | None:
    return "failed" if any(mark in line for mark in _FAILED) else None


def _timer(log: Log, line: bytes, number: int) -> None:
    said = bare(line)
    found = _TIMER.search(said.text) or _OLD_TIMER.search(said.text)
    if found is None:
        log.steps.bad.add("no step, left out", number, "it is torn")
        return
    rate = _rate(found[3] or found[2])
    if rate == 0:
        log.steps.bad.add("a step of no sensible speed, which is passed over", number)
    precise = found[3] is not None and len(found[2]) >= _PRECISE
    _add(log, said, number, int(found[1]), (rate, _rate(found[2]) if precise else 0.0))


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        return 0.0
    return rate if 0 < rate < 1e15 else 0.0


def _scheduled(log: Log, line: bytes, number: int) -> None:
    said = bare(line)
    if (found := _STEP.search(said.text)) is None:
        log.steps.bad.add("no step, left out", number, "it is torn")
        return
    log.skipped = max(log.skipped, int(found[2]))
    _add(log, said, number, int(found[1]), None)


def _add(log: Log, said: Bare, number: int, step: int, rates: tuple[float, float] | None) -> None:
    """Keep a line of the timer, or where it has no rates one of the schedule."""
    if (at_ns := log.steps.stamp(said.text, number)) is None:
        log.steps.bad.add("no step, left out", number, "it has no time")
        return
    log.number.append(number)
    log.step.append(step)
    log.at.append(at_ns)
    log.rank.append(said.rank)
    last, mean = rates or (0.0, 0.0)
    log.rate.append(last)
    log.mean.append(mean)
    log.timed.append(rates is not None)


def _says(line: bytes) -> bool:
    """Return whether a line may say something else; a loop, as this is asked of every line."""
    for mark in _OTHERS:  # noqa: SIM110
        if mark in line:
            return True
    return False


def _other(log: Log, line: bytes, number: int) -> None:
    steps = log.steps
    text = bare(line).text
    if _EVALUATES.search(text):
        steps.span("evaluation", line=number, at_ns=steps.stamp(text, number))
    elif found := _EXITS.search(text):
        if len(log.exited) < _PROCESSES:
            log.exited.add(int(found[1]))
        steps.close("finished", line=number, at_ns=steps.stamp(text, number))
    elif found := _SAVED.search(text):
        at_ns = steps.stamp(text, number)
        steps.saved(int(found[1]), line=number, at_ns=at_ns)
        steps.span("checkpoint_save", line=number, at_ns=at_ns)
    elif found := _LOADED.search(text):
        steps.restored(int(found[1]), line=number, at_ns=steps.stamp(text, number))
    elif "DeepSpeed info: version" in text or "dist_world_size=" in text:
        steps.banner(line=number, at_ns=steps.stamp(text, number))
    if found := _WORLD.search(text):
        log.devices = max(log.devices or 1, int(found[1]))
    if found := _BATCH.search(text):
        log.batch = int(found[1]) or None


def _command(log: Log, line: bytes) -> None:
    text = bare(line).text
    if found := _PER_DEVICE.search(text):
        log.per_device = int(found[1]) or None
    if found := _ACCUMULATED.search(text):
        log.accumulated = int(found[1])


def tell(log: Log, devices: int | None = None) -> None:
    """Make steps of what a log says: those of its timer, or without any those of its schedule.

    How long a step took is samples a step over samples per second: of the steps since the line before,
    by what the timer's mean was then and is now, else of the last step. Where the log does not say how
    many samples a step has, steps reach from line to line.

    Args:
        log: What it says.
        devices: The number of devices, if the reader says it.
    """
    if log.devices is None and log.exited:
        log.devices = len(log.exited)
        log.steps.warnings.append(f"{log.devices} devices: so many processes exited, one a device")
    batch = batch_of(log, devices)
    with_timer = any(log.timed)
    if with_timer and batch is None:
        log.steps.warnings.append(
            "how many samples a step has is not in the log: its steps reach from line to line, what lies between them "
            "included"
        )
    timed = np.frombuffer(log.timed, np.int8) == 1
    chosen = np.flatnonzero(timed == with_timer)
    chosen = chosen[np.argsort(np.frombuffer(log.at, np.int64)[chosen], kind="stable")]
    steps = np.frombuffer(log.step, np.int64)[chosen]
    if with_timer:
        steps = steps + _ahead(log, chosen, np.flatnonzero(~timed))
    before: int | None = None
    for index, step in zip(chosen.tolist(), steps.tolist(), strict=True):
        took_ns = _took_ns(log, batch, before, index) if batch else None
        log.steps.step(step, line=log.number[index], at_ns=log.at[index], took_ns=took_ns, rank=log.rank[index])
        before = index


def _took_ns(log: Log, batch: int, before: int | None, index: int) -> int | None:
    """Return how long a step took on the mean since the line before, else the last one [ns]; None if nobody says."""
    took = batch / log.rate[index] if log.rate[index] else 0.0
    if before is not None and _WARMUP < log.step[before] < log.step[index] and log.mean[before] and log.mean[index]:
        passed = batch * (
            (log.step[index] - _WARMUP) / log.mean[index] - (log.step[before] - _WARMUP) / log.mean[before]
        )
        if 0 < passed <= (log.at[index] - log.at[before]) / NS_PER_S:
            took = passed / (log.step[index] - log.step[before])
    return seconds_ns(took) if took else None


def _ahead(log: Log, timer: NDArray[np.intp], schedule: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return by how much the schedule is ahead of the timer, which counts from 0 again after a restart."""
    ahead = np.zeros(len(timer), np.int64)
    every_at, every_step = np.frombuffer(log.at, np.int64), np.frombuffer(log.step, np.int64)
    if not len(schedule):
        return ahead
    schedule = schedule[np.argsort(every_at[schedule], kind="stable")]
    at, known_at = every_at[timer], every_at[schedule]
    nearest = np.searchsorted(known_at, at, "right") - 1
    previous = np.concatenate([[-1], at[:-1]])
    same = (nearest >= 0) & (known_at[nearest] > previous) & (at - known_at[nearest] < _NEAR_NS)
    ahead[same] = every_step[schedule][nearest[same]] - every_step[timer][same]
    ahead[ahead < 0] = 0
    return ahead


def batch_of(log: Log, devices: int | None = None) -> int | None:
    """Return how many samples a step has; None where the log does not say."""
    count = devices or log.devices
    if log.batch or log.per_device is None or count is None:
        return log.batch
    return log.per_device * log.accumulated * count or None
