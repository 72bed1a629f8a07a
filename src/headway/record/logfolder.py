"""The open log of one process: its folder, its two files, and how it begins and ends.

Where the folder cannot be made, recording goes on without one: counted, and reported once.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from headway.clock import NS_PER_S, SYSTEM, Clock
from headway.events import CLOSE_REASONS, DEFAULT_PHASES, AnyEvent, ClockPair, Close, Fault, Notice, Open, Span
from headway.record import lifecycle
from headway.record.eventlog import EventLog
from headway.record.faults import Faults, failed
from headway.record.identity import Identity, identify, log_root, moment_name, safe_name, show, whole_number
from headway.record.process import is_first_log, process_age_ns, tell_launcher
from headway.record.steplog import StepLog

_Owner = TypeVar("_Owner")
EVENTS_FILE: Final = "events.jsonl"
STEPS_FILE: Final = "steps.npy"
UNFINISHED: Final = "custom:unfinished_step"
"""The span of a step that is open when the log ends: from its start to there."""
_SAME_NAMES: Final = 1000  # attempts of one name before the time is put behind it
_PAIR_EVERY_NS: Final = 60 * NS_PER_S
_FAULTS_EVERY_NS: Final = 10 * NS_PER_S


class LogFolder:
    """The log that this process writes; `open_log` makes it.

    Attributes:
        identity: Who writes; its attempt is the one whose folder it is.
        path: The folder; empty where none could be made.
        phases: The names of a row's phases.
        steps: The rows; ``None`` where there is no folder.
        signalled: Whether SIGTERM came, to a program that goes on.
        ending: Whether its end has begun.
        closed: Whether the log has ended.
        on_end: Called before the log ends or is left to a forked child's parent. It holds its
            recorder weakly, as `open_since` does: one that nobody uses any more can go; see `weakly`.
        open_since: Returns when the open step began [ns], or None; asked when the log ends.
    """

    def __init__(self, identity: Identity, path: str, phases: tuple[str, ...], faults: Faults, clock: Clock) -> None:
        self.identity = identity
        self.path = path
        self.phases = phases
        self.faults = faults
        self.clock = clock
        self.events = EventLog(os.path.join(path, EVENTS_FILE), faults) if path else None  # noqa: PTH118
        self.steps = StepLog(os.path.join(path, STEPS_FILE), phases, faults) if path else None  # noqa: PTH118
        self.signalled = False
        self.ending = self.closed = False
        self.on_end: list[Callable[[], None]] = []
        self.open_since: Callable[[], Any] = lambda: None
        self._preempted = False
        self._writer: weakref.ref[Any] | None = None
        self._lock = threading.RLock()
        self._pair_due = self._faults_due = 0
        self._faults_told: dict[str, int] = {}

    def write(self, event: AnyEvent) -> None:
        """Append an event, and now and then what faults there were and what both clocks say."""
        if self.events is None or self.closed:
            return
        if isinstance(event, Notice) and event.name == "preemption":
            self._preempted = True
        self.events.write(event)
        now = self.clock.monotonic_ns()
        if now >= self._faults_due:
            self._write_faults(now)
        if now >= self._pair_due:
            self._write_pair(now)

    def close(self, reason: str = "finished") -> None:
        """End the log; a second call does nothing.

        Args:
            reason: One of `headway.events.CLOSE_REASONS`; any other counts as ``failed`` and is noted.
        """
        with self._lock:
            if self.closed:
                return
            since = self.open_since()
            self._end()
            if self.events is not None:
                now = self.clock.monotonic_ns()
                if since is not None and since <= now:
                    self.events.write(Span(category=UNFINISHED, start=since, end=now, ok=False))
                self._write_faults(now)
                self._write_pair(now)
                self.events.write(Close(at=now, reason=self._true_reason(reason)))
                self.events.close()
            self.closed = True
        lifecycle.release(self)

    def watch(self, writer: object) -> None:
        """Have it closed when the process ends; called once its writer stands in `on_end`.

        Args:
            writer: Who holds the window on its rows.
        """
        self._writer = weakref.ref(writer)
        lifecycle.watch(self)

    def abandon(self) -> None:
        """Let go of the files without a trace, in a child that was forked."""
        self._lock = threading.RLock()
        self.ending = self.closed = True
        for end in self.on_end:
            end()
        if self.steps is not None:
            self.steps.abandon()
        if self.events is not None:
            self.events.abandon()

    def drop(self) -> None:
        """Let go of the files of a log that nobody can write any more; how that ended nobody said, so no line does."""
        with self._lock:
            if self.closed:
                return
            self._end(dropped=True)
            if self.events is not None:
                self._write_faults(self.clock.monotonic_ns())
                self.events.close()
            self.closed = True
        lifecycle.release(self)

    def begin(self, event: Open) -> None:
        """Write the first line."""
        if self.events is not None:
            self.events.write(event)
        self._faults_due = event.mono_ns + _FAULTS_EVERY_NS
        self._pair_due = event.mono_ns + _PAIR_EVERY_NS

    def _end(self, *, dropped: bool = False) -> None:
        self.ending = True
        for end in self.on_end:
            end()
        if self.steps is None:
            return
        if not dropped and self._writer is not None and self._writer() is None:
            self.steps.abandon()  # a signal between the collector, which takes weak references first, and `drop`
        else:
            self.steps.close()

    def _true_reason(self, reason: object) -> str:
        if not isinstance(reason, str) or reason not in CLOSE_REASONS:
            self.faults.note("argument", f"close reason {show(reason)} is none of {', '.join(CLOSE_REASONS)}")
            reason = "failed"
        if self.signalled and reason == "finished":
            reason = "signal"
        return "preempted" if reason == "signal" and self._preempted else reason

    def _write_faults(self, now: int) -> None:
        if self.events is None or self.faults.counts == self._faults_told:
            return
        self._faults_due = now + _FAULTS_EVERY_NS
        counts = dict(self.faults.counts)
        for what, count in counts.items():
            if count != self._faults_told.get(what):
                self.events.write(Fault(what=what, count=count, at=now, error=self.faults.errors.get(what, "")))
        self._faults_told = counts

    def _write_pair(self, now: int) -> None:
        if self.events is not None:
            self._pair_due = now + _PAIR_EVERY_NS
            self.events.write(ClockPair(wall_ns=self.clock.wall_ns(), mono_ns=now))


def open_log(  # noqa: PLR0917 - in the order of `headway.start`
    run: object = None,
    dir: object = None,  # noqa: A002 - the public name of this argument
    attempt: object = None,
    rank: object = None,
    world_size: object = None,
    devices: object = 1,
    accelerator: object = None,
    phases: Sequence[str] = DEFAULT_PHASES,
    rows: str = "step",
    clock: Clock | None = SYSTEM,
    faults: Faults | None = None,
) -> LogFolder:
    """Begin this process's log and return it; once it is watched, it is closed at the latest when the process ends.

    Args:
        run: The run's name.
        dir: The folder of all runs; by default ``$HEADWAY_DIR``, else ``./headway-logs``.
        attempt: The name of this launch.
        rank: Number of this process.
        world_size: How many processes the run has.
        devices: How many devices this process holds.
        accelerator: Their model.
        phases: The names of a row's phases.
        rows: What a row is; see `headway.events.ROWS`.
        clock: Where times come from; None is the system's.
        faults: Where faults are counted; by default a new count.
    """
    faults = Faults() if faults is None else faults
    phases = tuple(phases)
    clock = _usable(clock, faults)
    me = identify(run, attempt, rank, world_size, faults=faults, clock=clock)
    me, path = make_folder(log_root(dir), me, f"-r{me.rank}", faults)
    first = is_first_log()
    log = LogFolder(me, path, phases, faults, clock)
    log.begin(
        Open(
            wall_ns=clock.wall_ns(),
            mono_ns=clock.monotonic_ns(),
            run=me.run,
            attempt=me.attempt,
            rank=me.rank,
            world_size=me.world_size,
            devices=whole_number(devices, 1, "devices", faults) or 1,
            accelerator=None if accelerator is None else show(accelerator),
            host=me.host,
            pid=os.getpid(),
            phases=phases,
            rows=rows,
            age_ns=process_age_ns(clock) if first else None,
        )
    )
    tell_launcher(path, me.run, me.attempt, me.rank)
    return log


def weakly(owner: _Owner, ask: Callable[[_Owner], Any]) -> Callable[[], Any]:
    """Return a call of a function on an object that this does not keep alive; None once that is gone.

    Example:
        >>> faults = Faults()
        >>> asked = weakly(faults, lambda faults: faults.counts)
        >>> asked()
        {}
        >>> del faults
        >>> asked()
    """
    there = weakref.ref(owner)

    def call() -> Any:
        one = there()
        return None if one is None else ask(one)

    return call


def _usable(clock: Clock | None, faults: Faults) -> Clock:
    """Return the clock; the system's for None, and for what is none, which is counted."""
    if clock is None:
        return SYSTEM
    if callable(getattr(clock, "monotonic_ns", None)) and callable(getattr(clock, "wall_ns", None)):
        return clock
    faults.note("argument", f"clock is {show(clock)}, which has no monotonic_ns() and wall_ns()")
    return SYSTEM


