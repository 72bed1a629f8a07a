"""The rows of a ``steps.npy``: whole ones only, at any moment of its life.

Row *i* is whole if and only if its field ``seq``, written last, is *i + 1*. The file is read and
not mapped: its writer trims it, and a store or a load beyond the end of a map ends a process.
"""

from __future__ import annotations

import os
import tokenize
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
from numpy.lib import format as npy_format

from headway.sources.columns import Columns
from headway.sources.files import reason, regular
from headway.sources.text import Complaints, clean

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

NAME: Final = "steps.npy"
_FIXED: Final = ("step", "start_ns", "end_ns")
_IMPOSSIBLE: Final = "left out: it ends before it starts, or a number is out of range"
_FIRST, _MOST = 64, 1 << 16  # rows of the first and of the largest read
_UNREADABLE: Final = (ValueError, TypeError, LookupError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError)


@dataclass(frozen=True)
class Header:
    """What the header of the file says.

    Attributes:
        dtype: The structure of a row.
        offset: Where the first row is [bytes].
        n_rows: How many rows it names; reserved ones are among them.
        phases: The names of the phases, in their order.
    """

    dtype: np.dtype[Any]
    offset: int
    n_rows: int
    phases: tuple[str, ...]


def read_header(file: BinaryIO) -> Header:
    """Return the header of an open ``steps.npy``.

    Raises:
        ValueError: It is no NumPy file, its header is torn, or it holds something else than rows.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            version = npy_format.read_magic(file)
            # Version 3 differs from 2 only in that names are UTF-8.
            read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
            shape, _, dtype = read(file)
    except _UNREADABLE as error:
        raise ValueError(f"its header is torn or foreign ({clean(str(error), 80)})") from error
    names = tuple(dtype.names or ())
    if dtype != np.dtype([(name, "<i8") for name in names]) or not {*_FIXED, "seq"} <= {*names} or len(shape) != 1:
        raise ValueError(f"it holds {clean(str(dtype), 80)} and not rows of step, start_ns, end_ns, phases, seq")
    phases = tuple(name for name in names if name not in {*_FIXED, "seq"})
    return Header(dtype, file.tell(), shape[0], phases)


class StepFile:
    """A ``steps.npy`` that is read as it grows.

    Args:
        path: Where it is.
        label: What it is called in messages.
        columns: What its rows are put into.
        follow: Whether it may be a link: the one that the reader gave may.

    Attributes:
        path: Where it is.
        n_read: Rows that are done with: up to the last whole one, torn ones before it included.
        bytes_read: Everything that was read of it [bytes].
    """

    def __init__(self, path: Path, label: str, columns: Columns, *, follow: bool = True) -> None:
        self.path = path
        self._follow = follow
        self.n_read = 0
        self.bytes_read = 0
        self._label = label
        self._columns = columns
        self._header: Header | None = None
        self._phases: tuple[str, ...] = ()
        self._size = 0
        self._n_whole = 0
        self._torn = Complaints(label, "record")
        self._tail: tuple[int, int] | None = None
        self._trouble = ""
        self._is_closed = False

    def poll(self, *, through: bool) -> None:
        """Read what is new.

        Args:
            through: Look to the end of the file for whole rows; else stop where the next is not yet
                whole, which is where its writer is.
        """
        try:
            with regular(self.path, follow=self._follow) as fd:
                self._open(fd)
                self._read_new(fd, through=through)
            self._trouble, self._is_closed = "", False
        except FileNotFoundError:
            self._trouble = "it is gone" if self._header else ""
        except OSError as error:
            self._trouble, self._is_closed = reason(error), True
        except ValueError as error:
            self._trouble = str(error)

    def warnings(self, *, final: bool) -> list[str]:
        """Return what could not be read, a sentence each.

        Args:
            final: Say also how the file ends; else its end is still being written.
        """
        kept = f"; {self._n_whole} whole records kept"
        found = [f"{sentence}{kept}" for sentence in self._torn.sentences()]
        if self._trouble and (final or self._is_closed or self._header or self._size):
            found.append(f"{self._label}: it cannot be read, {self._trouble}{kept}")
        elif final and self._header:
            found += [f"{self._label}: {cut}{kept}" for cut in self._end(self._header)]
        return found

    def is_another(self) -> bool:
        """Return whether rows that were read are no longer there: the file was replaced."""
        try:
            size = self.path.stat().st_size
        except OSError:
            return False
        return self._header is not None and size < self._header.offset + self.n_read * self._header.dtype.itemsize

    def _end(self, header: Header) -> list[str]:
        found = [f"record {self._tail[0]} is torn (sequence {self._tail[1]})"] if self._tail else []
        n, rest = divmod(self._size - header.offset, header.dtype.itemsize)
        if n < header.n_rows:
            found.append(f"it is cut, its header names {header.n_rows} records and {max(n, 0)} are there")
        elif rest:
            found.append(f"it is cut inside record {n}")
        return found

    def _open(self, fd: int) -> None:
        self._size = os.fstat(fd).st_size
        if self._header is not None:
            return
        if not self._size:
            raise ValueError("it is empty")
        with os.fdopen(fd, "rb", closefd=False) as file:
            self._header = read_header(file)
        self.bytes_read += self._header.offset
        self._phases = tuple(clean(name) for name in self._header.phases)
        self._columns.add_phases(self._phases)

    def _read_new(self, fd: int, *, through: bool) -> None:
        header = self._head
        n_there = (self._size - header.offset) // header.dtype.itemsize
        if through:
            self._columns.reserve(self._likely(fd, n_there) - self.n_read)
        size, at = (_MOST if through else _FIRST), self.n_read
        while at < n_there:
            n = min(size, n_there - at)
            self._read_block(fd, at, n)
            at += n
            if self.n_read < at and not through:
                return
            size = min(8 * size, _MOST)

    @property
    def _head(self) -> Header:
        assert self._header is not None  # noqa: S101  set by `_open`, which comes before every read
        return self._header

    def _likely(self, fd: int, n_there: int) -> int:
        """Return about how many rows are whole, by halving: only to make room for them."""
        low, high = self.n_read, max(n_there, self.n_read)
        while low < high:
            middle = (low + high) // 2
            if (self._read(fd, middle, 1)["seq"] == middle + 1).any():
                low = middle + 1
            else:
                high = middle
        return low

    def _read(self, fd: int, first: int, n: int) -> NDArray[Any]:
        dtype = self._head.dtype
        data = os.pread(fd, n * dtype.itemsize, self._head.offset + first * dtype.itemsize)
        self.bytes_read += len(data)
        return np.frombuffer(data, dtype, len(data) // dtype.itemsize)

    def _read_block(self, fd: int, first: int, n: int) -> None:
        rows = self._read(fd, first, n)
        whole = rows["seq"] == np.arange(first + 1, first + len(rows) + 1)
        n_done = int(whole.nonzero()[0][-1]) + 1 if whole.any() else 0
        if n_done:
            # A row that is whole in this copy may have been copied while it was written: once more.
            self._keep(first, self._read(fd, first, n_done), whole[:n_done])
            self._tail = None
        self._note_tail(first + n_done, rows[n_done:])

    def _note_tail(self, first: int, rows: NDArray[Any]) -> None:
        """Note the first row after the whole ones that is not merely unwritten."""
        if self._tail is not None or not len(rows):
            return
        written = np.logical_or.reduce(rows.view(np.int64).reshape(len(rows), -1), axis=1)
        if written.any():
            index = int(written.argmax())
            self._tail = first + index, int(rows["seq"][index])

    def _keep(self, first: int, block: NDArray[Any], whole: NDArray[np.bool_]) -> None:
        """Add the whole rows of a block that ends with one, and note the others up to there."""
        if first > self.n_read:
            self._torn.add("torn", self.n_read, "sequence 0", first - self.n_read)
        whole = whole[: len(block)]
        for index in np.flatnonzero(~whole):
            self._torn.add("torn", first + int(index), f"sequence {block['seq'][index]}")
        rows = block if whole.all() else block[whole]
        fixed = {"step": rows["step"], "start": rows["start_ns"], "end": rows["end_ns"]}
        waits = {phase: rows[name] for phase, name in zip(self._phases, self._head.phases, strict=True)}
        impossible = self._columns.extend(len(rows), fixed, waits)
        for index in impossible:
            self._torn.add(_IMPOSSIBLE, first + int(whole.nonzero()[0][index]))
        self._n_whole += len(rows) - len(impossible)
        self.n_read = first + len(block)
