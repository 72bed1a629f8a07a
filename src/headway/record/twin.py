"""The hot core in Python: it does what the compiled one does, in the same order, slower."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable
from operator import add as _add
from typing import Any, Final

from headway.record.twin_timers import PythonBatch, PythonNobody, PythonTimer

_LONGEST_NS: Final = 10**17
_LONGEST_S: Final = 1e8
_WORD: Final = (1 << 64) - 1
_pack_seq: Final = struct.Struct("<q").pack_into


class PythonCore:
    """The twin in Python of ``_hot.Core``; what its arguments are, `_hot.pyi` says."""

    __slots__ = (
        "_batch",
        "_busy",
        "_count",
        "_current",
        "_faults",
        "_last",
        "_lists",
        "_lock",
        "_n_phases",
        "_n_rows",
        "_nobody",
        "_offset",
        "_open_step",
        "_outer",
        "_overcount_ns",
        "_owner",
        "_pack_into",
        "_read",
        "_row_bytes",
        "_source",
        "_standard",
        "_start",
        "_steps",
        "_timers",
        "_told_overcount",
        "_totals",
        "_transfer",
        "_transform",
        "_wait",
        "_waiting_timer",
        "_wall_end_ns",
        "_wall_start_ns",
        "_window",
        "_zeros",
        "last_end_ns",
        "next_step",
        "on_first_batch",
    )
    _owner: int | None
    _current: list[int]
    _totals: list[int]
    _count: int
    _wall_start_ns: int
    _wall_end_ns: int
    _overcount_ns: int
    _told_overcount: bool

    def __init__(  # noqa: PLR0917 - the compiled one's
        self,
        phases: tuple[str, ...],
        faults: Any,
        clock: Callable[[], int] | None,
        steps: Any,
        lists: tuple[list[float], ...] | None,
        wait: Callable[[Any], None],
        waiting_timer: Callable[..., Any],
    ) -> None:
        self._n_phases = len(phases)
        self._faults, self._steps, self._lists = faults, steps, lists
        self._wait, self._waiting_timer = wait, waiting_timer
        self._read = time.monotonic_ns if clock is None else self._guarded(clock)
        self._timers = {name: PythonTimer(self, place) for place, name in enumerate(phases)}
        self._nobody = PythonNobody(self, -1)
        self._standard = {"source", "transform", "transfer"} <= self._timers.keys()
        self._source, self._transform, self._transfer = (
            self._timers.get(name, self._nobody) for name in ("source", "transform", "transfer")
        )
        self._batch = PythonBatch(self)
        self._pack_into = struct.Struct(f"<{3 + len(phases)}q").pack_into
        self._row_bytes = 8 * (4 + len(phases))
        self._zeros = [0] * (len(phases) + 1)
        self._owner = None
        self._outer: list[int] = []
        self._current = self._zeros[:]
        self._last = self._start = self._open_step = 0
        self._window: memoryview | None = None
        self._busy = False
        self._lock = threading.RLock()  # re-entrant: a signal's handler may end a batch
        self._offset = self._n_rows = self.next_step = self.last_end_ns = 0
        self.on_first_batch: Callable[[], object] | None = None
        self._clear_totals()
        self._refill()

    def _guarded(self, clock: Callable[[], int]) -> Callable[[], int]:
        def read() -> int:
            try:
                return _as_int64(clock())
            except Exception as error:  # noqa: BLE001 - never into training
                self._faults.note("clock", error)
                return self._last

        return read

    # --- batches -----------------------------------------------------------------------------

    def start_batch(self) -> None:
        """Begin a batch."""
        if self.on_first_batch is not None:
            self._call_hook()
        self._begin(self.next_step)

    def begin_step(self, step: int, /) -> None:
        """Begin the batch of that number, as `start_batch` does with the next one."""
        try:
            step = _as_int64(step)
        except (AttributeError, TypeError, OverflowError) as error:
            self._faults.note("bad-step", error)
            step = self.next_step
        self._begin(step)

    def _begin(self, step: int) -> None:
        if self._owner is not None:
            self._faults.note("batch-abandoned", "a batch began while one was open")
        self._current = self._zeros[:]
        self._outer.clear()
        self._open_step = step
        self._start = self._last = self._read()
        self._owner = self._n_phases

    def end_batch(self) -> None:
        """End the batch and keep its times."""
        read = self._read
        now = read()
        with self._lock:  # two threads that end one batch write one row
            owner = self._owner
            if owner is None:
                self._faults.note("batch-not-started", "a batch ended that had not begun")
                return
            self._owner = None
            current, start = self._current, self._start
            current[owner] += now - self._last
            phases = current[:-1]
            if self._count == 0:
                self._wall_start_ns = start
            self._count += 1
            self._last = self._wall_end_ns = self.last_end_ns = now
            self.next_step = self._open_step + 1
            self._totals = list(map(_add, self._totals, phases))
            wall = now - start
            if (recorded := sum(phases)) > wall:
                self._add_overcount(recorded - wall)
            if (window := self._window) is not None:
                self._store(window, (self._open_step, start, now, *phases))
            else:
                self._keep_elsewhere((self._open_step, start, now, *phases))

    def end_step(self) -> None:
        """End the batch that `begin_step` began."""
        self.end_batch()

    def cancel_step(self) -> None:
        """Forget the open batch, if there is one: no row, and nothing in the totals."""
        self._owner = None

    def batch(self) -> PythonBatch:
        """Return a with-statement's start_batch() and end_batch()."""
        return self._batch

    def _call_hook(self) -> None:
        hook, self.on_first_batch = self.on_first_batch, None
        try:
            if hook is not None:
                hook()
        except Exception as error:  # noqa: BLE001 - never into training
            self._faults.note("first-batch", error)

    def _add_overcount(self, excess: int) -> None:
        self._overcount_ns += excess
        if not self._told_overcount:
            self._told_overcount = True
            self._faults.tell(
                "overcounted",
                "a batch has more recorded time than wall time; the excess is kept and shown as overcounted_sec",
            )

    # --- rows --------------------------------------------------------------------------------

    def _keep_elsewhere(self, row: tuple[int, ...]) -> None:
        if self._lists is not None:
            _, start, end, *phases = row
            for seconds, ns in zip(self._lists, (*phases, end - start), strict=True):
                seconds.append(ns / 1e9)
        elif self._steps is not None:
            self._append(self._steps, row)

    def _store(self, window: memoryview, row: tuple[int, ...]) -> None:
        at = self._offset
        try:
            self._pack_into(window, at, *row)
        except struct.error:  # a clock of the user's own that left 64 bits
            self._pack_into(window, at, *map(_wrap, row))
        self._n_rows = seq = self._n_rows + 1
        self._offset = end = at + self._row_bytes
        _pack_seq(window, end - 8, seq)
        if end == len(window):
            self._refill()

    def _append(self, steps: Any, row: tuple[int, ...]) -> None:
        if self._busy:
            self._faults.note("rows", "a batch ended while the log was being extended")
            return
        data = struct.pack(f"<{4 + self._n_phases}q", *map(_wrap, row), self._n_rows + 1)
        self._busy = True
        try:
            if steps.append(data) is True:
                self._n_rows += 1
        except Exception as error:  # noqa: BLE001 - never into training
            self._faults.note("rows", error)
            return
        finally:
            self._busy = False
        self._refill()

    def _refill(self) -> None:
        self._release_window()
        steps = self._steps
        if steps is None or self._busy:
            return
        self._busy = True
        try:
            window = steps.refill(self._n_rows)
            if window is not None and self._steps is steps:
                self._take(window)
        except Exception as error:  # noqa: BLE001 - never into training
            self._faults.note("rows", error)
        finally:
            self._busy = False

    def _take(self, window: memoryview) -> None:
        window = memoryview(window)
        if window.readonly or window.nbytes < self._row_bytes or window.nbytes % self._row_bytes:
            self._faults.note("rows", "the window given does not hold whole rows")
            return
        self._window, self._offset = window, 0

    def _release_window(self) -> None:
        if self._window is not None:
            self._window.release()
            self._window = None

    # --- timers and durations ----------------------------------------------------------------

    def time_source(self, wait_for: Any = None) -> Any:
        """Time the loading of data."""
        return self._source if wait_for is None and self._standard else self.time("source", wait_for)

    def time_transform(self, wait_for: Any = None) -> Any:
        """Time the work on data."""
        return self._transform if wait_for is None and self._standard else self.time("transform", wait_for)

    def time_transfer(self, wait_for: Any = None) -> Any:
        """Time the transfer to the device; give `wait_for` what it must wait for."""
        return self._transfer if wait_for is None and self._standard else self.time("transfer", wait_for)

    def time(self, phase: str, /, wait_for: Any = None) -> Any:
        """Time a phase by its name."""
        timer = self._named(phase)
        return timer if wait_for is None else self._waiting_timer(timer, wait_for, self._wait)

    def record_source(self, duration_sec: float) -> None:
        """Add to the source time [s]."""
        self.record("source", duration_sec)

    def record_transform(self, duration_sec: float) -> None:
        """Add to the transform time [s]."""
        self.record("transform", duration_sec)

    def record_transfer(self, duration_sec: float) -> None:
        """Add to the transfer time [s]."""
        self.record("transfer", duration_sec)

    def record(self, phase: str, /, duration_sec: float) -> None:
        """Add to a phase by its name [s]."""
        place = self._named(phase)._phase  # noqa: SLF001 - its own timer
        if place < 0:
            return
        note = self._faults.note
        try:
            seconds = _as_float(duration_sec)
        except Exception as error:  # noqa: BLE001 - never into training
            note("bad-duration", error)
            return
        if self._owner is None:
            note("record-outside-batch", "a duration was recorded while no batch was open")
        elif seconds < 0:
            note("negative-duration", "a duration below zero was recorded")
        elif not seconds <= _LONGEST_S:
            note("bad-duration", "a duration is not a number, or over 3 years")
        elif (ns := round(seconds * 1e9)) > _LONGEST_NS - self._current[place] - self._totals[place]:
            note("bad-duration", "the durations of a phase add up to over 3 years")
        else:
            self._current[place] += ns

    def _named(self, phase: str) -> PythonTimer:
        try:
            return self._timers[phase]
        except (KeyError, TypeError):  # TypeError: what has no hash is no phase
            self._faults.note("unknown-phase", phase)
            return self._nobody

    # --- the tracker's own side --------------------------------------------------------------

    def detach(self) -> None:
        """Let go of the log; from now on only the totals are kept."""
        self._release_window()
        self._steps = None

    def _clear_totals(self) -> None:
        """Begin the totals anew; an open batch goes on."""
        self._count = self._wall_start_ns = self._wall_end_ns = self._overcount_ns = 0
        self._told_overcount = False
        self._totals = [0] * self._n_phases

    @property
    def _open_since_ns(self) -> int | None:
        return None if self._owner is None else self._start

    @property
    def _totals_ns(self) -> tuple[int, ...]:
        return tuple(self._totals)


def _wrap(ns: int) -> int:
    """Return the number as 64 bits hold it."""
    return ((ns + (1 << 63)) & _WORD) - (1 << 63)


def _as_int64(value: int) -> int:
    number = value.__index__()
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError("int too big to convert")
    return number


def _as_float(value: Any) -> float:
    """Return the number; unlike ``float()``, take no text and no buffer for one."""
    if not (hasattr(type(value), "__float__") or hasattr(type(value), "__index__")):
        raise TypeError(f"must be real number, not {type(value).__name__}")
    return float(value)
