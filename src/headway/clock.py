"""The two clocks: a monotonic one that measures, and the wall clock that ties processes together.

Inside a process only the monotonic clock counts, so a jump of the wall clock moves nothing.
"""

from __future__ import annotations

import time
from typing import Protocol

NS_PER_S = 1_000_000_000


class Clock(Protocol):
    """Where the time comes from; tests pass one they move by hand."""

    def monotonic_ns(self) -> int:
        """Return the monotonic clock [ns]."""

    def wall_ns(self) -> int:
        """Return the wall clock [ns since the Unix epoch]."""


class SystemClock:
    """The clocks of this machine."""

    monotonic_ns = staticmethod(time.monotonic_ns)
    wall_ns = staticmethod(time.time_ns)


class ManualClock:
    """A clock that stands still until it is moved: for tests, and exact ones.

    Example:
        >>> clock = ManualClock()
        >>> clock.advance(0.25)
        >>> clock.monotonic_ns()
        250000000
    """

    def __init__(self, monotonic_ns: int = 0, wall_ns: int = 1_700_000_000_000_000_000) -> None:
        self._mono = monotonic_ns
        self._wall = wall_ns

    def monotonic_ns(self) -> int:
        """Return the monotonic clock [ns]."""
        return self._mono

    def wall_ns(self) -> int:
        """Return the wall clock [ns since the Unix epoch]."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Move both clocks forward.

        Args:
            seconds: How far [s]; rounded to whole nanoseconds.
        """
        ns = round(seconds * NS_PER_S)
        self._mono += ns
        self._wall += ns

    def jump_wall(self, seconds: float) -> None:
        """Move the wall clock alone, as a time server does [s]."""
        self._wall += round(seconds * NS_PER_S)


SYSTEM = SystemClock()
