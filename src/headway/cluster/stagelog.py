"""A worker's Headway log: a stage is a rank, a forward is a step, and what it waits for the others a bubble.

It is the log that `headway.start` writes, so that `headway report` reads it: an attempt a
generation of the group, ``checkpoint_restore`` for the load, ``custom:idle`` between drives.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Final

from headway.clock import SYSTEM
from headway.cluster.control.message import LogPlace
from headway.events import Begin, End, Restored, Saved, span_category
from headway.record.logfolder import open_log
from headway.record.process import is_first_log

if TYPE_CHECKING:
    from headway.record.logfolder import LogFolder

PHASES: Final = ("bubble",)


class StageLog:
    """The log of one stage; nothing is written before `open`, and nothing where that was given no place."""

    def __init__(self) -> None:
        self._log: LogFolder | None = None
        self._place: LogPlace | None = None
        self._ids = count(1)
        self._idle: int | None = None
        self._since_ns: int | None = None
        is_first_log()  # a standby's process is older than its stage, and that time is not the run's

    def open(self, place: LogPlace | None) -> None:
        """Go on in that attempt: the open one, or a new one."""
        if place == self._place:
            return
        self.close("failed")
        self._place = place
        if place is None:
            return
        self._log = open_log(place.run, place.root, place.attempt, place.rank, place.world, phases=PHASES, rows="block")
        self._log.open_since = lambda: self._since_ns
        self._log.watch(self)
        now = SYSTEM.monotonic_ns()
        if place.restored is not None:
            self._log.write(Restored(step=place.restored, at=now))
        # what was delivered before: of a first drive that fails nothing was
        self._log.write(Saved(step=-1 if place.restored is None else place.restored, at=now))

    @property
    def path(self) -> str:
        """The open log's folder; empty where there is none."""
        return "" if self._log is None else self._log.path

    @property
    def fault(self) -> str:
        """Why what was to be written is not, or not all of it; empty where it is."""
        if self._log is None:
            return ""
        return "; ".join(f"{what}: {error}" if error else what for what, error in self._log.faults.errors.items())

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Book the time of a with-statement under that name."""
        number, ok = self._begin(name), False
        try:
            yield
            ok = True
        finally:
            self._end(number, ok=ok)

    def begin(self, at_ns: int) -> None:
        """A forward begins: what is cut off from here is an unfinished step."""
        self._since_ns = at_ns

    def idle(self) -> None:
        """Nothing to do from now on, until `busy`."""
        self._since_ns = None
        if self._idle is None:
            self._idle = self._begin("idle")

    def busy(self) -> None:
        """There is something to do again."""
        if self._idle is not None:
            self._end(self._idle)
            self._idle = None

    def step(self, number: int, start_ns: int, end_ns: int, bubble_ns: int) -> None:
        """Write a forward: its number, its monotonic times, and how much of it was waiting [ns]."""
        if self._log is not None and self._log.steps is not None:
            rows = self._log.steps
            rows.append(struct.pack("<5q", number, start_ns, end_ns, bubble_ns, rows.n_rows + 1))

    def saved(self, step: int) -> None:
        """Say that what was computed through that step has been delivered."""
        if self._log is not None:
            self._log.write(Saved(step=step, at=SYSTEM.monotonic_ns()))

    def close(self, reason: str) -> None:
        """End the open attempt, for one of `headway.events.CLOSE_REASONS`."""
        self.busy()
        if self._log is not None:
            self._log.close(reason)
        self._log = self._place = self._since_ns = None

    def _begin(self, name: str) -> int:
        number = next(self._ids)
        if self._log is not None:
            self._log.write(Begin(id=number, category=span_category(name), at=SYSTEM.monotonic_ns()))
        return number

    def _end(self, number: int, *, ok: bool = True) -> None:
        if self._log is not None:
            self._log.write(End(id=number, at=SYSTEM.monotonic_ns(), ok=ok))
