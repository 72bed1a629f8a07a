"""What has one name: each called also by what its path differs by from those of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from headway.sources.text import clean

if TYPE_CHECKING:
    from headway.sources.asked import Loaded


def told_apart(found: Sequence[Loaded]) -> list[Loaded]:
    """Return what was found, what is of one kind and name called also by the folders or files that its paths differ by.

    Example:
        >>> from headway.ledger.history import Pool
        >>> pools = [Pool("jobs", "table", path=path) for path in ("of/Earth/jobs.csv", "of/Venus/jobs.csv")]
        >>> [pool.name for pool in told_apart(pools)]
        ['jobs (Earth)', 'jobs (Venus)']
    """
    by_name: dict[tuple[type, str], list[Loaded]] = {}
    for one in found:
        by_name.setdefault((type(one), one.name), []).append(one)
    called: dict[int, Loaded] = {}
    for (_, name), alike in by_name.items():
        for one, difference in zip(alike, _differences([one.path for one in alike]), strict=True):
            if difference:
                called[id(one)] = replace(one, name=f"{name} ({difference})")
    return [called.get(id(one), one) for one in found]


def _differences(paths: Sequence[str]) -> list[str]:
    """Return what is left of each path without the beginning and the end that all have.

    Example:
        >>> _differences(["of/jobs.2023.csv", "of/jobs.2024.csv"]), _differences(["a/a/x", "a/x"]), _differences(["x"])
        (['jobs.2023.csv', 'jobs.2024.csv'], ['a', ''], [''])
    """
    parts = [Path(path).parts for path in paths]
    n_first = _n_same(parts)
    left = [one[n_first:] for one in parts]
    n_last = _n_same([one[::-1] for one in left])
    return [clean(str(Path(*one[: len(one) - n_last]))) if len(one) > n_last else "" for one in left]


def _n_same(several: Sequence[Sequence[str]]) -> int:
    """Return how many of the first ones all have."""
    return sum(1 for _ in takewhile(lambda same: len({*same}) == 1, zip(*several, strict=False)))
