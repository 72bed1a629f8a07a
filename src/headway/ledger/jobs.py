"""The jobs of a pool as columns: some tens of bytes a job, whatever many there are; each is made when it is asked."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, overload

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

LABELS: Final = ("state", "user", "account", "partition")
"""By what the ledger of a pool can be split."""
UNTOLD: Final = -(1 << 63)
"""A moment that nobody tells, in a column."""
_AT_ONCE: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One attempt of a job in a pool.

    Attributes:
        id: Its number there; a requeued job has one attempt after the other.
        milli: Devices it asked for, in thousandths: some schedulers share a device.
        state: How it ended, or what it does, in lower case: ``completed``, ``failed``, ``running`` ...
        submit_ns: When it was put into the queue [ns since the Unix epoch]; None where nobody says.
        start_ns: When it got its devices; None: it never did, or not yet.
        end_ns: When it gave them back; None: not yet.
        name, user, account, partition: What it is called and whose it is; empty where nobody says.
    """

    id: str
    milli: int
    state: str
    submit_ns: int | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""


class Texts(Sequence[str]):
    """Texts that seldom repeat, one after the other in memory.

    Example:
        >>> texts = Texts()
        >>> texts.append("42_7")
        >>> texts.append("43")
        >>> list(texts), len(texts)
        (['42_7', '43'], 2)
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._ends = array("q", [0])

    def append(self, text: str) -> None:
        """Add one."""
        if text:
            self._bytes += text.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._bytes))

    def extend(self, texts: Iterable[str]) -> None:
        """Add some."""
        for text in texts:
            self.append(text)

    def extend_bytes(self, texts: Sequence[bytes]) -> None:
        """Add some at once, as UTF-8."""
        ends = np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts))) + len(self._bytes)
        self._bytes += b"".join(texts)
        self._ends.frombytes(ends.tobytes())

    def raw(self, place: int) -> bytes:
        """Return one as UTF-8."""
        return bytes(self._bytes[self._ends[place] : self._ends[place + 1]])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        return self._bytes[self._ends[place] : self._ends[place + 1]].decode("utf-8", "surrogatepass")

    def hashes(self) -> Ints:
        """Return a number a text: equal ones have equal ones, and different ones hardly ever."""
        whole = memoryview(self._bytes)
        return np.fromiter((hash(bytes(whole[low:high])) for low, high in pairwise(self._ends)), np.int64, len(self))

    def take(self, places: Ints) -> Texts:
        """Return some of them."""
        taken = Texts()
        ends, whole = self._ends, self._bytes
        for low in range(0, len(places), _AT_ONCE):
            for place in places[low : low + _AT_ONCE].tolist():
                taken._bytes += whole[ends[place] : ends[place + 1]]
                taken._ends.append(len(taken._bytes))
        return taken


def _ints() -> array[int]:
    return array("q")


@dataclass(eq=False)
class Jobs(Sequence[Job]):
    """Jobs in any order, to which more can be added.

    Attributes:
        milli: By job, devices in thousandths.
        submit_ns, start_ns, end_ns: By job [ns since the Unix epoch]; `UNTOLD` for None.
        labels: By `LABELS` and job, the place of the label in ``words``.
        words: Every label there is, once.
        ids, names: By job.
    """

    milli: array[int] = field(default_factory=_ints)
    submit_ns: array[int] = field(default_factory=_ints)
    start_ns: array[int] = field(default_factory=_ints)
    end_ns: array[int] = field(default_factory=_ints)
    labels: dict[str, array[int]] = field(default_factory=lambda: {name: array("i") for name in LABELS})
    words: list[str] = field(default_factory=list)
    ids: Texts = field(default_factory=Texts)
    names: Texts = field(default_factory=Texts)
    _places: dict[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, jobs: Iterable[Job]) -> Jobs:
        """Return jobs as columns.

        Example:
            >>> jobs = Jobs.of([Job(id="7", milli=8000, state="completed", start_ns=5, user="ana")])
            >>> len(jobs), jobs[0].user, jobs[0].end_ns, jobs.column("start_ns").tolist()
            (1, 'ana', None, [5])
        """
        if isinstance(jobs, Jobs):
            return jobs
        made = cls()
        for job in jobs:
            made.append(job)
        return made

    def append(self, job: Job) -> None:
        """Add one."""
        moments = (job.submit_ns, job.start_ns, job.end_ns)
        self.add(job.id, job.milli, moments, (job.state, job.user, job.account, job.partition), job.name)

    def add(
        self,
        ident: str,
        milli: int,
        moments: tuple[int | None, int | None, int | None],
        labels: tuple[str, str, str, str],
        name: str = "",
    ) -> None:
        """Add one, told as `Job` has it.

        Args:
            ident: Its number.
            milli: Devices in thousandths.
            moments: When it was submitted, started and ended [ns since the Unix epoch].
            labels: In the order of `LABELS`.
            name: What it is called.
        """
        submit, start, end = moments
        self.milli.append(milli)
        self.submit_ns.append(UNTOLD if submit is None else submit)
        self.start_ns.append(UNTOLD if start is None else start)
        self.end_ns.append(UNTOLD if end is None else end)
        self.ids.append(ident)
        self.names.append(name)
        places = self._places
        for column, word in zip(self.labels.values(), labels, strict=True):
            place = places.get(word)
            column.append(self.place(word) if place is None else place)

    def add_columns(
        self,
        ids: Sequence[bytes],
        milli: Ints,
        moments: tuple[Ints, Ints, Ints],
        labels: tuple[Ints, Ints, Ints, Ints],
        names: Sequence[bytes],
    ) -> None:
        """Add several at once.

        Args:
            ids: Their numbers, as UTF-8.
            milli: Devices in thousandths, ``(n,)``.
            moments: As for `add`, each ``(n,)``, with `UNTOLD` for None.
            labels: In the order of `LABELS`, each ``(n,)``: places that `place` returned.
            names: What they are called, as UTF-8.
        """
        for column, values in zip(
            (self.milli, self.submit_ns, self.start_ns, self.end_ns), (milli, *moments), strict=True
        ):
            column.frombytes(values.astype(np.int64, copy=False).tobytes())
        for column, values in zip(self.labels.values(), labels, strict=True):
            column.frombytes(values.astype(np.int32, copy=False).tobytes())
        self.ids.extend_bytes(ids)
        self.names.extend_bytes(names)

    def place(self, word: str) -> int:
        """Return the place of a label in ``words``, where it is put if it is new."""
        place = self._places.setdefault(word, len(self.words))
        if place == len(self.words):
            self.words.append(word)
        return place

    def __len__(self) -> int:
        return len(self.milli)

    @overload
    def __getitem__(self, place: int) -> Job: ...
    @overload
    def __getitem__(self, place: slice) -> list[Job]: ...
    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        labels = {name: self.words[column[place]] for name, column in self.labels.items()}
        return Job(
            id=self.ids[place],
            milli=self.milli[place],
            submit_ns=_told(self.submit_ns[place]),
            start_ns=_told(self.start_ns[place]),
            end_ns=_told(self.end_ns[place]),
            name=self.names[place],
            **labels,
        )

    def column(self, name: str) -> Ints:
        """Return a column as an array, ``(n,)``: a view, so that nothing is added while it is in use.

        Args:
            name: ``milli``, ``submit_ns``, ``start_ns``, ``end_ns``, or one of `LABELS`.
        """
        values = self.labels[name] if name in self.labels else getattr(self, name)
        return np.frombuffer(values, np.dtype(values.typecode))

    def take(self, places: Ints) -> Jobs:
        """Return some of them, in another order."""
        taken = Jobs(words=self.words, ids=self.ids.take(places), names=self.names.take(places), _places=self._places)
        for name in ("milli", "submit_ns", "start_ns", "end_ns"):
            getattr(taken, name).frombytes(self.column(name)[places].tobytes())
        for name, column in taken.labels.items():
            column.frombytes(self.column(name)[places].tobytes())
        return taken

    def several(self) -> Iterator[list[int]]:
        """Yield the places of the jobs of one number, in order, where more than one has it.

        Example:
            >>> jobs = Jobs.of(Job(id=name, milli=0, state="") for name in ("7", "8", "7"))
            >>> list(jobs.several())
            [[0, 2]]
        """
        hashes = self.ids.hashes()
        ordered = np.sort(hashes)
        twice = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
        del ordered
        if not len(twice):
            return
        order = np.concatenate([
            first + np.flatnonzero(_among(hashes[first : first + _AT_ONCE], twice))
            for first in range(0, len(hashes), _AT_ONCE)
        ])  # fmt: skip
        hashes = hashes[order]
        order = order[np.argsort(hashes, kind="stable")]
        hashes.sort()
        ends = np.flatnonzero(np.concatenate([hashes[1:] != hashes[:-1], [True]])) + 1
        for first, end in pairwise([0, *ends.tolist()]):
            places = order[first:end].tolist()
            by_id: dict[bytes, list[int]] = {}
            for place in places:
                by_id.setdefault(self.ids.raw(place), []).append(place)
            yield from (places for places in by_id.values() if len(places) > 1)


def _among(values: Ints, known: Ints) -> NDArray[np.bool_]:
    """Return which values are among those that are known, which are in order."""
    return known[np.searchsorted(known, values).clip(max=len(known) - 1)] == values


def _told(at_ns: int) -> int | None:
    return None if at_ns == UNTOLD else at_ns
