"""States of the Hugging Face Trainer, ``trainer_state.json``: steps, evaluations, and no clock."""

from __future__ import annotations

import json
import math
import re
from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.errors import SourceError
from headway.events import AnyEvent, Close, Open, Span
from headway.ledger.history import Process, Rows, Run
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.columns import BOUND
from headway.sources.hftrainer.document import Document
from headway.sources.hftrainer.losses import Losses
from headway.sources.retold import home_of
from headway.sources.text import Complaints, clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_STEPS: Final = 1 << 23
"""A state that counts more steps is damage: each becomes a row."""
_MARK: Final = re.compile(rb'"log_history"\s*:\s*\[')
_START: Final = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*\{")
_SPEED: Final = "train_speed(iter/s)"
"""Steps a second since the training began, in the entries of older versions of ms-swift."""
_LITTLE: Final = 0.01
"""A training that was resumed after that share of it is not worth a word: its times are off by no more."""
_AT_ONCE: Final = 1 << 16
_ENDED: Final = "only the state saved after the training ended has a train_runtime"
_NO_TIMES: Final = f"the file says how long evaluations took and not how long steps did; {_ENDED}"
_NO_EVALUATION: Final = f"the file does not say how long steps took; {_ENDED}"
_RESUMED: Final = "the training was resumed, and train_runtime is of its last part alone"
_LONGER: Final = f"its evaluations took longer than its train_runtime: {_RESUMED}"
_SLOWER: Final = "its train_speed begins anew: the training was resumed, and how long its first part took is not told"


class HFTrainer:
    """The source of trainer states."""

    name = "hftrainer"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no trainer state, or None when it is one."""
        if not _START.match(head) or not _MARK.search(head):
            return "it is no JSON with a log_history"
        return "its first line is an object of its own, without a log_history" if _is_lines(head) else None

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the run of a state.

        Raises:
            SourceError: It tells of no step.
        """
        state = read(path)
        shown = clean(str(path), 4096)
        if state.steps > MOST_STEPS:
            raise SourceError(
                f"Cannot read {shown}: its {state.steps} steps are more than {MOST_STEPS}",
                "Give the file as the trainer wrote it",
                "no-runs",
                path=shown,
            )
        if not state.steps and not any(len(session) for session in state.sessions):
            raise SourceError(
                f"Cannot read {shown}: it tells of no step and no evaluation",
                "Give a trainer_state.json of a training that has begun",
                "no-runs",
                path=shown,
            )
        stem = home_of(path.absolute()).name if path.stem == "trainer_state" else path.stem
        return [_run(clean(stem), shown, state, asked.devices)]


def _is_lines(head: bytes) -> bool:
    r"""Return whether a file begins with a line that is an object by itself and has no history.

    Example:
        >>> _is_lines(b'{"loss": 2.1}\n{"log_history": []}\n'), _is_lines(b'{"log_history": []}\n')
        (True, False)
    """
    line, *others = head.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)
    if not others or _MARK.search(line) or not line.rstrip().endswith(b"}"):
        return False
    try:
        json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return False
    return True


@dataclass
class Session:
    """What one call of ``train`` did.

    Attributes:
        after: Of each evaluation, after which step it came.
        took: Of each evaluation, how long it took [ns].
        last: Its last step.
        runtime_ns: How long it took in all [ns]; None where the state was saved before it ended.
        speed_ns: How long it took up to the last entry that tells its speed [ns]; None where none does.
        is_anew: Whether that was longer at an entry before.
        losses: What was logged of its losses.
    """

    after: array[int] = field(default_factory=lambda: array("q"))
    took: array[int] = field(default_factory=lambda: array("q"))
    last: int = 0
    runtime_ns: int | None = None
    speed_ns: int | None = None
    is_anew: bool = False
    losses: Losses = field(default_factory=Losses)

    def __len__(self) -> int:
        """Return how many evaluations there were."""
        return len(self.after)


@dataclass
class State:
    """What a file says.

    Attributes:
        sessions: In their order; at least one.
        steps: The number of its last step.
        planned: How many steps were planned; 0 where it does not say.
        save_steps: After how many steps it was saved each time; 0 where it does not say.
        told_ns: All lengths of time that it tells, added up [ns].
        warnings: What could not be read, a sentence each.
    """

    sessions: list[Session]
    steps: int = 0
    planned: int = 0
    save_steps: int = 0
    told_ns: int = 0
    warnings: tuple[str, ...] = ()


