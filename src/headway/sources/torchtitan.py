"""Logs of torchtitan: a line for every so many steps, its time the end of them, with the share of the peak they had."""

from __future__ import annotations

import math
import re
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from headway.events import CLOSE_REASONS
from headway.ledger.history import Run
from headway.sources.asked import Asked
from headway.sources.steps.columns import UNKNOWN
from headway.sources.steps.front import ranks
from headway.sources.steps.lines import LONGEST, StepLines, bare, ending, holds, seconds_ns
from headway.sources.text import clean
from headway.sources.zone import in_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headway.sources.steps.alike import Spans

    Ints = NDArray[np.int64]

_MARK: Final = b"step:"
_ANY: Final = re.compile(
    rb"step:[ \x1b\[0-9;m]{1,40}/?[^\r\n]{0,60}?loss:[^\r\n]{0,120}?memory:[^\r\n]{0,80}?GiB[^\r\n]{0,80}?[tw]ps:"
)
_STEP: Final = re.compile(
    r"(?<!validate )\bstep: *(\d{1,18})(?:/\d{1,18})?\b.{0,60}?\bloss: .{0,200}?\b[tw]ps: "
    r"(?:.{0,80}?\bmfu: *([^\s%]{1,20}))?"
)
_COLOUR: Final = rb"(?:\x1b\[[\d;]{1,20}m)?"
_NUMBER: Final = rb" {1,8}[\d.,-]{1,10}"
_PLAIN: Final = re.compile(
    rb"(?:\[rank(?P<rank>\d{1,7})\]: ?)?\[titan\] (?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d) "
    rb"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d,\d{3}) - root - INFO - "
    rb"%(c)sstep: {0,8}(?P<step>\d{1,15}) {1,4}%(c)sloss:%(n)s {1,4}(?:%(c)sgrad_norm:%(n)s {1,4})?"
    rb"%(c)smemory:%(n)sGiB\([\d.]{1,6}%%\) {1,4}%(c)s[tw]ps:%(n)s {1,4}(?:%(c)stflops:%(n)s {1,4})?"
    rb"%(c)smfu: {0,8}(?P<mfu>\d{1,3}\.\d{1,4})%%" % {b"c": _COLOUR, b"n": _NUMBER}
)
"""The commonest line by far, of which `_Log.take` would say the same; all digits are the same to it."""
_VALIDATED: Final = re.compile(r"\bvalidate step: *(\d{1,18})\b")
_STARTS: Final = re.compile(r"\bTraining starts at step (\d{1,18})\b")
_SAVED: Final = re.compile(r"\bFinished saving the checkpoint\b.{0,80}?\bin ([\d.]{1,20}) seconds")
_LAST: Final = re.compile(r"\bcheckpoint\b.{0,60}? at last step, step (\d{1,18})\b")
_LOADED: Final = re.compile(r"\bFinished loading the checkpoint\b.{0,80}?\bin ([\d.]{1,20}) seconds")
_MESH: Final = re.compile(r"\bdevice mesh with parallelism: (.{1,200})")
_OLD_MESH: Final = re.compile(r"\bBuilding \d-D device mesh with \[[^\]]{0,200}\], \[([\d, ]{1,60})\]")
_DEGREE: Final = re.compile(r"\b(pp|dp_replicate|dp_shard|cp|tp)=(\d{1,7})\b")
_CAPACITY: Final = re.compile(r"\b[A-Z]{2,8} capacity: (.{1,80}?) with [\d.]+GiB memory")
_AT_ONCE: Final = 1 << 16
_MARKS: Final = (
    b"step:",
    b"Training starts at step",
    b"the checkpoint",
    b"at last step",
    b"device mesh",
    b"capacity: ",
    b"Starting job",
    b"Training completed",
)


class TorchTitan:
    """The source of torchtitan logs."""

    name = "torchtitan"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no log of torchtitan, or None when it is one."""
        return None if holds(path, head, _MARK, _ANY) else "no line in it tells of a step with its loss, memory and tps"

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the run of a log.

        Raises:
            SourceError: No line tells of a step, slug ``no-runs``.
            OSError: It cannot be read.
        """
        log = _Log(StepLines(self.name, path))
        log.steps.read(_learn, log.take_many, log.take)
        log.finish(asked.zone)
        return [log.steps.run(clean(path.stem), asked, devices=log.devices, accelerator=log.accelerator)]


def _says(line: bytes) -> bool:
    """Return whether a line may say something; a loop, as this is asked of many lines."""
    for mark in _MARKS:  # noqa: SIM110
        if mark in line:
            return True
    return False


