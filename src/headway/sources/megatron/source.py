"""Logs of Megatron-LM and Megatron-DeepSpeed: a line for every so many iterations, whose time is the mean of each."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from headway.clock import NS_PER_S
from headway.sources.megatron import marks
from headway.sources.megatron.iterations import BELOW, LINE, MARK, iterations, learn, many, scheduled, tells
from headway.sources.megatron.log import Log, flush
from headway.sources.steps.lines import StepLines, ending, holds, stamp
from headway.sources.text import clean

if TYPE_CHECKING:
    from pathlib import Path

    from headway.ledger.history import Run
    from headway.sources.asked import Asked
    from headway.sources.steps.alike import Spans


_DATED: Final = re.compile(rb"\[20\d\d-\d\d-\d\d \d\d:\d\d:\d\d")
_FRONT: Final = 60
"""So much of a line is looked at for its date [bytes]."""
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
        if log.n_skipped:
            log.steps.warnings.append(f"{log.n_skipped} iterations were skipped: they took time and changed nothing")
        if log.n_nan:
            log.steps.warnings.append(f"{log.n_nan} iterations had a loss that is no number")
        return [log.steps.run(clean(path.stem), asked, devices=log.devices)]


def read(path: Path) -> Log:
    """Return what a log says.

    Raises:
        OSError: It cannot be read.
    """
    log, looked = Log(StepLines(Megatron.name, path)), False

    def look(line: bytes) -> Spans | None:
        nonlocal looked
        first = not looked and (tells(line) or _DATED.match(line) is not None)
        looked = looked or first
        return _learn(line) if not first or tells(line) else None

    def take(number: int, line: bytes) -> None:
        if log.begun is None and not len(log.steps) and _DATED.match(line):
            with suppress(ValueError):
                log.begun = stamp(line[:_FRONT].decode("utf-8", "replace"))
        if tells(line):
            iterations(log, line, number)
        elif BELOW[0] in line or BELOW[1] in line:
            scheduled(log, line, number)
        elif marks.says(line):
            marks.other(log, line, number)
        elif (reason := ending(line)) is not None:
            log.steps.close(reason, line=number)

    log.steps.read(look, partial(many, log), take)
    flush(log)
    _begin(log)
    return log


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
