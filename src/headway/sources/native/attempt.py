"""One attempt's folder of one rank: its two files, read as they grow, made a process."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import msgspec

from headway.events import ClockPair, Exit, Open
from headway.ledger.history import Process
from headway.sources.columns import Columns
from headway.sources.native import jsonl, npy
from headway.sources.native.tidy import tidy_open
from headway.sources.text import clean

_NAME: Final = re.compile(r"(?P<attempt>.+)-r(?P<rank>\d{1,9})", re.DOTALL)
LAUNCH: Final = "-launch"


def holds_log(path: Path) -> bool:
    """Return whether a folder holds a log's file, whatever is in it."""
    return any(os.path.lexists(path / name) for name in (jsonl.NAME, npy.NAME))


def named_as_attempt(path: Path) -> bool:
    """Return whether a folder has the name of an attempt's.

    Example:
        >>> [named_as_attempt(Path(name)) for name in ("a0-r3", "a0-launch", "digits")]
        [True, True, False]
    """
    return path.name.endswith(LAUNCH) or _NAME.fullmatch(path.name) is not None


class Attempt:
    """The log of one process.

    Args:
        path: Its folder.
        events: The name of its events' file.
        steps: The name of its rows' file; None where only events are read.
        given: The name of the file that the reader gave, which may be a link; empty where it was the folder.

    Attributes:
        path: Its folder.
        source: What it is read from: its folder, or its only file.
        name: What it is called in messages.
        is_launch: Whether a launcher wrote it.
    """

    def __init__(self, path: Path, events: str = jsonl.NAME, steps: str | None = npy.NAME, given: str = "") -> None:
        self.path = path
        self.source = path if steps else path / events
        self.name = clean(path.name)
        self.is_launch = path.name.endswith(LAUNCH)
        self._columns = Columns()
        label = f"{self.name}/" if steps else ""
        self._events = jsonl.EventFile(path / events, label + clean(events), self._columns, follow=given == events)
        self._steps = npy.StepFile(path / steps, label + steps, self._columns, follow=given == steps) if steps else None

    @property
    def run_name(self) -> str:
        """The run it names; empty where it names none."""
        return next((clean(opened.run) for opened in self._events.opens if opened.run), "")

    @property
    def bytes_read(self) -> int:
        """Everything that was read of its files [bytes]."""
        return self._events.bytes_read + (self._steps.bytes_read if self._steps else 0)

    @property
    def rows_read(self) -> int:
        """Rows that are kept."""
        return len(self._columns)

    def poll(self, *, through: bool = False) -> None:
        """Read what is new; with `through`, look for whole rows to the end of their file."""
        if self._steps:
            self._steps.poll(through=through)
        self._events.poll()

    def finish(self) -> None:
        """Take the last line as it is: nothing more will come."""
        self._events.finish()

    def is_another(self) -> bool:
        """Return whether what was read is no longer there: the files were replaced."""
        return self._events.is_another() or (self._steps is not None and self._steps.is_another())

    def exit_code(self) -> int | None:
        """Return how the command ended that a launcher ran; None where it does not say."""
        return next((event.code for event in self._events.events if isinstance(event, Exit)), None)

    def warnings(self, *, final: bool) -> list[str]:
        """Return what could not be read, a sentence each."""
        return [*self._events.warnings(final=final), *(self._steps.warnings(final=final) if self._steps else ())]

    def process(self, devices: int | None, *, final: bool) -> Process | None:
        """Return what it wrote; None where nothing says when it began.

        Args:
            devices: The number of devices that counts; None for what the log says.
            final: Whether the files are complete.
        """
        found = self._open()
        if found is None:
            return None
        opened, wrong = tidy_open(found)
        warnings = [*(f"{self.name}: open line: {text}" for text in wrong), *self.warnings(final=final)]
        if not self._events.opens:
            warnings.append(
                f"{self.name}: its open line is missing; it begins with its first event, as {opened.attempt} "
                f"rank {opened.rank}, and holds {devices or 1} device"
            )
        if devices is not None:
            opened = msgspec.structs.replace(opened, devices=devices)
        return Process(opened, tuple(self._events.events), self._columns.rows(), warnings)

    def left_out(self, *, final: bool) -> list[str]:
        """Return why it gave no process."""
        n_events, n_rows = len(self._events.events), self.rows_read
        what = f"{n_events} events and {n_rows} rows left out" if n_events or n_rows else "nothing in it counts"
        return [f"{self.name}: no open line, so that its time is not known; {what}", *self.warnings(final=final)]

    def identity(self) -> tuple[str, int]:
        """Return attempt and rank as the folder is named.

        Example:
            >>> Attempt(Path("logs/digits/a0-r3")).identity()
            ('a0', 3)
        """
        match = _NAME.fullmatch(self.path.name)
        return (clean(match["attempt"]), int(match["rank"])) if match else (self.name.removesuffix(LAUNCH), 0)

    def _open(self) -> Open | None:
        """Return its open line, or what a later pair of clocks tells of it."""
        if self._events.opens:
            first = self._events.opens[0]
            return first if first.attempt else msgspec.structs.replace(first, attempt=self.identity()[0])
        pair = next((event for event in self._events.events if isinstance(event, ClockPair)), None)
        if pair is None:
            return None
        moments = [at for event in self._events.events for at in _moments(event)]
        if self.rows_read:
            moments.append(int(self._columns.rows().start.min()))
        begin = min(moments)
        attempt, rank = self.identity()
        return Open(wall_ns=pair.wall_ns - pair.mono_ns + begin, mono_ns=begin, attempt=attempt, rank=rank)


def _moments(event: object) -> list[int]:
    return [value for name in ("at", "start", "mono_ns") if isinstance(value := getattr(event, name, None), int)]
