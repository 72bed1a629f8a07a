"""MLPerf training logs: their blocks are steps, their evaluations spans, ``run_stop`` is their end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from headway.clock import NS_PER_S
from headway.errors import SourceError
from headway.events import AnyEvent, Close, Notice, Open, Saved, Span
from headway.ledger.history import Process, Rows, Run
from headway.sources import files, mlperfpower
from headway.sources.asked import Asked
from headway.sources.intervals import Interval, clip, outside, pair
from headway.sources.mllog import MARK, Log, Record, read, whole
from headway.sources.text import clean
from headway.units import show_seconds

_SLACK_NS: Final = 10_000_000
"""Lines of one moment are written up to some milliseconds apart; less outside the run is not worth a word [ns]."""
_PIECE: Final = 1 << 20
_PLACEHOLDER: Final = "PLACEHOLDER"
_NO_EVALUATION: Final = (
    "evaluation time is not logged, there are no eval_start and eval_stop: "
    "it is unknown, not zero, and inside the blocks"
)


class MLPerf:
    """The source of MLPerf training logs."""

    name = "mlperf"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no MLPerf log, or None when it is one."""
        if path.is_dir():
            return "it is a folder and not a log file"
        if mlperfpower.is_power(head):
            return "it is a power log and no training log"
        return None if MARK in head or _has_mark(path) else f"no line in it holds {MARK.decode()}"

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the runs of a log: one for each ``run_stop`` after which another begins."""
        log = read(path)
        segments = split(log.records)
        if not segments:
            raise SourceError(
                f"Cannot read {clean(str(path), 4096)}: no {MARK.decode()} line in it begins a run",
                "Give the whole log, from init_start on",
                "no-runs",
                path=str(path),
            )
        groups = _by_run(segments)
        title = _title(log.records, path)
        runs = []
        for number, group in enumerate(groups, 1):
            name = title if len(groups) == 1 else f"{title} #{number}"
            runs.append(_run(name, path, log, group, asked.devices))
        power = mlperfpower.beside(path)
        return [mlperfpower.attach(run, power) for run in runs] if power else runs


def _has_mark(path: Path) -> bool:
    """Return whether the mark is anywhere in the file, which may begin with much else."""
    with files.regular(path) as fd:
        at, before = 0, b""
        while piece := os.pread(fd, _PIECE, at):
            if MARK in before + piece:
                return True
            at, before = at + len(piece), piece[-len(MARK) :]
    return False


def split(records: Sequence[Record]) -> list[list[Record]]:
    """Return the records of each time a program ran, from its first ``init_start`` or ``run_start`` on.

    Args:
        records: In the order of time.

    Example:
        >>> keys = ["init_start", "init_start", "run_start", "run_stop", "init_start", "run_start"]
        >>> [len(segment) for segment in split([Record(time, key) for time, key in enumerate(keys)])]
        [4, 2]
    """
    last_start = max((record.time_ns for record in records if record.key == "run_start"), default=0)
    segments: list[list[Record]] = []
    seen: set[str] = set()
    for record in records:
        again = "run_stop" in seen or (
            "run_start" in seen and record.key == "init_start" and record.time_ns < last_start
        )
        if record.key in {"init_start", "run_start"} and (again or not segments):
            segments.append([])
            seen = set()
        if segments:
            segments[-1].append(record)
            seen.add(record.key)
    return segments


def _by_run(segments: Sequence[list[Record]]) -> list[list[list[Record]]]:
    """Return the segments of each run: one that ended without ``run_stop`` goes on in the next."""
    groups: list[list[list[Record]]] = [[]]
    for segment in segments:
        groups[-1].append(segment)
        if any(record.key == "run_stop" for record in segment):
            groups.append([])
    return [group for group in groups if group]


def _run(name: str, path: Path, log: Log, group: Sequence[list[Record]], devices: int | None) -> Run:
    warnings = list(log.warnings)
    if len(group) > 1:
        warnings.append(
            f"{len(group)} attempts are in the log, each without run_stop but the last; it names no checkpoint they "
            "continued from, so that the steps of all but the last are counted as done again"
        )
    count = devices or devices_of(log)
    if count is None:
        warnings.append("the number of devices is not in the log and 1 is counted; give it with --devices")
    accelerator = log.system.get("accelerator_model_name")
    processes = []
    for number, segment in enumerate(group):
        opened = Open(
            wall_ns=0, mono_ns=0, run=name, attempt=f"a{number:03d}", devices=count or 1, phases=(), rows="block",
            accelerator=clean(accelerator) if isinstance(accelerator, str) and accelerator else None,
        )  # fmt: skip
        processes.append(_Segment(segment).process(opened))
    return Run(name, MLPerf.name, tuple(processes), clean(str(path), 4096), tuple(warnings))


def devices_of(log: Log) -> int | None:
    """Return how many devices a log says it ran on; None where it does not say."""
    said: dict[str, Any] = {**log.system}
    for record in log.records:
        said.setdefault(record.key, record.value)
    nodes, each = whole(said.get("number_of_nodes")), whole(said.get("accelerators_per_node"))
    return nodes * each if nodes and each else whole(said.get("number_of_ranks"))


def _title(records: Sequence[Record], path: Path) -> str:
    """Return benchmark, organisation and platform; what is missing is told by the file's name."""
    said: dict[str, str] = {}
    for record in records:
        if isinstance(record.value, str) and _PLACEHOLDER not in record.value:
            said.setdefault(record.key, clean(record.value, 60))
    keys = ("submission_benchmark", "submission_org", "submission_platform")
    parts = [said[key] for key in keys if said.get(key)]
    return " · ".join(parts if len(parts) > 1 else [*parts, clean(path.stem)])


