"""Which records of a job tell of one attempt, and which of them tells it best."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.ledger.jobs import UNTOLD, Job, Jobs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_AT_ONCE: Final = 1 << 13
_MANY: Final = 64
"""Of a job of more records none is held against each other."""


def once(jobs: Jobs) -> tuple[Ints | None, int]:
    """Return the places of the records that tell each attempt best, None for all, and how many others there are.

    Two records are of one attempt where they have one start, or where one is of when it waited, and both were
    submitted at once. That of a job that ran counts before that of the queue, its end before none, which may be less
    than none, as `headway.sources.slurm.seen.Seen` has it; of two that tell as much the later one.

    Example:
        >>> waiting = Job(id="7", milli=1000, state="pending", submit_ns=1)
        >>> ran = Job(id="7", milli=1000, state="completed", submit_ns=1, start_ns=5, end_ns=9)
        >>> again = Job(id="7", milli=1000, state="completed", submit_ns=6, start_ns=8, end_ns=9)
        >>> places, n_others = once(Jobs.of([waiting, ran, ran, again]))
        >>> places.tolist(), n_others
        ([2, 3], 2)
    """
    groups = jobs.several()
    part = list(islice(groups, _AT_ONCE))
    if not part:
        return None, 0
    order = np.arange(len(jobs))
    left = np.ones(len(jobs), bool)
    while part:
        for places, best in zip(part, _best(jobs, part), strict=True):
            order[places[: len(best)]] = best
            left[places[len(best) :]] = False
        part = list(islice(groups, _AT_ONCE))
    return order[left], int((~left).sum())


def _best(jobs: Jobs, groups: list[list[int]]) -> Iterable[list[int]]:
    """Return of the records of each job those that tell its attempts best, in the order of the attempts."""
    places = np.fromiter(chain.from_iterable(groups), np.int64)
    sizes = np.fromiter(map(len, groups), np.int64, len(groups))
    begins = np.cumsum(sizes) - sizes
    submit, start, end, milli, state = (
        jobs.column(name)[places] for name in ("submit_ns", "start_ns", "end_ns", "milli", "state")
    )
    latest = np.maximum.reduceat(start, begins)
    earliest = np.minimum.reduceat(np.where(start == UNTOLD, np.repeat(latest, sizes), start), begins)
    together = np.minimum.reduceat(submit, begins) == np.maximum.reduceat(submit, begins)
    together |= np.logical_and.reduceat(start != UNTOLD, begins)
    single = (earliest == latest) & together
    named, at = np.unique(state, return_inverse=True)
    ranks = np.argsort(np.argsort([jobs.words[place] for place in named.tolist()]))[at]
    keys = (milli, ranks, np.where(end == UNTOLD, 0, abs(end)), end > 0, start != UNTOLD)
    told = np.lexsort((*keys, np.repeat(np.arange(len(groups)), sizes)))
    bests = places[told[begins + sizes - 1]].tolist()
    for group, is_single, best in zip(groups, single.tolist(), bests, strict=True):
        yield [best] if is_single else _attempts(jobs, group)


def _attempts(jobs: Jobs, places: list[int]) -> list[int]:
    if len(places) > _MANY:
        return _of_many(jobs, places)
    attempts: list[tuple[int, Job]] = []
    for place in places:
        new = (place, jobs[place])
        for index, old in enumerate(attempts):
            if _same(new[1], old[1]):
                attempts[index] = max(new, old, key=lambda one: _told(one[1]))
                break
        else:
            attempts.append(new)
    return [place for place, _ in attempts]


def _of_many(jobs: Jobs, places: list[int]) -> list[int]:
    """Return the same, without holding each record against each attempt."""
    ran: dict[int, int] = {}
    waited: dict[int, int] = {}
    for place in places:
        start, submit = jobs.start_ns[place], jobs.submit_ns[place]
        known, key = (waited, submit) if start == UNTOLD else (ran, start)
        old = known.get(key)
        known[key] = place if old is None else max(place, old, key=lambda one: _told(jobs[one]))
    submits = {jobs.submit_ns[place] for place in ran.values()}
    joins = submits | ({*waited} if UNTOLD in submits else {UNTOLD} if ran else set())
    return sorted([*ran.values(), *(place for submit, place in waited.items() if submit not in joins)])


def _same(one: Job, other: Job) -> bool:
    """Return whether two records are of one attempt, or one of the queue and one of when it ran."""
    if one.start_ns == other.start_ns:
        return one.start_ns is not None or one.submit_ns == other.submit_ns
    if None in {one.start_ns, other.start_ns}:
        return None in {one.submit_ns, other.submit_ns} or one.submit_ns == other.submit_ns
    return False


def _told(job: Job) -> tuple[bool, bool, int, str, int]:
    """Return how much a record tells: that of a job that ran before that of the queue, its end before none."""
    end = job.end_ns or 0
    return (job.start_ns is not None, end > 0, abs(end), job.state, job.milli)
