"""What a simulation came to: its replicas, their goodput with an interval, and their ledgers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from headway.clock import NS_PER_S
from headway.errors import ArgumentError
from headway.ledger.ledger import Ledger, Saving
from headway.model.failuretimes import Ints
from headway.model.replicas import Job, State
from headway.units import show_seconds

YEAR_NS: Final = 31_557_600 * NS_PER_S
"""A Julian year, 365.25 days [ns]."""
NORMAL_95: Final = 1.959963984540054
"""The 97.5 % point of the standard normal distribution."""


@dataclass(frozen=True, eq=False)
class Replicas:
    """Where the time of each replica went, each array ``(n_replicas,)``.

    Attributes:
        amounts_ns: By category of the ledger, those of no replica left out [ns]. They sum to `held_ns`.
        held_ns: What was held [ns].
        released_ns: Gaps after preemptions [ns].
        failures, preemptions: How often each was struck.
        finished: Whether its work was done.
    """

    amounts_ns: Mapping[str, Ints]
    held_ns: Ints
    released_ns: Ints
    failures: Ints
    preemptions: Ints
    finished: NDArray[np.bool_]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.held_ns)

    @classmethod
    def of(cls, state: State, work: int) -> Replicas:
        """Return the replicas of a state: what is durable is productive, other work was done in vain."""
        durable = work - state.remaining
        amounts = {
            "productive": durable,
            "startup": state.startup,
            "checkpoint_restore": state.restore,
            "checkpoint_save": state.saving,
            "rework": state.executed - durable,
            "recovery": state.recovery,
        }
        kept = {name: ns for name, ns in amounts.items() if name == "productive" or ns.any()}
        return cls(kept, state.held, state.released, state.failures, state.preemptions, state.finished)


@dataclass(frozen=True, eq=False)
class Simulation:
    """A simulated job: many replicas, alike but for their luck.

    Attributes:
        job: What was simulated, in integer nanoseconds.
        seed: The seed; the same arguments and seed give the same replicas to the bit.
        replicas: Where the time of each went.
    """

    job: Job
    seed: int
    replicas: Replicas

    @cached_property
    def runtime_goodput(self) -> float:
        """R: all that is productive over all that was held; that of the replicas' ledgers added up."""
        return _total(self.replicas.amounts_ns["productive"]) / _total(self.replicas.held_ns)

    @cached_property
    def interval_95(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of R, (low, high); None for one replica.

        Normal over replicas, the delta method for a ratio of two means: R -+ 1.96 s / (mean held x
        sqrt(n)), s being the sample deviation of productive - R x held. The interval is of the mean: it
        narrows with more replicas, and says nothing of how far one run may fall from it (see `quantile`).
        """
        n = len(self.replicas)
        if n < 2:
            return None
        held = self.replicas.held_ns.astype(float)
        residual = self.replicas.amounts_ns["productive"] - self.runtime_goodput * held
        half = NORMAL_95 * float(residual.std(ddof=1)) / math.sqrt(n) / float(held.mean())
        return self.runtime_goodput - half, self.runtime_goodput + half

    @cached_property
    def goodput(self) -> NDArray[np.float64]:
        """R of each replica, ``(n_replicas,)``."""
        found: NDArray[np.float64] = self.replicas.amounts_ns["productive"] / self.replicas.held_ns
        return found

    def quantile(self, fraction: float) -> float:
        """Return the R below which that share of the replicas lies.

        Args:
            fraction: Which share, in [0, 1]: 0.05 for what one run in twenty falls short of.

        Raises:
            ArgumentError: It is outside [0, 1].
        """
        if not 0 <= fraction <= 1:
            raise ArgumentError(
                f"Cannot take quantile {fraction}: it is outside [0, 1]", "Give a share such as 0.05", "bad-quantile"
            )
        return float(np.quantile(self.goodput, fraction))

    @property
    def job_years(self) -> float:
        """Simulated time, held by all replicas together [years of 365.25 days]."""
        return _total(self.replicas.held_ns) / YEAR_NS

    @cached_property
    def outcome(self) -> str:
        """How it ended.

        ``finished``: every replica did. ``no-progress``: some did not, and under 1 % of what those
        held was of use. ``unfinished``: some did not, and got on until `limit` stopped them.
        """
        replicas = self.replicas
        if replicas.finished.all():
            return "finished"
        late = ~replicas.finished
        useful = _total(replicas.amounts_ns["productive"][late]) / _total(replicas.held_ns[late])
        return "no-progress" if useful < 0.01 else "unfinished"

    @property
    def advice(self) -> str | None:
        """What to do about the outcome; None where all replicas finished."""
        late = int((~self.replicas.finished).sum())
        whose = f"{late} of {len(self.replicas)} replicas did not finish"
        if self.outcome == "no-progress":
            attempt = self.job.plan.interval + self.job.plan.durable_save
            recovery = self.job.restart + self.job.startup + self.job.load
            return (
                f"{whose}: failures leave them no time for an interval with its save, "
                f"{show_seconds(attempt / NS_PER_S)} after {show_seconds(recovery / NS_PER_S)} of recovery. "
                "Save more often, make the save or the recovery shorter, or use fewer devices"
            )
        if self.outcome == "unfinished":
            return f"{whose} within {show_seconds(self.job.limit / NS_PER_S)}. Give a longer limit, or less work"
        return None

    def ledger(self, replica: int, devices: int = 1) -> Ledger:
        """Return the ledger of one replica, in the categories of a measured one.

        Args:
            replica: Its number, from 0.
            devices: How many devices the job holds; the amounts are device-time.

        Raises:
            ArgumentError: There is no such replica, or no device.
        """
        replicas = self.replicas
        if not hasattr(replica, "__index__") or not 0 <= replica < len(replicas):
            raise ArgumentError(
                f"Cannot show replica {replica}: there are {len(replicas)}, counted from 0",
                "Give a whole number below that",
                "no-such-replica",
                replica=replica,
            )
        check_count("devices", devices)
        return Ledger(
            _nonzero({name: int(ns[replica]) * devices for name, ns in replicas.amounts_ns.items()}),
            held_ns=int(replicas.held_ns[replica]) * devices,
            released_ns=int(replicas.released_ns[replica]) * devices,
            attempts=1 + int(replicas.failures[replica] + replicas.preemptions[replica]),
            ranks=1,
            devices=devices,
            warnings=() if replicas.finished[replica] else ("the job did not finish",),
            saving=Saving(n_failures=int(replicas.failures[replica])),
            runs=(f"simulated replica {replica}",),
        )

    @cached_property
    def mean_ledger(self) -> Ledger:
        """The mean over replicas of one device's ledger; each amount is rounded so that it balances.

        Amounts are rounded down, and the nanoseconds still missing from the mean held time go one each
        to those that lost most by it. Its R is `runtime_goodput` but for that.
        """
        n, amounts = len(self.replicas), self.replicas.amounts_ns
        totals = {name: _total(ns) for name, ns in amounts.items()}
        held = round(Fraction(_total(self.replicas.held_ns), n))
        missing = held - sum(total // n for total in totals.values())
        first = sorted(totals, key=lambda name: -(totals[name] % n))[:missing]
        return Ledger(
            _nonzero({name: total // n + (name in first) for name, total in totals.items()}),
            held_ns=held,
            released_ns=round(Fraction(_total(self.replicas.released_ns), n)),
            ranks=1,
            devices=1,
            warnings=() if self.advice is None else (self.advice,),
            runs=(f"mean of {n} simulated replicas",),
        )


def check_count(name: str, value: Any, least: int = 1, most: int | None = None) -> None:
    """Refuse what is no whole number in a range.

    Raises:
        ArgumentError: It is not.
    """
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        raise ArgumentError(
            f"Cannot simulate {name} = {value!r}: it must be a whole number from {least}"
            + (" on" if most is None else f" to {most}"),
            f"Give a whole number such as {max(least, 1)}",
            "bad-simulation",
            name=name,
        )


def _nonzero(amounts_ns: dict[str, int]) -> dict[str, int]:
    return {name: ns for name, ns in amounts_ns.items() if ns}


def _total(values: Ints) -> int:
    """Return the exact sum, which may be beyond 64 bits."""
    low = (values & 0xFFFFFFFF).sum()
    return (int((values >> 32).sum()) << 32) + int(low)
