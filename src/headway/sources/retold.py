"""Logs that tell what another log tells too: a job counts once, and what is left out for it is said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.events import Span
from headway.ledger.history import Pool, Run
from headway.ledger.jobs import Jobs
from headway.sources.asked import Loaded

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ALIKE: Final = 0.05
_SHORT_NS: Final = NS_PER_S // 100
_TOGETHER_NS: Final = 2 * NS_PER_S
"""Ranks of one job print a step within so much of each other, clocks in whole seconds included [ns]."""
_CHECKPOINT: Final = re.compile(r"checkpoint-\d+")
_RESULT: Final = re.compile(r"result_\d+\.txt(\.gz)?")
"""MLPerf's rules call the log of one training so, and number the trainings."""
_OWN: Final = 4
"""Steps of so many different lengths, to the nanosecond, are those of one run alone."""
_NO_CLOCK: Final = "as it tells the same training and has no clock"
_EVALUATIONS: Final = frozenset({"validation", "val", "valid", "eval", "evaluation", "test"})
_ZONES_NS: Final = 14 * 3600 * NS_PER_S
_ZONE_NS: Final = 900 * NS_PER_S
"""Zones are whole quarters of an hour from each other, and at most so far from UTC [ns]."""
_NEAR_NS: Final = 120 * NS_PER_S
"""A log and TensorBoard's files of one training end so near each other, but for whole zones [ns]."""
_NEAR: Final = 0.8
"""What TensorBoard's files tell goes through that share of the steps of a state or a table, or more."""


def told_once(found: Sequence[Loaded]) -> list[Loaded]:
    """Return what was found without the runs whose log tells what another one tells.

    * A file may lie there twice, as a copy or packed; JAX writes its trace under two names.
    * A log may lie beside an earlier copy of it, which has its first steps and no more.
    * A trainer's state is saved with each checkpoint: the last one has the steps and evaluations of those before.
    * A trainer writes TensorBoard's files below its folder or beside its table: they have a clock, and it has none.
    * A trainer's state lies beside the lines that the same training logged, which tell how long it took.
    * TensorBoard's files lie beside or below the log of the same training, or below those of the training itself.
    * NeMo writes DLLogger's lines beside what it prints.
    """
    if len(found) < 2:
        return list(found)
    runs = [one for one in found if isinstance(one, Run)]
    kept: dict[int, Any] = {id(one): one for one in found}
    left: dict[tuple[int, str], list[str]] = {}
    rules = (_beginnings, _earlier_states, _without_clock, _beside_lines, _beside_json, _beside_log, _beside_training)
    for one, other, why in chain(_copies(found), *(rule(runs) for rule in rules)):
        if id(one) in kept and id(other) in kept and one.path != other.path:  # what one file tells twice was twice
            left.setdefault((id(other), why), []).append(kept.pop(id(one)).path)
            if why == _NO_CLOCK and one.name == home_of(Path(one.path)).name:  # what the trainer was told to write to
                kept[id(other)] = replace(kept[id(other)], name=one.name)
    for (number, why), paths in left.items():
        if number in kept:
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            kept[number] = _and_said(kept[number], f"left out, {why}: {paths[0]}{more}")
    return list(kept.values())


def told_by_ranks(runs: Sequence[Run]) -> list[Run]:
    """Return runs without those whose log tells the same whole job as another: each rank of a job may print it."""
    kept: list[Run] = []
    alike: dict[tuple[object, ...], list[int]] = {}
    for run in runs:
        some = alike.setdefault(_steps_of(run), [])
        first = next((number for number in some if _same_job(kept[number], run)), None)
        if first is None:
            some.append(len(kept))
            kept.append(run)
        else:
            kept[first] = _and_said(kept[first], f"{run.path} tells the same job as {kept[first].path}: it counts once")
    return kept


def _steps_of(run: Run) -> tuple[object, ...]:
    """Return what is equal of runs that may tell one job: of several devices, in one process of several steps."""
    if len(run.processes) != 1:
        return (id(run),)
    (process,) = run.processes
    opened, step = process.open, process.rows.step
    if opened.devices < 2 or len(step) < 2:
        return (id(run),)
    return run.source, opened.devices, opened.rank, len(step), int(step[0])


def _and_said(run: Run, text: str) -> Run:
    return replace(run, warnings=(*run.warnings, text))


def _same_job(one: Run, other: Run) -> bool:
    """Return whether two logs that are alike by `_steps_of` tell the same steps, which ended at the same time each.

    Ranks of a job wait for each other in each step; trainings beside each other drift apart.
    """
    if one.source == "mlperf" and all(_RESULT.fullmatch(Path(run.path).name) for run in (one, other)):
        return False
    (mine,), (theirs,) = one.processes, other.processes
    if not np.array_equal(mine.rows.step, theirs.rows.step):
        return False
    ends, others = (process.rows.end + (process.open.wall_ns - process.open.mono_ns) for process in (mine, theirs))
    took, takes = (rows.end - rows.start for rows in (mine.rows, theirs.rows))
    return bool(np.all(np.abs(ends - others) <= _TOGETHER_NS) and np.allclose(took, takes, rtol=_ALIKE, atol=_SHORT_NS))


