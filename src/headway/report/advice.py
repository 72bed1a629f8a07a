"""What would return most: one change for each loss, the largest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from headway.clock import NS_PER_S
from headway.ledger.categories import category
from headway.ledger.ledger import Ledger
from headway.model.fitting import RESTART, Fit, fit
from headway.model.lever import Lever, levers
from headway.model.saves import plan_saves
from headway.report.endings import endings
from headway.report.phases import shorten_waits
from headway.units import Price, show_seconds

SHOWN: Final = 3
"""How many changes a report shows: what a person can act on."""
MIN_INFERRED: Final = 0.001
"""Share of the window below which what was only inferred is no advice."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change, and what it would return.

    Attributes:
        category: The loss it returns, by its name.
        text: What to do, with the fact it rests on.
        gain: Share of the window that would become productive, in (0, 1]: points of goodput over 100.
        seconds: The same as device-time [device-s].
        money: The same at the price given; None without one [currency].
        where: Where to look, or what to do it with.
        up_to: Whether the gain is a bound, of which some may stay.
    """

    category: str
    text: str
    gain: float
    seconds: float
    money: float | None
    where: str
    up_to: bool


@dataclass(frozen=True, slots=True)
class _Idea:
    text: str
    gain_ns: int
    where: str
    up_to: bool = True


def advise(ledger: Ledger, price: Price | None = None, history: Ledger | None = None) -> list[Change]:
    """Return the changes that would return time, the best first; none for a perfect run.

    No gain is larger than the loss it comes from. What another distance between saves and fewer
    preemptions return is as `headway.model.levers` has it; a gain that is only a bound is the loss.
    Where a source cannot tell a factor, its losses are no advice: what they are a share of is not known.

    Args:
        ledger: Of one run.
        price: What a device-hour costs, for the gain in money.
        history: The whole run, where ``ledger`` is a window of it: how often to save rests on it.

    Example:
        >>> [best, *_] = advise(Ledger({"productive": 60 * 10**9, "recovery": 40 * 10**9}, held_ns=100 * 10**9))
        >>> best.text, best.gain
        ('restart sooner: 40.0 s between attempts', 0.4)
    """
    known = _Known.of(ledger, history or ledger)
    ideas = [
        (name, idea)
        for name, ns in ledger.sorted_ns()
        if ns > 0 and category(name).factor not in {None, *ledger.unknown}
        for idea in _ideas(known, name, ns)
    ]
    ideas += _preempted(known)
    ideas.sort(key=lambda pair: -pair[1].gain_ns)
    return [_change(ledger, name, idea, price) for name, idea in ideas]


@dataclass(frozen=True, slots=True)
class _Known:
    """What the ideas rest on: the ledger, its levers, and the whole run of which it may be a window."""

    ledger: Ledger
    history: Ledger
    told: Fit
    levers: Mapping[str, Lever]

    @classmethod
    def of(cls, ledger: Ledger, history: Ledger) -> _Known:
        if not ledger.held_ns or not history.held_ns:
            return cls(ledger, history, Fit(), {})
        whole = fit(history)
        told = replace(
            fit(ledger),
            startup_s=whole.startup_s, recovery_s=whole.recovery_s, save_s=whole.save_s, step_s=whole.step_s,
            interval_s=whole.interval_s, interval_steps=whole.interval_steps, mtbf=whole.mtbf,
            program=None, scheduling=None,
        )  # fmt: skip
        return cls(ledger, history, told, {lever.name: lever for lever in levers(told)})

    def gain_ns(self, name: str) -> int:
        """Return what a lever returns [device-ns]; 0 where there is none."""
        return round(self.levers[name].gain * self.ledger.window_ns) if name in self.levers else 0


def _change(ledger: Ledger, name: str, idea: _Idea, price: Price | None) -> Change:
    seconds = idea.gain_ns / NS_PER_S
    return Change(
        category=name,
        text=idea.text,
        gain=idea.gain_ns / ledger.window_ns,
        seconds=seconds,
        money=None if price is None else price.cost(seconds),
        where=idea.where,
        up_to=idea.up_to,
    )


def _ideas(known: _Known, name: str, ns: int) -> list[_Idea]:
    """Return what to do about one loss: mostly one thing, or nothing that is worth it."""
    if name == "input_wait":
        return [
            _Idea(each.text, each.gain_ns, each.where, up_to=each.up_to) for each in shorten_waits(known.ledger, ns)
        ]
    idea = _idea(known, name, ns)
    return [] if idea is None or idea.gain_ns <= 0 else [idea]


def _idea(known: _Known, name: str, ns: int) -> _Idea | None:
    if name in _OF_LEVERS:
        return _OF_LEVERS[name](known, ns)
    if name in _SPECIAL:
        return _SPECIAL[name](known.ledger, ns)
    remedy = _REMEDY.get(name, category(name).remedy)
    return _Idea(f"{remedy}: {name} took {_show(ns)}", ns, _WHERE.get(name, "that span in the training script"))


def _rework(known: _Known, ns: int) -> _Idea | None:
    saving, steps = known.history.saving, known.ledger.steps.reworked
    what = _show(ns) if not steps else "1 step" if steps == 1 else f"{steps} steps"
    lost = f"{what} done again or lost"
    if not saving.n_saves:
        return _Idea(f"save, and record it: {lost}", ns, "rec.saved(step) after each save tells how often to save")
    if not saving.n_failures:
        return _Idea(f"save when the notice of an end comes: {lost}", ns, "the handler of SIGTERM or of preemption")
    lever = known.levers.get("save_interval")
    if lever is not None:
        if not _more_often(known):
            return None
        return _Idea(lever.text, min(ns, known.gain_ns(lever.name)), lever.where, up_to=lever.up_to)
    if saving.save_ns is None or saving.interval_steps is None:
        where = "a span checkpoint_save round each save tells how often to save"
        return _Idea(f"save more often: {lost}", ns, where)
    return None


def _checkpoint_save(known: _Known, ns: int) -> _Idea:
    """The other side of the same interval: it never says the opposite of what `_rework` says."""
    lever, plan = known.levers.get("save_interval"), plan_saves(known.told)
    where = _IN_BACKGROUND
    if lever is not None and plan is not None and not plan.more_often:
        where = f"or {plan.every}: {_show(known.gain_ns(lever.name))} less; {plan.command}"
    return _Idea(f"save in the background: blocking saves took {_show(ns)}", ns, where)


def _more_often(known: _Known) -> bool:
    plan = plan_saves(known.told)
    return plan is not None and plan.more_often


def _recovery(ledger: Ledger, ns: int) -> _Idea:
    """The part between attempts of what a restart at once takes from: as a bound, like that of the starts."""
    del ledger
    return _Idea(f"restart sooner: {_show(ns)} between attempts", ns, _WHERE["recovery"])


def _preempted(known: _Known) -> list[tuple[str, _Idea]]:
    lever = known.levers.get("preemptions")
    if lever is None:
        return []
    amounts = known.ledger.amounts_ns
    most = max(("rework", *RESTART), key=lambda name: amounts.get(name, 0))
    return [(most, _Idea(lever.text, min(amounts.get(most, 0), known.gain_ns(lever.name)), lever.where))]


def _silent(ledger: Ledger, ns: int) -> _Idea:
    """Name the rank that was silent longest: the others may only have waited for it."""
    by_rank = {name: part.amounts_ns.get("silent", 0) for name, part in ledger.by("rank").items()}
    rank = max(by_rank, key=by_rank.__getitem__, default=None)
    who = "a process was" if rank is None else f"rank {rank} was"
    length = ns if rank is None else by_rank[rank]
    return _Idea(f"find the hang: {who} silent for {_show(length)}", ns, _WHERE["silent"])


def _compile(ledger: Ledger, ns: int) -> _Idea | None:
    if "compile" in ledger.inferred and ns < MIN_INFERRED * ledger.window_ns:
        return None
    sure = " (inferred)" if "compile" in ledger.inferred else ""
    text = f"keep a compilation cache between attempts: {_show(ns)}{sure}"
    return _Idea(text, ns, _WHERE["compile"])


def _unfinished(ledger: Ledger, ns: int) -> _Idea:
    """Name what an end in the middle of a step cost; a hang that is found late shows here too."""
    del ledger
    return _Idea(f"lose less to an end in the middle of a step: {_show(ns)} were cut off", ns, _WHERE["unfinished"])


def _unaccounted(ledger: Ledger, ns: int) -> _Idea:
    del ledger
    return _Idea(f"put a span around it: {_show(ns)} have no name", ns, _WHERE["unaccounted"])


def _unrecorded(ledger: Ledger, ns: int) -> _Idea:
    """What a launcher knows of a command that records nothing itself."""
    ends = [reason for reasons in endings(ledger).values() for reason in reasons]
    if ends and set(ends) <= {"failed", "signal"}:
        text = f"find why the command failed: it recorded nothing in its {_show(ns)}"
        return _Idea(text, ns, "what it printed; the exit codes are in the warnings")
    return _Idea(f"record the command's steps: {_show(ns)} are not divided", ns, "headway.track(loader) in its script")


def _show(ns: int) -> str:
    return show_seconds(ns / NS_PER_S)


_OF_LEVERS: Final[Mapping[str, Callable[[_Known, int], _Idea | None]]] = {
    "rework": _rework,
    "checkpoint_save": _checkpoint_save,
}
_IN_BACKGROUND: Final = "a writer thread, or the framework's asynchronous save"

_SPECIAL: Final[Mapping[str, Callable[[Ledger, int], _Idea | None]]] = {
    "custom:unfinished_step": _unfinished,
    "recovery": _recovery,
    "silent": _silent,
    "compile": _compile,
    "unaccounted": _unaccounted,
    "custom:unrecorded": _unrecorded,
}

_REMEDY: Final[Mapping[str, str]] = {"startup": "build less before the first step"}
"""Where the table's remedy, short as it is, does not say what it is about."""