@dataclass
class _Segment:
    """One time a program ran, made a process."""

    records: Sequence[Record]
    warnings: list[str] = field(default_factory=list)

    def process(self, opened: Open) -> Process:
        """Return the process; its open line is given its times."""
        begin, start = self._begin()
        stop = self._stop(start)
        end = self.records[-1].time_ns if stop is None else stop.time_ns
        events: list[AnyEvent] = self._ending(stop, begin, end)
        steps: list[Interval] = []
        if start is not None and start < end:
            steps = self._steps(start, end)
            if steps[0][0] > start:
                events.append(Span(category="unaccounted", start=start, end=steps[0][0]))
            events += self._evaluations(start, end)
        return Process(
            msgspec.structs.replace(opened, wall_ns=begin, mono_ns=begin),
            tuple(events),
            _rows(steps),
            tuple(self.warnings),
        )

    def _times(self, key: str) -> list[int]:
        return [record.time_ns for record in self.records if record.key == key]

    def _begin(self) -> tuple[int, int | None]:
        """Return when the program began, and when its run did [ns]."""
        inits, starts = self._times("init_start"), self._times("run_start")
        if not inits:
            self.warnings.append("init_start is not logged: what the startup took is unknown, not zero")
        if not starts:
            self.warnings.append("run_start is not logged: the log ends in the startup")
        return min([*inits, *starts]), min(starts, default=None)

    def _stop(self, start: int | None) -> Record | None:
        stops = [record for record in self.records if record.key == "run_stop" and record.time_ns >= (start or 0)]
        if stops:
            # In one millisecond several ranks may say it: then one that failed counts.
            return max(stops, key=lambda record: (record.time_ns, record.status != "success", record.status))
        self.warnings.append("run_stop is not logged: the log was cut, and ends with its last line")
        return None

    def _ending(self, stop: Record | None, begin: int, end: int) -> list[AnyEvent]:
        if stop is None:
            return [Notice(name="log_end", at=end)]
        if not stop.status:
            self.warnings.append(f"run_stop in line {stop.line} names no status: success is assumed")
        if stop.status in {"", "success"}:
            return [Close(at=end, reason="finished")]
        self.warnings.append(f"the run ended with the status {stop.status!r}: nothing of it is retained")
        # Nothing was ever saved: so the ledger counts every step as lost.
        return [Saved(step=-1, at=begin), Close(at=end, reason="failed")]

    def _steps(self, start: int, end: int) -> list[Interval]:
        """Return the blocks, or the epochs where there are none, or the run."""
        for kind in ("block", "epoch"):
            found = pair(self._times(f"{kind}_start"), self._times(f"{kind}_stop"), first=start)
            intervals = list(found.intervals)
            if found.left_open is not None and found.left_open < end:
                intervals.append((found.left_open, end))
                self.warnings.append(f"the last {kind} has no {kind}_stop: it is counted to the end of the run")
            self._warn_outside(f"{kind}s", intervals, start, end)
            if inside := clip(intervals, start, end):
                return inside
        self.warnings.append("neither blocks nor epochs are logged: the whole run counts as one step")
        return [(start, end)]

    def _evaluations(self, start: int, end: int) -> list[Span]:
        found = pair(self._times("eval_start"), self._times("eval_stop"))
        intervals = list(found.intervals)
        if found.left_open is not None and found.left_open < end:
            intervals.append((found.left_open, end))
            self.warnings.append("the last evaluation has no eval_stop: it is counted to the end of the run")
        if found.n_unmatched:
            self.warnings.append(f"{found.n_unmatched} eval_stop without eval_start: their evaluation time is unknown")
        if not intervals and not found.n_unmatched:
            self.warnings.append(_NO_EVALUATION)
        self._warn_outside("evaluations", intervals, start, end)
        return [Span(category="evaluation", start=first, end=last) for first, last in clip(intervals, start, end)]

    def _warn_outside(self, what: str, intervals: Sequence[Interval], start: int, end: int) -> None:
        left_out = outside(intervals, start, end)
        if left_out > _SLACK_NS:
            amount = show_seconds(left_out / NS_PER_S)
            self.warnings.append(f"{amount} of {what} lie outside run_start and run_stop and are left out")


def _rows(steps: Iterable[Interval]) -> Rows:
    times = np.array(list(steps), np.int64).reshape(-1, 2)
    return Rows(np.arange(len(times), dtype=np.int64), times[:, 0].copy(), times[:, 1].copy())
