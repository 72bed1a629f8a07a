"""Line logs of trainers that stand on the Hugging Face Trainer: ``trainer_log.jsonl`` and ``logging.jsonl``.

Each line tells the step and how long the training has gone on, in whole seconds.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.sources.retold import home_of
from headway.sources.steps.column import Table
from headway.sources.steps.columns import UNKNOWN
from headway.sources.steps.lines import LONGEST, StepLines
from headway.sources.text import clean
from headway.sources.trainerlog.writers import apart

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headway.ledger.history import Run
    from headway.sources.asked import Asked
    from headway.sources.steps.alike import Spans

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_LOOKED_AT: Final = 20
"""So many lines are looked at to recognise a file."""
_STEP: Final = re.compile(rb'"(?:current_steps"\s*:\s*(\d+)\s*[,}]|(?:global_step/max_steps|iteration)"\s*:\s*"(\d+)/)')
_ELAPSED: Final = re.compile(
    rb'"elapsed_time"\s*:\s*"(?:(?:(\d+) days?, )?(\d+):(\d\d):(\d\d)|(?:(\d+)d ?)?(?:(\d+)h ?)?(?:(\d+)m ?)?(\d+)s)"'
)
_SPEED: Final = re.compile(rb'"train_speed\((iter/s|s/it)\)"\s*:\s*(\d+\.\d+)[,}]')
_STEPPED: Final = re.compile(rb'"(?:loss|reward)"\s*+:\s*+(?!null)')
_EVALUATED: Final = re.compile(rb'"eval_[^"]*"\s*+:\s*+(?!null)')
_ZEROS: Final = re.compile(r"(?<=\":)( *)-?0+(?=\d)")
_NAMES: Final = frozenset({"trainer_log", "logging"})
_OF_STEPS, _OF_EVALUATION, _OF_END, _OF_ELSE = range(4)
_GREATEST: Final = 1 << 60
"""No number of a line is greater."""


class TrainerLog:
    """The source of trainer_log.jsonl of LLaMA-Factory and logging.jsonl of ms-swift."""

    name = "trainerlog"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no line log of a trainer, or None when it is one."""
        for line in head.removeprefix(b"\xef\xbb\xbf").splitlines()[:_LOOKED_AT]:
            said = _object(line)
            if said and isinstance(said.get("elapsed_time"), str) and _step(said) is not None:
                return None
        return "no line at its beginning is a JSON object with its step and elapsed_time"

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the run of a log.

        Raises:
            SourceError: No line tells of a step, slug ``no-runs``.
            OSError: It cannot be read.
        """
        log = StepLines(self.name, path)
        log.seen(0)
        lines = _Lines(log)
        log.read(lines.learn, lines.extend, lines.take)
        lines.finish()
        stem = home_of(path.absolute()).name if path.stem in _NAMES else path.stem
        # Its times count from the beginning of the training: when that was it does not say.
        return [replace(log.run(clean(stem), asked), clock=False)]


@dataclass
class _Lines:
    """The lines, each in the order of the file.

    Attributes:
        log: What is told of them.
        rows: What they say: the line's number, its step, how long the training had gone on, as it says [s] and with
            what is behind the point [ns], its kind, and how long an evaluation took by its own word [ns].
        offset: When the attempt began [ns since the first one did].
        at: How long it had gone on at the line before [ns].
        step: The last step that was told of; None in a new attempt.
        first: Which line of those that tell of steps is the attempt's first; None once what it stands for is known.
        is_after: Whether something that was no step came after the last step.
        usual: How many steps the last line but the first stood for.
        n_attempts: How often the time began anew.
        n_short: How many evaluations took no time by the clock.
    """

    log: StepLines
    rows: Table = field(default_factory=lambda: Table("line", "step", "elapsed", "at", "kind", "runtime"))
    offset: int = 0
    at: int = 0
    step: int | None = None
    first: int | None = None
    is_after: bool = False
    usual: int = 1
    n_attempts: int = 1
    n_short: int = 0

    def learn(self, line: bytes) -> Spans | None:
        """Return where a line has its step, its elapsed time and its speed."""
        if not line.strip():
            return ()
        step, elapsed, speed = _STEP.search(line), _ELAPSED.search(line), _SPEED.search(line)
        if line.count(b"{") != 1 or b"\\" in line or step is None or elapsed is None or _object(line) is None:
            return None
        if not _STEPPED.search(line) or _EVALUATED.search(line):
            return None
        parts = range(1, 5) if elapsed[4] else range(5, 9)
        none, some = (0, 0), step.span(1) if step[1] else step.span(2)
        speeds = [speed.span(2) if speed and speed[1] == unit else none for unit in (b"iter/s", b"s/it")]
        return (some, *(elapsed.span(part) if elapsed[part] else none for part in parts), *speeds)

    def extend(self, numbers: Ints, values: list[Floats]) -> bool:
        """Take many lines that tell of steps; return whether they can be."""
        step = values[0].astype(np.int64)
        days, hours, minutes, seconds = (np.nan_to_num(part) for part in values[1:5])
        elapsed = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        if elapsed.max() >= LONGEST // NS_PER_S:
            return False
        at, n = _moment(step, elapsed, *values[5:]), len(step)
        kind, unknown = np.broadcast_to(np.int64(_OF_STEPS), n), np.broadcast_to(np.int64(UNKNOWN), n)
        self.rows.extend(numbers, step, elapsed.astype(np.int64), at, kind, unknown)
        return True

    def take(self, number: int, line: bytes) -> None:
        """Take one line."""
        if not line.strip():
            return
        said = _object(line)
        if said is None:
            self.log.bad.add("no JSON object, left out", number)
            return
        step, found = _step(said), _ELAPSED.fullmatch(b'"elapsed_time":"%b"' % str(said.get("elapsed_time")).encode())
        if step is None or found is None:
            if "log_history" not in said:  # what ms-swift writes last tells again what the lines did
                self.log.bad.add("without a step and an elapsed time that can be, left out", number)
            return
        days, hours, minutes, seconds = (
            float(part or 0) if len(part or b"") < 16 else LONGEST for part in found.groups()[4 * (not found[4]) :][:4]
        )
        elapsed = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        if elapsed >= LONGEST // NS_PER_S:
            self.log.bad.add("with an elapsed time that cannot be, left out", number)
            return
        speeds = (np.array([_number(said.get(f"train_speed({unit})"))]) for unit in ("iter/s", "s/it"))
        at = int(_moment(np.array([step]), np.array([elapsed]), *speeds)[0])
        runtime = _number(said.get("eval_runtime")) * NS_PER_S
        told = int(runtime) if runtime <= LONGEST else UNKNOWN
        self.rows.append((number, step, int(elapsed), at, _kind(said), told))

    def finish(self) -> None:
        """Give all to the log, and say what it does not tell."""
        columns = {name: column.values() for name, column in self.rows.columns.items()}
        self.rows = Table()
        columns["at"] = columns["at"].astype(np.int64, copy=False)
        is_step = columns["kind"] == _OF_STEPS
        for place in np.flatnonzero(~is_step & (columns["step"] == 0)).tolist():
            if place and columns["step"][place - 1]:  # older versions forget the step after an evaluation
                columns["step"][place] = columns["step"][place - 1]
        parts, others = apart(columns["step"], columns["elapsed"], is_step)
        if len(others):
            first = int(columns["line"][others[0]])
            what = "told again, or by another process that writes into the same file, left out"
            self.log.bad.add(what, first, count=len(others))
        for part in parts:
            line, step, at, kind, runtime = (
                columns[name] if len(part) == len(is_step) else columns[name][part]
                for name in ("line", "step", "at", "kind", "runtime")
            )
            if part is not parts[0]:
                self._begin(int(line[0]))
            done = 0
            for place in [*np.flatnonzero(kind != _OF_STEPS).tolist(), len(line)]:
                self._steps(line[done:place], step[done:place], at[done:place])
                done = place + 1
                if place < len(line):
                    one = int(line[place]), int(step[place]), int(at[place])
                    self._other(*one, int(kind[place]), int(runtime[place]))
        self._say()

    def _begin(self, number: int) -> None:
        """Begin another attempt, where the last one ended."""
        self.offset += self.at
        self.at, self.step, self.first, self.is_after = 0, None, None, False
        self.n_attempts += 1
        self.log.banner(line=number, at_ns=self.offset)

    def _steps(self, line: Ints, step: Ints, at: Ints) -> None:
        """Give lines that tell of steps to the log."""
        done = 0
        while done < len(step) and (self.step is None or self.first is not None or self.is_after):
            self._stepped(int(line[done]), int(step[done]), int(at[done]))
            done += 1
        if (rest := len(step) - done) > 0:
            later = np.maximum.accumulate(np.maximum(at[done:], self.at))
            unknown, rank = np.broadcast_to(np.int64(UNKNOWN), rest), np.broadcast_to(np.int64(-1), rest)
            self.log.steps(step[done:], line=line[done:], at=later + self.offset, took=unknown, rank=rank)
            self.usual = int(step[-1]) - int(step[-2] if len(step) > 1 else self.step or 0)
            self.step, self.at = int(step[-1]), int(later[-1])

    def _stepped(self, number: int, step: int, at: int) -> None:
        # A second may hold several steps: one of no time would be of the moment at which the attempt before it ended.
        at = max(at, self.at, int(self.n_attempts > 1))
        columns, count, took = self.log.columns, 0, None
        if self.step is None:
            # How many it is shows only when the next one comes; what is begun again goes on from somewhere.
            count = max(1, step if self.n_attempts == 1 else min(step, self.usual))
            took = at // count
            self.first = len(self.log)
        else:
            self.usual = step - self.step
            if self.first is not None:
                stands_for = min(columns["count"][self.first], self.usual)
                columns["took"][self.first] = (columns["took"][self.first] * columns["count"][self.first]) // stands_for
                columns["count"][self.first] = stands_for
                self.first = None
            if self.is_after:
                count, took = self.usual, (at - self.at) // self.usual
        if self.log.step(step, line=number, at_ns=self.offset + at, took_ns=took, count=count):
            self.step, self.at, self.is_after = step, at, False
        elif self.step is None:
            self.first = None

    def _other(self, number: int, step: int, at: int, kind: int, runtime: int) -> None:
        """Give a line that tells of an evaluation, or of the end, to the log."""
        if kind == _OF_EVALUATION:
            self._untold(number, step, at if runtime == UNKNOWN else at - min(runtime, at))
        elif kind == _OF_END:
            self._untold(number, step, at)
        took = max(at - self.at, 0)
        self.at, self.is_after = max(at, self.at), True
        self.log.seen(self.offset + self.at)
        if kind == _OF_EVALUATION:
            self.n_short += took < NS_PER_S // 100
            self.log.span("evaluation", line=number, at_ns=self.offset + self.at, took_ns=took)
        elif kind == _OF_END:
            self.log.close("finished", line=number, at_ns=self.offset + self.at)

    def _untold(self, number: int, step: int, at: int) -> None:
        """Take steps up to a line that is of a later one than any that tells of steps: the last few have no line."""
        if self.step is not None and step > self.step:
            self._stepped(number, step, at)

    def _say(self) -> None:
        if self.n_short:
            self.log.warnings.append(
                f"{self.n_short} evaluations have no time of their own: none passed by the log's clock, or no line "
                "tells of the steps before them; what they took is in the steps"
            )
        if self.n_attempts > 1:
            self.log.warnings.append(
                f"its elapsed time begins anew {self.n_attempts - 1} times, where the training was begun again: what "
                "passed between is not in the log and not counted"
            )


def _moment(step: Ints, elapsed: Floats, per_second: Floats, seconds_per: Floats) -> Ints:
    """Return how long the training had gone on after steps [ns]: where the speed fits, to more than a second.

    Args:
        step: The steps, ``(n,)``.
        elapsed: How long it had gone on, in whole seconds, ``(n,)`` [s].
        per_second: Steps a second since it began, ``(n,)``; NaN where that is not said.
        seconds_per: How long each step took since then, ``(n,)`` [s]; NaN where that is not said.

    Example:
        >>> _moment(np.array([10]), np.array([51.0]), np.array([0.193342]), np.array([np.nan])).tolist()
        [51721819367]
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        told = np.where(np.isnan(per_second), step * seconds_per, step / per_second)
        apart = told - elapsed
        slack = np.where(np.isnan(per_second), step * 5e-7, told * 5e-7 / per_second)  # it is told to 6 digits
        fits = (apart > -slack) & (apart < 1 + slack)
    fraction = np.clip(np.where(fits, apart, 0), 0, 1 - 1e-9)
    at: Ints = elapsed.astype(np.int64) * NS_PER_S + np.rint(fraction * NS_PER_S).astype(np.int64)
    return at


