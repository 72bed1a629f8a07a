"""Moments that clocks show twice, as they are put back: which of both a job began and ended at."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Final

import numpy as np

from headway.clock import NS_PER_S
from headway.ledger.jobs import Jobs

SLACK_NS: Final = 2 * NS_PER_S
"""By so much Elapsed and End minus Start may differ [ns]."""
_Pair = tuple[int | None, int | None]


class Later:
    """Jobs that began at the later of two readings of Start: other records of them may not tell which it was.

    Example:
        >>> from headway.ledger.jobs import Job
        >>> later = Later()
        >>> later.add("7", 5, 8)
        >>> jobs = Jobs.of(Job(id=name, milli=0, state="", start_ns=5) for name in "78")
        >>> later.correct(jobs), [job.start_ns for job in jobs]
        (True, [8, 5])
    """

    def __init__(self) -> None:
        self._told: dict[str, dict[int, int]] = {}

    def add(self, ident: str, first_ns: int | None, start_ns: int | None) -> None:
        """Note what Start of a job was read as first, and is; nothing where these are one."""
        if first_ns is not None and start_ns is not None and first_ns < start_ns:
            self._told.setdefault(ident, {})[first_ns] = start_ns

    def correct(self, jobs: Jobs) -> bool:
        """Let records of one attempt have one Start, and return whether one had another."""
        firsts = [first for starts in self._told.values() for first in starts]
        corrected = False
        for place in np.flatnonzero(np.isin(jobs.column("start_ns"), firsts)).tolist() if firsts else ():
            start = self._told.get(jobs.ids[place], {}).get(jobs.start_ns[place])
            if start is not None:
                jobs.start_ns[place] = start
                corrected = True
        return corrected


def held(starts: Sequence[int | None], ends: Sequence[int | None], submit: int | None, elapsed: int | None) -> _Pair:
    """Return Start and End [ns since the Unix epoch] as they make sense together; the earlier where both do.

    Args:
        starts: What Start may be, the earlier first.
        ends: What End may be, the earlier first.
        submit: When the job was put into the queue.
        elapsed: How long it had its devices [ns].

    Example:
        >>> hour = 3600 * NS_PER_S
        >>> [at // hour for at in held([2 * hour, 3 * hour], [5 * hour], None, 2 * hour)]
        [3, 5]
    """

    def sense(pair: _Pair) -> tuple[bool, bool, bool]:
        start, end = pair
        if start is None:
            return False, True, True
        length = None if end is None else end - start
        fits = length is not None and elapsed is not None and abs(length - elapsed) <= SLACK_NS
        return fits, length is None or length >= 0, submit is None or start >= submit

    first = (starts[0], ends[0])
    if len(starts) == len(ends) == 1:
        return first
    best = max(product(starts, ends), key=sense)
    told = ends[0] is not None and elapsed is not None
    return first if told and not sense(best)[0] else best
