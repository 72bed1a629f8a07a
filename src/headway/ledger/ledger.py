"""The ledger: every device-nanosecond once, by category; ledgers add, and their windows are ledgers.

Amounts stay integers until they are shown, and a ratio stays a pair until it is printed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from headway.clock import NS_PER_S
from headway.errors import ArgumentError, LedgerError
from headway.ledger.categories import CATEGORIES, PROGRAM, category

KEYS: Final = ("rank", "attempt", "state", "user", "account", "partition")
"""By what a ledger can be split: the first two of a run, the others of a pool."""
_SOME: Final = "only some of what is summed tell it"
_ORDER: Final = {line.name: place for place, line in enumerate(CATEGORIES)}


@dataclass(frozen=True, slots=True)
class Steps:
    """Counts of steps, over all ranks.

    Attributes:
        executed: Steps done, those done twice counted twice.
        retained: Of them, those neither discarded nor lost.
        uncommitted: Of the retained, those beyond the last save of a run that is not closed yet.
        reworked: Steps discarded because they were done again, or lost.
        rolled_back: Steps given up on purpose.
    """

    executed: int = 0
    retained: int = 0
    uncommitted: int = 0
    reworked: int = 0
    rolled_back: int = 0

    def __add__(self, other: Steps) -> Steps:
        """Return both counts as one."""
        return Steps(
            self.executed + other.executed,
            self.retained + other.retained,
            self.uncommitted + other.uncommitted,
            self.reworked + other.reworked,
            self.rolled_back + other.rolled_back,
        )


@dataclass(frozen=True, slots=True)
class Saving:
    """How a run saves, as far as it says: what a better interval would be computed from.

    Attributes:
        n_saves: Marks that progress was durable.
        n_failures: Attempts of a rank that ended without finishing or being preempted.
        interval_steps: Median distance of two saves [steps]; None with fewer than two.
        save_ns: Mean blocking time of one save [ns]; None where none was recorded.
        step_ns: Median own time of a retained step [ns]; None without steps.
    """

    n_saves: int = 0
    n_failures: int = 0
    interval_steps: int | None = None
    save_ns: int | None = None
    step_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """The longest wait of one step for its data.

    Attributes:
        step: Its number.
        rank, attempt: Whose it was.
        wait_ns: How long [ns].
    """

    step: int
    rank: int
    attempt: str
    wait_ns: int


@dataclass(frozen=True, slots=True)
class Queue:
    """How long the jobs of a pool waited for their devices.

    Attributes:
        n_ran: Jobs that asked for devices and got them.
        n_never_ran: Jobs that asked and did not.
        mean_s, median_s, p99_s, max_s: From submit to start, over those that ran [s]; None where none did.
    """

    n_ran: int
    n_never_ran: int
    mean_s: float | None = None
    median_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None


@dataclass(frozen=True, eq=False)
class Ledger:
    """Where device-time went.

    Attributes:
        amounts_ns: By category, device-time [device-ns]; only what is there. Sums to ``window_ns``.
        held_ns: What was held [device-ns].
        released_ns: Gaps in which the devices were given back; not part of anything else [device-ns].
        offered_ns: What a pool offered [device-ns]; None where no scheduler's log was read.
        waits_ns: ``input_wait`` by phase [device-ns].
        background_ns: Background spans by category, beside the ledger [device-ns].
        steps: Counts of steps.
        attempts, ranks, devices: How many there were; devices over all ranks.
        inferred: Categories that hold time nobody recorded under that name.
        warnings: What is missing, doubtful or was lost, a sentence each.
        start_ns, end_ns: The window on the wall clock [ns since the Unix epoch]; None for an empty ledger.
        parts: The same by rank and attempt; their amounts add to this ledger's.
        saving: What is known of its saves.
        stall: The longest wait of one retained step; None where none waited.
        jobs: How many jobs of a pool got devices.
        queue: How long the jobs of a pool waited; None of a run.
        queues: Told one of the labels of `Part`, returns by that label how long the jobs of a pool waited.
        unknown: Factors that its source cannot tell, each with the reason.
        energy_j: What the devices took, where that was metered [J].
        runs: Names of the runs in it.

    Example:
        >>> day, night = Ledger({"productive": 3}, held_ns=3), Ledger({"recovery": 1}, held_ns=1)
        >>> (day + night).runtime
        0.75
    """

    amounts_ns: Mapping[str, int] = field(default_factory=dict)
    held_ns: int = 0
    released_ns: int = 0
    offered_ns: int | None = None
    waits_ns: Mapping[str, int] = field(default_factory=dict)
    background_ns: Mapping[str, int] = field(default_factory=dict)
    steps: Steps = Steps()
    attempts: int = 0
    ranks: int = 0
    devices: int = 0
    inferred: frozenset[str] = frozenset()
    warnings: tuple[str, ...] = ()
    start_ns: int | None = None
    end_ns: int | None = None
    parts: tuple[Part, ...] = ()
    saving: Saving = Saving()
    stall: Stall | None = None
    jobs: int = 0
    queue: Queue | None = None
    unknown: Mapping[str, str] = field(default_factory=dict)
    energy_j: float | None = None
    runs: tuple[str, ...] = ()
    measure: Callable[[int, int], Ledger] | None = field(default=None, repr=False)
    queues: Callable[[str], Mapping[str, Queue]] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Check the law: the categories sum to the window, exactly.

        Raises:
            LedgerError: They do not, or an amount is negative.
        """
        total = sum(self.amounts_ns.values())
        negative = {name: ns for name, ns in self.amounts_ns.items() if ns < 0}
        if total != self.window_ns or negative:
            raise LedgerError(
                f"Cannot close the ledger of {', '.join(self.runs) or 'a run'}: the categories sum to {total} ns, "
                f"the window is {self.window_ns} ns{f', negative: {negative}' if negative else ''}",
                "Report this with the log: it is a defect of Headway",
                "unbalanced",
                amounts_ns=dict(self.amounts_ns),
                window_ns=self.window_ns,
            )

    @property
    def window_ns(self) -> int:
        """What the categories sum to: what was offered, or what was held where no pool is known [device-ns]."""
        return self.held_ns if self.offered_ns is None else self.offered_ns

    @property
    def of_pool(self) -> bool:
        """Whether it is of the jobs of a pool, and not of a run.

        Example:
            >>> Ledger({"allocated": 5}, held_ns=5).of_pool, Ledger({"startup": 5}, held_ns=5).of_pool
            (True, False)
        """
        return "allocated" in self.amounts_ns or any(part.labels for part in self.parts)

    @property
    def seconds(self) -> dict[str, float]:
        """Device-time by category, those of the table first [device-s]."""
        return {name: ns / NS_PER_S for name, ns in self.sorted_ns()}

    @property
    def fractions(self) -> dict[str, float]:
        """Share of the window by category, in [0, 1]."""
        return {name: ns / self.window_ns for name, ns in self.sorted_ns()}

    def sorted_ns(self) -> list[tuple[str, int]]:
        """Return the amounts in the order of the table, custom ones last [device-ns]."""
        return sorted(self.amounts_ns.items(), key=lambda item: (_ORDER.get(item[0], len(_ORDER)), item[0]))

    def loss_ns(self, factor: str) -> int:
        """Return what was lost at that factor, ``S``, ``R`` or ``P`` [device-ns]."""
        return sum(ns for name, ns in self.amounts_ns.items() if category(name).factor == factor)

    @property
    def retained_ns(self) -> int:
        """Step time that was retained, its program losses included [device-ns]."""
        return self.held_ns - self.loss_ns("R")

    @property
    def scheduling(self) -> float | None:
        """S: held by complete allocations over offered; None where no pool is known."""
        return None if not self.offered_ns or "S" in self.unknown else self.held_ns / self.offered_ns

    @property
    def runtime(self) -> float | None:
        """R: retained over held; None where nothing was held, or its source cannot tell."""
        return None if not self.held_ns or "R" in self.unknown else self.retained_ns / self.held_ns

    @property
    def program(self) -> float | None:
        """P: ideal over retained; None where no trace, stage timing or FLOP count was given, or nothing retained."""
        if not self.retained_ns or "P" in self.unknown or PROGRAM.isdisjoint(self.amounts_ns):
            return None
        return 1 - self.loss_ns("P") / self.retained_ns

    @property
    def mpg(self) -> float | None:
        """MPG = S x R x P, after Wongpanich et al. (2025), arXiv 2502.06982; None while a factor is."""
        if self.scheduling is None or self.runtime is None or self.program is None:
            return None
        return self.scheduling * self.runtime * self.program

    def by(self, key: str) -> dict[str, Ledger]:
        """Return the ledger split; the pieces add to the whole of what was held.

        Args:
            key: ``rank`` or ``attempt`` of a run; ``state``, ``user``, ``account`` or ``partition`` of a pool.

        Raises:
            ArgumentError: It is none of them.
        """
        if key not in KEYS:
            raise ArgumentError(
                f"Cannot split a ledger by {key!r}: it knows {', '.join(KEYS)}",
                "Give one of them",
                "bad-split",
                key=key,
            )
        groups: dict[str, list[Part]] = {}
        for part in self.parts:
            own = {"rank": str(part.rank), "attempt": part.attempt} if not part.labels else part.labels
            groups.setdefault(own.get(key, ""), []).append(part)
        queues = self.queues(key) if self.queues is not None and key not in {"rank", "attempt"} else {}
        for name in queues:  # also of those whose jobs only wait
            groups.setdefault(name, [])
        return {
            name: replace(_group(parts), unknown=self.unknown, queue=queues.get(name)) for name, parts in groups.items()
        }

    def windows(self, every_ns: int | None = None, last_ns: int | None = None) -> Iterator[Ledger]:
        """Yield the ledgers of windows on the wall clock, each measuring the window itself.

        An hour without an event is an hour of loss. The windows of ``every_ns`` begin at the
        start of the run; the last may be shorter. They add to the whole.

        Args:
            every_ns: Length of a window [ns].
            last_ns: Only so much before the end [ns]; alone, it is one window.

        Raises:
            ArgumentError: This ledger cannot be measured again (it was added up by hand),
                or a length is not above zero.
        """
        if self.measure is None or self.start_ns is None or self.end_ns is None:
            raise ArgumentError(
                "Cannot cut this ledger into windows: it has no history",
                "Take the windows of a ledger that headway.account returned",
                "no-history",
            )
        for length in (every_ns, last_ns):
            if length is not None and length <= 0:
                raise ArgumentError(
                    f"Cannot cut windows of {length} ns: the length must be above zero",
                    "Give a longer one",
                    "bad-window",
                )
        begin = self.start_ns if last_ns is None else max(self.start_ns, self.end_ns - last_ns)
        width = every_ns or max(1, self.end_ns - begin)
        for left in range(begin, self.end_ns, width):
            yield self.measure(left, min(left + width, self.end_ns))

    def __add__(self, other: Ledger) -> Ledger:
        """Return both ledgers as one; each instant of a device must be in only one of them."""
        if not isinstance(other, Ledger):
            return NotImplemented
        return combine((self, other))

    def __radd__(self, other: object) -> Ledger:
        """Let ``sum()`` begin with 0."""
        return self if other == 0 else NotImplemented


