"""Faults: what could not be recorded, counted by name and reported once.

Telemetry never raises into training. What goes wrong while recording is noted here; the first
time of each name is a warning of the logger ``headway``, and the counts go into the report.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import weakref

_log = logging.getLogger("headway")


class Faults:
    """A thread-safe counter of faults.

    Attributes:
        counts: How often each fault was noted, by name.
        errors: The last reason of each, by name.

    Example:
        >>> faults = Faults()
        >>> logging.getLogger("headway").setLevel(logging.ERROR)
        >>> faults.note("rows", OSError(28, "No space left on device"), count=3)
        >>> faults.note("rows")
        >>> faults.counts, faults.errors
        ({'rows': 4}, {'rows': '[Errno 28] No space left on device'})
        >>> logging.getLogger("headway").setLevel(logging.NOTSET)
    """

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.errors: dict[str, str] = {}
        self._told: set[str] = set()
        self._renew_lock()
        _all.add(self)

    def _renew_lock(self) -> None:
        # Re-entrant: a signal handler may note a fault while its own thread is noting one.
        self._lock = threading.RLock()

    def note(self, what: str, error: BaseException | str = "", count: int = 1) -> None:
        """Count a fault, and report the first of its name.

        Args:
            what: Its name, such as ``negative-duration``.
            error: The reason.
            count: How many were lost at once.
        """
        with self._lock:
            self.counts[what] = self.counts.get(what, 0) + count
            reason = _text(error)
            if reason or what not in self.errors:
                self.errors[what] = reason
        self.tell(
            what, f"Recording: {what}{': ' if reason else ''}{reason}. Training goes on; more of these are counted"
        )

    def tell(self, what: str, message: str) -> None:
        """Log a warning, once for each name, without counting a fault.

        Args:
            what: The name.
            message: The text, without its full stop.
        """
        with self._lock:
            if what in self._told:
                return
            self._told.add(what)
        with contextlib.suppress(Exception):  # a broken handler or filter of the program's own
            _log.warning("%s. [%s]", message, what)


def _text(error: object) -> str:
    try:
        return str(error) or (type(error).__name__ if isinstance(error, BaseException) else "")
    except Exception:  # noqa: BLE001 - an error whose own text fails
        return type(error).__name__


_all: weakref.WeakSet[Faults] = weakref.WeakSet()


def _renew_locks() -> None:
    """In the child of a fork: another thread of the parent may have held a lock."""
    for faults in list(_all):
        faults._renew_lock()  # noqa: SLF001 - its own module


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
