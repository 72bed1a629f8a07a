"""Lines of iterations, each with a time of its own."""

from __future__ import annotations

import math
import re
import struct
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from headway.clock import NS_PER_S
from headway.sources.nanogpt.forms import BETWEEN, ENDED, EVALUATED, SAVED, STARTED, TIMED, UNIT, WITHIN
from headway.sources.nanogpt.trainings import another, share
from headway.sources.steps import front
from headway.sources.steps.column import Table
from headway.sources.steps.columns import UNKNOWN, counting, parts, search
from headway.sources.steps.lines import LONGEST, StepLines, seconds_ns
from headway.sources.text import clean

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_FLOAT: Final = struct.Struct("=d")
_NEXT: Final = 1 << 62
"""As the number of an iteration: the next, whichever it is."""
_NOTHING: Final = -2


class Mark(NamedTuple):
    """A line that tells of something else than iterations.

    Attributes:
        number: The line's number.
        kind: Of what: ``banner``, ``saved``, ``evaluation``, or how the program ended.
        at_ns: When it was written.
        step: The step through which all was saved; None: the one before the next that is told.
        took_ns: How long it took [ns].
        rank: Who says it.
    """

    number: int
    kind: str
    at_ns: int | None = None
    step: int | None = None
    took_ns: int | None = None
    rank: int = -1


class _Evaluated(NamedTuple):
    """An evaluation whose time is in an iteration: that one's number, and the line that tells of it."""

    step: int
    number: int
    at_ns: int | None