@dataclass(frozen=True, eq=False)
class Part:
    """The share of one rank of one attempt, the gap before it included.

    Attributes:
        rank: Its rank.
        attempt: Its attempt.
        ledger: What it holds.
        labels: Of a pool instead of rank and attempt: state, user, account and partition of the jobs.
        ended: Why it closed, one of `headway.events.CLOSE_REASONS`; None where it did not.
    """

    rank: int
    attempt: str
    ledger: Ledger
    ended: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)


def combine(ledgers: Sequence[Ledger]) -> Ledger:
    """Return one ledger over several runs, of different devices or times."""
    return Ledger(
        amounts_ns=_sum(ledger.amounts_ns for ledger in ledgers),
        held_ns=sum(ledger.held_ns for ledger in ledgers),
        released_ns=sum(ledger.released_ns for ledger in ledgers),
        offered_ns=_offered(ledgers),
        waits_ns=_sum(ledger.waits_ns for ledger in ledgers),
        background_ns=_sum(ledger.background_ns for ledger in ledgers),
        steps=sum((ledger.steps for ledger in ledgers), Steps()),
        attempts=sum(ledger.attempts for ledger in ledgers),
        ranks=sum(ledger.ranks for ledger in ledgers),
        devices=sum(ledger.devices for ledger in ledgers),
        inferred=frozenset().union(*(ledger.inferred for ledger in ledgers)),
        warnings=tuple(dict.fromkeys(text for ledger in ledgers for text in ledger.warnings)),
        start_ns=_bound(min, [ledger.start_ns for ledger in ledgers if ledger.held_ns]),
        end_ns=_bound(max, [ledger.end_ns for ledger in ledgers if ledger.held_ns]),
        parts=tuple(part for ledger in ledgers for part in ledger.parts),
        stall=max((x.stall for x in ledgers if x.stall), key=lambda stall: stall.wait_ns, default=None),
        jobs=sum(ledger.jobs for ledger in ledgers),
        unknown=_unknown(ledgers),
        runs=tuple(dict.fromkeys(name for ledger in ledgers for name in ledger.runs)),
    )


