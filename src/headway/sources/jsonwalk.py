"""JSON that is too large to hold: its wanted values one by one, whatever the size of the rest."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.sources.files import TornError

Path = tuple[str, ...]
"""Where a value is: keys, and ``*`` for an element of an array."""
LIMIT: Final = 16 << 20
"""A longer value is passed over [bytes]."""
_BLOCK: Final = 1 << 20
_QUOTE, _COMMA, _OPEN, _CLOSE = 1, 2, 3, 4
_KINDS: Final = np.zeros(256, np.uint8)
_KINDS[list(b'",[{]}')] = (_QUOTE, _COMMA, _OPEN, _OPEN, _CLOSE, _CLOSE)
_MEMBER: Final = re.compile(rb'\s*("[^"\\]*+(?:\\.[^"\\]*+)*+")\s*:\s*(.*)', re.DOTALL)
_PAIRS: Final = {ord("]"): ord("["), ord("}"): ord("{")}
_BLANK: Final = b" \t\r\n\xef\xbb\xbf"


def decode(raw: bytes | None) -> Any:
    """Return what a value says, NaN and Infinity included; None where it is no JSON.

    Example:
        >>> decode(b"[1, NaN]"), decode(b"{"), decode(None)
        ([1, nan], None, None)
    """
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw)
    except (ValueError, RecursionError):
        try:
            return json.loads(raw.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return None


class Walk:
    r"""The values of one or several JSON documents in a file, in their order.

    Of a container that is opened each scalar is given, of one that is kept the whole text; all else is
    passed over. Once through, the attributes tell what was wrong.

    Args:
        file: Read to its end, in blocks.
        opened: Containers that are looked into.
        kept: Containers that are given whole.

    Attributes:
        torn: Why the text ended too early; empty where it did not.
        junk: How many pieces between documents, or in them, were no JSON.
        too_long: How many values were longer than `LIMIT`; they are given as None.

    Example:
        >>> import io
        >>> walk = Walk(io.BytesIO(b'{"a": 1, "b": [[1, 2], [3]], "c": {"d": 5}}'), [(), ("b",)], [("b", "*")])
        >>> [(path, raw) for path, raw in walk if raw]
        [(('a',), b'1'), (('b', '*'), b'[1, 2]'), (('b', '*'), b'[3]')]
    """

    def __init__(self, file: io.BufferedIOBase, opened: Iterable[Path], kept: Iterable[Path] = ()) -> None:
        self.torn = ""
        self.junk = 0
        self.too_long = 0
        self._file = file
        self._opened = frozenset(opened)
        self._kept = frozenset(kept)
        self._deepest = max([len(path) + 2 for path in self._opened] + [len(path) + 1 for path in self._kept])
        self._depth = 0
        self._in_string = 0
        self._escaped = False
        self._stack: list[tuple[Path, int]] = []
        self._held = 0  # the depth of the container that is kept or passed over
        self._keeps: Path | None = None
        self._tail: list[bytes] = []
        self._n_tail = 0

    def __iter__(self) -> Iterator[tuple[Path, bytes | None]]:
        """Yield the place and the text of each value, and an empty text where an opened container ends."""
        n_read = 0
        while not self.torn:
            try:
                block = self._file.read1(_BLOCK)
            except TornError as error:
                self.torn = str(error)
                break
            if not block:
                break
            yield from self._block(block, n_read)
            n_read += len(block)
        if not self.torn and (self._stack or self._held or self._in_string):
            self.torn = f"it ends after {n_read} bytes, in the middle of a value"
        elif not self.torn and _is_junk(self._piece(b"")):
            self.junk += 1

    @property
    def inside(self) -> Path:
        """The innermost container that is looked into and has not ended."""
        return self._stack[-1][0] if self._stack else ()

    def _block(self, block: bytes, n_before: int) -> Iterator[tuple[Path, bytes | None]]:
        start = 0
        for at, kind, depth in self._structure(block):
            if self._held:
                if kind == _CLOSE and depth == self._held:
                    yield from self._release(block, start, at)
                    start = at + 1
                continue
            piece = self._piece(block[start:at])
            start = at + 1
            if kind == _OPEN:
                start -= self._enter(piece, block[at], depth)
            elif self._stack:
                yield from self._scalar(piece)
                if kind == _CLOSE:
                    yield from self._leave(block[at], n_before + at)
            else:
                self.junk += 1
                if kind == _CLOSE:
                    self.torn = f"byte {n_before + at} closes what nothing opened; the rest is not read"
            if self.torn:
                return
        if not self._held or self._keeps is not None:
            self._keep(block[start:])

    def _enter(self, piece: bytes | None, bracket: int, depth: int) -> bool:
        """Begin a container; return whether it is kept or passed over as a whole."""
        path = self._path(piece)
        if path in self._opened:
            self._stack.append((path, bracket))
            return False
        self._held = depth
        self._keeps = path if path in self._kept else None
        return True

    def _release(self, block: bytes, start: int, at: int) -> Iterator[tuple[Path, bytes | None]]:
        """End the container that is kept or passed over."""
        if self._keeps is not None:
            yield self._keeps, self._piece(block[start : at + 1])
        self._held, self._keeps = 0, None
        self._tail, self._n_tail = [], 0

    def _leave(self, bracket: int, place: int) -> Iterator[tuple[Path, bytes | None]]:
        """End the container that is looked into."""
        path, opening = self._stack.pop()
        if opening == _PAIRS[bracket]:
            yield path, b""
        else:
            self.torn = f"byte {place} closes what something else opened; the rest is not read"

    def _structure(self, block: bytes) -> Iterator[tuple[int, int, int]]:
        """Yield place, kind and depth of commas and brackets outside of strings, the deepest left out."""
        data = np.frombuffer(block, np.uint8)
        kinds = _KINDS[data]
        if self._escaped or b"\\" in block:
            self._unescape(data, kinds)
        places = np.flatnonzero(kinds != 0)  # of booleans it is much faster
        kinds = kinds[places]
        quotes = kinds == _QUOTE
        in_string = (np.cumsum(quotes) + self._in_string) & 1
        if len(places):
            self._in_string = int(in_string[-1])
        keep = ~quotes & (in_string == 0)
        places, kinds = places[keep], kinds[keep]
        closes = kinds == _CLOSE
        depths = self._depth + np.cumsum((kinds == _OPEN).astype(np.int64) - closes)
        if len(places):
            self._depth = int(depths[-1])
        depths += closes
        shallow = depths + (kinds == _COMMA) <= self._deepest
        return zip(*(column[shallow].tolist() for column in (places, kinds, depths)), strict=True)

    def _unescape(self, data: NDArray[np.uint8], kinds: NDArray[np.uint8]) -> None:
        """Take what follows an odd number of backslashes for no structure."""
        if self._escaped:
            kinds[0] = 0
        slashes = np.flatnonzero(data == ord("\\"))
        if len(slashes) and slashes[0] == 0 and self._escaped:
            slashes = slashes[1:]
        self._escaped = False
        if len(slashes):
            order = np.arange(len(slashes))
            begins = np.r_[True, np.diff(slashes) != 1]
            escapes = slashes[(order - np.maximum.accumulate(np.where(begins, order, 0))) % 2 == 0]
            self._escaped = bool(escapes[-1] == len(data) - 1)
            kinds[escapes[: len(escapes) - self._escaped] + 1] = 0

    def _path(self, piece: bytes | None) -> Path:
        if not self._stack:
            self.junk += _is_junk(piece)
            return ()
        path, bracket = self._stack[-1]
        if bracket == ord("["):
            return (*path, "*")
        found = _MEMBER.match(piece or b"")
        name = decode(found[1]) if found else None
        if not isinstance(name, str):
            self.junk += 1
            return (*path, "")
        return (*path, name)

    def _scalar(self, piece: bytes | None) -> Iterator[tuple[Path, bytes | None]]:
        path, bracket = self._stack[-1]
        if piece is None:
            if bracket == ord("["):
                yield (*path, "*"), None
            return
        if not (value := piece.strip()):
            return
        if bracket == ord("["):
            yield (*path, "*"), value
        elif (found := _MEMBER.match(value)) and isinstance(name := decode(found[1]), str):
            yield (*path, name), found[2]
        else:
            self.junk += 1

    def _keep(self, piece: bytes) -> None:
        """Keep the beginning of a value that goes on in the next block."""
        self._n_tail += len(piece)
        if self._n_tail > LIMIT:
            self._tail = []
        elif piece:
            self._tail.append(piece)

    def _piece(self, end: bytes) -> bytes | None:
        """Return a value with what was kept of it; None where it is too long."""
        if not self._n_tail:
            return end
        n_bytes, piece = self._n_tail + len(end), b"".join((*self._tail, end))
        self._tail, self._n_tail = [], 0
        if n_bytes > LIMIT:
            self.too_long += 1
            return None
        return piece


def _is_junk(piece: bytes | None) -> bool:
    return piece is None or bool(piece.strip(_BLANK))
