"""The simulator: a job on devices that fail, thousands of times over, with the ledger of each."""

from __future__ import annotations

from typing import Any, Literal

from headway.clock import NS_PER_S
from headway.model.failuretimes import Exponential
from headway.model.replicas import Job, run
from headway.model.simulatedjob import (
    LIMIT_S,
    LIMIT_WORKS,
    check_length,
    failure_times,
    fraction,
    mean_ns,
    refuse,
    saving_plan,
    time_ns,
)
from headway.model.simulation import Replicas, Simulation, check_count

__all__ = ["Simulation", "simulate"]


def simulate(
    *,
    work: Any,
    interval: Any,
    save: Any,
    mtbf: Any = None,
    shape: float = 1.0,
    replay: Any = None,
    replay_order: Literal["resample", "in-order"] = "resample",
    restart: Any = 0,
    startup: Any = 0,
    load: Any = 0,
    background: bool = False,
    slowdown: float = 0.0,
    durable_every: int | None = None,
    durable_save: Any = None,
    local_loss: float | None = None,
    spares: int | None = None,
    repair: Any = 0,
    preemption: Any = None,
    notice: Any = 0,
    gap: Any = 0,
    limit: Any = None,
    replicas: int = 1000,
    seed: int = 0,
) -> Simulation:
    """Return how a job of so much work fares on devices that fail.

    Failures strike at any instant the devices are held and not waiting for a node: in work, in saves
    and in recovery, which then begins anew. With exponential failures, blocking saves of d after each
    t of work, and R of recovery, the mean is the exact renewal form t / (M e^(R/M) (e^((t+d)/M) - 1)),
    of which Daly (2006) is the expansion. The last work is saved too, by a blocking save.

    Every time is a number in seconds, a text such as ``"4 h"`` or a pint quantity, at most ten years,
    and is rounded to the nanosecond once; from there on all is integer, so that a replica's categories
    sum to what it held exactly.

    Args:
        work: Useful step time the job needs [time], > 0.
        interval: Work between saves [time], > 0.
        save: Time of one save [time].
        mtbf: Mean time between failures of the whole job [time]; infinity for none.
        shape: Weibull shape of the times between failures, in [0.1, 100]; 1 is exponential. The times
            are independent: after a failure the devices are as good as new.
        replay: In place of `mtbf`: real times between failures [time], a list or array.
        replay_order: ``resample`` draws each from the list anew, with replacement; ``in-order`` lets
            each replica begin at a random one and go round the list.
        restart: After a failure or preemption, until the processes start [time]: `recovery`.
        startup: From there to the first step, and before the first of all [time]: `startup`.
        load: Then, reading the checkpoint [time]: `checkpoint_restore`.
        background: Saves run beside the loop, and are durable `save` after they began. An interval is
            then at least a save long.
        slowdown: Share of its time the loop loses while a background save runs, in [0, 1).
        durable_every: Two levels: `save` is local, and each so-manieth save is a durable one instead.
        durable_save: Time of a durable save of two levels [time].
        local_loss: Probability that a failure takes the local saves, in [0, 1]. A preemption does always.
        spares: Number of spare nodes, up to 1000: a failure takes one at once, or waits for the first
            repair: `recovery`. None: there is always one.
        repair: From the failure of a node until it is a spare [time].
        preemption: Mean time between preemptions, exponential, of time held and not waiting for a
            node [time]; None for none.
        notice: How long before it a preemption is announced [time]. Enough for a durable save, the job
            saves at once and leaves (no failure strikes in that save); else work since the last save is lost.
        gap: After a preemption, until the devices are back [time]: released, not held.
        limit: A replica that is struck after so long, held or released, is stopped there [time];
            1000 x `work`, at most 100 years, where None. So is one that was struck 10,000 times without
            getting on, or 1,000,000 times in all. What is not durable then counts as rework.
        replicas: How many to simulate. The first ones are the same however many there are.
        seed: Seed of the random stream, >= 0.

    Raises:
        ArgumentError: An argument cannot be used, or contradicts another.

    Example:
        >>> llama = simulate(work="51.25 day", interval="5 min", save="10 s", mtbf="3.093 h", restart="5 min")
        >>> print(f"{llama.runtime_goodput:.3f}", llama.outcome)
        0.929 finished
        >>> max(llama.mean_ledger.fractions, key=llama.mean_ledger.fractions.get)
        'productive'
    """
    check_count("replicas", replicas)
    check_count("seed", seed, least=0)
    if spares is not None:
        check_count("spares", spares, least=0, most=1000)
    _check_pairs(
        durable_every=durable_every,
        durable_save=durable_save,
        local_loss=local_loss,
        spares=spares,
        repair=repair,
        preemption=preemption,
        notice=notice,
        gap=gap,
    )
    plan = saving_plan(
        interval, save, background=background, slowdown=slowdown, durable_every=durable_every, durable_save=durable_save
    )
    needs = time_ns("work", work, above_zero=True)
    check_length(needs, plan)
    longest = min(LIMIT_WORKS * needs, LIMIT_S * NS_PER_S)
    announced = time_ns("notice", notice)
    job = Job(
        work=needs,
        plan=plan,
        failures=failure_times(mtbf, shape, replay, replay_order),
        restart=time_ns("restart", restart),
        startup=time_ns("startup", startup),
        load=time_ns("load", load),
        preemptions=None if preemption is None else Exponential(mean_ns("preemption", preemption)),
        notice=0 < announced >= plan.durable_save,
        gap=time_ns("gap", gap),
        local_loss=fraction("local_loss", 0.0 if local_loss is None else local_loss),
        spares=spares,
        repair=time_ns("repair", repair),
        limit=longest if limit is None else time_ns("limit", limit, above_zero=True, longest_s=LIMIT_S),
    )
    return Simulation(job, int(seed), Replicas.of(run(job, int(replicas), int(seed)), needs))


def _check_pairs(
    *,
    durable_every: int | None,
    durable_save: Any,
    local_loss: float | None,
    spares: int | None,
    repair: Any,
    preemption: Any,
    notice: Any,
    gap: Any,
) -> None:
    """Refuse arguments that say nothing without another, or leave open what it is."""
    levels = [durable_every is None, durable_save is None, local_loss is None]
    if any(levels) and not all(levels):
        raise refuse("two levels of saves", "Give durable_every, durable_save and local_loss, or none of them")
    if durable_every is not None:
        check_count("durable_every", durable_every)
    if (spares is None) != (time_ns("repair", repair) == 0):
        raise refuse("repairs", "Give both spares and repair, or neither: without them there is always a spare")
    if preemption is None and (time_ns("notice", notice) or time_ns("gap", gap)):
        raise refuse("notice or gap without preemption", "Give preemption, the mean time between two")
