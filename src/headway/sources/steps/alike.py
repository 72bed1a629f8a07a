"""Lines of a log that are alike but for their digits: what they say is found out once, their numbers are read at once.

Of lines that do not differ in anything but digits, whatever treats all digits the same finds the same in the same
places. A source looks at the first line of each shape as it looks at any line; the numbers of the others are taken from
these places. What depends on more than the shape, or has more digits than a float, is read line by line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

Spans = tuple[tuple[int, int], ...]
"""Where the numbers of a line are: where each begins and ends [bytes]; an empty one: it is not there."""
_ALIKE: Final = bytes.maketrans(b"123456789", b"000000000")
_NUMBER: Final = re.compile(rb"(0{1,15})(?:[.,](0{0,15}))?")
_DIGITS: Final = 15
"""A number of no more digits is exactly a float."""
_LONGEST: Final = 800
"""Longer lines are read by themselves [bytes]."""
_MOST: Final = 1 << 12
"""So many shapes are remembered; then all are forgotten."""
_MANY: Final = 64
"""Of more lines of shapes that are not known those that say nothing are found together."""
_ALONE: Final = 0
_SILENT: Final = 1
_FIRST: Final = 2
_TENS: Final = 10.0 ** np.arange(2 * _DIGITS)


@dataclass(eq=False)
class Found:
    """What is in a block of lines.

    Attributes:
        first, last: The numbers of its first and last line.
        numbers: Those of the lines whose numbers were read, ``(n,)``.
        values: Their numbers, each ``(n,)``; NaN where a line has none.
        others: The numbers of the lines that must be read by themselves, ``(m,)``.
    """

    first: int
    last: int
    numbers: Ints
    values: list[Floats]
    others: Ints
    _block: bytes
    _starts: Ints

    def line(self, number: int) -> bytes:
        """Return a line, with its newline."""
        place = number - self.first
        return self._block[int(self._starts[place]) : int(self._starts[place + 1])]

    def alone(self) -> Iterator[tuple[int, int]]:
        """Yield the numbers of the lines that must be read by themselves, each after how many of `numbers`."""
        places = np.searchsorted(self.numbers, self.others)
        yield from zip(places.tolist(), self.others.tolist(), strict=True)


class Alike:
    r"""Shapes of lines, and what is known of each.

    Example:
        >>> alike = Alike(lambda line: (re.match(rb"step (\d+)", line).span(1),))
        >>> found = alike.split(7, b"step 8\nstep 9\nstep 10\n")
        >>> found.numbers.tolist(), found.values[0].tolist()
        ([7, 8, 9], [8.0, 9.0, 10.0])
    """

    def __init__(self, learn: Callable[[bytes], Spans | None], marks: Sequence[bytes] = ()) -> None:
        self._learn = learn
        self._marks = marks
        self._known: dict[bytes, int] = {}
        self._fields: list[list[tuple[int, int, int, bool]]] = []

    def split(self, first: int, block: bytes) -> Found:
        """Return what is in a block of whole lines, of which the first has this number."""
        shapes = block.translate(_ALIKE).split(b"\n")
        if not shapes[-1]:
            shapes.pop()
        data = np.frombuffer(block, np.uint8)
        starts = np.zeros(len(shapes) + 1, np.int64)
        newlines = np.flatnonzero(data == ord("\n"))
        starts[1 : len(newlines) + 1] = newlines + 1
        starts[-1] = len(block)
        if len(self._known) > _MOST:
            self._known.clear()
            self._fields.clear()
        codes = np.fromiter(map(self._known.get, shapes, repeat(-1)), np.int64, len(shapes))
        unknown = np.flatnonzero(codes < 0)
        if self._marks and len(unknown) > _MANY:
            codes[unknown[~self._marked(block, starts)[unknown]]] = _SILENT
            unknown = unknown[codes[unknown] < 0]
        for place in unknown.tolist():
            codes[place] = self._code(shapes[place], block[int(starts[place]) : int(starts[place + 1])])
        chosen = np.flatnonzero(codes >= _FIRST)
        values = self._values(data, starts[chosen], codes[chosen] - _FIRST) if len(chosen) else []
        others = np.flatnonzero(codes == _ALONE)
        return Found(first, first + len(shapes) - 1, first + chosen, values, first + others, block, starts)

    def _marked(self, block: bytes, starts: Ints) -> NDArray[np.bool_]:
        """Return which lines hold a mark: quicker for a block than line by line, where most hold none."""
        places = []
        for mark in self._marks:
            place = block.find(mark)
            while place >= 0:
                places.append(place)
                place = block.find(mark, place + len(mark))
        marked = np.zeros(len(starts) - 1, bool)
        marked[np.searchsorted(starts, np.array(places, np.int64), "right") - 1] = True
        return marked

    def _code(self, shape: bytes, line: bytes) -> int:
        """Return what is known of the shape of a line, and remember it."""
        if (code := self._known.get(shape)) is None:
            if len(line) > _LONGEST:
                return _ALONE
            spans = self._learn(line)
            code = _ALONE if spans is None else _SILENT
            if spans and (fields := _fields(shape, spans)):
                code = _FIRST + len(self._fields)
                self._fields.append(fields)
            elif spans:
                code = _ALONE
            self._known[shape] = code
        return code

    def _values(self, data: NDArray[np.uint8], starts: Ints, codes: Ints) -> list[Floats]:
        """Return the numbers of lines."""
        values = []
        used, codes = np.unique(codes, return_inverse=True)
        for fields in np.array([self._fields[code] for code in used], np.int64).transpose(1, 2, 0):
            is_there = fields[3] != 0
            if not is_there.any():
                values.append(np.full(len(codes), np.nan))
                continue
            ends, n_fraction = starts + (fields[0] + fields[1])[codes], fields[2]
            value = _read(data, ends, fields[1], codes)
            if n_fraction.any():
                tens = _TENS[n_fraction][codes]
                value = (value * tens + _read(data, ends + (1 + n_fraction)[codes], n_fraction, codes)) / tens
            values.append(value if is_there.all() else np.where(is_there[codes], value, np.nan))
        return values


def _fields(shape: bytes, spans: Spans) -> list[tuple[int, int, int, bool]] | None:
    """Return of each number where it begins, its digits before and behind the point, and if it is there at all.

    None if one is no such number.
    """
    fields = []
    for begin, end in spans:
        found = _NUMBER.fullmatch(shape, begin, end) if begin < end else None
        if begin < end and (found is None or len(found[1]) + len(found[2] or b"") > _DIGITS):
            return None
        fields.append((begin, len(found[1]), len(found[2] or b""), True) if found else (0, 0, 0, False))
    return fields


def _read(data: NDArray[np.uint8], ends: Ints, lengths: Ints, codes: Ints) -> Floats:
    """Return the numbers that end before places, of so many digits as those of their shape are long."""
    value = np.zeros(len(ends))
    least = int(lengths.min())
    for place in range(int(lengths.max())):
        digits = data.take(ends - (place + 1), mode="clip") - np.uint8(ord("0"))
        value += _TENS[place] * (digits if place < least else np.where((lengths > place)[codes], digits, 0))
    return value
