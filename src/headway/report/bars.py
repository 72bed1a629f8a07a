"""The right side of a page's table: bars on one scale for all pages, and the notes behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.text import Text

from headway.report.glyphs import Glyphs, wrap

SCALES: Final = (40, 32, 24, 16, 12, 8, 4)
"""Cells of 100 %: the first that fits, nearly always the longest, so that two pages can be compared."""
_NOTE_WIDTH: Final = 18
"""A note is broken into lines of this length at the least."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table.

    Attributes:
        style: The colour of its bar.
        share: Its share of the window, in [0, 1].
        note: What stands behind the bar.
    """

    style: str
    share: float
    note: str


def draw(lines: Sequence[Line], glyphs: Glyphs, width: int) -> list[Text]:
    """Return a cell for each row: its bar, and its note behind the longest bar of those with a note.

    Args:
        lines: The rows.
        glyphs: What can be printed.
        width: What the cells may take [characters].

    Example:
        >>> lines = [Line("", 0.6, ""), Line("", 0.15, "source 4.1 s")]
        >>> [cell.plain for cell in draw(lines, Glyphs.of("ascii"), 40)]
        ['########################', '######  source 4.1 s']
    """
    scale = next((cells for cells in SCALES if _fits(lines, glyphs, cells, width)), SCALES[-1])
    bars = [glyphs.bar(line.share, scale) for line in lines]
    left = max((len(bar) + 2 for bar, line in zip(bars, lines, strict=True) if line.note), default=0)
    return [_cell(line, bar, left, width - left) for line, bar in zip(lines, bars, strict=True)]


def _fits(lines: Sequence[Line], glyphs: Glyphs, scale: int, width: int) -> bool:
    bars = [(len(glyphs.bar(line.share, scale)), min(len(line.note), _NOTE_WIDTH)) for line in lines]
    behind = max((bar + 2 for bar, note in bars if note), default=0)
    return max(bar for bar, _ in bars) <= width and behind + max(note for _, note in bars) <= width


def _cell(line: Line, bar: str, left: int, width: int) -> Text:
    cell = Text.assemble((bar, line.style), overflow="fold")
    for place, part in enumerate(wrap(line.note, width)):
        cell.append(" " * (left - len(bar)) if place == 0 else "\n" + " " * left)
        cell.append(part, style="dim")
    return cell
