"""A folder of logs: each file read by the source that knows it, and what was left aside."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from headway.errors import SourceError
from headway.ledger.history import Pool, Run
from headway.ledger.jobs import UNTOLD, Jobs
from headway.sources import files
from headway.sources.asked import Asked, Loaded
from headway.sources.files import reason
from headway.sources.native.source import Native, below
from headway.sources.registry import Source, choose, read
from headway.sources.retold import told_once
from headway.sources.text import clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_FILES: Final = 10_000
"""More files than that are no folder of logs."""
MAX_DEPTH: Final = 8
_SAID: Final = 5
_NAMED: Final = 3
_UNKNOWN: Final = "no source knows it"


def files_in(folder: Path, passed: list[tuple[Path, str]] | None = None) -> Iterator[Path]:
    """Yield the regular files below a folder in the order of their names.

    Links are not followed, hidden names are passed over, and at most `MAX_FILES` files are looked
    at, `MAX_DEPTH` folders deep.

    Args:
        folder: The folder.
        passed: Takes what is passed over, but for hidden names, and why.
    """
    left = MAX_FILES
    aside = [] if passed is None else passed

    def below(place: Path, depth: int) -> Iterator[Path]:
        nonlocal left
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError as error:
            aside.append((place, reason(error)))
            return
        for entry in entries:
            path = Path(entry.path)
            if entry.name.startswith("."):
                continue
            if entry.is_dir(follow_symlinks=False):
                if depth < MAX_DEPTH:
                    yield from below(path, depth + 1)
                else:
                    aside.append((path, f"more than {MAX_DEPTH} folders deep"))
            elif not entry.is_file(follow_symlinks=False):
                aside.append((path, "a link, which is not followed" if entry.is_symlink() else "no file"))
            elif left > 0:
                left -= 1
                yield path
            else:
                aside.append((path, f"beyond the first {MAX_FILES} files"))

    yield from below(folder, 0)


def twins(paths: Iterable[Path]) -> dict[Path, Path]:
    """Return the files whose bytes are those of one before, each with that; empty ones have none."""
    by_size: dict[int, list[Path]] = {}
    for path in paths:
        with suppress(OSError):
            by_size.setdefault(path.stat().st_size, []).append(path)
    found: dict[Path, Path] = {}
    for size, alike in by_size.items():
        first: dict[bytes, Path] = {}
        for path in alike if size and len(alike) > 1 else ():
            with suppress(OSError), files.regular(path) as fd, open(fd, "rb", closefd=False) as file:
                other = first.setdefault(hashlib.file_digest(file, "blake2b").digest(), path)
                if other is not path:
                    found[path] = other
    return found


_FAR_APART: Final = 0x9E3779B97F4A7C1
"""An odd number whose small multiples have few bits in common."""


class _Part(NamedTuple):
    """What the files of one source in one folder hold."""

    source: Source
    paths: list[Path]
    found: list[Loaded]


class Folder:
    """The files below a folder, each read by the source that knows it.

    Args:
        path: The folder.
        asked: What the reader says of what is in it.
        source: The name of the one source to use; None lets the content of each file decide.
    """

    def __init__(self, path: Path, asked: Asked, source: str | None = None) -> None:
        self._path = path
        self._asked = asked
        self._source = source
        self._found: list[Loaded] = []
        self._aside: list[tuple[Path, str]] = []
        self._refused: list[SourceError] = []
        self._beside: set[Path] = set()

    def read(self) -> list[Loaded]:
        """Return what its files hold, with a word on those that were left aside; nothing of native logs.

        Raises:
            SourceError: No source knows a file in it, or none of those can be used.
        """
        power = []
        parts: list[_Part] = []
        for (_, name), each in self._known().items():
            if name == Native.name:
                self._aside += [(path, "a log of Headway: give its folder") for _, path in each]
            elif name == "mlperfpower":
                power += [path for _, path in each]  # it is of the runs beside it
            else:
                paths = [path for _, path in each]
                parts.append(_Part(each[0][0], paths, self._load(each[0][0], paths)))
        self._found = self._joined(parts)
        self._aside = [pair for pair in dict.fromkeys(self._aside) if pair[0] not in self._beside]
        if not self._found:
            why = left_aside(self._aside, self._path) or "there is no file in it"
            raise nothing_in(self._path, why, self._refused[0].next_step if self._refused else None)
        if power:
            self._attach(power)
        found = told_once(self._found)  # before one that stays is told what was left aside
        if said := left_aside(self._aside, self._path):
            found[0] = replace(found[0], warnings=(*found[0].warnings, said))
        return found

    def _known(self) -> dict[tuple[Path, str], list[tuple[Source, Path]]]:
        """Return the files that a source knows, by their folder and its name; of those with the same bytes one."""
        known: dict[tuple[Path, str], list[tuple[Source, Path]]] = {}
        paths = list(files_in(self._path, self._aside))
        same = twins(paths)
        for path in paths:
            try:
                chosen = choose(path, self._asked, self._source)
            except SourceError as error:
                self._aside.append((path, _why_not(error)))
                continue
            together = hasattr(chosen, "load_together")  # its files may say something of others, in each folder
            if path in same and not (together and same[path].parent != path.parent):
                self._aside.append((path, f"the same as {clean(str(same[path].relative_to(self._path)))}"))
            else:
                known.setdefault((path.parent, chosen.name), []).append((chosen, path))
        return known

    def _load(self, source: Source, paths: list[Path]) -> list[Loaded]:
        """Read the files of one source in one folder: together, where it knows what they say of each other."""
        self._beside.update(path.with_name(name) for path in paths for name in getattr(source, "beside", ()))
        left = list(paths)
        while len(left) > 1 and (load_together := getattr(source, "load_together", None)) is not None:
            try:
                return list(load_together(left, self._asked))
            except SourceError as error:
                bad = [path for path in left if clean(str(path), 4096) == error.details.get("path")]
                if not bad:
                    break  # each alone says which
                self._refuse(bad[0], error)
                left.remove(bad[0])
            except Exception:  # noqa: BLE001 - each alone says which
                break
        found: list[Loaded] = []
        for path in left:
            try:
                found += read(path, source, self._asked, self._source)
            except SourceError as error:
                self._refuse(path, error)
            except OSError as error:
                self._aside.append((path, reason(error)))
            except Exception as error:  # noqa: BLE001 - a defect in reading one file is no reason to lose the others
                what = clean(f"{type(error).__name__}: {error}", 200)
                self._aside.append((path, f"the source {source.name} failed, which is a defect of it: {what}"))
        return found

    def _refuse(self, path: Path, error: SourceError) -> None:
        self._refused.append(error)
        self._aside.append((path, _why_not(error)))

    def _joined(self, parts: list[_Part]) -> list[Loaded]:
        """Return what was found; pools of several folders that tell the same jobs are read as one."""
        groups: list[tuple[list[_Part], NDArray[np.int64]]] = []
        for part in parts:
            keys = _keys(part.found) if hasattr(part.source, "load_together") else np.zeros(0, np.int64)
            same = [group for group in groups if group[0][0].source is part.source and np.isin(group[1], keys).any()]
            groups = [group for group in groups if all(group is not one for one in same)]
            members = [one for group, _ in same for one in group]
            groups.append(([*members, part], np.concatenate([keys, *(told for _, told in same)])))
        found: list[Loaded] = []
        for members, _ in groups:
            first = members[0]
            paths = [path for one in members for path in one.paths]
            found += first.found if len(members) == 1 else self._load(first.source, paths)
        return found

    def _attach(self, power: list[Path]) -> None:
        """Give the MLPerf run the energy that power logs tell which do not lie where it looks for its own."""
        logs = [Path(one.path) for one in self._found if isinstance(one, Run) and one.source == "mlperf"]
        own = {log.parent / "power" / log.stem for log in logs}
        power = [path for path in power if path.parent not in own]
        lacking = [
            (place, one)
            for place, one in enumerate(self._found)
            if isinstance(one, Run) and one.source == "mlperf" and one.energy_j is None
        ]
        if len(lacking) != 1:
            why = "there is no MLPerf training log beside it" if not lacking else "it does not say of which of the runs"
            self._aside += [(path, f"a power log, and {why}") for path in power]
            return
        from headway.sources.mlperfpower.source import attach

        ((place, run),) = lacking
        try:
            self._found[place] = attach(run, power, self._asked.zone)
        except OSError as error:
            self._aside += [(path, reason(error)) for path in power]


def _keys(found: Sequence[Loaded]) -> NDArray[np.int64]:
    """Return a number for each job that began: equal where number, beginning and devices are."""
    every = [Jobs.of(pool.jobs) for pool in found if isinstance(pool, Pool)]
    told = [
        (jobs.ids.hashes() ^ jobs.column("start_ns") ^ (jobs.column("milli") * _FAR_APART))[
            jobs.column("start_ns") != UNTOLD
        ]
        for jobs in every
    ]
    return np.concatenate([np.zeros(0, np.int64), *told])


def nothing_in(folder: Path, why: str, step: str | None = None) -> SourceError:
    """Return the error that says that no run is in a folder.

    Args:
        folder: The folder.
        why: What is in it instead.
        step: What to do; None: to give what holds one.
    """
    if step is None:
        step = "Give a run's folder, a folder of runs, or a log file"
        if deeper := below(folder):
            step = f"There is one in {clean(str(deeper), 4096)}: give that path"
    shown = clean(str(folder), 4096)
    return SourceError(f"Cannot find a run in {shown}: {why}", step, "no-runs", path=shown)


def left_aside(reasons: Sequence[tuple[Path, str]], folder: Path) -> str:
    """Return which files of a folder were not read, and why, in a sentence; empty where all were.

    Example:
        >>> left_aside([(Path("d/a"), "it is empty"), (Path("d/b"), "no one knows it"), (Path("d/c"), "it is empty")],
        ...            Path("d"))
        '3 files of d left aside: a, c (it is empty); b (no one knows it)'
    """
    if not reasons:
        return ""
    by_why: dict[str, list[str]] = {}
    for path, why in sorted(reasons, key=lambda pair: pair[1] == _UNKNOWN):  # what is known of most is said first
        by_why.setdefault(why, []).append(clean(str(path.relative_to(folder))))
    said = [f"{_listed(names)} ({why})" for why, names in list(by_why.items())[:_SAID]]
    more = "; and others" if len(by_why) > _SAID else ""
    number = f"{len(reasons)} files" if len(reasons) > 1 else "1 file"
    return f"{number} of {clean(str(folder), 4096)} left aside: {'; '.join(said)}{more}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _why_not(error: SourceError) -> str:
    """Return in few words why a file could not be read."""
    if error.slug == "unknown-source":
        is_table = "begin one" in error.details.get("reasons", {}).get("table", "")
        return "a table that no mapping fits: see it alone, and --mapping" if is_table else _UNKNOWN
    return error.what.rpartition(f"{error.details.get('path', '')}: ")[2]
