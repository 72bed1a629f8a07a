"""The file of rare events: one JSON object a line, each written whole by one system call.

A line that cannot be written is kept and tried again with the next one and at the close, so that
a disk that was full for a while costs nothing; nothing here raises.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from typing import Final

from headway.events import AnyEvent, encode
from headway.record.faults import ROOM, Faults, failed, remedy

_LONGEST_QUEUE: Final = 1000
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class EventLog:
    """Appends events to a file; any thread may write.

    Args:
        path: The file. It is created when it is missing.
        faults: Where what could not be written is counted.

    Example:
        >>> import os, pathlib, tempfile
        >>> from headway.events import Saved
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = EventLog(os.path.join(folder, "events.jsonl"), Faults())
        ...     log.write(Saved(step=100, at=9))
        ...     log.close()
        ...     print(pathlib.Path(log.path).read_text(), end="")
        {"kind":"saved","step":100,"at":9}
    """

    def __init__(self, path: str, faults: Faults) -> None:
        self.path = path
        self._faults = faults
        self._lock = threading.RLock()  # re-entrant: a signal's handler may write in the middle of a write
        self._waiting: deque[bytes] = deque()
        self._torn = False
        self._gone = False
        self._closed = False
        self._fd = -1
        self._open()

    def write(self, event: AnyEvent) -> None:
        """Append one event; after `close` it is dropped and counted."""
        try:
            line = encode(event)
        except (UnicodeError, TypeError, ValueError, OverflowError) as error:
            self._faults.note("event-unwritable", repr(error))
            return
        with self._lock:
            if self._closed:
                self._faults.note("event-after-close", type(event).__name__)
                return
            self._waiting.append(line)
            self._flush()

    @property
    def waiting(self) -> int:
        """How many lines could not be written so far and are kept."""
        return len(self._waiting)

    def close(self) -> None:
        """Try once more what waits, and close the file; a second call does nothing."""
        with self._lock:
            if self._closed:
                return
            self._flush()
            if self._waiting:
                self._faults.note("event-lost", f"{len(self._waiting)} lines of {self.path} were never written")
            self._abandon()

    def abandon(self) -> None:
        """Let go of the file without writing, in a child that was forked; its parent's file stays untouched."""
        self._lock = threading.RLock()  # a thread that is not here may hold the old one
        self._abandon()

    def _abandon(self) -> None:
        self._closed = True
        self._waiting.clear()
        if self._fd >= 0:
            try:
                os.close(self._fd)
            except OSError as error:
                self._faults.note("event-write", failed("close", self.path, error))
            self._fd = -1

    def _open(self) -> bool:
        if self._fd < 0:
            try:
                self._fd = os.open(self.path, _FLAGS, 0o666)
            except (OSError, ValueError) as error:
                self._faults.note("event-write", failed("open", self.path, error), next_step=remedy(error))
        return self._fd >= 0

    def _flush(self) -> None:
        """Write the waiting lines in their order, until one fails."""
        while self._waiting and self._open():
            line = self._waiting.popleft()  # off the queue first: a signal's handler may come in between
            rest = self._append(line)
            if rest:
                self._waiting.appendleft(rest)
                break
        if len(self._waiting) > _LONGEST_QUEUE:
            del self._waiting[1]  # the first may be `open`, without which the rest is worth little
            self._faults.note("event-lost", f"over {_LONGEST_QUEUE} lines of {self.path} wait")

    def _append(self, line: bytes) -> bytes:
        """Write one line by one call; return what is still to be written: nothing, as a rule.

        After a torn line the next one begins with a newline, so that only the torn one is lost.
        """
        data = b"\n" + line if self._torn else line
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            self._faults.note("event-write", failed("write", self.path, error), next_step=remedy(error))
            return line
        if written < len(data):
            reason = f"only {written} of {len(data)} bytes of {self.path} were written"
            self._faults.note("event-write", reason, next_step=ROOM)
            if written:
                self._torn = written < len(data) - 1 and not data[:written].endswith(b"\n")
            return b"\n" if written == len(data) - 1 else line
        self._torn = False
        self._notice_if_gone()
        return b""

    def _notice_if_gone(self) -> None:
        """Count once that the file was deleted: writes to it succeed, and nobody will read them."""
        if self._gone:
            return
        try:
            self._gone = os.fstat(self._fd).st_nlink == 0
        except OSError:
            return
        if self._gone:
            self._faults.note("log-deleted", f"{self.path} was deleted while it was written")
