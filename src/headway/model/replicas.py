"""The event loop of the simulator: from strike to strike, all replicas of a batch at once.

Between two strikes (failures or preemptions) a replica's course is known, so one turn of the
loop is one strike for every replica still running, and costs the same however many saves lie
between. Everything is integer nanoseconds; nothing is rounded after the times are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headway.model.failuretimes import Draw, FailureTimes, Ints
from headway.model.savingplan import SavingPlan

FIRST_WIDTH: Final = 1024
WIDTH: Final = 8192
"""Replicas in the first batch, and in each further one; each batch has a random stream of its own."""
STUCK_FAILURES: Final = 10_000
"""Strikes after which a replica is stopped that has saved nothing durable meanwhile."""
MOST_STRIKES: Final = 1_000_000
"""Strikes after which a replica is stopped in any case."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Job:
    """What is simulated, in integer nanoseconds.

    Attributes:
        work: Useful step time the job needs [ns].
        plan: How it saves.
        failures: Times between failures.
        restart, startup, load: What follows a strike, in this order; `startup` comes before the
            first step too [ns].
        preemptions: Times between preemptions; None for none.
        notice: Whether a preemption is announced early enough for a save.
        gap: How long the devices are given back after a preemption [ns].
        local_loss: Probability that a failure takes the local saves, in [0, 1].
        spares: Number of spare nodes; None for always one.
        repair: From the failure of a node until it is a spare [ns].
        limit: A replica struck after so long, held or not, is stopped there [ns].
    """

    work: int
    plan: SavingPlan
    failures: FailureTimes
    restart: int = 0
    startup: int = 0
    load: int = 0
    preemptions: FailureTimes | None = None
    notice: bool = False
    gap: int = 0
    local_loss: float = 0.0
    spares: int | None = None
    repair: int = 0
    limit: int = 1 << 60


@dataclass(eq=False, slots=True)
class State:
    """Where each replica of a batch is, each ``(n,)``; times [ns].

    Attributes:
        place: Its place in the batch.
        remaining: Work beyond the last durable save.
        local: Local saves since then.
        executed: Work done, again or not.
        saving, recovery, startup, restore: Time held for other things.
        held, released: Time on the devices, and without them.
        failures, preemptions: How often it was struck.
        finished: Whether its work is done.
    """

    place: Ints
    remaining: Ints
    local: Ints
    executed: Ints
    saving: Ints
    recovery: Ints
    startup: Ints
    restore: Ints
    held: Ints
    released: Ints
    failures: Ints
    preemptions: Ints
    finished: NDArray[np.bool_]

    @classmethod
    def of(cls, n: int, work: int) -> State:
        """Return `n` replicas that have yet to begin."""
        zeros: Any = {field.name: np.zeros(n, np.int64) for field in fields(cls)}
        given = {"place": np.arange(n), "remaining": np.full(n, work), "finished": np.zeros(n, np.bool_)}
        return cls(**zeros | given)

    def take(self, which: NDArray[np.bool_] | Ints) -> State:
        """Return some of the replicas."""
        return State(*(getattr(self, field.name)[which] for field in fields(self)))

    @classmethod
    def join(cls, states: Sequence[State]) -> State:
        """Return the replicas of several states, one after the other."""
        return cls(*(np.concatenate([getattr(state, field.name) for state in states]) for field in fields(cls)))


def run(job: Job, replicas: int, seed: int) -> State:
    """Return how each replica ended, ``(replicas,)``; batch by batch, in order."""
    ended, number, done = [], 0, 0
    while done < replicas:
        width = WIDTH if number else FIRST_WIDTH
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number,)))
        ended.append(_Batch(job, rng, width, min(width, replicas - done)).run())
        number, done = number + 1, done + width
    return State.join(ended)


