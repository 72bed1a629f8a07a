"""Rows kept as columns that grow: what was read stays where it is, and new rows cost only themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from headway.ledger.history import Rows

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

BOUND: Final = 1 << 61
"""Step numbers and times [ns] beyond it, 73 years from the clock's zero, are damage."""
FIXED: Final = ("step", "start", "end")


class Columns:
    """Columns of rows, one contiguous int64 array each, doubled when they are full.

    Example:
        >>> columns = Columns()
        >>> columns.extend(2, {"step": [1, 2], "start": [0, 5], "end": [5, 9]}, {"source": [1, 0]}).tolist()
        []
        >>> columns.rows().waits["source"].tolist()
        [1, 0]
    """

    def __init__(self) -> None:
        self._n = 0
        self._room = 0
        self._arrays: dict[str, NDArray[np.int64]] = {name: np.empty(0, np.int64) for name in FIXED}
        self._waits: dict[str, NDArray[np.int64]] = {}

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._n

    def reserve(self, n: int) -> None:
        """Make room for that many rows more, so that they are not copied when they come."""
        if self._n + n > self._room:
            self._room = self._n + n
            for arrays in (self._arrays, self._waits):
                arrays.update({name: self._grown(array) for name, array in arrays.items()})

    def add_phases(self, phases: tuple[str, ...]) -> None:
        """Have a column for each of these phases; rows before it waited 0."""
        for name in phases:
            if name not in self._waits:
                self._waits[name] = self._grown(np.zeros(self._n, np.int64))

    def extend(self, n: int, fixed: Mapping[str, ArrayLike], waits: Mapping[str, ArrayLike]) -> NDArray[np.intp]:
        """Append rows, and return which of them were impossible and left out.

        Impossible is a row that ends before it starts, waited less than nothing, or is out of
        the range of 64 bits.

        Args:
            n: The number of rows.
            fixed: The columns ``step``, ``start`` and ``end``, each ``(n,)``.
            waits: By phase, the waits [ns], each ``(n,)``; phases that are missing waited 0.
        """
        self._make_room(n)
        self.add_phases(tuple(waits))
        new = slice(self._n, self._n + n)
        for name, array in self._arrays.items():
            array[new] = fixed[name]
        for name, array in self._waits.items():
            array[new] = waits.get(name, 0)
        impossible = self._impossible(new)
        if impossible.size:
            for array in (*self._arrays.values(), *self._waits.values()):
                array[new.start : new.stop - impossible.size] = np.delete(array[new], impossible)
        self._n += n - impossible.size
        return impossible

    def rows(self) -> Rows:
        """Return all rows so far; the arrays are views of what is kept, and don't change later."""
        n = self._n
        step, start, end = (self._arrays[name][:n] for name in FIXED)
        return Rows(step, start, end, {name: array[:n] for name, array in self._waits.items()})

    def _make_room(self, n: int) -> None:
        if self._n + n > self._room:
            self.reserve(max(n, self._n))

    def _grown(self, array: NDArray[np.int64]) -> NDArray[np.int64]:
        grown = np.empty(self._room, np.int64)
        grown[: self._n] = array[: self._n]
        return grown

    def _impossible(self, new: slice) -> NDArray[np.intp]:
        start, end = self._arrays["start"][new], self._arrays["end"][new]
        bad = end < start
        for array in self._arrays.values():
            bad |= (array[new] < -BOUND) | (array[new] >= BOUND)
        for array in self._waits.values():
            bad |= (array[new] < 0) | (array[new] >= BOUND)
        return np.flatnonzero(bad)
