"""Sources: logs that exist, read into events. One file a source; ``docs/sources.md`` lists them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headway.errors import ArgumentError, SourceError
from headway.ledger.history import Run
from headway.sources.native import Native, Opened, open_at
from headway.sources.registry import SOURCES, Source, recognise, unreadable
from headway.sources.text import clean

__all__ = ["SOURCES", "Source", "load", "load_all"]


def load(path: str | os.PathLike[str], *, devices: int | None = None, source: str | None = None) -> list[Run]:
    r"""Return the runs at a path, in the order of their names.

    Args:
        path: A run's folder, a folder of runs, one attempt's folder, or any file a source knows.
        devices: The number of devices of each rank, >= 1; None for what the log says.
        source: The name of the source to use; None lets the content decide.

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
    return load_all([path], devices=devices, source=source)


def load_all(
    paths: Sequence[str | os.PathLike[str]], *, devices: int | None = None, source: str | None = None
) -> list[Run]:
    """Return the runs at several paths, in the order of the paths, each once.

    Attempts of one native run that are given one by one are one run, as its folder would be.

    Args:
        paths: As for `load`.
        devices: As for `load`.
        source: As for `load`.

    Raises:
        SourceError: There is nothing to read at a path, or no source knows it.
        ArgumentError: An argument cannot be used.
    """
    if devices is not None and (type(devices) is not int or devices < 1):
        raise ArgumentError(
            f"Cannot count {devices!r} devices: it is no whole number above zero",
            "Give the number of devices, such as 8",
            "bad-devices",
            devices=devices,
        )
    batches = [_open(Path(path), devices, source) for path in paths]
    whole: dict[tuple[str, str], Opened] = {}
    for item in (item for batch in batches for item in batch if isinstance(item, Opened)):
        whole[item.key] = whole[item.key] + item if item.key in whole else item
    elsewhere = [path for item in whole.values() for path in item.elsewhere]
    runs: list[Run] = []
    for batch in batches:
        first = [whole.pop(item.key, None) if isinstance(item, Opened) else item for item in batch]
        here = [item.run(devices) if isinstance(item, Opened) else item for item in first if _shown(item)]
        runs += sorted((run for run in here if run is not None), key=lambda run: (run.name, run.path))
    if elsewhere and not runs:
        raise _recorded_elsewhere(paths, elsewhere)
    return runs


def _open(path: Path, devices: int | None, source: str | None) -> Sequence[Run | Opened]:
    chosen = recognise(path, source)
    try:
        return open_at(path) if isinstance(chosen, Native) else chosen.load(path, devices)
    except OSError as error:  # it went away between the two
        raise unreadable(path, error) from error


def _shown(item: Run | Opened | None) -> bool:
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
