"""How a simulated job saves: what of an attempt is done and durable at an instant, and when it ends.

All in integer nanoseconds, for many replicas at once. An attempt begins at the last save with
`remaining` work beyond it that is not durable, ``(n,)`` [ns]; `up` is how long the job has worked
since, recovery not counted, ``(n,)`` [ns]. Each plan ends with one durable save of the last work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from headway.model.failuretimes import Ints


class Progress(NamedTuple):
    """What an attempt has come to, each ``(n,)``.

    Attributes:
        executed: Work done in this attempt [ns]; the rest of `up` went to saves.
        durable: Work that became durable in it, on top of what was [ns].
        local: Number of local saves since the last durable one.
    """

    executed: Ints
    durable: Ints
    local: Ints


class SavingPlan(Protocol):
    """How a job saves."""

    @property
    def interval(self) -> int:
        """Work between saves [ns]."""

    @property
    def durable_save(self) -> int:
        """Time of a blocking durable save, out of turn as well [ns]."""

    @property
    def has_local(self) -> bool:
        """Whether there are local saves that a failure can take."""

    def needed(self, remaining: Ints, local: Ints) -> Ints:
        """Return how long the job must work without a failure to end, its last save included [ns]."""

    def at(self, up: Ints, remaining: Ints, local: Ints) -> Progress:
        """Return what is done and durable after so long, which is less than `needed`."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """The loop stands still for each save: `interval` of work, then `save`.

    Example:
        >>> plan, one = Blocking(interval=10, save=2), lambda n: np.array([n])
        >>> plan.needed(one(25), one(0)).tolist()
        [31]
        >>> [x.tolist() for x in plan.at(one(17), one(25), one(0))]
        [[15], [10], [0]]
    """

    interval: int
    save: int
    has_local = False

    @property
    def durable_save(self) -> int:
        """Time of a save [ns]."""
        return self.save

    def needed(self, remaining: Ints, local: Ints) -> Ints:  # noqa: ARG002
        """Return the work and its saves [ns]."""
        return remaining - (-remaining // self.interval) * self.save

    def at(self, up: Ints, remaining: Ints, local: Ints) -> Progress:
        """Return whole intervals as durable, and what was done of the next."""
        n_saved = up // (self.interval + self.save)
        durable = n_saved * self.interval
        executed = durable + np.minimum(up - n_saved * (self.interval + self.save), self.interval)
        return Progress(np.minimum(executed, remaining), durable, local)


@dataclass(frozen=True, slots=True)
class Background:
    """A save runs beside the loop, and is durable `save` later.

    While it runs the loop loses `taken` of its time in all, evenly. The next save waits for it,
    so that an interval is never shorter than a save. The last save is a blocking one.

    Attributes:
        interval: Work between saves [ns]; `interval` + `taken` >= `save`.
        save: From the start of a save until it is durable [ns].
        taken: Of that, what the loop loses [ns], <= `save`.

    Example:
        >>> plan, one = Background(interval=10, save=4, taken=2), lambda n: np.array([n])
        >>> plan.needed(one(25), one(0)).tolist()
        [33]
        >>> [x.tolist() for x in plan.at(one(14), one(25), one(0))]
        [[12], [10], [0]]
    """

    interval: int
    save: int
    taken: int
    has_local = False

    @property
    def durable_save(self) -> int:
        """Time of a blocking save [ns]."""
        return self.save

    def needed(self, remaining: Ints, local: Ints) -> Ints:  # noqa: ARG002
        """Return the work, what saves take from it, the wait for the last but one, and the last [ns]."""
        n_before = -(-remaining // self.interval) - 1
        last = remaining - n_before * self.interval
        begins = n_before * (self.interval + self.taken) - self.taken
        ends = np.where(n_before > 0, begins + np.maximum(last + self.taken, self.save), remaining)
        return ends + self.save

    def at(self, up: Ints, remaining: Ints, local: Ints) -> Progress:
        """Return the saves that are durable, and the work done while the last runs."""
        cycle = self.interval + self.taken
        n_begun = (up - self.interval) // cycle + 1
        executed = n_begun * self.interval + self._worked(up, n_begun)
        n_durable = np.maximum((up - self.interval - self.save) // cycle + 1, 0)
        return Progress(np.minimum(executed, remaining), n_durable * self.interval, local)

    def _worked(self, up: Ints, n_begun: Ints) -> Ints:
        """Return the work done since the last save began [ns]."""
        since: Ints = up - np.maximum(n_begun * (self.interval + self.taken) - self.taken, 0)
        if not self.taken:
            return since
        share = np.where(n_begun > 0, self.taken / self.save, 0.0)
        lost: Ints = np.rint(np.minimum(since, self.save) * share).astype(np.int64)
        return since - lost


@dataclass(frozen=True, slots=True)
class TwoLevel:
    """A fast local save each interval, and in place of every `every`-th a slow durable one; both block.

    Local saves outlive a failure unless it takes them; the durable one is what is left then.
    `remaining` counts from the durable one, `local` says how many intervals lie beyond it.

    Example:
        >>> plan, one = TwoLevel(interval=10, save=1, durable_save=5, every=3), lambda n: np.array([n])
        >>> plan.needed(one(40), one(0)).tolist(), plan.needed(one(40), one(2)).tolist()
        ([52], [30])
        >>> [x.tolist() for x in plan.at(one(15), one(40), one(1))]
        [[14], [0], [2]]
    """

    interval: int
    save: int
    durable_save: int
    every: int
    has_local = True

    def needed(self, remaining: Ints, local: Ints) -> Ints:
        """Return the work that is in no save, and the saves to come [ns]."""
        n_before = -(-remaining // self.interval) - 1
        n_durable = n_before // self.every
        saves = (n_before - n_durable) * self.save + (n_durable + 1) * self.durable_save
        needed: Ints = remaining + saves - local * (self.interval + self.save)
        return needed

    def at(self, up: Ints, remaining: Ints, local: Ints) -> Progress:
        """Return whole rounds of local saves and a durable one, and what was done of the next."""
        each = self.interval + self.save
        round_ns = each * (self.every - 1) + self.interval + self.durable_save
        since = up + local * each
        n_rounds = since // round_ns
        since -= n_rounds * round_ns
        most = -(-remaining // self.interval) - 1 - n_rounds * self.every  # the last save is durable, whatever its turn
        n_local = np.minimum(np.minimum(since // each, self.every - 1), most)
        durable = n_rounds * (self.interval * self.every)
        place = durable + n_local * self.interval + np.minimum(since - n_local * each, self.interval)
        return Progress(np.minimum(place, remaining) - local * self.interval, durable, n_local)