def read(path: Path) -> State:
    """Return what a state says; one that breaks off as far as it goes.

    Raises:
        OSError: It cannot be read.
    """
    bad = Complaints(clean(path.name), "entry")
    state = State([Session()])
    cut = ""
    after = 0
    with files.plain(path) as file:
        document = Document(file)
        try:
            for key, value in document.members():
                _take(state, key, value, bad)
            after = document.rest()
        except (ValueError, RecursionError, files.TornError):
            cut = (
                f"{clean(path.name)}: the JSON breaks off or is damaged in line {document.line}; what is before counts"
            )
    if after:
        cut = f"{clean(path.name)}: the JSON ends in line {after}; what comes after it is left out"
    # What a trainer does after train() ends, such as a last evaluation, belongs to the training that ended.
    if len(state.sessions) > 1 and state.sessions[-1].last <= state.sessions[-2].last:
        late = state.sessions.pop()
        state.sessions[-1].after += late.after
        state.sessions[-1].took += late.took
        if len(late) and (runtime := state.sessions[-1].runtime_ns) is not None:
            state.sessions[-1].runtime_ns = runtime + sum(late.took)
    logged = state.sessions[-1].last
    if 0 < state.steps < logged:
        bad.add("beyond its global_step, and counts", logged)
    state.steps = max(state.steps, logged)
    state.sessions[-1].last = state.steps
    state.warnings = (*bad.sentences(), *([cut] if cut else []))
    return state


def _take(state: State, key: str, value: Any, bad: Complaints) -> None:
    if key == "log_history":
        number, entry = value if isinstance(value, tuple) else (0, value)
        if isinstance(entry, dict):
            _take_entry(state, number, entry, bad)
        else:
            bad.add("no object, passed over" if number else "no list of entries, passed over: its log_history", number)
    elif key == "save_steps":
        state.save_steps = _step(value) or 0
    elif key in {"global_step", "max_steps"} and value is not None:
        count = _step(value)
        if count is None:
            bad.add(f"no count of steps, passed over: its {key}", 0)
        elif key == "global_step":
            state.steps = count
        else:
            state.planned = count


def _take_entry(state: State, number: int, entry: dict[str, Any], bad: Complaints) -> None:
    session = state.sessions[-1]
    step = _step(entry.get("step"))
    if step is None:
        bad.add("without a step that can be, passed over", number)
        return
    if step < session.last:
        bad.add("of a step before the entry above it", number)
    session.last = max(session.last, step)
    _take_losses(session, step, entry)
    for name, value in entry.items():
        if not name.endswith("_runtime"):
            continue
        length = _ns(value)
        if length is None or state.told_ns + length >= BOUND:
            bad.add("with a runtime that cannot be, left out", number, f"{name} {str(value)[:40]}")
            continue
        state.told_ns += length
        if name == "train_runtime":
            session.runtime_ns = length
            state.sessions.append(Session(last=session.last))
        else:
            session.after.append(step)
            session.took.append(length)
            if session.speed_ns is not None and _SPEED not in entry:
                session.speed_ns += length


def _take_losses(session: Session, step: int, entry: dict[str, Any]) -> None:
    losses = session.losses
    if (loss := _number(entry.get("loss"))) is not None:
        losses.steps.append(step)
        losses.means.append(loss)
        losses.epoch = _number(entry.get("epoch")) or 0.0
    if (train := _number(entry.get("train_loss"))) is not None:
        losses.train = train
    speed = _number(entry.get(_SPEED))
    length = _ns(step / speed) if speed else None
    if length is not None:
        before = session.speed_ns or 0
        session.is_anew |= length < before - before // 100  # speeds are rounded
        session.speed_ns = max(length, before)


def _number(value: object) -> float | None:
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < BOUND else None  # type: ignore[arg-type]


def _step(value: object) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < BOUND
    return value if good and isinstance(value, int) else None


