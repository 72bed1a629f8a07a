"""Sources: logs that exist, read into events. One file a source; ``docs/sources.md`` lists them."""

from __future__ import annotations

import os
from pathlib import Path

from headway.errors import ArgumentError
from headway.ledger.history import Run
from headway.sources.registry import SOURCES, Source, recognise, unreadable

__all__ = ["SOURCES", "Source", "load"]


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
    if devices is not None and (type(devices) is not int or devices < 1):
        raise ArgumentError(
            f"Cannot count {devices!r} devices: it is no whole number above zero",
            "Give the number of devices, such as 8",
            "bad-devices",
            devices=devices,
        )
    where = Path(path)
    try:
        runs = recognise(where, source).load(where, devices)
    except OSError as error:  # it went away between the two
        raise unreadable(where, error) from error
    return sorted(runs, key=lambda run: (run.name, run.path))
