"""Tables as Slurm's commands print them: which column is what, and where a record begins and ends."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from headway.sources import files
from headway.sources.slurm import fields as slurm_fields
from headway.sources.slurm import lists as slurm_lists
from headway.sources.slurm import names as slurm_names
from headway.sources.slurm import places as slurm_places

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
    "JOBID": "job", "ARRAY_JOB_ID": "array", "ARRAY_TASK_ID": "task",
    "STATE": "state", "ST": "state", "START_TIME": "start",
    "SUBMIT_TIME": "submit", "ELIGIBLE_TIME": "eligible", "TIME": "elapsed", "TRES_ALLOC": "alloc_tres",
    "TRES_PER_NODE": "req_gres", "TRES_PER_JOB": "req_tres", "GRES": "req_gres", "NODES": "nodes",
    "NODELIST": "node_list", "NODELIST(REASON)": "node_list", "USER": "user", "ACCOUNT": "account",
    "PARTITION": "partition", "NAME": "name", "CLUSTER": "cluster",
}  # fmt: skip
"""What the columns of ``sacct`` (mixed case) and ``squeue`` (upper case) are called here."""
NAMES: Final = frozenset({"user", "account", "partition", "name", "cluster"})
"""Of those the ones whose cells may be cut and still tell something."""
NODE_COLUMNS: Final = {
    "NODELIST": "node", "HOSTNAMES": "node", "NODES": "count", "STATE": "state", "GRES": "gres",
    "GRES_USED": "gres_used", "PARTITION": "partition", "TIMESTAMP": "since", "CLUSTER": "cluster",
}  # fmt: skip
"""What the columns of ``sinfo`` are called here."""
_FREE: Final = frozenset({
    "JobName", "Comment", "AdminComment", "SystemComment", "SubmitLine", "WorkDir", "Reason", "Constraints", "Extra",
    "StdOut", "StdErr", "StdIn", "NAME", "COMMAND", "COMMENT", "DEPENDENCY", "REASON", "NODELIST(REASON)", "WORK_DIR",
})  # fmt: skip
"""Columns in which anything may stand, the delimiter too."""
_LISTED: Final = re.compile(r"TRES|GRES", re.IGNORECASE)
"""How columns are called in which a comma stands between resources."""
_OWN: Final = frozenset({
    "jobidraw", "jobname", "elapsedraw", "alloctres", "reqtres", "allocgres", "reqgres", "allocnodes", "nnodes",
    "nodelist", "nodelist(reason)", "exitcode", "derivedexitcode", "ncpus", "alloccpus", "reqcpus", "timelimitraw",
    "submitline", "tres_alloc", "tres_per_node", "array_job_id", "gres_used",
})  # fmt: skip
"""Columns in lower case that few others than Slurm call so."""
_SPELLINGS: Final = [
    {name.lower(): name for name in names}
    for names in ([name for name in COLUMNS if not name.isupper()], [*filter(str.isupper, COLUMNS)], NODE_COLUMNS)
]
"""What ``sacct``, ``squeue`` and ``sinfo`` call their columns, by the same in lower case."""
_LOOSE: Final = re.compile(
    r'"?([A-Za-z][\w/]*(?::[A-Z])*(?:\([A-Za-z/]*\))?)((?:\([^()]*\)|\[[^][]*\]|%-?\d+)*)"?', re.ASCII
)
"""The name of a column, with a width or a unit after it, and in quotes."""
_NAME: Final = re.compile(r"[A-Z][\w/]*(?::[A-Z])*(?:\([A-Z/]*\)?)?")
DASHES: Final = re.compile(rb"-+(?: +-+)* *")
_ROWS: Final = 100
"""So many lines below a header tell whether columns are at places."""
_NUMBERS: Final = ("job", "raw", "array")
"""The columns that number jobs: the first that is there counts."""
_TASK: Final = re.compile(r"\d[\d,:-]*(?:%\d+)?", re.ASCII)
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
        reason: The place of the column ``NODELIST (REASON)``, in whose cells one blank stands too; -1: there is none.
        spans: By column, the first and last place of its characters, where dashes show how wide columns are.
        lists: The places of columns in which resources stand, with commas between them.
        first: The first letter of its line.
        quoted: Whether names are in quotes, as cells are then.
    """

    kind: str
    columns: Mapping[int, str]
    width: int
    delimiter: bytes = b""
    closed: bool = False
    free: tuple[int, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()
    lists: frozenset[int] = frozenset()
    first: bytes = b""
    quoted: bool = False
    at: slurm_places.Places | None = None
    cluster: str = ""
    reason: int = -1

    @cached_property
    def n_delimiters(self) -> int:
        """How many delimiters a line has that is a record."""
        return self.width - 1 + self.closed

    @cached_property
    def job_at(self) -> int:
        """The place of the column that numbers jobs; -1 where there is none."""
        return next((self.places[name] for name in _NUMBERS if name in self.places), -1)

    @cached_property
    def has_tasks(self) -> bool:
        """Whether two columns tell the task of an array."""
        return {"array", "task"} <= self.places.keys()

    def split(self, line: bytes) -> list[bytes]:
        """Return the cells of a line, or of several that are one record."""
        if self.spans:
            return [line[low:high] for low, high in self.spans]
        if not self.delimiter:
            cells = self.at.split(line) if self.at else line.split()
            return self._with_reason(cells) if len(cells) == self.width + 1 and self.reason >= 0 else cells
        cells = line.split(self.delimiter)
        if b'"' in line and (self.quoted or len(cells) != self.n_delimiters + 1):
            cells = _unquoted(line, self.delimiter) or cells
        if self.closed and len(cells) > self.width and not cells[-1].strip():
            cells.pop()
        return cells

    def _with_reason(self, cells: list[bytes]) -> list[bytes]:
        """Return cells with a reason put to its nodes, where the state is at its place then."""
        at, state = self.reason, self.places.get("state", -1)
        if not cells[at + 1].startswith(b"(") or not slurm_fields.state(cells[state].decode("utf-8", "replace")):
            return cells
        return [*cells[:at], cells[at] + b" " + cells[at + 1], *cells[at + 2 :]]

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The place of each column by what it is called here."""
        return {name: index for index, name in self.columns.items()}

    def places_of(
        self, line: bytes, names: Sequence[slurm_names.Name], rows: Sequence[bytes] = ()
    ) -> slurm_places.Places | None:
        """Return where its columns are, where its names, and the lines below, say that each has a width.

        Args:
            line: The header.
            names: Its names, as they stand there.
            rows: Lines below it.
        """
        meanings = [self.columns.get(index, "") for index in range(self.width)]
        return slurm_places.places(line, names, meanings, self.free, [row for row in rows if self._may_be_row(row)])

    def _may_be_row(self, line: bytes) -> bool:
        """Return whether a line below the header looks like a record."""
        return bool(line.strip()) and (self.kind == SINFO or line.lstrip()[:1].isdigit())

    def row(self, cells: Sequence[bytes]) -> dict[str, str]:
        """Return what the cells say; of two columns of one meaning the first counts."""
        row = {name: cells[index].decode("utf-8", "replace").strip() for index, name in self.columns.items()}
        if self.has_tasks and (task := _task(row)):
            row |= {"raw": row.get("job", ""), "job": task}
        return {"cluster": self.cluster, **row} if self.cluster else row

    def realigned(self, cells: list[bytes]) -> list[bytes] | None:
        """Return cells of which some are parts of one, put together; None where they make no sense."""
        if self.delimiter == b"," and self.lists:
            tried = slurm_lists.joined(cells, self.width, self.lists)
            if tried and self.plausible(self.row(tried)):
                return tried
        extra = len(cells) - self.width
        if extra >= self.width - 1:
            return None  # more than one record
        for at in self.free:
            joined = (self.delimiter or b" ").join(cells[at : at + extra + 1])
            tried = [*cells[:at], joined, *cells[at + extra + 1 :]]
            if self.plausible(self.row(tried)) and not (self.delimiter == b"," and self._is_torn(tried)):
                return tried
        return None

    def _is_torn(self, cells: Sequence[bytes]) -> bool:
        """Return whether resources stand in cells that are no lists of them."""
        return any(slurm_lists.has_resource(cell) for at, cell in enumerate(cells) if at not in self.lists)

    def is_numbered(self, row: Row) -> bool:
        """Return whether a record's number of a job is one; of nodes there is none."""
        return self.kind == SINFO or _JOB.fullmatch(number(row)) is not None

    def plausible(self, row: Row) -> bool:
        """Return whether a record's job, state and moments are such."""
        if self.kind == SINFO:
            return True
        if not self.is_numbered(row) or ("state" in row and not slurm_fields.state(row["state"])):
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
        >>> found = header(b'#jobid%20|state|start|end')
        >>> found.kind, found.delimiter, list(found.columns.values())
        ('sacct', b'|', ['job', 'state', 'start', 'end'])
        >>> header(b"job,state") is None
        True
    """
    if len(line) > files.HEAD or not line.isascii():
        return None
    text = line.decode().strip(" \r\n").replace("NODELIST (REASON)", "NODELIST(REASON)")
    names = _NAME.findall(text)
    between = [part.strip(" ") for part in _NAME.split(text)]
    if not _are_between(between):
        return _loose(text)
    placed: list[slurm_names.Name] = []
    if text.upper() == text:
        names = slurm_names.whole(names)
        if not between[1]:
            placed = slurm_names.apart(line.decode().rstrip("\r\n"))
            names = [name.full for name in placed]
    if not (kind := _kind(names)):
        return _loose(text)
    if kind == SQUEUE and sum(name.lower() in _SPELLINGS[0] for name in names) > sum(name in COLUMNS for name in names):
        kind, names = SACCT, [_SPELLINGS[0].get(name.lower(), name) for name in names]
    found = _header(kind, names, between, text)
    if b"NODELIST (REASON)" in line and placed and "NODELIST(REASON)" in names:
        found = replace(found, reason=names.index("NODELIST(REASON)"))
    return replace(found, at=found.places_of(line, placed)) if placed else found


def number(row: Row) -> str:
    """Return a job's number as it is shown, else its raw number, else that of its array; empty where there is none.

    Example:
        >>> number({"job": "13_3", "raw": "105"}), number({"job": "", "raw": "105"}), number({})
        ('13_3', '105', '')
    """
    return next((row[name] for name in _NUMBERS if row.get(name)), "")


def _task(row: Row) -> str:
    """Return as what a task of an array is shown, or those that wait; empty where it is none."""
    array, task = row["array"], row["task"]
    if not array.isdecimal() or not _TASK.fullmatch(task):
        return ""
    return f"{array}_{task}" if task.isdecimal() else f"{array}_[{task}]"


def _are_between(between: Sequence[str]) -> bool:
    """Return whether what stands before, between and after names are delimiters."""
    return len(between) > 2 and not between[0] and len(set(between[1:-1])) == 1 and between[-1] in {"", between[1]}


def _header(kind: str, names: Sequence[str], between: Sequence[str], text: str) -> Header:
    known = NODE_COLUMNS if kind == SINFO else COLUMNS
    last = {known[name]: index for index, name in reversed(list(enumerate(names))) if name in known}
    columns = dict(sorted((index, meaning) for meaning, index in last.items()))
    free = tuple(index for index in reversed(range(len(names))) if names[index] in _FREE)
    lists = frozenset(index for index, name in enumerate(names) if _LISTED.search(name))
    delimiter, closed = between[1].encode(), bool(between[-1])
    first, quoted = text[:1].encode(), '"' in text
    return Header(kind, columns, len(names), delimiter, closed, free, lists=lists, first=first, quoted=quoted)


def _loose(text: str) -> Header | None:
    """Return the header that a line is but for case, quotes, a mark before it, or widths and units after names."""
    if text.lower().find("jobid") < 0 and "NODE" not in text and "HOSTNAMES" not in text:
        return None
    begun = text.lstrip("# ") if text.startswith("#") else text
    found = _LOOSE.split(begun)
    between = [part.strip(" ") for part in found[::3]]
    if not _are_between(between) or not between[1]:
        return None
    names = [name if name.upper() in COLUMNS else name.partition("(")[0] for name in found[1::3]]
    if kind := _kind(names):
        known = _SPELLINGS[(SACCT, SQUEUE, SINFO).index(kind)]
        return _header(
            kind, [name if name in COLUMNS else known.get(name.lower(), name) for name in names], between, text
        )
    lower = {name.lower() for name in names}
    spelled = max(_SPELLINGS, key=lambda known: len(lower & known.keys()))
    if not lower & _OWN and (between[1] == "," or not lower <= spelled.keys()):
        return None  # others than Slurm may call columns so
    names = [spelled.get(name.lower(), name) for name in names]
    kind = _kind(names) if len(lower & spelled.keys()) > 2 else None
    return _header(kind, names, between, text) if kind else None


def _unquoted(line: bytes, delimiter: bytes) -> list[bytes] | None:
    """Return cells some of which are in quotes, as in CSV; None where they are not to be read so."""
    try:
        text = line.decode("utf-8", "surrogateescape")
        (cells,) = csv.reader([text], delimiter=delimiter.decode())
    except (csv.Error, TypeError, ValueError):
        return None
    return [cell.encode("utf-8", "surrogateescape") for cell in cells]


def _kind(names: list[str]) -> str | None:
    found = set(names)
    if found & {"JobID", "JobIDRaw"} and len(found & COLUMNS.keys()) > 1:
        return SACCT
    if found & {"JOBID", "ARRAY_JOB_ID"} and len(found & COLUMNS.keys()) > 1:
        return SQUEUE
    known = found & NODE_COLUMNS.keys()
    if found & {"NODES(A/I/O/T)", "NODES(A/I)"} and known:
        return SINFO
    if ("AVAIL" in found and len(known) > 1) or (
        known & {"NODELIST", "HOSTNAMES", "NODES"} and known & {"STATE", "GRES", "GRES_USED"}
    ):
        return SINFO
    return None


def first_header(head: bytes) -> Header | None:
    """Return the first header in the beginning of a file, with its widths where they can be told."""
    lines = head.removeprefix(b"\xef\xbb\xbf").splitlines()
    for index, line in enumerate(lines):
        if found := header(line):
            rows = lines[index + 1 : index + 1 + _ROWS]
            return _placed(_underlined(found, rows[0]), line, rows) if rows else found
    return None


def _placed(found: Header, line: bytes, rows: Sequence[bytes]) -> Header:
    """Return a header with the places of its columns, where the lines below it say that they have such."""
    if found.delimiter or found.spans or found.kind == SACCT:
        return found
    names = slurm_names.apart(line.decode())
    return replace(found, at=found.places_of(line, names, rows)) if len(names) == found.width else found


def _underlined(found: Header, line: bytes) -> Header:
    """Return a header with its widths, where the line below it is one of dashes."""
    if found.delimiter or not DASHES.fullmatch(line.rstrip(b"\r\n")):
        return found
    spans = tuple(match.span() for match in re.finditer(rb"-+", line))
    return Header(found.kind, found.columns, found.width, spans=spans) if len(spans) == found.width else found
