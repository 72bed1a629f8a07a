"""When the lines of a log were written: by their own words, by the log's keeper, and in which zone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.sources.columns import BOUND
from headway.sources.steps import front
from headway.sources.steps.columns import UNKNOWN
from headway.sources.steps.line import KEPT_BEGINS, Stamp, kept, stamp
from headway.sources.text import Complaints, clean

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_KEPT_BEGINS: Final = tuple(begin.encode() for begin in KEPT_BEGINS)
_FAR: Final = 86400 * NS_PER_S
"""A log's first line is kept no longer before what it tells, nor its last one after that [ns]."""
_HALF_HOUR: Final = 1800 * NS_PER_S
"""Zones of time are so much apart [ns]."""


@dataclass
class Moments:
    """The moments that a log names, as its lines are read in the order of the file.

    Attributes:
        source: The name of the source.
        path: The file.
        bad: What could not be read; a source adds its own complaints.
        warnings: What else is to be said of the run; a source adds its own sentences.
        earliest, latest: The first and the last moment that it names.
        opening, last_at: The moments that are named first and last in the file.
        n_zoned, n_local: How many times name a zone, and how many do not.
    """

    source: str
    path: Path
    bad: Complaints = field(init=False)
    warnings: list[str] = field(default_factory=list)
    earliest: int | None = None
    latest: int | None = None
    opening: int | None = None
    n_zoned: int = 0
    n_local: int = 0
    last_at: int = UNKNOWN
    _now: tuple[int, bytes] = (0, b"")
    _is_off: bool = False

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self.bad = Complaints(clean(self.path.name))

    def _bound(self, first: bytes, last: bytes) -> None:
        """Note that the program ran when the first and the last line were kept, whatever they say."""
        for line in (first, last) if not self._is_off else ():
            with suppress(ValueError):
                found = stamp(kept(line) or "")
                if found is None:
                    continue
                if self.earliest is None or self.latest is None:
                    self.seen(found.ns)
                elif self.earliest - _FAR < found.ns < self.latest + _FAR:
                    self.earliest, self.latest = min(self.earliest, found.ns), max(self.latest, found.ns)

    def kept(self, line: int) -> Stamp | None:
        """Return when the keeper of the log got a line, the one that is read now; None where it does not say.

        Raises:
            ValueError: It says so, and it is no time.
        """
        if not self._now[1].startswith(_KEPT_BEGINS) or line != self._now[0] or self._is_off:
            return None
        time = kept(self._now[1])
        return None if time is None else stamp(time)

    def stamp(self, text: str, line: int) -> int | None:
        """Return the moment a line begins with; None where it has none, or with a complaint one of no sense.

        Where the text has none, the keeper of the log may have put one in front of the line: a container's log, or
        journald. It also tells the zone of a time that names none, where the two are whole half hours apart.
        The moment is remembered as one at which the program ran.

        Args:
            text: What the line says.
            line: Its number.
        """
        try:
            found, outer = stamp(text), self.kept(line)
        except ValueError as error:
            self.bad.add("with a time of no sense, read without it", line, str(error))
            return None
        if found is None:
            found = outer
        elif outer is not None:
            away = round((found.ns - outer.ns) / _HALF_HOUR) * _HALF_HOUR
            if abs(away) > 28 * _HALF_HOUR or (found.zoned and away):
                self._is_off = True
                self.warnings.append(
                    f"line {line} says another time than that in front of it, which a log's keeper wrote: from there "
                    "on those are not used"
                )
            elif not found.zoned:
                found = Stamp(found.ns - away, zoned=True)
        if found is None:
            return None
        self.n_zoned += found.zoned
        self.n_local += not found.zoned
        self.seen(found.ns)
        return found.ns

    def stamps(self, values: list[NDArray[np.float64]]) -> Ints | None:
        """Return the moments of many lines, `UNKNOWN` where one has none; None if they must be stamped one by one.

        Args:
            values: What `headway.sources.front.find` found in front of the lines, but for the rank, each ``(n,)``.
        """
        at = None if self._is_off else front.times(*values[:-1])
        if at is not None and len(known := at[at != UNKNOWN]):
            n_zoned = int(np.isfinite(values[-1]).sum())
            self.n_zoned += n_zoned
            self.n_local += len(known) - n_zoned
            self._see(known)
        return at

    def _see(self, moments: Ints) -> None:
        for moment in (moments[0], moments.min(), moments.max(), moments[-1]):
            self.seen(int(moment))

    def seen(self, at_ns: int) -> None:
        """Note a moment at which the program ran: the log's first and last bound the run."""
        if 0 <= at_ns < BOUND:
            if self.earliest is None:
                self.earliest = self.opening = at_ns
            elif at_ns < self.earliest:
                self.earliest = at_ns
            if self.latest is None or at_ns > self.latest:
                self.latest = at_ns
            self.last_at = at_ns
