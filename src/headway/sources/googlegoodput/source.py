"""Entries that Google's ``ml-goodput-measurement`` wrote to Cloud Logging, as ``gcloud logging read`` prints them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.errors import SourceError
from headway.events import AnyEvent, Close, Notice, Open, Restored, Span, span_category
from headway.ledger.history import Process, Rows, Run
from headway.ledger.pieces import owned
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.columns import BOUND
from headway.sources.googlegoodput.entries import (
    BEGIN,
    DONE,
    LOAD,
    MOMENTS,
    begins_with_entry,
    checkpoint,
    entries,
    has_time,
    whole,
)
from headway.sources.intervals import clip, once, pair
from headway.sources.text import Complaints, clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

TOGETHER_NS: Final = 60 * NS_PER_S
"""So far apart several hosts report the same thing at most [ns]."""
INTERVALS: Final = {
    "tpu_init": "device_init",
    "training_prep": "startup",
    "elastic_reinit": "custom:elastic_reinit",
    "elastic_wait": "custom:elastic_wait",
}
"""What is reported by its start and its end, and the category it is booked under."""
CUSTOM: Final = {
    **dict.fromkeys(("eval", "eval_loop", "eval_step", "evaluation", "validation"), "evaluation"),
    **dict.fromkeys(("checkpoint", "checkpointing", "checkpoint_save", "save_checkpoint"), "checkpoint_save"),
    **dict.fromkeys(("checkpoint_load", "checkpoint_restore", "restore_checkpoint"), "checkpoint_restore"),
}
"""Custom badput events whose names say what they are; the type is compared in lower case."""
_MOST_SAID: Final = 100
"""Of a run so many warnings are shown."""
LOADING: Final = "custom:data_loading"


class GoogleGoodput:
    """The source of ``ml-goodput-measurement`` entries: JSON lines, or one JSON array."""

    name = "googlegoodput"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path holds no such entries, or None when it does."""
        if not begins_with_entry(head):
            return "it does not begin with a JSON entry"
        if any(entry.job_name is not None and has_time(entry) for entry in whole(head)):
            return None
        return "no entry at its beginning has a job_name and a time such as job_start_time"

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return a run for each job name.

        Raises:
            SourceError: No entry in it can be used.
        """
        bad = Complaints(clean(path.name), "entry at line")
        jobs: dict[str, _Job] = {}
        broken: list[str] = []
        try:
            for number, entry in entries(path, bad):
                name = entry.job_name
                if name is None:
                    bad.add("none of ml-goodput-measurement, left out", number)
                    continue
                job = jobs.get(name)
                if job is None:
                    job = jobs[name] = _Job()
                try:
                    job.take(entry)
                except ValueError as error:
                    bad.add("left out", number, str(error))
        except files.TornError:
            broken = [f"{clean(path.name)}: it is cut or damaged, and what follows there is left out"]
        said = [*bad.sentences(), *broken]
        runs = [job.run(clean(name), path, said, asked.devices) for name, job in jobs.items() if job.n]
        if not runs:
            raise SourceError(
                f"Cannot read {clean(str(path), 4096)}: no entry of ml-goodput-measurement in it can be used",
                "Export the log that the job's recorder writes to, with its jsonPayload",
                "no-runs",
                path=str(path),
            )
        return sorted(runs, key=lambda run: run.name)


def _ns(seconds: float) -> int:
    """Return a time of the log as nanoseconds [ns since the Unix epoch].

    Raises:
        ValueError: It is no moment from 1970 on that 64 bits can hold.
    """
    if not 0 <= seconds * NS_PER_S < BOUND:  # NaN neither
        raise ValueError(f"its time, {clean(str(seconds), 40)}, is out of range")
    whole = int(seconds)
    return whole * NS_PER_S + round((seconds - whole) * NS_PER_S)


def _array() -> array[int]:
    return array("q")


@dataclass
class _Job:
    """What was said of one job, as columns of times [ns since the Unix epoch]."""

    n: int = 0
    moments: dict[str, array[int]] = field(default_factory=lambda: {name: _array() for name in MOMENTS})
    customs: dict[str, tuple[array[int], array[int]]] = field(default_factory=dict)
    steps: tuple[array[int], array[int]] = field(default_factory=lambda: (_array(), _array()))
    saves: list[Span] = field(default_factory=list)
    fewer: dict[tuple[float, float], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._watched = [(attrgetter(f"{name}_time"), times.append) for name, times in self.moments.items()]

    def take(self, entry: Any) -> None:
        """Keep what an entry says.

        Raises:
            ValueError: It says nothing that can be used.
        """
        if entry.step_start_time is not None:
            number = entry.step_count
            if number is None or not number.is_integer() or abs(number) >= BOUND:
                raise ValueError("its step_count is no whole number")
            at = _ns(entry.step_start_time)
            self.steps[0].append(int(number))
            self.steps[1].append(at)
        elif not self._take_rare(entry):
            raise ValueError("it says nothing that is read here")
        self.n += 1

    def _take_rare(self, entry: Any) -> bool:
        for watched, keep in self._watched:
            if (at := watched(entry)) is not None:
                keep(_ns(at))
                return True
        for side, at in enumerate((entry.custom_badput_event_start_time, entry.custom_badput_event_end_time)):
            if at is not None:
                kind = clean(entry.custom_badput_event_type, 60).lower()
                self.customs.setdefault(kind, (_array(), _array()))[side].append(_ns(at))
                return True
        if entry.elastic_slice_counts_timestamp is not None:
            active, total = entry.active_slices, entry.total_slices
            if active and total and 0 < active < total:
                self.fewer[active, total] = self.fewer.get((active, total), 0) + 1
            return True
        found = checkpoint(entry)
        if found is not None:
            category, start, took = found
            self.saves.append(Span(category=category, start=_ns(start), end=_ns(start + took)))
        return found is not None

    def run(self, name: str, path: Path, warnings: list[str], devices: int | None) -> Run:
        """Return the run of this job."""
        warnings = [*warnings]
        if devices is None:
            warnings.append("the number of devices is not in the log and 1 is counted; give it with --devices")
        if self.fewer:
            active, total = min(self.fewer, key=lambda pair: pair[0] / pair[1])
            often = sum(self.fewer.values())
            said = f"{often} entries tell of fewer slices at work than there are, of {active:g} of {total:g} or more"
            warnings.append(f"{said}: all devices are counted throughout")
        all_times = {name: once(_column(times)) for name, times in self.moments.items()}
        customs = {kind: (once(_column(starts)), once(_column(ends))) for kind, (starts, ends) in self.customs.items()}
        number, at = map(_column, self.steps)
        if not np.all(at[1:] > at[:-1]):
            order = np.lexsort((number, at))
            number, at = number[order], at[order]
        self.saves.sort(key=lambda span: span.start)
        saved = np.array([span.start for span in self.saves], np.int64)
        begins = _begins(all_times, [*customs.values()], at, saved, warnings)
        customs_of = _by_attempt(customs, begins)
        processes = []
        for place, begin in enumerate(begins):
            until = begins[place + 1] if place + 1 < len(begins) else BOUND
            (low, high), some = np.searchsorted(at, [begin, until]).tolist(), np.searchsorted(saved, [begin, until])
            attempt = _Attempt(
                begin,
                {name: _within(times, begin, until) for name, times in all_times.items()},
                customs_of.get(place, {}),
                (number[low:high], at[low:high]),
                self.saves[slice(*some.tolist())],
                until,
            )
            opened = Open(
                wall_ns=begin, mono_ns=begin, run=name, attempt=f"a{place:03d}", devices=devices or 1,
                phases=("source",), rows="step",
            )  # fmt: skip
            processes.append(attempt.process(opened))
            warnings += [f"{opened.attempt}: {sentence}" for sentence in attempt.warnings]
        if len(warnings) > _MOST_SAID:
            warnings[_MOST_SAID:] = [f"of this run {len(warnings) - _MOST_SAID} more warnings are not shown"]
        return Run(name, GoogleGoodput.name, tuple(processes), clean(str(path), 4096), tuple(warnings))


def _column(times: array[int]) -> Ints:
    return np.frombuffer(times, np.int64)


def _within(times: Ints, begin: int, until: int) -> Ints:
    low, high = np.searchsorted(times, [begin, until])
    return times[low:high]


def _by_attempt(customs: dict[str, tuple[Ints, Ints]], begins: list[int]) -> dict[int, dict[str, tuple[Ints, Ints]]]:
    """Return by attempt and kind the starts and ends of custom events, of those kinds that it has."""
    found: dict[int, dict[str, tuple[Ints, Ints]]] = {}
    since = np.array(begins, np.int64)
    for kind, both in customs.items():
        cuts = [since.searchsorted(times, "right") - 1 for times in both]
        for place in np.unique(np.concatenate(cuts)).tolist():
            starts, ends = (
                times[slice(*which.searchsorted([place, place + 1]))] for times, which in zip(both, cuts, strict=True)
            )
            found.setdefault(place, {})[kind] = starts, ends
    return found


def _begins(
    moments: dict[str, Ints], customs: list[tuple[Ints, Ints]], steps: Ints, saved: Ints, warnings: list[str]
) -> list[int]:
    """Return when each attempt began: a job start is another host's unless there was a step, an end or a minute."""
    columns = [*moments.values(), *(times for both in customs for times in both), steps, saved]
    earliest = min(int(column.min()) for column in columns if len(column))
    progress = np.sort(np.concatenate([steps, moments[DONE]]))
    begins: list[int] = []
    last = 0
    for start in moments[BEGIN].tolist():
        if not begins:
            before = len(progress) and progress[0] < start
            begins = [earliest, start] if before else [min(earliest, start)]
            if before:
                warnings.append(
                    "entries lie before the first job_start_time: what that attempt's startup took is unknown"
                )
        elif start - last > TOGETHER_NS or np.searchsorted(progress, start) > np.searchsorted(progress, begins[-1]):
            begins.append(start)
        last = start
    if not begins:
        warnings.append("no job_start_time is logged: what the startup took is unknown, and restarts cannot be told")
    return begins or [earliest]


