"""The simulator's rules, one nanosecond at a time and one replica: slow, and plain to read."""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from headway.model.savingplan import Background, Blocking


@dataclass(frozen=True)
class Listed:
    """Times between strikes as a table, ``(n_replicas, n_strikes)``; beyond it there are none."""

    table: np.ndarray

    def begin(self, rng, width):
        last = self.table.shape[1]
        never = np.full((len(self.table), 1), 1 << 60)
        full = np.concatenate([self.table, never], axis=1)
        return lambda place, n_struck: full[place, np.minimum(n_struck, last)]


@dataclass
class Slow:
    """One replica."""

    job: object
    failures: list
    preemptions: list
    books: Counter = field(default_factory=Counter)
    held: int = 0
    released: int = 0
    durable: int = 0
    local: int = 0
    reached: int = 0
    executed: int = 0
    n_failures: int = 0
    n_preemptions: int = 0
    finished: bool = False

    def tick(self, name, n=1):
        self.held += n
        self.books[name] += n

    def run(self):
        job = self.job
        failures, preemptions = [*self.failures, 1 << 60], [*self.preemptions, 1 << 60]
        pool = [0] * (job.spares or 0)
        to_failure, to_preemption = failures.pop(0), preemptions.pop(0)
        first = True
        while True:
            struck = min(to_failure, to_preemption)
            worked = self.attempt(struck, first)
            first = False
            if worked is None:
                self.finished = True
                break
            if to_preemption < to_failure:
                self.n_preemptions += 1
                if job.notice and worked and self.reached > self.durable:
                    self.tick("checkpoint_save", job.plan.durable_save)
                    self.durable = self.reached
                self.local = 0
                self.released += job.gap
                to_failure, to_preemption = to_failure - struck, preemptions.pop(0)
                self.finished = self.durable == job.work
            else:
                self.n_failures += 1
                if job.local_loss:
                    self.local = 0
                if job.spares is not None:
                    now = self.held + self.released
                    pool = sorted([*pool, now + job.repair])
                    self.tick("recovery", max(0, pool.pop(0) - now))
                to_failure, to_preemption = failures.pop(0), to_preemption - struck
            if self.finished or self.held + self.released >= job.limit:
                break
        self.books["productive"] = self.durable
        self.books["rework"] = self.executed - self.durable
        return self

    def attempt(self, struck, first):
        """Go on until struck, and return how long it worked; None where the job ended before."""
        job = self.job
        before = ["startup"] * job.startup
        if not first:
            before = ["recovery"] * job.restart + before + ["checkpoint_restore"] * job.load
        for name in before[:struck]:
            self.tick(name)
        if struck < len(before):
            return 0
        for worked, name in enumerate(self.course()):
            if worked == struck - len(before):
                return worked
            if name == "work":
                self.held += 1
                self.executed += 1
            else:
                self.tick("checkpoint_save")
        return None

    def course(self):
        plan = self.job.plan
        if isinstance(plan, Background):
            return self.background(plan)
        if isinstance(plan, Blocking):
            return self.two_level(plan.interval, plan.save, plan.save, 1)
        return self.two_level(plan.interval, plan.save, plan.durable_save, plan.every)

    def two_level(self, interval, save, durable_save, every):
        self.reached = self.durable + self.local * interval
        while self.reached < self.job.work:
            for _ in range(min(interval, self.job.work - self.reached)):
                yield "work"
                self.reached += 1
            if self.reached == self.job.work or self.local + 1 == every:
                yield from ["save"] * durable_save
                self.durable, self.local = self.reached, 0
            else:
                yield from ["save"] * save
                self.local += 1

    def background(self, plan):
        def lost(since):
            return int(np.rint(min(since, plan.save) * (plan.taken / plan.save))) if plan.save else 0

        self.reached = at = self.durable
        saving, since = None, 0
        while self.reached < self.job.work or saving is not None:
            if saving is None and self.reached - at == plan.interval:
                at = saving = self.reached
                since = 0
                if not plan.save:
                    self.durable, saving = saving, None
                continue
            full = self.reached - at == plan.interval or self.reached == self.job.work
            held_up = saving is not None and lost(since + 1) > lost(since)
            yield "save" if full or held_up else "work"
            self.reached += not (full or held_up)
            since += 1
            if saving is not None and since == plan.save:
                self.durable, saving = saving, None
        yield from ["save"] * plan.save
        self.durable = self.reached
