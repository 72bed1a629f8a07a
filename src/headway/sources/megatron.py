"""Logs of Megatron-LM and Megatron-DeepSpeed: a line for every so many iterations, whose time is the mean of each."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.sources.steps.front import ranks
from headway.sources.steps.lines import LONGEST, StepLines, bare, ending, holds, seconds_ns
from headway.sources.text import clean

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from headway.ledger.history import Run
    from headway.sources.asked import Asked
    from headway.sources.steps.alike import Spans

    Ints = NDArray[np.int64]

MARK: Final = b"elapsed time per iteration ("
_LINE: Final = re.compile(rb"iteration +\d+ */ *\d+ *\|[^\r\n]{0,400}?elapsed time per iteration \(m?s\): *[\d.]+")
_ELAPSED: Final = re.compile(r"elapsed time per iteration \((m?s)\): *([^\s|/]{1,40})")
_ITERATION: Final = re.compile(r"iteration +(\d{1,20}) */ *\d{1,20} *\|(?:.*\bconsumed samples: *(\d{1,18}))?")
_PLAIN: Final = re.compile(
    rb"(?:\[default(?P<rank>\d{1,7})\]:|(?P<number>\d{1,7}):(?= ))? {0,2}"
    rb"(?:\[(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d) "
    rb"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d(?:[.,]\d{1,9})?)\] )?"
    rb"iteration {1,18}(?P<iteration>\d{1,15})/ {0,18}\d{1,18} \|"
    rb"(?: consumed samples: {1,18}(?P<samples>\d{1,15}) \|)?(?: consumed tokens: {1,18}\d{1,18} \|)?"
    rb" elapsed time per iteration \(ms\): (?P<elapsed>\d{1,9}\.\d{1,6}) \|"
)
"""How the commonest lines by far begin, of which `_iterations` would say the same; all digits are the same to it."""
_COUNTED: Final = 9
"""So many digits have counts that are added up at once."""
_PARTS: Final = ("year", "month", "day", "hour", "minute", "second")
_REACH: Final = 600
"""So far before its elapsed time an iteration is named, and so far behind it what was skipped [characters]."""
_LOOKED_AT: Final = 1 << 13
"""So much of the end of a line is looked at for what is no iteration [bytes]."""
_SKIPPED: Final = re.compile(r"number of (skipped|nan) iterations: *(\d{1,18})")
_WORLD: Final = re.compile(r"using world size: *(\d{1,7})")
_SCHEDULED: Final = re.compile(r"\bstep=(\d{1,18}), skipped=\d")
_INTERVAL: Final = re.compile(r"^\s*log_interval \.{2,} *(\d{1,9})\s*$")
_SAVING: Final = re.compile(r"\bsaving checkpoint at iteration +\d")
_BEHIND: Final = re.compile(r"scheduled an async checkpoint save at iteration +(\d{1,18})")
_SAVED: Final = re.compile(r"successfully saved (?:local )?checkpoint (?:from|at) iteration +(\d{1,18})")
_LOADED: Final = re.compile(r"(successfully loaded|loading) checkpoint from .{1,4000}? at iteration +(\d{1,18})")
_COMPILED: Final = re.compile(r"Compilation time: *([\d.]{1,20}) seconds")
_DATETIME: Final = re.compile(r"\[([^\]]{1,200})\] datetime: (.{10,40})")
_TIMER: Final = re.compile(r"(?:^|\|) *([a-z/-]{4,60})(?: \.{2,})?: *(?:\( *[\d.]+ *, *)?([\d.]{1,20})")
_SPANS: Final = {
    "save-checkpoint": "checkpoint_save",
    "load-checkpoint": "checkpoint_restore",
    "evaluate": "evaluation",
}
_WAIT: Final = "batch-generator"
_OTHERS: Final = (
    b"using world size", b"log_interval ..", b"saved checkpoint", b"checkpoint from", b"random weights",
    b"saving checkpoint at", b"async checkpoint save at", b"saved local checkpoint",
    b"start from random", b"Compilation time", b"datetime:", b"save-checkpoint", b"load-checkpoint",
    b"evaluate .", b"| evaluate", b"batch-generator:", b"validation loss at", b"exiting program",
)  # fmt: skip


@dataclass
class _Between:
    """What is said between two step lines, by category.

    Attributes:
        untold: What no timer has told of yet: the line that names it, when it ended, and how long it took.
        began, ended: When what a timer may tell of later began or ended [ns since the Unix epoch].
        timed: What a timer told of.
    """

    untold: dict[str, tuple[int, int | None, int | None]] = field(default_factory=dict)
    began: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    timed: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        """Return whether anything was said."""
        return bool(self.untold or self.began or self.ended or self.timed)


@dataclass
class Log:
    """What a log says.

    Attributes:
        steps: Its step lines and marks.
        devices: The world size; None where it does not say.
        n_skipped, n_nan: Iterations whose update was skipped, or whose loss was no number, as its lines say.
        samples: How many samples were consumed by the last line; None where it does not say.
        started: When the program was ready to train, and no step has followed [ns since the Unix epoch].
        inside_ns: What of the time since then is told of otherwise [ns].
        scheduled: The last step that DeepSpeed told of, and when [ns since the Unix epoch].
        background: The last iteration whose checkpoint is saved behind the steps; -1: none.
        between: What was said since the last step line.
    """

    steps: StepLines
    devices: int | None = None
    n_skipped: int = 0
    n_nan: int = 0
    samples: int | None = None
    started: int | None = None
    inside_ns: int = 0
    scheduled: tuple[int, int] | None = None
    background: int = -1
    between: _Between = field(default_factory=_Between)


class Megatron:
    """The source of Megatron-LM logs."""

    name = "megatron"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no Megatron log, or None when it is one."""
        return None if holds(path, head, MARK, _LINE) else "no line tells of an iteration and the elapsed time of each"

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the run of a log.

        Raises:
            SourceError: No line tells of an iteration, slug ``no-runs``.
            OSError: It cannot be read.
        """
        log = read(path)
        if log.n_skipped:
            log.steps.warnings.append(f"{log.n_skipped} iterations were skipped: they took time and changed nothing")
        if log.n_nan:
            log.steps.warnings.append(f"{log.n_nan} iterations had a loss that is no number")
        return [log.steps.run(clean(path.stem), asked, devices=log.devices)]


def read(path: Path) -> Log:
    """Return what a log says.

    Raises:
        OSError: It cannot be read.
    """
    log = Log(StepLines(Megatron.name, path))

    def take(number: int, line: bytes) -> None:
        if MARK in line:
            _iterations(log, line, number)
        elif b", skipped=" in line:
            _scheduled(log, line, number)
        elif _says(line):
            _other(log, line, number)
        elif (reason := ending(line)) is not None:
            log.steps.close(reason, line=number)

    log.steps.read(_learn, partial(_many, log), take)
    _flush(log)
    return log


def _learn(line: bytes) -> Spans | None:
    """Return where the numbers of an iteration are, see `headway.sources.steps.lines.StepLines.read`."""
    if MARK not in line:
        return None if b", skipped=" in line or _says(line) or ending(line) is not None else ()
    found = _PLAIN.match(line)
    if found is None or b"\x1b" in line or not line.isascii() or line.find(MARK, found.end()) >= 0:
        return None
    behind = line[: found.end() + _REACH].decode("ascii")
    lost = {told[1]: told.span(2) for told in _SKIPPED.finditer(behind, found.end())}
    if len(lost) != behind.count("iterations:") or any(last - first > _COUNTED for first, last in lost.values()):
        return None
    names = ("iteration", "samples", "elapsed", "rank" if found["rank"] else "number")
    spans = [found.span(name) if found[name] else (0, 0) for name in (*names, *_PARTS)]
    return (lost.get("skipped", (0, 0)), lost.get("nan", (0, 0)), *spans, (0, 0))


def _many(log: Log, numbers: Ints, values: list[NDArray[np.float64]]) -> bool:
    """Read the lines of many iterations, as learned; return whether all make sense."""
    skipped, nan, iteration, samples, elapsed, rank, *time = values
    took = elapsed * 1e-3
    if log.scheduled or took.max() > LONGEST / NS_PER_S:
        return False
    _flush(log)
    if (at := log.steps.stamps(time)) is None:
        return False
    took_ns = np.rint(took * NS_PER_S).astype(np.int64)
    log.steps.steps(iteration.astype(np.int64), line=numbers, at=at, took=took_ns, rank=ranks(rank))
    log.started = None
    if np.isfinite(samples).any():
        log.samples = int(samples[np.isfinite(samples)][-1])
    log.n_skipped += int(np.nansum(skipped))
    log.n_nan += int(np.nansum(nan))
    return True


def _iterations(log: Log, line: bytes, number: int) -> None:
    said = bare(line)
    n_found = at = 0
    for elapsed in _ELAPSED.finditer(said.text):
        before = said.text[max(at, elapsed.start() - _REACH) : elapsed.start()]
        at = elapsed.end()
        if (named := _ITERATION.match(before, max(0, before.rfind("iteration ")))) is None:
            continue
        n_found += 1
        took_ns = seconds_ns(elapsed[2], 1e-3 if elapsed[1] == "ms" else 1.0)
        if took_ns is not None:
            _flush(log)
        at_ns = log.steps.stamp(before[: named.start()][-60:], number)
        if at_ns is None and log.scheduled and log.scheduled[0] == int(named[1]):
            at_ns = log.scheduled[1]
        if took_ns is None:
            log.steps.bad.add("no step, left out", number, f"its elapsed time is {clean(elapsed[2], 40)!r}")
            continue
        if log.steps.step(int(named[1]), line=number, at_ns=at_ns, took_ns=took_ns, rank=said.rank):
            _iterated(log, named[2], said.text[at : at + _REACH])
    if not n_found:
        log.steps.bad.add("no step, left out", number, "it is torn")


def _iterated(log: Log, samples: str | None, behind: str) -> None:
    """Note what else the line of an iteration says."""
    log.started = None
    if samples:
        log.samples = int(samples)
    for what, count in _SKIPPED.findall(behind):
        if what == "skipped":
            log.n_skipped += int(count)
        else:
            log.n_nan += int(count)


def _scheduled(log: Log, line: bytes, number: int) -> None:
    """Keep when DeepSpeed, below Megatron, ended a step: the line of the iteration may have no time."""
    text = bare(line).text
    if found := _SCHEDULED.search(text):
        at_ns = log.steps.stamp(text, number)
        log.scheduled = None if at_ns is None else (int(found[1]), at_ns)


def _flush(log: Log) -> None:
    """Tell of what lies before the next step and no timer told of, before the time of that step is known."""
    if log.between:
        for category, (number, at_ns, took_ns) in log.between.untold.items():
            log.steps.span(category, line=number, at_ns=at_ns, took_ns=took_ns)
        log.between = _Between()


def _says(line: bytes) -> bool:
    """Return whether a line may say something else; a loop, as this is asked of every line."""
    for mark in _OTHERS:  # noqa: SIM110
        if mark in line:
            return True
    return False


def _other(log: Log, line: bytes, number: int) -> None:
    text = bare(line[-_LOOKED_AT:]).text
    steps = log.steps
    if found := _WORLD.search(text):
        _flush(log)
        steps.banner(line=number, at_ns=steps.stamp(text, number))
        log.background = -1
        log.devices = max(log.devices or 1, int(found[1]))
    elif found := _INTERVAL.search(text):
        steps.usual = int(found[1])
    elif _checkpoint(log, text, number):
        return
    elif found := _COMPILED.search(text):
        steps.span("compile", line=number, at_ns=steps.stamp(text, number), took_ns=seconds_ns(found[1]))
    elif "validation loss at" in text:
        steps.stamp(text, number)
        if "evaluation" not in log.between.timed:
            log.between.untold.setdefault("evaluation", (number, None, None))
    elif found := _DATETIME.search(text):
        _moment(log, found[1], found[2], number)
    elif "exiting program" in text:
        steps.close("preempted" if "SIGTERM" in text else "released", line=number)
    else:
        _timers(log, text, number)


def _checkpoint(log: Log, text: str, number: int) -> bool:
    """Read a line that tells of a checkpoint; return whether it is one."""
    steps = log.steps
    if _SAVING.search(text):
        if (at_ns := steps.stamp(text, number)) is not None:
            log.between.began["checkpoint_save"] = at_ns
    elif found := _BEHIND.search(text):
        log.background = int(found[1])
        _saved(log, steps.stamp(text, number), number)
    elif found := _SAVED.search(text):
        at_ns = steps.stamp(text, number)
        steps.saved(int(found[1]), line=number, at_ns=at_ns)
        if int(found[1]) > log.background:
            _saved(log, at_ns, number)
    elif found := _LOADED.search(text):
        at_ns = steps.stamp(text, number)
        steps.restored(int(found[2]), line=number, at_ns=at_ns)
        if at_ns is not None and found[1] != "loading":
            log.between.ended["checkpoint_restore"] = at_ns
    elif "start from random" in text or "random weights" in text:
        steps.restored(-1, line=number)
    else:
        return False
    return True


def _saved(log: Log, at_ns: int | None, number: int) -> None:
    """Note that the steps go on behind a save: its timer, which follows as a rule, tells how long they waited."""
    took_ns = None
    if at_ns is not None:
        log.between.ended["checkpoint_save"] = at_ns
        began = log.between.began.get("checkpoint_save")
        took_ns = at_ns - began if began is not None and began <= at_ns else None
    log.between.untold["checkpoint_save"] = (number, None if took_ns is None else at_ns, took_ns)


def _moment(log: Log, what: str, when: str, number: int) -> None:
    """Read ``[what] datetime: when``: how far the startup is, or the end."""
    at_ns = log.steps.stamp(when, number)
    if at_ns is None:
        return
    if what.startswith(("after training", "exiting program")):
        log.steps.close("finished" if what.startswith("after") else "released", line=number, at_ns=at_ns)
        log.started = None
    else:
        _started(log, at_ns, number)
        log.started, log.inside_ns = at_ns, 0


def _timers(log: Log, text: str, number: int) -> None:
    """Read a line of timers [ms]: of old versions one for all, of newer ones a line each with least and most.

    A timer is told of where it ends; of several in one line the last one ended there, the others where the next began.
    Where the line has no time, a line before it may tell when what it timed began or ended.
    """
    end = log.steps.stamp(text, number)
    told = [(name, seconds_ns(took, 1e-3)) for name, took in _TIMER.findall(text.replace("time (ms)", ""))]
    spans = [(_SPANS[name], took_ns) for name, took_ns in told if name in _SPANS and took_ns is not None]
    left = sum(took_ns for _, took_ns in spans)
    for category, took_ns in spans:
        left -= took_ns
        log.between.untold.pop(category, None)
        log.between.timed.add(category)
        at_ns = _ended(log, category, took_ns) if end is None else end - left
        log.steps.span(category, line=number, at_ns=at_ns, took_ns=took_ns)
        if at_ns is None:
            log.inside_ns += took_ns
        elif log.started is not None:
            _started(log, at_ns - took_ns, number)
            log.started = max(log.started, at_ns)
    for name, waited_ns in told:
        if name == _WAIT and waited_ns is not None:
            log.steps.wait(name, waited_ns)


def _ended(log: Log, category: str, took_ns: int) -> int | None:
    """Return when what a timer tells of ended, by the lines before it; None where they don't say."""
    began = log.between.began.get(category)
    return log.between.ended.get(category) if began is None else began + took_ns


def _started(log: Log, until_ns: int, number: int) -> None:
    """Tell of the startup up to a moment, without what is told of otherwise."""
    if log.started is not None and (took_ns := until_ns - log.started - log.inside_ns) > 0:
        log.steps.span("startup", line=number, at_ns=until_ns, took_ns=took_ns)
    log.inside_ns = 0