def _learn(line: bytes) -> Spans | None:
    """Return where step, mfu, rank and the parts of the time are; see `headway.sources.steps.lines.StepLines.read`."""
    if not _says(line):
        return () if ending(line) is None else None
    if (found := _PLAIN.match(line)) is None:
        return None
    names = ("step", "mfu", "rank", "year", "month", "day", "hour", "minute", "second")
    return (*(found.span(name) if found[name] else (0, 0) for name in names), (0, 0))


@dataclass(slots=True, order=True)
class _Line:
    """A line that tells of something else than steps; ``at`` is -1 where it has no time [ns since the Unix epoch]."""

    at: int
    number: int
    kind: str = ""
    step: int = 0
    took: int = 0
    rank: int = -1


@dataclass
class _Log:
    """A log as it is read; put in the order of its times at the end, as ranks write at the same time."""

    steps: StepLines
    told: array[int] = field(default_factory=lambda: array("q"))
    mfu: array[float] = field(default_factory=lambda: array("d"))
    rare: list[_Line] = field(default_factory=list)
    devices: int | None = None
    accelerator: str | None = None
    last: int = -1

    def take_many(self, numbers: Ints, values: list[NDArray[np.float64]]) -> bool:
        """Read the lines of many steps, as `_learn` found their numbers; return whether all make sense."""
        if (at := self.steps.stamps(values[3:])) is None:
            return False
        told = np.stack([at, numbers, values[0].astype(np.int64), ranks(values[2])], axis=1)
        self.told.frombytes(told.data.cast("B"))
        self.mfu.frombytes((values[1] / 100).data.cast("B"))
        self.last = int(at[-1])
        return True

    def take(self, number: int, line: bytes) -> None:
        """Read a line."""
        if _says(line):
            self._take(line, number)
        elif (reason := ending(line)) is not None:
            self.rare.append(_Line(self.last, number, reason))

    def _take(self, line: bytes, number: int) -> None:
        """Read a line that may tell of something."""
        said = bare(line)
        text = said.text
        at = self.steps.stamp(text, number)
        self.last = when = self.last if at is None else at
        if found := _STEP.search(text):
            self.told.extend((when, number, int(found[1]), said.rank))
            share = _share(found[2])
            is_cut = math.isnan(share) and number == self.steps.unended
            self.mfu.append(self.mfu[-1] if is_cut and self.mfu else share)
        elif found := _VALIDATED.search(text):
            self.rare.append(_Line(when, number, "evaluation", int(found[1]), -1, said.rank))
        elif found := _STARTS.search(text):
            self.rare.append(_Line(when, number, "starts", int(found[1]), 0, said.rank))
        elif found := _SAVED.search(text) or _LOADED.search(text):
            kind = "checkpoint_save" if "saving" in found[0] else "checkpoint_restore"
            self.rare.append(_Line(when, number, kind, 0, seconds_ns(found[1]) or 0, said.rank))
        elif found := _LAST.search(text):
            self.rare.append(_Line(when, number, "last", int(found[1]), 0, said.rank))
        else:
            self._rest(text, number, when)

    def _rest(self, text: str, number: int, when: int) -> None:
        if "Training completed" in text:
            self.rare.append(_Line(when, number, "finished"))
        elif "Starting job" in text:
            self.rare.append(_Line(when, number, "banner"))
        elif (found := _MESH.search(text)) and (degrees := dict(_DEGREE.findall(found[1]))):
            self.devices = max(self.devices or 1, math.prod(int(degree) for degree in degrees.values()))
        elif found := _OLD_MESH.search(text):
            sizes = [int(size) for size in found[1].split(",") if size.strip().isdigit()]
            self.devices = max(self.devices or 1, math.prod(sizes))
        elif found := _CAPACITY.search(text):
            self.accelerator = found[1]

    def finish(self, zone: tzinfo | None) -> None:
        """Give all to the steps' log, in the order of time.

        Args:
            zone: Of times that name none; None: UTC.
        """
        at, line, step, rank = np.frombuffer(self.told, np.int64).reshape(-1, 4).T
        if zone is not None and self.steps.n_local and self.steps.place(zone):
            at = np.where(at < 0, at, in_order(at, zone))
            for one, moment in zip(
                self.rare, in_order(np.array([o.at for o in self.rare], np.int64), zone), strict=True
            ):
                one.at = one.at if one.at < 0 else int(moment)
        mfu = np.frombuffer(self.mfu, np.float64)
        names, counts = np.unique(rank, return_counts=True)
        main = int(names[np.argmax(counts)]) if len(names) else -1
        if len(names) > 1 or (at[1:] < at[:-1]).any():
            order = np.lexsort((line, at, rank))
            at, line, step, rank, mfu = at[order], line[order], step[order], rank[order], mfu[order]
        mine = sorted(one for one in self.rare if one.rank in {main, -1} or main == -1)
        rare = [*{(one.at, one.kind, one.step, one.took, one.at < 0 and one.number): one for one in mine}.values()]
        own = slice(*np.searchsorted(rank, [main, main + 1]).tolist())
        self._evaluations(rare, at[own], step[own])
        mfu_good = bool(len(mfu)) and bool(((mfu >= 0) & (mfu <= 1)).all())
        if not mfu_good:
            self.steps.warnings.append(
                "not every line has an mfu from 0 to 100 %: what was below the peak is not known"
            )
        telling = _Telling(self.steps, rare, main, with_loss=mfu_good)
        for low in range(0, len(at), _AT_ONCE):
            part = slice(max(low - 1, 0), low + _AT_ONCE)  # with the line before them
            rows = _Rows(at[part], line[part], step[part], rank[part], mfu[part])
            telling.some(rows, 1 if low else 0)
        telling.rest()
        self.told, self.mfu = array("q"), array("d")

    def _evaluations(self, rare: list[_Line], at: Ints, step: Ints) -> None:
        """Let each evaluation begin with the line of its own step, which is logged just before it."""
        for one in rare:
            place = int(np.searchsorted(at, one.at, "right")) - 1
            if one.kind == "evaluation" and one.at >= 0 and place >= 0 and step[place] == one.step:
                one.took = one.at - int(at[place])


