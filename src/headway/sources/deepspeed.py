"""Logs of DeepSpeed: every so many steps a line with the time of day and the samples per second of the last step."""

from __future__ import annotations

import codecs
import re
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from headway.clock import NS_PER_S
from headway.sources.megatron import source as megatron
from headway.sources.steps.columns import UNKNOWN
from headway.sources.steps.line import MOMENT, moment
from headway.sources.steps.lines import LONGEST, Bare, StepLines, bare, ending, holds
from headway.sources.text import clean
from headway.units import show_seconds

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
_PLAIN: Final = re.compile(
    rb"\[(%(moment)s)\] \[INFO\] \[(?:"
    rb"timer\.py:\d{1,6}:stop\] (?:epoch=\d{1,9}/micro_step=\d{1,18}/global_step=|\d{1,18}/)(\d{1,18}), "
    rb"(?:RunningAvg)?SamplesPerSec=([\d.]{1,40})(?:, CurrSamplesPerSec=([\d.]{1,40}))?(?=, MemAllocated|[\r\n])|"
    rb"logging\.py:\d{1,6}:log_dist\] \[Rank 0\] step=(\d{1,18}), skipped=(\d{1,18}), lr=)" % {b"moment": MOMENT}
)
"""The commonest lines by far, of which `_timer` and `_scheduled` would say the same."""
_FRONT: Final = re.compile(rf"\[{MOMENT.decode()}\] \[[A-Z]{{4,8}}\] ")
_WORLD: Final = re.compile(r"\b(?:dist_world_size=|world_size=|world_size \.{3,} *|world size: *)(\d{1,7})\b")
_BATCH: Final = re.compile(r"\btrain_batch_size(?: \.{3,} *|['\"]?[:=] *)(\d{1,9})\b")
_PER_DEVICE: Final = re.compile(r"--per_device_train_batch_size[ =](\d{1,9})")
_ACCUMULATED: Final = re.compile(r"--gradient_accumulation_steps[ =](\d{1,9})")
_EXITS: Final = re.compile(r"Process (\d{1,10}) exits successfully")
_SAVED: Final = re.compile(r"Checkpoint (?:\S*?global_step)?(\d{1,18}) is (?:ready|commit)")
_LOADED: Final = re.compile(r"\bLoad(?:ing|ed) checkpoint from \S*?global_step(\d{1,18})")
_EVALUATES: Final = re.compile(r"(?:^|[*\]]\s*)(?:running )?(?:evaluating|evaluation(?! *\.{2}))\b", re.IGNORECASE)
"""Where it begins, or what a logger or asterisks are in front of; a line of dots behind it is a setting's."""
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
_FAR: Final = 2.0
"""Where lines lie so many times further apart than the timer says, a warning tells of it."""
_COMPARED: Final = 3
"""Of fewer pairs of lines nothing is said of that."""
_AT_ONCE: Final = 1 << 16
_PROCESSES: Final = 1 << 16
"""So many processes that exit are told apart at most."""


@dataclass
class Log:
    """What a log says.

    Attributes:
        steps: Its marks, and its step lines once they are told.
        told: Of each step line its number, step, time [ns since the Unix epoch] and rank, and 1 if it is the timer's.
        rates: Of each, samples per second of its last step, and of all its steps so far but the first two; 0 where
            it does not say.
        devices: The world size; None where it does not say.
        batch: Samples a step, as the configuration says; None where it does not.
        per_device, accumulated: Samples of a device and how often a step adds up, as the command says.
        exited: Processes that exited, by number.
        skipped: How many steps were skipped for an overflow, by the last line that says so.
    """

    steps: StepLines
    told: array[int] = field(default_factory=lambda: array("q"))
    rates: array[float] = field(default_factory=lambda: array("d"))
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
    number, line, bounds = 0, b"", _Bounds()
    for number, raw in log.steps.lines():
        line = raw.removeprefix(codecs.BOM_UTF8)
        bounds.see(log, line, number)
        if not _plain(log, line, number):
            _line(log, line, number)
    if number and number == log.steps.unended and (b"step=" in line or _TIMER_MARK in line):
        log.steps.bad.add("the last and has no end: it may be cut", number)
    log.steps.stamp(bounds.high.decode("latin-1"), number)
    return log


