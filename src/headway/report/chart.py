"""A chart on a terminal: for each size a bar of what is kept and what is lost, to letters of one scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.text import Text

from headway.report.glyphs import Glyphs

KEPT: Final = "productive"
LETTERS: Final[Mapping[str, str]] = {
    "input_wait": "i",
    "checkpoint_save": "s",
    "rework": "w",
    "recovery": "r",
    "startup": "u",
    "preemption": "p",
}
"""What stands for a loss in a bar: a letter, so that it needs neither a colour nor a special character."""
_OTHER: Final = "."


def stack(shares: Mapping[str, float], glyphs: Glyphs, width: int) -> Text:
    """Return a bar of that width, each loss with as many cells as its share takes.

    Args:
        shares: By category, what is kept under ``productive``; they sum to 1.
        glyphs: What can be printed.
        width: Cells of the whole [characters].

    Example:
        >>> stack({"productive": 0.5, "rework": 0.3, "recovery": 0.2}, Glyphs.of("ascii"), 10).plain
        '#####wwwrr'
    """
    names = [KEPT, *(name for name in shares if name != KEPT)]
    counts = _cells([shares.get(name, 0.0) for name in names], width)
    bar = Text()
    for name, count in zip(names, counts, strict=True):
        if name == KEPT:
            bar.append(("#" if glyphs.plain else "█") * count, style="green")
        else:
            bar.append(LETTERS.get(name, _OTHER) * count, style="yellow")
    return bar


def legend(every: Sequence[Mapping[str, float]], glyphs: Glyphs) -> str:
    """Return what the letters of some bars mean, those with a share only.

    Example:
        >>> legend([{"productive": 0.9, "rework": 0.1}], Glyphs.of("ascii"))
        '#=productive   w=rework'
    """
    names = dict.fromkeys(name for shares in every for name, share in shares.items() if share > 0)
    marks = {KEPT: "#" if glyphs.plain else "█", **LETTERS}
    return "   ".join(f"{marks.get(name, _OTHER)}={name}" for name in names)


def _cells(shares: Sequence[float], width: int) -> list[int]:
    """Return whole cells that sum to the width, by the largest remainders."""
    total = sum(shares) or 1.0
    exact = [share / total * width for share in shares]
    cells = [int(x) for x in exact]
    order = sorted(range(len(shares)), key=lambda place: cells[place] - exact[place])
    for place in order[: width - sum(cells)]:
        cells[place] += 1
    return cells