class _Rows(NamedTuple):
    """Lines of steps in their order: time [ns since the Unix epoch], line, step, rank, share of the peak, ``(n,)``."""

    at: Ints
    line: Ints
    step: Ints
    rank: Ints
    mfu: NDArray[np.float64]


class _Telling:
    """Tells the steps' log of the lines in the order of time, and of what lies between those of the main rank."""

    def __init__(self, steps: StepLines, rare: list[_Line], main: int, *, with_loss: bool) -> None:
        self.spent = _Spent(rare)
        self._steps = steps
        self._rare = rare
        self._main = main
        self._with_loss = with_loss
        self._place = 0
        self._saved = -1
        self._before: tuple[int, int, int] | None = None

    def some(self, rows: _Rows, first: int) -> None:
        """Tell of some lines, from one on; of those whose loss is certain many at once."""
        lost, certain = self.spent.between(rows)
        begin = first
        for place in [*(np.flatnonzero(~certain[first:]) + first).tolist(), len(certain)]:
            if begin < place:
                self._many(rows, lost, slice(begin, place))
            if place < len(certain):
                at, line, step, rank, mfu = (column[place].item() for column in rows)
                self._one(at, line, step, rank, mfu)
            begin = place + 1

    def _many(self, rows: _Rows, lost: Ints, part: slice) -> None:
        """Tell of lines between which there was nothing else."""
        at, line, step, rank = (column[part] for column in rows[:4])
        possible = (lost[part] >= 0) & (lost[part] <= LONGEST)
        waits = {"below_peak": np.where(possible, lost[part], 0)} if self._with_loss and possible.any() else None
        took = np.broadcast_to(np.int64(UNKNOWN), len(at))
        self._steps.steps(step, line=line, at=at, took=took, rank=rank, waits=waits)
        if len(mine := step[rank == self._main]):
            self._saved = int(mine[-1])
        self._before = (int(at[-1]), int(step[-1]), int(rank[-1]))

    def _one(self, when: int, number: int, last: int, who: int, share: float) -> None:
        """Tell of a line, and before it of what is not told yet; or of nothing where it is the same again."""
        if who == self._main:
            self._until(when)
        before = self._before
        if when >= 0 and before == (when, last, who):
            return
        if who == self._main:
            self._saved = last
        self._before = (when, last, who)
        begin, count, took, lost = self.spent.row(before if before and before[2] == who else None, when, last, share)
        if when < 0:
            self._steps.step(last, line=number, rank=who)
            return
        self._steps.step(last, line=number, at_ns=when, took_ns=took, count=count, rank=who)
        if self._with_loss and begin is not None:
            self._steps.wait("below_peak", lost)

    def rest(self) -> None:
        """Tell of what came after the last line."""
        self._until(None)

    def _until(self, when: int | None) -> None:
        while self._place < len(self._rare) and (when is None or self._rare[self._place].at < when):
            self._saved = self._mark(self._rare[self._place], self._saved)
            self._place += 1

    def _mark(self, one: _Line, done: int) -> int:
        """Give a line that is no step's to the steps' log; return the last step that is known to be done after it."""
        at_ns = None if one.at < 0 else one.at
        if one.kind in {"evaluation", "checkpoint_save", "checkpoint_restore"}:
            self._steps.span(one.kind, line=one.number, at_ns=at_ns, took_ns=None if one.took < 0 else one.took)
        if one.kind == "last":
            return max(done, one.step)
        if one.kind == "checkpoint_save":
            self._steps.saved(max(done, 0), line=one.number, at_ns=at_ns)
        elif one.kind == "starts":
            self._steps.restored(one.step - 1, line=one.number, at_ns=at_ns)
            return one.step - 1
        elif one.kind == "banner":
            self._steps.banner(line=one.number, at_ns=at_ns)
        elif one.kind in CLOSE_REASONS:
            self._steps.close(one.kind, line=one.number, at_ns=at_ns)
        return done


