"""Files of TFRecords: length, checksum of the length, data, checksum of the data, one after the other.

The checksum is CRC-32C (RFC 3720, appendix B.4), rotated and shifted by a constant, so that a
record of records is no checksum of itself. It is linear: many records are summed side by side.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headway.sources import files
from headway.sources.text import Complaints

if TYPE_CHECKING:
    from numpy.typing import NDArray

LARGEST: Final = 64 << 20
"""A longer record is passed over [bytes]."""
HEADER: Final = struct.Struct("<QI")
_CHUNK: Final = 1 << 22
_SHORT: Final = 64
_BLOCK: Final = 512


def _table() -> NDArray[np.uint32]:
    """Return what each byte does to the sum: the reversed polynomial of Castagnoli, 0x82F63B78."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    return table


_TABLE: Final = _table()
_PLAIN: Final = _TABLE.tolist()


def checksum(data: bytes) -> int:
    """Return the masked CRC-32C of some bytes, one by one.

    Example:
        >>> hex(checksum(b"123456789"))
        '0xc78ab0e5'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _PLAIN[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return _masked(crc ^ 0xFFFFFFFF)


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _moved() -> list[list[int]]:
    """Return what `_BLOCK` zero bytes do to a sum, for each of its four bytes."""
    state = np.concatenate([np.arange(256, dtype=np.uint32) << np.uint32(8 * place) for place in range(4)])
    for _ in range(_BLOCK):
        state = _TABLE[state & 0xFF] ^ (state >> np.uint32(8))
    return [part.tolist() for part in np.split(state, 4)]


_MOVED: Final = _moved()


def checksums(data: NDArray[np.uint8], start: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return the masked CRC-32C of many stretches of data, ``(n,)``.

    Args:
        data: The bytes, ``(m,)``.
        start: Where each begins, ``(n,)``.
        length: How long each is, ``(n,)`` [bytes].

    Example:
        >>> data = np.frombuffer(b"..123456789", np.uint8)
        >>> checksums(data, np.array([2]), np.array([9])).tolist() == [checksum(b"123456789")]
        True
    """
    sums = np.empty(len(start), np.uint64)
    short = (length >= 4) & (length <= _SHORT)
    sums[short] = _raw(data, start[short], start[short], start[short] + length[short], _SHORT)
    for number in np.flatnonzero(length > _SHORT).tolist():
        sums[number] = _long(data, int(start[number]), int(length[number]))
    sums ^= np.uint64(0xFFFFFFFF)
    sums = ((sums >> np.uint64(15) | sums << np.uint64(17)) & np.uint64(0xFFFFFFFF)) + np.uint64(0xA282EAD8)
    for number in np.flatnonzero(length < 4).tolist():
        first = int(start[number])
        sums[number] = checksum(data[first : first + int(length[number])].tobytes())
    return (sums & np.uint64(0xFFFFFFFF)).astype(np.uint32)


def _raw(
    data: NDArray[np.uint8],
    first: NDArray[np.int64],
    start: NDArray[np.int64],
    end: NDArray[np.int64],
    width: int,
) -> NDArray[np.uint32]:
    """Return the sums of stretches no longer than a width, that begin with 0.

    Leading zeros leave such a sum 0, so that all can have one width. What a record's sum truly
    begins with is the same as its first four bytes inverted.

    Args:
        data: The bytes.
        first: Where the record of each begins.
        start: Where each begins.
        end: Where each ends.
        width: So many bytes are summed.
    """
    crc = np.zeros(len(start), np.uint32)
    for back in range(width, 0, -1):
        place = end - back
        byte = data[np.maximum(place, 0)].astype(np.uint32)
        byte ^= np.where(place < first + 4, np.uint32(0xFF), np.uint32(0))
        byte[place < start] = 0
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> np.uint32(8))
    return crc


def _long(data: NDArray[np.uint8], first: int, length: int) -> int:
    """Return the sum of one stretch, of blocks side by side."""
    end = np.arange(first + length, first, -_BLOCK, dtype=np.int64)[::-1]
    start = np.maximum(end - _BLOCK, first)
    crc = 0
    one, two, three, four = _MOVED
    for block in _raw(data, np.full(len(end), first), start, end, _BLOCK).tolist():
        crc = block ^ one[crc & 255] ^ two[crc >> 8 & 255] ^ three[crc >> 16 & 255] ^ four[crc >> 24]
    return crc


