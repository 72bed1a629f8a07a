"""Logs that tell what another log tells too: a job counts once, and what is left out for it is said."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.events import Span
from headway.ledger.history import Run
from headway.sources.asked import Loaded

_ALIKE: Final = 0.05
_ALIKE_NS: Final = 60 * NS_PER_S
"""Ranks of one job print a step within some share of its length, and begin within a minute [ns]."""
_CHECKPOINT: Final = re.compile(r"checkpoint-\d+")
_OWN: Final = 4
"""Steps of so many different lengths, to the nanosecond, are those of one run alone."""
_NO_CLOCK: Final = "as it tells the same training and has no clock"
_NEAR: Final = 0.8
"""What TensorBoard's files tell goes through that share of the steps of a state or a table, or more."""


def told_once(found: Sequence[Loaded]) -> list[Loaded]:
    """Return what was found without the runs whose log tells what another one tells.

    * A file may lie there twice, as a copy or packed; JAX writes its trace under two names.
    * A trainer's state is saved with each checkpoint: the last one has the steps and evaluations of those before.
    * A trainer writes TensorBoard's files below its folder or beside its table: they have a clock, and it has none.
    """
    runs = [one for one in found if isinstance(one, Run)]
    if len(runs) < 2:
        return list(found)
    kept: dict[int, Any] = {id(one): one for one in found}
    left: dict[tuple[int, str], list[str]] = {}
    for one, other, why in (*_copies(runs), *_earlier_states(runs), *_without_clock(runs)):
        if id(one) in kept and id(other) in kept:
            left.setdefault((id(other), why), []).append(kept.pop(id(one)).path)
            if why == _NO_CLOCK:  # called as the folder that the trainer was told to write to
                kept[id(other)] = replace(kept[id(other)], name=one.name)
    for (number, why), paths in left.items():
        if number in kept:
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            kept[number] = _and_said(kept[number], f"left out, {why}: {paths[0]}{more}")
    return list(kept.values())


def told_by_ranks(runs: Sequence[Run]) -> list[Run]:
    """Return runs without those whose log tells the same whole job as another: each rank of a job may print it."""
    kept: list[Run] = []
    for run in runs:
        first = next((number for number, other in enumerate(kept) if _same_job(other, run)), None)
        if first is None:
            kept.append(run)
        else:
            kept[first] = _and_said(kept[first], f"{run.path} tells the same job as {kept[first].path}: it counts once")
    return kept


def _and_said(run: Run, text: str) -> Run:
    return replace(run, warnings=(*run.warnings, text))


def _same_job(one: Run, other: Run) -> bool:
    """Return whether two logs tell the same steps of the same devices at the same time."""
    if one.source != other.source or not len(one.processes) == len(other.processes) == 1:
        return False
    (mine,), (theirs,) = one.processes, other.processes
    if mine.open.devices < 2 or (mine.open.devices, mine.open.rank) != (theirs.open.devices, theirs.open.rank):
        return False
    if len(mine.rows) < 2 or not np.array_equal(mine.rows.step, theirs.rows.step):
        return False
    apart_ns = abs(mine.open.wall_ns - theirs.open.wall_ns)
    took, takes = (rows.end - rows.start for rows in (mine.rows, theirs.rows))
    return apart_ns < _ALIKE_NS and bool(np.allclose(took, takes, rtol=_ALIKE))


def _copies(runs: Sequence[Run]) -> Iterator[tuple[Run, Run, str]]:
    """Yield the runs that tell the same to the nanosecond as one before, each with that."""
    first: dict[bytes, Run] = {}
    for run in runs:
        if _is_its_own(run) and (other := first.setdefault(_digest(run), run)) is not run:
            yield run, other, "as it tells the same to the nanosecond"


def _is_its_own(run: Run) -> bool:
    """Return whether a run tells enough that no other one would tell the same by chance."""
    took = [rows.end - rows.start for rows in (process.rows for process in run.processes)]
    lengths = np.unique(np.concatenate([np.zeros(0, np.int64), *took]))
    has_clock = any(process.open.wall_ns for process in run.processes)
    return len(lengths) >= _OWN or (has_clock and len(lengths) > 0)


def _digest(run: Run) -> bytes:
    told = blake2b(run.source.encode())
    for process in run.processes:
        opened, rows = process.open, process.rows
        told.update(repr((opened.attempt, opened.rank, opened.devices, opened.wall_ns, process.events)).encode())
        for column in (rows.step, rows.start, rows.end, *rows.waits.values()):
            told.update(np.ascontiguousarray(column).data)
    return told.digest()


def _earlier_states(runs: Sequence[Run]) -> Iterator[tuple[Run, Run, str]]:
    """Yield the states of a trainer that a later one of the same folder goes on from, each with the next."""
    by_home: dict[Path, list[Run]] = {}
    for run in runs:
        if run.source == "hftrainer":
            by_home.setdefault(home_of(Path(run.path)), []).append(run)
    for states in by_home.values():
        states.sort(key=lambda run: (len(_steps(run)), len(_evaluations(run))))
        for place, one in enumerate(states):
            later = (other for other in reversed(states[place + 1 :]) if _goes_on(one, other))
            if (other := next(later, None)) is not None:
                yield one, other, "as an earlier state of the same training"


def home_of(path: Path) -> Path:
    """Return the folder that a trainer was told to write to, of a file in it or with a checkpoint of its.

    Example:
        >>> home_of(Path("out/checkpoint-500/trainer_state.json")), home_of(Path("out/trainer_state.json"))
        (PosixPath('out'), PosixPath('out'))
    """
    return path.parent.parent if _CHECKPOINT.fullmatch(path.parent.name) else path.parent


def _without_clock(runs: Sequence[Run]) -> Iterator[tuple[Run, Run, str]]:
    """Yield what has no clock where TensorBoard's files of the same training are in or below its folder."""
    by_home: dict[Path, list[Run]] = {}
    for run in runs:
        if run.source in {"hftrainer", "lightning"}:
            by_home.setdefault(home_of(Path(run.path)), []).append(run)
    for events in runs:
        if events.source == "tensorboard":
            parents = Path(events.path).parents
            for parent in parents:
                for run in by_home.get(parent, ()):
                    near = run.source == "hftrainer" or parent == parents[0]
                    if near and _as_far(_steps(events), _steps(run)):
                        yield run, events, _NO_CLOCK


def _as_far(steps: Sequence[int], of: Sequence[int]) -> bool:
    """Return whether steps go as far as others, about."""
    if not steps or not of:
        return False
    return _NEAR * max(of) <= max(steps) <= max(of) / _NEAR


def _steps(run: Run) -> list[int]:
    return [step for process in run.processes for step in process.rows.step.tolist()]


def _evaluations(run: Run) -> list[int]:
    """Return how long each span took [ns]."""
    spans = [event for process in run.processes for event in process.events if isinstance(event, Span)]
    return [span.end - span.start for span in spans]


def _goes_on(one: Run, other: Run) -> bool:
    """Return whether a run has the steps and evaluations of another at its beginning."""
    return all(told(other)[: len(told(one))] == told(one) for told in (_steps, _evaluations))
