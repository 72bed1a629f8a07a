"""Rows of a table made jobs: what they asked for, when they had it, how they ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from headway.ledger.jobs import Job
from headway.sources.table_mapping import Mapping
from headway.sources.table_times import MISSING, UNITS_NS, Times, length_ns, number
from headway.sources.text import LIMIT, Complaints, clean

MAX_MILLI: Final = 10**11
"""More devices of one job are damage [devices / 1000]."""
_CACHED: Final = 1 << 16
_SLACK_NS: Final = 1_000_000_000


class BadCell(ValueError):  # noqa: N818 - it never leaves the reader: a complaint is made of it
    """A cell cannot be what its column says."""

    def __init__(self, column: str, text: str, why: str) -> None:
        super().__init__(f"{clean(column, 60)}: {clean(text, 40)!r} {why}" if text else f"{clean(column, 60)} {why}")


def label(text: str) -> str:
    """Return a name from a file, fit for a screen."""
    text = text.strip()
    return text if text.isascii() and text.isprintable() and len(text) <= LIMIT else clean(text)


def fits(row: Sequence[str], width: int) -> bool:
    """Return whether a row has as many fields as the header, or only empty ones more."""
    return len(row) == width or (len(row) > width and not any(row[width:]))


@dataclass
class Jobs:
    """Makes jobs of rows.

    Attributes:
        mapping: What the columns mean.
        names: Of the columns, in their order.
        bad: Where complaints go.
        times: How moments are read; knows afterwards what it left open.
        n_skipped: By column, rows that the mapping leaves out.
        n_unlike: Rows whose duration is not what lies between their times.
        n_repeated: Rows that said the same as one before.
    """

    mapping: Mapping
    names: Sequence[str]
    bad: Complaints
    times: Times = field(default_factory=Times)
    n_skipped: dict[str, int] = field(default_factory=dict)
    n_unlike: int = 0
    n_repeated: int = 0
    _milli: dict[tuple[str, ...], int] = field(default_factory=dict)
    _seen: dict[str, str] = field(default_factory=dict)
    _states: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.times = self.mapping.times()
        self._at = at = self.mapping.places(self.names)
        self._amounts = [what for what in ("devices", "milli", "percent", "instances") if what in at]
        self._skip = [(self.names.index(column), values, column) for column, values in self.mapping.skip.items()]
        self._length_ns = UNITS_NS[self.mapping.lengths]
        self._lengths = "duration" in at or "wait" in at

    def read(self, records: Iterable[tuple[int, list[str]]]) -> list[Job]:
        """Return the jobs of all rows that make sense; a row that says the same again counts once."""
        header, width, known = list(self.names), len(self.names), "id" in self._at
        jobs: list[Job] = []
        first: dict[str, Job] = {}
        others: set[Job] = set()
        for line, row in records:
            try:
                if len(row) != width and not fits(row, width):
                    if row[0].startswith("#"):
                        continue
                    raise ValueError(f"{len(row)} fields, not {width}")  # noqa: TRY301 - complained of below
                job = self._job(row)
            except ValueError as error:
                if [cell.strip() for cell in row[:width]] != header:
                    self.bad.add("no job, left out", line, str(error))
                continue
            if job is None:
                continue
            if known and (before := first.setdefault(job.id, job)) is not job:
                if job == before or job in others:
                    self.n_repeated += 1
                    continue
                others.add(job)
            jobs.append(job)
        return jobs

    def _job(self, row: Sequence[str]) -> Job | None:
        for index, values, column in self._skip:
            if row[index].strip() in values:
                self.n_skipped[column] = self.n_skipped.get(column, 0) + 1
                return None
        at = self._at
        submit, start, end = self._moment(row, "submit"), self._moment(row, "start"), self._moment(row, "end")
        if self._lengths:
            start, end = self._by_lengths(row, submit, start, end)
        if start is not None:
            if end is not None and end < start:
                raise BadCell(self._column("end"), self._cell(row, "end"), "is before the start")
            if submit is not None and start < submit:
                raise BadCell(self._column("start"), self._cell(row, "start"), "is before the submission")
        return Job(
            id=label(row[at["id"]]) if "id" in at else "",
            milli=self._devices(row),
            state=self._state(row[at["state"]]) if "state" in at else "",
            submit_ns=submit,
            start_ns=start,
            end_ns=end,
            name=self._label(row, "name"),
            user=self._label(row, "user"),
            account=self._label(row, "account"),
            partition=self._label(row, "partition"),
        )

    def _state(self, text: str) -> str:
        if (known := self._states.get(text)) is None:
            known = label(text).lower()
            known = self.mapping.states.get(known, known)
            if len(self._states) < _CACHED:
                self._states[text] = known
        return known

    def _column(self, what: str) -> str:
        return self.names[self._at[what]] if what in self._at else what

    def _cell(self, row: Sequence[str], what: str) -> str:
        return row[self._at[what]] if what in self._at else ""

    def _label(self, row: Sequence[str], what: str) -> str:
        at = self._at.get(what)
        if at is None:
            return ""
        text = row[at]
        if (known := self._seen.get(text)) is None:
            known = label(text)
            if len(self._seen) < _CACHED:
                self._seen[text] = known
        return known

    def _moment(self, row: Sequence[str], what: str) -> int | None:
        at = self._at.get(what)
        if at is None:
            return None
        text = row[at]
        try:
            return self.times.read(text)
        except ValueError as error:
            if text.strip().lower() in MISSING:
                return None
            raise BadCell(self.names[at], text, str(error)) from None

    def _length(self, row: Sequence[str], what: str) -> int | None:
        at = self._at.get(what)
        if at is None or row[at].strip().lower() in MISSING:
            return None
        try:
            ns = length_ns(row[at], self._length_ns)
        except ValueError as error:
            raise BadCell(self.names[at], row[at], str(error)) from None
        if ns < 0:
            raise BadCell(self.names[at], row[at], "is negative")
        return ns

    def _by_lengths(
        self, row: Sequence[str], submit: int | None, start: int | None, end: int | None
    ) -> tuple[int | None, int | None]:
        """Return start and end, from the length between where a column is not there or empty."""
        duration, wait = self._length(row, "duration"), self._length(row, "wait")
        if start is None and submit is not None and wait is not None:
            start = submit + wait
        if start is None and "start" not in self._at and end is not None and duration is not None:
            start = end - duration
        if start is not None and end is None and duration is not None:
            end = start + duration
        if None not in {start, end, duration} and abs(end - start - duration) >= 2 * _SLACK_NS:  # type: ignore[operator]
            self.n_unlike += 1
        return start, end

    def _devices(self, row: Sequence[str]) -> int:
        """Return how much a row asks for, in thousandths of a device."""
        key = tuple([row[self._at[what]] for what in self._amounts])
        if (milli := self._milli.get(key)) is None:
            milli = self._product(key)
            if len(self._milli) < _CACHED:
                self._milli[key] = milli
        return milli

    def _product(self, key: Sequence[str]) -> int:
        amounts = {}
        for what, text in zip(self._amounts, key, strict=True):
            if text.strip().lower() in MISSING:
                raise BadCell(self._column(what), "", "is empty: how many devices is unknown")
            try:
                amounts[what] = number(text)
            except ValueError as error:
                raise BadCell(self._column(what), text, str(error)) from None
            if amounts[what] < 0:
                raise BadCell(self._column(what), text, "is negative")
        each = amounts.get("milli", amounts["percent"] * 10 if "percent" in amounts else Decimal(1000))
        whole = each * amounts.get("devices", 1) * amounts.get("instances", 1)
        if whole > MAX_MILLI:
            raise BadCell(self._column(self._amounts[0]), key[0], "is more devices than there are anywhere")
        return round(whole)

    def sentences(self) -> list[str]:
        """Return what the rows left open, a sentence each."""
        said = [*self.bad.sentences(), *self.times.sentences()]
        said += [
            f"{count} rows are left out for their {clean(name, 60)}, as the mapping {self.mapping.name} says"
            for name, count in self.n_skipped.items()
        ]
        if self.n_unlike:
            said.append(
                f"{self.n_unlike} rows have a {self._column('duration')} other than from start to end: the times count"
            )
        if self.n_repeated:
            said.append(f"{self.n_repeated} rows say the same as one before, and count once")
        return said