def _kind(said: dict[str, Any]) -> int:
    """Return what a line tells of.

    Example:
        >>> _kind({"loss": 2.1, "eval_loss": None}) == _OF_STEPS, _kind({"eval_loss": 2.1}) == _OF_EVALUATION
        (True, True)
    """
    names = {name for name, value in said.items() if value is not None}
    if any(name.startswith("eval_") for name in names):
        return _OF_EVALUATION
    if names & {"loss", "reward"}:
        return _OF_STEPS
    return _OF_ELSE if "predict_loss" in names else _OF_END


def _object(line: bytes) -> dict[str, Any] | None:
    """Return the JSON object that a line is; None where it is none."""
    if not line.lstrip(b"\xef\xbb\xbf \t").startswith(b"{"):
        return None
    text = line.decode("utf-8-sig", "replace")
    for one in (text, _ZEROS.sub(r"\1", text)):  # whether a line is one does not depend on its digits
        try:
            said = json.loads(one)
        except (ValueError, RecursionError):
            continue
        return said if isinstance(said, dict) else None
    return None


def _step(said: dict[str, Any]) -> int | None:
    """Return the step that a line names; None where it names none.

    Example:
        >>> _step({"current_steps": 7}), _step({"global_step/max_steps": "8/438"}), _step({"step": 9})
        (7, 8, None)
    """
    step = said.get("current_steps", said.get("global_step/max_steps", said.get("iteration")))
    if isinstance(step, str):
        first, _, most = step.partition("/")
        return int(first) if len(first) < 16 and first.isdecimal() and most else None
    return step if isinstance(step, int) and not isinstance(step, bool) and 0 <= step < _GREATEST else None


def _number(value: object) -> float:
    """Return a number above zero; NaN for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _GREATEST
    return float(value) if is_number else float("nan")  # type: ignore[arg-type]
