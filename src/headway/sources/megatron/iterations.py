"""The lines of Megatron's iterations: one for every so many, whose time is the mean of each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.sources.megatron.log import flush
from headway.sources.steps.front import find, ranks
from headway.sources.steps.line import STAMP
from headway.sources.steps.lines import LONGEST, bare, seconds_ns
from headway.sources.text import clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headway.sources.megatron.log import Log
    from headway.sources.steps.alike import Spans

    Ints = NDArray[np.int64]

MARK: Final = b"elapsed"
"""What the lines of iterations hold, to find the first one; `tells` says it of a line."""
LINE: Final = re.compile(
    rb"iteration(?: +|= *)\d+ */ *(?:\d+|infinity) *\|[^\r\n]{0,400}?"
    rb"elapsed(?: time per iteration \(m?s\):|_time_per_iteration_ms=) *[\d.]+"
)
_MARKS: Final = (b"elapsed time per iteration (", b"elapsed_time_per_iteration_ms=")
_ELAPSED: Final = re.compile(r"elapsed(?: time per iteration \((m?s)\): *|_time_per_iteration_(ms)=)([^\s|/]{1,40})")
_ITERATION: Final = re.compile(
    r"iteration(?: +|= *)(\d{1,20}) */ *(?:\d{1,20}|infinity) *\|(?:.*\bconsumed[ _]samples[:=] *(\d{1,18}))?"
)
_PLAIN: Final = re.compile(
    r"\biteration(?: {1,18}|= {0,18})(?P<iteration>\d{1,15})/ {0,18}(?:\d{1,18}|infinity) {0,9}\|"
    r"(?: consumed[ _]samples[:=] {0,18}(?P<samples>\d{1,15}) \|)?"
    r"(?: (?:skipped samples|consumed[ _]tokens)[:=] {0,18}\d{1,18} \|){0,2}"
    r" elapsed(?: time per iteration \(ms\): |_time_per_iteration_ms=)(?P<elapsed>\d{1,9}\.\d{1,6})(?=[ /])"
)
"""How the commonest lines by far say it, of which `iterations` would say the same; all digits are the same to it."""
_DATELIKE: Final = re.compile(r"(?:\d{4}[-/]?\d\d[-/]?\d\d|\d\d/\d\d/\d{4})[ T]\d")
_NEAR: Final = 60
"""So far in front of an iteration its time is looked for, then where the line begins [characters]."""
_OF: Final = re.compile(r"\brank-\d{1,7}/(\d{1,7})\]")
"""How the logger of Primus tells the world size in front of a line."""
_MOMENT: Final = re.compile(r"\bcurrent time: (\d{9,10}(?:\.\d{1,9})?) ")
_COUNTED: Final = 9
"""So many digits have counts that are added up at once."""
_MOST: Final = 1 << 31
"""A line tells of no more iterations that were skipped."""
_REACH: Final = 600
"""So far before its elapsed time an iteration is named, and so far behind it what was skipped [characters]."""
_SKIPPED: Final = re.compile(r"number[ _]of[ _](skipped|nan)[ _]iterations[:=] *(\d{1,18})")
_SCHEDULED: Final = re.compile(r"\bstep=(\d{1,18}), skipped=\d")
_CLOCKED: Final = re.compile(r"(?:\bglobal_step=|\b\d{1,18}/)(\d{1,18}), (?:RunningAvg)?SamplesPerSec=")
BELOW: Final = (b", skipped=", b"SamplesPerSec=")
"""What lines of DeepSpeed hold that tell of a step."""


def tells(line: bytes) -> bool:
    """Return whether a line may tell of iterations."""
    return _MARKS[0] in line or _MARKS[1] in line


def learn(line: bytes) -> Spans | None:
    """Return where the numbers of an iteration are, see `headway.sources.steps.alike`; None where it takes more."""
    if (found := find(line, _PLAIN)) is None or sum(line.count(mark) for mark in _MARKS) > 1:
        return None
    said, text = found.said, found.said.string
    front = text[found.begin : said.start()]
    if len(front) > _NEAR and (len(front) > _REACH // 3 or _DATELIKE.search(front[-_NEAR:])):
        return None
    end = said.end("elapsed") + _REACH
    lost = {told[1]: told.span(2) for told in _SKIPPED.finditer(text, said.end(), end)}
    if len(lost) != text.count("iterations", said.end(), end) or _MOMENT.search(text, said.end(), end):
        return None
    if any(last - first > _COUNTED for first, last in lost.values()):
        return None
    world = _OF.search(text, found.begin, said.start())
    spans = [said.span(name) if said[name] else (0, 0) for name in ("iteration", "samples", "elapsed")]
    of = world.span(1) if world else (0, 0)
    return (lost.get("skipped", (0, 0)), lost.get("nan", (0, 0)), of, *spans, *found.front)


def many(log: Log, numbers: Ints, values: list[NDArray[np.float64]]) -> bool:
    """Read the lines of many iterations, as learned; return whether all make sense."""
    skipped, nan, world, iteration, samples, elapsed, rank, *time = values
    took = elapsed * 1e-3
    if (log.scheduled and np.isnan(time[0]).any()) or took.max() > LONGEST / NS_PER_S:
        return False
    flush(log)
    if (at := log.steps.stamps(time)) is None:
        return False
    took_ns = np.rint(took * NS_PER_S).astype(np.int64)
    log.steps.steps(iteration.astype(np.int64), line=numbers, at=at, took=took_ns, rank=ranks(rank))
    log.started = None
    n_last = 1
    while n_last < len(iteration) and iteration[-n_last - 1] == iteration[-1]:
        n_last += 1
    log.told(int(iteration[-1]), n_last)
    if np.isfinite(samples).any():
        log.samples = int(samples[np.isfinite(samples)][-1])
    if np.isfinite(world).any():
        log.devices = max(log.devices or 1, int(np.nanmax(world)))
    if len(places := np.flatnonzero((skipped > 0) | (nan > 0))):
        lost = np.nan_to_num([skipped[places], nan[places]]).astype(np.int64)
        log.lost.extend(places + len(log.steps) - len(numbers), *lost)
    return True


def iterations(log: Log, line: bytes, number: int) -> None:
    """Read a line that tells of iterations."""
    said = bare(line)
    n_found = at = 0
    for elapsed in _ELAPSED.finditer(said.text):
        before = said.text[max(at, elapsed.start() - _REACH) : elapsed.start()]
        at = elapsed.end()
        place = max(0, before.rfind("iteration "), before.rfind("iteration="))
        if (named := _ITERATION.match(before, place)) is None:
            continue
        n_found += 1
        took_ns = seconds_ns(elapsed[3], 1.0 if elapsed[1] == "s" else 1e-3)
        if took_ns is not None:
            flush(log)
        front, behind = before[:place], said.text[at : at + _REACH]
        at_ns = _at(log, front, behind, number)
        if at_ns is None and log.scheduled and log.scheduled[0] == int(named[1]):
            at_ns = log.scheduled[1]
        if took_ns is None:
            log.steps.bad.add("no step, left out", number, f"its elapsed time is {clean(elapsed[3], 40)!r}")
            continue
        if log.steps.step(int(named[1]), line=number, at_ns=at_ns, took_ns=took_ns, rank=said.rank):
            log.told(int(named[1]))
            _iterated(log, named[2], behind)
            if world := _OF.search(front):
                log.devices = max(log.devices or 1, int(world[1]))
    if not n_found:
        log.steps.bad.add("no step, left out", number, "it is torn")


def _at(log: Log, front: str, behind: str, number: int) -> int | None:
    """Return when a line says that its last iteration ended."""
    near = front[-_NEAR:]
    at_ns = log.steps.stamp(near if STAMP.match(near) else front, number)
    if at_ns is None and (found := _MOMENT.search(behind)):
        at_ns = round(float(found[1]) * 1000) * (NS_PER_S // 1000)
        log.steps.n_zoned += 1
        log.steps.seen(at_ns)
    return at_ns


def _iterated(log: Log, samples: str | None, behind: str) -> None:
    """Note what else the line of an iteration says."""
    log.started = None
    if samples:
        log.samples = int(samples)
    lost = {"skipped": 0, "nan": 0}
    for what, count in _SKIPPED.findall(behind):
        lost[what] = min(lost[what] + int(count), _MOST)
    if any(lost.values()):
        log.lost.append((len(log.steps) - 1, *lost.values()))


def scheduled(log: Log, line: bytes, number: int) -> None:
    """Keep when DeepSpeed, below Megatron, ended a step: the line of the iteration may have no time.

    Where its timer tells of the same step, that line is later, and nearer to the end of the iteration.
    """
    text = bare(line).text
    if found := _SCHEDULED.search(text):
        at_ns = log.steps.stamp(text, number)
        log.scheduled = None if at_ns is None else (int(found[1]), at_ns)
    elif (found := _CLOCKED.search(text)) and (at_ns := log.steps.stamp(text, number)) is not None:
        step = int(found[1])
        if log.scheduled is None or step >= log.scheduled[0]:
            log.scheduled = (step, at_ns)
