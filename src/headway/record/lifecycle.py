"""The end of a process: logs are closed by SIGTERM and at exit with the right reason, and left alone by a fork.

The handler of SIGTERM is installed with the first log and taken away with the last. What was
there before is honoured: by default the process still dies by the signal, and a handler of the
user's is still called.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Final, Protocol


class Closable(Protocol):
    """What is open until the process ends."""

    signalled: bool

    def close(self, reason: str = "finished") -> None:
        """Write the end; never raises."""

    def abandon(self) -> None:
        """Let go of everything without a trace, in a child that was forked."""


class _Lifecycle:
    """What is open in this process, and the handler of SIGTERM while something is."""

    def __init__(self) -> None:
        self._open: list[Closable] = []
        self._previous: Any = None
        self._installed = False
        self._calling = False  # a user's handler may call the one it replaced, which is this
        self._at_exit = False
        self._forking = threading.local()

    def watch(self, log: Closable) -> None:
        """Close the log when the process ends."""
        self._open.append(log)
        if not self._at_exit:
            self._at_exit = True
            atexit.register(self._close_all_at_exit)
        self._install()

    def release(self, log: Closable) -> None:
        """Forget a log that was closed."""
        with contextlib.suppress(ValueError):
            self._open.remove(log)
        if not self._open:
            self._restore()

    def _install(self) -> None:
        if self._installed or threading.current_thread() is not threading.main_thread():
            return
        previous = signal.getsignal(signal.SIGTERM)
        if previous is None or previous is signal.SIG_IGN:
            return  # a handler in C cannot be called from here, and an ignored signal ends nothing
        try:
            signal.signal(signal.SIGTERM, self._on_signal)
        except ValueError:  # a sub-interpreter
            return
        self._previous, self._installed = previous, True

    def _restore(self) -> None:
        """Put back what was there, unless the user has set another handler since."""
        if not self._installed or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == self._on_signal:
            signal.signal(signal.SIGTERM, self._previous)
        self._installed = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        for log in list(self._open):
            log.signalled = True
        if callable(self._previous) and not self._calling:
            self._calling = True
            try:
                self._previous(number, frame)  # the user's own; the logs stay open until the program ends
            finally:
                self._calling = False
            return
        for log in list(self._open):
            log.close("signal")
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    def _close_all_at_exit(self) -> None:
        reason = reason_of(getattr(sys, "last_exc", None) or getattr(sys, "last_value", None))
        if hasattr(sys, "ps1"):
            reason = "finished"  # at a prompt the last exception is any earlier one
        for log in list(self._open):
            log.close(reason)

    def _before_fork(self) -> None:
        """Hold SIGTERM back: one that meets the child with the handler still there would be lost, or end our log."""
        if self._installed:
            self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _after_fork(self) -> None:
        mask, self._forking.mask = getattr(self._forking, "mask", None), None
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _after_fork_in_child(self) -> None:
        logs, self._open = self._open, []
        for log in logs:
            log.abandon()
        self._restore()
        self._after_fork()


def reason_of(error: BaseException | None) -> str:
    """Return why a program ends that is left by this exception.

    Example:
        >>> reason_of(None), reason_of(SystemExit(0)), reason_of(SystemExit(3)), reason_of(KeyboardInterrupt())
        ('finished', 'finished', 'failed', 'signal')
    """
    code = error.code if isinstance(error, SystemExit) else 1
    if error is None or code is None or (isinstance(code, int) and code == 0):
        return "finished"
    return "signal" if isinstance(error, KeyboardInterrupt) else "failed"


_LIFECYCLE: Final = _Lifecycle()
watch: Final = _LIFECYCLE.watch
release: Final = _LIFECYCLE.release
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_LIFECYCLE._before_fork,  # noqa: SLF001 - its own
        after_in_parent=_LIFECYCLE._after_fork,  # noqa: SLF001
        after_in_child=_LIFECYCLE._after_fork_in_child,  # noqa: SLF001
    )
