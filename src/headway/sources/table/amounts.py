"""How many devices a row of a table asks for, from the columns that tell of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from headway.sources.table.times import MISSING, number
from headway.sources.text import clean

MAX_MILLI: Final = 10**11
"""More devices of one job are damage [devices / 1000]."""
CACHED: Final = 1 << 16
"""So many texts of a file are remembered at most."""
SHORT: Final = 200
"""Longer ones are not [characters]."""
COLUMNS: Final = ("devices", "milli", "percent", "instances")


class BadCell(ValueError):  # noqa: N818 - it never leaves the reader: a complaint is made of it
    """A cell cannot be what its column says."""

    def __init__(self, column: str, text: str, why: str) -> None:
        super().__init__(f"{clean(column, 60)}: {clean(text, 40)!r} {why}" if text else f"{clean(column, 60)} {why}")


class Amounts:
    """Makes thousandths of a device of cells.

    Args:
        names: By what a column is, its name in the table.

    Attributes:
        columns: Which of them tell how many there are, in the order in which their cells are given.
        known: What cells were read before, and what they say.

    Example:
        >>> Amounts({"devices": "num_gpu", "milli": "gpu_milli"}).read(("2", "500"))
        1000
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self.columns = tuple(what for what in COLUMNS if what in names)
        self.known: dict[tuple[str, ...], int] = {}
        self._names = names

    def read(self, cells: tuple[str, ...]) -> int:
        """Return how much a row asks for [devices / 1000].

        Raises:
            BadCell: One of them is missing, negative or no number, or all together are too many.
        """
        if (milli := self.known.get(cells)) is None:
            milli = self._product(cells)
            if len(self.known) < CACHED and sum(map(len, cells)) < SHORT:
                self.known[cells] = milli
        return milli

    def _product(self, cells: Sequence[str]) -> int:
        amounts = {}
        for what, text in zip(self.columns, cells, strict=True):
            if text.strip().lower() in MISSING:
                raise BadCell(self._names[what], "", "is empty: how many devices is unknown")
            try:
                amounts[what] = number(text)
            except ValueError as error:
                raise BadCell(self._names[what], text, str(error)) from None
            if amounts[what] < 0:
                raise BadCell(self._names[what], text, "is negative")
        each = amounts.get("milli", amounts["percent"] * 10 if "percent" in amounts else Decimal(1000))
        whole = each * amounts.get("devices", 1) * amounts.get("instances", 1)
        if whole > MAX_MILLI:
            raise BadCell(self._names[self.columns[0]], cells[0], "is more devices than there are anywhere")
        return round(whole)
