"""The ``metrics.csv`` of Lightning's CSVLogger: which steps there were, and no clock."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headway.ledger.history import Run
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.steplines import StepLines
from headway.sources.text import clean

_LOOKED_AT: Final = 20
"""So many rows are looked at to recognise a file."""


class Lightning:
    """The source of metrics.csv."""

    name = "lightning"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no metrics.csv, or None when it is one."""
        if path.is_dir():
            return "it is a folder and not a metrics.csv"
        lines = head.decode("utf-8-sig", "replace").splitlines()
        columns = _columns(lines[0]) if lines else []
        if not {"epoch", "step"} <= set(columns) or len(columns) < 3:
            return "its first line doesn't name the columns epoch and step and a metric"
        whole = lines[1:] if len(head) < files.HEAD else lines[1:-1]
        rows = [cells for line in whole[:_LOOKED_AT] if len(cells := line.split(",")) == len(columns)]
        if not all(_is_number(cell) for cells in rows for cell in cells):
            return "its rows hold more than numbers"
        return None if rows else "no row in it has as many cells as its first line"

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the run of a file.

        Raises:
            SourceError: No row has a step, slug ``no-runs``.
            OSError: It cannot be read.
        """
        log = StepLines(self.name, path, first=0)
        lines = log.lines()
        _, first = next(lines, (1, b""))
        columns = _columns(first.decode("utf-8-sig", "replace").rstrip("\r\n"))
        if "step" in columns:  # else no row has one, which is said below
            _take(log, lines, columns)
        stem = path.absolute().parent.name if path.stem == "metrics" else path.stem
        return [log.run(clean(stem), asked, rows="block")]


def _take(log: StepLines, lines: Iterator[tuple[int, bytes]], columns: list[str]) -> None:
    """Take the steps of the rows below the first line."""
    place, width = columns.index("step"), len(columns)
    last = -1
    for number, line in lines:
        cells = line.split(b",")
        if len(cells) != width:
            if line.strip():
                log.bad.add("no row, left out", number, f"it has {len(cells)} cells of {width}")
            continue
        step = _step(cells[place])
        if step is None:
            if cells[place].strip():
                log.bad.add("without a step that can be, left out", number, repr(cells[place][:40])[2:-1])
        elif step != last and log.step(step, line=number):
            last = step


def _columns(line: str) -> list[str]:
    """Return the names in a first line.

    Example:
        >>> _columns("epoch,step,train_loss")
        ['epoch', 'step', 'train_loss']
    """
    try:
        return [name.strip() for name in next(csv.reader([line]), [])]
    except csv.Error:
        return []


def _is_number(cell: str) -> bool:
    """Return whether a cell holds what a logger of metrics writes: a number, a truth value, or nothing.

    Example:
        >>> [_is_number(cell) for cell in ("0.5", "nan", "", "True", "2024-01-01")]
        [True, True, True, True, False]
    """
    try:
        float(cell)
    except ValueError:
        return cell.strip() in {"", "True", "False"}
    return True


def _step(cell: bytes) -> int | None:
    """Return the number of a step; None where there is none.

    Example:
        >>> _step(b"49"), _step(b"49.0"), _step(b""), _step(b"x")
        (49, 49, None, None)
    """
    if cell.isdigit() and len(cell) < 19:
        return int(cell)
    try:
        number = float(cell)
    except ValueError:
        return None
    return int(number) if number.is_integer() and 0 <= number < 1 << 53 else None
