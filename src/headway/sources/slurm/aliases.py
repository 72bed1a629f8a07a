"""The raw numbers of tasks of arrays and of parts of jobs: ``105`` for what is shown as ``13_3``."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.ledger.jobs import UNTOLD, Jobs, Texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_FEW: Final = 1 << 16
"""So many are kept before those that are there again are taken out."""


class Aliases:
    """What jobs are shown as, by their raw numbers, in whatever order both are told.

    Args:
        wanted: Whether more than one list is read; without, nothing is kept.

    Example:
        >>> from headway.ledger.jobs import Job
        >>> aliases = Aliases()
        >>> aliases.add("105", "13_3")
        >>> listed = Job(id="105", milli=1000, state="running", start_ns=5)
        >>> jobs, n_in_arrays = aliases.shown(Jobs.of([listed]), ())
        >>> jobs[0].id, n_in_arrays
        ('13_3', 0)
    """

    def __init__(self, *, wanted: bool = True) -> None:
        self.wanted = wanted
        self._raw, self._shown = Texts(), Texts()
        self._next = _FEW
        self._n_doubtful = 0

    def add(self, raw: str, shown: str) -> None:
        """Note what one job is shown as."""
        self.add_columns([raw.encode("utf-8", "surrogatepass")], [shown.encode("utf-8", "surrogatepass")])

    def add_columns(self, raws: Sequence[bytes], shown: Sequence[bytes]) -> None:
        """Note what several are shown as, as UTF-8."""
        if self.wanted:
            self._raw.extend_bytes(raws)
            self._shown.extend_bytes(shown)
            self._once()

    def shown(self, jobs: Jobs, waiting: Container[str]) -> tuple[Jobs, int]:
        """Return jobs called as they are shown, and how many were left out as what an array in the queue tells.

        Args:
            jobs: As they were read.
            waiting: The numbers of arrays in the queue, without their tasks.
        """
        if not self.wanted:
            return jobs, 0
        names = self._names(jobs)
        start = jobs.column("start_ns")
        told: dict[int, str] = {}
        out = [place for place in _of_arrays(jobs, waiting) if place not in names]
        for place, found in names.items():
            tasks = [name for name in found if "_[" not in name]
            ran = start[place] != UNTOLD
            if tasks and (ran or len(tasks) == len(found)):
                told[place] = max(tasks)
            elif not ran:
                out.append(place)
        if told or out:
            left = np.ones(len(jobs), bool)
            left[[*out, *told]] = False
            renamed = [replace(jobs[place], id=name) for place, name in told.items()]
            jobs = jobs.take(np.flatnonzero(left))
            for job in renamed:
                jobs.append(job)
        self._n_doubtful = _n_doubtful(jobs)
        return jobs, len(out)

    def warnings(self) -> Iterator[str]:
        """Yield what may count twice."""
        if self._n_doubtful:
            yield (
                "running jobs of a plain number that were submitted and began with a task of an array, or a part of a "
                f"job: {self._n_doubtful}; where they are the same under their raw numbers (squeue -O JobID, -o %A) "
                "they count twice: write squeue -O JobArrayID or -o %i, or add JobIDRaw to the columns of sacct"
            )

    def _names(self, jobs: Jobs) -> dict[int, list[str]]:
        """Return by the place of each job that has its raw number as what it is shown."""
        found: dict[int, list[str]] = {}
        if not len(self._raw):
            return found
        known = self._raw.hashes()
        order = np.argsort(known, kind="stable")
        known, told = known[order], jobs.ids.hashes()
        first = np.searchsorted(known, told).clip(max=len(known) - 1)
        hits = np.flatnonzero(known[first] == told)
        ends = np.searchsorted(known, told[hits], "right")
        for place, end in zip(hits.tolist(), ends.tolist(), strict=True):
            for at in order[first[place] : end].tolist():
                if self._raw.raw(at) == jobs.ids.raw(place):
                    found.setdefault(place, []).append(self._shown[at])
        return found

    def _once(self) -> None:
        if len(self._raw) < self._next:
            return
        both = self._raw.hashes() * 3 + self._shown.hashes()
        places = np.sort(np.unique(both, return_index=True)[1])
        self._raw, self._shown = self._raw.take(places), self._shown.take(places)
        self._next = max(_FEW, 2 * len(places))


def _n_doubtful(jobs: Jobs) -> int:
    """Return how many jobs of a plain number go on that were submitted and began with one of another number."""
    submit, start = jobs.column("submit_ns"), jobs.column("start_ns")
    goes_on = (start != UNTOLD) & (submit != UNTOLD) & (jobs.column("end_ns") < 0)
    plain = [place for place in np.flatnonzero(goes_on).tolist() if _number(jobs.ids[place]).isdecimal()]
    if not plain:
        return 0
    others = np.flatnonzero(np.isin(start, start[plain])).tolist()
    begun = {(start[place], submit[place]) for place in others if not _number(jobs.ids[place]).isdecimal()}
    return sum((start[place], submit[place]) in begun for place in plain)


def _of_arrays(jobs: Jobs, waiting: Container[str]) -> Iterator[int]:
    """Yield the places of jobs in the queue that have the number of an array of which other records tell."""
    submit = jobs.column("submit_ns")
    queued: dict[tuple[str, int], list[int]] = {}
    for place in np.flatnonzero((jobs.column("start_ns") == UNTOLD) & (jobs.column("end_ns") == UNTOLD)).tolist():
        if jobs.ids[place] in waiting:
            yield place
        elif submit[place] != UNTOLD and _number(jobs.ids[place]).isdecimal():
            queued.setdefault((jobs.ids[place], submit[place]), []).append(place)
    if queued:
        for place in np.flatnonzero(np.isin(submit, [at for _, at in queued])).tolist():
            yield from queued.pop((jobs.ids[place].rpartition("_")[0], submit[place]), ())


def _number(ident: str) -> str:
    """Return a job's number without its cluster."""
    return ident.rpartition("/")[2]
