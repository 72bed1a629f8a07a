"""Traces of the PyTorch profiler and of JAX: what a device did, what it waited for, step by step."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from headway.errors import SourceError
from headway.events import Close, Open
from headway.ledger.history import Process, Rows, Run
from headway.sources.asked import Asked
from headway.sources.kineto.chrometrace import Trace
from headway.sources.kineto.devices import MAX_NS, Device, Gathering, Mark
from headway.sources.kineto.spans import Union
from headway.sources.text import Complaints, clean

PHASES: Final = ("exposed_communication", "host_gap")
UNKNOWN: Final = "a trace covers the steps it profiled and nothing else"
_XLA_LIMIT: Final = 1_000_000
_EVENTS: Final = re.compile(rb'"traceEvents"\s*:\s*\[')
_KINETO: Final = re.compile(
    rb'"schemaVersion"\s*:.*"(?:deviceProperties|distributedInfo|record_shapes)"\s*:', re.DOTALL
)
_ARRAY: Final = re.compile(rb"\[\s*\{")
_PHASE: Final = re.compile(rb'"ph"\s*:\s*"[A-Za-z]"')
_PLACE: Final = re.compile(rb'"(?:pid|ts)"\s*:')
_RANK: Final = re.compile(r"(?i)(?<![a-z])rank[-_ .:=]?(\d{1,9})(?!\d)")
_ENDING: Final = re.compile(r"(?i)\.(?:gz|json|trace|pt|chrome)$")
_HANDLER: Final = re.compile(r"^(?P<host>.+)_\d+\.\d{10,}$")
_EDGES: Final = re.compile(r"^[-_. ]+|[-_. ]+$")
_NO_EVENTS: Final = "Cannot read {}: it has {} events, and none is of a device: no kernel, no copy"


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What a trace says of the time of its devices, all [ns].

    Attributes:
        span_ns: From the first event of a device to the last one's end.
        busy_ns: Under a kernel, a copy or a setting of memory, on any stream.
        compute_ns: Under a kernel that is no communication.
        comm_ns: Under communication.
        exposed_ns: Under communication, and under no compute.
        copies_ns: Under a copy or a setting of memory.
        host_gap_ns: Under nothing at all.
        steps_ns: How long each marked step is, in the order of time.
    """

    span_ns: int
    busy_ns: int
    compute_ns: int
    comm_ns: int
    exposed_ns: int
    copies_ns: int
    host_gap_ns: int
    steps_ns: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Activity:
    """What one device did, or several together, as unions."""

    compute: Union
    comm: Union
    copies: Union
    kernels: Union
    busy: Union

    @classmethod
    def of(cls, devices: Sequence[Device]) -> _Activity:
        lanes = [lane for device in devices for lane in device.lanes]
        compute = Union.of(*(lane.compute.union() for lane in lanes))
        comm = Union.of(*(lane.comm.union() for lane in lanes))
        copies = Union.of(*(lane.copies.union() for lane in lanes))
        kernels = Union.of(compute, comm)
        return cls(compute, comm, copies, kernels, Union.of(kernels, copies))

    def facts(self, steps: Sequence[Mark]) -> TraceFacts:
        span = int(self.busy.end[-1] - self.busy.start[0])
        return TraceFacts(
            span_ns=span,
            busy_ns=self.busy.total_ns,
            compute_ns=self.compute.total_ns,
            comm_ns=self.comm.total_ns,
            exposed_ns=self.kernels.total_ns - self.compute.total_ns,
            copies_ns=self.copies.total_ns,
            host_gap_ns=span - self.busy.total_ns,
            steps_ns=tuple(mark.end - mark.start for mark in steps),
        )

    def rows(self, numbers: Sequence[int], edges: Sequence[int]) -> Rows:
        """Return a row from each edge to the next, with what was lost in it."""
        times = np.array(edges, np.int64)
        exposed = np.diff(self.kernels.before(times)) - np.diff(self.compute.before(times))
        gap = np.diff(times) - np.diff(self.busy.before(times))
        return Rows(np.array(numbers, np.int64), times[:-1], times[1:], dict(zip(PHASES, (exposed, gap), strict=True)))


class Kineto:
    """The source of Chrome traces of the PyTorch profiler (Kineto) and of JAX."""

    name = "kineto"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no such trace, or None when it is one."""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
        if start.startswith(b"{") and (_EVENTS.search(start) or _KINETO.search(start)):
            return None
        if _ARRAY.match(start) and _PHASE.search(start) and _PLACE.search(start):
            return None
        return "it is no JSON with traceEvents, and no array of trace events"

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the run of a trace; each device that it has is a process."""
        return [_Reading.of(path).run(asked.devices)]


