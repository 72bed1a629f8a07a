"""Headway's own log: run folders of attempts, found on disk and put together as runs."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from headway.events import Unknown, decode
from headway.ledger.history import Process, Run
from headway.sources.asked import Asked
from headway.sources.native import jsonl, npy
from headway.sources.native.attempt import Attempt, holds_log, named_as_attempt
from headway.sources.native.launch import later_logs, recorded, widen
from headway.sources.text import clean

_LINES_TRIED = 50
_FOLDERS_TRIED = 100


@dataclass(frozen=True)
class Found:
    """A run that was found on disk.

    Attributes:
        path: What to call it in messages: its folder, or the one file or attempt that was given.
        name: Its name where its log tells none.
        attempts: The folders of its attempts, in the order of their names.
        links: Those that are links, which are not followed.
    """

    path: Path
    name: str
    attempts: tuple[Path, ...]
    links: tuple[Path, ...] = ()


class Native:
    """The source of Headway's own logs."""

    name = "native"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no log of Headway, or None when it is one."""
        if path.is_dir():
            return None if find(path) else f"no folder in it holds {jsonl.NAME} or {npy.NAME}"
        if path.name in {jsonl.NAME, npy.NAME} or any(_is_event(line) for line in head.splitlines()[:_LINES_TRIED]):
            return None
        return 'no line at its beginning is an event, such as {"kind":"open", ...}'

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the runs at a path: a root, a run, an attempt, or one file of it."""
        return [opened.run(asked.devices) for opened in open_at(path)]


@dataclass(frozen=True)
class Opened:
    """A run that was found, and its logs, read.

    Attributes:
        found: Where.
        logs: One a process or launch.
    """

    found: Found
    logs: tuple[Attempt, ...]

    @property
    def key(self) -> tuple[str, str]:
        """What tells runs apart: the folder that holds the attempts, or the only file, and the run's name."""
        first = self.found.attempts[0]
        home = os.path.dirname(os.path.abspath(first)) if first.is_dir() else first  # noqa: PTH100, PTH120
        names = (log.run_name for log in self.logs if log.run_name)
        return os.path.realpath(home), next(names, self.found.name)

    @property
    def elsewhere(self) -> list[Path]:
        """The folders of the runs that its commands recorded, where it holds nothing but their launch logs."""
        there = [recorded(log.path) if log.is_launch else [] for log in self.logs]
        mine = {os.path.realpath(log.path) for log in self.logs}
        if not all(there) or any(os.path.realpath(path) in mine for paths in there for path in paths):
            return []
        return list(dict.fromkeys(path.parent for paths in there for path in paths))

    def run(self, devices: int | None) -> Run:
        """Return the run; devices as for `headway.load`."""
        return assemble(self.found, self.logs, devices, final=True)

    def __add__(self, other: Opened) -> Opened:
        """Return both as one run, each of their logs once."""
        logs = {os.path.realpath(log.source): log for log in (*other.logs, *self.logs)}
        home = Path(self.key[0])
        attempts = (*self.found.attempts, *other.found.attempts)
        links = dict.fromkeys(link for link in (*self.found.links, *other.found.links) if link not in attempts)
        found = Found(home, home.name, attempts, tuple(links)) if home.is_dir() else self.found
        return Opened(found, tuple(logs.values()))


def open_at(path: Path) -> list[Opened]:
    """Return the runs at a path with their logs, read to their ends."""
    result = []
    for found in find(path):
        logs = tuple(attempt_at(folder, found.path) for folder in found.attempts)
        for log in logs:
            log.poll(through=True)
            log.finish()
        result.append(Opened(found, logs))
    return result


def find(path: Path) -> list[Found]:
    """Return the runs at a path, in the order of their folders' names."""
    if not path.is_dir():
        whole = path.name in {jsonl.NAME, npy.NAME}
        return [Found(path, _parent_name(path.parent) if whole else path.stem, (path.parent if whole else path,))]
    if holds_log(path):
        return [Found(path, _parent_name(path), (path,))]
    inside, links = _folders(path)
    if here := _run(path, inside, links):
        return [here]
    runs = [run for folder in inside if (run := _run(folder, *_folders(folder)))]
    left_out = _elsewhere(links, [run.path for run in runs])
    return [replace(run, links=(*run.links, *left_out)) if run is runs[0] else run for run in runs]


def below(path: Path) -> Path | None:
    """Return the first folder in a folder at which runs are found; None where there is none."""
    return next((folder for folder in _folders(path)[0][:_FOLDERS_TRIED] if find(folder)), None)


def _run(path: Path, inside: Sequence[Path], links: Sequence[Path]) -> Found | None:
    if not any(holds_log(folder) for folder in inside):
        return None
    attempts = [
        folder for folder in inside if holds_log(folder) or (named_as_attempt(folder) and not _folders(folder)[0])
    ]
    name = Path(os.path.abspath(path)).name  # noqa: PTH100  keeps a symlink's own name
    return Found(path, name, tuple(attempts), _elsewhere(links, [path, *attempts]))


