"""Launches of kernels: when the host gave each to the device, and so in which of the host's steps it belongs."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np

from headway.sources.kineto.chrometrace import TraceEvent

MAX_LAUNCHES: Final = 1 << 22
"""Of a trace with more of them steps are not followed to the device."""
_CORRELATION: Final = re.compile(rb'"correlation(?:_id)?"\s*:\s*"?(\d{1,18})(?!\d)')
"""What ties a launch to its kernel: PyTorch's name, and XLA's on a GPU."""


@dataclass
class Launches:
    """Times by the number that ties a launch to its kernel; in any order, and more than once."""

    _pairs: array[int] = field(default_factory=lambda: array("q"))

    @classmethod
    def of(cls, *parts: Launches) -> Launches:
        """Return those of several together."""
        if len(parts) == 1:
            return parts[0]
        return cls(array("q", chain.from_iterable(part._pairs for part in parts)))  # noqa: SLF001

    def add(self, event: TraceEvent, start: int) -> None:
        """Add an event that began then [ns]; one without such a number is passed over."""
        found = _CORRELATION.search(event.args)
        if found is not None and len(self._pairs) <= 2 * MAX_LAUNCHES:
            self._pairs.extend((int(found[1]), start))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._pairs) // 2

    def starts(self, kernels: Launches, marks: Sequence[int]) -> list[int | None] | None:
        """Return when the first kernel began that was launched at or after each of some times [ns].

        Args:
            kernels: When each kernel began.
            marks: Times of the host [ns], ascending.

        Returns:
            None for a mark after which nothing was launched; None for all where most launches are not known.
        """
        if not len(self) or not len(kernels) or max(len(self), len(kernels)) > MAX_LAUNCHES:
            return None
        launch, kernel = (np.array(each._pairs, np.int64).reshape(-1, 2) for each in (self, kernels))  # noqa: SLF001
        launch = launch[np.lexsort((launch[:, 1], launch[:, 0]))]
        place = np.minimum(np.searchsorted(launch[:, 0], kernel[:, 0]), len(launch) - 1)
        known = launch[place, 0] == kernel[:, 0]
        if 2 * known.sum() < len(kernel):
            return None
        at, began = launch[place, 1][known], kernel[known, 1]
        order = np.argsort(at, kind="stable")
        first = np.minimum.accumulate(began[order][::-1])[::-1]
        where = np.searchsorted(at[order], np.array(marks, np.int64))
        return [int(first[n]) if n < len(first) else None for n in where.tolist()]
