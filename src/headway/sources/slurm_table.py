"""Tables as Slurm's commands print them: which column is what, and where a record begins and ends."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from headway.sources import files, slurm_fields

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
DASHES: Final = re.compile(rb"-+(?: +-+)* *")
_JOB: Final = re.compile(r"\d{1,20}(?:[_+.].*)?", re.ASCII)


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
        return self.places.get("job", self.places.get("raw", -1))

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

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The place of each column by what it is called here."""
        return {name: index for index, name in self.columns.items()}

    def row(self, cells: Sequence[bytes]) -> dict[str, str]:
        """Return what the cells say; of two columns of one meaning the first counts."""
        return {name: cells[index].decode("utf-8", "replace").strip() for index, name in self.columns.items()}

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
    if found.delimiter or not DASHES.fullmatch(line.rstrip(b"\r\n")):
        return found
    spans = tuple(match.span() for match in re.finditer(rb"-+", line))
    return Header(found.kind, found.columns, found.width, spans=spans) if len(spans) == found.width else found
