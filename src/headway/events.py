"""The vocabulary of a log: the kinds of events, their fields, and the schema's version.

One JSON object a line, told apart by ``kind``. Times are int nanoseconds of the process's
monotonic clock; ``open`` ties that clock to the wall clock. `docs/log.md` describes every
field. Nothing here reads or writes a file.

History of the schema:
    1: the first. Readers pass over kinds and fields they do not know, so additions keep the number.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

SCHEMA: Final = 1
DEFAULT_PHASES: Final = ("source", "transform", "transfer")
CLOSE_REASONS: Final = ("finished", "failed", "preempted", "signal", "released")
ROWS: Final = ("step", "batch", "block")
"""What a row is. ``step``: a training step. ``batch``: an input batch, whose step reaches to the
next row. ``block``: a stretch of unequal work, in which no compile time can be inferred."""

SPAN_CATEGORIES: Final = (
    "startup",
    "device_init",
    "compile",
    "checkpoint_restore",
    "checkpoint_save",
    "evaluation",
    "shutdown",
    "unaccounted",
)
"""The categories a span can have by name; any other name is stored as ``custom:<name>``."""


def span_category(name: str) -> str:
    """Return the category a span of that name is booked under.

    Example:
        >>> span_category("evaluation"), span_category("sdc_check"), span_category("custom:x")
        ('evaluation', 'custom:sdc_check', 'custom:x')
    """
    if name in SPAN_CATEGORIES or name.startswith("custom:"):
        return name
    return f"custom:{name}"


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", gc=False):
    """What all events share: the JSON field ``kind``."""


class Open(Event, frozen=True, kw_only=True, tag="open"):
    """A process began to record. The pair ``wall_ns``, ``mono_ns`` ties its two clocks together.

    ``age_ns`` is how long the process had run by then, where that is known: time no ledger holds.
    """

    wall_ns: int
    mono_ns: int
    schema: int = SCHEMA
    run: str = ""
    attempt: str = ""
    rank: int = 0
    world_size: int = 1
    devices: int = 1
    accelerator: str | None = None
    host: str = ""
    pid: int = 0
    phases: tuple[str, ...] = DEFAULT_PHASES
    rows: str = "step"
    age_ns: int | None = None


class Begin(Event, frozen=True, kw_only=True, tag="begin"):
    """An interval has begun; an `End` of the same id closes it."""

    id: int
    category: str
    at: int
    background: bool = False


class End(Event, frozen=True, kw_only=True, tag="end"):
    """The interval of that id has ended; ``ok`` is false when by an exception."""

    id: int
    at: int
    ok: bool = True


class Span(Event, frozen=True, kw_only=True, tag="span"):
    """A whole interval in one line. A background one takes no time from the ledger.

    An inferred one nobody recorded under that name: it was worked out from other times.
    """

    category: str
    start: int
    end: int
    ok: bool = True
    background: bool = False
    inferred: bool = False


class Step(Event, frozen=True, kw_only=True, tag="step"):
    """A step, where there is no ``steps.npy``: its number, its interval, its waits by phase [ns]."""

    step: int
    start: int
    end: int
    phases: dict[str, int] = {}


class Rows(Event, frozen=True, kw_only=True, tag="rows"):
    """What this process's rows are, when that was not known at `Open`; see `ROWS`."""

    rows: str
    at: int


class Saved(Event, frozen=True, kw_only=True, tag="saved"):
    """Progress through that step is durable."""

    step: int
    at: int


class Restored(Event, frozen=True, kw_only=True, tag="restored"):
    """This process continues after that step; -1 is from scratch."""

    step: int
    at: int


class Notice(Event, frozen=True, kw_only=True, tag="notice"):
    """Something the outside said, such as ``preemption``."""

    name: str
    at: int


class ClockPair(Event, frozen=True, kw_only=True, tag="clock"):
    """A later pair of both clocks, to see drift and jumps."""

    wall_ns: int
    mono_ns: int


class Fault(Event, frozen=True, kw_only=True, tag="fault"):
    """Something could not be recorded: what, how often so far, and the last reason."""

    what: str
    count: int
    at: int
    error: str = ""


class Exit(Event, frozen=True, kw_only=True, tag="exit"):
    """How the command ended that a launcher ran; a negative code is the number of a signal."""

    code: int
    at: int


class Close(Event, frozen=True, kw_only=True, tag="close"):
    """The process stopped recording, for one of `CLOSE_REASONS`."""

    at: int
    reason: str = "finished"


class Unknown(msgspec.Struct, frozen=True):
    """An event of a kind this version does not know: kept as it was, and passed over."""

    data: dict[str, Any]


AnyEvent = Open | Begin | End | Span | Step | Rows | Saved | Restored | Notice | ClockPair | Fault | Exit | Close

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyEvent)


def encode(event: AnyEvent) -> bytes:
    r"""Return the event as one line of JSON, its newline included.

    Example:
        >>> encode(Saved(step=100, at=9))
        b'{"kind":"saved","step":100,"at":9}\n'
    """
    return _encoder.encode(event) + b"\n"


def decode(line: bytes) -> AnyEvent | Unknown:
    """Return the event of one line.

    Raises:
        msgspec.DecodeError: The line is no JSON object, or a known kind has a field of a wrong type.

    Example:
        >>> decode(b'{"kind":"saved","step":100,"at":9,"new_field":1}')
        Saved(step=100, at=9)
        >>> decode(b'{"kind":"from_the_future","at":9}')
        Unknown(data={'kind': 'from_the_future', 'at': 9})
    """
    try:
        return _decoder.decode(line)
    except msgspec.ValidationError:
        data = msgspec.json.decode(line, type=dict[str, Any])
        if data.get("kind") in KINDS:
            raise
        return Unknown(data)


KINDS: Final = tuple(str(cls.__struct_config__.tag) for cls in AnyEvent.__args__)
"""Every kind this version knows, in the order of `docs/log.md`."""
