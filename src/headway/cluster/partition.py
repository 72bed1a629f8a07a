"""A partition of consecutive layers over nodes in their order: by weights, or the best one there is."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any, Final

import numpy as np

_NONE: Final = 2**62
"""The score of a stage's begin that no partition reaches."""


@dataclass(frozen=True)
class Load:
    """What stages of consecutive layers take of one node, in whole numbers of any unit; never less for more layers.

    Attributes:
        sums: What the layers before each one take, and last what all take: one more than there are layers.
        first: What a stage takes besides where it begins with the first layer.
        last: Where it ends with the last.
        whole: Where it has all layers, in the place of both. Of loads whose total is to be least, their sum.

    Example:
        >>> load = Load([0, 2, 4, 6], first=1, last=5, whole=6)
        >>> [load.of(0, 1), load.of(1, 3), load.of(0, 3)], load.furthest(1, 8), load.furthest(1, 9)
        ([3, 9, 12], 2, 3)
    """

    sums: Sequence[int]
    first: int = 0
    last: int = 0
    whole: int = 0

    def of(self, begin: int, end: int) -> int:
        """Return what the layers begin..end take."""
        ends = self.first if begin == 0 else 0
        if end == len(self.sums) - 1:
            ends = self.last if begin else self.whole
        return self.sums[end] - self.sums[begin] + ends

    def furthest(self, begin: int, limit: int) -> int:
        """Return the last end of a stage that takes no more than a limit; its begin where there is none."""
        n_layers = len(self.sums) - 1
        if begin == n_layers or self.of(begin, n_layers) <= limit:
            return n_layers
        room = limit - (self.first if begin == 0 else 0)
        return begin if room < 0 else min(bisect_right(self.sums, self.sums[begin] + room) - 1, n_layers - 1)


@dataclass(frozen=True)
class Bearer:
    """One node, as a partition sees it.

    Attributes:
        need: What stages take of its memory.
        budget: The most they may take.
        work: What stages cost on it, before it is divided by the rate.
        rate: What it does of that in a unit of cost.
    """

    need: Load
    budget: int
    work: Load
    rate: Fraction

    def reach(self, begin: int, most: Fraction | None = None) -> int:
        """Return the last end of a stage that fits and costs no more than a limit; its begin where there is none."""
        fits = self.need.furthest(begin, self.budget)
        return fits if most is None else min(fits, self.work.furthest(begin, _whole(most, self.rate)))


def best_partition(bearers: Sequence[Bearer], *, total: bool) -> list[range] | None:
    """Return the cheapest partition, exactly; of equals that with fewest nodes, and of those the most even one.

    Costs are compared as fractions, so that equal ones are found to be equal. Takes O(nodes x layers) memory, and
    O(nodes x layers^2) steps at most.

    Args:
        bearers: The nodes in their order; each gets consecutive layers or none.
        total: Whether the sum over the nodes is to be least; else their maximum.

    Returns:
        Layers of each node, empty for one that is left out; None where no partition exists.

    Example:
        >>> each = Load([0, 1, 2, 3, 4])
        >>> nodes = [Bearer(need=each, budget=4, work=each, rate=Fraction(1))] * 3
        >>> best_partition(nodes, total=False)
        [range(0, 2), range(2, 4), range(4, 4)]
        >>> best_partition(nodes, total=True)
        [range(0, 4), range(4, 4), range(4, 4)]
    """
    if total:
        return _least_effort(bearers, None)
    most = _least_maximum(bearers)
    return None if most is None else _least_effort(bearers, most)


def _whole(one: Fraction, other: Fraction) -> int:
    """Return the product of two fractions, rounded down."""
    return one.numerator * other.numerator // (one.denominator * other.denominator)


def _possible(bearers: Sequence[Bearer], most: Fraction) -> bool:
    """Tell whether there is a partition of stages that fit and cost no more: the one that goes as far as it can."""
    end, n_layers = 0, len(bearers[0].need.sums) - 1
    for one in bearers:
        end = one.reach(end, most)
    return end == n_layers


def _least_maximum(bearers: Sequence[Bearer]) -> Fraction | None:
    """Return the least cost of the costliest stage, exactly; None where no partition fits."""
    working = [one for one in bearers if one.rate > 0]
    n_layers = len(bearers[0].need.sums) - 1
    low = Fraction(0)
    if _possible(bearers, low):
        return low
    high = max((one.work.of(0, n_layers) / one.rate for one in working), default=low)
    if not _possible(bearers, high):
        return None
    while high - low > high / 2**40:
        middle = _short((low + high) / 2)
        low, high = (low, middle) if _possible(bearers, middle) else (middle, high)
    costs = sorted({cost for one in working for cost in _costs_between(one, low, high)})
    return costs[bisect_left(costs, True, key=lambda cost: _possible(bearers, cost))]


