"""Logs of MaxText and MaxDiffusion: each step with the seconds since the step before."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.ledger.history import Run
from headway.sources.asked import Asked
from headway.sources.steps import front
from headway.sources.steps.column import Table
from headway.sources.steps.columns import UNKNOWN, parts, search
from headway.sources.steps.line import ENDINGS
from headway.sources.steps.lines import LONGEST, StepLines, bare, ending, holds, seconds_ns
from headway.sources.text import clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headway.sources.steps.alike import Spans

    Ints = NDArray[np.int64]

_ANY: Final = re.compile(rb"completed step: *\d+, *seconds: *[\d.]+")
_STEP: Final = re.compile(r"\bcompleted step: *(\d{1,18}), *seconds: *([^\s,]{1,40})")
_EVALUATED: Final = re.compile(r"\beval metrics after step: *(\d{1,18})\b")
_SAVED: Final = re.compile(
    r"\b(?:[Ss]aved a checkpoint at step|Started an asynchronous checkpoint save for step) *(\d{1,18})\b"
)
_RESTORED: Final = re.compile(r"\brestoring from this run's directory step *(\d{1,18})\b", re.IGNORECASE)
_DEVICES: Final = re.compile(r"\bNum_devices: *(\d{1,7})\b")
_PLANNED: Final = re.compile(r"\bConfig param steps: *(\d{1,18})\b")
_MARKS: Final = (
    b"completed step:",
    b"eval metrics after step:",
    b"a checkpoint at step",
    b"asynchronous checkpoint save for step",
    b"run's directory step",
    b"Num_devices:",
    b"Config param steps:",
    b"System Information: Jax Version",
)
_GLOG: Final = re.compile(r"\s*[DIWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?\s")
_YEAR: Final = 1972
"""The year that times without one are read as: a leap year."""
_YEAR_NS: Final = 366 * 24 * 3600 * NS_PER_S
_WORTH: Final = 0.1
"""Less than that of a step's time is not told from its usual ups and downs."""


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


@dataclass(slots=True)
class _Line:
    """A line that tells of something else than steps; ``at`` is -1 where nothing tells its time."""

    number: int
    kind: str
    step: int
    at: int


