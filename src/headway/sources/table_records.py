"""Records of a delimited text: comma, tab, semicolon or bar; quoted fields may hold line breaks."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from headway.sources import files
from headway.sources.table_mapping import Mapping
from headway.sources.text import Complaints, clean

DELIMITERS: Final = (",", "\t", ";", "|")
_MANY_LINES: Final = 100
"""A record of more lines may be one whose quote was never closed."""
_BOM: Final = "\ufeff"


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


class Records:
    """The records of a file, with the number of the line where each begins.

    Attributes:
        torn: Why the file cannot be read to its end; empty where it can.
        whole: Whether its last line ends as the others do.
    """

    def __init__(self, path: Path, delimiter: str, bad: Complaints) -> None:
        self._path = path
        self._delimiter = delimiter
        self._bad = bad
        self.torn = ""
        self.whole = True

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        """Yield line number and fields; what is no record is a complaint."""
        reader = csv.reader(self._lines(), delimiter=self._delimiter)
        last = 0
        while True:
            try:
                for row in reader:
                    first, last = last + 1, reader.line_num
                    if last - first > _MANY_LINES:
                        self._bad.add("one record of many lines, a quote may be missing", first, f"to line {last}")
                    if row:
                        yield first, row
            except csv.Error as error:
                first, last = last + 1, reader.line_num
                span = f", to line {last}" if last > first else ""
                self._bad.add("no record, left out", first, f"{error}{span}", last - first + 1)
            else:
                return

    def _lines(self) -> Iterator[str]:
        line = b"\n"
        number = 0
        try:
            for number, line in files.lines(self._path):
                if len(line) >= files.MAX_LINE and not line.endswith(b"\n"):
                    self._bad.add("too long and left out", number, "over 1 MiB")
                    yield "\n"
                    continue
                try:
                    text = line.decode()
                except UnicodeDecodeError:
                    self._bad.add("not all UTF-8, its bad bytes are shown as �", number)
                    text = line.decode("utf-8", "replace")
                yield text.lstrip(_BOM) if number == 1 else text
        except files.TornError as error:
            self.torn = f"the file is torn after line {number} and read up to there: {clean(str(error))}"
        self.whole = line.endswith(b"\n")
