"""Logs of torchtitan: a line for every so many steps, its time the end of them, with the share of the peak they had."""

from __future__ import annotations

import math
import re
from array import array
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.ledger.history import Run
from headway.sources.asked import Asked
from headway.sources.steps.front import ranks
from headway.sources.steps.lines import StepLines, bare, ending, holds, seconds_ns, stamp
from headway.sources.text import clean
from headway.sources.torchtitan.evaluated import Evaluated
from headway.sources.torchtitan.told import Rows, Telling, Told, apart, of_one
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
_SAVED: Final = re.compile(
    r"\b(?:Finished (?:saving|(staging)) the checkpoint\b.{0,80}?|Last step checkpoint completed )\bin ([\d.]{1,20}) ?s"
)
_WRITTEN: Final = re.compile(r"\bFinished writing the checkpoint for step (\d{1,18}) in\b")
_LAST: Final = re.compile(r"\bcheckpoint\b.{0,60}? at last step, step (\d{1,18})\b")
_LOADED: Final = re.compile(r"\bFinished loading the checkpoint\b.{0,80}?\bin ([\d.]{1,20}) seconds")
_MESH: Final = re.compile(r"\bdevice mesh with parallelism: (.{1,200})")
_OLD_MESH: Final = re.compile(r"\bBuilding \d-D device mesh with \[[^\]]{0,200}\], \[([\d, ]{1,60})\]")
_DEGREE: Final = re.compile(r"\b(pp|dp_replicate|dp_shard|cp|tp)=(\d{1,7})\b")
_CAPACITY: Final = re.compile(r"\b[A-Z]{2,8} capacity: (.{1,80}?) with [\d.]+GiB memory")
_FRONT: Final = re.compile(r"\[titan\] ")
_RANK: Final = re.compile(r"\[(?:rank ?|default)(\d{1,7})\]: ?\Z")
_LONGEST_RANK: Final = 24
_BEGUN: Final = re.compile(r" - +step: *\d")
_ELASTIC: Final = re.compile(r".{0,8}?[DIWEF](\d\d)(\d\d) (\d\d:\d\d:\d\d\.\d{1,6}) +\d{1,10} torch/distributed/")
"""What torchrun writes itself: a time that names no year."""
_DAY: Final = 86400 * NS_PER_S
_AT_ONCE: Final = 1 << 16
_MARKS: Final = (
    b"step:",
    b"Training starts at step",
    b"the checkpoint",
    b"step checkpoint completed",
    b"at last step",
    b"device mesh",
    b"capacity: ",
    b"Starting job",
    b"Training completed",
    b" torch/distributed/",
    b" death signal, shutting down",
    b"should_commit=False",
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
    if line.count(b"[titan] ") > 1 or (found := _PLAIN.match(line)) is None:
        return None
    names = ("step", "mfu", "rank", "year", "month", "day", "hour", "minute", "second")
    return (*(found.span(name) if found[name] else (0, 0) for name in names), (0, 0))


@dataclass
class _Log:
    """A log as it is read; put in the order of its times at the end, as ranks write at the same time."""

    steps: StepLines
    told: array[int] = field(default_factory=lambda: array("q"))
    mfu: array[float] = field(default_factory=lambda: array("d"))
    rare: list[Told] = field(default_factory=list)
    devices: int | None = None
    accelerator: str | None = None
    last: int = -1
    elastic: list[tuple[str, int, str]] = field(default_factory=list)

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
            self.rare.append(Told(self.last, number, reason))

    def _take(self, line: bytes, number: int) -> None:
        """Read a line that may tell of something."""
        text, rank = bare(line)
        places = [found.start() for found in _FRONT.finditer(text)]
        if len(places) > 1 or (places and places[0]):
            self._glued(text, [*places, len(text)], rank, number)
        else:
            self._one(text, rank, number)

    def _glued(self, text: str, places: list[int], rank: int, number: int) -> None:
        """Read lines that are glued together, or to one of another's.

        Args:
            text: All of them.
            places: Where each begins, and the end.
            rank: Who says the first, and the others where they don't say it themselves.
            number: The line's number.
        """
        for begin, end in pairwise(places):
            some = text[begin:end]
            if _says(some.encode()):
                whose = _RANK.search(text, max(begin - _LONGEST_RANK, 0), begin)
                self._one(some, int(whose[1]) if whose else rank, number)
                if end < len(text) and _BEGUN.search(some) and not _STEP.search(some):
                    self.steps.bad.add("no step, left out", number, "it is torn")

    def _one(self, text: str, rank: int, number: int) -> None:
        """Read what may tell of something."""
        at = self.steps.stamp(text, number)
        self.last = when = self.last if at is None else at
        if found := _STEP.search(text):
            self.told.extend((when, number, int(found[1]), rank))
            share = _share(found[2])
            is_cut = math.isnan(share) and number == self.steps.unended
            self.mfu.append(self.mfu[-1] if is_cut and self.mfu else share)
        elif found := _VALIDATED.search(text):
            self.rare.append(Told(when, number, "evaluation", int(found[1]), -1, rank))
        elif found := _STARTS.search(text):
            self.rare.append(Told(when, number, "starts", int(found[1]), 0, rank))
        elif found := _SAVED.search(text):
            took = seconds_ns(found[2]) or 0
            self.rare.append(Told(when, number, "checkpoint_save", 0, took, rank, is_staged=bool(found[1])))
        elif found := _WRITTEN.search(text):
            self.rare.append(Told(when, number, "written", int(found[1]), 0, rank))
        elif found := _LOADED.search(text):
            self.rare.append(Told(when, number, "checkpoint_restore", 0, seconds_ns(found[1]) or 0, rank))
        elif found := _LAST.search(text):
            self.rare.append(Told(when, number, "last", int(found[1]), 0, rank))
        elif " death signal, shutting down" in text or _ELASTIC.match(text):
            self._of_launcher(text, number, when)
        else:
            self._rest(text, number, when)

    def _of_launcher(self, text: str, number: int, when: int) -> None:
        """Read a line of torchrun's own."""
        reason = "signal" if " death signal, shutting down" in text else ending(text.encode()) or ""
        if found := _ELASTIC.match(text):
            if not reason and len(self.elastic) > 1 and not self.elastic[-1][2]:
                self.elastic.pop()  # of those that tell of their time alone the first and the last are enough
            self.elastic.append((f"-{found[1]}-{found[2]} {found[3]}", number, reason))
        elif reason:
            self.rare.append(Told(when, number, reason))

    def _rest(self, text: str, number: int, when: int) -> None:
        if "Training completed" in text:
            self.rare.append(Told(when, number, "finished"))
        elif "should_commit=False" in text:
            self.steps.bad.add("of a step that was thrown away, counted as done", number)
        elif "Starting job" in text:
            self.rare.append(Told(when, number, "banner"))
        elif (found := _MESH.search(text)) and (degrees := dict(_DEGREE.findall(found[1]))):
            self.devices = max(self.devices or 1, math.prod(int(degree) for degree in degrees.values()))
        elif found := _OLD_MESH.search(text):
            sizes = [int(size) for size in found[1].split(",") if size.strip().isdigit()]
            self.devices = max(self.devices or 1, math.prod(sizes))
        elif found := _CAPACITY.search(text):
            self.accelerator = found[1]

    def _launched(self) -> None:
        """Note when torchrun began and ended, which was at most a day before and after the times with a year."""
        earliest, latest = self.steps.earliest, self.steps.latest
        for text, number, reason in self.elastic:
            at = None if earliest is None else _nearest(text, earliest)
            if at is not None and (earliest or 0) - _DAY < at < (latest or 0) + _DAY:
                self.steps.seen(at)
            else:
                at = self.last
            if reason:
                self.rare.append(Told(at, number, reason))

    def finish(self, zone: tzinfo | None) -> None:
        """Give all to the steps' log, in the order of time.

        Args:
            zone: Of times that name none; None: UTC.
        """
        self._launched()
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
        rare = apart(rare)
        rows = Evaluated(of_one(Rows(at, line, step, rank, mfu), rare), rare, main).rows()
        mfu_good = bool(len(mfu)) and bool(((mfu >= 0) & (mfu <= 1)).all())
        if not mfu_good:
            self.steps.warnings.append(
                "not every line has an mfu from 0 to 100 %: what was below the peak is not known"
            )
        if any(one.name == "unaccounted" for one in rare):
            self.steps.warnings.append(
                "an evaluation before any step is logged took one time together with the compilation: it is counted as "
                "unaccounted"
            )
        telling = Telling(self.steps, rare, main, with_loss=mfu_good)
        for low in range(0, len(rows.at), _AT_ONCE):
            part = slice(max(low - 1, 0), low + _AT_ONCE)  # with the line before them
            telling.some(rows.take(part), 1 if low else 0)
        telling.rest()
        self.told, self.mfu = array("q"), array("d")


def _nearest(text: str, near: int) -> int | None:
    """Return a time without a year as the one that is nearest to a moment [ns since the Unix epoch]; None: none is."""
    year = datetime.fromtimestamp(near // NS_PER_S, UTC).year
    found = []
    for number in (year - 1, year, year + 1):
        with suppress(ValueError):
            if (said := stamp(f"{number}{text}")) is not None:
                found.append(said.ns)
    return min(found, key=lambda moment: abs(moment - near), default=None)


def _share(text: str | None) -> float:
    """Return a percentage as a share; NaN where it is none."""
    try:
        return float(text or "nan") / 100
    except ValueError:
        return math.nan