def _ns(value: object) -> int | None:
    """Return seconds as nanoseconds [ns]; None where they are no length of time."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < BOUND // NS_PER_S:
        return None
    return round(value * NS_PER_S) if math.isfinite(value) else None


def _run(name: str, path: str, state: State, devices: int | None) -> Run:
    warnings = list(state.warnings)
    if devices is None:
        warnings.append("the number of devices is not in a trainer state and 1 is counted; give it with --devices")
    sessions = state.sessions
    has_ended = sessions[-1].runtime_ns is not None
    within = [sum(session.took) for session in sessions]
    doubts, resumed = _gone_on(state)
    warnings += doubts
    last = sessions[-1]
    if last.runtime_ns is None and last.speed_ns is not None and not last.is_anew:
        last.runtime_ns = last.speed_ns
        warnings.append("how long it took is worked out from the speed that its last entry tells")
    unknown = {}
    if any(session.is_anew for session in sessions):
        unknown["R"] = _SLOWER
    elif any(session.runtime_ns is None for session in sessions):
        unknown["R"] = _NO_TIMES if any(within) else _NO_EVALUATION
    elif any(taken > (session.runtime_ns or 0) for session, taken in zip(sessions, within, strict=True)):
        unknown["R"] = _LONGER
    elif resumed:
        unknown["R"] = resumed
    else:
        warnings.append(
            "each step takes the mean, train_runtime less the evaluations: no step has a time of its own, and what "
            "else the trainer did, such as saving, is in the steps"
        )
    if not (has_ended or state.steps >= state.planned > 0):
        of = f" of {state.planned}" if state.planned else ""
        warnings.append(f"the state was saved at step {state.steps}{of}: what came after is not in it")
    processes = []
    begin = first = 0
    for number, session in enumerate(sessions):
        opened = Open(
            wall_ns=begin, mono_ns=begin, run=name, attempt=f"a{number:03d}", devices=devices or 1, phases=(),
            rows="block",
        )  # fmt: skip
        known = None if unknown else session.runtime_ns
        process = _process(opened, session, first, 0 if known is None else known - within[number])
        processes.append(process)
        begin, first = process.events[-1].at, session.last  # type: ignore[union-attr]
    return Run(name, HFTrainer.name, tuple(processes), path, tuple(warnings), unknown, clock=False)


def _gone_on(state: State) -> tuple[list[str], str]:
    """Return what is to be doubted of the runtimes, and why they are not of all steps; nothing where they are."""
    doubts, resumed, begin = [], "", 0
    for session in state.sessions:
        losses, session.losses = session.losses, Losses()
        found = losses.gone_on(begin, session.last) if session.runtime_ns is not None else None
        if found is not None and found[0] >= begin + max(1, _LITTLE * (session.last - begin)):
            said = f"train_loss is that of the steps from about {round(sum(found) / 2) + 1} on alone"
            if losses.is_checkpoint(*found, state.save_steps):
                resumed = f"{said}: {_RESUMED}"
            else:
                doubts.append(
                    f"{said}, by the losses that were logged: if they are not logged otherwise, the training was "
                    "resumed there, and train_runtime is of that part and not of all steps"
                )
        begin = session.last
    return doubts, resumed


def _process(opened: Open, session: Session, first: int, stepping_ns: int) -> Process:
    """Return a session whose steps take so long in all, laid end to end with its evaluations [ns]."""
    n_steps = max(0, session.last - first)
    after, took = np.array(session.after, np.int64), np.array(session.took, np.int64)
    order = np.argsort(after, kind="stable")
    after, took = after[order], took[order]
    spent = np.concatenate([[0], np.cumsum(took)])
    each, more = divmod(stepping_ns, n_steps or 1)

    def stepped(done: NDArray[np.int64]) -> NDArray[np.int64]:
        return opened.mono_ns + each * done + np.minimum(done, more)

    start, end = np.empty(n_steps, np.int64), np.empty(n_steps, np.int64)
    for low in range(0, n_steps, _AT_ONCE):
        part = slice(low, low + _AT_ONCE)
        done = np.arange(low, min(part.stop, n_steps), dtype=np.int64)
        moved = spent[np.searchsorted(after, done + first + 1, "left")]
        start[part] = stepped(done) + moved
        end[part] = stepped(done + 1) + moved
    begun = stepped(np.clip(after - first, 0, n_steps)) + spent[:-1]
    events: list[AnyEvent] = []
    for low in range(0, len(took), _AT_ONCE):
        spans = zip(begun[low : low + _AT_ONCE].tolist(), took[low : low + _AT_ONCE].tolist(), strict=True)
        events += (Span(category="evaluation", start=at, end=at + ns) for at, ns in spans)
    events.append(Close(at=opened.mono_ns + stepping_ns * bool(n_steps) + int(spent[-1]), reason="released"))
    return Process(opened, tuple(events), Rows(np.arange(first + 1, first + n_steps + 1, dtype=np.int64), start, end))
