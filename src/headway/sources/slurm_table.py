"""Tables as Slurm's commands print them: which column is what, and where a record begins and ends."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from headway.sources import files, slurm_fields
from headway.sources.text import Complaints

SACCT: Final = "sacct"
SQUEUE: Final = "squeue"
SINFO: Final = "sinfo"
Row = Mapping[str, str]
"""What a record says, by the names that `COLUMNS` and `NODE_COLUMNS` give."""
COLUMNS: Final = {
    "JobID": "job", "JobIDRaw": "raw", "State": "state", "Start": "start", "End": "end", "Submit": "submit",
    "Eligible": "eligible", "Elapsed": "elapsed", "ElapsedRaw": "elapsed_raw", "Suspended": "suspended",
    "AllocTRES": "alloc_tres", "ReqTRES": "req_tres", "AllocGRES": "alloc_gres", "ReqGRES": "req_gres",
    "AllocNodes": "nodes", "NNodes": "n_nodes", "NodeList": "node_list", "User": "user", "Account": "account",
    "Partition": "partition", "JobName": "name", "Cluster": "cluster",
    "JOBID": "job", "ARRAY_JOB_ID": "raw", "STATE": "state", "ST": "state", "START_TIME": "start",
    "SUBMIT_TIME": "submit", "ELIGIBLE_TIME": "eligible", "TIME": "elapsed", "TRES_ALLOC": "alloc_tres",
    "TRES_PER_NODE": "req_gres", "TRES_PER_JOB": "req_tres", "GRES": "req_gres", "NODES": "nodes",
    "NODELIST": "node_list", "NODELIST(REASON)": "node_list", "USER": "user", "ACCOUNT": "account",
    "PARTITION": "partition", "NAME": "name", "CLUSTER": "cluster",
}  # fmt: skip
"""What the columns of ``sacct`` (mixed case) and ``squeue`` (upper case) are called here."""
NODE_COLUMNS: Final = {
    "NODELIST": "node", "HOSTNAMES": "node", "NODES": "count", "STATE": "state", "GRES": "gres",
    "GRES_USED": "gres_used", "PARTITION": "partition", "TIMESTAMP": "since",
}  # fmt: skip
"""What the columns of ``sinfo`` are called here."""
_FREE: Final = frozenset({
    "JobName", "Comment", "AdminComment", "SystemComment", "SubmitLine", "WorkDir", "Reason", "Constraints", "Extra",
    "StdOut", "StdErr", "StdIn", "NAME", "COMMAND", "COMMENT", "DEPENDENCY", "REASON", "NODELIST(REASON)", "WORK_DIR",
})  # fmt: skip
"""Columns in which anything may stand, the delimiter too."""
_NAME: Final = re.compile(r"[A-Z][\w/]*(?::[A-Z])*(?:\([A-Z/]*\))?")
_DASHES: Final = re.compile(rb"-+(?: +-+)* *")
_DATE: Final = re.compile(rb"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")
_JOB: Final = re.compile(r"\d{1,20}(?:[_+.].*)?", re.ASCII)
_MOST_LINES: Final = 1000
"""A record of more lines is none."""


@dataclass(frozen=True)
class Header:
    """Which column is what.

    Attributes:
        kind: The command: `SACCT`, `SQUEUE` or `SINFO`.
        columns: By the place of a column, what it is called here; those of no use are left out.
        width: How many columns there are.
        delimiter: What stands between them; empty: blanks.
        closed: Whether it stands after the last one too.
        free: The places of columns in which the delimiter may stand.
        spans: By column, the first and last place of its characters, where columns are that wide.
    """

    kind: str
    columns: Mapping[int, str]
    width: int
    delimiter: bytes = b""
    closed: bool = False
    free: tuple[int, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()

    @cached_property
    def n_delimiters(self) -> int:
        """How many delimiters a line has that is a record."""
        return self.width - 1 + self.closed

    @cached_property
    def job_at(self) -> int:
        """The place of the column that numbers jobs; -1 where there is none."""
        places = {name: index for index, name in self.columns.items()}
        return places.get("job", places.get("raw", -1))

    def split(self, line: bytes) -> list[bytes]:
        """Return the cells of a line, or of several that are one record."""
        if self.spans:
            return [line[low:high] for low, high in self.spans]
        if not self.delimiter:
            return line.split()
        cells = line.split(self.delimiter)
        if self.closed and len(cells) == self.width + 1 and not cells[-1].strip():
            cells.pop()
        return cells

    def row(self, cells: list[bytes]) -> dict[str, str]:
        """Return what the cells say; of two columns of one meaning the first counts."""
        return {name: cells[index].decode("utf-8", "replace").strip() for index, name in self.columns.items()}

    def row_of(self, line: bytes) -> dict[str, str]:
        """Return what a line says that is a whole record."""
        cells = line.decode("utf-8", "replace").split(self._sign)
        return {name: cells[index].strip() for index, name in self.columns.items()}

    @cached_property
    def _sign(self) -> str:
        return self.delimiter.decode()

    def realigned(self, cells: list[bytes]) -> list[bytes] | None:
        """Return cells of which some are parts of one, put together; None where they make no sense."""
        extra = len(cells) - self.width
        if extra >= self.width - 1:
            return None  # more than one record
        for at in self.free:
            joined = (self.delimiter or b" ").join(cells[at : at + extra + 1])
            tried = [*cells[:at], joined, *cells[at + extra + 1 :]]
            if self.plausible(self.row(tried)):
                return tried
        return None

    def plausible(self, row: Row) -> bool:
        """Return whether a record's job, state and moments are such."""
        if self.kind == SINFO:
            return True
        ident = row.get("job") or row.get("raw") or ""
        if not _JOB.fullmatch(ident) or ("state" in row and not slurm_fields.state(row["state"])):
            return False
        try:
            moments = slurm_fields.Moments()
            for name in ("submit", "eligible", "start", "end"):
                moments.read(row.get(name, ""))
        except ValueError:
            return False
        return True


