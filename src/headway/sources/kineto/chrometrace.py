"""Chrome traces as a stream: batches of events of a JSON file of any size, and the small values beside them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec

from headway.sources import files
from headway.sources.text import Complaints

BLOCK: Final = 1 << 20
"""So much is read, and of it events decoded, at once [bytes]."""
MAX_VALUE: Final = 64 << 20
"""Reading ends at an event or a value longer than that [bytes]."""
MAX_KEPT: Final = 4 << 20
"""A value beside the events that is longer is not kept [bytes]."""
MAX_BROKEN: Final = 1 << 18
"""Reading ends after so many that are no event."""
MAX_DEPTH: Final = 1 << 18
"""Reading ends where more brackets are open than that."""
_LOOKED_AT: Final = 4096
"""So many braces are looked at to find these places."""
_LAST: Final = 3
"""So many of the last places where the events of a block may end are tried."""

_NEXT: Final = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"\s*:)')
_ANY: Final = re.compile(rb"\}\s*,\s*(?=\{)")
_END: Final = re.compile(rb"\}\s*(?=\])")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)
_BLANK: Final = re.compile(rb"[\s,]*+")
_SCALARS: Final = re.compile(rb"[^\]}\"{\[]++")
_ESCAPE: Final = re.compile(rb'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
_NO_NUMBER: Final = re.compile(rb"([:,\[]\s*)-?(?:nan|inf(?:inity)?)(?=\s*[,}\]])", re.IGNORECASE)
_BOM: Final = b"\xef\xbb\xbf"
_TOO_DEEP: Final = (msgspec.DecodeError, RecursionError)
_NONE: Final = msgspec.Raw(b"")


class TraceEvent(msgspec.Struct, gc=False):
    """What of an event is looked at; what is Raw keeps its JSON as it is written."""

    ph: str | None = None
    cat: str | None = None
    name: str | None = None
    ts: msgspec.Raw = _NONE
    dur: msgspec.Raw = _NONE
    pid: msgspec.Raw = _NONE
    tid: msgspec.Raw = _NONE
    args: msgspec.Raw = _NONE


_batch: Final = msgspec.json.Decoder(list[TraceEvent])
_one: Final = msgspec.json.Decoder(TraceEvent)


class _CutError(Exception):
    """The file ends, breaks or goes on for too long inside a value."""


@dataclass
class Trace:
    """A trace that is read once, front to back.

    Attributes:
        path: The file; a gzip is unpacked.
        complaints: What could not be read, with the place of its first byte in what is unpacked.
        values: The values beside the events, each as JSON, those up to `MAX_KEPT` long.
        n_events: How many events were read so far.
        n_bytes: How much was read so far, unpacked [bytes].
    """

    path: Path
    complaints: Complaints
    values: dict[str, bytes] = field(default_factory=dict)
    n_events: int = 0
    n_bytes: int = 0

    def batches(self) -> Iterator[list[TraceEvent]]:
        """Yield the events in the order of the file, some thousands at a time.

        Raises:
            OSError: The file cannot be read, or unpacks to more than `files.MAX_UNPACKED`.
        """
        with files.plain(self.path) as file:
            window = _Window(file)
            try:
                for batch in self._document(window):
                    self.n_events += len(batch)
                    yield batch
                if window.rest():
                    self.complaints.add("where the trace ends; what follows is left out", window.offset)
            except _CutError as cut:
                self.complaints.add("where the trace breaks off; what came before counts", window.offset, str(cut))
            self.n_bytes = window.offset

    def value(self, key: str) -> Any:
        """Return one of the values beside the events, decoded; None where it is not there or is no JSON."""
        try:
            return msgspec.json.decode(self.values.get(key, b"null"))
        except _TOO_DEEP:
            return None

    def _document(self, window: _Window) -> Iterator[list[TraceEvent]]:
        first = window.peek()
        if first == b"[":
            window.take(1)
            yield from self._events(window)
        elif first == b"{":
            window.take(1)
            while (found := window.peek()) != b"}":
                if found != b'"':
                    raise _CutError("no name of a value")
                key = window.value()
                if window.peek() != b":":
                    raise _CutError("no colon after a name")
                window.take(1)
                if window.peek() == b"[" and key == b'"traceEvents"':
                    window.take(1)
                    yield from self._events(window)
                else:
                    value = window.value()
                    if len(value) <= MAX_KEPT:
                        self.values[key[1:-1].decode(errors="replace")] = value
            window.take(1)
        else:
            raise _CutError("no JSON object and no array")

    def _events(self, window: _Window) -> Iterator[list[TraceEvent]]:
        """Yield the events of an array whose bracket is taken, and take the one that closes it."""
        while True:
            if window.peek() == b"]":
                window.take(1)
                return
            batch = self._fast(window)
            yield self._careful(window) if batch is None else batch

    def _fast(self, window: _Window) -> list[TraceEvent] | None:
        """Return the events up to one of the last places where one may end; None where none of them is such a place.

        A place inside a string or a deeper level leaves something open before it, and is no JSON.
        """
        held = window.held()
        for decode, pattern in product((_decode, _decode_repaired), (_NEXT, _END, _ANY)):
            for place in _last(pattern, held):
                batch = decode(held[: place + 1])
                if batch is not None:
                    window.take(place + 1)
                    return batch
        return None

    def _careful(self, window: _Window) -> list[TraceEvent]:
        """Return the whole events that are held, one at least: each found by its brackets and decoded alone."""
        batch: list[TraceEvent] = []
        if len(self.complaints) > MAX_BROKEN:
            raise _CutError(f"more than {MAX_BROKEN} that are no event")
        value: bytes | None = window.value()
        while value is not None:
            event = _decode_one(value)
            if event is None:
                self.complaints.add("no event, left out", window.offset - len(value))
            else:
                batch.append(event)
            value = window.whole_value()
        return batch


def _last(pattern: re.Pattern[bytes], data: bytes) -> list[int]:
    """Return the last few places in which a pattern that begins with a brace matches, the last first."""
    places: list[int] = []
    at = len(data)
    for _ in range(_LOOKED_AT):
        at = data.rfind(b"}", 0, at)
        if at < 0 or len(places) == _LAST:
            break
        if pattern.match(data, at):
            places.append(at)
    return places


def _decode(events: bytes) -> list[TraceEvent] | None:
    try:
        return _batch.decode(b"[" + events + b"]")
    except _TOO_DEEP:
        return None


def _decode_repaired(events: bytes) -> list[TraceEvent] | None:
    return _decode(_repair(events))


def _repair(data: bytes) -> bytes:
    """Return JSON with null for NaN and infinity, which profilers write, and without bad UTF-8."""
    return _NO_NUMBER.sub(rb"\1null", data).decode(errors="replace").encode()


def _decode_one(data: bytes) -> TraceEvent | None:
    """Return an event, also one with control characters or with names that are no text; None where it is none."""
    data = _repair(data)
    try:
        return _one.decode(data)
    except _TOO_DEEP:
        pass
    try:
        found = json.loads(_ESCAPE.sub(_escaped, data), strict=False)
        if not isinstance(found, dict):
            return None
        kept = {key: found[key] for key in TraceEvent.__struct_fields__ if key in found}
        texts = {key: kept.pop(key, None) for key in ("ph", "cat", "name")}
        kept |= {key: text for key, text in texts.items() if isinstance(text, str)}
        return _one.decode(msgspec.json.encode(kept))
    except (ValueError, TypeError, RecursionError, msgspec.MsgspecError):
        return None


def _escaped(found: re.Match[bytes]) -> bytes:
    """Return an escape, one that is none as a backslash: paths of Windows have been written so."""
    return found[0] if found[1] else rb"\\"


class _Window:
    """What of a file is held: a stretch that moves through it.

    Attributes:
        offset: The place in the file of the next byte.
    """

    def __init__(self, file: BufferedReader[Any]) -> None:
        self._file = file
        self._data = b""
        self._at = 0
        self._n_gone = 0
        self._ended = False
        self._why = "the file ends there"
        if self._more() and self._data.startswith(_BOM):
            self.take(len(_BOM))

    @property
    def offset(self) -> int:
        """Return the place in the file of the next byte."""
        return self._n_gone + self._at

    def held(self) -> bytes:
        """Return what is held, at least a block of it where there is so much."""
        if len(self._data) - self._at < BLOCK:
            self._more()
        return self._data[self._at :]

    def _more(self, size: int = 0) -> bool:
        """Read more, and return whether there was any; what a broken gzip gave before it broke counts."""
        pieces = [self._data[self._at :]]
        missing = 0 if self._ended else max(BLOCK, size)
        while missing:
            try:
                piece = self._file.read1(missing)
            except files.TornError as error:
                self._why = f"the gzip is torn or damaged there: {error}"
                piece = b""
            self._ended = not piece
            missing = 0 if self._ended else missing - len(piece)
            pieces.append(piece)
        self._n_gone += self._at
        self._data, self._at = b"".join(pieces), 0
        return len(self._data) > len(pieces[0])

    def take(self, n_bytes: int) -> None:
        """Let go of so much."""
        self._at += n_bytes

    def peek(self) -> bytes:
        """Return the next byte that is no blank and no comma, which are taken.

        Raises:
            _CutError: There is none.
        """
        while True:
            blank = _BLANK.match(self._data, self._at)
            if blank is not None:
                self._at = blank.end()
            if self._at < len(self._data):
                return self._data[self._at : self._at + 1]
            if not self._more():
                raise _CutError(self._why)

    def rest(self) -> bool:
        """Return whether anything but blanks is left."""
        try:
            return bool(self.peek())
        except _CutError:
            return False

    def whole_value(self) -> bytes | None:
        """Take the next value if all of it is held; None where it is not, or the array ends."""
        blank = _BLANK.match(self._data, self._at)
        at = self._at if blank is None else blank.end()
        if self._data[at : at + 1] in {b"", b"]"}:
            return None
        try:
            end, _, _ = _end_of(self._data, at, 0)
        except _CutError:
            return None  # `value` says so, in its turn
        if end is None:
            return None
        self._at = end
        return self._data[at:end]

    def value(self) -> bytes:
        """Take the next value, and return its JSON.

        Raises:
            _CutError: It does not end, or is longer than `MAX_VALUE`.
        """
        self.peek()
        depth, seen = 0, 0
        while True:
            start = self._at
            end, depth, at = _end_of(self._data, start + seen, depth)
            if end is not None:
                self._at = end
                return self._data[start:end].rstrip(b", \t\r\n")
            seen = at - start
            if len(self._data) - start > MAX_VALUE:
                raise _CutError(f"a value longer than {MAX_VALUE >> 20} MiB")
            if not self._more(len(self._data) - start):
                raise _CutError(self._why)


def _end_of(data: bytes, at: int, depth: int) -> tuple[int | None, int, int]:
    """Return where a value ends, None where it goes on; how deep it is where the data ends; and where to go on.

    Args:
        data: JSON, maybe cut.
        at: From where on it was not looked at yet.
        depth: How many brackets are open there.

    Raises:
        _CutError: A bracket closes that nothing opened.
    """
    if depth == 0 and data[at : at + 1] not in {b"{", b"[", b'"'}:
        scalar = _SCALARS.match(data, at)
        end = at if scalar is None else scalar.end()
        if end == at < len(data):
            raise _CutError("a bracket closes that nothing opened")
        return (end, 0, at) if end < len(data) else (None, 0, at)
    for token in _TOKEN.finditer(data, at):
        first = token.group()[:1]
        if first == b'"':
            if token.end() - token.start() == 1:
                return None, depth, token.start()
        else:
            depth += 1 if first in b"{[" else -1
            if depth > MAX_DEPTH:
                raise _CutError(f"more than {MAX_DEPTH} open brackets")
        at = token.end()
        if depth <= 0:
            return at, 0, at
    return None, depth, len(data)
