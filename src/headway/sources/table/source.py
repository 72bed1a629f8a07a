"""Tables of clusters and schedulers: a row a job, a node or a cluster, by a mapping of their columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from headway.errors import SourceError
from headway.ledger.history import Pool
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.table.amounts import MAX_MILLI, BadCell
from headway.sources.table.jobs import JobRows, fits
from headway.sources.table.mapping import Mapping, read, ready
from headway.sources.table.philly import NAMES, Attempts, is_philly
from headway.sources.table.plain import label
from headway.sources.table.records import Records, find_header
from headway.sources.table.start import header, missing, offer
from headway.sources.table.times import MISSING, UNITS_NS, number
from headway.sources.text import Complaints, clean

_COUNTS: Final = "it counts causes and has no times, so it is no run and no pool: see docs/sources/table.md"


class Table:
    """The source of tables."""

    name = "table"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no table of a ready mapping, or None when it is one."""
        if _found(head, ready()) is not None:
            return None
        first = head[:4096].decode("utf-8", "replace").lower().split("\n", 3)[:3]
        if any({"cause", "count"} <= set(line.strip().split(",")) for line in first):
            return _COUNTS
        return f"its columns are those of no ready mapping; give one of your own with --mapping{offer(header(head))}"

    def fits(self, head: bytes, mapping: Path) -> bool:
        """Return whether the beginning of a file has the columns of a mapping.

        Raises:
            ArgumentError: The mapping cannot be used.
        """
        return _found(head, (read(mapping),)) is not None

    def load(self, path: Path, asked: Asked) -> list[Pool]:
        """Return the pools of a table.

        Raises:
            SourceError: No mapping fits it, or no row is what the mapping says.
        """
        return self.load_together([path], asked)

    def load_together(self, paths: Sequence[Path], asked: Asked) -> list[Pool]:
        """Return the pools of the tables of a folder: nodes go to the jobs of their family.

        Raises:
            SourceError: As `load` does.
        """
        mappings = ready() if asked.mapping is None else (read(asked.mapping),)
        found = [(mapping, pool) for one in paths for mapping, pool in _load(one, mappings, asked)]
        pools = [pool for _, pool in _joined(found)]
        if asked.capacity is not None:
            pools = [replace(pool, devices=asked.capacity) if pool.totals_ns is None else pool for pool in pools]
        return pools


def _found(head: bytes, mappings: Sequence[Mapping]) -> tuple[Mapping, str, tuple[str, ...]] | None:
    """Return the mapping of a file by its beginning, what is between its columns, and their names."""
    if is_philly(head):
        return next(((mapping, "", NAMES) for mapping in mappings if mapping.fits(frozenset(NAMES))), None)
    return find_header(head, mappings)


def _load(path: Path, mappings: Sequence[Mapping], asked: Asked) -> list[tuple[Mapping, Pool]]:
    head = files.head(path)
    found = _found(head, mappings)
    if found is None:
        raise _unfit(path, head, mappings)
    mapping, delimiter, names = found
    if asked.zone is not None and not mapping.zone:
        mapping = replace(mapping, zone=str(asked.zone))
    twice = [name for said in mapping.columns.values() for name in said if names.count(name) > 1]
    if twice:
        raise _error(path, f"two of its columns are called {clean(twice[0], 60)!r}", "Rename one", fits=False)
    bad = Complaints(clean(path.name), "line" if delimiter else "job")
    records = Records(path, delimiter, bad) if delimiter else Attempts(path, bad)
    make = {"jobs": _jobs, "nodes": _nodes, "totals": _totals}[mapping.kind]
    pools = make(path, mapping, names, records, bad)
    last = names[-1] in {name for said in mapping.columns.values() for name in said}
    more = [records.torn] if records.torn else []
    if last and not records.whole and not records.torn:
        more.append("the last line has no line end: where the file was cut, its last field is cut too")
    pools[0] = replace(pools[0], warnings=(*pools[0].warnings, *more))
    return [(mapping, pool) for pool in pools]


def _jobs(
    path: Path, mapping: Mapping, names: Sequence[str], records: Records | Attempts, bad: Complaints
) -> list[Pool]:
    rows = JobRows(mapping, names, bad)
    jobs = rows.read(records)
    if not jobs:
        raise _error(path, f"none of its rows is a job{_first(bad)}", "See that the mapping fits its columns")
    notes = [mapping.note] if mapping.note else []
    return [_pool(path, mapping, jobs=jobs, warnings=(*notes, *rows.sentences()))]


