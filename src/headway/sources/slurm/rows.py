"""The lines of a table of Slurm's commands, put together to records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from headway.sources import files
from headway.sources.slurm.table import DASHES, Header, header
from headway.sources.text import Complaints

_DATE: Final = re.compile(rb"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}")
_CLUSTER: Final = re.compile(rb"CLUSTER: (\S{1,200})\s*")
"""What stands before the table of each cluster, where the command was asked for several."""
_PROMPT: Final = re.compile(
    rb"\s*(?:(?:[^|]{0,80}@[^|]{0,80})?[$#%>] +[A-Za-z]|s(?:acct|queue|info|control)(?: |\s*$))"
)
"""What stands before a table that was taken from a terminal: the command."""
_MOST_LINES: Final = 1000
"""A record of more lines is none."""
_BLOCK: Final = 1 << 18
_FELL_APART: Final = (
    "no record, left out: the delimiter is inside a cell, and which is not clear; write it again with --delimiter='|'"
)
_MARKS: Final = (b"jobid", b"job_id", b"nodes", b"nodelist", b"hostn", b"avail")
"""One of these is in a header, in lower case."""
_BESIDE: Final = frozenset(bytes([letter]) for letter in b"ABCDEFGHIJKLMNOPQRSTUVWXYZ -\r") | {b""}
"""With one of these a line begins that is none of a record, or is empty."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records that follow each other.

    Attributes:
        header: Which column is what.
        places: By record, the number of its first line.
        cells: By record, what stands in its columns.
        n_lists: How many lists began up to them, each with a header of its own.
    """

    header: Header
    places: list[int]
    cells: list[list[bytes]]
    n_lists: int = 0

    def rows(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the place of each record, and what it says."""
        for place, cells in zip(self.places, self.cells, strict=True):
            yield place, self.header.row(cells)


def records(path: Path, found: Header, complaints: Complaints) -> Iterator[Records]:
    """Yield the records of a file, as many at once as follow each other on lines of their own.

    A record goes on in the next line until it has as many cells as the header; a header that comes
    again counts from there on. What is no record is complained of.

    Steps that follow the record of their job are passed over.

    Raises:
        OSError: The file cannot be read.
    """
    reader = _Reader(found, complaints)
    number = 1
    try:
        for block, ends in _blocks(path):
            if b"\r" in block:
                block = (block + b"\n" * ends).replace(b"\r\n", b"\n")[: -ends or None]  # noqa: PLW2901
            lines = block.split(b"\n")
            if number == 1:
                lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
            yield from reader.lines(number, lines, ends, _is_odd(block))
            number += len(lines)
    except files.TornError as error:
        complaints.add("the last before the gzip breaks", number - 1, str(error))
    for place, cells in reader.give_up():
        yield Records(reader.header, [place], [cells], reader.n_lists)


def _blocks(path: Path) -> Iterator[tuple[bytes, bool]]:
    """Yield whole lines, without the end of the last of them, and whether that has one; of a long line its beginning.

    Raises:
        TornError: A gzip breaks; all whole lines before have been yielded.
        OSError: The file cannot be read.
    """
    rest = b""
    with files.plain(path) as file:
        while data := file.read1(_BLOCK):
            lines, end, more = data.rpartition(b"\n")
            if end:
                yield rest + lines, True
                rest = more
            else:
                rest = (rest + more)[: files.MAX_LINE]
    if rest:
        yield rest, False


