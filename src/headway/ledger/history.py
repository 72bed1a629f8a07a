"""What a ledger is made from: a run, its processes, their events and rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headway.events import AnyEvent, Open, Step, Unknown

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of one process as columns, in any order.

    Attributes:
        step: Step numbers, ``(n,)`` int64.
        start, end: Monotonic clock [ns], ``(n,)`` int64.
        waits: By phase, what the row waited [ns], each ``(n,)`` int64.
    """

    step: NDArray[np.int64]
    start: NDArray[np.int64]
    end: NDArray[np.int64]
    waits: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.step)

    @classmethod
    def from_events(cls, steps: Sequence[Step], phases: Iterable[str] = ()) -> Rows:
        """Return the columns of step events; a phase an event does not name is 0.

        Example:
            >>> rows = Rows.from_events([Step(step=3, start=10, end=20, phases={"source": 4})])
            >>> rows.step.tolist(), rows.waits["source"].tolist()
            ([3], [4])
        """
        names = dict.fromkeys([*phases, *(name for event in steps for name in event.phases)])
        return cls(
            np.array([event.step for event in steps], np.int64),
            np.array([event.start for event in steps], np.int64),
            np.array([event.end for event in steps], np.int64),
            {name: np.array([event.phases.get(name, 0) for event in steps], np.int64) for name in names},
        )


@dataclass(frozen=True, eq=False)
class Process:
    """One rank of one attempt: what it wrote.

    Attributes:
        open: How it began; holds attempt, rank, devices and the pair of clocks.
        events: All its other events but steps, in any order.
        rows: Its steps or batches.
        warnings: What reading it could not make sense of, a sentence each.
    """

    open: Open
    events: Sequence[AnyEvent | Unknown] = ()
    rows: Rows = field(default_factory=lambda: Rows.from_events(()))
    warnings: Sequence[str] = ()


@dataclass(frozen=True, eq=False)
class Run:
    """One run: its processes over all attempts and ranks.

    Attributes:
        name: The run's name.
        source: The name of the source that read it, such as ``native``.
        processes: In any order; one attempt and rank each.
        path: Where it was read from, for messages.
        warnings: What reading it could not make sense of, a sentence each.
    """

    name: str
    source: str
    processes: Sequence[Process]
    path: str = ""
    warnings: Sequence[str] = ()
