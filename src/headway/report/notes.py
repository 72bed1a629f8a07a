"""The words beside the amounts: a note for a category, the header, and what stands beside the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from headway.clock import NS_PER_S
from headway.ledger.ledger import Ledger, Queue
from headway.units import show_percent, show_seconds

_FIRST_NS: Final = 86_400 * 365 * NS_PER_S
"""Before 1971 no clock was: it is counted from somewhere else."""
_SMALL_J: Final = 36_000
"""Less energy than that is shown in joules [J]."""
_DAY: Final = len("2023-11-14")
_TO_GIVE: Final = {"S": "a scheduler's log", "P": "a trace, stage timings or a FLOP count"}


def note(ledger: Ledger, name: str) -> str:
    """Return what explains an amount: its phases, its steps, whether it was inferred.

    Example:
        >>> note(Ledger({"input_wait": 5 * 10**9}, held_ns=5 * 10**9, waits_ns={"source": 5 * 10**9}), "input_wait")
        'source 5.0 s'
    """
    notes = {
        "input_wait": _phases(ledger),
        "rework": _steps(ledger.steps.reworked, "done again or lost"),
        "rollback": _steps(ledger.steps.rolled_back, "given up"),
    }
    words = [notes.get(name, ""), "inferred" if name in ledger.inferred else ""]
    return ", ".join(word for word in words if word)


def size(ledger: Ledger) -> str:
    """Return how large a run was; what separates the parts is left to the caller.

    Example:
        >>> size(Ledger(attempts=2, ranks=4, devices=32))
        '2 attempts | 4 ranks x 8 devices'
    """
    if ledger.of_pool:
        words = [_count(ledger.jobs, "job")] if ledger.jobs else []
        return " | ".join([*words, _count(ledger.devices, "device") if ledger.devices else "devices not known"])
    attempts, ranks = _count(ledger.attempts, "attempt"), _count(ledger.ranks, "rank")
    if ledger.ranks and ledger.devices % ledger.ranks == 0:
        return f"{attempts} | {ranks} x {_count(ledger.devices // ledger.ranks, 'device')}"
    return f"{attempts} | {ranks} | {_count(ledger.devices, 'device')}"


def size_of_sum(ledger: Ledger) -> str:
    """Return how large several runs were; the same devices may have held one after the other.

    Example:
        >>> size_of_sum(Ledger(attempts=3, ranks=3, devices=3))
        '3 attempts'
    """
    return _count(ledger.jobs, "job") if ledger.of_pool else _count(ledger.attempts, "attempt")


def factors(ledger: Ledger) -> tuple[str, str]:
    """Return the factors that are known, and the line that says what the others need.

    Example:
        >>> factors(Ledger({"productive": 1}, held_ns=1))[0]
        'runtime goodput R 100.0 %   S, P not measured'
    """
    values = {
        "S": ledger.scheduling,
        "runtime goodput R": ledger.runtime,
        "P": ledger.program,
        "MPG": ledger.mpg,
    }
    known = [f"{name} {show_percent(value)}" for name, value in values.items() if value is not None]
    missing = [name for name, value in values.items() if value is None and name in _TO_GIVE]
    if ledger.runtime is None:
        known.append("R not known" if "R" in ledger.unknown else "R not known: nothing was held")
    if missing:
        known.append(f"{', '.join(missing)} not measured")
    missing = [name for name in missing if name not in ledger.unknown]
    if ledger.of_pool:
        need = "what jobs held: their scheduler's log" if ledger.devices else "the number of devices: --capacity"
        if ledger.start_ns is not None and ledger.start_ns == ledger.end_ns:
            need = "a stretch of time, and this is one moment"
        return "   ".join(known), f"S needs {need}" if "S" in missing else ""
    needs = [f"{name} needs {_TO_GIVE[name]}" for name in missing[:1]]
    needs += [f"{name} {_TO_GIVE[name]}" for name in missing[1:]]
    return "   ".join(known), ", ".join(needs)


def beside(ledger: Ledger) -> list[str]:
    """Return what is no part of the table: steps, released gaps, background spans."""
    lines = [*_when(ledger)]
    steps = ledger.steps
    if steps.executed:
        pending = f", {steps.uncommitted} of them not saved yet" if steps.uncommitted else ""
        lines.append(f"{_count(steps.executed, 'step')} executed, {steps.retained} retained{pending}")
    lines += [f"{factor} is not known: {why}" for factor, why in ledger.unknown.items()]
    if ledger.queue is not None:
        lines.append(f"queue: {_waited(ledger.queue)}")
    if ledger.energy_j is not None:
        each = f", {ledger.energy_j / steps.retained:,.0f} J a retained step" if steps.retained else ""
        used = f"{ledger.energy_j / 3.6e6:,.3f} kWh" if ledger.energy_j >= _SMALL_J else f"{ledger.energy_j:,.1f} J"
        lines.append(f"energy {used}{each}")
    if ledger.released_ns:
        lines.append(f"released between attempts, not held: {_show(ledger.released_ns)}")
    if ledger.background_ns:
        spans = ", ".join(f"{name} {_show(ns)}" for name, ns in ledger.background_ns.items())
        lines.append(f"in the background, beside the table: {spans}")
    return lines


def _waited(queue: Queue) -> str:
    """Return how long jobs waited, and how many never ran."""
    said = []
    spread = {"median": queue.median_s, "p99": queue.p99_s, "most": queue.max_s}
    if queue.mean_s is not None:
        shown = [f"{name} {show_seconds(value)}" for name, value in spread.items() if value is not None]
        mean = f"{_count(queue.n_ran, 'job')} waited {show_seconds(queue.mean_s)} on average"
        said.append(", ".join([mean, *shown]))
    if queue.n_never_ran:
        said.append(f"{_count(queue.n_never_ran, 'job')} never ran")
    return "; ".join(said)


def biggest_loss(ledger: Ledger) -> str:
    """Return the largest loss with its amount; an empty text where nothing was lost."""
    losses = {name: ns for name, ns in ledger.amounts_ns.items() if name not in {"productive", "allocated"} and ns > 0}
    if not losses:
        return ""
    name = max(losses, key=losses.__getitem__)
    return f"{name} {_show(losses[name])}"


def _when(ledger: Ledger) -> Iterator[str]:
    """Yield from when to when it was, where a clock tells."""
    if ledger.start_ns is not None and ledger.end_ns is not None and ledger.start_ns > _FIRST_NS:
        begin, end = moment(ledger.start_ns), moment(ledger.end_ns)
        if begin[:_DAY] == end[:_DAY]:
            end = end[_DAY + 1 :]
        yield f"from {begin} to {end} UTC: {_show(ledger.end_ns - ledger.start_ns)}"


def moment(ns: int | None) -> str:
    """Return a moment of the wall clock, UTC to the second; a dash for none.

    Example:
        >>> moment(1_700_000_000 * 10**9)
        '2023-11-14 22:13:20'
    """
    return "-" if ns is None else datetime.fromtimestamp(ns // NS_PER_S, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")


def is_mild(warning: str) -> bool:
    """Return whether a warning is only of what a run could say besides."""
    return warning.startswith("saves not recorded")


def _phases(ledger: Ledger) -> str:
    waits = sorted(ledger.waits_ns.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {_show(ns)}" for name, ns in waits if ns > 0)


def _steps(n: int, what: str) -> str:
    """A window is measured in time alone: where no step was counted nothing is said."""
    return f"{_count(n, 'step')} {what}" if n else ""


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _show(ns: int) -> str:
    return show_seconds(ns / NS_PER_S)