def _copies(found: Sequence[Loaded]) -> Iterator[tuple[Loaded, Loaded, str]]:
    """Yield the runs and pools that tell the same to the nanosecond as one before, each with that."""
    first: dict[bytes, Loaded] = {}
    for one in found:
        if isinstance(one, Pool) and (len(one.jobs) or one.totals_ns):
            digest = _digest_of_pool(one)
        elif isinstance(one, Run) and _is_its_own(one):
            digest = _digest(one)
        else:
            continue
        if (other := first.setdefault(digest, one)) is not one:
            yield one, other, "as it tells the same to the nanosecond"


def _digest_of_pool(pool: Pool) -> bytes:
    jobs = Jobs.of(pool.jobs)
    told = blake2b(repr((pool.source, pool.devices, pool.totals_ns, pool.name if not jobs else "")).encode())
    for name in ("submit_ns", "start_ns", "end_ns", "milli"):
        told.update(jobs.column(name).data)
    told.update(jobs.ids.hashes().data)
    return told.digest()


def _beginnings(runs: Sequence[Run]) -> Iterator[tuple[Run, Run, str]]:
    """Yield the runs whose steps are the first ones of another, to the nanosecond, each with that."""
    alike: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        if _is_its_own(run) and len(run.processes) == 1:
            rows = run.processes[0].rows
            key = (run.source, int(rows.step[0]), int(rows.start[0]), int(rows.end[0]), run.processes[0].open.rank)
            alike.setdefault(key, []).append(run)
    for some in alike.values():
        *shorter, longest = sorted(some, key=lambda run: len(run.processes[0].rows))
        whole = longest.processes[0].rows
        for run in shorter:
            rows, n = run.processes[0].rows, len(run.processes[0].rows)
            pairs = ((rows.step, whole.step), (rows.start, whole.start), (rows.end, whole.end))
            # The last line of a copy that was cut may be cut itself.
            if all(np.array_equal(one[: n - 1], other[: n - 1]) for one, other in pairs):
                yield run, longest, "as it is the beginning of the same log"


def _is_its_own(run: Run) -> bool:
    """Return whether a run tells enough that no other one would tell the same by chance."""
    if any(process.open.wall_ns for process in run.processes):
        return any(len(process.rows) for process in run.processes)
    took = [process.rows.end - process.rows.start for process in run.processes]
    return len(np.unique(np.concatenate([np.zeros(0, np.int64), *took]))) >= _OWN


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
    for states in _by_folder((run for run in runs if run.source == "hftrainer"), home_of).values():
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
    by_home = _by_folder((run for run in runs if run.source in {"hftrainer", "trainerlog", "lightning"}), home_of)
    for events, run, folder in _above(runs, by_home):
        near = run.source != "lightning" or folder == Path(events.path).parent
        if near and _as_far(events, run):
            yield run, events, _NO_CLOCK


def _beside_lines(runs: Sequence[Run]) -> Iterator[tuple[Run, Run, str]]:
    """Yield a trainer's states where the lines that the same training logged are in its folder."""
    lines = _by_folder((run for run in runs if run.source == "trainerlog"), home_of)
    for state in (run for run in runs if run.source == "hftrainer"):
        same = (
            run for run in lines.get(home_of(Path(state.path)), ()) if _as_far(state, run) and _as_often(state, run)
        )
        yield from ((state, run, _NO_CLOCK) for run in same)


def _beside_json(runs: Sequence[Run]) -> Iterator[tuple[Run, Run, str]]:
    """Yield what NeMo printed where DLLogger's lines of the same training lie beside it."""
    lines = _by_folder(run for run in runs if run.source == "dllogger")
    for printed in (run for run in runs if run.source == "nemo"):
        same = (run for run in lines.get(Path(printed.path).parent, ()) if _same_steps(printed, run))
        yield from (
            (printed, run, "as it tells the same training")
            for run in same
            if not printed.clock or _same_time(printed, run)
        )


def _beside_log(runs: Sequence[Run]) -> Iterator[tuple[Run, Run, str]]:
    """Yield TensorBoard's files of a training that a log beside or above them tells, with that log."""
    logs = _by_folder(run for run in runs if run.clock and run.source not in {"native", "tensorboard"})
    beside: dict[int, tuple[Run, list[Run]]] = {}
    for events, run, _ in _above(runs, logs):
        if _same_time(events, run) and _as_far(events, run):
            beside.setdefault(id(run), (run, []))[1].append(events)
    for run, some in beside.values():
        nearest = min((_away_ns(events, run) for events in some), key=abs)
        for events in some:  # those of other trainings that took as long were at other times
            if abs(_away_ns(events, run) - nearest) <= _NEAR_NS:
                yield events, run, "as it tells the same training"


