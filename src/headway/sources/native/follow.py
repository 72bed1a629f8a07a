"""A live run, polled: each poll reads only what was written since the last one."""

from __future__ import annotations

import os
from pathlib import Path

from headway.ledger.history import Run
from headway.sources.asked import Asked
from headway.sources.native import source as native
from headway.sources.native.attempt import Attempt
from headway.sources.registry import recognise


class Follower:
    """The runs at a path, over everything written so far.

    Columns of rows are kept and grow; nothing that was read is read again. What has not begun yet
    gives no run, so a follower can be there before the training is. A log of another source is
    read anew whenever it has changed.

    Args:
        path: As for `headway.load`.
        devices: As for `headway.load`.

    Attributes:
        bytes_read: Everything that was read so far [bytes].
        rows_read: Rows that were read so far.

    Example:
        >>> Follower("/nowhere/yet").poll()
        []
    """

    def __init__(self, path: str | os.PathLike[str], devices: int | None = None) -> None:
        self.path = Path(path)
        self._devices = devices
        self._logs: dict[Path, Attempt] = {}
        self._gone_bytes = self._gone_rows = 0
        self._is_foreign: bool | None = None
        self._version: tuple[int, int] | None = None
        self._runs: list[Run] = []

    @property
    def bytes_read(self) -> int:
        """Everything that was read so far [bytes]."""
        return self._gone_bytes + sum(log.bytes_read for log in self._logs.values())

    @property
    def rows_read(self) -> int:
        """Rows that were read so far."""
        return self._gone_rows + sum(log.rows_read for log in self._logs.values())

    def poll(self) -> list[Run]:
        """Read what is new and return the runs, in the order of their names.

        Raises:
            SourceError: There is something, and no source knows it.
        """
        if not os.path.exists(self.path):  # noqa: PTH110  Path.exists raises where a folder is closed
            return []
        if self._is_foreign is None:
            self._is_foreign = self.path.is_file() and recognise(self.path).name != native.Native.name
        if self._is_foreign:
            return self._reloaded()
        runs = []
        for found in native.find(self.path):
            logs = [self._polled(path, found.path) for path in found.attempts]
            runs.append(native.assemble(found, logs, self._devices, final=False))
        return sorted((run for run in runs if run.processes), key=lambda run: (run.name, run.path))

    def _polled(self, path: Path, given: Path) -> Attempt:
        log = self._logs.get(path)
        if log is not None and log.is_another():
            self._gone_bytes += log.bytes_read
            self._gone_rows += log.rows_read
            log = None
        if log is None:
            log = self._logs[path] = native.attempt_at(path, given)
            log.poll(through=True)
        else:
            log.poll()
        return log

    def _reloaded(self) -> list[Run]:
        found = self.path.stat()
        version = found.st_size, found.st_mtime_ns
        if self._version != version:
            self._gone_bytes += found.st_size
            found_there = recognise(self.path).load(self.path, Asked(self._devices))
            self._version, self._runs = version, [run for run in found_there if isinstance(run, Run)]
        return self._runs
