"""What a log of Megatron says, as it is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headway.sources.steps.lines import Stamp, StepLines


@dataclass
class Between:
    """What is said between two step lines, by category.

    Attributes:
        untold: What no timer has told of yet: the line that names it, when it ended, and how long it took.
        began, ended: When what a timer may tell of later began or ended [ns since the Unix epoch].
        timed: What a timer told of.
    """

    untold: dict[str, tuple[int, int | None, int | None]] = field(default_factory=dict)
    began: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)
    timed: set[str] = field(default_factory=set)

    def __bool__(self) -> bool:
        """Return whether anything was said."""
        return bool(self.untold or self.began or self.ended or self.timed)


@dataclass
class Log:
    """What a log says.

    Attributes:
        steps: Its step lines and marks.
        devices: The world size; None where it does not say.
        n_skipped, n_nan: Iterations whose update was skipped, or whose loss was no number, as its lines say.
        samples: How many samples were consumed by the last line; None where it does not say.
        begun: When its first line with a date was written, if no iteration stands before it.
        started: When the program was ready to train, and no step has followed [ns since the Unix epoch].
        inside_ns: What of the time since then is told of otherwise [ns].
        scheduled: The last step that DeepSpeed told of, and when [ns since the Unix epoch].
        background: The last iteration whose checkpoint is saved behind the steps; -1: none.
        between: What was said since the last step line.
    """

    steps: StepLines
    devices: int | None = None
    n_skipped: int = 0
    n_nan: int = 0
    samples: int | None = None
    begun: Stamp | None = None
    started: int | None = None
    inside_ns: int = 0
    scheduled: tuple[int, int] | None = None
    background: int = -1
    between: Between = field(default_factory=Between)


def flush(log: Log) -> None:
    """Tell of what lies before the next step and no timer told of, before the time of that step is known."""
    if log.between:
        for category, (number, at_ns, took_ns) in log.between.untold.items():
            log.steps.span(category, line=number, at_ns=at_ns, took_ns=took_ns)
        log.between = Between()
