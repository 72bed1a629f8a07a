"""`GoodputTracker`: where the time of each input batch went, in memory or on a log."""

from __future__ import annotations

import functools
import math
import operator
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self

from headway.clock import NS_PER_S, SYSTEM, Clock
from headway.errors import ArgumentError
from headway.events import DEFAULT_PHASES
from headway.record.faults import Faults
from headway.record.hot import Core
from headway.record.metrics import GoodputMetrics
from headway.record.waiting import WaitingTimer, wait_for

if TYPE_CHECKING:
    from headway.ledger.distribution import BatchTimes, Spread, Table
    from headway.record.logfolder import LogFolder
    from headway.record.steplog import StepLog

_RESERVED: Final = frozenset({"step", "start_ns", "end_ns", "seq", "batch"})
_MAX_PHASES: Final = 64
_MAX_NAMES: Final = 2000


class GoodputTracker(Core):
    """Times the phases of each input batch; one batch at a time, one producer.

    An exception in a timed block still books its time. Nested timers book an instant once, to the
    innermost. Wrong use (a batch that ended and never began, a negative duration) is counted in
    `faults`, reported once, and never raised.

    The methods of the hot path are those of the core: `start_batch`, `end_batch`, `batch()`,
    `time_source|transform|transfer(wait_for=None)`, `time(phase)`, `record_source|transform|
    transfer(duration_sec)`, `record(phase, duration_sec)`. For a recorder there are `begin_step(n)`
    and `end_step()` (a batch with a given number), `next_step` (the number of the next batch, may
    be set), `last_end_ns`, `on_first_batch` (called once, before the first `start_batch` or
    `batch()`) and `detach()` (let go of the log: after a fork, say).

    Args:
        log: The folder of a run, to keep every batch on disk with flat memory; else they are kept
            in memory.
        phases: The names of the phases.
        clock: Where times come from; by default the monotonic clock of this machine.
        flush_every: On a log: flush to the disk after so many batches, so that they survive the
            host and not only the process.
        flush_s: On a log: flush with the first batch that ends so long after the last flush [s].

    Raises:
        ArgumentError: The names of the phases cannot be used, or a flush is asked for that often.

    Example:
        >>> from headway.clock import ManualClock
        >>> clock = ManualClock()
        >>> tracker = GoodputTracker(clock=clock)
        >>> for stall in (0.0, 19.0):
        ...     with tracker.batch():
        ...         with tracker.time_source():
        ...             clock.advance(0.25 + stall)
        ...         clock.advance(0.25)
        >>> tracker.per_batch_source
        [0.25, 19.25]
        >>> tracker.summary().overhead_sec
        0.5
        >>> tracker.worst(1)
        [BatchTimes(batch=1, wall_sec=19.5, phases={'source': 19.25, 'transform': 0.0, 'transfer': 0.0})]
    """

    __slots__ = ("__weakref__", "_first_row", "_folder", "_in_memory", "_kept", "_rows", "faults", "phases")

    def __init__(
        self,
        log: str | os.PathLike[str] | None = None,
        *,
        phases: Sequence[str] = DEFAULT_PHASES,
        clock: Clock | None = None,
        flush_every: int | None = None,
        flush_s: float | None = None,
        _steps: StepLog | None = None,
        _faults: Faults | None = None,
        _kept: LogFolder | None = None,
    ) -> None:
        self._kept = _kept  # the log that goes when this goes
        self.phases = check_phases(phases)
        check_flush(flush_every, flush_s)
        self.faults = Faults() if _faults is None else _faults
        self._folder: LogFolder | None = None if log is None else self._open_log(log, clock)
        self._rows = _steps if self._folder is None else self._folder.steps
        self._in_memory: tuple[list[float], ...] | None = None
        if log is None and _steps is None:
            self._in_memory = tuple([] for _ in (*self.phases, "batch"))
        self._first_row = 0
        if self._rows is not None and (flush_every is not None or flush_s is not None):
            self._rows.flush_after(flush_every, flush_s)
        super().__init__(
            self.phases,
            self.faults,
            None if clock is None else clock.monotonic_ns,
            self._rows,
            self._in_memory,
            functools.partial(wait_for, faults=self.faults),
            WaitingTimer,
        )
        if self._folder is not None:
            from headway.record.logfolder import weakly

            self._kept = self._folder
            self._folder.on_end.append(weakly(self, Core.detach))
            self._folder.open_since = weakly(self, lambda tracker: tracker._open_since_ns)  # noqa: SLF001 - its own
            self._folder.watch(self)

    def _open_log(self, folder: str | os.PathLike[str], clock: Clock | None) -> LogFolder:
        from headway.record.logfolder import open_log

        root, run = os.path.split(os.path.abspath(folder))  # noqa: PTH100 - as it is written, links and all
        return open_log(run, root, phases=self.phases, rows="batch", clock=clock or SYSTEM, faults=self.faults)

    # --- the end of a log --------------------------------------------------------------------

    def __del__(self) -> None:
        """Let go of a log that was never closed: nobody can record into it any more."""
        log = getattr(self, "_kept", None)
        if log is not None and not log.closed:
            self.detach()  # a row that comes yet finds no window on the file, which is cut now
            log.drop()

    def close(self, reason: str = "finished") -> None:
        """End the log; in memory there is nothing to end. The summary and the batches stay readable.

        Args:
            reason: One of `headway.events.CLOSE_REASONS`.
        """
        if self._folder is not None:
            self._folder.close(reason)

    def __enter__(self) -> Self:
        """Return itself; the with-statement closes the log."""
        return self

    def __exit__(self, error_type: object, error: BaseException | None, trace: object) -> None:
        """Close the log with the reason that the exception says."""
        if self._folder is not None:
            from headway.record.lifecycle import reason_of

            self._folder.close(reason_of(error))

    # --- what was recorded -------------------------------------------------------------------

    def summary(self) -> GoodputMetrics:
        """Return the sums over all batches since the last `reset`; zeros when there are none."""
        seconds = (ns / NS_PER_S for ns in self._totals_ns)
        return GoodputMetrics.of(
            self._count,
            (self._wall_end_ns - self._wall_start_ns) / NS_PER_S,
            dict(zip(self.phases, seconds, strict=True)),
            self.overcounted_sec,
        )

    def reset(self) -> None:
        """Begin anew. On a log its rows stay in the file; what this tracker says of itself starts over."""
        self._clear_totals()
        self._first_row = self._n_rows
        if self._in_memory is not None:
            self.next_step = 0
            for seconds in self._in_memory:
                seconds.clear()

    @property
    def overcounted_sec(self) -> float:
        """Recorded time beyond each batch's own wall time, summed over the batches [s]."""
        return self._overcount_ns / NS_PER_S

    @property
    def per_batch_source(self) -> list[float]:
        """Loading, by batch [s]."""
        return self.per_batch("source")

    @property
    def per_batch_transform(self) -> list[float]:
        """Work on the data, by batch [s]."""
        return self.per_batch("transform")

    @property
    def per_batch_transfer(self) -> list[float]:
        """To the device, by batch [s]."""
        return self.per_batch("transfer")

    @property
    def per_batch_wall(self) -> list[float]:
        """The length of each batch [s]."""
        return self._column(len(self.phases))

    def per_batch(self, phase: str) -> list[float]:
        """Return a phase's time by batch [s]; on a log it is read from the file. Empty for an unknown phase.

        Args:
            phase: Its name.
        """
        return self._column(self.phases.index(phase)) if phase in self.phases else []

    def distribution(self) -> dict[str, Spread]:
        """Return p50, p95 and maximum of every phase, and as ``batch`` of the wall time [s].

        Example:
            >>> from headway.clock import ManualClock
            >>> clock = ManualClock()
            >>> tracker = GoodputTracker(clock=clock)
            >>> for n in range(1000):
            ...     with tracker.batch(), tracker.time_source():
            ...         clock.advance(19 if n == 700 else 0.010)
            >>> tracker.distribution()["source"]
            Spread(p50=0.01, p95=0.01, max=19.0)
        """
        return self._table().spreads()

    def worst(self, n: int = 5) -> list[BatchTimes]:
        """Return the `n` longest batches by number, the longest first, with their phases."""
        return self._table().worst(n)

    def _view(self) -> memoryview:
        if self._rows is None:
            return memoryview(b"").cast("q")
        return self._rows.view(self._first_row, self._n_rows)

    def _column(self, place: int) -> list[float]:
        if self._in_memory is not None:
            return self._in_memory[place]
        rows, width = self._view(), len(self.phases) + 4
        if place < len(self.phases):
            return [ns / NS_PER_S for ns in rows[3 + place :: width]]
        return [(end - start) / NS_PER_S for start, end in zip(rows[1::width], rows[2::width], strict=True)]

    def _table(self) -> Table:
        from headway.ledger.distribution import Table

        if self._in_memory is not None:
            return Table.of_lists(self.phases, self._in_memory)
        return Table.of_rows(self.phases, self._view())


