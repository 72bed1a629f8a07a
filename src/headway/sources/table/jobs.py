"""Rows of a table made jobs: what they asked for, when they had it, how they ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from headway.ledger.jobs import LABELS, UNTOLD, Job, Jobs
from headway.sources.table.amounts import Amounts, BadCell
from headway.sources.table.mapping import Mapping
from headway.sources.table.philly import Attempts
from headway.sources.table.plain import SLACK_NS, Plain, Told, label
from headway.sources.table.records import Records
from headway.sources.table.times import LIMIT_NS, MISSING, UNITS_NS, Times, length_ns
from headway.sources.text import Complaints, clean

_MOST_ODD: Final = 1 / 8
"""Where more rows are not plain, all are read one by one, and in the next chunks too."""
_NEXT: Final = 3


def fits(row: Sequence[str], width: int) -> bool:
    """Return whether a row has as many fields as the header, or only empty ones more."""
    return len(row) == width or (len(row) > width and not any(row[width:]))


@dataclass
class JobRows:
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

    def __post_init__(self) -> None:
        self.times = self.mapping.times()
        self._at = at = self.mapping.places(self.names)
        self._amounts = Amounts({what: self.names[place] for what, place in at.items()})
        self._skip = [(self.names.index(column), values, column) for column, values in self.mapping.skip.items()]
        self._length_ns = UNITS_NS[self.mapping.lengths]
        self._lengths = "duration" in at or "wait" in at
        self._plain = Plain(self.mapping, at, len(self.names), self.times, self._amounts)
        self._jobs = Jobs()
        self._header = list(self.names)
        self._n_alone = 0

    def read(self, records: Records | Attempts) -> Jobs:
        """Return the jobs of all rows that make sense; a row that says the same again counts once."""
        for lines, rows in records.chunks():
            self._read(lines, rows)
        if "id" in self._at:
            self.n_repeated = self._jobs.drop_repeated()
        return self._jobs

    def _read(self, lines: Sequence[int], rows: Sequence[Sequence[str]]) -> None:
        """Add the jobs of rows, in their order: the plain ones many at a time, the others one by one."""
        if self._skip:
            width = len(self.names)
            left = [place for place, row in enumerate(rows) if len(row) != width or not self._skipped(row)]
            lines, rows = [lines[place] for place in left], [rows[place] for place in left]
        self._n_alone -= 1
        told = self._plain.read(rows) if self._plain.able and rows and self._n_alone < 0 else None
        odd: Sequence[int] = np.flatnonzero(~told.plain).tolist() if told else ()
        if told is None or len(odd) > len(rows) * _MOST_ODD:
            self._n_alone = self._n_alone if told is None else _NEXT
            told, odd = None, range(len(rows))
        begin = 0
        for place in (*odd, len(rows)):
            if told is not None and place > begin:
                self._add(told, slice(begin, place))
            if place < len(rows):
                self._add_one(lines[place], rows[place])
            begin = place + 1

    def _add(self, told: Told, part: slice) -> None:
        """Add the jobs of rows that are all plain."""
        self._plain.add(self._jobs, told, part)
        self.n_unlike += int(told.unlike[part].sum())
        if told.keys is None or told.form is None:
            return
        keys = told.keys[:, part].T.ravel()
        cells = np.flatnonzero(keys != UNTOLD)
        if len(cells):
            columns = [told.cells[what] for what in ("submit", "start", "end") if what in told.cells]
            (row, column), (last_row, last) = (divmod(int(cells[end]), len(columns)) for end in (0, -1))
            n_others = np.count_nonzero(np.diff(keys[cells]))
            first, text = columns[column][part.start + row], columns[last][part.start + last_row]
            self.times.passed(first, text, int(n_others), local=not told.form.zone)

    def _add_one(self, line: int, row: Sequence[str]) -> None:
        """Add the job of a row, or say why it is none."""
        width = len(self._header)
        try:
            if len(row) != width and not fits(row, width):
                if row[0].startswith("#"):
                    return
                raise ValueError(f"{len(row)} fields, not {width}")  # noqa: TRY301 - complained of below
            job = self._job(row)
        except ValueError as error:
            if [cell.strip() for cell in row[:width]] != self._header:
                self.bad.add("no job, left out", line, str(error))
            return
        if job is not None:
            self._jobs.append(job)

    def _skipped(self, row: Sequence[str]) -> bool:
        for index, values, column in self._skip:
            if row[index].strip() in values:
                self.n_skipped[column] = self.n_skipped.get(column, 0) + 1
                return True
        return False

    def _job(self, row: Sequence[str]) -> Job | None:
        if len(row) > len(self.names) and self._skipped(row):
            return None
        at = self._at
        submit, start, end = self._moment(row, "submit"), self._moment(row, "start"), self._moment(row, "end")
        start = self._no_sooner(row, "start", start, submit)
        end = self._no_sooner(row, "end", end, start)
        if self._lengths:
            start, end = self._by_lengths(row, submit, start, end)
        if start is not None:
            if end is not None and end < start:
                raise BadCell(self._column("end"), self._cell(row, "end"), "is before the start")
            if submit is not None and start < submit:
                raise BadCell(self._column("start"), self._cell(row, "start"), "is before the submission")
        labels = {what: self._plain.word(what, row[at[what]]) if what in at else "" for what in LABELS}
        return Job(
            id=label(row[at["id"]]) if "id" in at else "",
            milli=self._amounts.read(tuple([row[at[what]] for what in self._amounts.columns])),
            submit_ns=submit,
            start_ns=start,
            end_ns=end,
            name=label(row[at["name"]]) if "name" in at else "",
            **labels,
        )

    def _column(self, what: str) -> str:
        return self.names[self._at[what]] if what in self._at else what

    def _cell(self, row: Sequence[str], what: str) -> str:
        return row[self._at[what]] if what in self._at else ""

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

    def _no_sooner(self, row: Sequence[str], what: str, ns: int | None, than: int | None) -> int | None:
        """Return a moment, as after clocks were put back where it would else be before another."""
        if ns is None or than is None or ns >= than:
            return ns
        after = self.times.after(row[self._at[what]])
        return after if after >= than else ns

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
        if None not in {start, end, duration} and abs(end - start - duration) >= SLACK_NS:  # type: ignore[operator]
            self.n_unlike += 1
        for what, ns in (("start", start), ("end", end)):
            if ns is not None and abs(ns) > LIMIT_NS:
                raise BadCell(self._column(what), "", "would be more than 146 years from 1970")
        return start, end

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
