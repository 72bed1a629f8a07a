"""Slurm: what ``sacct``, ``squeue`` and ``sinfo`` print, as text or JSON, is one pool of jobs and devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.errors import SourceError
from headway.ledger.history import Pool
from headway.ledger.jobs import UNTOLD
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.slurm import document as slurm_json
from headway.sources.slurm import fields as slurm_fields
from headway.sources.slurm import guess as slurm_guess
from headway.sources.slurm import snapshot as slurm_snapshot
from headway.sources.slurm.columns import Columns
from headway.sources.slurm.jobs import Attempts
from headway.sources.slurm.nodes import Nodes
from headway.sources.slurm.rows import records
from headway.sources.slurm.table import SACCT, SINFO, Header, Row, first_header
from headway.sources.text import Complaints, clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_NO_TABLE: Final = (
    "no line in its first 64 KiB is a header of sacct, squeue or sinfo, which only a table with delimiters may lack, "
    "and it is no JSON of theirs"
)
_CUT: Final = (
    "cut to the width of a column, left out; write it again with -P (parsable) or a wider column (AllocTRES%80), "
    "squeue with -o '%i|%T|…'"
)
_NAMELESS: Final = "its columns name no nodes, left out; write it again with sinfo -N -o '%n|%P|%T|%G|%H'"
_CUT_NODE: Final = (
    "cut to the width of a column, so that the number of devices is not known; write it again with "
    "sinfo -N -o '%n|%P|%T|%G|%H', or wider columns (-O Gres:80), or give --capacity"
)
_CUT_NAME: Final = (
    "one with a name that ends in + as where it is cut to the width of a column, so that names may fall together; "
    "write it again with -P (parsable)"
)
_SLICES: Final = (
    "slices of devices (MIG) count as their share, in thousandths: one of N g as N/7 of a device, of an A30 or RTX PRO "
    "6000 as N/4, of an RTX PRO 5000 or 4500 as N/2; "
    "where only gres/gpu=N is told, slices cannot be told from devices, and each counts as one"
)
_ON_ONE: Final = (
    "no column tells on how many nodes a job is: the GPUs of each count as on one; add NODES to the columns"
)
_ONE_NUMBER: Final = (
    "its columns number arrays and not their tasks, so that those of one array that began at once count as one; write "
    "it again with squeue -O JobArrayID,…"
)
_OF_NODES: Final = frozenset({"alloc_gres", "req_gres"})
_SIZED: Final = frozenset({"nodes", "n_nodes", "node_list", "alloc_tres", "req_tres"})
"""One of these columns tells how many GPUs those of each node are in all."""
_NAMES: Final = ("user", "account", "partition", "name", "cluster")
_One = Callable[[int, str, Row], None]
_CLOCKS: Final = frozenset({"start", "end", "elapsed", "elapsed_raw", "submit"})


class Slurm:
    """The source of what Slurm's commands print."""

    name = "slurm"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is nothing that Slurm printed, or None when it is."""
        return None if _known(head) else _NO_TABLE

    def load(self, path: Path, asked: Asked) -> list[Pool]:
        """Return the pool of a file.

        Raises:
            SourceError: A table has no header, or lacks columns, or there is no job and no node in it.
        """
        return [_Reading(path, asked).pool([path])]

    def load_together(self, paths: Sequence[Path], asked: Asked) -> list[Pool]:
        """Return the one pool of several files: jobs of the one, nodes of the other; called as the folder they are in.

        Raises:
            SourceError: As `load` does.
        """
        folder = Path(os.path.commonpath([path.absolute().parent for path in paths]))
        return [_Reading(folder, asked, several=len(paths) > 1).pool(paths)]


def _known(head: bytes) -> bool:
    return bool(slurm_json.kind(head) or first_header(head) or slurm_guess.kind(head))


@dataclass(slots=True)
class _Reading:
    """The files of one pool as they are read."""

    path: Path
    asked: Asked
    several: bool = False
    warnings: list[str] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)
    jobs: Attempts = field(init=False)
    nodes: Nodes = field(init=False)

    def __post_init__(self) -> None:
        self.jobs = Attempts(self.asked.devices, self.asked.zone, several=self.several)
        self.nodes = Nodes(self.asked.zone)

    def pool(self, paths: Iterable[Path]) -> Pool:
        """Read the files, and return the pool that they tell."""
        for path in paths:
            self._read(path)
        jobs = self.jobs.all()
        if not jobs and not len(self.nodes):
            raise SourceError(
                f"Cannot find a job or a node in {self._shown}: the header is there, and no record that can be used"
                + "".join(f"; {warning}" for warning in sorted(self.warnings, key=_is_kept)[:1]),
                "Write it again with the commands of docs/sources/slurm.md",
                "no-runs",
                path=self._shown,
            )
        told = [*self.warnings, *self.jobs.warnings()] if jobs else [*self.warnings]
        told += self.nodes.warnings() if len(self.nodes) else ()
        if self.jobs.sliced or self.nodes.sliced:
            told.append(_SLICES)
        start, end = jobs.column("start_ns"), jobs.column("end_ns")
        snapshot = SACCT not in self.kinds
        devices = self.asked.capacity or self.nodes.devices
        if jobs and snapshot:
            told += slurm_snapshot.told(jobs, self.jobs.seen, devices, timed=self.jobs.timed)
            devices = None
        totals: dict[str, int] | None = None
        if not self.jobs.timed and (start != UNTOLD).any():
            totals = {}
            for state, since, until, amount in zip(
                jobs.labels["state"], jobs.start_ns, jobs.end_ns, jobs.milli, strict=True
            ):
                if UNTOLD not in {since, until}:
                    word = jobs.words[state]
                    totals[word] = totals.get(word, 0) + (until - since) * amount // 1000
            told.append("no column tells when jobs ran, only how long: the window, queue and waits are unknown")
        moments = _ends(end, start, jobs.column("submit_ns"))
        if self.jobs.seen.told_ns is not None:
            moments.append(self.jobs.seen.told_ns)
        return Pool(
            clean(self.path.absolute().name) or self._shown,
            Slurm.name,
            jobs=() if totals is not None else jobs,
            devices=devices,
            outages=() if snapshot else self.nodes.outages(),
            begin_ns=min(moments, default=None) if totals is None else None,
            end_ns=max(moments, default=None) if totals is None else None,
            totals_ns=totals,
            path=self._shown,
            warnings=told,
        )

    @property
    def _shown(self) -> str:
        return clean(str(self.path), 4096)

    def _read(self, path: Path) -> None:
        """Read one file into the jobs or the nodes."""
        complaints = Complaints(clean(path.name))

        def one(place: int, kind: str, row: Row) -> None:
            try:
                why = self.nodes.add(row) if kind == SINFO else self.jobs.add(row)
            except slurm_fields.CutError as error:
                complaints.add(_CUT_NODE if kind == SINFO else _CUT, place, str(error))
                return
            if why:
                what = "node" if kind == SINFO else "job"
                complaints.add(f"no {what} that can be counted, left out", place, why)

        head = files.head(path)
        if kind := slurm_json.kind(head):
            complaints.noun = "record"
            self.kinds.add(kind)
            see = self._see(path) if kind != SINFO else lambda _: None
            for place, _, row in slurm_json.records(path, kind, complaints, see):
                one(place, kind, row)
            self.jobs.end_list()
        else:
            self._read_table(path, self._header(path, head), complaints, one)
        self.warnings += complaints.sentences()

    def _see(self, path: Path) -> Callable[[str], None]:
        """Return what notes the moment of a list, and warns where it is none."""

        def see(text: str) -> None:
            try:
                self.jobs.see(text)
            except (ValueError, OverflowError) as error:
                self.warnings.append(f"{clean(path.name)}: its last_update is no moment ({clean(str(error))})")

        return see

    def _header(self, path: Path, head: bytes) -> Header:
        """Return the header of a table, or what its columns seem to be.

        Raises:
            SourceError: It has none and needs one, or it tells no time.
        """
        found = first_header(head)
        if found is None:
            found = slurm_guess.header(head)
            if found is None or found.kind == SACCT:
                raise SourceError(
                    f"Cannot read {clean(str(path), 4096)}: it looks like sacct without its header line, "
                    "and columns cannot be told apart",
                    "Write it again without -n or --noheader, or put the line of names before it",
                    "no-header",
                    path=str(path),
                )
            self.warnings.append(slurm_guess.told(found, clean(path.name)))
        names = set(found.columns.values())
        if found.kind != SINFO and (not names & _CLOCKS or not names & {"job", "raw", "array"}):
            raise SourceError(
                f"Cannot read {clean(str(path), 4096)}: its columns tell no time of a job",
                "Write it again with sacct -a -P -o JobID,State,Submit,Start,End,ElapsedRaw,AllocTRES,ReqTRES",
                "no-columns",
                path=str(path),
            )
        return found

    def _read_table(self, path: Path, found: Header, complaints: Complaints, one: _One) -> None:
        """Read the records of a table."""
        self.kinds.add(found.kind)
        names = set(found.columns.values())
        if found.kind == SINFO and not names & {"node", "count"}:
            self.warnings.append(f"{complaints.where}: {_NAMELESS}")
            return
        if found.kind != SINFO and names & _OF_NODES and not names & _SIZED:
            self.warnings.append(f"{complaints.where}: {_ON_ONE}")
        if "array" in names and not names & {"job", "raw", "task"}:
            self.warnings.append(f"{complaints.where}: {_ONE_NUMBER}")

        def single(place: int, row: Row) -> None:
            if not found.delimiter and found.kind != SINFO and "." not in row.get("job", ""):
                cut = next((row[name] for name in _NAMES if row.get(name, "").endswith("+")), "")
                if cut:
                    complaints.add(_CUT_NAME, place, cut)
            one(place, found.kind, row)

        columns = Columns(self.jobs, single)
        for _, of_list in groupby(records(path, found, complaints), lambda several: several.n_lists):
            for several in of_list:
                columns.take(several, by_one=found.kind == SINFO)
            self.jobs.end_list()


def _is_kept(warning: str) -> bool:
    """Return whether a warning is of records that are kept."""
    return "left out" not in warning


def _ends(*columns: Ints) -> list[int]:
    """Return the first and the last moment of each column that tells one [ns since the Unix epoch]."""
    found: list[int] = []
    for column in columns:
        if (known := column != UNTOLD).any():
            found += [int(column.min(where=known, initial=1 << 62)), int(column.max())]
    return found
