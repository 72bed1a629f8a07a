"""The ``metrics.csv`` of Lightning's CSVLogger: which steps there were, and no clock."""

from __future__ import annotations

import csv
import math
import re
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

_TEST: Final = re.compile(r"(?:\A|[^a-z])test(?:\Z|[^a-z])", re.IGNORECASE)
"""What a metric of a test is called, such as ``test_loss``."""
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
            rows = _Rows(log, columns)
            log.read(rows.learn, rows.extend, rows.take)
        stem = path.absolute().parent.name if path.stem == "metrics" else path.stem
        return [log.run(clean(stem), asked, rows="block")]


@dataclass
class _Rows:
    """The rows below the first line, of which the steps are taken.

    Attributes:
        log: What is told of them.
        columns: What the cells of a row are.
        last: The step of the row before.
    """

    log: StepLines
    columns: list[str]
    last: int = -1

    def __post_init__(self) -> None:
        """Look up where the step and the epoch are, and what is of a training."""
        self._step, self._epoch = self.columns.index("step"), self.columns.index("epoch")
        self._of_tests = [_TEST.search(name) is not None for name in self.columns]
        self._of_training = [name not in {"step", "epoch"} and not _TEST.search(name) for name in self.columns]

    def learn(self, line: bytes) -> Spans | None:
        """Return where the step and the epoch of a row are."""
        cells = line.rstrip(b"\r\n").split(b",")
        if len(cells) != len(self.columns):
            return None if line.strip() else ()
        if not cells[self._step].strip() or self._is_test(cells):
            return ()
        return self._span(cells, self._step), self._span(cells, self._epoch)

    def _span(self, cells: list[bytes], place: int) -> tuple[int, int]:
        begin = sum(map(len, cells[:place])) + place
        return begin, begin + len(cells[place])

    def _is_test(self, cells: list[bytes]) -> bool:
        """Return whether a row is of a test alone: Lightning writes it as of the step after the last."""
        return _any(self._of_tests, cells) and not _any(self._of_training, cells)

    def extend(self, numbers: Ints, values: list[NDArray[np.float64]]) -> bool:
        """Take the steps of many rows; return whether they can be."""
        step = values[0].astype(np.int64)
        if (step != values[0]).any():
            return False
        new, last = np.diff(step, prepend=self.last) != 0, int(step[-1])
        step, numbers = step[new], numbers[new]
        if not len(self.log) and len(step):
            self._first(int(numbers[0]), int(step[0]), float(values[1][0]))
            step, numbers = step[1:], numbers[1:]
        unknown = np.broadcast_to(np.int64(UNKNOWN), len(step))
        self.log.steps(step, line=numbers, at=unknown, took=unknown, rank=np.broadcast_to(np.int64(-1), len(step)))
        self.last = last
        return True

    def take(self, number: int, line: bytes) -> None:
        """Take the step of a row."""
        cells = line.rstrip(b"\r\n").split(b",")
        if number == 1:
            return
        if len(cells) != len(self.columns):
            if line.strip():
                self.log.bad.add("no row, left out", number, f"it has {len(cells)} cells of {len(self.columns)}")
            return
        if self._is_test(cells):
            return
        cell = cells[self._step]
        step = _step(cell)
        if step is None:
            if cell.strip():
                self.log.bad.add("without a step that can be, left out", number, repr(cell[:40])[2:-1])
        elif not len(self.log):
            self._first(number, step, math.nan if (epoch := _step(cells[self._epoch])) is None else epoch)
        elif step != self.last and self.log.step(step, line=number):
            self.last = step

    def _first(self, number: int, step: int, epoch: float) -> None:
        """Take the first step: in the first epoch it stands for all from 0 on."""
        if self.log.step(step, line=number, count=step + 1 if epoch == 0 else 0):
            self.last = step


def _any(which: list[bool], cells: list[bytes]) -> bool:
    return any(is_one and cell.strip() for is_one, cell in zip(which, cells, strict=True))


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
