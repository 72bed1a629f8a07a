"""Levers: what can be changed, and what each change is worth, the best first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, Final

from headway.errors import ArgumentError
from headway.ledger.ledger import Ledger
from headway.model.fitting import NO_PROGRESS, RESTART, START, Fit, fit
from headway.model.mtbf import Mtbf
from headway.model.saves import kept_gain, plan_saves
from headway.units import Price, parse_duration, show_seconds

MONTH: Final = "30 d"
"""The time that a gain is counted over."""
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Lever:
    """One change, and what it is worth.

    Attributes:
        name: What is changed, such as ``save_interval``; two levers may share a loss.
        text: What to do, in a sentence.
        where: What to do it with.
        losses: The categories (or the factor) that it takes from.
        loss: Their share of the window, in [0, 1].
        gain: What it adds to goodput: to the product of the factors that are known, in (0, loss].
        low, high: The same where the MTBF is at the limits of its interval; None where it does not
            rest on failures, or where nobody measured them. Below zero it would lose.
        up_to: Whether the gain is a bound, of which some may stay.
        device_hours: What it returns in a month [device-h]; None where the devices are not known.
        money: What that costs [currency]; None without a price.
        outcome: Of the run that it would change: ``ok`` or ``no-progress``.
    """

    name: str
    text: str
    where: str
    losses: tuple[str, ...]
    loss: float
    gain: float
    low: float | None = None
    high: float | None = None
    up_to: bool = False
    device_hours: float | None = None
    money: float | None = None
    outcome: str = "ok"


def levers(source: Any, *, price: Any = None, devices: int | None = None, month: Any = MONTH) -> list[Lever]:
    """Return every lever that would return something, the best first.

    What a shorter restart or another distance between saves returns is the exact renewal form's, see
    `headway.model.saves.kept_gain`, where MTBF, save, restart and interval are known; else it is in
    proportion to the loss, and a bound.

    Args:
        source: A `Ledger`, a `Fit`, or a scenario of goodput or of runtime goodput.
        price: What a device costs: a text such as ``"2 USD/h"``, a quantity, or a number in currency an
            hour. None: the scenario's own, where it has one.
        devices: How many devices there are, where the source does not say or it is another number.
        month: The time that device-hours and money are counted over [time].

    Raises:
        ArgumentError: The source is none of these, or a price, a time or a number of devices cannot be used.

    Example:
        >>> from headway.model.fitting import Fit
        >>> [best, *_] = levers(Fit(devices=512, shares={"productive": 0.93, "input_wait": 0.07}), price=11.2775)
        >>> best.name, best.gain, f"{best.device_hours:,.0f} h", f"{best.money:,.0f} USD"
        ('input_wait', 0.07, '25,805 h', '291,014 USD')
    """
    found, n_devices = _of(source)
    n_devices = n_devices if devices is None else _whole(devices)
    month_h = _month_hours(month)
    cost = price_of(source if price is None else price, given=price is not None)
    valued = []
    for lever in found:
        hours = None if n_devices is None else lever.gain * n_devices * month_h
        money = None if hours is None or cost is None else cost.cost(hours * _HOUR_S)
        valued.append(replace(lever, device_hours=hours, money=money))
    return sorted(valued, key=lambda lever: (-lever.gain, lever.name))


def together(found: Sequence[Lever]) -> float:
    """Return what levers return that take from different losses, the best of each: never more than all losses.

    Example:
        >>> half = Lever("restart", "", "", ("recovery",), 0.2, 0.1)
        >>> whole = Lever("restart_at_once", "", "", ("recovery",), 0.2, 0.2, up_to=True)
        >>> together([half, whole])
        0.2
    """
    taken: set[str] = set()
    total = 0.0
    for lever in sorted(found, key=lambda lever: -lever.gain):
        if taken.isdisjoint(lever.losses):
            taken.update(lever.losses)
            total += lever.gain
    return total


def _of(source: Any) -> tuple[list[Lever], int | None]:
    """Return the levers of a source and its devices."""
    if isinstance(source, Ledger):
        source = fit(source)
    if not isinstance(source, Fit):
        from headway.model.told import tell

        source = tell(source)
    return [*_levers(source)], source.devices


def _levers(told: Fit) -> Iterator[Lever]:
    worth = told.program or 1.0
    for make in _MAKERS:
        lever = _within(make(told, told))
        if lever is not None and lever.gain > 0:
            low, high = _limits(make, told, lever.gain)
            low, high = (None if x is None else x * worth for x in (low, high))
            yield replace(lever, gain=lever.gain * worth, low=low, high=high, outcome=told.outcome)
    yield from _factors(told)


Maker = Callable[[Fit, Fit], Lever | None]
"""Makes a lever of what is known, and values it where the run is as the second says."""


def _within(lever: Lever | None) -> Lever | None:
    """Hold a loss to the whole, and a gain to its loss."""
    if lever is None:
        return None
    loss = min(1.0, lever.loss)
    return replace(lever, loss=loss, gain=min(lever.gain, loss))


def _limits(make: Maker, told: Fit, gain: float) -> tuple[float | None, float | None]:
    """Return the gain where failures come as rarely, and as often, as was seen leaves open."""
    mtbf = told.mtbf
    if make not in _OF_FAILURES or not (mtbf.value_s and mtbf.low_s and mtbf.high_s):
        return None, None
    gains = [gain]
    for limit_s in (mtbf.low_s, mtbf.high_s):
        failing = replace(_failing(told, mtbf.value_s / limit_s), mtbf=Mtbf(limit_s))
        lever = _within(make(told, failing))
        gains.append(0.0 if lever is None else lever.gain)
    return min(gains), max(gains)


def _failing(told: Fit, ratio: float) -> Fit:
    """Return the run with so many times its failures: their losses grow in proportion, the window with them."""
    shares = dict(told.shares)
    added = {"rework": shares.get("rework", 0.0) * (ratio - 1), "recovery": shares.get("recovery", 0.0) * (ratio - 1)}
    starts = told.restart_share - shares.get("recovery", 0.0)
    whole = sum(shares.get(name, 0.0) for name in START)
    added |= {name: starts * shares.get(name, 0.0) / whole * (ratio - 1) for name in START if whole}
    total = 1 + sum(added.values())
    grown = {name: (share + added.get(name, 0.0)) / total for name, share in shares.items()}
    return replace(told, shares=grown, restart_share=told.restart_share * ratio / total)


def _input_wait(told: Fit, then: Fit) -> Lever | None:
    loss = then.shares.get("input_wait", 0.0)
    text = "load ahead of the step: no step waits for its data"
    fits = loss <= told.shares.get("productive", 0.0)
    return Lever("input_wait", text, "the loader: prefetch, more workers", ("input_wait",), loss, loss, up_to=not fits)


def _save_interval(told: Fit, then: Fit) -> Lever | None:
    plan = plan_saves(told)
    if plan is None:
        return None
    rework, saves = then.shares.get("rework", 0.0), then.shares.get("checkpoint_save", 0.0)
    exact = kept_gain(then, interval_s=plan.interval_s)
    gain = plan.gain(rework, saves) if exact is None else exact
    losses = ("rework", "checkpoint_save")
    return Lever("save_interval", plan.change, plan.command, losses, rework + saves, gain, up_to=exact is None)


def _restart(told: Fit, then: Fit) -> Lever | None:
    loss = then.restart_share
    text = f"restart in half the time{_took(told.restart_s)}"
    where = "how soon the end is noticed; headway run --max-restarts; imports, checkpoint, compile cache"
    exact = kept_gain(then, restart_s=None if told.restart_s is None else told.restart_s / 2)
    return Lever("restart", text, where, RESTART, loss, loss / 2 if exact is None else exact, up_to=exact is None)


def _restart_at_once(told: Fit, then: Fit) -> Lever | None:
    loss = then.restart_share
    text = f"restart at once{_took(told.restart_s)}"
    where = "warm spare nodes, a checkpoint in memory; no restart can return more"
    exact = kept_gain(then, restart_s=0.0)
    return Lever("restart_at_once", text, where, RESTART, loss, loss if exact is None else exact, up_to=True)


def _background_saves(told: Fit, then: Fit) -> Lever | None:
    saves, rework = then.shares.get("checkpoint_save", 0.0), then.shares.get("rework", 0.0)
    where = "a writer thread, or the framework's asynchronous save"
    if told.outcome == NO_PROGRESS:
        text = f"save far faster, or in the background{_took(told.save_s)}, a failure every {_every(told)}"
        where = f"{where}; or fewer devices, which fail less often"
        losses = ("checkpoint_save", "rework")
        return Lever("background_saves", text, where, losses, saves + rework, saves + rework, up_to=True)
    text = f"save in the background{_took(told.save_s)}"
    return Lever("background_saves", text, where, ("checkpoint_save",), saves, saves, up_to=True)


def _preemptions(told: Fit, then: Fit) -> Lever | None:
    loss = then.preemption_share or 0.0
    modelled = told.n_preemptions is None
    times = "once" if told.n_preemptions == 1 else f"{told.n_preemptions} times"
    text = "be preempted less" + ("" if modelled else f": it was {times}")
    losses = ("preemption",) if modelled else ("rework", *RESTART)
    where = "the scheduler: priority, reserved devices; a save when the notice comes"
    return Lever("preemptions", text, where, losses, loss, loss, up_to=True)


def _compile(told: Fit, then: Fit) -> Lever | None:
    del told
    loss = then.shares.get("compile", 0.0)
    text = "keep a compilation cache between attempts"
    where = "the compiler's cache folder: on a disk that outlives the attempt"
    return Lever("compile_cache", text, where, ("compile",), loss, loss, up_to=True)


def _evaluation(told: Fit, then: Fit) -> Lever | None:
    del told
    loss = then.shares.get("evaluation", 0.0)
    return Lever(
        "evaluation", "evaluate half as often", "how often, and on how much data", ("evaluation",), loss, loss / 2
    )


def _silent(told: Fit, then: Fit) -> Lever | None:
    del told
    loss = then.shares.get("silent", 0.0)
    where = "the stack of that process (py-spy dump), and a collective's timeout"
    return Lever("hang", "find the hang: a process was silent", where, ("silent",), loss, loss, up_to=True)


_OF_FAILURES: Final = frozenset({_save_interval, _restart, _restart_at_once})
_MAKERS: Final[tuple[Maker, ...]] = (
    _input_wait,
    _save_interval,
    _restart,
    _restart_at_once,
    _background_saves,
    _preemptions,
    _compile,
    _evaluation,
    _silent,
)


def _factors(told: Fit) -> Iterator[Lever]:
    """Yield what a better S, P, and where nothing is known of its losses R, would return."""
    yield from _factor("scheduling", "S", told, "the scheduler: queue, gangs, drained nodes")
    yield from _factor("program", "P", told, "a trace: communication, bubbles, kernels below the peak")
    if not set(told.shares) - {"productive"}:
        yield from _factor("runtime", "R", told, "a recorded run: headway report says what R is lost to")


def _factor(name: str, letter: str, told: Fit, where: str) -> Iterator[Lever]:
    value = getattr(told, name)
    if value is None or not 0 < value < 1:
        return
    ceiling = told.ceilings.get(letter, 1.0)
    before = 1.0 if letter == "S" else told.scheduling or 1.0
    before *= (told.runtime or 1.0) if letter == "P" else 1.0
    others = [x for other in ("scheduling", "runtime", "program") if other != name and (x := getattr(told, other))]
    gain = ceiling - value
    for factor in others:
        gain *= factor
    if gain > 0:
        text = f"better {name} {letter}: {ceiling:.1%}, not {value:.1%}".replace("%", " %")
        yield Lever(name, text, where, (letter,), before * (1 - value), gain, up_to=letter not in told.ceilings)


def _took(seconds: float | None) -> str:
    return "" if seconds is None else f": {show_seconds(seconds)} each"


def _every(told: Fit) -> str:
    return show_seconds(told.mtbf.value_s or 0.0)


def _whole(devices: Any) -> int:
    if _is_number(devices) and devices > 0 and float(devices).is_integer():
        return int(devices)
    raise ArgumentError(
        f"Cannot count devices = {devices!r:.60}: it must be a whole number above zero",
        "Give how many devices the job has",
        "bad-size",
        devices=devices,
    )


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def _month_hours(month: Any) -> float:
    if isinstance(month, str):
        return parse_duration(month) / 1e9 / _HOUR_S
    if hasattr(month, "magnitude"):
        from headway.model.quantities import magnitude

        month = magnitude(month, "second", "month")
    if _is_number(month) and month > 0:
        return float(month) / _HOUR_S
    raise ArgumentError(
        f"Cannot use month = {month!r:.60}: it must be a time above zero, and finite",
        'Give a time such as "30 d"',
        "bad-quantity",
        name="month",
    )


def price_of(source: Any, *, given: bool = True) -> Price | None:
    """Return what a device costs for an hour: a price as a caller may give it, or that of a scenario.

    Args:
        source: A `Price`, a text, a number, a quantity; or a scenario, where ``given`` is false.
        given: Whether it is a price.

    Raises:
        ArgumentError: It is no price, or it is negative or not finite.

    Example:
        >>> price_of("2 EUR/h"), price_of(2)
        (Price(per_device_hour=2.0, currency='EUR'), Price(per_device_hour=2.0, currency='USD'))
    """
    if not given:
        source = getattr(source, "device_hour_rate", None)
        if source is None:
            return None
    if isinstance(source, str):
        return Price.parse(source)
    price = source
    if hasattr(source, "magnitude"):
        from headway.model.quantities import currency, magnitude

        unit = currency(source)
        price = Price(float(magnitude(source, f"{unit}/hour", "price")), unit)
    elif _is_number(source):
        price = Price(float(source))
    if isinstance(price, Price) and _is_number(price.per_device_hour) and price.per_device_hour >= 0:
        return price
    raise ArgumentError(
        f"Cannot use price = {source!r:.60}: it is no amount of money, zero or more, for a time",
        'Write it as "2 USD/h", the price of one device for one hour',
        "bad-price",
    )