def make_folder(root: str, me: Identity, ending: str, faults: Faults) -> tuple[Identity, str]:
    """Return who writes and its new folder, never one that is there already; empty where none can be made.

    Args:
        root: The folder of all runs.
        me: Who wants to write; another attempt comes back where that one's folder is taken.
        ending: What follows the attempt in the folder's name.
        faults: Where a failure is counted.
    """
    run_folder = os.path.join(root, safe_name(me.run))  # noqa: PTH118
    reason, elsewhere = "", "Set HEADWAY_DIR, or give dir=, to a folder that can be written"
    try:
        os.makedirs(run_folder, exist_ok=True)  # noqa: PTH103
        for attempt in _attempt_names(me.attempt):
            path = os.path.join(run_folder, safe_name(attempt) + ending)  # noqa: PTH118
            try:
                os.mkdir(path)  # noqa: PTH102
            except FileExistsError:
                continue
            return Identity(me.run, attempt, me.rank, me.world_size, me.host), path
        reason = f"every name for attempt {me.attempt!r} is taken in {run_folder}"
    except (OSError, ValueError) as error:
        reason = failed("make", run_folder, error)
    faults.note("folder", f"{reason}; nothing is recorded", next_step=elsewhere)
    return me, ""


def _attempt_names(attempt: str) -> Iterator[str]:
    """Yield the attempt's name, and what it is called where another process has taken that."""
    yield attempt
    for number in range(2, _SAME_NAMES):
        yield f"{attempt}.{number:03d}"
    yield f"{attempt}.{moment_name(SYSTEM.wall_ns(), os.getpid())}"
