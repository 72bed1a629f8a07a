"""From the arguments of a simulation to a job in integer nanoseconds: units, limits, contradictions."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.errors import ArgumentError
from headway.model.failuretimes import Exponential, FailureTimes, Replayed, Weibull
from headway.model.quantities import magnitude
from headway.model.savingplan import Background, Blocking, SavingPlan, TwoLevel

YEAR_S: Final = 31_557_600
"""A Julian year, 365.25 days [s]."""
LONGEST_S: Final = 10 * YEAR_S
"""The longest time an argument may be, 10 years [s]: all sums then fit 64-bit nanoseconds."""
LIMIT_S: Final = 10 * LONGEST_S
"""The longest a replica is simulated, 100 years [s]."""
LIMIT_WORKS: Final = 1000
"""The limit where none is given, in multiples of the work."""


def refuse(what: str, next_step: str, **details: Any) -> ArgumentError:
    """Return the error of arguments that cannot be simulated."""
    return ArgumentError(f"Cannot simulate {what}", next_step, "bad-simulation", **details)


def time_ns(name: str, value: Any, *, above_zero: bool = False, longest_s: float = LONGEST_S) -> int:
    """Return a time argument to the nearest nanosecond [ns].

    Raises:
        ArgumentError: It is no time, negative, longer than the limit, or rounds to 0 where it must not.

    Example:
        >>> time_ns("save", "30 s")
        30000000000
    """
    seconds = magnitude(value, "second", name)
    if not isinstance(seconds, float) or not 0 <= seconds <= longest_s:
        shown = f"{seconds} s" if isinstance(seconds, float) else "an array"
        raise refuse(f"{name} = {shown}: it must be 0 to {longest_s / YEAR_S:g} years", "Give one such time", name=name)
    found = round(seconds * NS_PER_S)
    if above_zero and not found:
        raise refuse(f"{name} = {seconds} s: it must be at least 1 ns", "Give a longer time", name=name)
    return found


def mean_ns(name: str, value: Any) -> float:
    """Return a mean time between strikes, infinite for none [ns].

    Raises:
        ArgumentError: It is no time, or below a nanosecond.
    """
    seconds = magnitude(value, "second", name)
    if not isinstance(seconds, float) or not seconds * NS_PER_S >= 1:
        shown = f"{seconds} s" if isinstance(seconds, float) else "an array"
        raise refuse(f"{name} = {shown}: it must be at least 1 ns", 'Give a time such as "4 h"', name=name)
    return seconds * NS_PER_S


def fraction(name: str, value: float, *, below_one: bool = False) -> float:
    """Return an argument that is a share.

    Raises:
        ArgumentError: It is outside [0, 1], or 1 where that would stop the job for good.
    """
    found = magnitude(value, "dimensionless", name)
    if not isinstance(found, float) or not 0 <= found <= 1 or (below_one and found == 1):
        limit = "in [0, 1)" if below_one else "in [0, 1]"
        raise refuse(f"{name} = {value}: it must be {limit}", "Give a share such as 0.1", name=name)
    return found


def failure_times(mtbf: Any, shape: float, replay: Any, replay_order: Any) -> FailureTimes:
    """Return where failures come from.

    Raises:
        ArgumentError: There are two answers or none, or one that cannot be used.
    """
    if not isinstance(replay_order, str) or replay_order not in {"resample", "in-order"}:
        raise refuse(f"replay_order = {replay_order!r}: it is resample or in-order", "Give one of the two")
    form = magnitude(shape, "dimensionless", "shape")
    if not isinstance(form, float) or not 0.1 <= form <= 100:
        raise refuse(f"shape = {shape}: it must be 0.1 to 100", "Give a Weibull shape such as 0.7, or 1", shape=shape)
    if (mtbf is None) == (replay is None):
        raise refuse("failures: they come from mtbf or from replay", "Give one of the two")
    if replay is not None:
        if form != 1:
            raise refuse(f"shape = {shape} with replay: the list has its own", "Leave one of them out")
        return _replayed(replay, replay_order)
    mean = mean_ns("mtbf", mtbf)
    return Exponential(mean) if form == 1 or math.isinf(mean) else Weibull(mean, form)


def _replayed(replay: Any, order: str) -> Replayed:
    listed = isinstance(replay, list | tuple)
    found = (
        [magnitude(value, "second", "replay") for value in replay] if listed else magnitude(replay, "second", "replay")
    )
    seconds = np.atleast_1d(np.asarray(found, dtype=float))
    usable = seconds.ndim == 1 and len(seconds) and (seconds * NS_PER_S >= 1).all() and (seconds <= LIMIT_S).all()
    if not usable:
        raise refuse(
            f"replay of {seconds.size} times: each must be 1 ns to {LIMIT_S / YEAR_S:g} years, and one there must be",
            "Give the times between failures, such as [3600, 7200]",
        )
    return Replayed(np.rint(seconds * NS_PER_S).astype(np.int64), in_order=order == "in-order")


def saving_plan(
    interval: Any, save: Any, *, background: bool, slowdown: float, durable_every: int | None, durable_save: Any
) -> SavingPlan:
    """Return how the job saves.

    Raises:
        ArgumentError: Arguments of two plans are mixed, or one cannot be used.
    """
    if not isinstance(background, bool | np.bool_):
        raise refuse(f"background = {background!r}: it is True or False", "Give one of the two")
    each, cost = time_ns("interval", interval, above_zero=True), time_ns("save", save)
    slow = fraction("slowdown", slowdown, below_one=True)
    if slow and not background:
        raise refuse(f"slowdown = {slow} of a blocking save: the loop stands still", "Add background=True")
    if durable_every is None:
        if background:
            taken = round(slow * cost)
            return Background(max(each, cost - taken), cost, taken)
        return Blocking(each, cost)
    if background:
        raise refuse("two levels of saves in the background: only blocking ones have levels", "Leave one of them out")
    return TwoLevel(each, cost, time_ns("durable_save", durable_save), durable_every)


def check_length(work: int, plan: SavingPlan) -> None:
    """Refuse a job that would be too long without any failure.

    Raises:
        ArgumentError: It is.
    """
    saves = work // plan.interval + 1
    longest = work + saves * (plan.durable_save + getattr(plan, "save", 0))
    if longest > LIMIT_S * NS_PER_S:
        raise refuse(
            f"{saves} saves: with them the job takes {longest / NS_PER_S / YEAR_S:.3g} years without a failure, "
            f"the limit is {LIMIT_S / YEAR_S:g}",
            "Give a longer interval, or a shorter save",
        )
