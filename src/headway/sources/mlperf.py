"""MLPerf training logs: their blocks are steps, their evaluations spans, ``run_stop`` is their end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from headway.clock import NS_PER_S
from headway.errors import SourceError
from headway.events import AnyEvent, Close, Notice, Open, Saved, Span
from headway.ledger.history import Process, Rows, Run
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.intervals import Interval, Paired, clip, once, outside, pair, pair_numbered, without
from headway.sources.mllog import ANY_MARK, KEYS, MARK, NAMES, Log, Records, Stop, read, whole
from headway.sources.mlperfpower.beside import attach_beside
from headway.sources.mlperfpower.source import is_power
from headway.sources.text import clean
from headway.units import show_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_SLACK_NS: Final = 10_000_000
"""Lines of one moment are written up to some milliseconds apart; less outside the run is not worth a word [ns]."""
_TOLD_AGAIN_NS: Final = 1_000_000_000
"""Several ranks say that one thing stopped within a second [ns]."""
_PIECE: Final = 1 << 20
_LONGEST_MARK: Final = 16
_STOP, _INIT, _START = (KEYS.index(key) for key in ("run_stop", "init_start", "run_start"))
_NO_EVALUATION: Final = "evaluation time is not logged, there are no eval_start and eval_stop: it is unknown, not zero"


class MLPerf:
    """The source of MLPerf training logs."""

    name = "mlperf"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no MLPerf log, or None when it is one."""
        if is_power(head):
            return "it is a power log and no training log"
        return None if ANY_MARK.search(head) or _has_mark(path) else f"no line in it holds {MARK.decode()}"

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
        title = _title(log.facts, path)
        runs = []
        for number, group in enumerate(groups, 1):
            name = title if len(groups) == 1 else f"{title} #{number}"
            runs.append(_run(name, path, log, group, asked.devices))
        return [attach_beside(run, path, asked.zone) for run in runs]


def _has_mark(path: Path) -> bool:
    """Return whether the mark is anywhere in the file, which may begin with much else."""
    before = b""
    with suppress(files.TornError), files.plain(path) as file:
        while piece := files.piece(file, _PIECE):
            if ANY_MARK.search(before + piece):
                return True
            before = piece[-_LONGEST_MARK:]
    return False


def split(records: Records) -> list[Records]:
    """Return the records of each time a program ran, from its first ``init_start`` or ``run_start`` on.

    Example:
        >>> keys = ["init_start", "init_start", "run_start", "run_stop", "init_start", "run_start"]
        >>> codes = np.array([KEYS.index(key) for key in keys], np.uint8)
        >>> [len(segment) for segment in split(Records(np.arange(6), codes, codes, [Stop(3, "success", 4)]))]
        [4, 2]
    """
    starts = records.of("run_start")
    last_start = int(starts.max()) if len(starts) else 0
    begins: list[tuple[int, int]] = []  # the first record of each, and how many stops come before
    seen: set[int] = set()
    n_stops = 0
    marks = np.flatnonzero((records.codes >= _STOP) & (records.codes <= _START))
    for place, code, at in zip(
        marks.tolist(), records.codes[marks].tolist(), records.times[marks].tolist(), strict=True
    ):
        again = _STOP in seen or (_START in seen and code == _INIT and at < last_start)
        if code != _STOP and (again or not begins):
            begins.append((place, n_stops))
            seen = set()
        n_stops += code == _STOP
        if begins:
            seen.add(code)
    return [
        Records(
            records.times[place:after], records.codes[place:after], records.numbers[place:after], records.stops[n:until]
        )
        for (place, n), (after, until) in pairwise([*begins, (len(records), n_stops)])
    ]


def _by_run(segments: Sequence[Records]) -> list[list[Records]]:
    """Return the segments of each run: one that ended without ``run_stop`` goes on in the next."""
    groups: list[list[Records]] = [[]]
    for segment in segments:
        groups[-1].append(segment)
        if segment.stops:
            groups.append([])
    return [group for group in groups if group]