@dataclass
class Iterations:
    """Lines of iterations: each that is logged with its own time, in some programs an evaluation before it included.

    The share of the peak of each is in ``mfu``, the bytes of a float in the place of a whole number.

    Attributes:
        log: What they are told to: those of the first training, where there are several.
        evaluated: By rank, the evaluation that no iteration with its time came after yet.
        last: The iteration that was told last.
        trainings: What the lines of each training are told to, in the order of the log.
    """

    log: StepLines
    rows: Table = field(default_factory=lambda: Table("line", "step", "took", "at", "rank", "evaluated", "final"))
    mfu: array[int] = field(default_factory=lambda: array("q"))
    marks: list[Mark] = field(default_factory=list)
    evaluated: dict[int, _Evaluated] = field(default_factory=dict)
    last: int = -1
    trainings: list[StepLines] = field(default_factory=list)

    def take(self, found: re.Match[str], number: int, at_ns: int | None, rank: int) -> None:
        """Read the line of an iteration."""
        said = found.groupdict()
        step, took = int(said["step"]), seconds_ns(said["took"], UNIT[said["unit"]])
        if took is None or step >= 1 << 61:
            self.log.bad.add("no step, left out", number, f"its time is {clean(said['took'], 40)!r}")
            return
        who = rank if rank in self.evaluated else -1
        evaluated, final = who in self.evaluated and self.evaluated[who].step in {step, _NEXT}, -1
        if planned := said.get("planned"):
            final = int(planned) - (said["percent"] is not None)
        self.rows.append((number, step, took, UNKNOWN if at_ns is None else at_ns, rank, evaluated, final))
        self.last = step
        try:
            mfu = float(said.get("mfu") or said.get("share") or "nan") / 100
        except ValueError:
            mfu = math.nan
        if math.isnan(mfu) and number == self.log.unended and self.mfu:  # cut before it
            self.mfu.append(self.mfu[-1])
        else:
            self.mfu.frombytes(_FLOAT.pack(mfu))
        if evaluated:
            del self.evaluated[who]

    def extend(self, numbers: Ints, values: list[NDArray[np.float64]]) -> bool:
        """Read the lines of many iterations, as learned; return whether all make sense."""
        step, took = values[0].astype(np.int64), values[1] * 1e-3
        if took.max() > LONGEST / NS_PER_S or (at := self.log.stamps(values[6:])) is None:
            return False
        rank, evaluated = front.ranks(values[5]), np.zeros(len(step), bool)
        for who, told in list(self.evaluated.items()):
            which = (rank == who) | (who < 0)
            if told.step != _NEXT:
                which &= step == told.step
            if which.any():
                evaluated[np.argmax(which)] = True
                del self.evaluated[who]
        own = np.rint(took * NS_PER_S).astype(np.int64)
        planned = np.isfinite(values[3])
        final = np.where(planned, np.where(planned, values[3], 0) - np.isfinite(values[4]), -1).astype(np.int64)
        self.rows.extend(numbers, step, own, at, rank, evaluated.view(np.int8), final)
        self.mfu.frombytes((values[2] / 100).data.cast("B"))
        self.last = int(step[-1])
        return True

    def other(self, text: str, number: int, at_ns: int | None, rank: int) -> None:
        """Read another line."""
        if found := EVALUATED.search(text):
            self._untimed(rank)
            self.evaluated[rank] = _Evaluated(int(found[1]), number, at_ns)
        elif WITHIN.search(text):
            if rank in self.evaluated and self.evaluated[rank].step != _NEXT:
                self._untimed(rank)
            self.evaluated[rank] = _Evaluated(_NEXT, number, at_ns)
        elif found := TIMED.search(text):
            took_ns = seconds_ns(found[1], UNIT[found[2]])
            self.marks.append(Mark(number, "evaluation", at_ns, took_ns=took_ns, rank=rank))
        elif BETWEEN.search(text):
            self.marks.append(Mark(number, "evaluation", at_ns, rank=rank))
        elif (saved := self._saved(text, rank)) != _NOTHING:
            self.marks.append(Mark(number, "saved", at_ns, saved, rank=rank))
        elif STARTED.search(text):
            self.marks.append(Mark(number, "banner", at_ns, rank=rank))
        elif ENDED.search(text) and len(self.rows):
            self.marks.append(Mark(number, "finished", at_ns, rank=rank))

    def _saved(self, text: str, rank: int) -> int | None:
        """Return the step through which a line says that all was saved, as `Mark` has it; `_NOTHING`: it does not."""
        if "saving checkpoint to" in text:  # before the iteration of that number
            told = self.evaluated.get(rank)
            return told.step - 1 if told is not None and told.step != _NEXT else None
        if "Saving checkpoint to" in text:
            return self.last
        if found := SAVED.search(text):
            return int(found[1]) if found[1] else int(found[2]) - 1
        return _NOTHING

    def _untimed(self, rank: int) -> None:
        """Note an evaluation that no line with a time came after."""
        if (told := self.evaluated.pop(rank, None)) is not None:
            self.marks.append(Mark(told.number, "evaluation", told.at_ns, rank=rank))

    def finish(self) -> None:
        """Give all to the logs of their trainings, in the order of the lines."""
        for rank in list(self.evaluated):
            self._untimed(rank)
        self.marks.sort(key=lambda mark: mark.number)
        rows = {name: column.values() for name, column in self.rows.columns.items()}
        n, line = len(rows["step"]), rows["line"]
        begins = [0, *self._begins(rows)]
        numbers = [mark.number for mark in self.marks]
        firsts = [0, *(self._first(numbers, int(line[begin - 1]), int(line[begin])) for begin in begins[1:])]
        ends: list[int | None] = []
        alone = len(begins) == 1
        for number, (begin, end) in enumerate(zip(begins, [*begins[1:], n], strict=True)):
            log = another(self.log, 0) if number else self.log
            log.first = 0
            part, until = slice(begin, end), bisect_left(numbers, firsts[number + 1]) if end < n else None
            marks = self.marks[bisect_left(numbers, firsts[number]) : until]
            mine = {name: values[part] for name, values in rows.items()}
            moments = [*mine["at"][-1:].tolist(), *(mark.at_ns for mark in marks[-1:])]
            ends.append(max((at for at in moments if at not in {None, UNKNOWN}), default=None))
            self.trainings.append(log)
            if self.log.opening is not None and not number:  # what comes before the first and has no time was then
                log.last_at = self.log.opening
            _Telling(log, marks, self.mfu if alone else self.mfu[part]).tell(mine)
        share(self.trainings, ends[:-1])
        self.rows, self.mfu = Table(), array("q")

    def _first(self, numbers: list[int], before: int, after: int) -> int:
        """Return the line with which a training begins that lies between two iterations."""
        marks = self.marks[bisect_left(numbers, before) : bisect_left(numbers, after)]
        ended = [mark.number + 1 for mark in marks if mark.kind == "finished"]
        return max(ended, default=min((mark.number for mark in marks if mark.kind == "banner"), default=after))

    def _begins(self, rows: dict[str, Ints]) -> list[int]:
        """Return the places of the iterations with which another training begins, after one that came to its end."""
        mine = _mine(rows["rank"])
        step, line, final = (rows[name][mine] for name in ("step", "line", "final"))
        begins, first = [], int(step[0]) if len(step) else 0
        ends = [mark.number for mark in self.marks if mark.kind == "finished"]
        for place in (np.flatnonzero(step[1:] <= step[:-1]) + 1).tolist():
            done = 0 <= final[place - 1] <= step[place - 1]
            done = done or bisect_left(ends, int(line[place])) > bisect_left(ends, int(line[place - 1]))
            if step[place] <= first and done:
                begins.append(place)
                first = int(step[place])
        return [int(place) for place in _among(mine, np.array(begins, np.int64))]


