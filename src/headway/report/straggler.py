"""Ranks beside each other: how their waits and their work spread, and who holds the others up."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Final

from headway.clock import NS_PER_S
from headway.ledger.ledger import Ledger

MIN_SPREAD: Final = 0.02
"""Share of held time by which the straggler must wait less than the median rank. Waits of equal
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
        straggler: The rank that waits least while others wait; None where none stands out.
        straggler_wait_s: How long it waited [device-s]; None without one.
    """

    wait: Spread
    productive: Spread
    straggler: str | None
    straggler_wait_s: float | None


def compare_ranks(ledger: Ledger) -> Comparison | None:
    """Return how the ranks of a run compare; None with fewer than two.

    Ranks that work in step wait for the slowest of them, which therefore waits least itself.

    Example:
        >>> from headway.ledger.ledger import Part
        >>> ledgers = [Ledger({"productive": 100 - wait, "input_wait": wait}, held_ns=100) for wait in (40, 38, 5)]
        >>> parts = tuple(Part(rank, "a0", ledger) for rank, ledger in enumerate(ledgers))
        >>> compare_ranks(Ledger({"productive": 217, "input_wait": 83}, held_ns=300, parts=parts)).straggler
        '2'
    """
    ranks = ledger.by("rank")
    if len(ranks) < 2:
        return None
    waits = {name: part.amounts_ns.get("input_wait", 0) for name, part in ranks.items()}
    straggler = _straggler(ranks)
    return Comparison(
        wait=_spread(list(waits.values())),
        productive=_spread([part.amounts_ns.get("productive", 0) for part in ranks.values()]),
        straggler=straggler,
        straggler_wait_s=None if straggler is None else waits[straggler] / NS_PER_S,
    )


def _straggler(ranks: dict[str, Ledger]) -> str | None:
    """Compare shares of held time, so that ranks of unequal length or devices can be compared."""
    shares = {name: part.amounts_ns.get("input_wait", 0) / part.held_ns for name, part in ranks.items() if part.held_ns}
    if len(shares) < 2:
        return None
    least = min(shares, key=shares.__getitem__)
    others = median(share for name, share in shares.items() if name != least)
    return least if others - shares[least] >= MIN_SPREAD else None


def _spread(amounts_ns: list[int]) -> Spread:
    return Spread(min(amounts_ns) / NS_PER_S, median(amounts_ns) / NS_PER_S, max(amounts_ns) / NS_PER_S)
