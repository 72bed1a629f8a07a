"""What stands between the lines of Megatron's iterations: saves, loads, evaluations, how it begins and ends."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headway.sources.megatron.log import flush
from headway.sources.steps.lines import bare, seconds_ns

if TYPE_CHECKING:
    from headway.sources.megatron.log import Log

_LOOKED_AT: Final = 1 << 13
"""So much of the end of a line is looked at for what is no iteration [bytes]."""
_WORLD: Final = re.compile(r"using world size: *(\d{1,7})")
_INTERVAL: Final = re.compile(r"^\s*log_interval(?: \.{2,} *|: *)(\d{1,9})\s*$")
_SAVING: Final = re.compile(r"\bsaving checkpoint at iteration +\d")
_BEHIND: Final = re.compile(r"scheduled an async checkpoint save at iteration +(\d{1,18})")
_SAVED: Final = re.compile(r"successfully saved (?:local )?checkpoint (?:from|at) iteration +(\d{1,18})")
_LOADED: Final = re.compile(r"(successfully loaded|loading) checkpoint from .{1,4000}? at iteration +(\d{1,18})")
_EXITS: Final = re.compile(r"Process \d{1,10} exits (successfully)|\] exits with return code = -?[1-9]")
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
    b"using world size", b"log_interval ..", b"log_interval: ", b"saved checkpoint", b"checkpoint from",
    b"random weights", b"saving checkpoint at", b"async checkpoint save at", b"saved local checkpoint",
    b"start from random", b"Compilation time", b"datetime:", b"save-checkpoint", b"load-checkpoint",
    b"evaluate .", b"| evaluate", b"batch-generator:", b"validation loss at", b"exiting program",
    b"Exiting during evaluation", b"exits successfully", b"exits with return code",
)  # fmt: skip


def says(line: bytes) -> bool:
    """Return whether a line may say something else; a loop, as this is asked of every line."""
    for mark in _OTHERS:  # noqa: SIM110
        if mark in line:
            return True
    return False


def other(log: Log, line: bytes, number: int) -> None:
    """Read a line of which `says` holds."""
    text, rank = bare(line[-_LOOKED_AT:])
    steps = log.steps
    if found := _WORLD.search(text):
        flush(log)
        steps.banner(line=number, at_ns=steps.stamp(text, number))
        log.background = -1
        log.devices = max(log.devices or 1, int(found[1]))
    elif found := _INTERVAL.search(text):
        steps.usual = int(found[1])
    elif _checkpoint(log, text, number):
        return
    elif found := _COMPILED.search(text):
        steps.span("compile", line=number, at_ns=steps.stamp(text, number), took_ns=seconds_ns(found[1]))
    elif "validation loss at" in text or "during evaluation" in text:
        steps.stamp(text, number)
        if "evaluation" not in log.between.timed:
            log.between.untold.setdefault("evaluation", (number, None, None))
    elif found := _DATETIME.search(text):
        _moment(log, found[1], found[2], number)
    elif "exiting program" in text:
        steps.close("preempted" if "SIGTERM" in text else "released", line=number)
    elif found := _EXITS.search(text):
        steps.close("finished" if found[1] else "failed", line=number, at_ns=steps.stamp(text, number))
    else:
        _timers(log, text, number, rank)


def _checkpoint(log: Log, text: str, number: int) -> bool:
    """Read a line that tells of a checkpoint; return whether it is one."""
    steps = log.steps
    if _SAVING.search(text):
        if (at_ns := steps.stamp(text, number)) is not None:
            log.between.began["checkpoint_save"] = at_ns
    elif found := _BEHIND.search(text):
        log.background = int(found[1])
        _saved(log, found[0], steps.stamp(text, number), number)
    elif found := _SAVED.search(text):
        at_ns = steps.stamp(text, number)
        steps.saved(int(found[1]), line=number, at_ns=at_ns)
        if int(found[1]) > log.background:
            _saved(log, found[0], at_ns, number)
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


def _saved(log: Log, says: str, at_ns: int | None, number: int) -> None:
    """Note that the steps go on behind a save: its timer, which follows as a rule, tells how long they waited.

    Where it has told that, another rank may say the same again.
    """
    if says in log.between.saves and "checkpoint_save" in log.between.timed:
        return
    log.between.saves.add(says)
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
        log.started = at_ns


def _timers(log: Log, text: str, number: int, rank: int) -> None:
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
            log.inside[rank] = log.inside.get(rank, 0) + took_ns
        elif log.started is not None:
            _started(log, at_ns - took_ns, number)
            log.started = max(log.started, at_ns)
    for name, waited_ns in told:
        if name == _WAIT and waited_ns is not None:
            log.wait(name, waited_ns)


def _ended(log: Log, category: str, took_ns: int) -> int | None:
    """Return when what a timer tells of ended, by the lines before it; None where they don't say."""
    began = log.between.began.get(category)
    return log.between.ended.get(category) if began is None else began + took_ns


def _started(log: Log, until_ns: int, number: int) -> None:
    """Tell of the startup up to a moment, without what is told of otherwise."""
    inside = max(log.inside.values(), default=0)
    if log.started is not None and (took_ns := until_ns - log.started - inside) > 0:
        log.steps.span("startup", line=number, at_ns=until_ns, took_ns=took_ns)
    log.inside.clear()
