"""Records of ``sacct`` and ``squeue`` taken column by column, where nothing about them is odd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.ledger.jobs import UNTOLD
from headway.sources.slurm import cells, fields
from headway.sources.slurm.clocks import SLACK_NS
from headway.sources.slurm.jobs import DEVICES, Attempts
from headway.sources.slurm.rows import Records
from headway.sources.slurm.table import NAMES, Header
from headway.sources.text import clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Which = NDArray[np.bool_]

_FEW: Final = 32
"""Fewer records are not worth columns."""
_ODD: Final = 8
"""Where more than one record in so many is odd, neither."""
_FLAGS: Final = 256
"""So much room is for what is told beside a number: two bits, and the place of a list."""
_WAITS, _LIVES, _ENDED = range(3)


@dataclass(slots=True)
class _Told:
    """What records tell, by record; of one that is odd it may be anything.

    Attributes:
        odd: Which are to be read one by one.
        ids, names: As UTF-8.
        labels: As `headway.ledger.jobs.Jobs.add_columns` has them.
        kind: Whether it waits, holds its devices, or has ended.
        milli: Devices in thousandths.
        bare, sliced: Which name no resource, or slices of devices.
        others: The places of the lists of other resources than GPUs in `Columns.others`, where they name no GPU.
        submit, start, end, eligible, elapsed: In nanoseconds, as Slurm has them; the end as `Seen` has it.
        local: Which of the moments that count have no zone.
        timed: Which name a beginning or an end.
        raws: By place, the raw number of those that are shown as another, as UTF-8.
    """

    odd: Which
    ids: Sequence[bytes]
    names: Sequence[bytes]
    labels: tuple[Ints, Ints, Ints, Ints]
    kind: Ints
    milli: Ints
    bare: Which
    sliced: Which
    others: Ints
    submit: Ints
    start: Ints
    end: Ints
    eligible: Ints
    elapsed: Ints
    local: Which
    timed: Which
    raws: Mapping[int, bytes]

    def __post_init__(self) -> None:
        length, ended = self.end - self.start, self.ran & (self.end != UNTOLD)
        self.odd |= (self.elapsed == cells.UNSURE) | (self.milli < 0)
        self.odd |= ended & (length <= 0)
        self.odd |= ended & (self.elapsed != UNTOLD) & (abs(length - self.elapsed) > SLACK_NS)
        goes_on = self.ran & ~ended
        self.odd |= goes_on & (self.kind != _LIVES)
        self.end = np.where(goes_on & (self.elapsed != UNTOLD), -(self.start + self.elapsed), self.end)

    @property
    def ran(self) -> Which:
        """Which had their devices."""
        ran: Which = (self.start != UNTOLD) & (self.kind != _WAITS)
        return ran


class Columns:
    """Takes many records at once; one that is odd is left to be read by itself, in its turn.

    Args:
        attempts: Where the jobs go.
        one: Reads one record: the number of its line, and what it says.

    Attributes:
        others: The lists of other resources than GPUs that records without a GPU name; of none first.
    """

    def __init__(self, attempts: Attempts, one: Callable[[int, dict[str, str]], None]) -> None:
        self._attempts = attempts
        self._one = one
        self._states = fields.Short(self._state)
        self._labels = fields.Short(self._label)
        self._clusters = fields.Short(self._cluster)
        self._lengths = fields.Short(cells.length, 1 << 16)
        self.others: list[frozenset[str]] = [frozenset()]
        self._sizes: dict[tuple[str, ...], fields.Short[bytes, int]] = {}

    def take(self, records: Records, *, by_one: bool = False) -> None:
        """Take the records of a table of jobs, or read each by itself."""
        base, end = 0, len(records.places)
        named = records.header.places
        while ("cluster" in named or records.header.cluster) and self._attempts.cluster is None and base < end:
            self._single(records, base)  # that of the first job is told from the others
            base += 1
        if not by_one and end - base >= _FEW and records.header.job_at >= 0 and not records.header.has_tasks:
            told = self._read(records.header, list(zip(*records.cells[base:], strict=False)))
            odd = np.flatnonzero(told.odd).tolist()
            if len(odd) <= len(told.ids) // _ODD:
                self._count(told, has_sizes=bool(_sizing(named)))
                begin = 0
                for at in odd:
                    self._keep(told, begin, at)
                    self._single(records, base + at)
                    begin = at + 1
                self._keep(told, begin, len(told.ids))
                return
        for at in range(base, end):
            self._single(records, at)

    def _single(self, records: Records, at: int) -> None:
        self._one(records.places[at], records.header.row(records.cells[at]))

    def _read(self, header: Header, columns: list[tuple[bytes, ...]]) -> _Told:
        """Return what columns tell."""
        named, n = header.places, len(columns[0])
        ids = shown = cells.bare(columns[header.job_at])
        odd = ~cells.plain(ids)
        for name in NAMES & named.keys() if not header.delimiter else ():
            odd |= [cell.rstrip().endswith(b"+") for cell in columns[named[name]]]
        untold, local = np.full(n, UNTOLD), np.zeros(n, bool)
        moments = dict.fromkeys(("submit", "start", "end", "eligible"), (untold, local))
        for name in moments.keys() & named.keys():
            moments[name] = cells.moments(columns[named[name]], self._attempts.moments.zone)
            odd |= moments[name][0] == cells.UNSURE
        if "cluster" in named:
            ids = list(map(bytes.__add__, map(self._clusters.__getitem__, columns[named["cluster"]]), ids))
            odd |= [not cell.strip() for cell in columns[named["cluster"]]]
        elif header.cluster:
            before = self._clusters[header.cluster.encode("utf-8", "surrogatepass")]
            ids = [before + ident for ident in ids] if before else ids

        raws: dict[int, bytes] = {}
        if {"job", "raw"} <= named.keys() and self._attempts.aliases.wanted:
            pairs = enumerate(zip(cells.bare(columns[named["raw"]]), shown, ids, strict=True))
            raws = {
                at: ident.removesuffix(one) + raw for at, (raw, one, ident) in pairs if raw != one and raw.isdigit()
            }

        def placed(name: str, known: Mapping[bytes, int]) -> Ints:
            found = columns[named[name]] if name in named else repeat(b"", n)
            return np.fromiter(map(known.__getitem__, found), np.int64, n)

        states = placed("state", self._states)
        user, account, partition = (placed(name, self._labels) for name in ("user", "account", "partition"))
        milli, bare, sliced, others = self._size(named, columns)
        submit, start, end, eligible = (values for values, _ in moments.values())
        timed, elapsed = (start != UNTOLD) | (end != UNTOLD), self._elapsed(named, columns)
        if "start" not in named:
            end = np.where((end == UNTOLD) & (elapsed > 0), elapsed, end)
            start = np.where(elapsed > 0, end - elapsed, UNTOLD)
        told = _Told(
            odd, ids, cells.names(columns[named["name"]]) if "name" in named else [b""] * n,
            (states // 3, user, account, partition), states % 3, milli, bare, sliced, others,
            submit, start, end, eligible, elapsed, local, timed, raws,
        )  # fmt: skip
        told.local = moments["submit"][1] | moments["start"][1] | moments["end"][1]
        told.local |= moments["eligible"][1] & told.ran & (submit != UNTOLD)
        return told

    def _count(self, told: _Told, *, has_sizes: bool) -> None:
        """Count what the records tell that are not odd."""
        sure, attempts = ~told.odd, self._attempts
        aliased = [at for at in told.raws if sure[at]]
        attempts.aliases.add_columns([told.raws[at] for at in aliased], [told.ids[at] for at in aliased])
        attempts.timed |= bool((sure & told.timed).any())
        attempts.moments.local |= bool((sure & told.local).any())
        lives = sure & told.ran & (told.end < 0) & (told.end != UNTOLD)
        if lives.any():
            attempts.seen.note(int(-told.end[lives].min()))
        attempts.counts["records"] += int(sure.sum())
        attempts.sliced |= bool((sure & told.sliced).any())
        if has_sizes:
            attempts.counts["sized"] += int(sure.sum())
            attempts.counts["gpus"] += int((sure & (told.milli > 0)).sum())
            attempts.counts["bare"] += int((sure & told.bare).sum())
            attempts.counts["others"] += int((sure & (told.others > 0)).sum())
            for place in np.unique(told.others[sure]).tolist():
                attempts.others |= self.others[place]
        early = sure & told.ran & (told.submit != UNTOLD) & (told.milli > 0)
        early &= (told.eligible != UNTOLD) & (told.eligible > told.submit)
        begun = np.minimum(told.eligible, np.maximum(told.start, told.submit))
        attempts.counts["early"] += int(early.sum())
        attempts.early_ns += int(((begun - told.submit)[early] // NS_PER_S).sum()) * NS_PER_S

    def _keep(self, told: _Told, first: int, end: int) -> None:
        """Keep the jobs from one on to another."""
        if first == end:
            return
        part = slice(first, end)
        waits = told.kind[part] == _WAITS
        state, user, account, partition = (column[part] for column in told.labels)
        self._attempts.last = told.ids[end - 1].rpartition(b"/")[2].decode()
        self._attempts.kept.add_columns(
            told.ids[part],
            told.milli[part],
            (
                told.submit[part],
                np.where(waits, UNTOLD, told.start[part]),
                np.where(waits, UNTOLD, told.end[part]),
            ),
            (state, user, account, partition),
            told.names[part],
        )
        self._attempts.rest()

    def _state(self, cell: bytes) -> int:
        """Return the place of a job's state, times three, and which kind of state it is."""
        state = self._attempts.state(cells.text(cell))
        lives = state in fields.LIVE or state == "unknown"
        kind = _WAITS if state in fields.WAITING else _LIVES if lives else _ENDED
        return self._attempts.kept.place(state) * 3 + kind

    def _label(self, cell: bytes) -> int:
        return self._attempts.kept.place(clean(cells.text(cell)))

    def _cluster(self, cell: bytes) -> bytes:
        """Return what stands before the numbers of a cluster's jobs."""
        cluster = cells.text(cell)
        return b"" if cluster == self._attempts.cluster else f"{clean(cluster, 60)}/".encode("utf-8", "surrogatepass")

    def _elapsed(self, named: Mapping[str, int], columns: list[tuple[bytes, ...]]) -> Ints:
        """Return how long jobs had their devices [ns]."""
        found = np.full(len(columns[0]), UNTOLD)
        for name in ("elapsed_raw", "elapsed"):
            if name in named and (found == UNTOLD).any():
                found = np.where(found == UNTOLD, self._durations(columns[named[name]]), found)
        if "suspended" in named:
            more = self._durations(columns[named["suspended"]])
            more[more == UNTOLD] = 0
            whole = np.where((found >= 0) & (more >= 0), found + more, found)
            found = np.where((found != UNTOLD) & ((more < 0) | (whole > fields.LONGEST_NS)), cells.UNSURE, whole)
        return found

    def _durations(self, column: Sequence[bytes]) -> Ints:
        if max(map(len, column)) < 10 and min(map(len, column)) and b"".join(column).isdigit():
            return np.fromiter(map(int, column), np.int64, len(column)) * NS_PER_S
        return np.fromiter(map(self._lengths.__getitem__, column), np.int64, len(column))

    def _size(self, named: Mapping[str, int], columns: list[tuple[bytes, ...]]) -> tuple[Ints, Which, Which, Ints]:
        """Return devices in thousandths, below none where unsure, and what else is said of resources."""
        sizing, n = _sizing(named), len(columns[0])
        sizes = np.full(n, 1000 * _FLAGS * (self._attempts.devices or 1))
        if sizing:
            known = self._sizes.setdefault(sizing, fields.Short(partial(self._size_of, sizing)))
            keys = map(b"\0".join, zip(*(columns[named[name]] for name in sizing), strict=True))
            sizes = np.fromiter(map(known.__getitem__, keys), np.int64, n)
        for name in {"nodes", "n_nodes"} & named.keys() - {*sizing}:
            if b"+" in b"".join(columns[named[name]]):
                sizes[[cell.rstrip().endswith(b"+") for cell in columns[named[name]]]] = cells.UNSURE
        return sizes // _FLAGS, sizes % 2 == 1, sizes // 2 % 2 == 1, sizes % _FLAGS // 4

    def _size_of(self, sizing: tuple[str, ...], key: bytes) -> int:
        """Return devices in thousandths, times `_FLAGS`, and what else is said of resources."""
        row = {name: cells.text(cell) for name, cell in zip(sizing, key.split(b"\0"), strict=True)}
        try:
            for text in row.values():
                fields.whole(text)
            milli, bare, sliced, others = self._attempts.size(row)
        except (ValueError, fields.CutError):
            return cells.UNSURE
        if others not in self.others and len(self.others) < _FLAGS // 4:
            self.others.append(others)
        place = self.others.index(others) if others in self.others else len(self.others) - 1
        return milli * _FLAGS + bare + 2 * sliced + 4 * place


def _sizing(named: Mapping[str, int]) -> tuple[str, ...]:
    """Return the columns that tell devices, and the nodes of which some of them are."""
    found = [name for name in DEVICES if name in named]
    if "alloc_gres" in found or "req_gres" in found:
        found += [name for name in ("nodes", "n_nodes") if name in named] or ["node_list"] * ("node_list" in named)
    return tuple(found)