def header(line: bytes) -> Header | None:
    """Return what a line says of the columns; None where it is no header of a table of Slurm.

    Example:
        >>> found = header(b"JobID|#State|#Start|#End|#")
        >>> found.kind, found.delimiter, found.closed, list(found.columns.values())
        ('sacct', b'|#', True, ['job', 'state', 'start', 'end'])
        >>> header(b"job,state") is None
        True
    """
    if len(line) > files.HEAD or not line.isascii():
        return None
    text = line.decode().strip(" \r\n")
    names = _NAME.findall(text)
    between = [part.strip(" ") for part in _NAME.split(text)]
    if len(names) < 2 or between[0] or len(set(between[1:-1])) != 1 or between[-1] not in {"", between[1]}:
        return None
    kind = _kind(names)
    if kind is None:
        return None
    known = NODE_COLUMNS if kind == SINFO else COLUMNS
    last = {known[name]: index for index, name in reversed(list(enumerate(names))) if name in known}
    columns = dict(sorted((index, meaning) for meaning, index in last.items()))
    free = tuple(index for index in reversed(range(len(names))) if names[index] in _FREE)
    return Header(kind, columns, len(names), between[1].encode(), bool(between[-1]), free)


def _kind(names: list[str]) -> str | None:
    found = set(names)
    if found & {"JobID", "JobIDRaw"} and len(found & COLUMNS.keys()) > 1:
        return SACCT
    if found & {"JOBID", "ARRAY_JOB_ID"} and len(found & COLUMNS.keys()) > 1:
        return SQUEUE
    known = found & NODE_COLUMNS.keys()
    if ("AVAIL" in found and len(known) > 1) or (
        known & {"NODELIST", "HOSTNAMES", "NODES"} and known & {"STATE", "GRES", "GRES_USED"}
    ):
        return SINFO
    return None


def first_header(head: bytes) -> Header | None:
    """Return the first header in the beginning of a file, with its widths where dashes underline it."""
    lines = head.removeprefix(b"\xef\xbb\xbf").splitlines()
    for index, line in enumerate(lines):
        if found := header(line):
            return _underlined(found, lines[index + 1]) if index + 1 < len(lines) else found
    return None


def _underlined(found: Header, line: bytes) -> Header:
    """Return a header with its widths, where the line below it is one of dashes."""
    if found.delimiter or not _DASHES.fullmatch(line.rstrip(b"\r\n")):
        return found
    spans = tuple(match.span() for match in re.finditer(rb"-+", line))
    return Header(found.kind, found.columns, found.width, spans=spans) if len(spans) == found.width else found


def rows(path: Path, found: Header, complaints: Complaints) -> Iterator[tuple[int, Header, dict[str, str]]]:
    """Yield each record: the number of its first line, its header, what it says.

    A record goes on in the next line until it has as many cells as the header; a header that comes
    again counts from there on. What is no record is complained of.

    Steps that follow the record of their job are passed over.

    Raises:
        OSError: The file cannot be read.
    """
    reader = _Reader(found, complaints)
    last: bytes | None = None
    for number, line in _lines(path, complaints):
        now = reader.header
        plain = now.delimiter and not reader.begun and line[:1] not in _BESIDE
        if not plain or line.count(now.delimiter) != now.n_delimiters:
            for place, cells in reader.take(number, line):
                yield place, reader.header, reader.header.row(cells)
            continue
        job = line.split(now.delimiter, now.job_at + 1)[now.job_at] if now.job_at >= 0 else b""
        base, dot, _ = job.partition(b".")
        if dot and base == last:
            continue
        last = None if dot else base
        yield number, now, now.row_of(line)
    reader.give_up()


