"""Logs of Megatron-LM and Megatron-DeepSpeed: a line for every so many iterations, whose time is the mean of each."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from headway.clock import NS_PER_S
from headway.sources.megatron import marks
from headway.sources.megatron.iterations import BELOW, LINE, MARK, iterations, learn, many, scheduled, tells
from headway.sources.megatron.log import Log, flush, lost
from headway.sources.steps.lines import Stamp, StepLines, bare, ending, holds, stamp
from headway.sources.text import clean

if TYPE_CHECKING:
    from pathlib import Path

    from headway.ledger.history import Run
    from headway.sources.asked import Asked
    from headway.sources.steps.alike import Spans


_DATED: Final = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_FRONT: Final = 240
"""So far into a line its date begins: a bar of progress may stand in front [characters]."""
_FAR: Final = 86400 * NS_PER_S
"""A program trains so soon after it begins [ns]."""


class Megatron:
    """The source of Megatron-LM logs."""

    name = "megatron"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no Megatron log, or None when it is one."""
        return None if holds(path, head, MARK, LINE) else "no line tells of an iteration and the elapsed time of each"

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the run of a log.

        Raises:
            SourceError: No line tells of an iteration, slug ``no-runs``.
            OSError: It cannot be read.
        """
        log = read(path)
        n_skipped, n_nan = lost(log)
        if n_skipped:
            log.steps.warnings.append(f"{n_skipped} iterations were skipped: they took time and changed nothing")
        if n_nan:
            log.steps.warnings.append(f"{n_nan} iterations had a loss that is no number")
        return [log.steps.run(clean(path.stem), asked, devices=log.devices)]


def read(path: Path) -> Log:
    """Return what a log says.

    Raises:
        OSError: It cannot be read.
    """
    log, looked = Log(StepLines(Megatron.name, path)), False

    def look(line: bytes) -> Spans | None:
        nonlocal looked
        if not looked and not tells(line) and (dated := _dated(line)) is not None:
            looked = _when(dated) is not None
            return None  # the first line with a date is read by itself
        looked = looked or tells(line)
        return _learn(line)

    def take(number: int, line: bytes) -> None:
        if log.begun is None and not len(log.steps) and (dated := _dated(line)) is not None:
            log.begun = _when(dated)
        _take(log, number, line)

    log.steps.read(look, partial(many, log), take)
    flush(log)
    _begin(log)
    return log


def _take(log: Log, number: int, line: bytes) -> None:
    """Read a line."""
    if tells(line):
        iterations(log, line, number)
    elif BELOW[0] in line or BELOW[1] in line:
        scheduled(log, line, number)
    elif marks.says(line):
        marks.other(log, line, number)
    elif (reason := ending(line)) is not None:
        log.steps.close(reason, line=number)


def _dated(line: bytes) -> str | None:
    """Return a line from its date in brackets on; None where none is near its beginning."""
    text = bare(line).text
    found = _DATED.search(text, 0, _FRONT)
    return text[found.start() :] if found else None


def _when(dated: str) -> Stamp | None:
    """Return the date that a text begins with; None of one that cannot be."""
    with suppress(ValueError):
        return stamp(dated)
    return None


def _begin(log: Log) -> None:
    """Let the run begin with the first line of the log that has a date, if that is not far before what it tells."""
    begun, earliest = log.begun, log.steps.earliest
    if begun is None or earliest is None or begun.zoned != bool(log.steps.n_zoned):
        return
    if earliest - _FAR < begun.ns < earliest:
        log.steps.earliest = log.steps.opening = begun.ns


def _learn(line: bytes) -> Spans | None:
    """Return where the numbers of a line are, see `headway.sources.steps.lines.StepLines.read`."""
    if tells(line):
        return learn(line)
    return None if BELOW[0] in line or BELOW[1] in line or marks.says(line) or ending(line) is not None else ()