def facts(path: str | os.PathLike[str]) -> TraceFacts:
    """Return what a trace says, of all its devices together [ns].

    Args:
        path: A trace of the PyTorch profiler or of JAX, as JSON or that in gzip.

    Raises:
        SourceError: No event in it is of a device, or it unpacks to more than the limit.
        OSError: It cannot be read.
    """
    reading = _Reading.of(Path(path))
    return _Activity.of(reading.devices).facts(reading.steps(reading.devices[0]))


@dataclass(frozen=True, eq=False)
class _Reading:
    """A trace that was read."""

    path: Path
    trace: Trace
    gathering: Gathering
    devices: Sequence[Device]

    @classmethod
    def of(cls, path: Path) -> _Reading:
        shown = clean(str(path), 4096)
        trace = Trace(path, Complaints(clean(path.name), "byte"))
        gathering = Gathering(Complaints(clean(path.name), "event"))
        for batch in trace.batches():
            gathering.add(batch)
        devices = gathering.devices()
        if not devices:
            why = [*trace.complaints.sentences(), *gathering.complaints.sentences()]
            called = " ".join(gathering.processes.values())
            if "Ascend" in called:
                why.insert(0, "the traces of Ascend's profiler are not read")
            how = "JAX where it has a GPU or a TPU" if "/host:" in called else "with ProfilerActivity.CUDA"
            raise SourceError(
                "; ".join([_NO_EVENTS.format(shown, trace.n_events), *why]),
                f"Profile {how}, and while the device works",
                "no-device-events",
                path=shown,
            )
        return cls(path, trace, gathering, devices)

    def steps(self, device: Device) -> list[Mark]:
        """Return the marked steps in the order of time: the device's own where it is XLA's, else the host's."""
        own = device.marks
        marks = self.gathering.marks or own
        if own and ":" in device.name:
            marks = own
        if marks is own:
            return _outer(own)
        return sorted(marks)

    def run(self, asked: int | None) -> Run:
        """Return the run: a process for each device, in windows of one length."""
        whole = _Activity.of(self.devices).busy
        window = (int(whole.start[0]), int(whole.end[-1]))
        name, (rank, world) = self._name(), self._place()
        processes = []
        for index, device in enumerate(self.devices):
            opened = Open(
                wall_ns=self._base_ns() + window[0],
                mono_ns=window[0],
                run=name,
                attempt="a0",
                rank=rank * len(self.devices) + index,
                world_size=world * len(self.devices),
                devices=asked or 1,
                accelerator=self._accelerator(device),
                phases=PHASES,
                rows="block",
            )
            rows, warnings = self._rows(device, window)
            processes.append(Process(opened, (Close(at=window[1]),), rows, warnings))
        path = clean(str(self.path), 4096)
        return Run(name, Kineto.name, tuple(processes), path, tuple(self._warnings()), {"R": UNKNOWN})

    def _rows(self, device: Device, window: tuple[int, int]) -> tuple[Rows, list[str]]:
        """Return the rows of a device: a step reaches to the next one's begin, the last to the end of the window.

        Where the device still does much of the step before the first that is marked, that is a row too.
        """
        begin, end = window
        activity, marks = _Activity.of([device]), self.steps(device)
        starts = [min(max(start, begin), end) for start in self._starts(device, marks)]
        edges = [*starts, end]
        kept = [n for n in range(len(marks)) if edges[n] < edges[n + 1]]
        if not kept:
            said = "while the device worked no step is marked, and the whole is one block: call prof.step() in the loop"
            return activity.rows([0], window), [said]
        left_out = len(marks) - len(kept)
        said = f"{left_out} of {len(marks)} marked steps are not in what the device did"
        numbers = [marks[n].number for n in kept]
        edges = [*(edges[n] for n in kept), end]
        if numbers[0] > 0 and edges[0] - begin > np.median(np.diff(edges)) / 2:
            numbers, edges = [numbers[0] - 1, *numbers], [begin, *edges]
        edges[0] = begin
        return activity.rows(numbers, edges), [said] if left_out else []

    def _starts(self, device: Device, marks: Sequence[Mark]) -> list[int]:
        """Return when steps began: for the device, as far as the launches tell it; else for the host [ns]."""
        times = [mark.start for mark in marks]
        found = None if device.marks == set(marks) else self.gathering.launches.starts(device.kernels, times)
        return times if found is None else [MAX_NS if time is None else time for time in found]

    def _warnings(self) -> list[str]:
        said = [*self.trace.complaints.sentences(), *self.gathering.complaints.sentences()]
        if self.trace.n_events >= _XLA_LIMIT and any(":" in device.name for device in self.devices):
            said.append(f"{self.trace.n_events} events: XLA writes about {_XLA_LIMIT} at most, and more may be missing")
        if self.gathering.graphs:
            said.append(
                "graphs of kernels are in the trace as one event each (CudaGraphExec): communication in them counts as "
                "compute; profile without gpu_enable_cupti_activity_graph_trace"
            )
        return said

    def _distributed(self) -> dict[str, object]:
        found = self.trace.value("distributedInfo")
        return found if isinstance(found, dict) else {}

    def _place(self) -> tuple[int, int]:
        """Return the rank and the number of ranks, as far as the trace, its processes or the file's name say them."""
        said = self._distributed()
        world = _count(said.get("world_size"), 1) or 1
        rank = _count(said.get("rank"), 0)
        names = [*self.gathering.processes.values(), self.path.name]
        found = next((match for name in names if (match := _RANK.search(name))), None)
        if rank is None:
            rank = 0 if found is None else int(found[1])
        return rank, max(world, rank + 1)

    def _base_ns(self) -> int:
        return _count(self.trace.value("baseTimeNanoseconds"), 0) or 0

    def _accelerator(self, device: Device) -> str | None:
        """Return what the device is, by its number."""
        known = self.trace.value("deviceProperties")
        for one in known if isinstance(known, list) else ():
            if isinstance(one, dict) and str(one.get("id")) == device.name and isinstance(one.get("name"), str):
                return clean(one["name"]) or None
        return None

    def _name(self) -> str:
        """Return what the traces of all ranks share of their files' names."""
        stem = self.path.name
        while _ENDING.search(stem):
            stem = _ENDING.sub("", stem)
        if handled := _HANDLER.match(stem):
            stem = re.sub(r"[-_.]?\d+$", "", handled["host"])
        stem = _EDGES.sub("", re.sub(r"([-_. ])[-_. ]+", r"\1", _RANK.sub("", stem)))
        world = _count(self._distributed().get("world_size"), 1)
        name = clean(stem) or "trace"
        return f"{name} · {world} ranks" if world and world > 1 else name