def _beside_training(runs: Sequence[Run]) -> Iterator[tuple[Run, Run, str]]:
    """Yield TensorBoard's files of parts of a training, in a folder below its own or one of evaluations beside it."""
    by_home = _by_folder(run for run in runs if run.source == "tensorboard")
    for home, some in by_home.items():
        others = by_home.get(home.parent, [])
        if home.name in _EVALUATIONS:
            others = [*others, *by_home.get(home.with_name("train"), ())]
        yield from ((one, run, "as it is of the same training") for one in some for run in others if _within(one, run))


def _by_folder(runs: Iterable[Run], folder_of: Callable[[Path], Path] = attrgetter("parent")) -> dict[Path, list[Run]]:
    found: dict[Path, list[Run]] = {}
    for run in runs:
        found.setdefault(folder_of(Path(run.path)), []).append(run)
    return found


def _above(runs: Sequence[Run], by_folder: Mapping[Path, list[Run]]) -> Iterator[tuple[Run, Run, Path]]:
    """Yield TensorBoard's files, each with every run in a folder that it is in or below, and that folder."""
    for events in runs:
        if events.source == "tensorboard":
            for folder in Path(events.path).parents:
                yield from ((events, run, folder) for run in by_folder.get(folder, ()))


def _window(run: Run) -> tuple[int, int]:
    """Return from when to when a run has steps or spans [ns since the Unix epoch]."""
    begin, end = [], []
    for process in run.processes:
        moved = process.open.wall_ns - process.open.mono_ns
        spans = [event for event in process.events if isinstance(event, Span)]
        begin += [moved + span.start for span in spans] + [moved + int(at) for at in process.rows.start[:1]]
        end += [moved + span.end for span in spans] + [moved + int(at) for at in process.rows.end[-1:]]
    return min(begin, default=0), max(end, default=0)


def _within(one: Run, other: Run) -> bool:
    """Return whether most of one run was while another was."""
    (begin, end), (first, last) = _window(one), _window(other)
    slack = (last - first) // 4
    return first - slack <= begin <= end <= last + slack


def _same_time(one: Run, other: Run) -> bool:
    """Return whether two runs took about as long, at the same time or some zones away: one may name no zone."""
    (begin, end), (first, last) = _window(one), _window(other)
    longer, shorter = sorted((end - begin, last - first), reverse=True)
    away, slack = abs(_away_ns(one, other)), min(longer, _NEAR_NS)
    return _NEAR * longer <= shorter and away <= _ZONES_NS + slack and min(away % _ZONE_NS, -away % _ZONE_NS) <= slack


def _away_ns(one: Run, other: Run) -> int:
    """Return how much later one run ended than another [ns]."""
    return _window(one)[1] - _window(other)[1]


def _as_far(one: Run, other: Run) -> bool:
    """Return whether the steps of a run go as far as those of another, about."""
    steps, of = _steps(one), _steps(other)
    return bool(len(steps) and len(of)) and bool(_NEAR * of.max() <= steps.max() <= of.max() / _NEAR)


def _as_often(one: Run, other: Run) -> bool:
    """Return whether two runs were evaluated equally often, but for a last time, each about as long each time."""
    took, takes = _evaluations(one), _evaluations(other)
    n = min(len(took), len(takes))
    slack_ns = 2 * NS_PER_S  # of clocks in whole seconds
    return abs(len(took) - len(takes)) <= 1 and bool(np.all(np.abs(took[:n] - takes[:n]) <= slack_ns + took[:n] // 4))


def _same_steps(one: Run, other: Run) -> bool:
    """Return whether two runs tell steps of the same numbers, as long each."""
    mine, theirs = ([process.rows for process in run.processes] for run in (one, other))
    if len(mine) != len(theirs):
        return False
    pairs = list(zip(mine, theirs, strict=True))
    return all(np.array_equal(rows.step, same.step) for rows, same in pairs) and all(
        np.allclose(rows.end - rows.start, same.end - same.start, rtol=_ALIKE, atol=NS_PER_S / 100)
        for rows, same in pairs
    )


def _steps(run: Run) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, np.int64), *(process.rows.step for process in run.processes)])


def _evaluations(run: Run) -> NDArray[np.int64]:
    """Return how long each span took [ns]."""
    spans = [event for process in run.processes for event in process.events if isinstance(event, Span)]
    return np.array([span.end - span.start for span in spans], np.int64)


def _goes_on(one: Run, other: Run) -> bool:
    """Return whether a run has the steps and evaluations of another at its beginning."""
    return all(np.array_equal(told(other)[: len(told(one))], told(one)) for told in (_steps, _evaluations))