def _short(value: Fraction) -> Fraction:
    """Return a fraction near to another, of few digits."""
    spare = max(0, min(value.numerator.bit_length(), value.denominator.bit_length()) - 80)
    return Fraction(value.numerator >> spare, value.denominator >> spare)


def _costs_between(one: Bearer, low: Fraction, high: Fraction) -> Iterator[Fraction]:
    """Yield what stages of one node cost, above a limit and up to another."""
    least, most = _whole(low, one.rate), _whole(high, one.rate)
    if most <= least:
        return
    for begin in range(len(one.work.sums) - 1):
        work = most + 1
        while (end := one.work.furthest(begin, work - 1)) > begin and (work := one.work.of(begin, end)) > least:
            yield work / one.rate


def _least_effort(bearers: Sequence[Bearer], most: Fraction | None) -> list[range] | None:
    """Return the partition of least total cost, then of fewest nodes, then of least squares of layers.

    All three add up over the stages, so the best way to an end goes on from the best way to some begin. Which begins
    are best in cost is told before the end is known: two begins differ by as much for any end that both reach.

    Args:
        bearers: The nodes.
        most: What no stage may exceed, in the place of a total cost; None: the total counts.
    """
    n_layers = len(bearers[0].need.sums) - 1
    squares = np.arange(n_layers, -1, -1, dtype=np.int64) ** 2
    step = 2 * n_layers**2 + 1
    unit = lcm(*(one.rate.numerator for one in bearers)) if most is None else 0
    best: list[tuple[int, int, int] | None] = [(0, 0, 0), *[None] * n_layers]
    begins: list[Any] = []
    for one in bearers:
        price = int(unit / one.rate) if unit else 0
        ways = [
            None if was is None else (was[0] + one.work.of(begin, n_layers) * price, was[1])
            for begin, was in enumerate(best)
        ]
        ranks = {way: rank for rank, way in enumerate(sorted({way for way in ways if way is not None}))}
        scores = np.array(
            [
                _NONE if way is None or was is None else ranks[way] * step + was[2]
                for way, was in zip(ways, best, strict=True)
            ]
        )
        reach = [one.reach(begin, most) for begin in range(n_layers)]
        after, begun = list(best), np.full(n_layers + 1, -1, dtype=np.int32)
        for end in range(1, n_layers + 1):
            first = bisect_left(reach, end)
            if first >= end:
                continue
            efforts = scores[first:end] + squares[n_layers - end + first : n_layers]
            begin = first + int(efforts.argmin())
            was, now = best[begin], after[end]
            if was is None:
                continue
            found = (was[0] + one.work.of(begin, end) * price, was[1] + 1, was[2] + (end - begin) ** 2)
            if now is None or found < now:
                after[end], begun[end] = found, begin
        best = after
        begins.append(begun)
    return None if best[n_layers] is None else _walk_back(begins, n_layers)


def _walk_back(begins: list[Any], end: int) -> list[range]:
    """Return the stages that led to an end; of equals, the later nodes are left out."""
    found = []
    for begun in reversed(begins):
        begin = end if begun[end] < 0 else int(begun[end])
        found.append(range(begin, end))
        end = begin
    return found[::-1]


def share_out(total: int, weights: Sequence[float], most: Sequence[int], least: Sequence[int]) -> list[int] | None:
    """Return whole numbers near to the shares of the weights, within limits, that sum to the total.

    Each is its share, rounded and brought within its limits. What is then left over goes, one after another, to the
    one with most room; what is too much is taken from the one furthest above its share.

    Args:
        total: What is shared out.
        weights: Of each; not all 0.
        most: The most each can have.
        least: The least each must have.

    Returns:
        A number for each; None where the limits do not allow it.

    Example:
        >>> share_out(10, [1.0, 1.0, 2.0], most=[9, 9, 3], least=[0, 0, 0])
        [4, 3, 3]
    """
    if not sum(least) <= total <= sum(most) or any(low > high for low, high in zip(least, most, strict=True)):
        return None
    whole = sum(weights)
    shares = [total * weight / whole for weight in weights]
    limits = zip(shares, least, most, strict=True)
    counts = [min(max(round(share), low), high) for share, low, high in limits]
    members = range(len(counts))
    while (left := total - sum(counts)) != 0:
        if left > 0:
            counts[max(members, key=lambda n: most[n] - counts[n])] += 1
        else:
            counts[max((n for n in members if counts[n] > least[n]), key=lambda n: counts[n] - shares[n])] -= 1
    return counts
