"""Arrays in the queue, ``13_[1-4%2]``: each once, without the tasks that have a record of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.ledger.jobs import UNTOLD, Jobs
from headway.sources.slurm import fields

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_LONGEST: Final = 10_000
"""A longer list of tasks is only counted [characters]."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The tasks of an array that wait, as one record tells them.

    Attributes:
        id: Its number, with the tasks in brackets, as it is shown.
        milli: Devices of each task in thousandths.
        submit_ns: When it was put into the queue [ns since the Unix epoch]; None where nobody says.
        labels: State, user, account and partition.
        name: What it is called.
        n_tasks: How many tasks wait.
        n_at_once: How many of them may run at once; 0: all.
        text: Their list; empty where it is too long.
    """

    id: str
    milli: int
    submit_ns: int | None
    labels: tuple[str, str, str, str]
    name: str = ""
    n_tasks: int = 1
    n_at_once: int = 0
    text: str = ""

    @property
    def base(self) -> str:
        """Its number without the tasks."""
        return self.id.rpartition("_[")[0]

    def of(self, text: str) -> Waiting:
        """Return it with the tasks that a text lists."""
        spans, n_at_once = fields.tasks(text)
        short = text if len(text) <= _LONGEST else ""
        return replace(self, n_tasks=sum(map(len, spans)) or 1, n_at_once=n_at_once, text=short)

    def n_among(self, numbers: Ints) -> int:
        """Return how many of its tasks have one of these numbers, each of which is there once, ``(n,)``."""
        spans, _ = fields.tasks(self.text)
        found = np.zeros(len(numbers), bool)
        whole = np.array(sorted((span.start, span.stop) for span in spans if span.step == 1), np.int64).reshape(-1, 2)
        if len(whole):
            at = np.searchsorted(whole[:, 0], numbers, "right") - 1
            found |= (at >= 0) & (numbers < np.maximum.accumulate(whole[:, 1])[at])
        for span in spans:
            if span.step > 1:
                found |= (numbers >= span.start) & (numbers < span.stop) & ((numbers - span.start) % span.step == 0)
        return int(found.sum())


class Arrays:
    """Arrays in the queue as they are read, each as the latest record tells it.

    As tasks start, they are no more in its list: of two records of one submission that of fewer tasks is the later.

    Attributes:
        n_repeated: How many records were of an array of which another tells too.
        n_told: How many tasks were taken out that have a record of their own.
        n_several: How many arrays asked for the devices of several tasks.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}
        self.n_repeated = 0
        self.n_told = 0
        self.n_several = 0

    def add(self, new: Waiting) -> None:
        """Take one record.

        Example:
            >>> from headway.ledger.jobs import Job
            >>> arrays, labels = Arrays(), ("pending", "", "", "")
            >>> for name in ("13_[1-9]", "13_[4-9%3]", "13_[2-9%3]"):
            ...     arrays.add(Waiting(name, 1000, None, labels).of(name))
            >>> ran = Jobs.of([Job(id="13_5", milli=1000, state="completed")])
            >>> [(one.id, n_at_once) for one, n_at_once in arrays.left(ran, [])]
            [('13_[4-9%3]', 3)]
            >>> arrays.n_repeated, arrays.n_told
            (2, 1)
        """
        old = self._waiting.setdefault(new.base, new)
        if old is new:
            return
        self.n_repeated += 1
        submits = [one.submit_ns for one in (old, new) if one.submit_ns is not None]
        latest = max(old, new, key=_age)
        if len({*submits}) == 2:
            latest = max(old, new, key=lambda one: one.submit_ns or 0)
        self._waiting[new.base] = replace(latest, submit_ns=max(submits, default=None))

    def __contains__(self, base: object) -> bool:
        """Return whether an array of this number waits."""
        return base in self._waiting

    def left(self, jobs: Jobs, more: Iterable[str]) -> Iterator[tuple[Waiting, int]]:
        """Yield the arrays of which tasks wait that nothing else tells, and how many of those may run at once.

        An array of which another record says that it ended in the queue does not wait.

        Args:
            jobs: Those with a record of their own.
            more: Numbers of other jobs that are told.
        """
        told: dict[str, set[int]] = {base: set() for base in self._waiting}
        ended: set[str] = set()
        for ident in (*self._since(jobs), *more):
            base, _, task = ident.rpartition("_")
            if base in told and task.startswith("["):
                ended.add(base)
            elif base in told and task.isdecimal() and len(task) < 10:
                told[base].add(int(task))
        for base, one in self._waiting.items():
            n_told = one.n_among(np.array(sorted(told[base]), np.int64)) if told[base] else 0
            if base in ended or n_told >= one.n_tasks:
                self.n_repeated += 1
                continue
            self.n_told += n_told
            n_left = one.n_tasks - n_told
            n_left = min(n_left, one.n_at_once or n_left)
            self.n_several += n_left > 1
            yield one, n_left

    def warnings(self) -> Iterator[str]:
        """Yield what arrays are taken for."""
        if self.n_several:
            yield (
                f"{self.n_several} records are arrays in the queue: each is one job that asks for the devices of "
                "all tasks that may run at once"
            )
        if self.n_told:
            yield f"tasks of arrays in the queue that have a record of their own and count there: {self.n_told}"

    def _since(self, jobs: Jobs) -> Iterator[str]:
        """Yield the numbers of the jobs of arrays that were submitted no earlier than those."""
        if not self._waiting:
            return
        submit = jobs.column("submit_ns")
        first = min(UNTOLD if one.submit_ns is None else one.submit_ns for one in self._waiting.values())
        for place in np.flatnonzero((submit == UNTOLD) | (submit >= first)).tolist():
            ident = jobs.ids[place]
            one = self._waiting.get(ident.rpartition("_")[0])
            if one and (submit[place] == UNTOLD or one.submit_ns is None or submit[place] >= one.submit_ns):
                yield ident


def _age(one: Waiting) -> tuple[int, bool, str, int, str]:
    """Return what is greater of the record of an array that is later, or tells more."""
    return -one.n_tasks, one.submit_ns is not None, one.labels[0], one.milli, one.id