def records(path: Path, bad: Complaints) -> Iterator[tuple[int, bytes]]:
    """Yield the number of each whole record, from 1, and its data.

    A record whose checksum does not fit is left out; where that of a length does not, nothing says where the next
    begins, and what follows is left out. Each is a complaint.

    Raises:
        OSError: It cannot be read.
    """
    with files.plain(path) as file:
        yield from _Reader(file, bad).records()


class _Reader:
    """A file of records, a chunk at a time."""

    def __init__(self, file: io.BufferedReader[Any], bad: Complaints) -> None:
        self._file = file
        self._bad = bad
        self._data = b""
        self._number = 0

    def records(self) -> Iterator[tuple[int, bytes]]:
        while True:
            start, length = self._walk()
            good = self._headers(start)
            if good:
                yield from self._checked(start[:good], length[:good])
            if good < len(start):
                self._bad.add("of a length whose checksum does not fit; nothing after it is read", self._number + 1)
                return
            used = int(start[-1] + length[-1]) + 4 if good else 0
            self._data = self._data[used:]
            if not self._more():
                return

    def _walk(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where the data of each record begins that is whole in the chunk, and how long it is."""
        data, at, size = self._data, 0, len(self._data)
        starts, lengths = [], []
        unpack = HEADER.unpack_from
        while at + 12 <= size:
            length = unpack(data, at)[0]
            if at + 16 + length > size:
                break
            starts.append(at + 12)
            lengths.append(length)
            at += 16 + length
        return np.array(starts, np.int64), np.array(lengths, np.int64)

    def _headers(self, start: NDArray[np.int64]) -> int:
        """Return how many records come before the first whose length is damaged."""
        data = np.frombuffer(self._data, np.uint8)
        fits = checksums(data, start - 12, np.full(len(start), 8)) == _words(data, start - 4)
        return len(start) if fits.all() else int(np.argmin(fits))

    def _checked(self, start: NDArray[np.int64], length: NDArray[np.int64]) -> Iterator[tuple[int, bytes]]:
        data = np.frombuffer(self._data, np.uint8)
        fits = checksums(data, start, length) == _words(data, start + length)
        for first, size, good in zip(start.tolist(), length.tolist(), fits.tolist(), strict=True):
            self._number += 1
            if good:
                yield self._number, self._data[first : first + size]
            else:
                self._bad.add("of a checksum that does not fit, left out", self._number)

    def _more(self) -> bool:
        """Read on; return whether there is more to come out of it."""
        missing = 0
        if len(self._data) >= 12:
            length, said = HEADER.unpack_from(self._data)
            if checksum(self._data[:8]) != said:
                self._bad.add("of a length whose checksum does not fit; nothing after it is read", self._number + 1)
                return False
            if length > LARGEST:
                return self._pass(16 + length - len(self._data))
            missing = 16 + length - len(self._data)
        piece = self._fill(max(_CHUNK, missing))
        if not piece and self._data:
            self._bad.add("cut off, left out", self._number + 1)
        self._data += piece
        return bool(piece)

    def _fill(self, size: int) -> bytes:
        """Return the next bytes, fewer only at the end, or where a gzip breaks."""
        pieces: list[bytes] = []
        try:
            while size > 0 and (piece := self._file.read1(size)):
                pieces.append(piece)
                size -= len(piece)
        except files.TornError:
            if not pieces:
                self._bad.add("where the gzip breaks, and the rest is left out", self._number + 1)
        return b"".join(pieces)

    def _pass(self, left: int) -> bool:
        """Pass over a record too long to hold, of which so many bytes are still to be read."""
        self._number += 1
        self._data = b""
        while left > 0 and (piece := self._fill(min(left, _CHUNK))):
            left -= len(piece)
        why = "cut off, left out" if left > 0 else f"longer than {LARGEST >> 20} MiB, passed over"
        self._bad.add(why, self._number)
        return left <= 0


def _words(data: NDArray[np.uint8], at: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return the 32-bit words at some places, little end first."""
    word = np.zeros(len(at), np.uint32)
    for byte in range(4):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word