def _lines(path: Path, complaints: Complaints) -> Iterator[tuple[int, bytes]]:
    number = 0
    try:
        for number, line in files.lines(path):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")  # noqa: PLW2901
            if len(line) >= files.MAX_LINE and not line.endswith(b"\n"):
                complaints.add("longer than 1 MiB, left out", number)
                continue
            if not line.isascii():
                try:
                    line.decode()
                except UnicodeDecodeError as error:
                    complaints.add("not all UTF-8, read with a mark in its place", number, error.reason)
            if not line.endswith(b"\n"):
                complaints.add("the last and has no end: it may be cut", number)
            yield number, line
    except files.TornError as error:
        complaints.add("the last before the gzip breaks", number, str(error))


class _Reader:
    """Puts lines together to records.

    Attributes:
        header: Which column is what from here on.
        begun: The lines of a record that is not whole yet.
    """

    def __init__(self, found: Header, complaints: Complaints) -> None:
        self.header = found
        self._complaints = complaints
        self.begun: list[bytes] = []
        self._place = 0
        self._n_found = 0
        self._n_lines = 0

    def take(self, number: int, line: bytes) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the record that ends with a line, where one does."""
        cells = self.header.split(line.rstrip(b"\r\n"))
        if line[:1] in _BESIDE and self._skips(line):
            return
        if not self.begun and len(cells) == self.header.width and line.strip():
            yield number, cells
            return
        whole = len(cells) == self.header.width
        if self.begun and not whole:
            yield from self._go_on(number, line, len(cells))
            return
        self.give_up()
        if whole:
            yield number, cells
        elif len(cells) > self.header.width:
            if joined := self.header.realigned(cells):
                if self.header.delimiter:
                    what = "longer by the delimiter inside a text, and put together so that it makes sense"
                    self._complaints.add(what, number)
                yield number, joined
            else:
                self._complain(number, f"{len(cells)} cells where the header has {self.header.width}")
        elif line.strip():
            self._begin(number, line, len(cells))

    def give_up(self) -> None:
        """Complain of a record that was begun and is not whole."""
        if self.begun:
            self._complain(self._place, f"{self._n_found} cells where the header has {self.header.width}")
            self.begun = []

    def _begin(self, number: int, line: bytes, n_cells: int) -> None:
        self.begun, self._place, self._n_found, self._n_lines = [line.rstrip(b"\r\n")], number, n_cells, 1
        if not self.header.delimiter:
            self.give_up()

    def _go_on(self, number: int, line: bytes, n_cells: int) -> Iterator[tuple[int, list[bytes]]]:
        """Add a line to a record that was begun; it ends with it, or neither is one."""
        together = b"\n".join([*self.begun, line.rstrip(b"\r\n")])
        n_found = self._n_found + n_cells - 1
        self._n_lines += 1
        if n_found > self.header.width + self.header.closed or self._n_lines > _MOST_LINES:
            self.give_up()
            self._begin(number, line, n_cells)
            return
        self.begun = [together]
        self._n_found = n_found
        if len(together) > files.MAX_LINE:
            self.give_up()
            return
        cells = self.header.split(together)
        if len(cells) == self.header.width:
            self.begun = []
            yield self._place, cells

    def _skips(self, line: bytes) -> bool:
        """Return whether a line is none of a record: a header, which counts from here on, dashes, a date."""
        if self.begun and not any(mark in line for mark in _MARKS):
            return False
        if any(mark in line for mark in _MARKS) and (found := header(line)) and found.kind == self.header.kind:
            if (found.width, found.columns) != (self.header.width, self.header.columns):
                self.give_up()
                self.header = found
            return True
        return not line.strip() or bool(_DASHES.fullmatch(line.rstrip(b"\r\n")) or _DATE.match(line))

    def _complain(self, number: int, reason: str) -> None:
        self._complaints.add("no record, left out", number, reason)


_MARKS: Final = (b"JobID", b"JOB", b"NODE", b"HOSTNAMES")
_BESIDE: Final = frozenset(bytes([letter]) for letter in b"ABCDEFGHIJKLMNOPQRSTUVWXYZ -\r\n")
"""With one of these a line begins that is none of a record."""
