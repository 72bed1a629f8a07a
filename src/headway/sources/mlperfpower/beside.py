"""The power logs that lie beside a training log, where MLPerf's rules put them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import tzinfo
from pathlib import Path

from headway.ledger.history import Run
from headway.sources import files
from headway.sources.mlperfpower.source import LEFT_OUT, Meter, read, window, with_energy
from headway.sources.text import clean


def attach_beside(run: Run, path: Path, zone: tzinfo | None = None) -> Run:
    """Return a run with the energy that the power logs beside its training log tell; as it was where there are none.

    Where one of them cannot be read, or is a link, the energy is not known, and a warning names it.

    Args:
        run: A training run.
        path: Its log: ``result_0.txt`` has ``power/result_0/node_*.txt`` and ``sw_*.txt``.
        zone: As for `attach`.
    """
    logs, left_out = _logs(path)
    if not logs and not left_out:
        return run
    meters: list[Meter] = []
    warnings: list[str] = []
    span = window(run)
    for log in logs:
        try:
            found, said = read(log, zone, span)
        except OSError as error:
            left_out.append(_named(log, path, files.reason(error)))
            continue
        meters += found
        warnings += said
    if left_out:
        return replace(run, warnings=(*run.warnings, *warnings, _sentence(left_out)))
    return with_energy(run, meters, warnings)


def _logs(path: Path) -> tuple[list[Path], list[str]]:
    """Return the power logs beside a training log, and what is there but cannot be one, each with the reason."""
    power = path.parent / "power"
    try:
        for folder in (power, power / path.stem):
            if folder.is_symlink():
                return [], [_named(folder, path, files.LINK)]
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [_named(folder, path, files.reason(error))]
    logs = [folder / name for name in names if name.startswith(("node_", "sw_")) and name.endswith(".txt")]
    why = {log: files.why_not(log) for log in logs}
    return [log for log in logs if not why[log]], [_named(log, path, why[log]) for log in logs if why[log]]


def _named(log: Path, path: Path, why: str) -> str:
    return f"{clean(str(log.relative_to(path.parent)))} ({why})"


def _sentence(left_out: Sequence[str]) -> str:
    """Return what was left out, in a sentence.

    Example:
        >>> _sentence(["power (it is a link, which is not followed)"])
        'power beside it is left out, and its energy is unknown: power (it is a link, which is not followed)'
    """
    more = f"; and {len(left_out) - 3} more" if len(left_out) > 3 else ""
    return f"{LEFT_OUT}: {'; '.join(left_out[:3])}{more}"
