"""Faults: what could not be recorded, counted by name and reported once.

Telemetry never raises into training. What goes wrong while recording is noted here; the first
time of each name is a warning of the logger ``headway``, and the counts go into the report.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import weakref
from typing import Final

ROOM: Final = "Free some space there: writing is tried again"
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
        self._told: set[tuple[str, str]] = set()
        self._renew_lock()
        _all.add(self)

    def _renew_lock(self) -> None:
        # Re-entrant: a signal handler may note a fault while its own thread is noting one.
        self._lock = threading.RLock()

    def note(self, what: str, error: BaseException | str = "", count: int = 1, next_step: str = "") -> None:
        """Count a fault, and report the first of its name.

        Args:
            what: Its name, such as ``negative-duration``.
            error: The reason.
            count: How many were lost at once.
            next_step: What to do about it, without its full stop; said, and not kept.
        """
        with self._lock:
            self.counts[what] = self.counts.get(what, 0) + count
            reason = _text(error)
            if reason or what not in self.errors:
                self.errors[what] = reason
        said = [what + (f": {reason}" if reason else ""), next_step, "Training goes on; more of these are counted"]
        self.tell(what, ". ".join(filter(None, said)))

    def tell(self, what: str, message: str, about: str = "") -> None:
        """Log a warning, once for each name and what it is about, without counting a fault.

        Args:
            what: The name.
            message: The text, without its full stop.
            about: What tells it from others of its name.
        """
        key = (what, about)
        with self._lock:
            if key in self._told:
                return
            self._told.add(key)
        with contextlib.suppress(Exception):  # a broken handler or filter of the program's own
            _log.warning("headway: %s. [%s]", message, what)


def failed(action: str, path: str, error: BaseException) -> str:
    """Return the reason of a fault of the file system: what was tried, where, and what the system said.

    Example:
        >>> failed("write", "/logs/steps.npy", OSError(28, "No space left on device"))
        'cannot write /logs/steps.npy: No space left on device'
    """
    return f"cannot {action} {path}: {getattr(error, 'strerror', None) or _text(error)}"


def remedy(error: BaseException) -> str:
    """Return what makes a failed write succeed the next time; empty where that is not known.

    Example:
        >>> remedy(OSError(28, "No space left on device")), remedy(OSError(5, "Input/output error"))
        ('Free some space there: writing is tried again', '')
    """
    full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
    return ROOM if full else ""


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
