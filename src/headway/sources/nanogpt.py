"""Logs of the nanoGPT family: iterations with a time each, or the speedrun's steps with the training time so far."""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from headway.ledger.history import Run
from headway.sources.asked import Asked
from headway.sources.steplines import StepLines, bare, ending, holds, seconds_ns
from headway.sources.text import clean

_ITER: Final = re.compile(
    r"\biter (\d{1,18}): .{0,200}?\btime ([^\s,]{1,40}?)(ms|s)\b(?:.{0,120}?\bmfu ([^\s,%]{1,20})%)?"
)
_EVALUATED: Final = re.compile(r"\bstep (\d{1,18}): train loss \S+ val loss ")
_TIMED: Final = re.compile(r"\bstep:(\d{1,18})/(\d{1,18}) .{0,200}?\btrain_time: ?([^\s]{1,40}?)(ms|s)\b")
_DEVICE: Final = re.compile(r"\|\s+(\d{1,3})\s+((?:NVIDIA|AMD|Tesla|GeForce)\b[^|]{1,60}?)\s+(?:On|Off|N/A)\s*\|")
_ANY: Final = re.compile(
    rb"\biter \d+: [^\r\n]{0,200}?\btime [\d.]+m?s\b|\bstep:\d+/\d+ [^\r\n]{0,200}?\btrain_time: ?[\d.]+m?s\b"
)
_MARKS: Final = (
    b"iter ",
    b"train_time:",
    b"val loss ",
    b"saving checkpoint to",
    b"tokens per iteration will be",
    b" Off ",
    b" On ",
)
_UNIT: Final = {"ms": 1e-3, "s": 1.0}


class NanoGPT:
    """The source of nanoGPT and modded-nanogpt logs."""

    name = "nanogpt"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no log of nanoGPT, or None when it is one."""
        if path.is_dir():
            return "it is a folder and not a log file"
        if any(holds(path, head, mark, _ANY) for mark in (b"iter ", b"train_time:")):
            return None
        return "no line in it tells of an iter with its time, or of a step with the train_time"

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the run of a log.

        Raises:
            SourceError: No line tells of a step, slug ``no-runs``.
            OSError: It cannot be read.
        """
        log = StepLines(self.name, path)
        iterations, timed = _Iterations(log), _Timed(log)
        devices: dict[int, str] = {}
        for number, line in log.lines():
            if any(mark in line for mark in _MARKS):
                said = bare(line)
                if found := _TIMED.search(said.text):
                    timed.take(found, number, said.rank)
                elif found := _ITER.search(said.text):
                    at_ns = log.stamp(said.text[: found.start()], number)
                    iterations.take(found, number, at_ns, said.rank)
                elif found := _DEVICE.search(said.text):
                    devices[int(found[1])] = found[2]
                else:
                    iterations.other(said.text, number)
            elif (reason := ending(line)) is not None:
                iterations.marks.append((number, reason, 0))
        if not len(log):
            log.first = 0
            iterations.finish()
        else:
            timed.finish([mark for mark in iterations.marks if mark[1] in {"failed", "preempted"}])
        kinds = set(devices.values())
        kind = kinds.pop() if len(kinds) == 1 else None
        return [log.run(clean(path.stem), asked, devices=len(devices) or None, accelerator=kind)]


