"""Files of TFRecords: length, checksum of the length, data, checksum of the data, one after the other.

The checksum is CRC-32C (RFC 3720, appendix B.4), rotated and shifted by a constant, so that a
record of records is no checksum of itself. It is linear: many records are summed side by side.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
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
_CHUNK: Final = 1 << 20
_BLOCK: Final = 512
_START: Final = 0xFFFFFFFF


@dataclass(frozen=True, eq=False)
class Stretch:
    """Some whole records that lie one after the other, each of a checksum that fits.

    Attributes:
        first: The number of the first, from 1.
        data: The bytes they lie in.
        start: Where the data of each begins, ``(n,)`` int64.
        length: How long it is, ``(n,)`` int64 [bytes].
    """

    first: int
    data: bytes
    start: NDArray[np.int64]
    length: NDArray[np.int64]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.start)


def _table() -> NDArray[np.uint32]:
    """Return what each byte does to the sum: the reversed polynomial of Castagnoli, 0x82F63B78."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1).astype(np.uint32)
    return table


_TABLE: Final = _table()
_PLAIN: Final = _TABLE.tolist()
_TWO: Final = np.arange(1 << 16, dtype=np.uint32)
"""What each pair of bytes does to the sum."""
for _ in range(2):
    _TWO[:] = _TABLE[_TWO & 0xFF] ^ (_TWO >> np.uint32(8))


def checksum(data: bytes) -> int:
    """Return the masked CRC-32C of some bytes, one by one.

    Example:
        >>> hex(checksum(b"123456789"))
        '0xc78ab0e5'
    """
    crc = _START
    for byte in data:
        crc = _PLAIN[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
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
    more = (np.maximum(length, 1) - 1) // _BLOCK  # blocks of a stretch beyond its first one
    sums = _raw(data, start, length - more * _BLOCK, _START)
    long = np.flatnonzero(more)
    if len(long):
        counts = more[long]
        each = np.repeat(np.arange(len(long)), counts)
        nth = np.arange(len(each)) - np.repeat(np.cumsum(counts) - counts, counts)
        begin = (start + length)[long][each] - (counts[each] - nth) * _BLOCK
        blocks = _raw(data, begin, np.full(len(begin), _BLOCK), 0).tolist()
        one, two, three, four = _MOVED
        place = 0
        for number, count in zip(long.tolist(), counts.tolist(), strict=True):
            crc = int(sums[number])
            for block in blocks[place : place + count]:
                crc = block ^ one[crc & 255] ^ two[crc >> 8 & 255] ^ three[crc >> 16 & 255] ^ four[crc >> 24]
            sums[number] = crc
            place += count
    sums ^= np.uint32(0xFFFFFFFF)
    return (sums >> np.uint32(15) | sums << np.uint32(17)) + np.uint32(0xA282EAD8)  # all modulo 2**32


def _raw(
    data: NDArray[np.uint8], start: NDArray[np.int64], length: NDArray[np.int64], begin: int
) -> NDArray[np.uint32]:
    """Return the sums of stretches of `_BLOCK` bytes at most, side by side, the longest ahead.

    Args:
        data: The bytes.
        start: Where each begins.
        length: How long each is.
        begin: What a sum is before the first byte.
    """
    order = np.argsort((_BLOCK - length).astype(np.uint16), kind="stable")
    place, pairs = start[order], length[order] >> 1
    crc = np.full(len(start), begin, np.uint32)
    most = int(pairs[0]) if len(pairs) else 0
    for n in np.searchsorted(-pairs, -np.arange(most), "left").tolist():  # so many have one pair more
        some, at = crc[:n], place[:n]
        word = data.take(at, mode="wrap").astype(np.uint16)
        at += 1
        word |= data.take(at, mode="wrap").astype(np.uint16) << np.uint16(8)
        at += 1
        word ^= some.astype(np.uint16)
        some >>= np.uint32(16)
        some ^= _TWO.take(word, mode="wrap")
    odd = np.flatnonzero(length[order] & 1)
    crc[odd] = _TABLE[(crc[odd] ^ data[place[odd]]) & 0xFF] ^ (crc[odd] >> np.uint32(8))
    sums = np.empty_like(crc)
    sums[order] = crc
    return sums


def stretches(path: Path, bad: Complaints) -> Iterator[Stretch]:
    """Yield the whole records of a file, many at a time.

    A record whose checksum does not fit is left out; where that of a length does not, nothing says where the next
    begins, and what follows is left out. Each is a complaint, made between the records around it.

    Raises:
        OSError: It cannot be read.
    """
    with files.plain(path) as file:
        yield from _Reader(file, bad).stretches()


class _Reader:
    """A file of records, a chunk at a time."""

    def __init__(self, file: io.BufferedReader[Any], bad: Complaints) -> None:
        self._file = file
        self._bad = bad
        self._data = b""
        self._number = 0

    def stretches(self) -> Iterator[Stretch]:
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

    def _checked(self, start: NDArray[np.int64], length: NDArray[np.int64]) -> Iterator[Stretch]:
        data = np.frombuffer(self._data, np.uint8)
        damaged = np.flatnonzero(checksums(data, start, length) != _words(data, start + length)).tolist()
        begin = 0
        for end in [*damaged, len(start)]:
            if begin < end:
                yield Stretch(self._number + 1, self._data, start[begin:end], length[begin:end])
            self._number += end - begin
            if end < len(start):
                self._number += 1
                self._bad.add("of a checksum that does not fit, left out", self._number)
            begin = end + 1

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
        try:
            return files.piece(self._file, size)
        except files.TornError:
            self._bad.add("where the gzip breaks, and the rest is left out", self._number + 1)
            return b""

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
