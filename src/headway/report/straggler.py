"""Ranks beside each other: how their waits and their work spread, and who holds the others up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Final

from headway.clock import NS_PER_S
from headway.ledger.ledger import Ledger
from headway.report.phases import data_wait_ns, peer_wait_ns
from headway.units import show_seconds

MIN_SPREAD: Final = 0.02
"""Share of held time by which a rank's wait must differ from the median of the others. Waits of equal
ranks differ by a percent or so from one run to the next: below this a name would be an accident."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Least, middle and most over ranks [device-s]."""

    min_s: float
    median_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Ranks of a run, compared.

    Attributes:
        wait: Their ``input_wait``.
        productive: Their productive time.
        bubble: What they waited for the other stages of a pipeline; None where nobody measured it.
        straggler: The rank that waits least for the others while they wait; None where none stands out.
        straggler_wait_s: How long it waited for them [device-s]; None without one.
        slowest_loader: The rank that waits longest for its data; None where none stands out.
        slowest_loader_wait_s: How long it waited [device-s]; None without one.
        others_wait_s: Median of what the others waited for theirs [device-s]; None without one.
    """

    wait: Spread
    productive: Spread
    straggler: str | None = None
    straggler_wait_s: float | None = None
    slowest_loader: str | None = None
    slowest_loader_wait_s: float | None = None
    others_wait_s: float | None = None
    bubble: Spread | None = None

    def sentences(self) -> list[str]:
        """Return who holds the others up, a sentence each; none where no rank stands out."""
        said = []
        if self.straggler_wait_s is not None:
            waited = show_seconds(self.straggler_wait_s)
            said.append(f"straggler: rank {self.straggler} waits least ({waited}) while the others wait for it")
        if self.slowest_loader_wait_s is not None and self.others_wait_s is not None:
            longest, others = show_seconds(self.slowest_loader_wait_s), show_seconds(self.others_wait_s)
            said.append(
                f"rank {self.slowest_loader} waits longest for its data: {longest}, the others {others} (median); "
                "in lockstep they wait for it"
            )
        return said


def compare_ranks(ledger: Ledger) -> Comparison | None:
    """Return how the ranks of a run compare; None with fewer than two.

    Ranks that work in step wait for the slowest of them. In a phase that waits for peers, such as
    an all-reduce, the slowest waits least. A wait for data makes a rank slow: the slowest waits most.

    Example:
        >>> from headway.ledger.ledger import Part
        >>> ledgers = [Ledger({"productive": 100 - wait, "input_wait": wait}, held_ns=100) for wait in (5, 7, 40)]
        >>> parts = tuple(Part(rank, "a0", ledger) for rank, ledger in enumerate(ledgers))
        >>> compare_ranks(Ledger({"productive": 248, "input_wait": 52}, held_ns=300, parts=parts)).slowest_loader
        '2'
    """
    ranks = ledger.by("rank")
    if len(ranks) < 2:
        return None
    held_up, slow = _odd_one(ranks, peer_wait_ns, most=False), _odd_one(ranks, data_wait_ns, most=True)
    return Comparison(
        wait=_spread([part.amounts_ns.get("input_wait", 0) for part in ranks.values()]),
        productive=_spread([part.amounts_ns.get("productive", 0) for part in ranks.values()]),
        straggler=held_up,
        straggler_wait_s=None if held_up is None else peer_wait_ns(ranks[held_up]) / NS_PER_S,
        slowest_loader=slow,
        slowest_loader_wait_s=None if slow is None else data_wait_ns(ranks[slow]) / NS_PER_S,
        others_wait_s=None
        if slow is None
        else median(data_wait_ns(part) for name, part in ranks.items() if name != slow) / NS_PER_S,
        bubble=_spread([part.amounts_ns.get("bubble", 0) for part in ranks.values()])
        if "bubble" in ledger.amounts_ns
        else None,
    )


def _odd_one(ranks: dict[str, Ledger], wait_ns: Callable[[Ledger], int], *, most: bool) -> str | None:
    """Return the rank whose wait stands out, compared as shares of held time: ranks may differ in length."""
    shares = {name: wait_ns(part) / part.held_ns for name, part in ranks.items() if part.held_ns}
    if len(shares) < 2:
        return None
    odd = (max if most else min)(shares, key=shares.__getitem__)
    others = median(share for name, share in shares.items() if name != odd)
    return odd if abs(shares[odd] - others) >= MIN_SPREAD else None


def _spread(amounts_ns: list[int]) -> Spread:
    return Spread(min(amounts_ns) / NS_PER_S, median(amounts_ns) / NS_PER_S, max(amounts_ns) / NS_PER_S)
