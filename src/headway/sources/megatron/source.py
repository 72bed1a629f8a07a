"""Logs of Megatron-LM and Megatron-DeepSpeed: a line for every so many iterations, whose time is the mean of each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headway.sources.megatron import marks
from headway.sources.megatron.iterations import BELOW, LINE, MARK, iterations, learn, many, scheduled, tells
from headway.sources.megatron.log import Log, flush
from headway.sources.steps.lines import StepLines, ending, holds
from headway.sources.text import clean

if TYPE_CHECKING:
    from pathlib import Path

    from headway.ledger.history import Run
    from headway.sources.asked import Asked
    from headway.sources.steps.alike import Spans


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
    log = Log(StepLines(Megatron.name, path))

    def take(number: int, line: bytes) -> None:
        if tells(line):
            iterations(log, line, number)
        elif BELOW[0] in line or BELOW[1] in line:
            scheduled(log, line, number)
        elif marks.says(line):
            marks.other(log, line, number)
        elif (reason := ending(line)) is not None:
            log.steps.close(reason, line=number)

    log.steps.read(_learn, partial(many, log), take)
    flush(log)
    return log


def _learn(line: bytes) -> Spans | None:
    """Return where the numbers of a line are, see `headway.sources.steps.lines.StepLines.read`."""
    if tells(line):
        return learn(line)
    return None if BELOW[0] in line or BELOW[1] in line or marks.says(line) or ending(line) is not None else ()