@dataclass
class _Timed:
    """Lines of a speedrun: ``train_time`` is what training took so far, evaluations left out."""

    log: StepLines
    last: int = 0
    planned: int = 0
    before_ns: int = 0
    begun: int = 0
    cold: int = 0
    warmed: list[str] = field(default_factory=list)

    def take(self, found: re.Match[str], number: int, rank: int) -> None:
        """Read a line."""
        log = self.log
        step, total_ns = int(found[1]), seconds_ns(found[3], _UNIT[found[4]])
        if total_ns is None or step >= 1 << 61:
            log.bad.add("no step, left out", number, f"its train_time is {clean(found[3], 40)!r}")
            return
        self.planned = int(found[2])
        if step < self.last or (step == 0 and self.last):
            log.banner(line=number)
            self.last = self.before_ns = 0
            self.begun = self.cold = len(log)
        if total_ns < self.before_ns:
            self._warm(number)
        took, steps = total_ns - self.before_ns, step - self.last
        if steps > 0:
            if not log.step(step, line=number, took_ns=took // steps, count=steps, rank=rank):
                return
        elif step and len(log) > self.begun:  # the end of the same step, told by its evaluation
            log.columns["took"][-1] += took // max(1, log.columns["count"][-1])
        elif step == 0:
            return  # before the first step: its time is in that step's
        self.last, self.before_ns = step, total_ns

    def _warm(self, number: int) -> None:
        """Book what the time had come to when it began anew: the program says that it is no training time."""
        took = self.log.columns["took"]
        took[self.cold : len(took)] = 0
        self.cold = len(took)
        self.log.span("startup", line=number, took_ns=self.before_ns)
        self.warmed.append(f"{self.last} in line {number}")
        self.before_ns = 0

    def finish(self, marks: list[tuple[int, str, int]]) -> None:
        """Say how it ended."""
        if self.warmed:
            self.log.warnings.append(
                f"train_time begins anew after step {', '.join(self.warmed)}: what it had come to is warm-up by the "
                "program's own word, and counted as startup"
            )
        for number, reason, _ in marks:
            self.log.close(reason, line=number)
        if 0 < self.planned <= self.last:
            self.log.close("finished", line=self.log.columns["line"][-1] + 1)


@dataclass
class _Iterations:
    """Lines of nanoGPT: each iteration that is logged with its own time, an evaluation before it included."""

    log: StepLines
    columns: dict[str, array[int]] = field(
        default_factory=lambda: {name: array("q") for name in ("line", "step", "took", "at", "rank", "eval")}
    )
    mfu: array[float] = field(default_factory=lambda: array("d"))
    marks: list[tuple[int, str, int]] = field(default_factory=list)
    evaluated: int = -1
    evaluated_in: int = 0

    def take(self, found: re.Match[str], number: int, at_ns: int | None, rank: int) -> None:
        """Read the line of an iteration."""
        step, took = int(found[1]), seconds_ns(found[2], _UNIT[found[3]])
        if took is None or step >= 1 << 61:
            self.log.bad.add("no step, left out", number, f"its time is {clean(found[2], 40)!r}")
            return
        evaluated = step == self.evaluated
        row = (number, step, took, -1 if at_ns is None else at_ns, rank, evaluated)
        for column, value in zip(self.columns.values(), row, strict=True):
            column.append(value)
        try:
            self.mfu.append(float(found[4] or "nan") / 100)
        except ValueError:
            self.mfu.append(float("nan"))
        if evaluated:
            self.evaluated = -1

    def other(self, text: str, number: int) -> None:
        """Read another line."""
        if found := _EVALUATED.search(text):
            self._untimed()
            self.evaluated, self.evaluated_in = int(found[1]), number
        elif "saving checkpoint to" in text:
            self.marks.append((number, "saved", self.evaluated))
        elif "tokens per iteration will be" in text:
            self.marks.append((number, "banner", 0))

    def _untimed(self) -> None:
        """Note an evaluation that no line with a time came after."""
        if self.evaluated >= 0:
            self.marks.append((self.evaluated_in, "evaluation", 0))
        self.evaluated = -1

    def finish(self) -> None:
        """Give all to the log, in the order of the lines."""
        self._untimed()
        self.marks.sort()
        line, step, took, at, rank, evaluated = (np.frombuffer(one, np.int64) for one in self.columns.values())
        with_eval = evaluated.astype(bool)
        first = np.concatenate([[True], np.diff(step) <= 0])[: len(step)]
        usual = int(np.median(took[~with_eval])) if (~with_eval).any() else None
        beyond = np.where(with_eval, took - (0 if usual is None else usual), 0)
        each = np.maximum(beyond[with_eval & ~first], 0)
        evaluation = int(np.median(each)) if len(each) else None
        lost = self._lost()
        if usual is not None and (beyond > 0).any():
            self.log.warnings.append(
                "what an iteration with an evaluation took beyond the median of the others is counted as that "
                "evaluation, what was saved with it included; of the first, beyond the later ones, as compile"
            )
        elif with_eval.any():
            self.log.warnings.append("evaluations are in the iterations after them: nothing tells how long they took")
        place = 0
        for index in range(len(step)):
            number, own = int(line[index]), int(took[index])
            while place < len(self.marks) and self.marks[place][0] < number:
                self._mark(*self.marks[place], before=int(step[index]))
                place += 1
            moment = None if at[index] < 0 else int(at[index])
            if usual is not None and beyond[index] > 0:
                own = usual
                for name, ns in _split(int(beyond[index]), evaluation, first=bool(first[index])):
                    self.log.span(name, line=number, took_ns=ns, at_ns=None if moment is None else moment - own)
            self.log.step(int(step[index]), line=number, at_ns=moment, took_ns=own, rank=int(rank[index]))
            if lost is not None:
                self.log.wait("below_peak", round(lost[index] * own))
        for mark in self.marks[place:]:
            self._mark(*mark, before=int(step[-1]) + 1 if len(step) else 0)

    def _mark(self, number: int, name: str, step: int, before: int) -> None:
        if name == "banner":
            self.log.banner(line=number)
        elif name == "saved":
            self.log.saved((step if step >= 0 else before) - 1, line=number)
        elif name == "evaluation":
            self.log.span("evaluation", line=number)
        else:
            self.log.close(name, line=number)

    def _lost(self) -> list[float] | None:
        """Return which share of each iteration was below the peak, where each says it; -100 % is not yet known."""
        mfu = np.array(self.mfu)
        if not len(mfu) or np.isnan(mfu).all():
            return None
        known = np.flatnonzero(mfu != -1)
        if len(known) and known[0] <= len(mfu) // 2:
            early = mfu == -1
            first = np.minimum.accumulate(np.where(early, len(mfu), np.arange(len(mfu)))[::-1])[::-1]
            mfu = mfu[np.minimum(first, known[-1])]
            if (mfu > 0).all() and (mfu <= 1).all():
                if early.any():
                    self.log.warnings.append(
                        f"{int(early.sum())} lines have no mfu yet; that of the line after them is taken"
                    )
                return [1 - share for share in mfu.tolist()]
        self.log.warnings.append("not every line has an mfu that can be: what was lost below the peak is not known")
        return None


def _split(beyond: int, evaluation: int | None, *, first: bool) -> list[tuple[str, int]]:
    """Return what an iteration took beyond the usual, by category [ns].

    Example:
        >>> _split(9, 4, first=True), _split(9, 4, first=False), _split(9, None, first=True)
        ([('compile', 5), ('evaluation', 4)], [('evaluation', 9)], [('startup', 9)])
    """
    if not first:
        return [("evaluation", beyond)]
    if evaluation is None:
        return [("startup", beyond)]
    return [("compile", max(0, beyond - evaluation)), ("evaluation", min(beyond, evaluation))]
