"""The ``metrics.csv`` of Lightning's CSVLogger: which steps there were, and no clock."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.ledger.history import Run
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.steps.columns import UNKNOWN
from headway.sources.steps.lines import StepLines
from headway.sources.text import clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headway.sources.steps.alike import Spans

    Ints = NDArray[np.int64]

_LOOKED_AT: Final = 20
"""So many rows are looked at to recognise a file."""


class Lightning:
    """The source of metrics.csv."""

    name = "lightning"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no metrics.csv, or None when it is one."""
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
        _, first = next(log.lines(), (1, b""))
        columns = _columns(first.decode("utf-8-sig", "replace").rstrip("\r\n"))
        if "step" in columns:  # else no row has one, which is said below
            rows = _Rows(log, columns.index("step"), len(columns))
            log.read(rows.learn, rows.extend, rows.take)
        stem = path.absolute().parent.name if path.stem == "metrics" else path.stem
        return [log.run(clean(stem), asked, rows="block")]


@dataclass
class _Rows:
    """The rows below the first line, of which the steps are taken.

    Attributes:
        log: What is told of them.
        place: Which cell has the step.
        width: How many cells a row has.
        last: The step of the row before.
    """

    log: StepLines
    place: int
    width: int
    last: int = -1

    def learn(self, line: bytes) -> Spans | None:
        """Return where the step of a row is."""
        cells = line.split(b",")
        if len(cells) != self.width:
            return None if line.strip() else ()
        cell = cells[self.place].rstrip(b"\r\n")
        begin = sum(map(len, cells[: self.place])) + self.place
        return ((begin, begin + len(cell)),) if cell.strip() else ()

    def extend(self, numbers: Ints, values: list[NDArray[np.float64]]) -> bool:
        """Take the steps of many rows; return whether they can be."""
        step = values[0].astype(np.int64)
        if (step != values[0]).any():
            return False
        new = np.diff(step, prepend=self.last) != 0
        self.last = int(step[-1])
        step, numbers = step[new], numbers[new]
        unknown = np.broadcast_to(np.int64(UNKNOWN), len(step))
        self.log.steps(step, line=numbers, at=unknown, took=unknown, rank=np.broadcast_to(np.int64(-1), len(step)))
        return True

    def take(self, number: int, line: bytes) -> None:
        """Take the step of a row."""
        cells = line.split(b",")
        if number == 1:
            return
        if len(cells) != self.width:
            if line.strip():
                self.log.bad.add("no row, left out", number, f"it has {len(cells)} cells of {self.width}")
            return
        cell = cells[self.place]
        step = _step(cell)
        if step is None:
            if cell.strip():
                self.log.bad.add("without a step that can be, left out", number, repr(cell[:40])[2:-1])
        elif step != self.last and self.log.step(step, line=number):
            self.last = step


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
