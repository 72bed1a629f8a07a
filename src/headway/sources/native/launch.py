"""What `headway run` saw of a command: where its processes recorded, and when it began and ended.

A process that records leaves ``recorded-<pid>.json`` in the folder of its launch, and so does a
launcher within it. The file says where a log lies. Whether one is there is looked at; nothing is
read there because of it.
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
from headway.sources.native.attempt import LAUNCH, holds_log

APART_NS: Final = NS_PER_S
"""So much may the clocks of a launcher and of its command differ; more, and they are not of one boot."""


class Pointer(msgspec.Struct, frozen=True):
    """Where a process of a launch recorded: the folder of its log, who it was, and whether it had begun one before."""

    path: str
    run: str = ""
    attempt: str = ""
    rank: int = 0
    later: bool = False


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


def recorded(folder: Path, moved: bool = True) -> list[Path]:
    """Return the folders of the logs that a launch's processes wrote and that are still there.

    A launcher within it stands for its processes, and for itself where those wrote none.

    Args:
        folder: The folder of the launch's log.
        moved: Whether a log counts, too, that lies from here as it lay from the launch: a folder of
            runs may have been moved or copied.

    Example:
        >>> recorded(Path("/no/such/launch"))
        []
    """
    return _followed(folder, moved, {folder})


def later_logs(folder: Path) -> list[Path]:
    """Return those logs of a launch that a process began after another, as `recorded` does."""
    found = (_where(Path(pointer.path), folder, True) for pointer in pointers(folder) if pointer.later)
    return [path for path in found if path is not None]


def _followed(folder: Path, moved: bool, seen: set[Path]) -> list[Path]:
    result: list[Path] = []
    for pointer in pointers(folder):
        path = _where(Path(pointer.path), folder, moved)
        if path is None or path in seen:
            continue
        seen.add(path)
        result += (path.name.endswith(LAUNCH) and _followed(path, moved, seen)) or [path]
    return result


def _where(path: Path, launch: Path, moved: bool) -> Path | None:
    here = (launch.parent / path.name, launch.parent.parent / path.parent.name / path.name) if moved else ()
    return next((there for there in (path, *here) if holds_log(there)), None)


def _may_be_pointer(entry: os.DirEntry[str]) -> bool:
    named = entry.name.startswith("recorded-") and entry.name.endswith(".json")
    return named and entry.is_file(follow_symlinks=False)


def _pointer(path: Path) -> Pointer | None:
    try:
        found = msgspec.json.decode(files.head(path), type=Pointer)
    except (OSError, ValueError, RecursionError):  # msgspec's errors are of ValueError
        return None
    if not found.path.startswith("/") or "\0" in found.path:
        return None
    return msgspec.structs.replace(found, later=path.stem.count("-") > 1)


def widen(processes: Sequence[Process], launches: Sequence[Process], later: Sequence[bool]) -> list[Process]:
    """Return the processes with the time that only their launcher saw.

    Each begins with its launch: what lies before its own open line is startup. The last of each
    rank ends with the command, where it wrote no end of its own or did not know of its failure.

    Args:
        processes: What recorded itself.
        launches: What `headway run` wrote of the same run.
        later: Whether each began a log before: that one has the time from the launch on.
    """
    found = [_launch_of(process, launches) for process in processes]
    last: dict[tuple[int, int], Process] = {}
    for process, launch in zip(processes, found, strict=True):
        before = last.setdefault((id(launch), process.open.rank), process)
        if process.open.wall_ns > before.open.wall_ns:
            last[id(launch), process.open.rank] = process
    result = []
    for process, launch, is_later in zip(processes, found, later, strict=True):
        if launch is None:
            result.append(process)
            continue
        begins = process.open.attempt == launch.open.attempt and not is_later
        begun = _begun(process, launch) if begins else process
        result.append(_ended(begun, launch) if last[id(launch), process.open.rank] is process else begun)
    return result


def _launch_of(process: Process, launches: Sequence[Process]) -> Process | None:
    """Return the launch a process belongs to: the latest of its attempt and host that it began in.

    One of its own rank comes first, and of equals the one of its very attempt.
    """
    mine = process.open

    def fit(launch: Process) -> tuple[bool, int, bool, int]:
        its = launch.open
        return its.rank == mine.rank, its.mono_ns, its.attempt == mine.attempt, -its.rank

    return max((launch for launch in launches if _began_in(mine, launch)), key=fit, default=None)


def _began_in(mine: Open, launch: Process) -> bool:
    its = launch.open
    if not _is_of(mine.attempt, its.attempt) or not _same_boot(mine, its) or its.mono_ns > mine.mono_ns:
        return False
    end = _end_of(launch)
    return end is None or end.at >= mine.mono_ns


def _end_of(process: Process) -> Close | None:
    return next((event for event in process.events if isinstance(event, Close)), None)


def _is_of(attempt: str, launch: str) -> bool:
    """Return whether an attempt is a launch's, or what that became where the name was taken or restarted within."""
    return attempt == launch or attempt.startswith(f"{launch}.")


def _same_boot(one: Open, other: Open) -> bool:
    apart = (one.wall_ns - one.mono_ns) - (other.wall_ns - other.mono_ns)
    return bool(one.host) and one.host == other.host and abs(apart) <= APART_NS


def _begun(process: Process, launch: Process) -> Process:
    mine, began = process.open, launch.open
    if began.mono_ns == mine.mono_ns:
        return process
    opened = msgspec.structs.replace(mine, wall_ns=began.wall_ns, mono_ns=began.mono_ns, age_ns=None)
    before = Span(category="startup", start=began.mono_ns, end=mine.mono_ns)
    return replace(process, open=opened, events=(before, *process.events))


def _ended(process: Process, launch: Process) -> Process:
    """Give a process the end its launcher saw: it was killed, or closed in good faith and then failed."""
    end = _end_of(launch)
    own = [event.reason for event in process.events if isinstance(event, Close)]
    if end is None or (own and (own != ["finished"] or end.reason == "finished")):
        return process
    return replace(process, events=(*process.events, end))