@dataclass
class _Attempt:
    """One time that the job ran."""

    begin: int
    moments: dict[str, Ints]
    customs: dict[str, Any]
    steps: tuple[Ints, Ints]
    saves: list[Span]
    until: int
    warnings: list[str] = field(default_factory=list)

    def process(self, opened: Open) -> Process:
        """Return the process."""
        columns = [*self.moments.values(), *(times for both in self.customs.values() for times in both), self.steps[1]]
        moments = [int(column.max()) for column in columns if len(column)] + [span.end for span in self.saves]
        end = min(max([self.begin, *moments]), self.until)
        number, start, marks = self._numbers()
        ends = np.append(start[1:], end)[: len(start)]
        kept = ends > start
        rows = Rows(number, start, ends) if kept.all() else Rows(number[kept], start[kept], ends[kept])
        spans = self._spans(end)
        loads = self._intervals(LOAD, self.moments[f"{LOAD}_start"], self.moments[f"{LOAD}_end"], end)
        first = int(start[0]) if len(start) else end
        spans += [Span(category=LOADING, start=low, end=high) for low, high in clip(loads, self.begin, first).tolist()]
        if len(rows):
            rows = Rows(rows.step, rows.start, rows.end, {"source": _shared(rows, loads, spans)})
        ending: AnyEvent = (
            Close(at=end, reason="finished") if len(self.moments[DONE]) else Notice(name="log_end", at=end)
        )
        return Process(opened, (*spans, *marks, ending), rows)

    def _numbers(self) -> tuple[Ints, Ints, list[Restored]]:
        """Return the steps and their starts, each once, and where the numbers went back without a job start."""
        number, at = self.steps
        if np.all(number[1:] > number[:-1]):
            missing = 0 if not len(number) else int(number[-1] - number[0]) + 1 - len(number)
            if missing:
                self.warnings.append(f"{missing} steps are not logged: their time is in the steps before them")
            return number, at, []
        since = np.searchsorted(self._resumed(), at, side="right")
        _, first, which = np.unique(number, return_index=True, return_inverse=True)
        together = bool(np.all((at - at[first][which] <= TOGETHER_NS) & (since == since[first][which])))
        kept, marks = (np.sort(first), []) if together else _restarts(number, at, since)
        if repeats := len(number) - len(kept):
            self.warnings.append(
                f"{repeats} steps are reported again, as by another host, and count once from their first report; "
                "data loading is the time that any of these hosts reported"
            )
        if marks:
            often = f"{len(marks)} time{'s' * (len(marks) > 1)}"
            self.warnings.append(
                f"without a job_start_time the steps begin again at a lower number, {often}: "
                "a restart inside the process, and what it redid is rollback"
            )
        return number[kept], at[kept], marks

    def _resumed(self) -> Ints:
        """Return when what is elastic was about to go on: what is reported again after that is done again."""
        waits = pair(self.moments["elastic_wait_start"], self.moments["elastic_wait_end"])
        left = [] if waits.left_open is None else [waits.left_open]
        return once(np.concatenate([self.moments["elastic_wait_end"], self.moments["elastic_reinit_start"], left]))

    def _spans(self, end: int) -> list[Span]:
        found = [
            (category, self._intervals(name, self.moments[f"{name}_start"], self.moments[f"{name}_end"], end))
            for name, category in INTERVALS.items()
        ]
        for kind, (starts, ends) in self.customs.items():
            found.append(
                (CUSTOM.get(kind) or span_category(f"custom:{kind}"), self._intervals(kind, starts, ends, end))
            )
        spans = [
            Span(category=category, start=low, end=high) for category, pairs in found for low, high in pairs.tolist()
        ]
        return spans + [
            Span(category=span.category, start=max(span.start, self.begin), end=min(span.end, end))
            for span in self.saves
            if max(span.start, self.begin) < min(span.end, end)
        ]

    def _intervals(self, what: str, starts: Ints, ends: Ints, end: int) -> Ints:
        """Return the intervals between starts and ends, ``(n, 2)``; of several hosts' the first start and end."""
        found = pair(starts, ends)
        intervals = found.intervals
        lone = int(np.searchsorted(ends, starts[0], side="right")) if len(starts) else len(ends)
        if lone:
            self.warnings.append(f"{lone} ends of {what} have no start: their time is unknown")
        if found.left_open is not None:
            if len(self.steps[1]) and self.steps[1][-1] > found.left_open and what != LOAD:
                self.warnings.append(f"the last {what} has no end: its time is unknown")
            elif what != LOAD:
                intervals = np.append(intervals, [[found.left_open, end]], axis=0)
        return clip(intervals, self.begin, end)


