"""What can be said of a table that no mapping fits: which column is missing, and a mapping to start from."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

from headway.sources.table.mapping import Mapping
from headway.sources.table.records import DELIMITERS, fields
from headway.sources.text import clean

_WORDS: Final = {
    "id": r"(job|task|pod|run)?_?(id|name|number|nr)|job",
    "submit": r"submi\w*|queued|creat\w*|arriv\w*|request\w*",
    "start": r"start\w*|beg[aiu]n\w*|scheduled|launch\w*",
    "end": r"end\w*|finish\w*|stop\w*|complet\w*|delet\w*",
    "devices": r"(n|num|n_?of|alloc|req)?_?(gpu|device|accelerator|npu|tpu|chip|card)s?_?(num|count|n)?",
    "duration": r"duration|elapsed|run_?time|wall_?time|took",
    "state": r"\w*(state|status)|phase|outcome|result",
    "user": r"user\w*|owner",
    "account": r"account|project|group|team",
    "partition": r"partition|queue|vc|cluster|pool",
}
"""By what a column is, names that it goes by."""
_MUST: Final = ("start", "end", "devices")
_TIMES: Final = re.compile(r"(_?(time|date|at|ts|timestamp))+")
_LOOKED_AT: Final = 5
_FEWEST: Final = 4
_MOST_NAMES: Final = 40


def header(head: bytes) -> tuple[str, ...]:
    r"""Return the names of the columns of what looks like a table with a header; nothing where it does not.

    Args:
        head: The beginning of a file.

    Example:
        >>> header(b"Job;Begin;End;GPUs\n1;2024-01-01;2024-01-02;8\n")
        ('Job', 'Begin', 'End', 'GPUs')
    """
    lines = head[: 1 << 14].decode("utf-8", "replace").splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("#")][:_LOOKED_AT]
    best: tuple[str, ...] = ()
    for delimiter in DELIMITERS:
        names, *rows = [fields(line, delimiter) for line in lines] or [()]
        plain = all(name and not name[0].isdigit() and len(name) < _MOST_NAMES for name in names)
        if len(names) > max(len(best), _FEWEST - 1) and plain and len({*names}) == len(names):
            best = names if rows and all(len(row) == len(names) for row in rows[:-1] or rows) else best
    return best


def beginning(names: Iterable[str]) -> str:
    """Return the line of a mapping that names the columns, as far as their names tell what they are.

    Example:
        >>> beginning(["JobID", "Start Time", "End Time", "GPUs"])
        'columns = {id = "JobID", start = "Start Time", end = "End Time", devices = "GPUs"}'
    """
    found = _guessed(names)
    told = {what: found.get(what, "?") for what in _WORDS if what in found or what in _MUST}
    if "duration" in found and "end" not in found:
        del told["end"]
    return f"columns = {{{', '.join(f'{what} = {_quoted(name)}' for what, name in told.items())}}}"


def _guessed(names: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        word = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        short = _TIMES.sub("", word) or word
        for what, words in _WORDS.items():
            if what not in found and any(re.fullmatch(words, one) for one in (word, short)):
                found[what] = name
                break
    return found


def missing(head: bytes, mapping: Mapping) -> str:
    """Return which of the columns that a mapping wants is not in the line that has most of them.

    Args:
        head: The beginning of a file.
        mapping: That does not fit it.
    """
    wanted = mapping.wanted()
    delimiters = (mapping.delimiter,) if mapping.delimiter else DELIMITERS
    lines = [line for line in head.decode("utf-8", "replace").split("\n") if line.strip()]
    every = [fields(line, delimiter) for delimiter in delimiters for line in lines if delimiter in line]
    best = max(every, key=lambda names: len({*names} & {*wanted}), default=())
    if not {*best} & {*wanted}:
        names = ", ".join(map(_shown, wanted))
        return f"no line near its beginning names the columns of the mapping {mapping.name}: {clean(names, 400)}"
    gone = [name for name in wanted if name not in best]
    near = [close for name in gone for close in difflib.get_close_matches(name, best, 1)]
    hint = f"; it has {', '.join(map(_shown, near))}" if near else f"; it has {', '.join(map(_shown, best))}"
    return f"it has no column {', '.join(map(_shown, gone))}, which the mapping {mapping.name} names{clean(hint, 400)}"


def _shown(name: str) -> str:
    return repr(clean(name, 60))


def _quoted(name: str) -> str:
    return json.dumps(clean(name, 60), ensure_ascii=False)


def offer(names: Sequence[str]) -> str:
    """Return how to begin a mapping of columns; nothing where none of them looks like one of jobs."""
    if not _guessed(names).keys() & {"submit", *_MUST}:
        return ""
    return f"; begin one with the line {beginning(names)}, its names corrected, and see docs/sources/table.md"
