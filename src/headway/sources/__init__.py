"""Sources: logs that exist, read into events. One file or folder a source; ``docs/sources.md`` lists them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from pathlib import Path
from typing import Any

from headway.errors import ArgumentError, SourceError
from headway.sources.asked import Asked, Loaded
from headway.sources.folder import Folder, nothing_in
from headway.sources.native.source import Native, Opened, open_at
from headway.sources.registry import SOURCES, Source, choose, read, unreadable
from headway.sources.retold import told_once
from headway.sources.text import clean
from headway.sources.together import together
from headway.sources.zone import zone_of

__all__ = ["SOURCES", "Source", "load", "load_all"]

_MOST = 10**9
"""More devices than that there are nowhere."""


def load(
    path: str | os.PathLike[str],
    *,
    devices: int | None = None,
    source: str | None = None,
    capacity: int | None = None,
    mapping: str | os.PathLike[str] | None = None,
    zone: str | None = None,
) -> list[Any]:
    r"""Return what is at a path, in the order of the names: runs, pools of a scheduler, requests that were served.

    Args:
        path: A run's folder, a folder of runs, one attempt's folder, or any file a source knows.
        devices: The number of devices of each rank, >= 1; None for what the log says.
        source: The name of the source to use; None lets the content decide.
        capacity: The number of devices of a pool, >= 1; None for what the files say.
        mapping: A TOML file that tells what the columns of a table mean, see ``docs/sources/table.md``.
        zone: Of times that name none, such as ``Europe/Zurich`` or ``+02:00``; None reads them as UTC, with a warning.

    Returns:
        Each a `headway.ledger.history.Run`, `Pool` or `Served`.

    Raises:
        SourceError: There is nothing to read, or no source knows it.
        ArgumentError: An argument cannot be used.

    Example:
        >>> import tempfile
        >>> log = Path(tempfile.mkdtemp()) / "digits.jsonl"
        >>> lines = (
        ...     '{"kind":"open","run":"digits","attempt":"a0","wall_ns":1700000000000000000,"mono_ns":0}',
        ...     '{"kind":"step","step":0,"start":1000,"end":3000}',
        ... )
        >>> _ = log.write_text("\n".join(lines))
        >>> [(run.name, run.source, len(run.processes[0].rows)) for run in load(log)]
        [('digits', 'native', 1)]
    """
    return load_all([path], devices=devices, source=source, capacity=capacity, mapping=mapping, zone=zone)


def load_all(
    paths: Sequence[str | os.PathLike[str]],
    *,
    devices: int | None = None,
    source: str | None = None,
    capacity: int | None = None,
    mapping: str | os.PathLike[str] | None = None,
    zone: str | None = None,
) -> list[Any]:
    """Return what is at several paths, in the order of the paths, each once.

    Attempts of one native run that are given one by one are one run, as its folder would be; so are the files of one
    pool, such as its jobs and its nodes.

    Args:
        paths: As for `load`.
        devices: As for `load`.
        source: As for `load`.
        capacity: As for `load`.
        mapping: As for `load`.
        zone: As for `load`.

    Raises:
        SourceError: There is nothing to read at a path, or no source knows it.
        ArgumentError: An argument cannot be used.
    """
    _check_count("devices", "devices", devices)
    _check_count("capacity", "devices of a pool", capacity)
    asked = Asked(devices, capacity, None if mapping is None else Path(mapping), None if zone is None else _zone(zone))
    batches = list(_open_all([Path(path) for path in paths], asked, source))
    whole: dict[tuple[str, str], Opened] = {}
    for item in (item for batch in batches for item in batch if isinstance(item, Opened)):
        whole[item.key] = whole[item.key] + item if item.key in whole else item
    elsewhere = [path for item in whole.values() for path in item.elsewhere]
    found: list[Loaded] = []
    for batch in batches:
        first = [whole.pop(item.key, None) if isinstance(item, Opened) else item for item in batch]
        here = [item.run(devices) if isinstance(item, Opened) else item for item in first if _shown(item)]
        found += sorted((one for one in here if one is not None), key=lambda one: (one.name, one.path))
    if elsewhere and not found:
        raise _recorded_elsewhere(paths, elsewhere)
    return together(found if len(batches) == 1 else told_once(found))


def _check_count(name: str, what: str, count: object) -> None:
    if count is not None and (type(count) is not int or not 1 <= count <= _MOST):
        raise ArgumentError(
            f"Cannot count {count!r} {what}: it is no whole number from 1 to {_MOST}",
            f"Give the number of {what}, such as 8",
            "bad-devices",
            **{name: count},
        )


def _zone(name: str) -> tzinfo:
    try:
        return zone_of(name)
    except ValueError as error:
        raise ArgumentError(
            f"Cannot read times as of the zone {clean(str(name), 60)!r}: there is none of that name",
            "Give a name such as Europe/Zurich, or an offset such as +02:00",
            "no-such-zone",
            zone=name,
        ) from error


def _open_all(paths: Sequence[Path], asked: Asked, source: str | None) -> Iterator[Sequence[Loaded | Opened]]:
    """Yield what is at each path; files of a source that reads several together are with the first of them."""
    paths = _outermost(paths)
    chosen = [None if _is_folder(path) else choose(path, asked, source) for path in paths]
    by_source: dict[str, list[Path]] = {}
    for path, one in zip(paths, chosen, strict=True):
        if one is not None:
            by_source.setdefault(one.name, []).append(path)
    groups = {path: group for every in by_source.values() for group in _groups(every) for path in group}
    for path, one in zip(paths, chosen, strict=True):
        if one is None:
            yield _open_folder(path, asked, source)
        elif len(groups[path]) == 1 or (load_together := getattr(one, "load_together", None)) is None:
            yield _open(path, one, asked, source)
        elif path == groups[path][0]:
            yield load_together(groups[path], asked)


def _outermost(paths: Sequence[Path]) -> list[Path]:
    """Return the paths without repeated ones, and without what lies in a folder of logs that is one of them."""
    if len(paths) < 2:
        return list(paths)
    whole = [_place(path) for path in paths]
    folders = {place for place, path in zip(whole, paths, strict=True) if _is_walked(path)}
    found: dict[str, Path] = {}
    for place, path in zip(whole, paths, strict=True):
        if not any(str(above) in folders for above in Path(place).parents):
            found.setdefault(place, path)
    return list(found.values())


def _place(path: Path) -> str:
    """Return where a path leads; the path itself where that cannot be told."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):  # what is wrong with it is said when it is read
        return str(path)


