"""A partition of consecutive layers over nodes in their order: by weights, or the best one there is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def best_partition(n_nodes: int, n_layers: int, cost: Callable[[int], Any], *, total: bool) -> list[range] | None:
    """Return the cheapest partition, exactly; of equals that with fewest nodes, and of those the most even one.

    A dynamic program over nodes and layers finds the least cost. A second one walks only over stages that such a
    partition can have, and counts nodes and squares of layers. O(nodes x layers^2) each.

    Args:
        n_nodes: How many nodes there are; each gets consecutive layers or none.
        n_layers: How many layers there are.
        cost: Gives for a node an array ``(n_layers + 1, n_layers + 1)``: element ``[a, b]`` is what layers a..b cost
            on it, inf where it cannot hold them or where ``b <= a``.
        total: Whether the sum over the nodes is to be least; else their maximum. Costs that are summed have to be
            whole numbers, and their sums below 2^53: then equal sums are found to be equal.

    Returns:
        Layers of each node, empty for one that is left out; None where no partition exists.

    Example:
        >>> each = np.triu(np.full((5, 5), 1.0), 1).cumsum(1)  # n layers cost n on any node
        >>> each[each == 0] = np.inf
        >>> best_partition(3, 4, lambda node: each, total=False)
        [range(0, 2), range(2, 4), range(4, 4)]
        >>> best_partition(3, 4, lambda node: each, total=True)
        [range(0, 4), range(4, 4), range(4, 4)]
    """
    join = np.add if total else np.maximum
    start = np.full(n_layers + 1, np.inf)
    start[0] = 0.0
    least = [start]
    for node in range(n_nodes):
        least.append(np.minimum(least[-1], join(least[-1][:, None], cost(node)).min(axis=0)))
    bound = least[-1][n_layers]
    if bound == np.inf:
        return None
    sizes = np.arange(n_layers + 1.0)
    effort = (n_layers * n_layers + 1) + (sizes[None, :] - sizes[:, None]) ** 2
    steps, passes, efforts = [], [], [start]
    for node in range(n_nodes):
        each, before, after = cost(node), least[node], least[node + 1]
        with np.errstate(invalid="ignore"):
            fits = (before[:, None] + each == after) if total else (each <= bound)
        steps.append(np.where(fits & (each < np.inf), effort, np.inf))
        passes.append(np.where(before == after, 0.0, np.inf) if total else np.zeros(n_layers + 1))
        efforts.append(np.minimum(efforts[-1] + passes[-1], (efforts[-1][:, None] + steps[-1]).min(axis=0)))
    return _walk_back(efforts, steps, passes, n_layers)


def _walk_back(efforts: list[Any], steps: list[Any], passes: list[Any], end: int) -> list[range]:
    """Return the stages that led to the least effort; of equals, the later nodes are left out."""
    found = []
    for node in reversed(range(len(steps))):
        begin = end
        if efforts[node][end] + passes[node][end] != efforts[node + 1][end]:
            begin = int(np.argmin(efforts[node] + steps[node][:, end]))
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
