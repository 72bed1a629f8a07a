"""What each device of a trace did: compute, communication and copies, and the steps that were marked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from typing import Final

import msgspec

from headway.sources.kineto.chrometrace import TraceEvent
from headway.sources.kineto.kinds import MAX_KNOWN, Operations, of_kernel
from headway.sources.kineto.launches import Launches
from headway.sources.kineto.spans import Intervals
from headway.sources.text import Complaints

MAX_NS: Final = 1 << 61
"""A time or a length beyond that is damage [ns]."""
MAX_LANES: Final = 1 << 16
"""More threads than that are not told apart."""
MAX_DEVICES: Final = 1 << 10
"""More devices than that are not told apart."""
MAX_MARKS: Final = 1 << 17
"""More marks of steps than that are not read."""
_MAX_DIGITS: Final = 48
_SCALE: Final[Mapping[int, int]] = {3: 1, 2: 10, 1: 100}
"""What makes nanoseconds of microseconds with so many decimals and no dot."""

_MAX_KEY: Final = 256

_ACTIVITY: Final[Mapping[str, str]] = {
    "kernel": "compute",
    "Kernel": "compute",
    "gpu_memcpy": "copies",
    "gpu_memset": "copies",
    "Memcpy": "copies",
    "Memset": "copies",
}
"""What the events of a device are, by their category; capitals are PyTorch's before 1.12."""
_FROM_ANOTHER: Final = "Memcpy PtoP"
"""How the names of copies from one device to another begin."""
_LAUNCHING: Final = ("runtime", "driver", "Runtime")
"""How the categories end of what launches kernels."""
_CORRELATED: Final = b'"correlation_id"'
_STEP: Final = re.compile(r"ProfilerStep\s?#?(\d{1,18})$")
_STEP_BYTES: Final = re.compile(rb"ProfilerStep\s?#?(\d{1,18})$")
_STEP_NUMBER: Final = re.compile(rb'"step_num"\s*:\s*"?(\d{1,18})')
_DEVICE: Final = re.compile(r"/device:(\w+:\d+)(?!\d| SparseCore)")
"""How XLA calls the process of a device; what its SparseCores do stands in others, and hides no communication."""
_DERIVED: Final = re.compile(
    r"(?i)(?:steps|xla modules|launch stats|source|framework|tensorflow|xla traceme|name scope)"
)


