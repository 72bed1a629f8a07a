"""How far a count of rare events can be from its mean: exact limits, without a statistics package."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

LEVEL: Final = 0.95
"""Confidence of the intervals that the model shows."""
_HALVINGS: Final = 200


def poisson_cdf(count: int, mean: float) -> float:
    """Return the probability of at most ``count`` events where ``mean`` are expected, in [0, 1].

    Args:
        count: A number of events, >= 0.
        mean: What is expected, >= 0.

    Example:
        >>> round(poisson_cdf(2, 3.0), 6)
        0.42319
    """
    if mean == 0:
        return 1.0
    terms = (math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1))
    return min(math.fsum(terms), 1.0)


def garwood(count: int, level: float = LEVEL) -> tuple[float, float]:
    """Return the limits of the mean of a Poisson count, both sides together at that confidence.

    Garwood (1936), Biometrika 28: half of the chi-square quantiles at 2n and 2n + 2 degrees of
    freedom, found here as the means at which such a count is just improbable enough.

    Args:
        count: The number of events seen, >= 0.
        level: The confidence, in (0, 1).

    Example:
        >>> [round(limit, 3) for limit in garwood(10)]
        [4.795, 18.39]
    """
    tail = (1 - level) / 2
    low = 0.0 if count == 0 else _solve(lambda mean: poisson_cdf(count - 1, mean) > 1 - tail, count)
    return low, _solve(lambda mean: poisson_cdf(count, mean) > tail, count)


def most_when_none_seen(level: float = LEVEL) -> float:
    """Return the largest mean that seeing no event at all still allows: the rule of three.

    Hanley and Lippman-Hand (1983), JAMA 249: -ln(0.05), nearly 3, at 95 %.

    Example:
        >>> round(most_when_none_seen(), 3)
        2.996
    """
    return -math.log(1 - level)


def _solve(is_below: Callable[[float], bool], count: int) -> float:
    """Return where the condition, true at 0, turns false."""
    low, high = 0.0, 2.0 * count + 20.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return (low + high) / 2