def _count(value: object, least: int) -> int | None:
    """Return a whole number of a file, None where it is none or beyond what can be."""
    return value if type(value) is int and least <= value < MAX_NS else None


def _outer(marks: Iterable[Mark]) -> list[Mark]:
    """Return one mark a step, over all the streams that have it."""
    by_number: dict[int, Mark] = {}
    for mark in marks:
        known = by_number.get(mark.number, mark)
        by_number[mark.number] = Mark(min(known.start, mark.start), max(known.end, mark.end), mark.number)
    return sorted(by_number.values())


def merge(runs: Sequence[Run]) -> Run:
    """Return one run of the traces of its ranks: steps of one number are the same step.

    A rank that was traced more than once has an attempt for each. Where the clocks of traces are not the wall clock, or
    do not agree, each is shifted so that the first step they share begins at one moment.

    Args:
        runs: Of `Kineto.load`, one or more.

    Example:
        >>> opened = [Open(wall_ns=5 * rank, mono_ns=5 * rank, rank=rank, world_size=2) for rank in range(2)]
        >>> rows = [Rows(*np.array([[7], [one.mono_ns], [one.mono_ns + 9]])) for one in opened]
        >>> runs = [Run("r", "kineto", [Process(*two)]) for two in zip(opened, [()] * 2, rows)]
        >>> [process.open.wall_ns for process in merge(runs).processes]
        [0, 5]
    """
    first = runs[0]
    processes = [process for run in runs for process in run.processes]
    processes.sort(key=lambda process: (process.open.rank, process.open.wall_ns))
    n_before: Counter[int] = Counter()
    numbered = []
    for process in processes:
        rank = process.open.rank
        attempt = f"a{n_before[rank]}"
        n_before[rank] += 1
        numbered.append(replace(process, open=msgspec.structs.replace(process.open, attempt=attempt, run=first.name)))
    aligned, warnings = _aligned(numbered)
    said = tuple(dict.fromkeys([*(warning for run in runs for warning in run.warnings), *warnings]))
    return replace(first, processes=tuple(aligned), warnings=said)


def _aligned(processes: list[Process]) -> tuple[list[Process], list[str]]:
    """Return them on one clock, and what there is to say of it."""
    by_step = [dict(zip(one.rows.step.tolist(), one.rows.start.tolist(), strict=True)) for one in processes]
    shared = set(by_step[0]).intersection(*by_step[1:])
    every = set().union(*by_step)
    warnings = []
    if shared != every:
        warnings.append(f"the ranks share {len(shared)} of {len(every)} steps: the others are of some ranks only")
    if not shared or len(processes) == 1 or max(Counter(one.open.rank for one in processes).values()) > 1:
        return processes, warnings
    step = min(shared)
    times = [one.open.wall_ns + starts[step] - one.open.mono_ns for one, starts in zip(processes, by_step, strict=True)]
    length = max(int((one.rows.end - one.rows.start).max()) for one in processes)
    if max(times) - min(times) <= length:
        return processes, warnings
    warnings.append(f"the clocks of the ranks do not agree: they are set by the start of step {step}")
    return [
        replace(one, open=msgspec.structs.replace(one.open, wall_ns=one.open.wall_ns - time + min(times)))
        for one, time in zip(processes, times, strict=True)
    ], warnings