@dataclass
class Lane:
    """What one device, or one thread of it, did; and its own marks of steps.

    Attributes:
        tied: Whether its kernels may be tied to launches.
    """

    compute: Intervals = field(default_factory=Intervals)
    comm: Intervals = field(default_factory=Intervals)
    copies: Intervals = field(default_factory=Intervals)
    marks: set[Mark] = field(default_factory=set)
    kernels: Launches = field(default_factory=Launches)
    tied: bool = True


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A step that was marked: when it began and ended [ns], and its number."""

    start: int
    end: int
    number: int


@dataclass(frozen=True)
class Device:
    """One device.

    Attributes:
        name: What the trace calls it.
        lanes: What it did.
        marks: Its own marks of steps; empty where only the host has some.
    """

    name: str
    lanes: tuple[Lane, ...]
    marks: frozenset[Mark]

    @property
    def kernels(self) -> Launches:
        """Return when its kernels began, by what ties them to their launches."""
        return Launches.of(*(lane.kernels for lane in self.lanes))


class _Named(msgspec.Struct):
    name: str = ""


_named: Final = msgspec.json.Decoder(_Named)
_Key = tuple[bytes, bytes]


class Gathering:
    """Events of a trace, of which only what devices did and the marks of steps are kept.

    PyTorch's events have a category, and of a device's kernels, copies and settings of memory it alone decides. XLA's
    have none: there the names of processes and threads, which may come later, tell what a device did.

    Attributes:
        complaints: Events that could not be used, by their number in the file, from 1.
        marks: Steps that the host marked.
        launches: When the host launched kernels.
        processes: What processes are called, by the JSON of their ids.
    """

    def __init__(self, complaints: Complaints) -> None:
        self.complaints = complaints
        self._lanes: dict[bytes, Lane] = {}  # of events with a category, by the device
        self._threads: dict[_Key, Lane] = {}  # of those without, by process and thread
        self._on_device: dict[bytes, bool] = {}  # whether a process is one, by its name
        self._thread_names: dict[_Key, str] = {}
        self._kernels: dict[str | None, str] = {}  # what kernels are, by their names
        self._operations = Operations()
        self._n_marks = 0
        self._n_seen = 0
        self.marks: set[Mark] = set()
        self.launches = Launches()
        self.processes: dict[bytes, str] = {}

    def add(self, events: Iterable[TraceEvent]) -> None:
        """Add events in any order."""
        for event in events:
            self._n_seen += 1
            if event.ph == "X":
                if event.cat is None:
                    self._add_plain(event)
                else:
                    self._add_categorised(event, event.cat)
            elif event.ph == "M":
                self._add_name(event)
            elif event.cat in _ACTIVITY and event.ph in {"B", "E"}:
                self.complaints.add("half an event of a device, left out", self._n_seen, f"ph {event.ph}")

    def _add_categorised(self, event: TraceEvent, category: str) -> None:
        kind = _ACTIVITY.get(category)
        if kind is not None:
            if kind == "compute":
                kind = self._kernels.get(event.name) or self._kernel(event.name)
            elif event.name and event.name.startswith(_FROM_ANOTHER):
                kind = "comm"
            lane = self._lanes.get(pid := bytes(event.pid))
            self._fill(event, self._device(pid) if lane is None else lane, kind)
        elif category.endswith(_LAUNCHING):
            if (start := to_ns(event.ts)) is not None:
                self.launches.add(event, start)
        elif event.name and event.name.startswith("ProfilerStep") and (found := _STEP.match(event.name)):
            if category.startswith("gpu"):
                lane = self._device(bytes(event.pid))
                self._mark(event, int(found[1]), None if lane is None else lane.marks)
            else:
                self._mark(event, int(found[1]), self.marks)

    def _add_plain(self, event: TraceEvent) -> None:
        pid, name = bytes(event.pid), event.name or ""
        on_device = self._on_device.get(pid)
        if on_device is not False:
            lane = self._thread((pid, bytes(event.tid)))
            if name.isdigit() and lane is not None:
                self._mark(event, int(name[:18]), lane.marks)
            else:
                self._fill(event, lane, self._operations.of(name, event.args))
        if not on_device:
            args = bytes(event.args)
            found = _STEP_NUMBER.search(args) or (_STEP_BYTES.match(name.encode()) if name else None)
            if found:
                self._mark(event, int(found[1]), self.marks)
            elif on_device is False and _CORRELATED in args and (start := to_ns(event.ts)) is not None:
                self.launches.add(event, start)

    def _kernel(self, name: str | None) -> str:
        kind = of_kernel(name or "")
        if len(self._kernels) < MAX_KNOWN:
            self._kernels[name] = kind
        return kind

    def _device(self, pid: bytes) -> Lane | None:
        """Return the lane of a device, a new one where there is room for it."""
        if pid not in self._lanes and len(self._lanes) < MAX_DEVICES and len(pid) < _MAX_KEY:
            self._lanes[pid] = Lane()
        return self._lanes.get(pid)

    def _thread(self, key: _Key) -> Lane | None:
        """Return the lane of a thread, a new one where there is room for it."""
        if key not in self._threads and len(self._threads) < MAX_LANES and len(key[0]) + len(key[1]) < _MAX_KEY:
            self._threads[key] = Lane(tied="/device:TPU" not in self.processes.get(key[0], ""))
        return self._threads.get(key)

    def _fill(self, event: TraceEvent, lane: Lane | None, kind: str) -> None:
        start, length = to_ns(event.ts), to_ns(event.dur)
        if lane is None:
            self.complaints.add("beyond the devices and threads that are told apart, left out", self._n_seen)
        elif start is None or length is None or length < 0 or (start == 0 == length):
            # CUPTI writes zeros for what it has no time of.
            reason = f"ts {_show(event.ts)}, dur {_show(event.dur)}"
            self.complaints.add("without a time, left out", self._n_seen, reason)
        elif kind == "compute":
            lane.compute.add(start, start + length)
            if lane.tied:
                lane.kernels.add(event, start)
        elif kind:
            (lane.comm if kind == "comm" else lane.copies).add(start, start + length)

    def _mark(self, event: TraceEvent, number: int, marks: set[Mark] | None) -> None:
        start, length = to_ns(event.ts), to_ns(event.dur)
        if start is None or length is None or length < 0:
            self.complaints.add("a step without a time, left out", self._n_seen)
        elif marks is None or self._n_marks >= MAX_MARKS:
            self.complaints.add("beyond the steps that are read, left out", self._n_seen)
        else:
            n_before = len(marks)
            marks.add(Mark(start, start + length, number))
            self._n_marks += len(marks) - n_before

    def _add_name(self, event: TraceEvent) -> None:
        if event.name not in {"process_name", "thread_name"}:
            return
        try:
            name = _named.decode(event.args).name
        except (msgspec.DecodeError, RecursionError):
            return
        if event.name == "process_name":
            if len(self.processes) < MAX_LANES:
                called = self.processes.setdefault(pid := bytes(event.pid), name[:_MAX_KEY])
                self._on_device[pid] = _DEVICE.search(called) is not None
        elif len(self._thread_names) < MAX_LANES:
            self._thread_names.setdefault((bytes(event.pid), bytes(event.tid)), name[:_MAX_KEY])

    @property
    def graphs(self) -> bool:
        """Return whether graphs of kernels are there as one event each."""
        return self._operations.graphs

    def devices(self) -> list[Device]:
        """Return the devices that did anything, in the order of their numbers."""
        found = [
            Device(pid.decode(errors="replace").strip('"'), (lane,), frozenset(lane.marks))
            for pid, lane in self._lanes.items()
            if _did(lane)
        ]
        by_device: dict[str, dict[_Key, Lane]] = {}
        launched = []
        for key, lane in self._threads.items():
            if device := _DEVICE.search(self.processes.get(key[0], "")):
                by_device.setdefault(device[1], {})[key] = lane
            else:  # what its process is called came later
                launched.append(lane.kernels)
        self.launches = Launches.of(self.launches, *launched)
        for name, threads in by_device.items():
            lanes = self._of_device(threads)
            if any(map(_did, lanes)):
                marks = [lane.marks for key, lane in threads.items() if self._line(key) in {"steps", ""}]
                found.append(Device(name, lanes, frozenset().union(*marks)))
        return sorted(found, key=lambda device: _number(device.name))

    def _line(self, key: _Key) -> str:
        return self._thread_names.get(key, "").casefold()

    def _of_device(self, threads: Mapping[_Key, Lane]) -> tuple[Lane, ...]:
        """Return the threads that hold what the device did, and not what was derived from it."""
        named = {key: self._line(key) for key in threads}
        for belongs in (_is_stream, _is_ops):
            chosen = tuple(
                _moving(lane) if named[key].startswith("async") else lane
                for key, lane in threads.items()
                if belongs(named[key])
            )
            if any(map(_did, chosen)):
                return chosen
        return tuple(lane for key, lane in threads.items() if not _DERIVED.match(named[key]))


def _is_stream(thread: str) -> bool:
    return thread.startswith("stream")


def _is_ops(thread: str) -> bool:
    return thread in {"xla ops", "async xla ops"}


def _moving(lane: Lane) -> Lane:
    """Return what a thread of XLA's asynchronous operations did: what there is no communication moves data."""
    return replace(lane, compute=Intervals(), copies=Intervals.of(lane.copies, lane.compute))


