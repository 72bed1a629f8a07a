"""Runs of several files that belong to one: its ranks, and the attempts of a job that began again."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from headway.clock import NS_PER_S
from headway.events import Close, Notice, Saved, Span
from headway.ledger.history import Process, Run
from headway.sources.apart import told_apart
from headway.sources.asked import Loaded
from headway.sources.retold import told_by_ranks
from headway.sources.text import clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SOON_NS: Final = 86_400 * NS_PER_S
"""A job that begins anew after a failure does so within a day [ns]."""
_TOLD: Final = [
    *((name, np.int64) for name in ("first", "last", "ended", "began", "processes")),
    *((name, np.bool_) for name in ("is_known", "is_job", "failed")),
]
"""Of a run: its first and last step, when it ended and began, how many processes it has; and what else is asked."""
_DIGITS: Final = re.compile(r"\d+")
_JOB: Final = re.compile(
    r"(?:(?:attempt|job|restart|retry|run|slurm|try)[^a-z0-9]*\d+|(?<![\d.])\d{4,})(?!.*\d)", re.IGNORECASE
)
"""What numbers jobs and attempts: a word before the last number, or four digits and more."""


def together(found: Sequence[Loaded]) -> list[Loaded]:
    """Return what was found, with the files of one run as one run.

    Of files in one folder, or in folders whose names differ in numbers alone: ranks that have the run's name are its
    ranks; files whose names differ in numbers alone, as those of a job that began again under another number, are
    attempts of one run where the later goes on with the steps of the earlier. What TensorBoard's files tell of
    evaluations alone belongs to the training of their folder. What has one name is called after its path too.
    """
    found = _with_evaluations(found)
    runs = sorted((one for one in found if isinstance(one, Run)), key=_kin)
    place = {(one.path, one.name): number for number, one in reversed(list(enumerate(found)))}
    placed: list[tuple[int, Loaded]] = [(number, one) for number, one in enumerate(found) if not isinstance(one, Run)]
    for _, kin in groupby(runs, key=lambda run: _kin(run)[:3]):
        same = [list(group) for _, group in groupby(told_by_ranks(list(kin)), key=lambda run: run.name)]
        ranked = [(min(place[run.path, run.name] for run in group), one) for group in same for one in _ranks(group)]
        placed += _chains(ranked)
    return told_apart([one for _, one in sorted(placed, key=lambda pair: pair[0])])


def _with_evaluations(found: Sequence[Loaded]) -> list[Loaded]:
    """Return what was found, the evaluations that a trainer wrote to a file of their own with its training."""
    kept: dict[int, Loaded] = dict(enumerate(found))
    events = {number: one for number, one in kept.items() if isinstance(one, Run) and one.source == "tensorboard"}
    by_home: dict[str, list[int]] = {}
    for number, run in events.items():
        if any(len(process.rows) for process in run.processes):
            by_home.setdefault(os.path.dirname(run.path), []).append(number)  # noqa: PTH120  a text as it is
    for number, run in list(events.items()):
        homes = by_home.get(os.path.dirname(run.path), [])  # noqa: PTH120
        if number not in homes and len(homes) == 1:
            events[homes[0]] = kept[homes[0]] = _evaluated(events[homes[0]], run)
            del kept[number]
    return list(kept.values())


def _evaluated(run: Run, evaluations: Run) -> Run:
    """Return a run whose last attempt has the spans of another, in one clock with it."""
    *before, last = sorted(run.processes, key=lambda process: process.open.wall_ns)
    spans = [event for process in evaluations.processes for event in process.events if isinstance(event, Span)]
    end = max([span.end for span in spans] + [event.at for event in last.events if isinstance(event, Notice | Close)])
    events = [
        msgspec.structs.replace(event, at=end) if isinstance(event, Notice | Close) else event for event in last.events
    ]
    return replace(run, processes=(*before, replace(last, events=(*spans, *events))))


def _kin(run: Run) -> tuple[str, str, str, str]:
    folder = os.path.dirname(run.path)  # noqa: PTH120  a text as it is
    return run.source, _DIGITS.sub("#", folder), _DIGITS.sub("#", run.name), run.name


def _ranks(runs: list[Run]) -> list[Run]:
    """Return runs of one name as one run; where they hold the same rank of the same attempt they are several."""
    seats = [(process.open.attempt, process.open.rank) for run in runs for process in run.processes]
    if len(set(seats)) < len(seats):
        return runs
    return [_joined(runs) if len(runs) > 1 else runs[0]]


def _joined(runs: Sequence[Run]) -> Run:
    first = runs[0]
    return replace(
        first,
        processes=tuple(process for run in runs for process in run.processes),
        path=os.path.commonpath([run.path for run in runs]),
        warnings=tuple(dict.fromkeys(text for run in runs for text in run.warnings)),
        unknown={factor: why for run in runs for factor, why in run.unknown.items()},
    )


def _chains(placed: Sequence[tuple[int, Run]]) -> list[tuple[int, Run]]:
    """Return runs whose names differ in numbers alone, those that go on with one another as attempts of one.

    Each comes with a place; a chain has that of its first.
    """
    ordered = sorted(placed, key=lambda pair: _began(pair[1]))
    told = np.array([_told(run) for _, run in ordered], _TOLD)
    tails = np.zeros(len(ordered), np.int64)  # of each chain its last run
    chains: list[list[tuple[int, Run]]] = []
    for place, pair in enumerate(ordered):
        goes_on = _goes_on(told[tails[: len(chains)]], told[place])
        number = int(np.argmax(goes_on)) if goes_on.any() else len(chains)
        if number == len(chains):
            chains.append([])
        chains[number].append(pair)
        tails[number] = place
    made = []
    for chain in chains:
        runs = [run for _, run in chain]
        one = runs[0]
        if len(runs) > 1:
            names = ", ".join(clean(Path(run.path).name) for run in runs)
            said = (
                f"attempts of one run, as each goes on with the one before and names differ in numbers alone: {names}"
            )
            joined = _joined(_as_attempts(runs))
            one = replace(joined, warnings=(*joined.warnings, said))
        made.append((min(number for number, _ in chain), one))
    return made


def _goes_on(before: NDArray[np.void], after: np.void) -> NDArray[np.bool_]:
    """Return of which runs a run is the next attempt: later by the clock, and at steps that follow on their own.

    From the first step anew it is only where the one before failed, saved nothing, and was a job of another number.
    """
    on = (before["first"] < after["first"]) & (after["first"] <= before["last"] + 1)
    anew = (before["first"] == after["first"]) & before["failed"] & before["is_job"] & after["is_job"]
    on |= anew & (after["began"] <= before["ended"] + _SOON_NS)
    on &= (before["last"] <= after["last"]) & (before["ended"] <= after["began"])
    same = before["processes"] == after["processes"]
    found: NDArray[np.bool_] = on & same & before["is_known"] & after["is_known"]
    return found


def _told(run: Run) -> tuple[object, ...]:
    """Return what `_goes_on` looks at."""
    span = None if run.unknown else _span_of(run)
    return *(span or (0, 0, 0)), _began(run), len(run.processes), span is not None, _is_job(run), _failed(run)


def _began(run: Run) -> int:
    return min((process.open.wall_ns for process in run.processes), default=0)


def _is_job(run: Run) -> bool:
    """Return whether a run is called after a job or an attempt, and not after what it tried.

    Example:
        >>> [_is_job(Run(name, "megatron", ())) for name in ("slurm-4711", "run_2", "attempt3", "lr1e-3", "seed 1")]
        [True, True, True, False, False]
    """
    return _JOB.search(run.name) is not None


def _failed(run: Run) -> bool:
    """Return whether the last that is told of a run is that it failed, and it saved nothing."""
    events = [event for process in run.processes for event in process.events]
    ended = [event.reason for event in events if isinstance(event, Close)]
    return (
        bool(ended)
        and ended[-1] in {"failed", "signal", "preempted"}
        and not any(isinstance(event, Saved) for event in events)
    )


def _span_of(run: Run) -> tuple[int, int, int] | None:
    """Return a run's first and last step, and when that ended on the wall clock [ns]."""
    rows = [(process, process.rows) for process in run.processes if len(process.rows)]
    if not rows:
        return None
    end = max(_wall_ns(process, int(found.end.max())) for process, found in rows)
    return min(int(found.step.min()) for _, found in rows), max(int(found.step.max()) for _, found in rows), end


def _wall_ns(process: Process, mono_ns: int) -> int:
    return process.open.wall_ns + mono_ns - process.open.mono_ns


def _as_attempts(chain: Sequence[Run]) -> list[Run]:
    """Return runs with attempts that tell them apart, in their order."""
    renamed = []
    for place, run in enumerate(chain):
        processes = tuple(
            replace(process, open=msgspec.structs.replace(process.open, attempt=f"{place:03d}-{process.open.attempt}"))
            for process in run.processes
        )
        renamed.append(replace(run, processes=processes))
    return renamed
