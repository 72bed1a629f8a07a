"""Event files of TensorBoard: the steps are the points of one scalar, their times when each was written."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headway.clock import NS_PER_S
from headway.ledger.history import Run
from headway.sources.asked import Asked
from headway.sources.columns import BOUND
from headway.sources.steplines import StepLines
from headway.sources.text import clean
from headway.sources.tfrecord import HEADER, checksum, records

TRIED: Final = 4096
"""So many points of scalars are looked at before one scalar is chosen."""
_VERSION: Final = b"brain.Event:"
_DOUBLE: Final = struct.Struct("<d")
_FLOAT: Final = struct.Struct("<f")
_BESIDE: Final = re.compile(
    r"(?:^|[/_. -])(?:val|valid|validation|eval|evaluation|test|dev)(?:$|[/_. -])", re.IGNORECASE
)
_EVALUATION: Final = re.compile(r"(?:^|/)eval(?:uation)?[^/]*[/_]runtime$", re.IGNORECASE)
_START: Final = 1
_TAG: Final = 1024
"""Longer tags are told apart by their beginning [bytes]."""
_SHAPELESS: Final = frozenset({1, 2, 3, 4, 5, 6, 9, 14, 19})
"""Types of numbers that a scalar can have in a tensor."""


class TensorBoard:
    """The source of event files."""

    name = "tensorboard"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no event file, or None when it is one."""
        if path.is_dir():
            return "it is a folder and not an event file"
        if len(head) >= HEADER.size:
            length, said = HEADER.unpack_from(head)
            if length < 4096 and _VERSION in head[12 : 12 + length] and checksum(head[:8]) == said:
                return None
        return "it does not begin with the version of an event file"

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the run of a file.

        Raises:
            SourceError: It holds no scalar.
        """
        log = StepLines(self.name, path)
        log.bad.noun = "record"
        points = _Points(log)
        for number, data in records(path, log.bad):
            try:
                points.take(number, data)
            except ValueError as error:
                log.bad.add("no event, left out", number, str(error))
        points.finish()
        return [log.run(path.name, asked)]


@dataclass
class _Points:
    """The points of scalars as they come; after a while those of one scalar alone."""

    log: StepLines
    chosen: bytes | None = None
    held: list[tuple[bytes | None, int, int, int]] = field(default_factory=list)
    tags: dict[bytes, None] = field(default_factory=dict)
    _alone: bytes = b""

    def take(self, number: int, data: bytes) -> None:
        """Read one event.

        Raises:
            ValueError: It is none.
        """
        at, step, kind, body = _event(data)
        self.log.seen(at)
        if kind == 5:
            if self._alone and body.startswith(self._alone) and len(body) == len(self._alone) + 4:
                self.log.step(step, line=number, at_ns=at)
            elif self.chosen is None or self.chosen in body or b"runtime" in body:
                for tag, value in _scalars(body):
                    self._point(number, tag, step, at, value)
        elif (kind == 3 and body.startswith(_VERSION)) or (kind == 7 and _first(body, 1) == _START):
            self._note(None, number, step, at)

    def _point(self, number: int, tag: bytes, step: int, at: int, value: float | None) -> None:
        if tag.endswith(b"runtime") and value is not None and _EVALUATION.search(tag.decode("utf-8", "replace")):
            took = round(value * NS_PER_S) if 0 <= value < BOUND / NS_PER_S else -1
            self.log.span("evaluation", line=number, at_ns=at, took_ns=took)
        if self.chosen is None:
            self.tags[tag] = None
        self._note(tag, number, step, at)

    def _note(self, tag: bytes | None, number: int, step: int, at: int) -> None:
        """Note a point, or without a tag that a program began; held back until a scalar is chosen."""
        if self.chosen is None:
            self.held.append((tag, number, step, at))
            if len(self.held) >= TRIED:
                self._choose()
        elif tag is None:
            self.log.banner(line=number, at_ns=at)
        elif tag == self.chosen:
            self.log.step(step, line=number, at_ns=at)

    def _choose(self) -> None:
        """Choose the first scalar that is a loss of the training, else the first of the training, else the first."""
        names = {tag: tag.decode("utf-8", "replace") for tag in self.tags}
        training = [tag for tag, name in names.items() if not _BESIDE.search(name)]
        losses = [tag for tag in training if "loss" in names[tag].lower()]
        self.chosen = next(iter([*losses, *training, *names]), b"")
        if 0 < len(self.chosen) < 100:  # how a summary begins that holds this scalar alone, as most writers write it
            size = len(self.chosen)
            self._alone = bytes([10, size + 7, 10, size]) + self.chosen + b"\x15"
        held, self.held = self.held, []
        for tag, number, step, at in held:
            self._note(tag, number, step, at)

    def finish(self) -> None:
        """Choose if that is not done yet, and say what was."""
        if self.chosen is None:
            self._choose()
        if self.chosen:
            self.log.warnings.append(
                f"steps are the points of the scalar {clean(self.chosen.decode('utf-8', 'replace'))!r}; what else "
                "was done between two of them, such as evaluating or saving, is in them where no scalar tells of it"
            )


def _event(data: bytes) -> tuple[int, int, int, bytes]:
    """Return when an event was written [ns since the Unix epoch], its step, what it is and what it holds.

    Raises:
        ValueError: It is none.
    """
    wall, step, kind, body = 0.0, 0, 0, b""
    if data[:1] == b"\x09" and len(data) > 12 and data[9] == 16:  # as all writers known write it: time, step, what
        (wall,) = _DOUBLE.unpack_from(data, 1)
        step, at = _varint(data, 10)
        rest = data[at:]
    else:
        rest = data
    for name, value in _fields(rest):
        if name == 1 and isinstance(value, bytes) and len(value) == 8:
            (wall,) = _DOUBLE.unpack(value)
        elif name == 2 and isinstance(value, int):
            step = value
        elif name > 2 and isinstance(value, bytes):
            kind, body = name, value
    if not 0 <= wall < BOUND / NS_PER_S:
        raise ValueError(f"its time is {wall:g}")
    whole = int(wall)
    ns = whole * NS_PER_S + round((wall - whole) * NS_PER_S)
    return ns, step if step < 1 << 63 else step - (1 << 64), kind, body


def _scalars(summary: bytes) -> Iterator[tuple[bytes, float | None]]:
    """Yield the tag of each scalar in a summary, and its value where it is plain."""
    for name, value in _fields(summary):
        if name != 1 or not isinstance(value, bytes):
            continue
        tag, number, scalar = b"", None, False
        for key, part in _fields(value):
            if key == 1 and isinstance(part, bytes):
                tag = part[:_TAG]
            elif key == 2 and isinstance(part, bytes) and len(part) == 4:
                (number,) = _FLOAT.unpack(part)
                scalar = True
            elif key == 8 and isinstance(part, bytes):
                scalar, number = _tensor(part)
        if scalar:
            yield tag, number


def _tensor(data: bytes) -> tuple[bool, float | None]:
    """Return whether a tensor is one number, and that where it is a float."""
    kind, shapeless, number = 0, True, None
    for name, value in _fields(data):
        if name == 1 and isinstance(value, int):
            kind = value
        elif name == 2 and isinstance(value, bytes):
            shapeless = not any(key == 2 for key, _ in _fields(value))
        elif name in {4, 5} and kind == 1 and isinstance(value, bytes) and len(value) == 4:
            (number,) = _FLOAT.unpack(value)
    return shapeless and kind in _SHAPELESS, number


def _first(data: bytes, name: int) -> int | bytes | None:
    return next((value for key, value in _fields(data) if key == name), None)


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message of protocol buffers.

    Raises:
        ValueError: It breaks off, or is none.

    Example:
        >>> list(_fields(bytes([0x10, 0xAC, 0x02, 0x0A, 0x01, 0x61])))
        [(2, 300), (1, b'a')]
    """
    at, size = 0, len(data)
    while at < size:
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            number, at = _varint(data, at)
            yield key >> 3, number
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in {1, 5}:
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"it has a field of the wire type {wire}")
        if at + length > size:
            raise ValueError("it breaks off")
        yield key >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and where the next thing begins."""
    number = shift = 0
    while shift < 70:
        if at >= len(data):
            raise ValueError("it breaks off")
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & (1 << 64) - 1, at
        shift += 7
    raise ValueError("it has a number that is too long")
