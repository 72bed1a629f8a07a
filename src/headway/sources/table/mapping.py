"""What the columns of a table mean: small TOML files, ready ones and the reader's own."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping as Map
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from headway.errors import ArgumentError
from headway.sources import files
from headway.sources.table.times import UNITS_NS, Times
from headway.sources.text import clean
from headway.sources.zone import zone_of

KINDS: Final = {
    "jobs": ("id", "name", "submit", "start", "end", "duration", "wait", "state", "devices", "milli", "percent",
             "instances", "user", "account", "partition"),
    "nodes": ("id", "devices"),
    "totals": ("id",),
}  # fmt: skip
"""By kind of table, what a column can be."""
_KEYS: Final = (
    "kind", "title", "family", "note", "source", "columns", "optional", "requires", "totals", "times", "states", "skip",
    "header", "delimiter",
)  # fmt: skip
_TIME_KEYS: Final = ("unit", "zone", "origin", "lengths")
_MAX_BYTES: Final = 1 << 20
_DATA: Final = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True)
class Mapping:
    """What the columns of a table mean.

    Attributes:
        name: What it is called: its file without the ending.
        kind: One of `KINDS`.
        columns: By what it is, the names that a column may have, the first that is there counts.
        optional: Those of them that may be missing.
        totals: By state, the column that sums its device-time; of the kind ``totals``.
        unit: How moments are written, see `Times`.
        zone: The zone of times that name none; empty for none.
        origin: The moment that numbers count from, as ISO 8601; empty for the Unix epoch.
        lengths: The unit of durations, waits and totals.
        states: By a state of the table in lower case, what it is called here.
        requires: Columns that are not read but tell such a table from others.
        skip: By column, the values whose rows are left out.
        header: The names of the columns, of a table that does not name them itself.
        delimiter: What is between two columns; empty: one of ``, ; |`` or a tab, by the header.
        title: What its pool is called; empty: as its file.
        family: Tables of nodes and of jobs of one family belong together, in a folder.
        note: What should be said with every number from such a table.
    """

    name: str
    kind: str = "jobs"
    columns: Map[str, Sequence[str]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    totals: Map[str, str] = field(default_factory=dict)
    unit: str = "iso"
    zone: str = ""
    origin: str = ""
    lengths: str = "s"
    states: Map[str, str] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    skip: Map[str, frozenset[str]] = field(default_factory=dict)
    header: tuple[str, ...] = ()
    delimiter: str = ""
    title: str = ""
    family: str = ""
    note: str = ""

    def fits(self, names: frozenset[str]) -> bool:
        """Return whether all columns are there that must be."""
        others = (*self.totals.values(), *self.skip, *self.requires)
        return names.issuperset(others) and not any(
            names.isdisjoint(said) for what, said in self.columns.items() if what not in self.optional
        )

    def wanted(self) -> list[str]:
        """Return the columns that must be there, each by its first name."""
        must = [said[0] for what, said in self.columns.items() if what not in self.optional]
        return [*must, *self.totals.values(), *self.skip, *self.requires]

    def places(self, names: Sequence[str]) -> dict[str, int]:
        """Return where in a row each of the columns is."""
        found = {}
        for what, said in self.columns.items():
            here = [name for name in said if name in names]
            if here:
                found[what] = names.index(here[0])
        return found

    def times(self) -> Times:
        """Return how its moments are read."""
        zone = zone_of(self.zone) if self.zone else None
        return Times(self.unit, zone, Times().read(self.origin) if self.origin else 0)


@cache
def ready() -> tuple[Mapping, ...]:
    """Return the ready mappings, those that ask for most columns first.

    Example:
        >>> sorted(mapping.name for mapping in ready() if mapping.family == "alibaba-gpu-v2023")
        ['alibaba_gpu_v2023_nodes', 'alibaba_gpu_v2023_pods']
    """
    found = [read(path) for path in sorted(_DATA.glob("*.toml"))]
    return tuple(
        sorted(found, key=lambda one: -len(one.columns.keys() - one.optional) - len((*one.totals, *one.requires)))
    )


def read(path: Path) -> Mapping:
    """Return the mapping in a TOML file.

    Raises:
        ArgumentError: It cannot be read, is no TOML, or says what a mapping cannot.
    """
    try:
        with files.regular(path) as fd, open(fd, "rb", closefd=False) as file:
            data = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _bad(path, files.reason(error) if isinstance(error, OSError) else str(error)) from error
    if len(data) > _MAX_BYTES:
        raise _bad(path, f"it has more than {_MAX_BYTES >> 10} KiB")
    try:
        said = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        hint = "; a name with other letters than A to z stands in quotes" if "after a key" in str(error) else ""
        raise _bad(path, f"it is no TOML: {error}{hint}") from error
    try:
        return _mapping(clean(path.stem), said)
    except ValueError as error:
        raise _bad(path, str(error)) from error


def _mapping(name: str, said: dict[str, Any]) -> Mapping:
    _known("key", said, _KEYS)
    kind = said.get("kind", "jobs")
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}, not one of {', '.join(KINDS)}")
    must, may = _columns(said, "columns", kind), _columns(said, "optional", kind)
    times = _table(said, "times")
    _known("key of times", times, _TIME_KEYS)
    mapping = Mapping(
        name, kind, {**must, **may}, frozenset(may.keys() - must.keys()), _texts(said, "totals"),
        states={state.lower(): clean(new) for state, new in _texts(said, "states").items()},
        skip={column: frozenset(_list(f"skip.{column}", values)) for column, values in _table(said, "skip").items()},
        requires=tuple(_list("requires", said.get("requires", []))),
        header=tuple(_list("header", said.get("header", []))),
        unit=_text(times, "unit", "iso"), zone=_text(times, "zone"), origin=_text(times, "origin"),
        lengths=_text(times, "lengths", "s"), delimiter=_text(said, "delimiter"), title=clean(_text(said, "title")),
        family=_text(said, "family"), note=clean(_text(said, "note"), 1000),
    )  # fmt: skip
    _check(mapping)
    return mapping


def _check(mapping: Mapping) -> None:
    if mapping.unit not in {"iso", *UNITS_NS} and "%" not in mapping.unit:
        raise ValueError(f"times.unit is {mapping.unit!r}, not iso, {', '.join(UNITS_NS)} or a format with %")
    if mapping.lengths not in UNITS_NS:
        raise ValueError(f"times.lengths is {mapping.lengths!r}, not one of {', '.join(UNITS_NS)}")
    if len(mapping.delimiter) > 1 or mapping.delimiter in {"\n", "\r", '"', " "}:
        raise ValueError(f"delimiter is {mapping.delimiter!r}, not one character between columns")
    columns = mapping.columns.keys()
    if mapping.kind == "totals":
        if not mapping.totals or "id" not in columns:
            raise ValueError("totals names no column, or columns.id is missing")
        return
    if not columns & {"devices", "milli", "percent"}:
        raise ValueError("no column tells how many devices: columns.devices is missing")
    if mapping.kind == "jobs" and not (columns & {"start", "wait"} or {"duration", "end"} <= columns):
        raise ValueError("no column tells when jobs started: columns.start is missing")
    if mapping.kind == "jobs" and not columns & {"end", "duration"}:
        raise ValueError("no column tells when jobs ended: columns.end is missing")
    mapping.times()


def _columns(said: dict[str, Any], key: str, kind: str) -> dict[str, tuple[str, ...]]:
    table = _table(said, key)
    _known(f"column of a table of {kind}", table, KINDS[kind])
    return {what: tuple(_list(f"{key}.{what}", value)) for what, value in table.items()}


def _table(said: dict[str, Any], key: str) -> dict[str, Any]:
    value = said.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key} is no table")  # noqa: TRY004 - one kind of error for all that a file may say
    return value


def _texts(said: dict[str, Any], key: str) -> dict[str, str]:
    table = _table(said, key)
    return {name: _text(table, name) for name in table}


def _text(said: dict[str, Any], key: str, default: str = "") -> str:
    value = said.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"{key} is {clean(repr(value), 60)}, not a text")  # noqa: TRY004 - as above
    return value


def _list(key: str, value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) for one in values) or (isinstance(value, list) and not values and "." in key):
        raise ValueError(f"{key} is {clean(repr(value), 60)}, not a text or a list of texts")
    return values


def _known(what: str, said: dict[str, Any], known: Sequence[str]) -> None:
    for key in said:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            raise ValueError(f"there is no {what} {clean(key, 60)!r}; {hint}")


def _bad(path: Path, why: str) -> ArgumentError:
    shown = clean(str(path), 4096)
    return ArgumentError(
        f"Cannot use the mapping {shown}: {clean(why, 400)}",
        "Correct it as docs/sources/table.md says",
        "bad-table-mapping",
        path=shown,
    )