@dataclass
class _Bounds:
    """The times of the first and the last line, whether it says anything else or not: they sort as their text does."""

    low: bytes = b"[3"
    high: bytes = b""

    def see(self, log: Log, line: bytes, number: int) -> None:
        """Look at a line."""
        if line[24:25] == b"]" and line.startswith(b"[2"):
            time = line[:25]
            self.high = max(self.high, time)
            if time < self.low:
                self.low = time
                log.steps.stamp(time.decode("latin-1"), number)
        elif not log.told and b"[INFO]" in line:
            log.steps.stamp(bare(line).text, number)


def _plain(log: Log, line: bytes, number: int) -> bool:
    """Read a line that is `_PLAIN`; return whether it is."""
    found = _PLAIN.match(line)
    if found is None or line.find(_TIMER_MARK, found.end()) >= 0:
        return False
    when, step, mean, last, scheduled, skipped = found.groups()
    try:
        at_ns = moment(when)
    except ValueError:
        return False
    log.steps.n_local += 1
    log.steps.seen(at_ns)
    log.steps.stepped = number
    if step is None:
        log.skipped = max(log.skipped, int(skipped))
        log.told.extend((number, int(scheduled), at_ns, -1, 0))
        log.rates.extend((0.0, 0.0))
    else:
        log.told.extend((number, int(step), at_ns, -1, 1))
        log.rates.extend(_rates(log, mean, last, number))
    return True


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
    said = Bare(_own(said.text, found.start()), said.rank)
    _add(log, said, number, int(found[1]), _rates(log, found[2], found[3], number))


def _own(text: str, end: int | None = None) -> str:
    """Return what DeepSpeed says in a line, up to a place in it: a bar of progress may stand in front."""
    if text.startswith("["):
        return text
    fronts = [found.start() for found in _FRONT.finditer(text, 0, len(text) if end is None else end)]
    return text[fronts[-1] :] if fronts else text


def _rates(log: Log, mean: str | bytes, last: str | bytes | None, number: int) -> tuple[float, float]:
    """Return the rates of a line of the timer, 0 for one that does not count."""
    rate = _rate(last or mean)
    if rate == 0:
        log.steps.bad.add("a step of no sensible speed, which is passed over", number)
    return rate, _rate(mean) if last is not None and len(mean) >= _PRECISE else 0.0


def _rate(text: str | bytes) -> float:
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
    said = Bare(_own(said.text, found.start()), said.rank)
    _add(log, said, number, int(found[1]), None)


def _add(log: Log, said: Bare, number: int, step: int, rates: tuple[float, float] | None) -> None:
    """Keep a line of the timer, or where it has no rates one of the schedule."""
    if (at_ns := log.steps.stamp(said.text, number)) is None:
        log.steps.bad.add("no step, left out", number, "it has no time")
        return
    log.steps.stepped = number
    log.told.extend((number, step, at_ns, said.rank, rates is not None))
    log.rates.extend(rates or (0.0, 0.0))


def _says(line: bytes) -> bool:
    """Return whether a line may say something else; a loop, as this is asked of every line."""
    for mark in _OTHERS:  # noqa: SIM110
        if mark in line:
            return True
    return False


def _other(log: Log, line: bytes, number: int) -> None:
    steps = log.steps
    text = _own(bare(line).text)
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
    number, step, at, rank, timed = np.frombuffer(log.told, np.int64).reshape(-1, 5).T
    with_timer = bool(timed.any())
    if with_timer and batch is None:
        log.steps.warnings.append(
            "how many samples a step has is not in the log: its steps reach from line to line, what lies between them "
            "included"
        )
    chosen = np.flatnonzero(timed == with_timer)
    chosen = chosen[np.argsort(at[chosen], kind="stable")]
    ahead = _ahead(step, at, chosen, np.flatnonzero(timed == 0)) if with_timer else np.zeros(len(chosen), np.int64)
    rate, mean = np.frombuffer(log.rates, np.float64).reshape(-1, 2).T
    for low in range(0, len(chosen), _AT_ONCE):
        some = chosen[max(low - 1, 0) : low + _AT_ONCE]  # with the line before them
        lines = _Lines(step[some], at[some], rate[some], mean[some])
        took = _took(lines, batch)
        if not low:
            _compare(log, lines, took)
        new = some[1:] if low else some
        moved = step[new] + ahead[low : low + _AT_ONCE]
        log.steps.steps(moved, line=number[new], at=at[new], took=took[-len(new) :], rank=rank[new])