def _is_walked(path: Path) -> bool:
    """Return whether it is a folder whose files are read each by its source."""
    return _is_folder(path) and Native().recognise(path, b"") is not None


def _groups(paths: Sequence[Path]) -> list[list[Path]]:
    """Return which files of one source say something of each other: those of a folder, if each has several, else all.

    Example:
        >>> [len(group) for group in _groups([Path("a/jobs"), Path("a/nodes"), Path("b/jobs"), Path("b/nodes")])]
        [2, 2]
        >>> [len(group) for group in _groups([Path("a/jobs"), Path("b/nodes")])]
        [2]
    """
    by_folder: dict[Path, list[Path]] = {}
    for path in paths:
        by_folder.setdefault(path.parent, []).append(path)
    return list(by_folder.values()) if min(map(len, by_folder.values())) > 1 else [list(paths)]


def _open(path: Path, chosen: Source, asked: Asked, source: str | None) -> Sequence[Loaded | Opened]:
    try:
        return open_at(path) if isinstance(chosen, Native) else read(path, chosen, asked, source)
    except OSError as error:  # it went away between the two
        raise unreadable(path, error) from error


def _open_folder(path: Path, asked: Asked, source: str | None) -> Sequence[Loaded | Opened]:
    if source in {None, Native.name}:
        why = Native().recognise(path, b"")
        if why is None:
            return open_at(path)
        if source is not None:
            raise nothing_in(path, why)
    return Folder(path, asked, source).read()


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # what is wrong with it is said when it is read
        return False


def _shown(item: Loaded | Opened | None) -> bool:
    """Return whether it is a run of its own: what its command recorded elsewhere is shown there."""
    return not (isinstance(item, Opened) and item.elsewhere)


def _recorded_elsewhere(paths: Sequence[str | os.PathLike[str]], elsewhere: Sequence[Path]) -> SourceError:
    shown = ", ".join(clean(os.fspath(path), 4096) for path in paths)
    others = ", ".join(clean(str(path), 4096) for path in dict.fromkeys(elsewhere))
    return SourceError(
        f"Cannot find a run in {shown}: what its commands recorded lies elsewhere, in {others}",
        "Give that path",
        "recorded-elsewhere",
        paths=[os.fspath(path) for path in paths],
        elsewhere=[str(path) for path in elsewhere],
    )
