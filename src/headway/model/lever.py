"""Levers: what can be changed, and what each change is worth, the best first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from headway.errors import ArgumentError
from headway.ledger.ledger import Ledger
from headway.model.fitting import RESTART, START, Fit, fit
from headway.model.saves import plan_saves
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


def levers(source: Any, *, price: Any = None, devices: int | None = None, month: Any = MONTH) -> list[Lever]:
    """Return every lever that would return something, the best first.

    Args:
        source: A `Ledger`, a `Fit`, or a scenario of goodput or of runtime goodput.
        price: What a device costs: a text such as ``"2 USD/h"``, or a number in currency an hour.
        devices: How many devices there are, where the source does not say or it is another number.
        month: The time that device-hours and money are counted over [time].

    Raises:
        ArgumentError: The source is none of these, or a price or a time cannot be read.

    Example:
        >>> from headway.model.fitting import Fit
        >>> [best, *_] = levers(Fit(devices=512, shares={"productive": 0.93, "input_wait": 0.07}), price=11.2775)
        >>> best.name, best.gain, f"{best.device_hours:,.0f} h", f"{best.money:,.0f} USD"
        ('input_wait', 0.07, '25,805 h', '291,014 USD')
    """
    found, n_devices = _of(source)
    n_devices = devices or n_devices
    month_h = _month_hours(month)
    cost = _price(price)
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
        lever = make(told)
        if lever is not None and lever.gain > 0:
            low, high = _limits(make, told, worth)
            yield replace(lever, gain=lever.gain * worth, low=low, high=high)
    yield from _factors(told)


Maker = Callable[[Fit], Lever | None]


def _limits(make: Maker, told: Fit, worth: float) -> tuple[float | None, float | None]:
    """Return the gain where failures come as rarely, and as often, as was seen leaves open."""
    mtbf = told.mtbf
    if make not in _OF_FAILURES or not (mtbf.value_s and mtbf.low_s and mtbf.high_s):
        return None, None
    gains = []
    for limit_s in (mtbf.low_s, mtbf.high_s):
        lever = make(_failing(told, mtbf.value_s / limit_s))
        gains.append(0.0 if lever is None else lever.gain * worth)
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


def _input_wait(told: Fit) -> Lever | None:
    loss = told.shares.get("input_wait", 0.0)
    text = "load ahead of the step: no step waits for its data"
    fits = loss <= told.shares.get("productive", 0.0)
    return Lever("input_wait", text, "the loader: prefetch, more workers", ("input_wait",), loss, loss, up_to=not fits)


def _save_interval(told: Fit) -> Lever | None:
    plan = plan_saves(told)
    if plan is None:
        return None
    rework, saves = told.shares.get("rework", 0.0), told.shares.get("checkpoint_save", 0.0)
    losses = ("rework", "checkpoint_save")
    return Lever("save_interval", plan.change, plan.command, losses, rework + saves, plan.gain(rework, saves))


def _restart(told: Fit) -> Lever | None:
    loss = told.restart_share
    text = f"restart in half the time{_took(told.restart_s)}"
    where = "how soon the end is noticed; headway run --max-restarts; imports, checkpoint, compile cache"
    return Lever("restart", text, where, RESTART, loss, loss / 2)


def _restart_at_once(told: Fit) -> Lever | None:
    loss = told.restart_share
    text = f"restart at once{_took(told.restart_s)}"
    where = "warm spare nodes, a checkpoint in memory; no restart can return more"
    return Lever("restart_at_once", text, where, RESTART, loss, loss, up_to=True)


def _background_saves(told: Fit) -> Lever | None:
    loss = told.shares.get("checkpoint_save", 0.0)
    text = f"save in the background{_took(told.save_s)}"
    where = "a writer thread, or the framework's asynchronous save"
    return Lever("background_saves", text, where, ("checkpoint_save",), loss, loss, up_to=True)


def _preemptions(told: Fit) -> Lever | None:
    loss = told.preemption_share or 0.0
    modelled = told.n_preemptions is None
    times = "once" if told.n_preemptions == 1 else f"{told.n_preemptions} times"
    text = "be preempted less" + ("" if modelled else f": it was {times}")
    losses = ("preemption",) if modelled else ("rework", *RESTART)
    where = "the scheduler: priority, reserved devices; a save when the notice comes"
    return Lever("preemptions", text, where, losses, loss, loss, up_to=True)


def _compile(told: Fit) -> Lever | None:
    loss = told.shares.get("compile", 0.0)
    text = "keep a compilation cache between attempts"
    where = "the compiler's cache folder: on a disk that outlives the attempt"
    return Lever("compile_cache", text, where, ("compile",), loss, loss, up_to=True)


def _evaluation(told: Fit) -> Lever | None:
    loss = told.shares.get("evaluation", 0.0)
    return Lever(
        "evaluation", "evaluate half as often", "how often, and on how much data", ("evaluation",), loss, loss / 2
    )


def _silent(told: Fit) -> Lever | None:
    loss = told.shares.get("silent", 0.0)
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


def _month_hours(month: Any) -> float:
    if isinstance(month, str):
        return parse_duration(month) / 1e9 / _HOUR_S
    if not isinstance(month, float | int):
        from headway.model.quantities import magnitude

        month = magnitude(month, "second", "month")
    return float(month) / _HOUR_S


def _price(price: Any) -> Price | None:
    if price is None or isinstance(price, Price):
        return price
    if isinstance(price, str):
        return Price.parse(price)
    if isinstance(price, float | int):
        return Price(float(price))
    if hasattr(price, "to"):
        return Price(float(price.to("USD/hour").magnitude))
    raise ArgumentError(
        f"Cannot use price = {price!r:.60}: it is no amount of money for a time",
        'Write it as "2 USD/h", the price of one device for one hour',
        "bad-price",
    )
