"""Lines of a speedrun: steps with the training time so far."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headway.sources.nanogpt.iterations import UNIT, Mark
from headway.sources.steps.lines import StepLines, seconds_ns
from headway.sources.text import clean

TIMED: Final = re.compile(r"\bstep:(\d{1,18})/(\d{1,18}) .{0,200}?\btrain_time: ?([^\s]{1,40}?)(ms|s)\b")


@dataclass
class Speedrun:
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
        step, total_ns = int(found[1]), seconds_ns(found[3], UNIT[found[4]])
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

    def finish(self, marks: Sequence[Mark]) -> None:
        """Say how it ended."""
        if self.warmed:
            self.log.warnings.append(
                f"train_time begins anew after step {', '.join(self.warmed)}: what it had come to is warm-up by the "
                "program's own word, and counted as startup"
            )
        for mark in marks:
            self.log.close(mark.kind, line=mark.number)
        if 0 < self.planned <= self.last:
            self.log.close("finished", line=self.log.columns["line"][-1] + 1)
