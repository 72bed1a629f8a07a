"""Logs of MaxText and MaxDiffusion: each step with the seconds since the step before."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.events import CLOSE_REASONS
from headway.ledger.history import Run
from headway.sources.asked import Asked
from headway.sources.maxtext.clock import STARTS, OnClock, Rows, Told, end_to_end
from headway.sources.steps import front
from headway.sources.steps.column import Table
from headway.sources.steps.columns import UNKNOWN, parts, search
from headway.sources.steps.line import ENDINGS
from headway.sources.steps.lines import LONGEST, Bare, StepLines, bare, ending, holds, seconds_ns
from headway.sources.text import clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headway.sources.steps.alike import Spans

    Ints = NDArray[np.int64]

_ANY: Final = re.compile(rb"completed step: *\d+, *seconds: *[\d.]+")
_STEP: Final = re.compile(r"\bcompleted step: *(\d{1,18}), *seconds: *([^\s,]{1,40})")
_EVAL_STEP: Final = re.compile(r"\bCompleted eval step: *\d{1,18}, *seconds: *([^\s,]{1,40})")
_HIDDEN: Final = re.compile(r"\bcompleted profiler activation/deactivation step: *(\d{1,18})\b")
_SAYS: Final = (
    ("evaluation", re.compile(r"\b(?:eval metrics after step:|Completed eval after train step) *(\d{1,18})\b")),
    ("evaluation begins", re.compile(r"\bStarting eval after train step *(\d{1,18})\b")),
    (
        "checkpoint_save",
        re.compile(
            r"\b(?:[Ss]aved a checkpoint at step|Started an asynchronous checkpoint save for step) *(\d{1,18})\b"
        ),
    ),
    (
        "checkpoint_save begins",
        re.compile(r"\bWaited \S{1,40} seconds for step (\d{1,18}) to finish before starting\b"),
    ),
    ("waits", re.compile(r"\bWaiting for step (\d{1,18}) to finish before checkpoint\b")),
    ("restored", re.compile(r"\brestoring from this run's directory step *(\d{1,18})\b", re.IGNORECASE)),
)
"""What a line tells, and of which step."""
_STOPPED: Final = re.compile(r"\bTraining stopped: (.{1,200})")
_REASONS: Final = (
    ("preempted", re.compile(r"\bpreempted\b")),
    ("finished", re.compile(r"\bTarget loss\b.*\bachieved\b|\brun out of training data\b")),
    ("failed", re.compile("")),
)
"""How a program ended that says why it stopped."""
_DEVICES: Final = re.compile(r"\bNum_devices: *(\d{1,7})\b")
_PLANNED: Final = re.compile(r"\bConfig param steps: *(\d{1,18})\b")
_MARKS: Final = (
    b"completed step:",
    b"eval step:",
    b"eval metrics after step:",
    b"eval after train step",
    b"to finish before",
    b"deactivation step:",
    b"a checkpoint at step",
    b"asynchronous checkpoint save for step",
    b"run's directory step",
    b"Num_devices:",
    b"Config param steps:",
    b"System Information: Jax Version",
    b"Training stopped:",
)
_GLOG: Final = re.compile(
    r"\s*(?:\(\w{1,60} pid=\d{1,10}(?:, ip=[^\s()]{1,60})?\) )?"
    r"[DIWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?\s"
)
"""The time that absl puts in front, behind the name that Ray gives the worker."""
_YEAR: Final = 1972
"""The year that times without one are read as: a leap year."""
_YEAR_NS: Final = 366 * 24 * 3600 * NS_PER_S


class MaxText:
    """The source of MaxText logs."""

    name = "maxtext"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no log of MaxText, or None when it is one."""
        return None if holds(path, head, _MARKS[0], _ANY) else "no line in it tells of a completed step and its seconds"

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the run of a log.

        Raises:
            SourceError: No line tells of a step, slug ``no-runs``.
            OSError: It cannot be read.
        """
        log = _Log(StepLines(self.name, path, usual=1, first=0))
        log.steps.read(log.learn, log.extend, log.take, (*_MARKS, *ENDINGS))
        log.finish()
        return [log.steps.run(clean(path.stem), asked, devices=log.devices)]


@dataclass
class _Log:
    """A log as it is read."""

    steps: StepLines
    rows: Table = field(default_factory=lambda: Table("line", "step", "took", "at", "rank"))
    evals: Table = field(default_factory=lambda: Table("line", "took", "rank"))
    told: list[Told] = field(default_factory=list)
    devices: int | None = None
    planned: int = 0
    last_at: int = -1
    yearless: bool = False

    def learn(self, line: bytes) -> Spans | None:
        """Return where a step's number and its seconds are, or those of an evaluation's, and what stands in front."""
        if not any(mark in line for mark in _MARKS):
            return () if ending(line) is None else None
        evaluates = b"eval step:" in line
        if (found := front.find(line, _EVAL_STEP if evaluates else _STEP, before=False)) is None:
            return None
        said, (rank, year, *rest, zone) = found.said, found.front
        if glog := _GLOG.match(said.string, found.begin):
            if year[0] >= found.begin and year[1]:
                return None
            if not year[1]:
                second = glog.start(5), glog.end(6) if glog[6] else glog.end(5)
                rest = [*(glog.span(group) for group in range(1, 5)), second]
        numbers = ((0, 0), (0, 0), said.span(1)) if evaluates else (said.span(1), said.span(2), (0, 0))
        return (*numbers, rank, year, *rest, zone)

    def extend(self, numbers: Ints, values: list[NDArray[np.float64]]) -> bool:
        """Read many lines of steps, as learned; return whether all they say makes sense."""
        step, seconds, of_eval, rank, year, *rest, zone = values
        yearless = np.isnan(year) & np.isfinite(rest[0])
        evaluates = np.isfinite(of_eval)
        seconds = np.where(evaluates, of_eval, seconds) if evaluates.any() else seconds
        if seconds.max() > LONGEST / NS_PER_S or yearless.any() != yearless.all():
            return False
        if yearless.any():
            at = front.moments(np.full(len(step), float(_YEAR)), *rest)
        else:
            at = self.steps.stamps([year, *rest, zone])
        if at is None:
            return False
        if len(known := at[at != UNKNOWN]):
            self.last_at = int(known[-1])
        self.yearless = self.yearless or bool(yearless.any())
        took = np.rint(seconds * NS_PER_S).astype(np.int64)
        who, number = front.ranks(rank), np.where(evaluates, 0, step).astype(np.int64)
        for table, columns, which in (
            (self.evals, (numbers, took, who), evaluates),
            (self.rows, (numbers, number, took, at, who), ~evaluates),
        ):
            if which.all():
                table.extend(*columns)
            elif which.any():
                table.extend(*(column[which] for column in columns))
        return True

    def take(self, number: int, line: bytes) -> None:
        """Read one line."""
        if any(mark in line for mark in _MARKS):
            said = bare(line)
            at = self._moment(said.text, number)
            if found := _STEP.search(said.text):
                self._step(found, number, at, said.rank)
            elif found := _HIDDEN.search(said.text):
                self.rows.append((number, int(found[1]), UNKNOWN, UNKNOWN if at is None else at, said.rank))
            elif (found := _EVAL_STEP.search(said.text)) and (took := seconds_ns(found[1])) is not None:
                self.evals.append((number, took, said.rank))
            else:
                self._other(said, number)
        elif (reason := ending(line)) is not None:
            self.note(number, reason)

    def _step(self, found: re.Match[str], number: int, at: int | None, rank: int) -> None:
        took = seconds_ns(found[2])
        if took is None:
            self.steps.bad.add("no step, left out", number, f"its seconds are {clean(found[2], 40)!r}")
        else:
            self.rows.append((number, int(found[1]), took, UNKNOWN if at is None else at, rank))

    def _other(self, said: Bare, number: int) -> None:
        for kind, says in _SAYS:
            if found := says.search(said.text):
                self.note(number, kind, int(found[1]), said.rank)
                return
        if found := _DEVICES.search(said.text):
            self.devices = int(found[1]) or None
        elif found := _PLANNED.search(said.text):
            self.planned = int(found[1])
        elif "System Information: Jax Version" in said.text:
            self.note(number, "banner")
        elif found := _STOPPED.search(said.text):
            self.note(number, next(reason for reason, says in _REASONS if says.search(found[1])), rank=said.rank)
            self.told[-1].flushes = True

    def note(self, number: int, kind: str, step: int = 0, rank: int = -1) -> None:
        """Note a line that tells of something else than steps."""
        self.told.append(Told(number, kind, step, self.last_at, rank))

    def _moment(self, text: str, number: int) -> int | None:
        """Return when a line was written [ns]; None where it does not say."""
        if (found := _GLOG.match(text)) and (at := self.steps.stamp("", number)) is None:
            month, day, hour, minute, second = (int(found[group]) for group in range(1, 6))
            try:
                whole = datetime(_YEAR, month, day, hour, minute, min(second, 59), tzinfo=UTC) - datetime(
                    1970, 1, 1, tzinfo=UTC
                )
            except ValueError:
                self.steps.bad.add("with a time of no sense, read without it", number, found[0])
                return None
            self.yearless = True
            fraction = int((found[6] or "0").ljust(9, "0"))
            self.last_at = whole // timedelta(seconds=1) * NS_PER_S + fraction
            return self.last_at
        if found is None:
            at = self.steps.stamp(text, number)
        self.last_at = self.last_at if at is None else at
        return at

    def finish(self) -> None:
        """Give all to the steps' log, in the order of the lines."""
        line, step, took, at, rank = (column.values() for column in self.rows.columns.values())
        at = self._years(at)
        if self.yearless:
            self.steps.warnings.append(f"times in the log name no year and no zone: they are read as of {_YEAR}, UTC")
        rows = Rows(line, step, took, at, rank)
        if 2 * np.count_nonzero(at != UNKNOWN) >= len(at) > 0:
            took = OnClock(rows, self.told).took()
        else:
            took = end_to_end(rows, self.told, self._evaluations())
        if any(one.inferred for one in self.told):
            self.steps.warnings.append(
                "how long some evaluations or saves took is not in the log: what the steps or the time around them "
                "took beyond the median step is counted as theirs, and as unaccounted where both came before one step"
            )
        self._put_off(rows)
        done = 0
        places: list[int | None] = [*search(line, [one.number for one in self.told])]
        for place, one in [*zip(places, self.told, strict=True), (None, None)]:
            self._steps(line[done:place], step[done:place], took[done:place], at[done:place], rank[done:place])
            if place is not None and one is not None:
                done = place
                self._mark(one)
        if len(step) and 0 < self.planned <= int(step.max()) + 1:
            self.steps.close("finished", line=int(line.max()) + 1, at_ns=int(at.max()) if at.max() >= 0 else None)
        self.rows, self.evals = Table(), Table()

    def _steps(self, line: Ints, step: Ints, took: Ints, at: Ints, rank: Ints) -> None:
        for part in parts(len(step)):
            self.steps.steps(step[part], line=line[part], at=at[part], took=took[part], rank=rank[part])

    def _years(self, at: Ints) -> Ints:
        """Return times of which those after a new year are later than those before it."""
        if self.yearless and (known := at[at >= 0]).size:
            middle = int(known.min()) + _YEAR_NS // 2
            if int(known.max()) - int(known.min()) > _YEAR_NS * 3 // 4:
                at = np.where((at >= 0) & (at < middle), at + _YEAR_NS, at)
                for one in self.told:
                    one.at += _YEAR_NS if 0 <= one.at < middle else 0
        return at

    def _evaluations(self) -> list[int]:
        """Return of each other line what the steps of the evaluation that it ends took together [ns], or -1."""
        line, took, rank = (column.values() for column in self.evals.columns.values())
        if not len(line):
            return [-1] * len(self.told)
        names, counts = np.unique(rank, return_counts=True)
        sums = np.concatenate([[0], np.cumsum(np.where(rank == names[np.argmax(counts)], took, 0))])
        lengths, done = [], 0
        for one, place in zip(self.told, search(line, [one.number for one in self.told]), strict=True):
            ends = one.kind == "evaluation" and place > done
            lengths.append(int(sums[place] - sums[done]) if ends else -1)
            done = place if one.kind in {"evaluation", "evaluation begins", *STARTS} else done
        return lengths

    def _put_off(self, rows: Rows) -> None:
        """Let an end after which the line of the last step still comes be behind that line."""
        places = search(rows.line, [one.number for one in self.told])
        next_begun = len(rows.line)
        for one, place in reversed([*zip(self.told, places, strict=True)]):
            if one.kind in STARTS:
                next_begun = place
            elif one.flushes and place < next_begun and (rows.step[place:next_begun] == rows.step[place]).all():
                one.number, one.at = int(rows.line[next_begun - 1]) + 1, max(one.at, int(rows.at[next_begun - 1]))
        self.told.sort(key=lambda one: one.number)

    def _mark(self, one: Told) -> None:
        number, at_ns = one.number, None if one.at < 0 else one.at
        if at_ns is not None:
            self.steps.seen(at_ns)
        if one.took > 0:
            until = None if one.until < 0 else one.until
            self.steps.span(one.name, line=number, at_ns=until, took_ns=one.took, inferred=one.inferred)
        elif one.took < 0 and one.kind == "evaluation":
            self.steps.span("evaluation", line=number, at_ns=at_ns)  # it took time, and nothing tells how much
        if one.kind == "checkpoint_save":
            self.steps.saved(one.step, line=number, at_ns=at_ns)
        elif one.kind == "restored":
            self.steps.restored(one.step, line=number, at_ns=at_ns)
        elif one.kind == "banner":
            self.steps.banner(line=number, at_ns=at_ns)
        elif one.kind in CLOSE_REASONS:
            self.steps.close(one.kind, line=number, at_ns=at_ns)
