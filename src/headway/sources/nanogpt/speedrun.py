"""Lines of a speedrun: steps with the training time so far."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headway.sources.nanogpt.forms import UNIT
from headway.sources.nanogpt.iterations import Mark
from headway.sources.nanogpt.trainings import another, share
from headway.sources.steps.columns import UNKNOWN
from headway.sources.steps.lines import StepLines, seconds_ns
from headway.sources.text import clean

TIMED: Final = re.compile(r"\bstep:(\d{1,18})/(\d{1,18}) .{0,200}?\btrain_time: ?([^\s]{1,40}?)(ms|s)\b")
STOPPED: Final = "stopping_early: wallclock_cap"
EVALUATED: Final = re.compile(r"\bval_loss:.{0,200}?\beval_time: ?(\d[^\s]{0,40}?)(ms|s)\b")
_MFU: Final = re.compile(r".{0,120}?\bmfu: ?(\d{1,3}(?:\.\d{0,15})?)%")
_PEAK: Final = "below_peak"


@dataclass
class _Training:
    """One training.

    Attributes:
        log: What its lines are told to.
        opened: The step of its first line.
        last, total_ns, at_ns: The step, the training time and the moment of the line before.
        planned: How many steps it has.
        done: Whether it came to its end.
        begun, cold: The first line of its attempt, and the first that is training by the program's word.
        warmed: Where the training time began anew.
        blind: How many lines told no share of the peak.
    """

    log: StepLines
    opened: int
    last: int = 0
    total_ns: int = 0
    at_ns: int | None = None
    planned: int = 0
    done: bool = False
    begun: int = 0
    cold: int = 0
    warmed: list[str] = field(default_factory=list)
    blind: int = 0

    def take(self, found: re.Match[str], total_ns: int, number: int, at_ns: int | None, rank: int) -> None:
        """Read a line."""
        log, step = self.log, int(found[1])
        self.planned = int(found[2])
        if step < self.last or (step == 0 and self.last):
            log.banner(line=number)
            self.last, self.total_ns, self.done = 0, 0, False
            self.begun = self.cold = len(log)
        if total_ns < self.total_ns:
            self._warm(number)
        took, steps, evaluates = total_ns - self.total_ns, step - self.last, "val_loss:" in found[0]
        if steps > 0:
            ended = at_ns
            if evaluates and at_ns is not None and self.at_ns is not None:  # it is told after the evaluation
                ended = min(at_ns, self.at_ns + took)
            if not log.step(step, line=number, at_ns=ended, took_ns=took // steps, count=steps, rank=rank):
                return
            self._peak(None if evaluates else _MFU.match(found.string, found.end()), took // steps)
        elif step and len(log) > self.begun:  # the end of the same step, told by its evaluation
            self._longer(took, at_ns)
        if step and evaluates and at_ns is not None:
            log.span("evaluation", line=number, at_ns=at_ns)
        elif at_ns is not None:
            log.seen(at_ns)
        self.at_ns = at_ns
        if step:  # before the first, its time is in that step's
            self.last, self.total_ns = step, total_ns
            self.done = 0 < self.planned <= step

    def _longer(self, took_ns: int, at_ns: int | None) -> None:
        """Make the last step longer by what its evaluation tells."""
        columns = self.log.columns
        whole, ended = columns["took"][-1], columns["at"][-1]
        columns["took"][-1] = longer = whole + took_ns // max(1, columns["count"][-1])
        if at_ns is not None and ended != UNKNOWN:
            columns["at"][-1] = max(ended, min(at_ns, ended + took_ns))
        if (lost := self.log.waits.get(_PEAK)) is not None and len(lost) == len(self.log) and whole:
            lost[-1] = round(lost[-1] / whole * longer)

    def _peak(self, found: re.Match[str] | None, took_ns: int) -> None:
        """Note the share of the peak that a line tells."""
        mfu = float(found[1]) / 100 if found else 0
        if 0 < mfu <= 1:
            self.log.wait(_PEAK, round((1 - mfu) * took_ns))
        else:
            self.blind += 1

    def _warm(self, number: int) -> None:
        """Book what the time had come to when it began anew: the program says that it is no training time."""
        took, lost = self.log.columns["took"], self.log.waits.get(_PEAK)
        took[self.cold : len(took)] = 0
        if lost is not None:
            lost[self.cold :] = array("q", bytes(8 * max(0, len(lost) - self.cold)))
        self.cold = len(took)
        self.log.span("startup", line=number, took_ns=self.total_ns, at_ns=self.at_ns)
        self.warmed.append(f"{self.last} in line {number}")
        self.total_ns = 0

    def finish(self, marks: Sequence[Mark]) -> None:
        """Say how it ended."""
        log = self.log
        if self.warmed:
            log.warnings.append(
                f"train_time begins anew after step {', '.join(self.warmed)}: what it had come to is warm-up by the "
                "program's own word, and counted as startup"
            )
        if self.blind and log.waits.pop(_PEAK, None) is not None:
            log.warnings.append("not every line has an mfu that can be: what was lost below the peak is not known")
        for mark in marks:
            log.close(mark.kind, line=mark.number, at_ns=mark.at_ns)
        if self.done and len(log):
            log.close("finished", line=log.columns["line"][-1] + 1)


class Speedrun:
    """Lines of speedruns: ``train_time`` is what training took so far, evaluations left out.

    Attributes:
        trainings: What the lines of each training are told to, in the order of the log; without those without a step.
    """

    def __init__(self, log: StepLines) -> None:
        """Begin with nothing."""
        self._read = log
        self._all = [_Training(log, -1)]

    @property
    def trainings(self) -> list[StepLines]:
        """What the lines of each training are told to."""
        return [training.log for training in self._all]

    def take(self, found: re.Match[str], number: int, at_ns: int | None, rank: int) -> None:
        """Read a line."""
        now, step, total_ns = self._all[-1], int(found[1]), seconds_ns(found[3], UNIT[found[4]])
        if total_ns is None or step >= 1 << 61:
            self._read.bad.add("no step, left out", number, f"its train_time is {clean(found[3], 40)!r}")
            return
        if now.done and step < now.last and step <= now.opened:
            now = _Training(another(self._read, 1), step)
            self._all.append(now)
        elif now.opened < 0:
            now.opened = step
        now.take(found, total_ns, number, at_ns, rank)

    def other(self, text: str, number: int, at_ns: int | None) -> None:
        """Read another line."""
        now = self._all[-1]
        if STOPPED in text:
            now.done = len(now.log) > 0
        elif found := EVALUATED.search(text):
            now.log.span("evaluation", line=number, took_ns=seconds_ns(found[1], UNIT[found[2]]), at_ns=at_ns)
            now.at_ns = at_ns

    def finish(self, marks: Sequence[Mark]) -> None:
        """Say how each ended; the marks are those of the whole log."""
        if len(self._all) > 1 and not len(self._all[-1].log):
            self._all.pop()
            self._read.warnings.append(
                "another training begins after the last one and tells of no step: it is left out"
            )
        begins = [training.log.columns["line"][0] for training in self._all[1:]]
        share(self.trainings, [training.at_ns for training in self._all[:-1]])
        numbers = [mark.number for mark in marks]
        places = [0, *(bisect_left(numbers, begin) for begin in begins), len(marks)]
        for training, begin, end in zip(self._all, places, places[1:], strict=False):
            training.finish(marks[begin:end])