def _did(lane: Lane) -> bool:
    return any(len(part.union().start) for part in (lane.compute, lane.comm, lane.copies))


def _number(name: str) -> tuple[int, str]:
    """Return what puts devices in order."""
    digits = re.search(r"\d{1,18}$", name)
    return (int(digits[0]) if digits else 0, name)


def _show(raw: msgspec.Raw) -> str:
    return bytes(raw)[:20].decode(errors="replace") or "missing"


def to_ns(raw: msgspec.Raw | bytes) -> int | None:
    """Return microseconds as they are written, in whole nanoseconds; None where it is no time.

    A float would lose the nanoseconds of a time since the Unix epoch.

    Args:
        raw: A JSON number, or a string with one.

    Example:
        >>> to_ns(b"1682725898236567.123"), to_ns(b'"12.5"'), to_ns(b"NaN"), to_ns(b"1e400")
        (1682725898236567123, 12500, None, None)
        >>> [to_ns(written) for written in (b"5", b"12", b"1234", b"-0.5", b"1.25", b"7.125", b"1e-3", b"0.0006", b"")]
        [5000, 12000, 1234000, -500, 1250, 7125, 1, 1, None]
    """
    text = bytes(raw)
    dot = text.find(b".")
    scale = 1000 if dot < 0 else _SCALE.get(len(text) - dot - 1, 0)
    try:
        if scale and len(text) < 18:
            ns = int(text.replace(b".", b"", 1)) * scale
            return ns if -MAX_NS <= ns <= MAX_NS else None
    except ValueError:
        pass
    return _exactly(text) if len(text) <= _MAX_DIGITS else None


def _exactly(text: bytes) -> int | None:
    try:
        value = Decimal(text.decode().strip('" ')) * 1000
    except (InvalidOperation, UnicodeDecodeError):
        return None
    return round(value) if value.is_finite() and abs(value) <= MAX_NS else None