@dataclass
class _Telling:
    """What is told of the iterations of one training.

    Attributes:
        log: What it is told to.
        marks: What was read beside them, in order.
        mfu: The share of the peak of each, as `Iterations` has it: it becomes what each lost below the peak.
    """

    log: StepLines
    marks: list[Mark]
    mfu: array[int]

    def tell(self, rows: dict[str, Ints]) -> None:
        """Give all to the log, in the order of the lines."""
        line, step, own, at, rank, evaluated, final = rows.values()
        n, mine = len(step), _mine(rank)
        evals, is_plain = np.flatnonzero(evaluated[mine]), evaluated[mine] == 0
        usual = int(np.median(own[mine][is_plain], overwrite_input=True)) if is_plain.any() else None
        first = (evals == 0) | (step[mine][evals] <= step[mine][evals - 1])
        evals = _among(mine, evals)
        beyond = own[evals].astype(np.int64) - (usual or 0)
        each = np.maximum(beyond[~first], 0)
        evaluation = int(np.median(each)) if len(each) else None
        lost = self._lost()
        more = (beyond > 0) & (usual is not None)
        if more.any():
            self.log.warnings.append(
                "what an iteration with an evaluation took beyond the median of the others is counted as that "
                "evaluation, what was saved with it included; of the first, beyond the later ones, as compile"
            )
            own[evals[more]] = usual or 0
        elif len(evals):
            self.log.warnings.append("evaluations are in the iterations after them: nothing tells how long they took")
        places = search(line, [mark.number for mark in self.marks])
        longer = zip(evals[more].tolist(), beyond[more].tolist(), first[more].tolist(), strict=True)
        told = [(place, index, 0, False) for index, place in enumerate(places)]
        told += [(place, len(places), ns, is_first) for place, ns, is_first in longer]
        done, again = 0, False
        for place, index, ns, is_first in [*sorted(told), (n, -1, 0, False)]:
            some = slice(done, place)
            self.log.steps(step[some], line=line[some], at=at[some], took=own[some], rank=rank[some])
            done = place
            if ns:
                again |= self._begins_again(rows, place, ns)
                self._beyond(rows, place, _split(ns, evaluation, first=is_first))
            elif index >= 0:
                before = int(step[place]) if place < n else int(step[-1]) + 1 if n else 0
                self._mark(self.marks[index], before)
        if again:
            self.log.warnings.append(
                "the log does not say from which step an attempt continued: all from its first on count as done again"
            )
        if lost is not None:  # the one takes the place of the other
            for part in parts(n):
                np.frombuffer(self.mfu, np.int64)[part] = np.rint(lost[part] * own[part])
            self.log.waits["below_peak"] = self.mfu
        if n and 0 <= final[-1] <= step[-1]:
            self.log.close("finished", line=max([int(line[-1]), *(mark.number for mark in self.marks)]) + 1)

    def _begins_again(self, rows: dict[str, Ints], place: int, ns: int) -> bool:
        """Note that a program began, at the latest with what an iteration that goes back took beyond its own time."""
        step, at, rank = rows["step"], rows["at"], rows["rank"]
        if not place or step[place] >= step[place - 1] or rank[place] != rank[place - 1]:
            return False
        begun = max(int(at[place]) - int(rows["took"][place]) - ns, int(at[place - 1]))
        self.log.banner(line=int(rows["line"][place]), at_ns=None if at[place] == UNKNOWN else begun)
        return True

    def _beyond(self, rows: dict[str, Ints], place: int, spans: list[tuple[str, int]]) -> None:
        """Lay what an iteration took beyond its own time before that, one after the other."""
        begin = int(rows["at"][place]) - int(rows["took"][place]) - sum(ns for _, ns in spans)
        for name, ns in spans:
            begin += ns
            until = None if rows["at"][place] == UNKNOWN else begin
            self.log.span(name, line=int(rows["line"][place]), took_ns=ns, at_ns=until, inferred=True)
            self.log.marks[-1].rank = int(rows["rank"][place])

    def _mark(self, mark: Mark, before: int) -> None:
        line, at_ns, n_marks = mark.number, mark.at_ns, len(self.log.marks)
        if mark.kind == "banner":
            self.log.banner(line=line, at_ns=at_ns)
        elif mark.kind == "saved":
            self.log.saved(before - 1 if mark.step is None else mark.step, line=line, at_ns=at_ns)
        elif mark.kind == "evaluation":
            self.log.span("evaluation", line=line, at_ns=at_ns, took_ns=mark.took_ns)
        else:
            self.log.close(mark.kind, line=line, at_ns=at_ns)
        for told in self.log.marks[n_marks:]:
            told.rank = mark.rank

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


def _mine(rank: Ints) -> Ints | slice:
    """Return which lines are of the rank that counts: that which tells most."""
    return slice(None) if rank.strides == (0,) else np.flatnonzero(rank == counting(rank))


def _among(mine: Ints | slice, places: Ints) -> Ints:
    """Return where lines are among all, of those that count."""
    return places if isinstance(mine, slice) else mine[places]


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
