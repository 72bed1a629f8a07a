"""The lines of Megatron's iterations: one for every so many, whose time is the mean of each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.sources.megatron.log import flush
from headway.sources.steps.front import ranks
from headway.sources.steps.lines import LONGEST, bare, seconds_ns
from headway.sources.text import clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headway.sources.megatron.log import Log
    from headway.sources.steps.alike import Spans

    Ints = NDArray[np.int64]

MARK: Final = b"elapsed time per iteration ("
LINE: Final = re.compile(rb"iteration +\d+ */ *\d+ *\|[^\r\n]{0,400}?elapsed time per iteration \(m?s\): *[\d.]+")
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
"""How the commonest lines by far begin, of which `iterations` would say the same; all digits are the same to it."""
_COUNTED: Final = 9
"""So many digits have counts that are added up at once."""
_PARTS: Final = ("year", "month", "day", "hour", "minute", "second")
_REACH: Final = 600
"""So far before its elapsed time an iteration is named, and so far behind it what was skipped [characters]."""
_SKIPPED: Final = re.compile(r"number of (skipped|nan) iterations: *(\d{1,18})")
_SCHEDULED: Final = re.compile(r"\bstep=(\d{1,18}), skipped=\d")


def learn(line: bytes) -> Spans | None:
    """Return where the numbers of an iteration are, see `headway.sources.steps.alike`; None where it takes more."""
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


def many(log: Log, numbers: Ints, values: list[NDArray[np.float64]]) -> bool:
    """Read the lines of many iterations, as learned; return whether all make sense."""
    skipped, nan, iteration, samples, elapsed, rank, *time = values
    took = elapsed * 1e-3
    if log.scheduled or took.max() > LONGEST / NS_PER_S:
        return False
    flush(log)
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


def iterations(log: Log, line: bytes, number: int) -> None:
    """Read a line that tells of iterations."""
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
            flush(log)
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


def scheduled(log: Log, line: bytes, number: int) -> None:
    """Keep when DeepSpeed, below Megatron, ended a step: the line of the iteration may have no time."""
    text = bare(line).text
    if found := _SCHEDULED.search(text):
        at_ns = log.steps.stamp(text, number)
        log.scheduled = None if at_ns is None else (int(found[1]), at_ns)