def _group(parts: Sequence[Part]) -> Ledger:
    """Return the parts as one ledger; a rank of several attempts is one rank, and its devices are the same."""
    devices: dict[int, int] = {}
    own = [part for part in parts if not part.labels]  # a job of a pool is neither rank nor attempt
    for part in own:
        devices[part.rank] = max(part.ledger.devices, devices.get(part.rank, 0))
    return replace(
        combine([part.ledger for part in parts]),
        attempts=len({part.attempt for part in own}),
        ranks=len(devices),
        devices=sum(devices.values()),
        parts=tuple(parts),
    )


def _bound(of: Callable[[list[int]], int], moments: Sequence[int | None]) -> int | None:
    """Return the first or the last of the moments; None where one is not known."""
    known = [at for at in moments if at is not None]
    return of(known) if known and len(known) == len(moments) else None


def _unknown(ledgers: Sequence[Ledger]) -> dict[str, str]:
    """Return what is not known of a sum: what one cannot tell, and P and S where only some tell it."""
    unknown: dict[str, str] = {}
    for factor in dict.fromkeys(factor for ledger in ledgers for factor in ledger.unknown):
        reasons = [ledger.unknown.get(factor, "") for ledger in ledgers if ledger.held_ns or factor in ledger.unknown]
        n_told = reasons.count("")
        unknown[factor] = (
            _SOME if n_told else reasons[0] if len(set(reasons)) == 1 else "none of what is summed tells it"
        )
    sized = {ledger.offered_ns is not None for ledger in ledgers if ledger.of_pool}
    if len(sized) > 1:
        unknown = {"S": "only of some pools it is told how many devices there are", **unknown}
    tells = {not PROGRAM.isdisjoint(ledger.amounts_ns) for ledger in ledgers if ledger.retained_ns}
    return {"P": _SOME, **unknown} if len(tells) > 1 else unknown


def _offered(ledgers: Sequence[Ledger]) -> int | None:
    """Return what was offered in all; a run without a pool counts as offered what it held."""
    if all(ledger.offered_ns is None for ledger in ledgers):
        return None
    return sum(ledger.window_ns for ledger in ledgers)


def _sum(mappings: Iterator[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for mapping in mappings:
        total.update(mapping)
    return dict(total)