_WHERE: Final[Mapping[str, str]] = {
    "startup": "imports, data and model built before the first step",
    "device_init": "start-up of devices and process groups",
    "compile": "the compiler's cache folder: on a disk that outlives the attempt",
    "checkpoint_restore": "where the checkpoint lies, and how many read it at once",
    "evaluation": "how often, and on how much data",
    "rollback": "loss and gradient norm, watched as they come",
    "recovery": "how soon the end is noticed, and how long the program takes to start; "
    "headway run --max-restarts N -- CMD restarts at once",
    "silent": "the stack of that process (py-spy dump), and a collective's timeout",
    "shutdown": "what runs after the last step",
    "unfinished": "why it ended there, and how soon a hang was noticed",
    "unaccounted": "rec = headway.start(...); then with rec.span(NAME): round it",
    "queued": "the scheduler's queue: partition, priority, size of the request",
    "partial_gang": "the scheduler's gang or co-scheduling rules",
    "unallocated": "the pool's queue against what it offers",
    "drained": "the nodes that are down or draining, and why",
    "exposed_communication": "the trace: collectives that no kernel runs beside",
    "bubble": "stage timings: the slowest stage sets the pace; of one micro-batch the others always wait",
    "host_gap": "the trace: gaps between kernels",
    "below_peak": "the trace: the kernels that take longest",
}
"""Where to look; a span of the user's own is looked for in the user's own script."""