def _run(name: str, path: Path, log: Log, group: Sequence[Records], devices: int | None) -> Run:
    warnings = list(log.warnings)
    if len(group) > 1:
        warnings.append(
            f"{len(group)} attempts are in the log, each without run_stop but the last; it names no checkpoint they "
            "continued from, so that the steps of all but the last are counted as done again"
        )
    ends = [stop.time_ns for stop in group[-1].stops] or group[-1].times[-1:].tolist()
    n_instances = sum(first <= max(ends) and last >= int(group[0].times[0]) for first, last in log.instances.values())
    if n_instances > 1:
        warnings.append(
            f"lines of {n_instances} instances, trainings of their own, are in it and are read as one run: "
            "give the log of each by itself"
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
        processes.append(_Segment(segment, is_last=number == len(group) - 1).process(opened))
    return Run(name, MLPerf.name, tuple(processes), clean(str(path), 4096), tuple(warnings))


def devices_of(log: Log) -> int | None:
    """Return how many devices a log says it ran on; None where it does not say."""
    said: dict[str, Any] = log.facts | log.system
    nodes, each = whole(said.get("number_of_nodes")), whole(said.get("accelerators_per_node"))
    return nodes * each if nodes and each else whole(said.get("number_of_ranks"))


def _title(facts: Mapping[str, Any], path: Path) -> str:
    """Return benchmark, organisation and platform; what is missing is told by the file's name."""
    parts = [said for key in NAMES if (said := clean(facts.get(key, ""), 60))]
    return " · ".join(parts if len(parts) > 1 else [*parts, clean(path.stem)])


@dataclass
class _Segment:
    """One time a program ran, made a process."""

    records: Records
    is_last: bool = True
    warnings: list[str] = field(default_factory=list)

    def process(self, opened: Open) -> Process:
        """Return the process; its open line is given its times."""
        begin, start = self._begin()
        stop = self._stop(start)
        end = int(self.records.times[-1]) if stop is None else stop.time_ns
        events: list[AnyEvent] = self._ending(stop, begin, end)
        steps = clip((), 0, 0)
        if start is not None and start < end:
            steps = self._steps(start, end)
            events += self._evaluations(start, end, steps)
            staged = clip(self._paired("staging").intervals, start, end)
            events += [Span(category="custom:staging", start=first, end=last) for first, last in staged.tolist()]
            bare = without((start, int(steps[0, 0])), staged)
            events += [Span(category="unaccounted", start=first, end=last) for first, last in bare]
        return Process(
            msgspec.structs.replace(opened, wall_ns=begin, mono_ns=begin),
            tuple(events),
            _rows(steps),
            tuple(self.warnings),
        )

    def _begin(self) -> tuple[int, int | None]:
        """Return when the program began, and when its run did [ns]."""
        inits, starts = (self.records.of(key) for key in ("init_start", "run_start"))
        if not len(inits):
            self.warnings.append("init_start is not logged: what the startup took is unknown, not zero")
        if not len(starts):
            self.warnings.append("run_start is not logged: the log ends in the startup")
        return int(np.concatenate([inits, starts]).min()), int(starts.min()) if len(starts) else None

    def _stop(self, start: int | None) -> Stop | None:
        stops = [stop for stop in self.records.stops if stop.time_ns >= (start or 0)]
        if stops:
            # In one millisecond several ranks may say it: then one that failed counts.
            return max(stops, key=lambda stop: (stop.time_ns, stop.status != "success", stop.status))
        self.warnings.append(
            "run_stop is not logged: the log was cut, and ends with its last line"
            if self.is_last
            else "it ended without run_stop, and was begun again: it ends with its last line"
        )
        return None

    def _ending(self, stop: Stop | None, begin: int, end: int) -> list[AnyEvent]:
        if stop is None:
            return [Notice(name="log_end", at=end)]
        if not stop.status:
            self.warnings.append(f"run_stop in line {stop.line} names no status: success is assumed")
        if stop.status in {"", "success"}:
            return [Close(at=end, reason="finished")]
        self.warnings.append(f"the run ended with the status {stop.status!r}: nothing of it is retained")
        # Nothing was ever saved: so the ledger counts every step as lost.
        return [Saved(step=-1, at=begin), Close(at=end, reason="failed")]

    def _steps(self, start: int, end: int) -> Ints:
        """Return the blocks, or the epochs where there are none, or the run, ``(n, 2)``."""
        for kind in ("block", "epoch"):
            found = self._paired(kind, first=start)
            intervals = found.intervals
            if found.left_open is not None and found.left_open < end:
                intervals = np.append(intervals, [[found.left_open, end]], axis=0)
                self.warnings.append(f"the last {kind} has no {kind}_stop: it is counted to the end of the run")
            self._warn_outside(f"{kind}s", intervals, start, end)
            if len(inside := clip(intervals, start, end)):
                return inside
        self.warnings.append("neither blocks nor epochs are logged: the whole run counts as one step")
        return clip([(start, end)], start, end)

    def _paired(self, kind: str, first: int | None = None) -> Paired:
        """Return the intervals of a kind: by the numbers of their epochs where the times alone leave it open."""
        starts, stops = (self.records.of(f"{kind}_{what}") for what in ("start", "stop"))
        found = pair(starts, stops, first, _TOLD_AGAIN_NS)
        if len(found.intervals) == len(starts) == len(stops):
            return found
        of_starts, of_stops = (self.records.numbers_of(f"{kind}_{what}") for what in ("start", "stop"))
        return pair_numbered(starts, stops, of_starts, of_stops, first) or found

    def _evaluations(self, start: int, end: int, steps: Ints) -> list[Span]:
        """Return the evaluations; of one beside which a step began, what no step covers."""
        found = self._paired("eval")
        intervals = found.intervals
        if found.left_open is not None and found.left_open < end:
            intervals = np.append(intervals, [[found.left_open, end]], axis=0)
            self.warnings.append("the last evaluation has no eval_stop: it is counted to the end of the run")
        if found.n_unmatched:
            self.warnings.append(f"{found.n_unmatched} eval_stop without eval_start: their evaluation time is unknown")
        if not len(intervals) and not found.n_unmatched:
            self.warnings.append(f"{_NO_EVALUATION}, {self._where_evaluated(steps, end)}")
        self._warn_outside("evaluations", intervals, start, end)
        parts = self._waited_for(clip(intervals, start, end), steps)
        return [Span(category="evaluation", start=first, end=last) for first, last in parts]

    def _where_evaluated(self, steps: Ints, end: int) -> str:
        """Return where evaluations lie that have a result and no times: it is said when they have ended."""
        results = once(self.records.of("eval_accuracy"))
        results = results[results <= end]
        before = np.searchsorted(steps[:, 0], results)  # how many steps begin before each
        since_ns = results - np.append(end, steps[:, 1])[before]
        is_between = (since_ns > _SLACK_NS) & (before > 0)
        last = np.flatnonzero(is_between & np.append(before[1:] > before[:-1], True)[: len(before)])
        outside_ns = int(since_ns[last].sum())
        if not outside_ns:
            return "and inside the blocks"
        amount = show_seconds(outside_ns / NS_PER_S)
        return f"and between the blocks: {amount} from the ends of blocks to the results that follow"

    def _waited_for(self, evaluations: Ints, steps: Ints) -> list[Interval]:
        """Return evaluations, without the steps where a whole one lies inside: none of those waited for it."""
        begins = np.append(True, evaluations[1:, 0] > evaluations[:-1, 1])[: len(evaluations)]
        since = evaluations[begins, 0]  # of those that go on in the next one
        until = evaluations[np.append(begins[1:], True)[: len(evaluations)], 1]
        first = np.searchsorted(steps[:, 0], since, "right")
        is_beside = np.searchsorted(steps[:, 1], until) > first
        if not is_beside.any():
            return [(first, last) for first, last in evaluations.tolist()]
        parts: list[Interval] = []
        for begin, end, beside in zip(since.tolist(), until.tolist(), is_beside.tolist(), strict=True):
            parts += without((begin, end), steps) if beside else [(begin, end)]
        amount = int((until - since).sum()) - sum(end - begin for begin, end in parts)
        self.warnings.append(
            f"evaluations ran beside the training: for {show_seconds(amount / NS_PER_S)} of them there were blocks or "
            "epochs, which did not wait and count as such"
        )
        return parts

    def _warn_outside(self, what: str, intervals: Ints, start: int, end: int) -> None:
        left_out = outside(intervals, start, end)
        if left_out > _SLACK_NS:
            amount = show_seconds(left_out / NS_PER_S)
            self.warnings.append(f"{amount} of {what} lie outside run_start and run_stop and are left out")


def _rows(steps: Ints) -> Rows:
    return Rows(np.arange(len(steps), dtype=np.int64), steps[:, 0], steps[:, 1])