def _restarts(number: Ints, at: Ints, since: Ints) -> tuple[Ints, list[Restored]]:
    """Return the places of reports that count, and where the numbers went back.

    Args:
        number: The step of each report.
        at: When it was [ns], in order.
        since: How often what is elastic had gone on by then.
    """
    kept: list[int] = []
    marks: list[Restored] = []
    seen: dict[int, tuple[int, int]] = {}
    lowest = int(number[0])
    for place, (step, time, stretch) in enumerate(zip(number.tolist(), at.tolist(), since.tolist(), strict=True)):
        past = seen.get(max(step, lowest))
        if past is not None and (time - past[0] > TOGETHER_NS or stretch != past[1]):
            marks.append(Restored(step=step - 1, at=time))
            seen, lowest = {}, step
        elif step in seen:
            continue
        lowest = min(lowest, step)
        seen[step] = (time, stretch)
        kept.append(place)
    return np.array(kept, np.int64), marks


def _shared(rows: Rows, loads: Ints, spans: list[Span]) -> Ints:
    """Return how long each row loaded data, less what spans own of that [ns]."""
    low, high = loads.T
    taken = np.array([(span.start, span.end) for span in spans], np.int64).reshape(-1, 2).T
    pieces = owned(low, high).without(owned(taken[0], taken[1]))
    total = np.append(0, np.cumsum(pieces.end - pieces.start))

    def before(times: Ints) -> Ints:
        place = np.searchsorted(pieces.start, times)
        inside = np.zeros(len(times), np.int64)
        some = place > 0
        inside[some] = np.minimum(times[some], pieces.end[place[some] - 1]) - pieces.start[place[some] - 1]
        return total[np.maximum(place - 1, 0)] + inside

    return before(rows.end) - before(rows.start)