@dataclass
class _Log:
    """A log as it is read."""

    steps: StepLines
    rows: Table = field(default_factory=lambda: Table("line", "step", "took", "at", "rank"))
    rare: list[_Line] = field(default_factory=list)
    devices: int | None = None
    planned: int = 0
    last_at: int = -1
    yearless: bool = False

    def learn(self, line: bytes) -> Spans | None:
        """Return where a step's number and its seconds are, and what stands in front of it."""
        if not any(mark in line for mark in _MARKS):
            return () if ending(line) is None else None
        if (found := front.find(line, _STEP, before=False)) is None:
            return None
        said, (rank, year, *rest, zone) = found.said, found.front
        if glog := _GLOG.match(said.string, found.begin):
            if year[0] >= found.begin and year[1]:
                return None
            if not year[1]:
                second = glog.start(5), glog.end(6) if glog[6] else glog.end(5)
                rest = [*(glog.span(group) for group in range(1, 5)), second]
        return (said.span(1), said.span(2), rank, year, *rest, zone)

    def extend(self, numbers: Ints, values: list[NDArray[np.float64]]) -> bool:
        """Read many lines of steps, as learned; return whether all they say makes sense."""
        step, seconds, rank, year, *rest, zone = values
        yearless = np.isnan(year) & np.isfinite(rest[0])
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
        self.rows.extend(numbers, step.astype(np.int64), took, at, front.ranks(rank))
        return True

    def take(self, number: int, line: bytes) -> None:
        """Read one line."""
        if any(mark in line for mark in _MARKS):
            said = bare(line)
            at = self._moment(said.text, number)
            if found := _STEP.search(said.text):
                self._step(found, number, at, said.rank)
            else:
                self._other(said.text, number)
        elif (reason := ending(line)) is not None:
            self.note(number, reason)

    def _step(self, found: re.Match[str], number: int, at: int | None, rank: int) -> None:
        took = seconds_ns(found[2])
        if took is None:
            self.steps.bad.add("no step, left out", number, f"its seconds are {clean(found[2], 40)!r}")
        else:
            self.rows.append((number, int(found[1]), took, UNKNOWN if at is None else at, rank))

    def _other(self, text: str, number: int) -> None:
        if found := _EVALUATED.search(text):
            self.note(number, "evaluation", int(found[1]))
        elif found := _SAVED.search(text):
            self.note(number, "checkpoint_save", int(found[1]))
        elif found := _RESTORED.search(text):
            self.note(number, "restored", int(found[1]))
        elif found := _DEVICES.search(text):
            self.devices = int(found[1]) or None
        elif found := _PLANNED.search(text):
            self.planned = int(found[1])
        elif "System Information: Jax Version" in text:
            self.note(number, "banner")

    def note(self, number: int, kind: str, step: int = 0) -> None:
        """Note a line that tells of something else than steps."""
        self.rare.append(_Line(number, kind, step, self.last_at))

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
        extra, usual = self._extra(step, took)
        longer = np.flatnonzero(np.isin(step, list(extra)) & (took > usual)) if extra else np.zeros(0, np.int64)
        told = [(place, index) for index, place in enumerate(search(line, [one.number for one in self.rare]))]
        told += [(place, len(self.rare)) for place in longer.tolist()]
        done = 0
        for place, index in [*sorted(told), (len(step), -1)]:
            self._steps(line[done:place], step[done:place], took[done:place], at[done:place], rank[done:place])
            done = place
            if 0 <= index < len(self.rare):
                self._mark(self.rare[index])
            elif index >= 0:
                when = None if at[place] < 0 else int(at[place]) - usual
                beyond, number = int(took[place]) - usual, int(line[place])
                self.steps.span(extra[int(step[place])], line=number, at_ns=when, took_ns=beyond, inferred=True)
                took[place] = usual
        if len(step) and 0 < self.planned <= int(step.max()) + 1:
            self.steps.close("finished", line=int(line.max()) + 1, at_ns=int(at.max()) if at.max() >= 0 else None)
        self.rows = Table()

    def _steps(self, line: Ints, step: Ints, took: Ints, at: Ints, rank: Ints) -> None:
        for part in parts(len(step)):
            self.steps.steps(step[part], line=line[part], at=at[part], took=took[part], rank=rank[part])

    def _years(self, at: Ints) -> Ints:
        """Return times of which those after a new year are later than those before it."""
        if self.yearless and (known := at[at >= 0]).size:
            middle = int(known.min()) + _YEAR_NS // 2
            if int(known.max()) - int(known.min()) > _YEAR_NS * 3 // 4:
                at = np.where((at >= 0) & (at < middle), at + _YEAR_NS, at)
                for one in self.rare:
                    one.at += _YEAR_NS if 0 <= one.at < middle else 0
        return at

    def _extra(self, step: Ints, took: Ints) -> tuple[dict[int, str], int]:
        """Return which steps took an evaluation or a save with them, as what, and how long others usually take [ns].

        The seconds of a step go from the step before it: what was done after that is in them.
        """
        after: dict[int, set[str]] = {}
        for one in self.rare:
            if one.kind in {"evaluation", "checkpoint_save"}:
                after.setdefault(one.step + 1, set()).add(one.kind)
        with_more = np.isin(step, list(after))
        plain = took[~with_more] if after else took[:0]
        if not len(plain):
            return {}, 0
        usual = int(np.median(plain, overwrite_input=True))
        longer = {int(one) for one in step[with_more & (took > usual * (1 + _WORTH))]}
        kinds = {number: after[number].pop() if len(after[number]) == 1 else "unaccounted" for number in longer}
        if kinds:
            self.steps.warnings.append(
                "evaluations and saves are in the seconds of the step after them: what such a step took beyond the "
                "median of the others is counted as theirs, and as unaccounted where both came before it"
            )
        return kinds, usual

    def _mark(self, one: _Line) -> None:
        at_ns = None if one.at < 0 else one.at
        if one.kind == "checkpoint_save":
            self.steps.saved(one.step, line=one.number, at_ns=at_ns)
        elif one.kind == "restored":
            self.steps.restored(one.step, line=one.number, at_ns=at_ns)
        elif one.kind == "banner":
            self.steps.banner(line=one.number, at_ns=at_ns)
        elif one.kind != "evaluation":
            self.steps.close(one.kind, line=one.number, at_ns=at_ns)
