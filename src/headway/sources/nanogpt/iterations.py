"""Lines of iterations, each with a time of its own."""

from __future__ import annotations

import math
import re
import struct
from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from headway.clock import NS_PER_S
from headway.sources.steps import front
from headway.sources.steps.column import Table
from headway.sources.steps.columns import UNKNOWN, parts, search
from headway.sources.steps.lines import LONGEST, StepLines, seconds_ns
from headway.sources.text import clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

ITER: Final = re.compile(
    r"\biter (\d{1,18}): .{0,200}?\btime ([^\s,]{1,40}?)(ms|s)\b(?:.{0,120}?\bmfu ([^\s,%]{1,20})%)?"
)
_EVALUATED: Final = re.compile(r"\bstep (\d{1,18}): train loss \S+ val loss ")
_FLOAT: Final = struct.Struct("=d")
UNIT: Final = {"ms": 1e-3, "s": 1.0}


class Mark(NamedTuple):
    """A line that tells of something else than iterations: its number, of what, the step, and when it was written."""

    number: int
    kind: str
    step: int = 0
    at_ns: int | None = None


@dataclass
class Iterations:
    """Lines of nanoGPT: each iteration that is logged with its own time, an evaluation before it included.

    The share of the peak of each is in ``mfu``, the bytes of a float in the place of a whole number.
    """

    log: StepLines
    rows: Table = field(default_factory=lambda: Table("line", "step", "took", "at", "rank", "evaluated"))
    mfu: array[int] = field(default_factory=lambda: array("q"))
    marks: list[Mark] = field(default_factory=list)
    evaluated: int = -1
    evaluated_in: tuple[int, int | None] = (0, None)

    def take(self, found: re.Match[str], number: int, at_ns: int | None, rank: int) -> None:
        """Read the line of an iteration."""
        step, took = int(found[1]), seconds_ns(found[2], UNIT[found[3]])
        if took is None or step >= 1 << 61:
            self.log.bad.add("no step, left out", number, f"its time is {clean(found[2], 40)!r}")
            return
        evaluated = step == self.evaluated
        self.rows.append((number, step, took, UNKNOWN if at_ns is None else at_ns, rank, evaluated))
        try:
            mfu = float(found[4] or "nan") / 100
        except ValueError:
            mfu = math.nan
        if math.isnan(mfu) and number == self.log.unended and self.mfu:  # cut before it
            self.mfu.append(self.mfu[-1])
        else:
            self.mfu.frombytes(_FLOAT.pack(mfu))
        if evaluated:
            self.evaluated = -1

    def extend(self, numbers: Ints, values: list[NDArray[np.float64]]) -> bool:
        """Read the lines of many iterations, as learned; return whether all make sense."""
        step, took = values[0].astype(np.int64), values[1] * 1e-3
        if took.max() > LONGEST / NS_PER_S or (at := self.log.stamps(values[4:])) is None:
            return False
        evaluated = step == self.evaluated
        evaluated[int(np.argmax(evaluated)) + 1 :] = False
        if evaluated.any():
            self.evaluated = -1
        own = np.rint(took * NS_PER_S).astype(np.int64)
        self.rows.extend(numbers, step, own, at, front.ranks(values[3]), evaluated.view(np.int8))
        self.mfu.frombytes((values[2] / 100).data.cast("B"))
        return True

    def other(self, text: str, number: int) -> None:
        """Read another line."""
        if found := _EVALUATED.search(text):
            self._untimed()
            self.evaluated, self.evaluated_in = int(found[1]), (number, self.log.stamp(text, number))
        elif "saving checkpoint to" in text:
            self.marks.append(Mark(number, "saved", self.evaluated, self.log.stamp(text, number)))
        elif "tokens per iteration will be" in text:
            self.marks.append(Mark(number, "banner", 0, self.log.stamp(text, number)))

    def _untimed(self) -> None:
        """Note an evaluation that no line with a time came after."""
        if self.evaluated >= 0:
            self.marks.append(Mark(self.evaluated_in[0], "evaluation", 0, self.evaluated_in[1]))
        self.evaluated = -1

    def finish(self) -> None:
        """Give all to the log, in the order of the lines."""
        self._untimed()
        self.marks.sort(key=lambda mark: mark.number)
        if self.log.opening is not None:  # what comes before the first iteration and has no time was then
            self.log.last_at = self.log.opening
        line, step, own, at, rank, evaluated = (column.values() for column in self.rows.columns.values())
        n, evals, is_plain = len(step), np.flatnonzero(evaluated), evaluated == 0
        usual = int(np.median(own[is_plain], overwrite_input=True)) if is_plain.any() else None
        beyond = own[evals].astype(np.int64) - (usual or 0)
        first = (evals == 0) | (step[evals] <= step[evals - 1])
        each = np.maximum(beyond[~first], 0)
        evaluation = int(np.median(each)) if len(each) else None
        lost = self._lost()
        more = (beyond > 0) & (usual is not None)
        if more.any():
            self.log.warnings.append(
                "what an iteration with an evaluation took beyond the median of the others is counted as that "
                "evaluation, what was saved with it included; of the first, beyond the later ones, as compile"
            )
            own[evals[more]] = usual
        elif len(evals):
            self.log.warnings.append("evaluations are in the iterations after them: nothing tells how long they took")
        places = search(line, [mark.number for mark in self.marks])
        longer = zip(evals[more].tolist(), beyond[more].tolist(), first[more].tolist(), strict=True)
        told = [(place, index, 0, False) for index, place in enumerate(places)]
        told += [(place, len(places), ns, is_first) for place, ns, is_first in longer]
        done = 0
        for place, index, ns, is_first in [*sorted(told), (n, -1, 0, False)]:
            some = slice(done, place)
            self.log.steps(step[some], line=line[some], at=at[some], took=own[some], rank=rank[some])
            done = place
            if ns:
                begin = None if at[place] == UNKNOWN else int(at[place]) - int(own[place])
                for name, length in _split(ns, evaluation, first=is_first):
                    self.log.span(name, line=int(line[place]), took_ns=length, at_ns=begin, inferred=True)
            elif index >= 0:
                before = int(step[place]) if place < n else int(step[-1]) + 1 if n else 0
                self._mark(self.marks[index], before)
        if lost is not None:  # the one takes the place of the other
            for part in parts(n):
                np.frombuffer(self.mfu, np.int64)[part] = np.rint(lost[part] * own[part])
            self.log.waits["below_peak"] = self.mfu
        self.rows, self.mfu = Table(), array("q")

    def _mark(self, mark: Mark, before: int) -> None:
        line, at_ns = mark.number, mark.at_ns
        if mark.kind == "banner":
            self.log.banner(line=line, at_ns=at_ns)
        elif mark.kind == "saved":
            self.log.saved((mark.step if mark.step >= 0 else before) - 1, line=line, at_ns=at_ns)
        elif mark.kind == "evaluation":
            self.log.span("evaluation", line=line, at_ns=at_ns)
        else:
            self.log.close(mark.kind, line=line, at_ns=at_ns)

    def _lost(self) -> NDArray[np.float64] | None:
        """Return which share of each iteration was below the peak, where each says it; -100 % is not yet known."""
        mfu = np.frombuffer(self.mfu, np.float64)
        if not len(mfu) or np.isnan(mfu).all():
            return None
        early = mfu == -1
        first, last = int(np.argmin(early)), len(mfu) - 1 - int(np.argmin(early[::-1]))
        if not early[first] and first <= len(mfu) // 2:
            unknown = np.flatnonzero(early)
            ends = np.flatnonzero(np.diff(unknown, append=len(mfu) + 1) > 1)  # of those in a row, the last
            after = np.repeat(unknown[ends] + 1, np.diff(ends, prepend=-1))
            mfu[unknown] = mfu[np.minimum(after, last)]
            if (mfu > 0).all() and (mfu <= 1).all():
                if len(unknown):
                    self.log.warnings.append(
                        f"{len(unknown)} lines have no mfu yet; that of the line after them is taken"
                    )
                return np.subtract(1, mfu, out=mfu)
        self.log.warnings.append("not every line has an mfu that can be: what was lost below the peak is not known")
        return None


def _split(beyond: int, evaluation: int | None, *, first: bool) -> list[tuple[str, int]]:
    """Return what an iteration took beyond the usual, by category [ns].

    Example:
        >>> _split(9, 4, first=True), _split(9, 4, first=False), _split(9, None, first=True)
        ([('compile', 5), ('evaluation', 4)], [('evaluation', 9)], [('startup', 9)])
    """
    if not first:
        return [("evaluation", beyond)]
    if evaluation is None:
        return [("startup", beyond)]
    return [("compile", max(0, beyond - evaluation)), ("evaluation", min(beyond, evaluation))]
