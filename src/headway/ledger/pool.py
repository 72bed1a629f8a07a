"""A pool of devices over time: what its jobs held, what was waited for, and what nobody wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np

from headway.clock import NS_PER_S
from headway.ledger.history import Job, Pool
from headway.ledger.ledger import Ledger, Part, Queue
from headway.units import show_seconds

_K = TypeVar("_K")
LABELS: Final = ("state", "user", "account", "partition")
"""By what the ledger of a pool can be split."""
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
    moments = [at for job in pool.jobs for at in (job.submit_ns, job.start_ns, job.end_ns) if at is not None]
    moments += [at for outage in pool.outages for at in (outage.begin_ns, outage.end_ns) if at is not None]
    begin = pool.begin_ns if pool.begin_ns is not None else min(moments, default=0)
    end = pool.end_ns if pool.end_ns is not None else max(moments, default=begin)
    end = max(begin, end if until_ns is None else until_ns)
    history = _History(pool, begin, end)
    ledger = history.measure(begin, end)
    return replace(
        ledger,
        queue=_queue(pool.jobs),
        warnings=tuple(history.warnings(ledger)),
        measure=history.measure,
    )


@dataclass(frozen=True, eq=False)
class _History:
    """A pool made ready to be measured in any window."""

    pool: Pool
    begin_ns: int
    end_ns: int

    def measure(self, begin: int, end: int) -> Ledger:
        """Return the ledger of a window of the wall clock [ns since the Unix epoch]."""
        held = Counter[tuple[str, ...]]()
        n_jobs = 0
        for job in self.pool.jobs:
            if job.start_ns is not None:
                length = _overlap(begin, end, job.start_ns, self._end_of(job))
                n_jobs += bool(length and job.milli)
                held[tuple(getattr(job, name) for name in LABELS)] += length * job.milli
        amounts = self._sweep(begin, end)
        total = sum(amounts.values())
        whole = _devices_ns(amounts)
        parts = tuple(
            Part(0, "", _held(ns, self.pool.name), labels=dict(zip(LABELS, key, strict=True)))
            for key, ns in _devices_ns(held, whole["allocated"]).items()
        )
        sized = self.pool.devices is not None
        assert sized or total == held.total()  # noqa: S101 - without a size only what was held is there
        return Ledger(
            {name: ns for name, ns in whole.items() if ns or name == "allocated"},
            held_ns=whole["allocated"],
            offered_ns=sum(whole.values()) if sized else None,
            devices=self.pool.devices or 0,
            jobs=n_jobs,
            unknown={"R": NOT_INSIDE},
            parts=parts,
            start_ns=begin,
            end_ns=end,
            runs=(self.pool.name,),
        )

    def _end_of(self, job: Job) -> int:
        return self.end_ns if job.end_ns is None else job.end_ns

    def _sweep(self, begin: int, end: int) -> Counter[str]:
        """Return the amounts of a window, in thousandths of a device [device-ns / 1000]."""
        jobs = [job for job in self.pool.jobs if job.milli]
        running = [(job.start_ns, self._end_of(job), job.milli) for job in jobs if job.start_ns is not None]
        times, held = _level(running, begin, end)
        if self.pool.devices is None:
            return Counter(allocated=_integral(times, held))
        waiting = [
            (job.submit_ns, self._end_of(job) if job.start_ns is None else job.start_ns, job.milli)
            for job in jobs
            if job.submit_ns is not None
        ]
        outages = [
            (one.begin_ns, self.end_ns if one.end_ns is None else one.end_ns, one.devices * 1000)
            for one in self.pool.outages
        ]
        levels = [(times, held), _level(waiting, begin, end), _level(outages, begin, end)]
        every = np.unique(np.concatenate([edge for edge, _ in levels]))
        used, wanted, out = (_at(every, edge, level) for edge, level in levels)
        size = np.maximum(self.pool.devices * 1000, used)  # what jobs held was there, whatever the size says
        drained = np.minimum(out, size - used)
        free = size - used - drained
        queued = np.minimum(wanted, free)
        return Counter(
            allocated=_integral(every, used),
            queued=_integral(every, queued),
            unallocated=_integral(every, free - queued),
            drained=_integral(every, drained),
        )

    def warnings(self, ledger: Ledger) -> Iterable[str]:
        """Yield what the amounts cannot say."""
        jobs = self.pool.jobs
        yield from self.pool.warnings
        never = [job for job in jobs if job.start_ns is None and job.milli]
        if never:
            asked = sum(job.milli for job in never) / 1000
            yield (
                f"{len(never)} of {len(jobs)} jobs asked for {asked:g} devices in all and never ran: "
                "they hold nothing, and are not in the amounts but as queue"
            )
        running = [job for job in jobs if job.start_ns is not None and job.end_ns is None]
        if running:
            yield f"{len(running)} jobs had not ended: they count up to the end of the window"
        if self.pool.devices is not None and ledger.offered_ns is not None:
            size = self.pool.devices * (self.end_ns - self.begin_ns)
            if ledger.offered_ns > size:
                over = show_seconds((ledger.offered_ns - size) / NS_PER_S)
                yield f"jobs held more than the {self.pool.devices} devices that there are: {over} are added to them"


def _held(ns: int, name: str) -> Ledger:
    return Ledger({"allocated": ns} if ns else {}, held_ns=ns, unknown={"R": NOT_INSIDE}, runs=(name,))


def _of_totals(pool: Pool, totals_ns: Mapping[str, int]) -> Ledger:
    """Return the ledger of a summary: device-time by the state in which jobs ended, and nothing of when."""
    parts = tuple(Part(0, "", _held(ns, pool.name), labels={"state": state}) for state, ns in totals_ns.items())
    whole = _held(sum(totals_ns.values()), pool.name)
    return replace(whole, parts=parts, devices=pool.devices or 0, warnings=tuple(pool.warnings))


def _queue(jobs: Iterable[Job]) -> Queue | None:
    """Return how long jobs that asked for devices waited; None where no file says when they were submitted."""
    asked = [job for job in jobs if job.milli and job.submit_ns is not None]
    waits = [job.start_ns - job.submit_ns for job in asked if job.start_ns is not None and job.submit_ns is not None]
    if not asked:
        return None
    waits = [wait for wait in waits if wait >= 0]
    spread = np.array(waits or [0], np.int64)
    return Queue(
        n_ran=len(waits),
        n_never_ran=sum(job.start_ns is None for job in asked),
        mean_s=float(spread.mean()) / NS_PER_S,
        median_s=float(np.median(spread)) / NS_PER_S,
        p99_s=float(np.percentile(spread, 99)) / NS_PER_S,
        max_s=int(spread.max()) / NS_PER_S,
    )


def _level(intervals: Iterable[tuple[int, int, int]], begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the moments at which a sum of intervals changes inside a window, and its value from each on."""
    steps: Counter[int] = Counter({begin: 0, end: 0})
    for low, high, amount in intervals:
        first, last = max(low, begin), min(high, end)
        if first < last:
            steps[first] += amount
            steps[last] -= amount
    times = np.array(sorted(steps), np.int64)
    return times, np.cumsum(np.array([steps[at] for at in times.tolist()], np.int64))


def _at(times: np.ndarray, edges: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Return a level at other moments than its own."""
    return level[np.searchsorted(edges, times, "right") - 1]


def _integral(times: np.ndarray, level: np.ndarray) -> int:
    """Return the sum of level x time, exactly."""
    return sum(a * b for a, b in zip(level[:-1].tolist(), np.diff(times).tolist(), strict=True))


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


def _overlap(begin: int, end: int, low: int, high: int) -> int:
    return max(0, min(end, high) - max(begin, low))
