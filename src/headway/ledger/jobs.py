"""The jobs of a pool as columns: some tens of bytes a job, whatever many there are; each is made when it is asked."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
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
_NUMBERS: Final = ("milli", "submit_ns", "start_ns", "end_ns")
_AT_ONCE: Final = 1 << 16
_MIX: Final = 0x5851F42D4C957F2D
"""Odd, and of no pattern: times it, plus the next, again and again, many numbers make one that tells them apart."""


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
        found = np.empty(len(self), np.int64)
        for low in range(0, len(self), _AT_ONCE):
            ends = self._ends[low : low + _AT_ONCE + 1]
            part = bytes(self._bytes[ends[0] : ends[-1]])
            cuts = (np.frombuffer(ends, np.int64) - ends[0]).tolist()
            texts = map(part.__getitem__, map(slice, cuts, cuts[1:]))
            found[low : low + len(cuts) - 1] = np.fromiter(map(hash, texts), np.int64, len(cuts) - 1)
        return found

    def same(self, places: Ints, others: Ints) -> NDArray[np.bool_]:
        """Return, pair by pair of places, whether the same text is at both."""
        pairs = zip(map(self.raw, places), map(self.raw, others), strict=True)
        return np.fromiter((one == other for one, other in pairs), bool, len(places))

    def drop(self, places: Ints) -> None:
        """Take out some, told by their places in order."""
        ends, kept, begin = self._ends, bytearray(), 0
        for place in places.tolist():
            kept += self._bytes[ends[begin] : ends[place]]
            begin = place + 1
        kept += self._bytes[ends[begin] :]
        lengths = np.delete(np.diff(np.frombuffer(ends, np.int64)), places)
        self._bytes, self._ends = kept, array("q", [0])
        self._ends.frombytes(np.cumsum(lengths, out=lengths).data.cast("B"))

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


@dataclass(eq=False, repr=False)
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

    def __repr__(self) -> str:
        return f"<{len(self)} jobs>"

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
        for name in _NUMBERS:
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
        order, begins = _alike(self.ids.hashes())
        for first, end in pairwise([*begins.tolist(), len(order)]):
            yield from _by(self.ids.raw, order[first:end].tolist())

    def drop_repeated(self) -> int:
        """Take out each job that says in all the same as one before; return how many.

        Example:
            >>> jobs = Jobs.of(Job(id="7", milli=milli, state="") for milli in (0, 1, 0))
            >>> jobs.drop_repeated(), [job.milli for job in jobs]
            (1, [0, 1])
        """
        mixed = self.ids.hashes()
        for told in (self.names.hashes(), *map(self.column, (*_NUMBERS, *LABELS))):
            mixed *= _MIX
            mixed += told
        order, begins = _alike(mixed)
        del mixed, told
        if not len(order):
            return 0
        firsts = np.repeat(order[begins], np.diff(begins, append=len(order)))
        same = self.ids.same(order, firsts) & self.names.same(order, firsts)
        for name in (*_NUMBERS, *LABELS):
            same &= self.column(name)[order] == self.column(name)[firsts]
        out = order[same & (order != firsts)].tolist()
        ends = [*begins[1:].tolist(), len(order)]
        for group in np.flatnonzero(~np.logical_and.reduceat(same, begins)).tolist():  # of two jobs one number was made
            others = order[begins[group] : ends[group]][~same[begins[group] : ends[group]]].tolist()
            out += [place for alike in _by(self.__getitem__, others) for place in alike[1:]]
        self._drop(np.array(sorted(out), np.int64))
        return len(out)

    def _drop(self, places: Ints) -> None:
        self.ids.drop(places)
        self.names.drop(places)
        for name in _NUMBERS:
            setattr(self, name, array("q", np.delete(self.column(name), places).tobytes()))
        for name in LABELS:
            self.labels[name] = array("i", np.delete(self.column(name), places).tobytes())


def _by(tell: Callable[[int], object], places: list[int]) -> Iterator[list[int]]:
    """Yield those of some places of which the same is told, where there are several."""
    found: dict[object, list[int]] = {}
    for place in places:
        found.setdefault(tell(place), []).append(place)
    yield from (alike for alike in found.values() if len(alike) > 1)


def _alike(numbers: Ints) -> tuple[Ints, Ints]:
    """Return the places of numbers that are there again, equal ones side by side, and where each lot begins."""
    values = np.sort(numbers)
    twice = np.unique(values[1:][values[1:] == values[:-1]])
    del values
    if not len(twice):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.concatenate([
        first + np.flatnonzero(_among(numbers[first : first + _AT_ONCE], twice))
        for first in range(0, len(numbers), _AT_ONCE)
    ])  # fmt: skip
    order = order[np.argsort(numbers[order], kind="stable")]
    told = numbers[order]
    return order, np.flatnonzero(np.concatenate([[True], told[1:] != told[:-1]]))


def _among(values: Ints, known: Ints) -> NDArray[np.bool_]:
    """Return which values are among those that are known, which are in order."""
    found: NDArray[np.bool_] = known[np.searchsorted(known, values).clip(max=len(known) - 1)] == values
    return found


def _told(at_ns: int) -> int | None:
    return None if at_ns == UNTOLD else at_ns
