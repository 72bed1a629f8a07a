"""Entries of a Cloud Logging export: one a line, in one JSON array, or one after the other."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from headway.sources import files
from headway.sources.again import Again
from headway.sources.text import Complaints

STEP: Final = "step_start"
BEGIN: Final = "job_start"
DONE: Final = "job_end"
LOAD: Final = "data_loading"
_INTERVALS: Final = ("tpu_init", "training_prep", "elastic_reinit", "elastic_wait")
MOMENTS: Final = (*(f"{name}_{side}" for name in (LOAD, *_INTERVALS) for side in ("start", "end")), BEGIN, DONE)
"""What is told by the moment at which it began or ended."""
_PARTS: Final = {
    "checkpoint_save": ("checkpoint_manager_blocking", "checkpointer_blocking"),
    "checkpoint_restore": ("checkpoint_manager", "checkpointer"),
}
"""What Orbax times of a save and of a restore: as a whole, and the greatest part of it."""
_CHECKPOINTS: Final = {
    "save": "checkpoint_save",
    "restore": "checkpoint_restore",
    "emergency_restore": "checkpoint_restore",
}
_PIECE: Final = 1 << 20
_BETWEEN: Final = re.compile(r"[\s,\[\]\x00\ufeff]*")
_NEXT: Final = re.compile(r"[\n,][^\S\n]*\{")
_json: Final = json.JSONDecoder()

_Payload: Any = msgspec.defstruct(
    "_Payload",
    [
        ("job_name", str | None, None),
        *((f"{name}_time", float | None, None) for name in (*MOMENTS, STEP)),
        ("step_count", float | None, None),
        ("custom_badput_event_type", str, "unknown"),
        ("custom_badput_event_start_time", float | None, None),
        ("custom_badput_event_end_time", float | None, None),
        ("event_type", str | None, None),
        *(
            (f"{part}_{what}", float | None, None)
            for part in chain(*_PARTS.values())
            for what in ("start_time", "duration_secs")
        ),
        ("elastic_slice_counts_timestamp", float | None, None),
        ("active_slices", float | None, None),
        ("total_slices", float | None, None),
    ],
)
_Entry: Any = msgspec.defstruct("_Entry", [("jsonPayload", _Payload | None, None)])
_decode_entry: Final[Callable[[bytes], Any]] = msgspec.json.Decoder(_Entry).decode
_decode_payload: Final[Callable[[bytes], Any]] = msgspec.json.Decoder(_Payload).decode


def begins_with_entry(head: bytes) -> bool:
    """Return whether this is the beginning of a file whose first value is an object, in a list or not."""
    text = head.decode("utf-8", "replace")
    return text.startswith("{", _BETWEEN.match(text).end())  # type: ignore[union-attr]  # it matches anything


def whole(head: bytes) -> Iterator[Any]:
    """Yield the entries that are whole in the beginning of a file."""
    return (entry for _, entry in _objects(iter([head.decode("utf-8", "replace")]), Complaints("")))


def has_time(entry: Any) -> bool:
    """Return whether an entry tells when something was."""
    return any(getattr(entry, f"{name}_time") is not None for name in (*MOMENTS, STEP, "custom_badput_event_start"))


def checkpoint(entry: Any) -> tuple[str, float, float] | None:
    """Return what Orbax says of a save or restore: the category, since when [s since the Unix epoch] and for how long.

    None where the entry is of neither.

    Raises:
        ValueError: It does not say when it was.
    """
    category = _CHECKPOINTS.get(entry.event_type or "")
    if category is None:
        return None
    for part in _PARTS[category]:
        start, took = getattr(entry, f"{part}_start_time"), getattr(entry, f"{part}_duration_secs")
        if start is not None and took is not None:
            if took < 0:
                raise ValueError("it took less than no time")
            return category, start, took
    raise ValueError(f"a {entry.event_type} that does not say when it was")


def entries(path: Path, bad: Complaints) -> Iterator[tuple[int, Any]]:
    """Yield the line and the entry of each object in a file: JSON lines at full speed, all else as it comes."""
    with files.plain(path) as file:
        line = file.readline(files.MAX_LINE)
        while line and not line.strip():
            line = file.readline(files.MAX_LINE)
    try:
        _payload(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        yield from _objects(_text(path), bad)
        return
    for number, line in files.lines(path):
        try:
            entry = _payload(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if line.strip(b" \t\r\n,[]\0"):
                bad.add("no entry, left out", number, str(error))
            continue
        yield number, entry


def _payload(line: bytes) -> Any:
    """Return what an entry says, or the line where that is all of it."""
    payload = _decode_entry(line).jsonPayload
    return _decode_payload(line) if payload is None else payload


def _text(path: Path) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    with files.plain(path) as file:
        while piece := file.read(_PIECE):
            yield decoder.decode(piece)


def _objects(pieces: Iterator[str], bad: Complaints) -> Iterator[tuple[int, Any]]:
    """Yield the objects in a text one after the other, whatever lies between; what is broken is passed over."""
    text, at, more = "", 0, True
    line, counted, gone = 1, 0, 0
    again = Again()
    while True:
        if more and len(text) - at < _PIECE:
            piece = next(pieces, None)
            more = piece is not None
            line += text.count("\n", counted, at)
            gone += at
            text, at, counted = text[at:] + (piece or ""), 0, 0
            continue
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it matches anything
        if at >= len(text):
            if not more:
                return
            continue
        line += text.count("\n", counted, at)
        counted = at
        try:
            found, at = _json.raw_decode(text, at)
            entry = msgspec.convert(found, _Entry).jsonPayload
            if entry is None:
                entry = msgspec.convert(found, _Payload)
        except (ValueError, RecursionError) as error:  # a ValidationError is a ValueError
            odd = not isinstance(error, msgspec.ValidationError)  # then nothing was read, and `at` stands still
            bad.add("no entry, left out", line, "its JSON is malformed" if odd else str(error))
            if odd:
                following = _NEXT.search(text, again.after(text, at, error, gone))
                if again.skipped:
                    bad.add(
                        "broken after much that was read for nothing, left out with all that begins inside it", line
                    )
                at = following.end() - 1 if following else len(text)
            continue
        yield line, entry