def _nodes(
    path: Path, mapping: Mapping, names: Sequence[str], records: Records | Attempts, bad: Complaints
) -> list[Pool]:
    at = mapping.places(names)
    count, n_nodes = 0, 0
    seen: dict[str, int] = {}
    for line, row in _rows(records, names, bad, "node"):
        try:
            devices = _whole(row[at["devices"]], names[at["devices"]])
        except ValueError as error:
            bad.add("no node, left out", line, str(error))
            continue
        if "id" in at and seen.setdefault(row[at["id"]], line) != line:
            bad.add("a node named before, and counts once", line)
            continue
        count, n_nodes = count + devices, n_nodes + 1
    if not count:
        raise _error(path, f"none of its rows is a node with devices{_first(bad)}", "Give the table of nodes")
    notes = [mapping.note] if mapping.note else []
    alone = (
        f"{count} devices of {n_nodes} nodes and no jobs: give a folder with both, or the jobs with --capacity {count}"
    )
    return [_pool(path, mapping, devices=count, warnings=(*notes, alone, *bad.sentences()))]


def _totals(
    path: Path, mapping: Mapping, names: Sequence[str], records: Records | Attempts, bad: Complaints
) -> list[Pool]:
    unit_ns = UNITS_NS[mapping.lengths]
    at = mapping.places(names)["id"]
    columns = {mapping.states.get(state, state): names.index(column) for state, column in mapping.totals.items()}
    pools: dict[str, Pool] = {}
    for line, row in _rows(records, names, bad, "total"):
        name = label(row[at])
        try:
            totals = {state: _total(row[index], names[index], unit_ns) for state, index in columns.items()}
        except ValueError as error:
            bad.add("no total, left out", line, f"{name}: {error}" if name else str(error))
            continue
        if name in pools and pools[name].totals_ns != totals:
            bad.add("another total of one name, left out", line, name)
        pools.setdefault(name, _pool(path, mapping, name=name, totals_ns=totals))
    if not pools:
        raise _error(path, f"none of its rows is a total{_first(bad)}", "Give the table of totals")
    notes = [mapping.note] if mapping.note else []
    made = [replace(pool, warnings=tuple(notes)) for _, pool in sorted(pools.items())]
    return [replace(made[0], warnings=(*notes, *bad.sentences())), *made[1:]]


def _rows(
    records: Iterable[tuple[int, list[str]]], names: Sequence[str], bad: Complaints, what: str
) -> Iterable[tuple[int, list[str]]]:
    """Yield the rows of the header's width, but not the header."""
    for line, row in records:
        if row[0].startswith("#") or [cell.strip() for cell in row[: len(names)]] == list(names):
            continue
        if fits(row, len(names)):
            yield line, row
        else:
            bad.add(f"no {what}, left out", line, f"{len(row)} fields, not {len(names)}")


def _whole(text: str, column: str) -> int:
    try:
        value = number(text)
    except ValueError as error:
        raise BadCell(column, text, str(error)) from None
    if value < 0 or value != int(value) or value > MAX_MILLI // 1000:
        raise BadCell(column, text, "is no number of devices")
    return int(value)


def _total(text: str, column: str, unit_ns: int) -> int:
    if text.strip().lower() in MISSING:
        raise BadCell(column, "", "is empty")
    try:
        ns = round(number(text) * unit_ns)
    except ValueError as error:
        raise BadCell(column, text, str(error)) from None
    if ns < 0 or ns > 1 << 80:
        raise BadCell(column, text, "is no device-time")
    return ns


def _joined(found: Sequence[tuple[Mapping, Pool]]) -> list[tuple[Mapping, Pool]]:
    """Return the pools, the one table of nodes of a family made the size of its one table of jobs."""
    left = list(found)
    for mapping, nodes in found:
        same = [one for one in left if one[0].family == mapping.family and mapping.family]
        jobs = [one for one in same if one[0].kind == "jobs"]
        if mapping.kind == "nodes" and len(jobs) == 1 and len(same) == 2:
            sized = replace(jobs[0][1], devices=nodes.devices, warnings=(*jobs[0][1].warnings, *nodes.warnings[1:]))
            left = [(jobs[0][0], sized) if one is jobs[0] else one for one in left if one[1] is not nodes]
    return left


def _pool(path: Path, mapping: Mapping, name: str = "", **said: object) -> Pool:
    stem = clean(path.name.split(".")[0])
    return Pool(name or mapping.title or stem, Table.name, path=clean(str(path), 4096), **said)  # type: ignore[arg-type]


def _first(bad: Complaints) -> str:
    return f"; {bad.sentences()[0]}" if len(bad) else ""


def _unfit(path: Path, head: bytes, mappings: Sequence[Mapping]) -> SourceError:
    if len(mappings) > 1:
        step = f"Give one with --mapping{offer(header(head))}"
        return _error(path, "its columns are those of no ready mapping", step, fits=False)
    return _error(path, missing(head, mappings[0]), "Correct the names in the mapping", fits=False)


def _error(path: Path, why: str, step: str, *, fits: bool = True) -> SourceError:
    """Return the error of a table whose rows are none of what its mapping says, or that the mapping does not fit."""
    shown = clean(str(path), 4096)
    if not fits:
        return SourceError(f"Cannot read {shown}: {why}", step, "unfit-mapping", path=shown)
    return SourceError(f"Cannot read {shown}: {why}", step, "no-runs", path=shown)
