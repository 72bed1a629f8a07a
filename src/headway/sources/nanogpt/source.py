"""Logs of the nanoGPT family: which of its forms a line has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headway.ledger.history import Run
from headway.sources.asked import Asked
from headway.sources.nanogpt.forms import ANY, BEGIN, FORMS, OTHERS, STEPS
from headway.sources.nanogpt.iterations import Iterations, Mark
from headway.sources.nanogpt.speedrun import STOPPED, TIMED, Speedrun
from headway.sources.steps import front
from headway.sources.steps.line import ENDINGS
from headway.sources.steps.lines import StepLines, bare, ending, holds
from headway.sources.text import clean

if TYPE_CHECKING:
    from headway.sources.steps.alike import Spans

_LISTED: Final = re.compile(r"\|\s+(\d{1,3})\s+((?:NVIDIA|AMD|Tesla|GeForce)\b[^|]{1,60}?)\s+(?:On|Off|N/A)\s*\|")
_RANKS: Final = re.compile(r"\[Gloo\] Rank (\d{1,6}) is connected to (\d{1,6}) peer ranks\. [^:]{1,80}: \2$")
_SAID: Final = re.compile(
    BEGIN + r"(?:\| num_processes +\| (\d{1,6}) +\||Starting with (\d{1,6}) processes\b)|"
    r"\bDistributed world size: (\d{1,6})\b|"
    r"\bworld_size: ?(\d{1,6})\b|\bdistributed processes registered\. Starting with (\d{1,6}) processes"
)
_NAMED: Final = re.compile(BEGIN + r"(?:\| device +\| (\w[^|]{0,60}?) +\||GPU: (\w[^|]{0,60}?) \| Peak )")
_MARKS: Final = (
    *STEPS,
    *OTHERS,
    b" Off ",
    b" On ",
    b"eval_time:",
    STOPPED.encode(),
    b" peer ranks",
    b"world_size:",
    b"| num_processes ",
    b"Distributed world size: ",
    b"Starting with ",
    b"| device ",
    b"| Peak FLOPS",
)


class NanoGPT:
    """The source of nanoGPT and modded-nanogpt logs."""

    name = "nanogpt"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no log of nanoGPT, or None when it is one."""
        if any(holds(path, head, mark, ANY) for mark in STEPS):
            return None
        return "no line in it tells of an iter or a step with its loss and time, or of a step with the train_time"

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the runs of a log: one for each training that it tells.

        Raises:
            SourceError: No line tells of a step, slug ``no-runs``.
            OSError: It cannot be read.
        """
        log = StepLines(self.name, path)
        reader = _Reader(log)
        log.read(reader.learn, reader.iterations.extend, reader.take, (*_MARKS, *ENDINGS))
        iterations, speedrun = reader.iterations, reader.speedrun
        if not len(log):
            iterations.finish()
            trainings = iterations.trainings
        else:
            speedrun.finish([mark for mark in iterations.marks if mark.kind in {"failed", "preempted"}])
            trainings = speedrun.trainings
        name, devices, kind = clean(path.stem), reader.devices, reader.kind
        return [
            each.run(name if number == 1 else f"{name} #{number}", asked, devices=devices, accelerator=kind)
            for number, each in enumerate(trainings, 1)
        ]


class _Reader:
    """What is read of a log."""

    def __init__(self, log: StepLines) -> None:
        self._log = log
        self.iterations = Iterations(log)
        self.speedrun = Speedrun(log)
        self._listed: dict[int, str] = {}
        self._named: set[str] = set()
        self._ranks = 0

    @property
    def devices(self) -> int | None:
        """How many devices the log tells of: as many as ranks, else those that ``nvidia-smi`` lists."""
        return self._ranks or len(self._listed) or None

    @property
    def kind(self) -> str | None:
        """What the devices are, where they are all the same."""
        kinds = self._named or set(self._listed.values())
        return kinds.pop() if len(kinds) == 1 else None

    def learn(self, line: bytes) -> Spans | None:
        """Return where an iteration's number, time and mfu are, and what stands in front of it."""
        if not any(mark in line for mark in _MARKS):
            return () if ending(line) is None else None
        if b"train_time:" in line:
            return None
        for form in FORMS:
            if (found := front.find(line, form)) is not None:
                break
        else:
            return None
        said = found.said
        if said["unit"] != "ms":
            return None
        names = form.groupindex
        mfu = next((name for name in ("mfu", "share") if name in names and said[name]), None)
        spans = [said.span(name) if name in names and said[name] else (0, 0) for name in ("planned", "percent")]
        return (said.span("step"), said.span("took"), said.span(mfu) if mfu else (0, 0), *spans, *found.front)

    def take(self, number: int, line: bytes) -> None:
        """Read one line."""
        if any(mark in line for mark in _MARKS):
            said = bare(line)
            if found := TIMED.search(said.text):
                at_ns = self._log.stamp(said.text[: found.start()], number)
                self.speedrun.take(found, number, at_ns, said.rank)
            elif found := _iteration(said.text):
                at_ns = self._log.stamp(said.text[: found.start()], number)
                self.iterations.take(found, number, at_ns, said.rank)
            else:
                self._other(said.text, number, said.rank)
        elif (reason := ending(line)) is not None:
            self.iterations.marks.append(Mark(number, reason, self._log.stamp("", number)))

    def _other(self, text: str, number: int, rank: int) -> None:
        """Read a line that tells of no step."""
        if found := _LISTED.search(text):
            self._listed[int(found[1])] = found[2]
        elif found := _NAMED.search(text):
            self._named.add(found[1] or found[2])
        elif found := _RANKS.search(text):
            rank, peers = int(found[1]), int(found[2])
            self._ranks = max(self._ranks, peers + 1 if rank <= peers else 0)
        elif found := _SAID.search(text):
            self._ranks = max(self._ranks, *(int(count or 0) for count in found.groups()))
        elif len(self._log):
            self.speedrun.other(text, number, self._log.stamp(text, number))
        else:
            self.iterations.other(text, number, self._log.stamp(text, number), rank)


def _iteration(text: str) -> re.Match[str] | None:
    """Return what a line says of an iteration; None where it says nothing of one."""
    return next((found for form in FORMS if (found := form.search(text))), None)
