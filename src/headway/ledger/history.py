"""What a ledger is made from: a run with its processes, their events and rows; or a pool with its jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headway.events import AnyEvent, Open, Step, Unknown
from headway.ledger.jobs import Job

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, repr=False)
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

    def __repr__(self) -> str:
        """Return how many there are, and by which phases."""
        return f"<{len(self)} rows, waits by {', '.join(self.waits) or 'nothing'}>"

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


@dataclass(frozen=True, eq=False, repr=False)
class Run:
    """One run: its processes over all attempts and ranks.

    Attributes:
        name: The run's name.
        source: The name of the source that read it, such as ``native``.
        processes: In any order; one attempt and rank each.
        path: Where it was read from, for messages.
        warnings: What reading it could not make sense of, a sentence each.
        unknown: Factors that it cannot tell, ``S``, ``R`` or ``P``, each with the reason: a log without a
            clock says nothing of the time between its steps.
        energy_j: What its devices took while it ran, where that was metered [J].
        clock: Whether its times are of a clock; without one its steps lie end to end, and when that was is not known.
    """

    name: str
    source: str
    processes: Sequence[Process]
    path: str = ""
    warnings: Sequence[str] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    energy_j: float | None = None
    clock: bool = True

    def __repr__(self) -> str:
        """Return what it is, in a line."""
        n_attempts = len({process.open.attempt for process in self.processes})
        n_rows = sum(len(process.rows) for process in self.processes)
        made = f"{n_attempts} attempts, {len(self.processes)} processes, {n_rows} rows"
        return f"<Run {self.name!r} of {self.source}: {made}>"


@dataclass(frozen=True, slots=True)
class Outage:
    """Devices that were out of service.

    Attributes:
        devices: How many.
        begin_ns: Since when [ns since the Unix epoch].
        end_ns: Until when; None: still.
    """

    devices: int
    begin_ns: int
    end_ns: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Pool:
    """A pool of devices and its jobs.

    Attributes:
        name: Its name.
        source: The name of the source that read it, such as ``slurm``.
        jobs: In any order; many are best told as `headway.ledger.jobs.Jobs`.
        devices: How many devices there are; None where nobody says.
        outages: What was out of service.
        begin_ns, end_ns: The window that it covers [ns since the Unix epoch]; None: from its first moment to its last.
        totals_ns: Device-time by state, where only that is known and no job [device-ns].
        path: Where it was read from, for messages.
        warnings: What reading it could not make sense of, a sentence each.
    """

    name: str
    source: str
    jobs: Sequence[Job] = ()
    devices: int | None = None
    outages: Sequence[Outage] = ()
    begin_ns: int | None = None
    end_ns: int | None = None
    totals_ns: Mapping[str, int] | None = None
    path: str = ""
    warnings: Sequence[str] = ()

    def __repr__(self) -> str:
        """Return what it is, in a line."""
        size = "of unknown size" if self.devices is None else f"of {self.devices} devices"
        return f"<Pool {self.name!r} of {self.source}: {len(self.jobs)} jobs, {size}>"


@dataclass(frozen=True, eq=False, repr=False)
class Served:
    """Requests to a server and how long each took, as columns.

    Attributes:
        name: The name of the test or the server.
        source: The name of the source that read it, such as ``vllmbench``.
        ttft_s: Time to the first token [s], ``(n,)`` float; NaN where there was none or nobody says.
        tpot_s: Time an output token after the first [s], ``(n,)`` float; NaN where there was no second.
        e2e_s: Time from sending to the last token [s], ``(n,)`` float; NaN where nobody says.
        tokens: Output tokens, ``(n,)`` int64; -1 where nobody says.
        ok: Whether the server answered without an error, ``(n,)`` bool.
        n_cut: How many of them the end of the test cut off, so that they were not answered.
        duration_s: How long the test took [s]; None where nobody says.
        devices: How many devices served; None where nobody says.
        path: Where it was read from, for messages.
        warnings: What reading it could not make sense of, a sentence each.
    """

    name: str
    source: str
    ttft_s: NDArray[np.float64]
    tpot_s: NDArray[np.float64]
    e2e_s: NDArray[np.float64]
    tokens: NDArray[np.int64]
    ok: NDArray[np.bool_]
    n_cut: int = field(default=0, kw_only=True)
    duration_s: float | None = None
    devices: int | None = None
    path: str = ""
    warnings: Sequence[str] = ()

    def __repr__(self) -> str:
        """Return what it is, in a line."""
        return f"<Served {self.name!r} of {self.source}: {len(self.ok)} requests>"
