"""Event files of TensorBoard: the steps are the points of one scalar, their times when each was written."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.ledger.history import Run
from headway.sources.asked import Asked
from headway.sources.columns import BOUND
from headway.sources.steps.columns import UNKNOWN
from headway.sources.steps.lines import StepLines
from headway.sources.tensorboard.tfrecord import HEADER, Stretch, checksum, stretches
from headway.sources.text import clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
_LEAST, _MOST, _STEP_BYTES = 24, 512, 8
"""Events that are read at once are longer and shorter, and their steps no longer [bytes]."""
_FORMS, _TRIES = 16, 64
"""So many forms are known at most, and so many events of a chunk are tried for it that are of none."""
_CHOSEN, _OTHER = 1, 2
_SHAPELESS: Final = frozenset({1, 2, 3, 4, 5, 6, 9, 14, 19})
"""Types of numbers that a scalar can have in a tensor."""


class TensorBoard:
    """The source of event files."""

    name = "tensorboard"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no event file, or None when it is one."""
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
        for some in stretches(path, log.bad):
            points.take(some)
        points.finish()
        is_usual = path.name.startswith("events.out.tfevents.")  # of which a folder holds one, called as the run is
        return [log.run(path.absolute().parent.name if is_usual else path.name, asked, stepless=True)]


@dataclass(frozen=True, eq=False)
class _Form:
    """How events end, from their summary on, that say the same but for the numbers of their scalars.

    Attributes:
        size: So many bytes they are.
        places: Where the bytes are that are the same, ``(m,)``.
        same: Those, ``(m,)`` uint8.
        kind: `_CHOSEN` or `_OTHER`.
    """

    size: int
    places: NDArray[np.int64]
    same: NDArray[np.uint8]
    kind: int


@dataclass
class _Points:
    """The points of scalars as they come; after a while those of one scalar alone."""

    log: StepLines
    chosen: bytes | None = None
    held: list[tuple[bytes | None, int, int, int]] = field(default_factory=list)
    tags: dict[bytes, None] = field(default_factory=dict)
    forms: dict[bytes, _Form] = field(default_factory=dict)
    tries: int = 0

    def take(self, some: Stretch) -> None:
        """Read some events."""
        kind, step, at = _plain(some, self.chosen, self.forms.values())
        self.tries = 0 if self.chosen is None else _TRIES
        starts, lengths, begin = some.start.tolist(), some.length.tolist(), 0
        for place in [*np.flatnonzero(kind == 0).tolist(), len(some)]:
            if begin < place:
                part = slice(begin, place)
                self._known(some.first + begin, kind[part], step[part], at[part])
            if place < len(some):
                number = some.first + place
                try:
                    self._event(number, some.data[starts[place] : starts[place] + lengths[place]])
                except ValueError as error:
                    self.log.bad.add("no event, left out", number, str(error))
            begin = place + 1

    def _known(self, first: int, kind: NDArray[np.uint8], step: NDArray[np.int64], at: NDArray[np.int64]) -> None:
        """Tell of events one after the other, of which `_plain` tells all."""
        for moment in (at[0], at.min(), at.max()):
            self.log.seen(int(moment))
        own = np.flatnonzero(kind == _CHOSEN)
        nobody = np.broadcast_to(np.int64(-1), len(own))
        nothing = np.broadcast_to(np.int64(UNKNOWN), len(own))
        self.log.steps(step[own], line=own + first, at=at[own], took=nothing, rank=nobody)
        self.log.seen(int(at[-1]))

    def _event(self, number: int, data: bytes) -> None:
        """Read one event.

        Raises:
            ValueError: It is none.
        """
        at, step, kind, body = _event(data)
        self.log.seen(at)
        if kind == 5:
            if self.chosen is None or self.chosen in body or b"runtime" in body:
                for tag, value in _scalars(body):
                    self._point(number, tag, step, at, value)
            if self.chosen is not None and self.tries and len(self.forms) < _FORMS:
                self.tries -= 1
                with suppress(ValueError):
                    self.forms |= {form.same.tobytes(): form for form in _form(data, body, self.chosen)}
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
        """Choose the first scalar that is a loss of the training, else the first of the training, else the first.

        None where evaluations are all that is told of, as in the file of the `Trainer` that evaluates after training.
        """
        names = {tag: tag.decode("utf-8", "replace") for tag in self.tags}
        training = [tag for tag, name in names.items() if not _BESIDE.search(name)]
        losses = [tag for tag in training if "loss" in names[tag].lower()]
        self.chosen = next(iter([*losses, *training, *names]), b"")
        evaluates = any(_EVALUATION.search(name) for name in names.values())
        if evaluates and all(names[tag].rpartition("/")[2] == "epoch" for tag in training):
            self.chosen = b""
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
        elif self.tags:
            self.log.warnings.append("evaluations are all that its scalars tell of: it has no steps")


