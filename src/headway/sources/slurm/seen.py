"""Up to when jobs that run were seen to: each list of jobs was made at a moment of its own."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.ledger.jobs import UNTOLD, Jobs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_SLACK_NS: Final = 90 * NS_PER_S
"""Moments that differ by no more are one [ns]."""


class Seen:
    """The moments of lists, one after the other, each of which tells of its jobs that run up to its own.

    While lists are read, the end of a job that runs is less than none: the moment up to which it was seen to run,
    times -1; `UNTOLD` where its record does not tell that, until the list is read.

    Attributes:
        told_ns: The latest moment that a list or a record tells [ns since the Unix epoch]; None: none does.
        untold: Whether of a list nothing tells its moment: it is that of its last Start, End or Submit.
        first: The place of the first job of the list that is read.
        n_closed: How many jobs ran when a list named them last, which is not the latest.
        n_behind: How many, not suspended, were seen to run up to an earlier moment only than others of their list.

    Example:
        >>> from headway.ledger.jobs import Job
        >>> hour, seen, jobs = 3600 * NS_PER_S, Seen(), Jobs()
        >>> for ident, moment in ("7", 5 * hour), ("8", 9 * hour):
        ...     jobs.append(Job(id=ident, milli=1000, state="running", start_ns=hour))
        ...     seen.note(moment)
        ...     _ = seen.end(jobs)
        >>> seen.close(jobs)
        >>> [job.end_ns for job in jobs] == [5 * hour, None], seen.n_closed, seen.several
        (True, 1, True)
    """

    def __init__(self) -> None:
        self.told_ns: int | None = None
        self.untold = False
        self.first = 0
        self.n_closed = 0
        self.n_behind = 0
        self._moments = array("q")
        self._moment = 0
        self._last = 0
        self._each = self._eachs = False

    @property
    def n_lists(self) -> int:
        """How many lists there were."""
        return len(self._moments)

    @property
    def several(self) -> bool:
        """Whether the jobs were looked at more than once."""
        return self._eachs or (self.n_lists > 1 and max(self._moments) - min(self._moments) > _SLACK_NS)

    def note(self, at_ns: int) -> None:
        """Note a moment at which the list that is read, or one of its jobs, was looked at [ns since the Unix epoch]."""
        self._moment = max(self._moment, at_ns)
        self.told_ns = max(self.told_ns or 0, at_ns)

    def look(self, jobs: Jobs) -> None:
        """Look at the jobs of the list that is read, before some of them become one.

        Where it tells of one attempt at several moments, it is several lists without a header between them.
        """
        start, end = jobs.column("start_ns")[self.first :], jobs.column("end_ns")[self.first :]
        for column in (start, end, jobs.column("submit_ns")[self.first :]):
            self._last = max(self._last, int(column.max(initial=0)))
        places = np.flatnonzero((end < 0) & (end > -self._moment + _SLACK_NS))
        if len(places) and not self._each:
            told = -end[(end < 0) & (end != UNTOLD)]
            which = self.first + np.flatnonzero((end < 0) & (end != UNTOLD))
            keys = jobs.ids.take(which).hashes() * 3 + jobs.column("start_ns")[which]
            order = np.argsort(keys, kind="stable")
            keys, told = keys[order], told[order]
            firsts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
            spread = np.maximum.reduceat(told, firsts) - np.minimum.reduceat(told, firsts)
            self._each = bool((spread > _SLACK_NS).any())

    def end(self, jobs: Jobs) -> int:
        """Let the jobs that run of the list that is read go on up to its moment, and return that; 0: it was empty.

        It is one moment for all: Elapsed of a job that was suspended, or that went on as clocks were put back, tells
        less than that. Where there are several lists in it, each record counts as it is.
        """
        self.look(jobs)
        moment = max(self._moment, self._last)
        if moment:
            start, end = jobs.column("start_ns")[self.first :], jobs.column("end_ns")[self.first :]
            goes_on = (start != UNTOLD) & ((end == UNTOLD) if self._each else (end < 0))
            if not self._each:
                behind = goes_on & (end != UNTOLD) & (end > _SLACK_NS - self._moment)
                states = jobs.column("state")[self.first :][behind].tolist()
                self.n_behind += sum(jobs.words[place] != "suspended" for place in states)
            end[goes_on] = -moment
            self._moments.append(moment)
            self.untold |= not self._moment
        self.first = len(jobs)
        self._eachs |= self._each
        self._moment, self._last, self._each = 0, 0, False
        return moment

    def close(self, jobs: Jobs) -> None:
        """Let only those jobs go on that did so at the latest moment; others end where they were seen last."""
        start, end = jobs.column("start_ns"), jobs.column("end_ns")
        ran = (end < 0) & (end != UNTOLD)
        latest = max(self._moments, default=0)
        goes_on = ran & (end <= _SLACK_NS - latest)
        end[goes_on] = UNTOLD
        ended = ran & ~goes_on
        end[ended] = np.maximum(-end[ended], start[ended])
        self.n_closed = int(ended.sum())

    def warnings(self) -> Iterator[str]:
        """Yield how many jobs may count less long than they ran, or longer."""
        if self.n_closed:
            yield (
                f"jobs that a list shows running and no later record tells of: {self.n_closed}; each counts up to the "
                "moment of the last list that has it, as when it ended is not told"
            )
        if self.n_behind:
            yield (
                f"jobs that run of which Start and Elapsed tell an earlier moment than those of others in their list: "
                f"{self.n_behind}; they count up to that of the others, as after a suspension; where lists of several "
                "moments follow each other without a header (squeue -h), put one before each"
            )