def _elsewhere(links: Sequence[Path], folders: Sequence[Path]) -> tuple[Path, ...]:
    """Return the links that do not lead to one of some folders, which are read where they lie."""
    there = {os.path.realpath(folder) for folder in folders} if links else set()
    return tuple(link for link in links if os.path.realpath(link) not in there)


def _parent_name(attempt: Path) -> str:
    return Path(os.path.abspath(attempt)).parent.name  # noqa: PTH100


def _folders(path: Path) -> tuple[list[Path], list[Path]]:
    """Return the folders in a folder, and the links in it but those to files; none where it cannot be listed."""
    try:
        with os.scandir(path) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
            folders = [path / entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
            return folders, [path / entry.name for entry in found if entry.is_symlink() and not _is_file(entry)]
    except OSError:
        return [], []


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a loop of symbolic links
        return False


def _is_event(line: bytes) -> bool:
    try:
        return not isinstance(decode(line.removeprefix(b"\xef\xbb\xbf").strip(b"\0 \t")), Unknown)
    except (msgspec.DecodeError, RecursionError):
        return False


def attempt_at(path: Path, given: Path) -> Attempt:
    """Return the log of one attempt.

    Args:
        path: Its folder, or its only file.
        given: What the reader gave: a file of it may be a link then, and the others may not.
    """
    if path.is_dir():
        return Attempt(path, given=given.name if given.parent == path else "")
    return Attempt(path.parent, path.name, None, path.name)


def assemble(found: Found, logs: Sequence[Attempt], devices: int | None, *, final: bool) -> Run:
    """Return the run of these logs.

    Args:
        found: Where they were found.
        logs: One a process, and those that launchers wrote.
        devices: The number of devices of each rank; None for what the logs say.
        final: Whether the files are complete; else their ends are still being written.
    """
    processes: list[Process] = []
    warnings = [f"{clean(str(link), 4096)} is a link, which is not followed" for link in found.links]
    logs = sorted(logs, key=lambda log: (log.is_launch, *log.identity()))
    chosen: list[Attempt] = []
    launches: list[Process] = []
    homes: set[str] = set()
    later: set[str] = set()
    for log in logs:
        process = log.process(devices, final=final)
        if log.is_launch:
            there = {os.path.realpath(path) for path in recorded(log.path)}
            joined = not there.isdisjoint(homes) or (
                process is not None and any(other.open.attempt == process.open.attempt for other in processes)
            )
            if not joined and there:
                continue  # its command recorded itself, as another run
            later.update(map(os.path.realpath, later_logs(log.path)))
            warnings += _exit_note(log, process)
            if process is None or joined:
                launches += [process] if process else []
                continue
        if process is None:
            warnings += log.left_out(final=final) if final else []
            continue
        processes.append(process)
        chosen.append(log)
        homes.add(os.path.realpath(log.path))
    processes = widen(_told_apart(processes, chosen), launches, [os.path.realpath(log.path) in later for log in chosen])
    names = dict.fromkeys(process.open.run for process in processes if process.open.run)
    if len(names) > 1:
        warnings.append(f"its logs name {len(names)} runs, {', '.join(names)}; one folder is one run")
    name = next(iter(names), clean(found.name))
    return Run(name, "native", tuple(processes), clean(str(found.path), 4096), tuple(warnings))


def _told_apart(processes: Sequence[Process], logs: Sequence[Attempt]) -> list[Process]:
    """Return the processes; those that claim one attempt and rank are called as their folders are."""
    claims = Counter((process.open.attempt, process.open.rank) for process in processes)
    result = []
    for process, log in zip(processes, logs, strict=True):
        mine = process.open.attempt, process.open.rank
        if claims[mine] > 1 and mine != log.identity():
            attempt, rank = log.identity()
            text = (
                f"{log.name}: another log is of attempt {mine[0]} rank {mine[1]} too; this one is named by its folder"
            )
            opened = msgspec.structs.replace(process.open, attempt=attempt, rank=rank)
            result.append(replace(process, open=opened, warnings=(*process.warnings, text)))
        else:
            result.append(process)
    return result


def _exit_note(log: Attempt, process: Process | None) -> list[str]:
    code = log.exit_code()
    if not code:
        return []
    attempt = process.open.attempt if process else log.identity()[0]
    return [f"attempt {attempt}: the command {_ending(code)}"]


def _ending(code: int) -> str:
    """Return in words how a command ended.

    Example:
        >>> _ending(-9), _ending(3)
        ('was ended by SIGKILL', 'ended with exit code 3')
    """
    if code > 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
