"""The writer of ``steps.npy``: rows through a memory map, in a file NumPy opens at any moment.

A store into the hole of a full disk would end the training process with SIGBUS. So the space of
a chunk is reserved before it is mapped; where that cannot be, rows are appended by ``write``.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
import time
from collections.abc import Sequence
from typing import Final

from headway.record.faults import Faults, failed, remedy

HEADER_BYTES: Final = 4096
"""Magic, header and padding, so that the rows begin on a page."""
CHUNK_ROWS: Final = 16384
_DIGITS: Final = 16
_MADV_POPULATE_WRITE: Final = 23  # Linux 5.14: faults pages in for writing, and fails where a store would kill
_RETRY_ROWS: Final = 256
_NEVER: Final = 1 << 62


def field_names(phases: Sequence[str]) -> tuple[str, ...]:
    """Return the fields of a row, in order.

    Example:
        >>> field_names(("source",))
        ('step', 'start_ns', 'end_ns', 'source', 'seq')
    """
    return ("step", "start_ns", "end_ns", *phases, "seq")


def header(phases: Sequence[str], n_rows: int) -> bytes:
    r"""Return the first bytes of the file: an NPY header of version 1.0.

    The digits of the shape have a fixed width and place, so that one small write changes them.

    Raises:
        ValueError: The names do not fit into the header.

    Example:
        >>> header(("source",), 3)[:6], len(header(("source",), 3))
        (b'\x93NUMPY', 4096)
    """
    descr = ", ".join(f"('{name}', '<i8')" for name in field_names(phases))
    text = f"{{'descr': [{descr}], 'fortran_order': False, "
    # The digits begin on a multiple of 16 bytes of the file: a reader sees the old ones or the new.
    text += " " * (-(10 + len(text) + len("'shape': (")) % 16)
    text += f"'shape': ({n_rows:{_DIGITS}d},), }}"
    room = HEADER_BYTES - 10
    if len(text) >= room:
        raise ValueError(f"header of {len(text)} bytes; limit {room - 1}")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", room) + text.encode("ascii").ljust(room - 1) + b"\n"


class StepLog:
    """The file of one process's rows; one writer, which takes windows of it in turn.

    The writer asks `refill` for a window, stores rows into it (``seq`` last), and asks again when
    it is full. While there is no window it hands each row to `append`. Nothing here raises: what
    cannot be written is counted as lost ``rows``.

    Args:
        path: The file to make; it must not exist.
        phases: The names of the phases.
        faults: Where lost rows are counted.
        chunk_rows: How many rows are reserved and mapped at once.
        flush_every: Flush to the disk after so many rows.
        flush_s: Flush to the disk with the first row that ends so long after the last flush [s].
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        phases: Sequence[str],
        faults: Faults,
        *,
        chunk_rows: int = CHUNK_ROWS,
        flush_every: int | None = None,
        flush_s: float | None = None,
    ) -> None:
        self.path = os.path.abspath(path)  # noqa: PTH100 - the program may change its folder
        self.phases = tuple(phases)
        self.row_bytes = 8 * len(field_names(phases))
        self.n_rows = 0
        self._faults = faults
        self._chunk_rows = chunk_rows
        self._flushed_rows, self._flushed_at = 0, time.monotonic()
        self.flush_after(flush_every, flush_s)
        self._header = header(self.phases, 0)
        self._digits_at = self._header.index(b"'shape': (") + len(b"'shape': (")
        self._fd = -1
        self._map: mmap.mmap | None = None
        self._mapped_from = self._mapped_to = 0  # a byte of the file; a row
        self._rows_to_retry = 0 if hasattr(os, "posix_fallocate") else _NEVER
        self._closed = False
        self._pid = os.getpid()
        with contextlib.suppress(OSError):  # tried again with the first row, and counted then
            self._open()

    def flush_after(self, rows: int | None = None, seconds: float | None = None) -> None:
        """Flush to the disk every so often, from the next window on.

        Args:
            rows: After so many rows.
            seconds: With the first row that ends so long after the last flush [s].
        """
        self._flush_every, self._flush_s = rows, seconds
        self._window_rows = 1 if seconds is not None else max(1, rows or self._chunk_rows)

    # --- the writer's side -------------------------------------------------------------------

    def refill(self, n_rows: int) -> memoryview | None:
        """Return room for the rows from `n_rows` on, or None: then hand the next one to `append`.

        Args:
            n_rows: How many rows are whole. The window given before must have been released.
        """
        if self._closed:
            return None
        self.n_rows = n_rows
        self._flush_if_due()
        if self._map is not None and n_rows < self._mapped_to:
            return self._window(self._map)
        self._unmap()
        if self._rows_to_retry > 0:
            self._rows_to_retry -= 1
            return None
        try:
            return self._window(self._map_chunk())
        except (OSError, ValueError):  # ValueError: mmap's own check of the length
            self._rows_to_retry = _RETRY_ROWS
            self._unmap()
            self._cut(n_rows)
            return None

    def append(self, row: bytes) -> bool:
        """Write one row by `write`; return whether it is in the file, else it is counted as lost."""
        if self._closed:
            self._faults.note("rows", f"the log {self.path} is closed")
            return False
        try:
            _write(self._open(), row, self._offset(self.n_rows))
            self._write_shape(self.n_rows + 1)
        except OSError as error:
            self._cut(self.n_rows)
            self._faults.note("rows", failed("write", self.path, error), next_step=remedy(error))
            return False
        self.n_rows += 1
        return True

    def close(self) -> None:
        """Trim the file to its whole rows. The writer's window must have been released."""
        if self._closed:
            return
        self._closed = True
        if self._pid != os.getpid():
            self.abandon()
            return
        self.n_rows = self._count_whole()
        try:
            self._unmap()
            if self._fd >= 0:
                self._write_shape(self.n_rows)
                os.ftruncate(self._fd, self._offset(self.n_rows))
        except (BufferError, OSError) as error:  # BufferError: a window is still out, and cutting it off would kill
            self._faults.note("close", failed("close", self.path, error))
        self._close_fd()

    def abandon(self) -> None:
        """Let go of the file without writing to it: for the child of a fork."""
        self._closed = True
        with contextlib.suppress(BufferError):
            self._unmap()
        self._map = None
        self._close_fd()

    def view(self, first: int, last: int) -> memoryview:
        """Return the rows [first, last) as they are in the file: flat int64, row after row."""
        empty = memoryview(b"").cast("q")
        if last <= first:
            return empty
        try:
            with open(self.path, "rb") as file:  # noqa: PTH123
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            self._faults.note("read", failed("read", self.path, error))
            return empty
        return memoryview(mapped)[self._offset(first) : self._offset(last)].cast("q")

    # --- the file ----------------------------------------------------------------------------

    def _offset(self, row: int) -> int:
        return HEADER_BYTES + row * self.row_bytes

    def _open(self) -> int:
        if self._fd < 0:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            try:
                _write(fd, self._header, 0)
            except OSError:
                os.close(fd)
                os.unlink(self.path)  # noqa: PTH108
                raise
            self._fd = fd
        return self._fd

    def _close_fd(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = -1

    def _write_shape(self, n_rows: int) -> None:
        _write(self._fd, b"%*d" % (_DIGITS, n_rows), self._digits_at)

    def _cut(self, n_rows: int) -> None:
        """Take back what a failed reserve or write left after the whole rows."""
        with contextlib.suppress(OSError):
            if self._fd >= 0:
                os.ftruncate(self._fd, self._offset(n_rows))

    # --- the map -----------------------------------------------------------------------------

    def _map_chunk(self) -> mmap.mmap:
        fd = self._open()
        start = self._offset(self.n_rows)
        end = self._offset(self.n_rows + self._chunk_rows)
        os.posix_fallocate(fd, start, end - start)
        self._mapped_from = start - start % mmap.ALLOCATIONGRANULARITY
        self._map = mmap.mmap(fd, end - self._mapped_from, offset=self._mapped_from)
        _fault_in(self._map)
        self._write_shape(self.n_rows + self._chunk_rows)
        self._mapped_to = self.n_rows + self._chunk_rows
        return self._map

    def _window(self, mapped: mmap.mmap) -> memoryview:
        last = min(self.n_rows + self._window_rows, self._mapped_to)
        with memoryview(mapped) as whole:
            return whole[self._offset(self.n_rows) - self._mapped_from : self._offset(last) - self._mapped_from]

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None

    def _count_whole(self) -> int:
        """Return how many rows are whole: the writer may have stored some since it last asked."""
        n_rows = self.n_rows
        if self._map is not None:
            while n_rows < self._mapped_to:
                at = self._offset(n_rows + 1) - self._mapped_from - 8
                if struct.unpack_from("<q", self._map, at)[0] != n_rows + 1:
                    break
                n_rows += 1
        return n_rows

    def _flush_if_due(self) -> None:
        by_rows = self._flush_every is not None and self.n_rows - self._flushed_rows >= self._flush_every
        by_time = self._flush_s is not None and time.monotonic() - self._flushed_at >= self._flush_s
        if not (by_rows or by_time) or self._fd < 0:
            return
        self._flushed_rows, self._flushed_at = self.n_rows, time.monotonic()
        try:
            if self._map is not None:
                self._map.flush()
            os.fsync(self._fd)
        except OSError as error:
            self._faults.note("flush", failed("flush", self.path, error))


def _write(fd: int, data: bytes, at: int) -> None:
    """Write all of it, or raise.

    Raises:
        OSError: The disk is full, say.
    """
    written = os.pwrite(fd, data, at)
    if written != len(data):
        raise OSError(errno.ENOSPC, f"only {written} of {len(data)} bytes were written")


def _fault_in(mapped: mmap.mmap) -> None:
    """Touch every page for writing in one call, which fails where a later store would be SIGBUS.

    Raises:
        OSError: A page cannot be written.
    """
    try:
        mapped.madvise(_MADV_POPULATE_WRITE)
    except OSError as error:
        if error.errno != errno.EINVAL:  # then the kernel is older than the call
            raise