class _Batch:
    """The first `n` of `width` replicas on their way; what is random is drawn for all of them.

    Failures, preemptions and losses of local saves have a stream each, so that jobs that differ
    in one of them meet the same luck in the others.
    """

    def __init__(self, job: Job, rng: np.random.Generator, width: int, n: int) -> None:
        failing, preempting, self.losing = rng.spawn(3)
        self.job, self.width = job, width
        self.draw_failure: Draw = job.failures.begin(failing, width)
        self.draw_preemption = job.preemptions.begin(preempting, width) if job.preemptions else None
        self.state = State.of(n, job.work)
        self.running = np.ones(n, np.bool_)
        self.ended: list[State] = []

    def run(self) -> State:
        """Return how each replica of this batch ended."""
        job = self.job
        self.to_failure = self.draw_failure(self.state.place, self.state.failures)
        if self.draw_preemption:
            self.to_preemption = self.draw_preemption(self.state.place, self.state.preemptions)
        self.ready = np.zeros((len(self.state.place), job.spares or 0), np.int64)
        was = self.state.remaining.copy()
        for turn in range(1, MOST_STRIKES + 1):
            self._turn(first=turn == 1)
            if turn % STUCK_FAILURES == 0:
                self._leave(self.state.remaining == was[self.state.place])
                was[self.state.place] = self.state.remaining
            if not self.running.any():
                break
        whole = State.join([*self.ended, self.state.take(self.running)])
        return whole.take(np.argsort(whole.place))

    def _turn(self, *, first: bool) -> None:
        """Go on to each replica's next strike, or to its end where that comes first."""
        self.struck = self.to_failure
        if self.draw_preemption:
            self.struck = np.minimum(self.to_failure, self.to_preemption)
        self.up = self._recover(first=first)
        self._finish()
        self._strike()

    def _recover(self, *, first: bool) -> Ints:
        """Book what comes before the work, as far as it came, and return what is left of the time [ns]."""
        job, state, left = self.job, self.state, self.struck
        phases = (
            (0 if first else job.restart, state.recovery),
            (job.startup, state.startup),
            (0 if first else job.load, state.restore),
        )
        for length, booked in phases:
            if length:
                spent = np.minimum(left, length)
                np.add(booked, spent, out=booked)
                left = left - spent
        return left

    def _finish(self) -> None:
        """Let those go whose work is done before the strike."""
        state, plan = self.state, self.job.plan
        least = state.remaining - state.local * plan.interval if plan.has_local else state.remaining
        if not (self.up >= least).any():
            return
        needed = plan.needed(state.remaining, state.local)
        done = np.flatnonzero((self.up >= needed) & self.running)
        if not len(done):
            return
        state.held[done] += self.struck[done] - self.up[done] + needed[done]
        state.executed[done] += least[done]
        state.saving[done] += needed[done] - least[done]
        state.remaining[done] = 0
        state.finished[done] = True
        self._set_aside(done)

    def _strike(self) -> None:
        """Book the work up to the strike, take back what it costs, and draw the next."""
        state = self.state
        executed, durable, local = self.job.plan.at(self.up, state.remaining, state.local)
        state.executed += executed
        state.saving += self.up - executed
        state.held += self.struck
        if self.draw_preemption:
            preempted = self.to_preemption < self.to_failure
            self._preempt(preempted, executed + state.local * self.job.plan.interval, durable, local)
        else:
            state.remaining -= durable
            state.local = local
            state.failures += 1
            self._fail(None)
            self.to_failure = self.draw_failure(state.place, state.failures)
        self._stop()

    def _preempt(self, preempted: NDArray[np.bool_], reached: Ints, durable: Ints, local: Ints) -> None:
        """Take the devices from some and let the others fail; the other clock of each goes on."""
        assert self.draw_preemption  # noqa: S101  # for the type checker
        job, state = self.job, self.state
        if job.notice:
            saves = preempted & (self.up > 0) & (reached > durable)
            state.saving += saves * job.plan.durable_save
            state.held += saves * job.plan.durable_save
            durable = np.where(saves, reached, durable)
        state.remaining -= durable
        state.finished = state.remaining == 0
        state.local = np.where(preempted, 0, local)
        state.released += preempted * job.gap
        state.preemptions += preempted
        state.failures += ~preempted
        self._fail(~preempted)
        failure = self.draw_failure(state.place, state.failures)
        preemption = self.draw_preemption(state.place, state.preemptions)
        rest_f, rest_p = self.to_failure - self.struck, self.to_preemption - self.struck
        self.to_failure = np.where(preempted, rest_f, failure)
        self.to_preemption = np.where(preempted, preemption, rest_p)

    def _fail(self, failed: NDArray[np.bool_] | None) -> None:
        """Take local saves, and a spare or the time until there is one; None: all failed."""
        job, state = self.job, self.state
        if job.plan.has_local and job.local_loss:
            lost = self.losing.random(self.width)[state.place] < job.local_loss
            state.local = np.where(lost if failed is None else lost & failed, 0, state.local)
        if job.spares is None or not job.repair:
            return
        rows = np.arange(len(state.place)) if failed is None else np.flatnonzero(failed)
        wait = self._take_spares(rows)
        state.recovery[rows] += wait
        state.held[rows] += wait

    def _take_spares(self, rows: Ints) -> Ints:
        """Return how long each must wait for a node [ns]; the failed one joins the end of the queue."""
        if not self.job.spares:
            return np.full(len(rows), self.job.repair)
        now = self.state.held[rows] + self.state.released[rows]
        slot = (self.state.failures[rows] - 1) % self.job.spares
        wait = np.maximum(self.ready[rows, slot] - now, 0)
        self.ready[rows, slot] = now + self.job.repair
        return wait

    def _stop(self) -> None:
        """Let those go whose last work a notice saved, and stop those beyond the limit."""
        state = self.state
        over = state.finished | (state.held + state.released >= self.job.limit)
        if over.any():
            self._leave(over)

    def _leave(self, which: NDArray[np.bool_]) -> None:
        """Let those go of them that still run."""
        rows = np.flatnonzero(which & self.running)
        if len(rows):
            self._set_aside(rows)

    def _set_aside(self, rows: Ints) -> None:
        """Keep how some ended. Their rows go on, to no effect, until an eighth of all are such, and then go."""
        self.ended.append(self.state.take(rows))
        self.running[rows] = False
        self.state.finished[rows] = False
        self.state.remaining[rows] = self.job.work
        if 8 * int(self.running.sum()) > 7 * len(self.running):
            return
        stay = self.running
        self.state, self.running = self.state.take(stay), self.running[stay]
        self.struck, self.up, self.ready = self.struck[stay], self.up[stay], self.ready[stay]
        self.to_failure = self.to_failure[stay]
        if self.draw_preemption:
            self.to_preemption = self.to_preemption[stay]