def _compare(log: Log, lines: _Lines, took: NDArray[np.int64]) -> None:
    """Warn if lines lie several times further apart than the timer says that steps took, as a rule."""
    n_steps, apart = np.diff(lines.step), np.diff(lines.at)
    good = (n_steps > 0) & (apart > 0) & (took[1:] > 0)
    if np.count_nonzero(good) < _COMPARED:
        return
    each, own = float(np.median(apart[good] / n_steps[good])), float(np.median(took[1:][good]))
    if each > _FAR * own:
        log.steps.warnings.append(
            f"its timer says that a step took {show_seconds(own / NS_PER_S)}, and its lines lie "
            f"{show_seconds(each / NS_PER_S)} a step apart: the rest is unaccounted. Where a program starts the timer "
            "again for each micro step and stops it once a step, it tells of the last micro step alone"
        )


class _Lines(NamedTuple):
    """Lines of the timer in their order: step, time [ns since the Unix epoch] and rates as of a `Log`, ``(n,)``."""

    step: NDArray[np.int64]
    at: NDArray[np.int64]
    rate: NDArray[np.float64]
    mean: NDArray[np.float64]


def _took(lines: _Lines, batch: int | None) -> NDArray[np.int64]:
    """Return how long a step took on the mean since the line before, else the last one [ns].

    `UNKNOWN` where nobody says; of the first there is no line before, ``(n,)``.
    """
    if not batch:
        return np.full(len(lines.step), UNKNOWN)
    step, at, rate, mean = lines
    with np.errstate(all="ignore"):
        took = np.where(rate > 0, float(batch) / rate, 0.0)
        since = (step - _WARMUP) / mean  # where it does not say it is not taken
        passed = float(batch) * np.diff(since)
        counts = (step[:-1] > _WARMUP) & (np.diff(step) > 0) & (mean[:-1] > 0) & (mean[1:] > 0)
        counts &= (passed > 0) & (passed <= np.diff(at) / NS_PER_S)
        took[1:] = np.where(counts, passed / np.diff(step), took[1:])
        known = (took > 0) & (took <= LONGEST / NS_PER_S)
        return np.where(known, np.rint(took * NS_PER_S), UNKNOWN).astype(np.int64)


def _ahead(
    step: NDArray[np.int64], at: NDArray[np.int64], timer: NDArray[np.intp], schedule: NDArray[np.intp]
) -> NDArray[np.int64]:
    """Return by how much the schedule is ahead of the timer, which counts from 0 again after a restart.

    Args:
        step: The steps of all lines.
        at: Their times.
        timer: Which are of the timer, in the order of time.
        schedule: Which are of the schedule.
    """
    ahead = np.zeros(len(timer), np.int64)
    if not len(schedule):
        return ahead
    schedule = schedule[np.argsort(at[schedule], kind="stable")]
    known_at = at[schedule]
    nearest = np.searchsorted(known_at, at[timer], "right") - 1
    previous = np.concatenate([[-1], at[timer][:-1]])
    same = (nearest >= 0) & (known_at[nearest] > previous) & (at[timer] - known_at[nearest] < _NEAR_NS)
    ahead[same] = step[schedule][nearest[same]] - step[timer][same]
    ahead[ahead < 0] = 0
    return ahead


def batch_of(log: Log, devices: int | None = None) -> int | None:
    """Return how many samples a step has; None where the log does not say."""
    count = devices or log.devices
    if log.batch or log.per_device is None or count is None:
        return log.batch
    return log.per_device * log.accumulated * count or None
