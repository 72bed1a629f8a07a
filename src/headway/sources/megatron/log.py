"""What a log of Megatron says, as it is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headway.sources.steps.column import Table
from headway.sources.steps.columns import UNKNOWN, counting

if TYPE_CHECKING:
    from headway.sources.steps.lines import Stamp, StepLines


@dataclass
class Between:
    """What is said between two step lines, by category.

    Attributes:
        untold: What no timer has told of yet: the line that names it, when it ended, and how long it took.
        began, ended: When what a timer may tell of later began or ended [ns since the Unix epoch].
        timed: What a timer told of.
        saves: The ends of saves, by what a line says of one.
    """

    untold: dict[str, tuple[int, int | None, int | None]] = field(default_factory=dict)
    began: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    timed: set[str] = field(default_factory=set)
    saves: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        """Return whether anything was said."""
        return bool(self.untold or self.began or self.ended or self.timed)


@dataclass
class Log:
    """What a log says.

    Attributes:
        steps: Its step lines and marks.
        devices: The world size; None where it does not say.
        lost: Of each line that tells of such iterations: how many step lines came before it, how many updates were
            skipped, and how many losses were no number.
        samples: How many samples were consumed by the last line; None where it does not say.
        begun: When its first line with a date was written, if no iteration stands before it.
        started: When the program was ready to train, and no step has followed [ns since the Unix epoch].
        inside: What of the time since then each rank tells of otherwise [ns].
        scheduled: The last step that DeepSpeed told of, and when [ns since the Unix epoch].
        background: The last iteration whose checkpoint is saved behind the steps; -1: none.
        between: What was said since the last step line.
        last: The iteration of the last step line.
        n_last: How many step lines in a row told of it.
    """

    steps: StepLines
    devices: int | None = None
    lost: Table = field(default_factory=lambda: Table("place", "skipped", "nan"))
    samples: int | None = None
    begun: Stamp | None = None
    started: int | None = None
    inside: dict[int, int] = field(default_factory=dict)
    scheduled: tuple[int, int] | None = None
    background: int = -1
    between: Between = field(default_factory=Between)
    last: int = -1
    n_last: int = 0

    def told(self, step: int, n: int = 1) -> None:
        """Note that so many step lines in a row told of an iteration."""
        self.n_last = n + (self.n_last if step == self.last else 0)
        self.last = step

    def wait(self, name: str, took_ns: int) -> None:
        """Say what one step waited, of all that tell of the last iteration and do not know yet [ns]."""
        self.steps.wait(name, took_ns)
        if name in self.steps.waits:
            waits = self.steps.waits[name]
            for place in range(max(len(waits) - self.n_last, 0), len(waits) - 1):
                waits[place] = waits[place] or took_ns


def lost(log: Log) -> tuple[int, int]:
    """Return in how many iterations the update was skipped, and in how many the loss was no number.

    As the rank says whose steps count; a line that is told again counts once.
    """
    place, skipped, nan = (column.values() for column in log.lost.columns.values())
    if not len(place):
        return 0, 0
    step, at, took, rank = (log.steps.columns[name].values() for name in ("step", "at", "took", "rank"))
    mine = rank[place] == counting(rank)
    place, skipped, nan = place[mine], skipped[mine], nan[mine]
    order = np.lexsort((place, step[place], at[place])) if (at[place] != UNKNOWN).any() else np.arange(len(place))
    place = place[order]
    same = np.zeros(len(place), bool)
    same[1:] = np.logical_and.reduce([values[place[1:]] == values[place[:-1]] for values in (step, at, took)])
    return int(skipped[order][~same].sum()), int(nan[order][~same].sum())


def flush(log: Log) -> None:
    """Tell of what lies before the next step and no timer told of, before the time of that step is known."""
    if log.between:
        for category, (number, at_ns, took_ns) in log.between.untold.items():
            log.steps.span(category, line=number, at_ns=at_ns, took_ns=took_ns)
        log.between = Between()
