"""A pool of devices over time: what its jobs held, what was waited for, and what nobody wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from headway.clock import NS_PER_S
from headway.ledger.history import Pool
from headway.ledger.jobs import LABELS, UNTOLD, Jobs
from headway.ledger.ledger import Ledger, Part, Queue
from headway.units import show_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Intervals = tuple[Ints, Ints, Ints]
    """From when to when [ns since the Unix epoch], and how many devices in thousandths."""

_K = TypeVar("_K")
_AT_ONCE: Final = 1 << 16
"""So many jobs are looked at together, so that what is made of them for a moment stays small."""
NOT_INSIDE: Final = "a scheduler does not see what its jobs kept; their own logs do"


def account_pool(pool: Pool, until_ns: int | None = None) -> Ledger:
    """Return the ledger of a pool: what its jobs held and, where its size is known, what they did not.

    While a device was free it was ``queued`` as far as jobs in the queue asked for devices then,
    ``unallocated`` beyond that; out of service it was ``drained``. What happened inside a job is
    not known to its scheduler: its time is ``allocated``, and R stays unknown.

    Args:
        pool: Its jobs, its size, its outages.
        until_ns: End of the window [ns since the Unix epoch]; None: the last moment that it names.
    """
    if pool.totals_ns is not None:
        return _of_totals(pool, pool.totals_ns)
    jobs = Jobs.of(pool.jobs)
    moments = [at for outage in pool.outages for at in (outage.begin_ns, outage.end_ns) if at is not None]
    for name in ("submit_ns", "start_ns", "end_ns"):
        told = jobs.column(name)
        told = told[told != UNTOLD]
        moments += [int(told.min()), int(told.max())] if len(told) else []
    begin = pool.begin_ns if pool.begin_ns is not None else min(moments, default=0)
    end = pool.end_ns if pool.end_ns is not None else max(moments, default=begin)
    end = max(begin, end if until_ns is None else until_ns)
    history = _History(pool, jobs, begin, end)
    ledger = history.measure(begin, end)
    return replace(
        ledger,
        queue=_queues(jobs).get(""),
        queues=partial(_queues, jobs),
        warnings=(*history.too_small(ledger), *history.warnings()),
        measure=history.measure,
    )


@dataclass(frozen=True, eq=False)
class _History:
    """A pool made ready to be measured in any window."""

    pool: Pool
    jobs: Jobs
    begin_ns: int
    end_ns: int

    def measure(self, begin: int, end: int) -> Ledger:
        """Return the ledger of a window of the wall clock [ns since the Unix epoch]."""
        held, n_jobs = self._held(begin, end)
        sized = self.pool.devices is not None
        amounts = self._sweep(begin, end) if sized else Counter(allocated=held.total())
        assert amounts["allocated"] == held.total()  # noqa: S101 - two ways to count what jobs held
        whole = _devices_ns(amounts)
        parts = tuple(
            Part(0, "", _held(ns, self.pool.name, n_jobs[key]), labels=dict(zip(LABELS, key, strict=True)))
            for key, ns in _devices_ns(held, whole["allocated"]).items()
        )
        return Ledger(
            {name: ns for name, ns in whole.items() if ns or name == "allocated"},
            held_ns=whole["allocated"],
            offered_ns=sum(whole.values()) if sized else None,
            devices=self.pool.devices or 0,
            jobs=n_jobs.total(),
            unknown={"R": NOT_INSIDE},
            parts=parts,
            start_ns=begin,
            end_ns=end,
            runs=(self.pool.name,),
        )

    def _held(self, begin: int, end: int) -> tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]]:
        """Return what jobs held in a window by their labels [device-ns / 1000], and how many held some."""
        held, n_jobs = Counter[tuple[int, ...]](), Counter[tuple[int, ...]]()
        labels = [self.jobs.column(name) for name in LABELS]
        for part in self._parts():
            since, until, milli = self._running(part)
            low, high = np.maximum(since, begin), np.minimum(until, end)
            places = np.flatnonzero((low < high) & (milli > 0))
            keys = zip(*(column[part][places].tolist() for column in labels), strict=True)
            lengths = (high[places] - low[places]).tolist()
            for key, length, amount in zip(keys, lengths, milli[places].tolist(), strict=True):
                held[key] += length * amount
                n_jobs[key] += 1
        return self._worded(held), self._worded(n_jobs)

    def _worded(self, counts: Mapping[tuple[int, ...], int]) -> Counter[tuple[str, ...]]:
        words = self.jobs.words
        return Counter({tuple(words[place] for place in key): count for key, count in counts.items()})

    def _parts(self) -> Iterator[slice]:
        for first in range(0, len(self.jobs), _AT_ONCE):
            yield slice(first, first + _AT_ONCE)

    def _running(self, part: slice) -> Intervals:
        """Return from when to when jobs held their devices; of one that did not, no length."""
        start, end = self.jobs.column("start_ns")[part], self.jobs.column("end_ns")[part]
        end = np.where(end == UNTOLD, self.end_ns, end)
        return start, np.where(start == UNTOLD, UNTOLD, end), self.jobs.column("milli")[part]

    def _waiting(self, part: slice) -> Intervals:
        """Return from when to when jobs were in the queue; of one that nobody saw there, no length."""
        submit, start = self.jobs.column("submit_ns")[part], self.jobs.column("start_ns")[part]
        end = self.jobs.column("end_ns")[part]
        until = np.where(start == UNTOLD, np.where(end == UNTOLD, self.end_ns, end), start)
        return submit, np.where(submit == UNTOLD, UNTOLD, until), self.jobs.column("milli")[part]

    def _out(self) -> Intervals:
        """Return from when to when outages were, and their devices in thousandths."""
        told = [
            (one.begin_ns, self.end_ns if one.end_ns is None else one.end_ns, one.devices * 1000)
            for one in self.pool.outages
        ]
        since, until, milli = np.array(told, np.int64).reshape(-1, 3).T
        return since, until, milli

    def _sweep(self, begin: int, end: int) -> Counter[str]:
        """Return the amounts of a window of a pool of known size, in thousandths of a device [device-ns / 1000]."""
        amounts = Counter[str]()
        for first, last in pairwise(self._cuts(begin, end)):
            amounts.update(self._piece(first, last))
        return amounts

    def _cuts(self, begin: int, end: int) -> list[int]:
        """Return moments that cut a window so that not too many jobs begin in each piece."""
        starts = self.jobs.column("start_ns")[:: _AT_ONCE // 4]
        inside = np.unique(starts[(begin < starts) & (starts < end)])
        return [begin, *inside.tolist(), end]

    def _piece(self, begin: int, end: int) -> dict[str, int]:
        levels = (
            _level(map(self._running, self._parts()), begin, end),
            _level(map(self._waiting, self._parts()), begin, end),
            _level([self._out()], begin, end),
        )
        every = np.unique(np.concatenate([edges for edges, _ in levels]))
        used, wanted, out = (level[np.searchsorted(edges, every, "right") - 1] for edges, level in levels)
        size = np.maximum((self.pool.devices or 0) * 1000, used)  # what jobs held was there, whatever the size says
        drained = np.minimum(out, size - used)
        free = size - used - drained
        queued = np.minimum(wanted, free)
        return {
            "allocated": _integral(every, used),
            "queued": _integral(every, queued),
            "unallocated": _integral(every, free - queued),
            "drained": _integral(every, drained),
        }

    def warnings(self) -> Iterable[str]:
        """Yield what the amounts cannot say."""
        jobs = self.jobs
        yield from self.pool.warnings
        start, milli = jobs.column("start_ns"), jobs.column("milli")
        never = (start == UNTOLD) & (milli != 0)
        if n_never := int(never.sum()):
            asked = int(milli[never].sum()) / 1000
            yield (
                f"{n_never} of {len(jobs)} jobs asked for {asked:g} devices in all and never ran: "
                "they hold nothing, and are not in the amounts but as queue"
            )
        running = (start != UNTOLD) & (jobs.column("end_ns") == UNTOLD)
        if n_running := int(running.sum()):
            jobs_are = "1 job" if n_running == 1 else f"{n_running} jobs"
            yield f"{jobs_are} had not ended: counted up to the end of the window"
            if self.pool.end_ns is not None and self.end_ns > self.pool.end_ns:
                after_ns = self.end_ns - self.pool.end_ns
                held = show_seconds(after_ns * int(milli[running].sum()) // 1000 / NS_PER_S)
                yield (
                    f"what was read ends {show_seconds(after_ns / NS_PER_S)} before the window: that those jobs went "
                    f"on is taken for granted, and is {held} of what was held"
                )

    def too_small(self, ledger: Ledger) -> Iterable[str]:
        """Yield that jobs held more devices than there are said to be."""
        if self.pool.devices is not None and ledger.offered_ns is not None:
            size = self.pool.devices * (self.end_ns - self.begin_ns)
            if ledger.offered_ns > size:
                over = show_seconds((ledger.offered_ns - size) / NS_PER_S)
                most = f"{self._most():,.3f}".rstrip("0").rstrip(".")
                yield (
                    f"jobs held up to {most} devices at once, more than the {self.pool.devices} that there are said to "
                    f"be: {over} beyond them are counted as offered, so that S is too high"
                )

    def _most(self) -> float:
        """Return how many devices jobs held at once at most."""
        most = 0
        for first, last in pairwise(self._cuts(self.begin_ns, self.end_ns)):
            _, level = _level(map(self._running, self._parts()), first, last)
            most = max(most, int(level.max()))
        return most / 1000


def _held(ns: int, name: str, n_jobs: int = 0) -> Ledger:
    return Ledger({"allocated": ns}, held_ns=ns, jobs=n_jobs, unknown={"R": NOT_INSIDE}, runs=(name,))


def _of_totals(pool: Pool, totals_ns: Mapping[str, int]) -> Ledger:
    """Return the ledger of a summary: device-time by the state in which jobs ended, and nothing of when."""
    parts = tuple(Part(0, "", _held(ns, pool.name), labels={"state": state}) for state, ns in totals_ns.items())
    whole = _held(sum(totals_ns.values()), pool.name)
    return replace(whole, parts=parts, devices=pool.devices or 0, warnings=tuple(pool.warnings))


def _queues(jobs: Jobs, key: str | None = None) -> dict[str, Queue]:
    """Return by a label how long the jobs waited that asked for devices and of which it is told when; None: of all."""
    submit, start = jobs.column("submit_ns"), jobs.column("start_ns")
    told = (submit != UNTOLD) & ((start == UNTOLD) | (start >= submit))
    asked = np.flatnonzero((jobs.column("milli") != 0) & told)
    if not len(asked):
        return {}
    waits = np.where(start[asked] == UNTOLD, UNTOLD, start[asked] - submit[asked])
    if key is None:
        return {"": _queue(waits)}
    word = jobs.column(key)[asked]
    order = np.argsort(word, kind="stable")
    found, first = np.unique(word[order], return_index=True)
    each = np.split(waits[order], first[1:])
    return {jobs.words[place]: _queue(own) for place, own in zip(found.tolist(), each, strict=True)}


def _queue(waits: Ints) -> Queue:
    """Return what waits come to [ns]; `UNTOLD` is of a job that never ran."""
    ran, n_never = waits[waits >= 0], int(np.count_nonzero(waits == UNTOLD))
    if not len(ran):
        return Queue(0, n_never)
    return Queue(
        n_ran=len(ran),
        n_never_ran=n_never,
        mean_s=float(ran.mean()) / NS_PER_S,
        median_s=float(np.median(ran)) / NS_PER_S,
        p99_s=float(np.percentile(ran, 99)) / NS_PER_S,
        max_s=int(ran.max()) / NS_PER_S,
    )


def _level(intervals: Iterable[Intervals], begin: int, end: int) -> tuple[Ints, Ints]:
    """Return the moments at which the sum of intervals changes inside a window, and its value from each on."""
    edges, changes = [np.array([begin, end], np.int64)], [np.zeros(2, np.int64)]
    for since, until, amounts in intervals:
        low, high = np.maximum(since, begin), np.minimum(until, end)
        some = (low < high) & (amounts > 0)
        edges += [low[some], high[some]]
        changes += [amounts[some], -amounts[some]]
    every, places = np.unique(np.concatenate(edges), return_inverse=True)
    level = np.zeros(len(every), np.int64)
    np.add.at(level, places, np.concatenate(changes))
    return every, np.cumsum(level)


def _integral(times: Ints, level: Ints) -> int:
    """Return the sum of level x time, exactly."""
    lengths, level = np.diff(times), level[:-1]
    unit, each = (NS_PER_S, 1000) if not ((lengths % NS_PER_S).any() or (level % 1000).any()) else (1, 1)
    span = int(times[-1] - times[0]) // unit
    if span * (int(level.max(initial=0)) // each) < 1 << 63:
        return int(np.dot(lengths // unit, level // each)) * unit * each
    return sum(map(int.__mul__, lengths.tolist(), level.tolist()))


def _devices_ns(milli_ns: Mapping[_K, int], total_ns: int | None = None) -> Counter[_K]:
    """Return thousandths as whole device-nanoseconds; what rounding leaves goes to the largest remainders.

    Args:
        milli_ns: Amounts [device-ns / 1000].
        total_ns: What they sum to, the next whole number to their sum [device-ns]; None: it cut off.

    Example:
        >>> _devices_ns({"a": 1500, "b": 1500})
        Counter({'a': 2, 'b': 1})
    """
    whole = Counter({key: amount // 1000 for key, amount in milli_ns.items()})
    left = (sum(milli_ns.values()) // 1000 if total_ns is None else total_ns) - whole.total()
    for key in sorted(milli_ns, key=lambda one: -(milli_ns[one] % 1000))[:left]:
        whole[key] += 1
    return whole
