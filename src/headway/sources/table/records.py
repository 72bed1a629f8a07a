"""Records of a delimited text: comma, tab, semicolon or bar; quoted fields may hold line breaks."""

from __future__ import annotations

import csv
import io
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any, Final

from headway.sources import files
from headway.sources.table.mapping import Mapping
from headway.sources.text import Complaints, clean

DELIMITERS: Final = (",", "\t", ";", "|")
_MANY_LINES: Final = 100
"""A record of more lines may be one whose quote was never closed."""
_BOM: Final = "\ufeff"
_BLOCK: Final = 1 << 17
_AT_ONCE: Final = 256
"""Records of several lines are taken so many at once at most."""

Chunk = tuple[Sequence[int], list[list[str]]]
"""The line or number of each of some records, and their fields."""
Note = tuple[int, str, object, str, int]
"""A complaint that is not made yet: the line that it comes with, and what `Complaints.add` is told."""


def fields(line: str, delimiter: str) -> tuple[str, ...]:
    r"""Return the names in a header line, nothing where it is none.

    Example:
        >>> fields('\ufeffjob_id, "user"\r\n', ",")
        ('job_id', 'user')
    """
    try:
        row = next(csv.reader([line.strip("\r\n" + _BOM)], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:
        return ()
    return tuple(name.strip() for name in row)


def find_header(head: bytes, mappings: Sequence[Mapping]) -> tuple[Mapping, str, tuple[str, ...]] | None:
    """Return the first mapping whose columns are all named in a line, its delimiter and the names.

    Args:
        head: The beginning of a file.
        mappings: In the order they are asked.
    """
    found: dict[str, dict[tuple[str, ...], frozenset[str]]] = {}
    for mapping in mappings:
        if mapping.header:
            return mapping, mapping.delimiter or ",", mapping.header
        for delimiter in (mapping.delimiter,) if mapping.delimiter else DELIMITERS:
            if delimiter not in found:
                found[delimiter] = _candidates(head, delimiter)
            for names, known in found[delimiter].items():
                if mapping.fits(known):
                    return mapping, delimiter, names
    return None


def _candidates(head: bytes, delimiter: str) -> dict[tuple[str, ...], frozenset[str]]:
    """Return what the lines of a text could name, each with its names as a set."""
    lines = [line for line in head.decode("utf-8", "replace").split("\n") if delimiter in line]
    names = dict.fromkeys(fields(line, delimiter) for line in lines)
    return {one: frozenset(one) for one in names}


class Notes:
    """Complaints of what is read ahead, which are made where the rows before them have been looked at.

    Args:
        bad: Where complaints go.
    """

    def __init__(self, bad: Complaints) -> None:
        self._bad = bad
        self._left: dict[str, int] = {}

    def make(self, note: Note) -> None:
        """Make a complaint."""
        _, what, place, reason, count = note
        self._left[what] = self._left.get(what, self._bad.shown) - 1
        self._bad.add(what, place, reason, count)

    def late(self, note: Note) -> bool:
        """Return whether it only counts: enough of its kind have been made, and when it is made changes nothing."""
        return self._left.get(note[1], 1) <= 0


class Records:
    """The records of a file, with the number of the line where each begins.

    Attributes:
        torn: Why the file cannot be read to its end; empty where it can.
        whole: Whether its last line ends as the others do.
    """

    def __init__(self, path: Path, delimiter: str, bad: Complaints) -> None:
        self._path = path
        self._delimiter = delimiter
        self._notes = Notes(bad)
        self._ahead: list[Note] = []
        self._n_lines = 0
        self.torn = ""
        self.whole = True

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        """Yield line number and fields; what is no record is a complaint."""
        for numbers, rows in self.chunks():
            yield from zip(numbers, rows, strict=True)

    def chunks(self) -> Iterator[Chunk]:
        """Yield records as `__iter__` does, many at a time."""
        reader = csv.reader(chain.from_iterable(self._blocks()), delimiter=self._delimiter)
        last = 0
        while True:
            rows, error = self._taken(reader)
            if not rows and error is None:
                return
            firsts, lasts = _lines(rows, last, reader.line_num)
            last = lasts[-1] if rows else last
            if firsts is not lasts:
                self._ahead += _of_many(firsts, lasts)
            yield from self._noted(firsts, lasts, rows, reader.line_num)
            if error is not None:
                first, last = last + 1, reader.line_num
                span = f", to line {last}" if last > first else ""
                self._notes.make((last, "no record, left out", first, f"{error}{span}", last - first + 1))

    def _taken(self, reader: Any) -> tuple[list[list[str]], csv.Error | None]:
        """Return the records that begin in one block, up to what is none."""
        rows: list[list[str]] = []
        try:
            while True:
                n_before = len(rows)
                rows.extend(islice(reader, max(1, min(self._n_lines - reader.line_num, _AT_ONCE))))
                if len(rows) == n_before or reader.line_num >= self._n_lines:
                    return rows, None
        except csv.Error as error:  # what came before it is in `rows`
            return rows, error

    def _noted(self, firsts: Sequence[int], lasts: Sequence[int], rows: list[list[str]], upto: int) -> Iterator[Chunk]:
        """Yield records, and make the complaints of the lines up to one where they belong between them."""
        now = sorted((note for note in self._ahead if note[0] <= upto), key=lambda note: note[0])
        self._ahead = [note for note in self._ahead if note[0] > upto]
        begin = 0
        for note in now:
            if not self._notes.late(note) and (end := bisect_left(lasts, note[0])) > begin:
                yield _filled(firsts[begin:end], rows[begin:end])
                begin = end
            self._notes.make(note)
        yield _filled(firsts[begin:], rows[begin:])

    def _blocks(self) -> Iterator[Iterable[str]]:
        """Yield the lines of the file, a block at a time."""
        rest = b""
        try:
            with files.plain(self._path) as file:
                while data := file.read1(_BLOCK):
                    rest += data
                    if len(rest) >= _BLOCK and (end := rest.rfind(b"\n") + 1):
                        yield self._block(rest[:end])
                        rest = rest[end:]
                    elif len(rest) > 2 * files.MAX_LINE:
                        rest = rest[: 2 * files.MAX_LINE]  # of a line too long already
        except files.TornError as error:
            rest = rest[: rest.rfind(b"\n") + 1]
            torn = clean(str(error))
            if rest:
                yield self._block(rest)
            self.torn = f"the file is torn after line {self._n_lines} and read up to there: {torn}"
            return
        self.whole = not rest or rest.endswith(b"\n")
        if rest:
            yield self._block(rest)

    def _block(self, data: bytes) -> Iterable[str]:
        before = self._n_lines
        self._n_lines += data.count(b"\n") + (not data.endswith(b"\n"))
        text = None
        if len(data) < files.MAX_LINE:
            with suppress(UnicodeDecodeError):
                text = data.decode()
        if text is None:
            return [self._line(number, line) for number, line in enumerate(io.BytesIO(data), before + 1)]
        return io.StringIO(text if before else text.lstrip(_BOM), "\n")

    def _line(self, number: int, line: bytes) -> str:
        """Return a line of a block in which something is odd."""
        if len(line) > files.MAX_LINE - (not line.endswith(b"\n")):
            self._ahead.append((number, "too long and left out", number, "over 1 MiB", 1))
            return "\n"
        try:
            text = line.decode()
        except UnicodeDecodeError:
            self._ahead.append((number, "not all UTF-8, its bad bytes are shown as �", number, "", 1))
            text = line.decode("utf-8", "replace")
        return text.lstrip(_BOM) if number == 1 else text


def _of_many(firsts: Sequence[int], lasts: Sequence[int]) -> Iterator[Note]:
    what = "one record of many lines, a quote may be missing"
    for first, last in zip(firsts, lasts, strict=True):
        if last - first > _MANY_LINES:
            yield last, what, first, f"to line {last}", 1


def _lines(rows: Sequence[Sequence[str]], before: int, upto: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return where records begin and end, that come after one line and end at another, or before it."""
    if upto - before == len(rows):
        lines = range(before + 1, upto + 1)
        return lines, lines
    spans = [1 + sum(cell.count("\n") for cell in row) for row in rows]
    lasts = [min(last, upto) for last in accumulate(spans, initial=before)]
    return [last + 1 for last in lasts[:-1]], lasts[1:]


def _filled(lines: Sequence[int], rows: list[list[str]]) -> Chunk:
    """Return records without those of empty lines."""
    if all(rows):
        return lines, rows
    return [line for line, row in zip(lines, rows, strict=True) if row], [row for row in rows if row]
