"""Line logs of trainers that stand on the Hugging Face Trainer: ``trainer_log.jsonl`` and ``logging.jsonl``.

Each line tells the step and how long the training has gone on, in whole seconds.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.sources.retold import home_of
from headway.sources.steps.columns import UNKNOWN
from headway.sources.steps.lines import LONGEST, StepLines
from headway.sources.text import clean

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
        offset: When the attempt began [ns since the first one did].
        elapsed: How long it had gone on at the line before, as that says [s].
        at: The same with what is behind the point [ns].
        step: The last step that was told of; None in a new attempt.
        first: Which line of those that tell of steps is the attempt's first; None once what it stands for is known.
        is_after: Whether something that was no step came after the last step.
        usual: How many steps the last line but the first stood for.
        n_attempts: How often the time began anew.
        n_short: How many evaluations took no time by the clock.
    """

    log: StepLines
    offset: int = 0
    elapsed: float = 0
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
        if elapsed.max() >= LONGEST // NS_PER_S or (np.diff(elapsed, prepend=self.elapsed) < 0).any():
            return False
        at, done = _moment(step, elapsed, *values[5:]), 0
        while done < len(step) and (self.step is None or self.first is not None or self.is_after):
            self._stepped(int(numbers[done]), int(step[done]), int(at[done]))
            done += 1
        if done < len(step):
            at = np.maximum.accumulate(np.maximum(at[done:], self.at))
            rest = len(at)
            unknown, rank = np.broadcast_to(np.int64(UNKNOWN), rest), np.broadcast_to(np.int64(-1), rest)
            self.log.steps(step[done:], line=numbers[done:], at=at + self.offset, took=unknown, rank=rank)
            apart = np.diff(step[done:], prepend=self.step or 0)
            self.usual = int(apart[apart > 0][-1]) if (apart > 0).any() else self.usual
            self.step, self.at = int(step[-1]), int(at[-1])
        self.elapsed = float(elapsed[-1])
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
        if elapsed < self.elapsed:
            self._begin(number)
        self.elapsed = elapsed
        speeds = (np.array([_number(said.get(f"train_speed({unit})"))]) for unit in ("iter/s", "s/it"))
        at = int(_moment(np.array([step]), np.array([elapsed]), *speeds)[0])
        names = {name for name, value in said.items() if value is not None}
        if any(name.startswith("eval_") for name in names):
            self._evaluated(number, step, at, _number(said.get("eval_runtime")))
        elif names & {"loss", "reward"}:
            self._stepped(number, step, at)
        else:
            self._untold(number, step, at)
            self._other(at)
            if "predict_loss" not in names:
                self.log.close("finished", line=number, at_ns=self.offset + self.at)

    def _begin(self, number: int) -> None:
        """Begin another attempt, where the last one ended."""
        self.offset += self.at
        self.at, self.step, self.first, self.is_after = 0, None, None, False
        self.n_attempts += 1
        self.log.banner(line=number, at_ns=self.offset)

    def _stepped(self, number: int, step: int, at: int) -> None:
        at = max(at, self.at)
        columns, count, took = self.log.columns, 0, None
        if self.step is None:
            # How many it is shows only when the next one comes; what is begun again goes on from somewhere.
            count = max(1, step if self.n_attempts == 1 else min(step, self.usual))
            took = at // count
            self.first = len(self.log)
        elif step > self.step:
            self.usual = step - self.step
            if self.first is not None:
                stands_for = min(columns["count"][self.first], step - self.step)
                columns["took"][self.first] = (columns["took"][self.first] * columns["count"][self.first]) // stands_for
                columns["count"][self.first] = stands_for
                self.first = None
            if self.is_after:
                count, took = step - self.step, (at - self.at) // (step - self.step)
        if self.log.step(step, line=number, at_ns=self.offset + at, took_ns=took, count=count):
            self.step, self.at, self.is_after = step, at, False
        elif self.step is None:
            self.first = None

    def _evaluated(self, number: int, step: int, at: int, runtime: float) -> None:
        self._untold(number, step, at if math.isnan(runtime) else at - int(min(runtime * NS_PER_S, at)))
        took = max(at - self.at, 0)
        self.n_short += took < NS_PER_S // 100
        self._other(at)
        self.log.span("evaluation", line=number, at_ns=self.offset + self.at, took_ns=took)

    def _is_untold(self, step: int) -> bool:
        """Return whether a line is of a later step than those that tell of steps: the last few have no line."""
        return self.step is not None and step > self.step

    def _untold(self, number: int, step: int, at: int) -> None:
        if self._is_untold(step):
            self._stepped(number, step, at)

    def _other(self, at: int) -> None:
        self.at, self.is_after = max(at, self.at), True
        self.log.seen(self.offset + self.at)

    def finish(self) -> None:
        """Say what the log as a whole does not tell."""
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