def _form(data: bytes, body: bytes, chosen: bytes) -> Iterator[_Form]:
    """Yield the form of an event with a time, a step and a summary, if all of its form are to be told of alike.

    Raises:
        ValueError: The summary is none.
    """
    tags = [tag for tag, _ in _scalars(body)]
    (_, at), own = _varint(data, 10), tags.count(chosen)
    if not tags or own > 1 or any(tag.endswith(b"runtime") for tag in tags) or len(data) >= _MOST:
        return
    rest = data[at:]
    ahead = len(rest) - len(body)
    if data[0] == 0x09 and data[9] == 0x10 and rest[0] == 0x2A and _varint(rest, 1) == (len(body), ahead):
        free = [ahead + place for place in _free(body)]
        places = np.setdiff1d(np.arange(len(rest)), free)
        yield _Form(len(rest), places, np.frombuffer(rest, np.uint8)[places], _CHOSEN if own else _OTHER)


def _free(summary: bytes) -> Iterator[int]:
    """Yield the places of the bytes that hold the numbers of scalars and nothing else."""
    for name, number, begin, end in _spans(summary, 0, len(summary)):
        if name != 1 or number is not None:
            continue
        for key, value, first, last in _spans(summary, begin, end):
            if key == 2 and value is None and last - first == 4:
                yield from range(first, last)
            elif key == 8 and value is None:
                for inner, _, low, high in _spans(summary, first, last):
                    if inner in {4, 5} and high - low == 4:
                        yield from range(low, high)


def _plain(
    some: Stretch, chosen: bytes | None, forms: Iterable[_Form]
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Return the kind of each event, its step and its time, of the commonest forms all at once.

    That is a time, a step and a summary of one plain scalar, as most writers write it, see `_event` and `_scalars`; or
    one of the forms that were found so far.

    Args:
        some: The events.
        chosen: The scalar whose points are steps; None: not chosen yet, and nothing is read.
        forms: The forms that are known.

    Returns:
        `_CHOSEN`, `_OTHER` or for what is to be read with care 0, ``(n,)``; and of the former the step and the time
        [ns since the Unix epoch].
    """
    n, data = len(some), np.frombuffer(some.data, np.uint8)
    kind, steps, times = np.zeros(n, np.uint8), np.zeros(n, np.int64), np.zeros(n, np.int64)
    if chosen is None:
        return kind, steps, times
    which = np.flatnonzero((some.length > _LEAST) & (some.length < _MOST))
    start = some.start[which]
    wall = data[(start + 1)[:, None] + np.arange(8)].view("<f8")[:, 0]
    good = (data[start] == 0x09) & (data[start + 9] == 0x10) & (wall >= 0) & (wall < BOUND / NS_PER_S)
    which, start, wall = which[good], start[good], wall[good]
    step, at = np.zeros(len(which), np.int64), start + 10
    more = np.ones(len(which), bool)
    for place in range(_STEP_BYTES):
        byte = data[at].astype(np.int64)
        step |= np.where(more, (byte & 127) << 7 * place, 0)
        at += more
        more &= byte > 127
    left = start + some.length[which] - at
    steps[which] = step
    whole = np.floor(wall)
    times[which] = whole.astype(np.int64) * NS_PER_S + np.rint((wall - whole) * NS_PER_S).astype(np.int64)
    good = ~more & (left >= 11)
    which, at, left = which[good], at[good], left[good]
    for form in forms:
        like = np.flatnonzero(left == form.size)
        like = like[(data[at[like][:, None] + form.places] == form.same).all(axis=1)]
        kind[which[like]] = form.kind
    good = (left < 130) & (kind[which] == 0)
    which, at, left = which[good], at[good], left[good]
    tag, size = at + 6, left - 11
    good = (data[at] == 0x2A) & (data[at + 1] == left - 2)  # a summary,
    good &= (data[at + 2] == 0x0A) & (data[at + 3] == left - 4)  # in it a value and no more,
    good &= (data[at + 4] == 0x0A) & (data[at + 5] == size) & (data[tag + size] == 0x15)  # of a tag and a number
    good &= (data[tag + size - 1] != ord("e")) | (data[tag + size - 2] != ord("m"))  # it may be a runtime
    which, tag, size = which[good], tag[good], size[good]
    kind[which] = _OTHER
    same = np.flatnonzero(size == len(chosen))
    if len(chosen) < _MOST:
        for place, letter in enumerate(chosen):
            same = same[data[tag[same] + place] == letter]
        kind[which[same]] = _CHOSEN
    return kind, steps, times


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
    for name, number, begin, end in _spans(data, 0, len(data)):
        yield name, data[begin:end] if number is None else number


def _spans(data: bytes, at: int, size: int) -> Iterator[tuple[int, int | None, int, int]]:
    """Yield of each field of a message between two places the number, and its value or where its bytes are."""
    while at < size:
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            number, at = _varint(data, at)
            yield key >> 3, number, at, at
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in {1, 5}:
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"it has a field of the wire type {wire}")
        if at + length > size:
            raise ValueError("it breaks off")
        yield key >> 3, None, at, at + length
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
