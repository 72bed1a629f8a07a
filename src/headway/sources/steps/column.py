"""Columns of whole numbers that grow, as small as their numbers allow: while they are all the same, one of them."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_SMALL: Final = 1 << 31
"""Numbers from minus that up to it take 4 bytes, others 8."""

_FEW: Final = 1 << 10
"""Fewer rows than that wait for more before they go to their columns."""


class Column:
    """Whole numbers within 64 bits.

    Example:
        >>> column = Column()
        >>> column.extend(np.array([7, 7]))
        >>> column.extend(np.array([7, 1 << 40]))
        >>> column.values().tolist(), column[-1], len(column)
        ([7, 7, 7, 1099511627776], 1099511627776, 4)
    """

    def __init__(self) -> None:
        self._n = 0
        self._same: int | None = None
        self._data: array[int] | None = None

    def __len__(self) -> int:
        """Return how many there are."""
        return self._n

    def __getitem__(self, place: int) -> int:
        """Return one, from the end where the place is negative."""
        place = range(self._n)[place]
        return self._data[place] if self._data is not None else self._same or 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return a copy as an array, int64 if nothing else is asked for."""
        return np.array(self.values(), dtype or np.int64)

    def extend(self, values: NDArray[Any]) -> None:
        """Append some, in any type of whole numbers."""
        if not len(values):
            return
        low, high = int(values.min()), int(values.max())
        if self._data is None:
            if low == high and self._same in {None, low}:
                self._same, self._n = low, self._n + len(values)
                return
            self._spread(low, high)
        self._fit(low, high)
        if self._data is not None:
            self._data.frombytes(np.ascontiguousarray(values, self._data.typecode).data.cast("B"))
            self._n = len(self._data)

    def __setitem__(self, place: int | slice, value: int) -> None:
        """Make one, or all of a range, another."""
        if self._data is None:
            self._spread(value, value)
        self._fit(value, value)
        self.values()[place] = value

    def values(self) -> NDArray[Any]:
        """Return all, int32 or int64, without a copy; while the array is held, nothing can be added."""
        if self._data is None:
            return np.broadcast_to(np.int64(self._same or 0), self._n)
        return np.frombuffer(self._data, self._data.typecode)

    def _spread(self, low: int, high: int) -> None:
        """Keep each number by itself from now on."""
        same = self._same or 0
        self._data = array("i" if _is_small(min(low, same), max(high, same)) else "q", [same]) * self._n

    def _fit(self, low: int, high: int) -> None:
        """Make room for numbers of this size."""
        if self._data is not None and self._data.typecode == "i" and not _is_small(low, high):
            wide = array("q")
            for begin in range(0, len(self._data), 1 << 16):
                wide.frombytes(self.values()[begin : begin + (1 << 16)].astype(np.int64).data.cast("B"))
            self._data = wide


class Table:
    """Rows of whole numbers, as columns.

    Example:
        >>> table = Table("step", "rank")
        >>> table.append((5, -1))
        >>> table.extend(np.array([6, 7]), np.array([-1, -1]))
        >>> table.columns["step"].values().tolist(), len(table)
        ([5, 6, 7], 3)
    """

    def __init__(self, *names: str) -> None:
        self._columns = {name: Column() for name in names}
        self._new: array[int] = array("q")
        self._full = len(names) << 13
        self._n = 0

    def __len__(self) -> int:
        """Return how many rows there are."""
        return self._n

    def append(self, row: tuple[int, ...]) -> None:
        """Append a row; those that come one by one go to their columns many at a time."""
        self._new.extend(row)
        self._n += 1
        if len(self._new) >= self._full:
            self._settle()

    def extend(self, *columns: NDArray[Any]) -> None:
        """Append many rows, each column ``(n,)``."""
        n = len(columns[0])
        self._n += n
        if n < _FEW:
            rows = np.empty((n, len(columns)), np.int64)
            for place, values in enumerate(columns):
                rows[:, place] = values
            self._new.frombytes(rows.data.cast("B"))
            if len(self._new) >= self._full:
                self._settle()
            return
        self._settle()
        for column, values in zip(self._columns.values(), columns, strict=True):
            column.extend(values)

    @property
    def columns(self) -> dict[str, Column]:
        """All rows."""
        self._settle()
        return self._columns

    def _settle(self) -> None:
        if self._new:
            rows = np.frombuffer(self._new, np.int64).reshape(-1, len(self._columns))
            for column, values in zip(self._columns.values(), rows.T, strict=True):
                column.extend(values)
            self._new = array("q")


def _is_small(low: int, high: int) -> bool:
    return low >= -_SMALL and high < _SMALL
