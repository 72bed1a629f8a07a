"""What `headway run` saw of a command: where its processes recorded, and when it began and ended.

A process that records leaves ``recorded-<pid>.json`` in the folder of its launch. The file says
where its log lies; nothing is read there because of it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from headway.clock import NS_PER_S
from headway.events import Close, Open, Span
from headway.ledger.history import Process
from headway.sources import files

APART_NS: Final = NS_PER_S
"""So much may the clocks of a launcher and of its command differ; more, and they are not of one boot."""


class Pointer(msgspec.Struct, frozen=True):
    """Where a process of a launch recorded: the folder of its log, and who it was."""

    path: str
    run: str = ""
    attempt: str = ""
    rank: int = 0


def pointers(folder: Path) -> list[Pointer]:
    """Return what the processes of a launch left in its folder, in the order of the files' names.

    What is no regular file, no such object or no absolute path is passed over.

    Example:
        >>> pointers(Path("/no/such/launch"))
        []
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if _may_be_pointer(entry))
    except OSError:
        return []
    return [found for name in names if (found := _pointer(folder / name)) is not None]


def _may_be_pointer(entry: os.DirEntry[str]) -> bool:
    named = entry.name.startswith("recorded-") and entry.name.endswith(".json")
    return named and entry.is_file(follow_symlinks=False)


def _pointer(path: Path) -> Pointer | None:
    try:
        found = msgspec.json.decode(files.head(path), type=Pointer)
    except (OSError, ValueError, RecursionError):  # msgspec's errors are of ValueError
        return None
    return found if found.path.startswith("/") and "\0" not in found.path else None


def widen(processes: Sequence[Process], launches: Sequence[Process]) -> list[Process]:
    """Return the processes with the time that only their launcher saw.

    Each begins with its launch: what lies before its own open line is startup. The last of each
    rank ends with the command, where it wrote no end of its own or did not know of its failure.

    Args:
        processes: What recorded itself.
        launches: What `headway run` wrote of the same run.
    """
    found = [_launch_of(process, launches) for process in processes]
    last: dict[tuple[int, int], Process] = {}
    for process, launch in zip(processes, found, strict=True):
        before = last.setdefault((id(launch), process.open.rank), process)
        if process.open.wall_ns > before.open.wall_ns:
            last[id(launch), process.open.rank] = process
    result = []
    for process, launch in zip(processes, found, strict=True):
        if launch is None:
            result.append(process)
            continue
        begun = _begun(process, launch) if process.open.attempt == launch.open.attempt else process
        result.append(_ended(begun, launch) if last[id(launch), process.open.rank] is process else begun)
    return result


def _launch_of(process: Process, launches: Sequence[Process]) -> Process | None:
    """Return the launch a process belongs to: of its attempt and its host, by preference of its rank."""
    mine = process.open
    found = [
        launch for launch in launches if _is_of(mine.attempt, launch.open.attempt) and _same_boot(mine, launch.open)
    ]
    return min(found, key=lambda launch: (launch.open.rank != mine.rank, launch.open.rank), default=None)


def _is_of(attempt: str, launch: str) -> bool:
    """Return whether an attempt is a launch's, or what that became where the name was taken or restarted within."""
    return attempt == launch or attempt.startswith(f"{launch}.")


def _same_boot(one: Open, other: Open) -> bool:
    apart = (one.wall_ns - one.mono_ns) - (other.wall_ns - other.mono_ns)
    return bool(one.host) and one.host == other.host and abs(apart) <= APART_NS


def _begun(process: Process, launch: Process) -> Process:
    mine, began = process.open, launch.open
    if began.mono_ns >= mine.mono_ns:
        return process
    opened = msgspec.structs.replace(mine, wall_ns=began.wall_ns, mono_ns=began.mono_ns, age_ns=None)
    before = Span(category="startup", start=began.mono_ns, end=mine.mono_ns)
    return replace(process, open=opened, events=(before, *process.events))


def _ended(process: Process, launch: Process) -> Process:
    """Give a process the end its launcher saw: it was killed, or closed in good faith and then failed."""
    end = next((event for event in launch.events if isinstance(event, Close)), None)
    own = [event.reason for event in process.events if isinstance(event, Close)]
    if end is None or end.at < process.open.mono_ns or (own and (own != ["finished"] or end.reason == "finished")):
        return process
    return replace(process, events=(*process.events, end))
