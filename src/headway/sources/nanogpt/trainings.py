"""Trainings that one log tells one after the other: each is a run of its own."""

from __future__ import annotations

from collections.abc import Sequence

from headway.sources.steps.lines import StepLines


def another(read: StepLines, first: int) -> StepLines:
    """Return what the lines of another training of a log are told to.

    Args:
        read: The log as it is read, which the lines of its first training are told to.
        first: The number of the training's first step.
    """
    log = StepLines(read.source, read.path)
    log.first = first
    return log


def share(trainings: Sequence[StepLines], ends: Sequence[int | None]) -> None:
    """Give each training its part of the time that a log tells of, once all was told.

    A training begins where the one before it ended: what lies between is what it took to start.

    Args:
        trainings: Them, first that which was told the whole log's times.
        ends: When each but the last ended [ns since the Unix epoch]; None where nothing says.
    """
    read, *later = trainings
    if not later:
        return
    last = later[-1]
    if read.latest is not None:
        last.seen(read.latest)
    for log, before, end in zip(later, trainings[:-1], ends, strict=True):
        log.n_zoned, log.n_local = read.n_zoned, read.n_local
        if end is not None:
            before.latest = before.last_at = end
            log.earliest = end if log.earliest is None else min(log.earliest, end)
            log.opening = log.earliest