class _Spent:
    """What was done between step lines beside steps."""

    def __init__(self, rare: list[_Line]) -> None:
        self._all_at = np.array([one.at for one in rare], np.int64)
        self._starts = [one for one in rare if one.kind == "starts"]
        self._starts_at = [one.at for one in self._starts]
        self._spans = [one for one in rare if one.took > 0 and one.kind in {"evaluation", "checkpoint_save"}]
        self._spans_at = [one.at for one in self._spans]

    def between(self, rows: _Rows) -> tuple[Ints, NDArray[np.bool_]]:
        """Return what `row` would say that one step of each line lost [ns], and where that is certain.

        It is where nothing else was done since the line before; of the first line it is not known, ``(n,)`` each.
        """
        at = rows.at
        apart, count = np.diff(at), np.diff(rows.step)
        first = np.searchsorted(self._all_at, at[:-1], "left")
        certain = (at[:-1] >= 0) & (apart >= 0) & (count > 0) & (np.diff(rows.rank) == 0)
        certain &= first == np.searchsorted(self._all_at, at[1:], "right")
        mfu = rows.mfu[1:]
        share = np.where((mfu >= 0) & (mfu <= 1), mfu, 0)  # of others nothing is told
        lost = (apart - np.rint(share * apart).astype(np.int64)) // np.maximum(count, 1)
        return np.concatenate([[0], lost]), np.concatenate([[False], certain])

    def row(
        self, before: tuple[int, int, int] | None, at: int, step: int, mfu: float
    ) -> tuple[int | None, int, int | None, int]:
        """Return when the steps of a line began, how many they are, and of one what it took and lost [ns].

        None where nothing tells; a length of None is all the time since the line before.

        Args:
            before: Time and step of the line before it of the same rank, and that.
            at: Its time.
            step: Its step.
            mfu: Share of the peak, in [0, 1].
        """
        place = bisect_right(self._starts_at, at) - 1
        start = self._starts[place] if place >= 0 else None
        if start is not None and (start.step > step or (before is not None and start.at <= before[0])):
            start = None
        if start is None and (before is None or step <= before[1]):
            return None, 0, None, 0
        begin, done = (start.at, start.step - 1) if start is not None else (before or (at, step))[:2]
        first, count = start is not None, max(1, step - done)
        low, high = bisect_right(self._spans_at, begin), bisect_right(self._spans_at, at)
        spans = self._spans[low:high]
        beside = sum(one.took for one in spans)
        evaluated = sum(one.took for one in spans if one.kind == "evaluation")
        if beside > at - begin:  # they cannot all have been between the two lines
            return begin, count if first else 0, (at - begin) // count if first else None, 0
        # What was done right after the line before is ahead of the steps, else among them: it takes its own time.
        half, ahead = (at - begin - beside) // (2 * count), begin
        for one in spans:
            if one.at - one.took - ahead > half:
                ahead = begin
                break
            ahead = max(ahead, one.at)
        own = at - ahead - (beside if ahead == begin else 0)
        lost = own - round(mfu * (at - begin - evaluated)) if math.isfinite(mfu) else 0
        timed = first or ahead > begin
        return begin, count if timed else 0, own // count if timed else None, lost // count


def _share(text: str | None) -> float:
    """Return a percentage as a share; NaN where it is none."""
    try:
        return float(text or "nan") / 100
    except ValueError:
        return math.nan
