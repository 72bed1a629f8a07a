"""Events from files made fit for use: what cannot be is named, names are cleaned."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from headway.events import (
    ROWS,
    SCHEMA,
    AnyEvent,
    Begin,
    Close,
    Fault,
    Notice,
    Open,
    Span,
    Step,
    Unknown,
    span_category,
)
from headway.sources.columns import BOUND
from headway.sources.text import clean

_WALL_BOUND: Final = 1 << 63
_MOST: Final = 1 << 31
_COUNTS: Final = ("rank", "world_size", "devices")
_T = TypeVar("_T", bound=msgspec.Struct)


def flaw(event: AnyEvent | Unknown) -> str:
    """Return why an event cannot be true, or nothing.

    Example:
        >>> flaw(Span(category="evaluation", start=9, end=3))
        'it ends before it starts'
    """
    if isinstance(event, Unknown):
        return ""
    if any(abs(number) > _limit(name) for name, number in _numbers(event)):
        return "a number is out of range"
    if isinstance(event, Span | Step) and event.end < event.start:
        return "it ends before it starts"
    if isinstance(event, Step) and any(not 0 <= wait <= BOUND for wait in event.phases.values()):
        return "a wait is out of range"
    return ""


def _limit(name: str) -> int:
    return _WALL_BOUND if name == "wall_ns" else BOUND


def _numbers(event: AnyEvent) -> list[tuple[str, int]]:
    values = ((name, getattr(event, name)) for name in event.__struct_fields__)
    return [(name, value) for name, value in values if isinstance(value, int)]


def tidy(event: AnyEvent | Unknown) -> AnyEvent | Unknown:
    r"""Return the event with its names cleaned, and a span under the category it is booked in.

    Example:
        >>> tidy(Notice(name="\x1b[2Jpreemption", at=9)).name
        'preemption'
    """
    match event:
        case Begin() | Span():
            return _with(event, category=span_category(clean(event.category)))
        case Notice():
            return _with(event, name=clean(event.name))
        case Fault():
            return _with(event, what=clean(event.what), error=clean(event.error))
        case Close():
            return _with(event, reason=clean(event.reason))
    return event


def tidy_open(event: Open) -> tuple[Open, list[str]]:
    """Return the open event made fit for use, and what was wrong with it, a sentence each.

    Example:
        >>> tidy_open(Open(wall_ns=1, mono_ns=0, devices=0))[1]
        ['its devices, 0, cannot be; 1 is assumed']
    """
    wrong = []
    if event.schema > SCHEMA:
        wrong.append(f"it is of schema {event.schema}, newer than {SCHEMA}: what is new in it is passed over")
    for name in _COUNTS:
        number, least = getattr(event, name), 0 if name == "rank" else 1
        if not least <= number < _MOST:
            wrong.append(f"its {name.replace('_', ' ')}, {number}, cannot be; {least} is assumed")
            event = _with(event, **{name: least})
    if event.rows not in ROWS:
        wrong.append(f"its rows are {clean(event.rows)!r}, which is none of {', '.join(ROWS)}; steps are assumed")
        event = _with(event, rows="step")
    return _with(
        event,
        run=clean(event.run),
        attempt=clean(event.attempt),
        host=clean(event.host),
        accelerator=None if event.accelerator is None else clean(event.accelerator),
        phases=tuple(clean(phase) for phase in event.phases),
    ), wrong


def _with(event: _T, **fields: Any) -> _T:
    same = all(getattr(event, name) == value for name, value in fields.items())
    return event if same else msgspec.structs.replace(event, **fields)
