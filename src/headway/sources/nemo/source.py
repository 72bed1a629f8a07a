"""Console logs of NeMo: the lines of steps of NeMo 2, and the progress bars of NeMo 1."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from headway.clock import NS_PER_S
from headway.sources import files
from headway.sources.nemo.between import between
from headway.sources.steps import front
from headway.sources.steps.column import Table
from headway.sources.steps.columns import UNKNOWN, search
from headway.sources.steps.line import ENDINGS
from headway.sources.steps.lines import LONGEST, StepLines, bare, ending, holds, seconds_ns
from headway.sources.text import clean

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from headway.ledger.history import Run
    from headway.sources.asked import Asked
    from headway.sources.steps.alike import Spans

    Ints = NDArray[np.int64]

_TIMING: Final = b"train_step_timing in s"
_ANY: Final = re.compile(
    rb"(?:Training epoch|Epoch) \d+, iteration \d+/\d+(?: \||:)[^\r\n]{0,600}?\btrain_step_timing in s: [\d.]|"
    rb"Epoch \d+: [^\r\n]{0,600}?\btrain_step_timing in s=[\d.]"
)
_STEP: Final = re.compile(r"\b(?:Training epoch|Epoch) (\d{1,9}), iteration (\d{1,18})/\d{1,18}(?: \||:) ")
_GLOBAL: Final = re.compile(r"\bglobal_step: (\d{1,18})(?= |$)")
_TOOK: Final = re.compile(r"\btrain_step_timing in s: ([^\s|]{1,40})")
_BAR: Final = re.compile(
    r"\bEpoch (\d{1,9}): .{0,200}?\b(\d{1,18})(?:/\d{1,18}|/\?|it) \[((?:\d{1,9}:)?\d{1,4}:\d\d)[<,]"
)
_BAR_TOOK: Final = re.compile(r"\btrain_step_timing in s=([^\s,\]]{1,40})")
_BAR_GLOBAL: Final = re.compile(r"\bglobal_step=(\d{1,18})(?:\.0*)?[,\]]")
_EVALUATES: Final = re.compile(r"\b(?:Validation|Test): iteration (\d{1,18})/(\d{1,18})\b")
_EVALUATES_BAR: Final = re.compile(
    r"\b(?:Validation|Testing|Sanity Checking)(?: DataLoader \d{1,9})?: .{0,200}?\[((?:\d{1,9}:)?\d{1,4}:\d\d)[<,]"
)
_SAVE: Final = re.compile(
    r"\bGlobal Checkpoint Save : Rank: (\d{1,9}) : Iteration: (\d{1,18}) : .{0,80}?duration: ([\d.]{1,20})s"
)
_SAVED: Final = re.compile(
    r"\bSuccessfully saved checkpoint from iteration +(\d{1,18}) |\bAsync checkpoint save for step (\d{1,18}) \("
    r".{0,1000}\) finalized successfully|, global step (\d{1,18}): .{0,400}?\bsaving model to "
)
_FINALIZED: Final = re.compile(r"\bAsync finalization time took (\d{1,9}\.\d{1,9}) s\b")
_RESTORED: Final = re.compile(r"\bRestor(?:ing|ed) (?:all )?states from the checkpoint .{0,1000}?\bstep=(\d{1,18})\b")
_DEVICES: Final = re.compile(
    r"\bStarting with (\d{1,7}) processes\b|\bGLOBAL_RANK: \d{1,7}, MEMBER: \d{1,7}/(\d{1,7})\b"
)
_STOPPED: Final = re.compile(r"\bTrainer\.fit` stopped: `max_(?:steps|epochs)=\d+` reached")
_TIME_LIMIT: Final = re.compile(r"\bTime limit reached\. Elapsed time is\b|\bTrainer\.fit` stopped: `max_time")
_MARKS: Final = (
    _TIMING, b", iteration ", b"Validation", b"Test: iteration", b"Sanity Checking", b"[NeMo ", b"saving model to ",
    b"states from the checkpoint", b"MEMBER: ", b"Starting with ", b"Trainer.fit", b"Time limit reached",
)  # fmt: skip
_GLUED: Final = ("[NeMo ", "saving model to ", "Trainer.fit`")
"""What may stand behind a bar that nothing was written over."""
_BETWEEN: Final = {"checkpoint_save", "waited", "evaluation", "saving", "saved"}
"""The kinds of marks that do not tell that a program began or ended."""


class NeMo:
    """The source of the console logs of NeMo 1 and NeMo 2."""

    name = "nemo"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no log of NeMo, or None when it is one."""
        return (
            None if holds(path, head, _TIMING, _ANY) else "no line in it tells of an epoch with train_step_timing in s"
        )

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the run of a log.

        Raises:
            SourceError: No line tells of a step, slug ``no-runs``.
            OSError: It cannot be read.
        """
        log = StepLines(self.name, path, first=0)
        reader = _Reader(log)
        log.read(reader.learn, reader.extend, reader.take, (*_MARKS, *ENDINGS))
        reader.finish()
        return [log.run(clean(path.stem), asked, devices=reader.devices)]


class _Mark(NamedTuple):
    """A line that tells of something else than steps, as `StepLines` is told of it."""

    number: int
    kind: str
    at_ns: int | None
    step: int = 0
    took_ns: int | None = None


@dataclass
class _Evaluation:
    """One that runs: its first line, when it began and when it was heard of last, and how long its bar says it took."""

    number: int
    begun: int | None = None
    heard: int | None = None
    took_ns: int | None = None
    is_over: bool = False


@dataclass
class _Reader:
    """What is read of a log.

    Attributes:
        log: What it is told to.
        devices: How many it tells of.
        rows: The lines of steps.
        dated: Other lines that have a time.
        marks: What else lines tell.
        fresh: When the last line was written; None where a step without a time followed.
    """

    log: StepLines
    devices: int | None = None
    rows: Table = field(default_factory=lambda: Table("line", "step", "took", "at", "rank"))
    dated: Table = field(default_factory=lambda: Table("line", "at"))
    marks: list[_Mark] = field(default_factory=list)
    fresh: int | None = None
    evaluation: _Evaluation | None = None
    is_async: bool = False
    saver: str = ""
    has_bars: bool = False
    last: int = -1
    epoch: int = 0
    offset: int | None = None

    def learn(self, line: bytes) -> Spans | None:
        """Return where the number of a step and its time are, and what stands in front of it."""
        if not any(mark in line for mark in _MARKS):
            return () if ending(line) is None else None
        found = None if b"\r" in line.rstrip(b"\r\n") else front.find(line, _STEP)
        if found is None:
            return None
        step, took = (form.search(found.said.string, found.said.end() - 1) for form in (_GLOBAL, _TOOK))
        return None if step is None or took is None else (step.span(1), took.span(1), *found.front)

    def extend(self, numbers: Ints, values: list[NDArray[np.float64]]) -> bool:
        """Read the lines of many steps, as learned; return whether all make sense."""
        took = values[1]
        if took.max() > LONGEST / NS_PER_S or (at := self.log.stamps(values[3:])) is None:
            return False
        self._evaluated(None)
        step = values[0].astype(np.int64)
        self.rows.extend(numbers, step, np.rint(took * NS_PER_S).astype(np.int64), at, front.ranks(values[2]))
        self.last, self.fresh = int(step[-1]), None if at[-1] == UNKNOWN else int(at[-1])
        return True

    def take(self, number: int, line: bytes) -> None:
        """Read one line."""
        if any(mark in line for mark in _MARKS):
            said = bare(line)
            if len(line) >= files.MAX_LINE:
                what = (
                    f"longer than {files.MAX_LINE >> 20} MiB, and its rest left out: make its carriage returns newlines"
                )
                self.log.bad.add(what, number)
            if found := _STEP.search(said.text):
                self._step(found, number, said.rank)
            elif "\r" in said.text or _BAR.search(said.text) or _EVALUATES_BAR.search(said.text):
                self._bars(said.text, number, said.rank)
            else:
                self._other(said.text, number, self.log.stamp(said.text, number))
        elif (reason := ending(line)) is not None:
            self.marks.append(_Mark(number, reason, self.log.stamp("", number)))

    def _step(self, found: re.Match[str], number: int, rank: int) -> None:
        text = found.string
        at_ns = self.log.stamp(text[: found.start()], number)
        epoch, iteration = int(found[1]), int(found[2])
        told, took = _GLOBAL.search(text, found.end() - 1), _TOOK.search(text, found.end() - 1)
        if told:
            step = int(told[1])
        else:
            if epoch > self.epoch and iteration + (self.offset or 0) <= self.last:
                self.offset = self.last + 1 - iteration
            step = iteration + (self.offset or 0)
        self.epoch = epoch
        self._add(number, step, took[1] if took else None, at_ns, rank)

    def _add(self, number: int, step: int, took: str | None, at_ns: int | None, rank: int) -> None:
        took_ns = None if took is None else seconds_ns(took)
        if step >= 1 << 61 or (took is not None and took_ns is None):
            self.log.bad.add("no step, left out", number, f"its train_step_timing is {clean(took or '', 40)!r}")
            return
        self._evaluated(None)
        self.rows.append((number, step, UNKNOWN if took_ns is None else took_ns, at_ns or UNKNOWN, rank))
        self.last, self.fresh = step, at_ns

    def _bars(self, text: str, number: int, rank: int) -> None:
        """Read a line of progress bars: each was written over the one before."""
        told: list[tuple[int, str, int]] = []
        at_ns: int | None = None
        for piece in text.split("\r"):
            if (found := _BAR.search(piece)) and (took := _BAR_TOOK.search(piece, found.end())):
                at_ns = at_ns or self.log.stamp(piece[: found.start()], number)
                step = self._number(int(found[1]), int(found[2]), _BAR_GLOBAL.search(piece, found.end()))
                if step != self.last:
                    told.append((step, took[1], _clock_s(found[3])))
                    self.last, self.has_bars = step, True
                rest = piece[took.end() :]
                if any(mark in rest for mark in _GLUED):
                    self._tell(told, number, at_ns, rank)
                    self._other(rest, number, self.log.stamp(rest, number))
            elif found := _EVALUATES_BAR.search(piece):
                self._tell(told, number, at_ns, rank)
                self.evaluation = self.evaluation or _Evaluation(number)
                self.evaluation.took_ns = _clock_s(found[1]) * NS_PER_S
            else:
                self._other(piece, number, self.log.stamp(piece, number))
        self._tell(told, number, at_ns, rank)

    def _tell(self, told: list[tuple[int, str, int]], number: int, at_ns: int | None, rank: int) -> None:
        """Add the steps that were told by the bars of one line; the line's time is that of the last."""
        for step, took, clock_s in told:
            before = max(0, told[-1][2] - clock_s) * NS_PER_S
            self._add(number, step, took, None if at_ns is None else at_ns - before, rank)
        told.clear()

    def _number(self, epoch: int, count: int, told: re.Match[str] | None) -> int:
        """Return the number of the step that a bar tells of: it shortens large ones, and counts in each epoch anew."""
        if told:
            step = int(told[1])
            self.offset = step - count
        else:
            if epoch != self.epoch and self.offset is not None:
                self.offset = self.last
            step = count + (-1 if self.offset is None else self.offset)
        self.epoch = epoch
        return step

    def _other(self, text: str, number: int, at_ns: int | None) -> None:
        """Read another line."""
        if found := _EVALUATES.search(text):
            self.evaluation = now = self.evaluation or _Evaluation(number, self.fresh)
            now.heard, now.is_over = at_ns, int(found[1]) >= int(found[2])
        elif at_ns is not None and self.evaluation is not None and self.evaluation.is_over:
            self._evaluated(at_ns)
        if at_ns is not None:
            self.dated.append((number, at_ns))
            self.fresh = at_ns
        if self._checkpoint(text, number, at_ns):
            return
        if found := _DEVICES.search(text):
            self.devices = max(self.devices or 1, int(found[1] or found[2]))
        elif _STOPPED.search(text):
            self.marks.append(_Mark(number, "finished", at_ns))
        elif _TIME_LIMIT.search(text):
            self.marks.append(_Mark(number, "preempted", at_ns))

    def _checkpoint(self, text: str, number: int, at_ns: int | None) -> bool:
        """Return whether a line tells of a checkpoint, and note what it tells."""
        if found := _SAVE.search(text):
            self.saver = self.saver or found[1]
            if found[1] == self.saver:  # else another rank tells of the same
                self.marks.append(_Mark(number, "checkpoint_save", at_ns, int(found[2]), seconds_ns(found[3])))
        elif "Scheduled async checkpoint save" in text:
            self.is_async = True
        elif found := _SAVED.search(text):
            through = int(found[1]) if found[1] else int(found[2]) - 1 if found[2] else min(int(found[3]), self.last)
            self.is_async = self.is_async or not found[3]
            self.marks.append(_Mark(number, "saving" if found[3] else "saved", at_ns, through))
        elif (found := _FINALIZED.search(text)) and float(found[1]) >= 1:  # less is lost in whole seconds
            self.marks.append(_Mark(number, "waited", at_ns, took_ns=seconds_ns(found[1])))
        elif found := _RESTORED.search(text):
            self.marks.append(_Mark(number, "restored", at_ns, int(found[1])))
        else:
            return False
        return True

    def _evaluated(self, at_ns: int | None) -> None:
        """Note an evaluation that is over; a line behind it tells when, if no line of its own did."""
        if (now := self.evaluation) is None:
            return
        self.evaluation = None
        end, took_ns = (at_ns if now.heard is None else now.heard), now.took_ns
        if took_ns is None and end is not None and now.begun is not None and end > now.begun:
            took_ns = end - now.begun
        self.marks.append(_Mark(now.number, "evaluation", end if now.took_ns is None else None, took_ns=took_ns))

    def finish(self) -> None:
        """Give all to the log, in the order of the lines."""
        self._evaluated(None)
        line, step, took, at, rank = (column.values() for column in self.rows.columns.values())
        marks = sorted(self.marks, key=lambda mark: mark.number)
        places = search(line, [mark.number + 1 for mark in marks])
        placed = self._placed(marks) if 2 * np.count_nonzero(at != UNKNOWN) < len(line) else None
        if placed is not None:
            at = placed
            self.log.warnings.append(
                "the lines of steps have no time: each step follows the line before it that has one, by its own length"
            )
        self.log.last_at = UNKNOWN if self.log.opening is None else self.log.opening
        done = 0
        for mark, place in zip(marks, places, strict=True):
            some = slice(done, place)
            self.log.steps(step[some], line=line[some], at=at[some], took=took[some], rank=rank[some])
            done = place
            at_ns = mark.at_ns
            if at_ns is None and placed is not None and place:
                at_ns = int(placed[place - 1]) + (mark.took_ns or 0)
            self._mark(mark, at_ns)
        some = slice(done, len(line))
        self.log.steps(step[some], line=line[some], at=at[some], took=took[some], rank=rank[some])
        self.rows = Table()

    def _placed(self, marks: list[_Mark]) -> Ints | None:
        """Return when steps ended that have no time, see `between`; of several ranks that which tells most."""
        line, step, took, _, rank = (column.values() for column in self.rows.columns.values())
        ranks, counts = np.unique(rank, return_counts=True)
        mine = np.flatnonzero(rank == ranks[np.argmax(counts)]) if len(ranks) > 1 else slice(None)
        own = line[mine]
        places = search(own, [mark.number + 1 for mark in marks])
        # Several may tell of the same: of each kind between two steps one counts.
        each = {(mark.kind, place): mark for mark, place in zip(marks, places, strict=True)}
        more: dict[int, int] = {}
        for (_, place), mark in each.items():
            more[place] = more.get(place, 0) + (mark.took_ns or 0) * (mark.at_ns is None)
        begun = {place for kind, place in each if kind not in _BETWEEN}
        dated, moments = (column.values() for column in self.dated.columns.values())
        placed = between(own, step[mine], took[mine], dated=dated, moments=moments, more=more, begun=begun)
        if placed is None or len(placed) == len(line):
            return placed
        return placed[np.maximum(np.searchsorted(own, line, "right") - 1, 0)]

    def _mark(self, mark: _Mark, at_ns: int | None) -> None:
        log, number = self.log, mark.number
        if mark.kind in {"checkpoint_save", "waited", "evaluation"}:
            name = "evaluation" if mark.kind == "evaluation" else "checkpoint_save"
            log.span(name, line=number, at_ns=at_ns, took_ns=mark.took_ns)
            if mark.kind == "checkpoint_save" and not self.is_async:
                log.saved(mark.step, line=number, at_ns=at_ns)
        elif mark.kind == "saving":  # said before it is done, and where nothing else tells
            if not self.saver and not self.is_async:
                log.saved(mark.step, line=number, at_ns=at_ns)
        elif mark.kind == "saved":
            log.saved(mark.step, line=number, at_ns=at_ns)
        elif mark.kind == "restored":  # NeMo 1 names the number of steps done, NeMo 2 that of the last
            log.restored(mark.step - self.has_bars, line=number, at_ns=at_ns)
        else:
            log.close(mark.kind, line=number, at_ns=at_ns)


def _clock_s(text: str) -> int:
    """Return how long a progress bar says that it has run [s].

    Example:
        >>> _clock_s("06:19"), _clock_s("4:26:54")
        (379, 16014)
    """
    total = 0
    for part in text.split(":"):
        total = total * 60 + int(part)
    return total