def check_flush(every: object, seconds: object) -> None:
    """Check how often rows are to be flushed.

    Raises:
        ArgumentError: It is no whole number of rows from 1 on, or no number of seconds from 0 on.

    Example:
        >>> check_flush(100, 0.5), check_flush(None, None)
        (None, None)
    """
    try:
        rows = 1 if every is None else operator.index(every)  # type: ignore[arg-type]
        waited = 0.0 if seconds is None or isinstance(seconds, str) else float(seconds)  # type: ignore[arg-type]
        good = rows >= 1 and 0 <= waited < math.inf and not isinstance(seconds, str)
    except (TypeError, ValueError, OverflowError):
        good = False
    if not good:
        raise ArgumentError(
            f"Cannot flush every {every!r} batches or {seconds!r} s: flush_every is a whole number of at least 1, "
            "flush_s a number of at least 0",
            "Leave out what is not needed",
            "bad-flush",
            flush_every=every,
            flush_s=seconds,
        )


def check_phases(phases: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the phases.

    Raises:
        ArgumentError: A name is no ASCII identifier, reserved, there twice, or there are too many.

    Example:
        >>> check_phases(["tokenize", "pack"])
        ('tokenize', 'pack')
    """
    names: tuple[object, ...] = tuple(phases)
    wrong = [name for name in names if not (isinstance(name, str) and name.isascii() and name.isidentifier())]
    wrong += [name for name in names if name in _RESERVED]
    if isinstance(phases, str):
        found = f"{phases!r} is one text and no list of names"
    elif wrong:
        found = f"{wrong[0]!r} is no ASCII identifier, or is a field of every row"
    elif len(set(names)) < len(names):
        found = f"a name is there twice in {names!r}"
    elif len(names) > _MAX_PHASES or len("".join(phases)) > _MAX_NAMES:
        found = f"{len(names)} names; the limit is {_MAX_PHASES}, and {_MAX_NAMES} letters in all"
    else:
        return tuple(phases)
    raise ArgumentError(
        f"Cannot record the phases: {found}", "Give names such as source, tokenize, pack", "bad-phases", phases=names
    )
