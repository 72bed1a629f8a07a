"""Columns at places of their own, as ``-O`` prints them: cells cut to the width, often without a blank between."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from headway.sources.slurm.names import Name

_STEP: Final = 20
"""How wide ``-O`` makes a column of which nobody says it."""
_END: Final = 1 << 30
_RESOURCES: Final = frozenset({"alloc_tres", "req_tres", "alloc_gres", "req_gres", "gres", "gres_used"})
_OTHERS: Final = frozenset({"job", "raw", "array", "task", "elapsed", "elapsed_raw", "node"})
"""Columns of which a cell that is cut tells something else."""
_COUNTED: Final = re.compile(rb"(?:^|[,/])(?:gres[/:])?gpu(?:[:=][^,:=()]+)*[:=]\d+(?:\([^()]*\)?)?$")
"""What ends with GPUs and their number."""

_TAIL: Final = 300
"""So much of a cell is looked at [bytes]."""


@dataclass(frozen=True)
class Places:
    """Where columns are.

    Attributes:
        spans: By column, its first place and the one after its last; empty: cells are between blanks.
        fills: By column, how many characters of a cell say that it may be cut; 0: it is not looked at.
        free: The columns in which blanks may stand.
    """

    spans: tuple[tuple[int, int], ...]
    fills: tuple[int, ...]
    free: frozenset[int]

    def split(self, line: bytes) -> list[bytes]:
        """Return the cells of a line, with ``+`` after those that are cut, as ``sacct`` has them.

        A line whose cells are not at their places is split at its blanks.

        Example:
            >>> at = Places(((0, 8), (8, 18), (18, 28)), (0, 9, 0), frozenset())
            >>> at.split(b"gpu01   gpu:tesla_idle      ")
            [b'gpu01', b'gpu:tesla_+', b'idle']
            >>> at.split(b"gpu[01-04] gpu:tesla_  idle")
            [b'gpu[01-04]', b'gpu:tesla_+', b'idle']
        """
        cells = self._at_places(line) or line.split()
        if len(cells) == len(self.fills):
            for at, most in enumerate(self.fills):
                if most and len(cells[at]) >= most and _is_cut(cells[at]):
                    cells[at] += b"+"
        return cells

    def _at_places(self, line: bytes) -> list[bytes] | None:
        """Return what stands at the places; None where cells are elsewhere."""
        if not self.spans or line[: self.spans[0][0]].strip():
            return None
        cells = []
        for at, (low, high) in enumerate(self.spans):
            cell = line[low:high]
            if cell[:1] == b" " and not cell.isspace():
                return None
            cell = cell.strip()
            if b" " in cell and at not in self.free:
                return None
            cells.append(cell)
        return cells

    def n_fit(self, lines: Sequence[bytes]) -> int:
        """Return how many lines have their cells at the places."""
        return sum(self._at_places(line) is not None for line in lines)


def _is_cut(cell: bytes) -> bool:
    """Return whether a cell that fills its column is cut: not where it is a number, or ends with that of its GPUs."""
    return not cell.isdigit() and not _COUNTED.search(cell[-_TAIL:])


def places(
    line: bytes, names: Sequence[Name], meanings: Sequence[str], free: Sequence[int], rows: Sequence[bytes]
) -> Places | None:
    """Return where columns are, or at least how wide they are; None where nothing tells that.

    Names that touch tell it, and those that begin at the distance that ``-O`` gives columns; others do where most lines
    below have their cells there, and more than a blank stands between two names. A name that is cut is as wide as its
    column.

    Args:
        line: The header.
        names: Its names.
        meanings: What its columns are called here; of those of no use nothing.
        free: The columns in which blanks may stand.
        rows: Lines below the header.

    Example:
        >>> from headway.sources.slurm.names import apart
        >>> def of(text, *rows):
        ...     found = places(text.encode(), apart(text), ["job", "req_gres"], [], rows)
        ...     return found and (found.spans[:1], found.fills)
        >>> of("JOBID               TRES_PER_NODE")
        (((0, 20),), (20, 19))
        >>> of("JOBID  TRES_PER_NODE", b"1234567 gpu:4"), of("JOBID TRES_PER_N")
        (None, ((), (0, 10)))
    """
    text = line.rstrip(b"\r\n")
    if len(names) < 2:
        return None
    starts = [name.start for name in names]
    wide = [high - low for low, high in pairwise(starts)]
    last = len(text) - starts[-1] if text.endswith(b" ") else wide[0] if len(set(wide)) == 1 else 0
    if any(len(row.rstrip()) > starts[-1] + last for row in rows):
        last = 0
    fills = [_fills(meaning, width) if width else 0 for meaning, width in zip(meanings, [*wide, last], strict=True)]
    found = Places(tuple(zip(starts, [*starts[1:], _END], strict=True)), tuple(fills), frozenset(free))
    touch = any(text[start - 1 : start] != b" " for start in starts[1:])
    padded = any(text[start - 2 : start] == b"  " for start in starts[1:])
    if touch or set(wide) == {_STEP} or (padded and 2 * found.n_fit(rows) > len(rows) > 0):
        return found
    cut = [
        name.width if name.width < len(name.full) and meaning in _RESOURCES else 0
        for name, meaning in zip(names, meanings, strict=True)
    ]
    return Places((), tuple(cut), frozenset(free)) if any(cut) else None


def _fills(meaning: str, width: int) -> int:
    """Return how many characters say that a cell may be cut: of resources also where a blank is left after them."""
    if meaning in _RESOURCES:
        return max(width - 1, 1)
    return width if meaning in _OTHERS else 0