class _Reader:
    """Puts lines together to records.

    Attributes:
        header: Which column is what from here on.
        begun: The lines of a record that is not whole yet.
        n_lists: How many lists began; those of several clusters that were asked for at once are one.
    """

    def __init__(self, found: Header, complaints: Complaints) -> None:
        self.header = found
        self._complaints = complaints
        self.begun: list[bytes] = []
        self._place = 0
        self._n_found = 0
        self._n_lines = 0
        self._job: bytes | None = None
        self._headed = False
        self.n_lists = 0
        self._clusters: set[bytes] = set()

    def lines(self, number: int, lines: list[bytes], ends: bool, odd: bool) -> Iterator[Records]:
        """Yield the records of some lines.

        Args:
            number: That of the first of them.
            lines: Without their ends.
            ends: Whether the last of them has one.
            odd: Whether one of them may be no plain text.
        """
        at, n_ended = 0, len(lines) - (not ends)
        while at < len(lines):
            at, places, cells = self._plain(lines, at, n_ended, odd)
            if places:
                yield Records(self.header, [number + place for place in places], cells, self.n_lists)
            if at < len(lines):
                self._note(number + at, lines[at], at < n_ended)
                yield from self._single(number + at, lines[at])
                at += 1

    def _single(self, number: int, line: bytes) -> Iterator[Records]:
        """Yield the record that ends with a line about which something is odd, where one does."""
        if len(line) >= files.MAX_LINE:
            return
        at, _, cells = self._plain([line], 0, 1, odd=False)
        if cells:
            yield Records(self.header, [number], cells, self.n_lists)
        elif not at:
            for place, found in self.take(number, line):
                yield Records(self.header, [place], [found], self.n_lists)

    def _plain(self, lines: list[bytes], first: int, end: int, odd: bool) -> tuple[int, list[int], list[list[bytes]]]:
        """Return where lines end that are each a whole record, their places, and their cells."""
        if self.begun:
            return first, [], []
        if self.header.delimiter in {b"", b","} or self.header.quoted:
            return self._split(lines, first, end if self.header.job_at >= 0 else first, odd)
        beside = _BESIDE | {self.header.first}
        sign, n_signs, job_at = self.header.delimiter, self.header.n_delimiters, self.header.job_at
        places: list[int] = []
        cells: list[list[bytes]] = []
        step = None if self._job is None or job_at else self._job + b"."
        for at in range(first, end):
            line = lines[at]
            if (line[:1] in beside and _beside(line)) or (odd and not _is_text(line)):
                return at, places, cells
            if step and line.startswith(step) and line.count(sign) == n_signs:
                continue
            found = line.split(sign)
            if len(found) != n_signs + 1:
                return at, places, cells
            job = found[job_at] if job_at >= 0 else b""
            if b"." in job:
                if job.partition(b".")[0] == self._job:
                    continue
                self._job = step = None
            else:
                self._job = job
                step = None if job_at else job + b"."
            places.append(at)
            cells.append(found)
        return end, places, cells

    def _split(self, lines: list[bytes], first: int, end: int, odd: bool) -> tuple[int, list[int], list[list[bytes]]]:
        """Return the same of lines of columns with blanks between them, of one width, or as in CSV."""
        job_at, width, split = self.header.job_at, self.header.width, self.header.split
        places: list[int] = []
        cells: list[list[bytes]] = []
        for at in range(first, end):
            found = split(lines[at])
            job = found[job_at].strip() if len(found) == width else b""
            if not job[:1].isdigit() or self._is_open(lines[at]) or (odd and not _is_text(lines[at])):
                return at, places, cells
            base, dot, _ = job.partition(b".")
            if not dot or base != self._job:
                self._job = None if dot else base
                places.append(at)
                cells.append(found)
        return end, places, cells

    def _note(self, number: int, line: bytes, ended: bool) -> None:
        """Complain of a line that is damaged, whatever is made of it."""
        if len(line) >= files.MAX_LINE:
            self._complaints.add("longer than 1 MiB, left out", number)
            return
        if not line.isascii():
            try:
                (line + b"\n" * ended).decode()
            except UnicodeDecodeError as error:
                self._complaints.add("not all UTF-8, read with a mark in its place", number, error.reason)
        if not ended:
            self._complaints.add("the last and has no end: it may be cut", number)

    def take(self, number: int, line: bytes) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the record that ends with a line, where one does."""
        cells = self.header.split(line.rstrip(b"\r\n"))
        if (not self._headed or line[:1] in _BESIDE | {self.header.first}) and self._skips(line):
            return
        whole = len(cells) == self.header.width and bool(line.strip()) and not self._is_open(line)
        if self.begun and self._is_open(self.begun[0]):
            whole = whole and self.header.plausible(self.header.row(cells))
        if self.begun and not whole:
            yield from self._go_on(number, line, len(cells))
            return
        yield from self.give_up()
        if whole:
            yield number, cells
        elif self._is_open(line):
            self._begin(number, line, len(cells))
        elif len(cells) > self.header.width:
            yield from self._join(number, cells)
        elif line.strip():
            self._begin(number, line, len(cells))

    def _join(self, number: int, cells: list[bytes]) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the record of a line of too many cells, where some of them can be put together."""
        n_cells = f"{len(cells)} cells where the header has {self.header.width}"
        if joined := self.header.realigned(cells):
            if self.header.delimiter:
                what = "longer by the delimiter inside a text, and put together so that it makes sense"
                self._complaints.add(what, number)
            yield number, joined
        elif self.header.delimiter == b"," and self.header.lists:
            self._complaints.add(_FELL_APART, number, n_cells)
        else:
            self._complain(number, n_cells)

    def give_up(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the first line of a record that was begun, where it only lacks the end of a quote, or drop it."""
        if self.begun and self._is_open(self.begun[0]):
            cells = self.header.split(self.begun[0].partition(b"\n")[0])
            if len(cells) == self.header.width and self.header.plausible(self.header.row(cells)):
                self._complaints.add("one with a quote that is not closed, read by itself", self._place)
                self.begun = []
                yield self._place, cells
        self._drop()

    def _drop(self) -> None:
        """Complain of a record that was begun and is not whole."""
        if self.begun:
            n_cells = f"{self._n_found} cells where the header has {self.header.width}"
            self._complain(self._place, "a quote in it is not closed" if self._is_open(self.begun[0]) else n_cells)
            self.begun = []

    def _begin(self, number: int, line: bytes, n_cells: int) -> None:
        self.begun, self._place, self._n_found, self._n_lines = [line.rstrip(b"\r\n")], number, n_cells, 1
        if not self.header.delimiter:
            self._drop()

    def _go_on(self, number: int, line: bytes, n_cells: int) -> Iterator[tuple[int, list[bytes]]]:
        """Add a line to a record that was begun; where they make no sense together, another begins with the line."""
        together = b"\n".join([*self.begun, line.rstrip(b"\r\n")])
        n_found = self._n_found + n_cells - 1
        if self.header.quoted:
            n_found = self._n_found if self._is_open(together) else len(self.header.split(together))
        self._n_lines += 1
        if n_found > self.header.width + self.header.closed or self._n_lines > _MOST_LINES:
            yield from self.give_up()
            yield from self.take(number, line)
            return
        self.begun = [together]
        self._n_found = n_found
        if len(together) > files.MAX_LINE:
            yield from self.give_up()
            return
        cells = self.header.split(together)
        if len(cells) == self.header.width and not self._is_open(together):
            self.begun = []
            if self.header.is_numbered(self.header.row(cells)):
                yield self._place, cells
                return
            self._complain(self._place, "with the next line it has no number of a job")
            yield from self.take(number, line)

    def _is_open(self, text: bytes) -> bool:
        """Return whether a quote in it is not closed."""
        return self.header.quoted and text.count(b'"') % 2 == 1

    def _skips(self, line: bytes) -> bool:
        """Return whether a line is none of a record: a header, which counts from here on, dashes, a date."""
        if named := _CLUSTER.fullmatch(line):
            self._drop()
            if named[1] in self._clusters:
                self.n_lists += 1
                self._clusters.clear()
            self._clusters.add(named[1])
            self.header = replace(self.header, cluster=named[1].decode("utf-8", "replace"))
            return True
        marked = _is_marked(line)
        if self.begun and not marked:
            return False
        if marked and (found := header(line)) and found.kind == self.header.kind:
            self._headed = True
            self.n_lists += not self._clusters
            if (found.width, found.columns) != (self.header.width, self.header.columns):
                self._drop()
                self.header = replace(found, cluster=self.header.cluster)
            return True
        return _is_none(line) or (not self._headed and _PROMPT.match(line) is not None)

    def _complain(self, number: int, reason: str) -> None:
        self._complaints.add("no record, left out", number, reason)


def _beside(line: bytes) -> bool:
    """Return whether a line may be none of a record."""
    return _is_marked(line) or _is_none(line) or line.startswith(b"CLUSTER: ")


def _is_marked(line: bytes) -> bool:
    """Return whether a line may be a header."""
    lower = line.lower()
    return any(mark in lower for mark in _MARKS)


def _is_none(line: bytes) -> bool:
    """Return whether a line is empty, one of dashes, or a date."""
    return not line.strip() or bool(DASHES.fullmatch(line.rstrip(b"\r\n")) or _DATE.match(line))


def _is_odd(block: bytes) -> bool:
    """Return whether in a block there may be a line that is no plain text."""
    return not block.isascii() or b"\0" in block or len(block) >= files.MAX_LINE


def _is_text(line: bytes) -> bool:
    """Return whether a line is plain text, and not too long."""
    if b"\0" in line or len(line) >= files.MAX_LINE:
        return False
    try:
        return line.isascii() or bool(line.decode())
    except UnicodeDecodeError:
        return False
