r"""What the lines of a training log say, put together: steps, spans, saves, restarts and how it ended.

A source reads the lines of its format and tells a `StepLines` what each says; at the end it asks for the run:

    _STEP = re.compile(r"iter (\d+): .* time ([\d.]+)ms")

    def load(self, path, asked):
        log = StepLines("mine", path)
        for number, line in log.lines():      # bytes; a source of long logs looks for a mark in them first
            said = bare(line)                 # a text without colours and the rank in front
            at = log.stamp(said.text, number) # when it was written, None where it does not say; opens the run, too
            if found := _STEP.search(said.text):
                log.step(int(found[1]), line=number, at_ns=at, took_ns=seconds_ns(found[2], 1e-3), rank=said.rank)
            elif "saved" in said.text:
                log.saved(log.columns["step"][-1] if len(log) else -1, line=number, at_ns=at)
        return [log.run("name", asked, devices=8)]

Where most lines are alike but for their digits, `StepLines.read` reads them many at a time, and `StepLines.steps` takes
what they say; `headway.sources.steps.alike` tells why that says the same.

Rules, so that each source need not have its own:

* Where step lines carry a time, time decides: order and repeated lines change nothing. A step ends with its line and
  began ``took_ns`` x steps before, but not before the line before. Without ``took_ns`` it began with the line before.
* Where none carries a time, the file's order decides: steps and spans are laid end to end, from the first moment that
  the log names or from 0, and the run says that R is unknown.
* A line stands for the steps since the line before it, at most as many as is usual; each is a row of equal length
  and the rows are then ``block``. So many steps that are missing between two lines are a warning.
* Times in whole seconds are given the fraction that the lengths of the steps tell, each within its second.
* A step number that goes back, or a `banner` between two steps, begins another attempt.
* What is said of many ranks is taken from the one with most steps.
* A line without a time of its own has the one that the log's keeper put in front of it, such as a container's log; the
  first and the last of these bound the run. Where the lines say other times themselves, the keeper's are not used.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.sources import files
from headway.sources.columns import BOUND
from headway.sources.steps.alike import Alike, Spans
from headway.sources.steps.column import Column, Table
from headway.sources.steps.columns import UNKNOWN, Mark
from headway.sources.steps.line import (
    LONGEST,
    LOOKED_AT,
    Bare,
    Stamp,
    bare,
    ending,
    holds,
    seconds_ns,
    stamp,
)
from headway.sources.steps.moments import Moments
from headway.sources.steps.runs import build
from headway.sources.zone import in_order, utc_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headway.ledger.history import Run
    from headway.sources.asked import Asked

    Ints = NDArray[np.int64]

__all__ = ["LONGEST", "LOOKED_AT", "Bare", "Stamp", "StepLines", "bare", "ending", "holds", "seconds_ns", "stamp"]

_LAST_NUMBER: Final = re.compile(rb"(?<=[ =])-?[\d.]{1,40}\Z")

_FEW: Final = 8
"""Fewer lines than that are read one by one."""


def _is_below(values: Ints, bound: int) -> bool:
    """Return whether all that is known is from 0 up to a bound."""
    known = values[values != UNKNOWN]
    return not len(known) or (int(known.min()) >= 0 and int(known.max()) < bound)


@dataclass
class StepLines(Moments):
    """A training log as its source reads it, line by line in the order of the file.

    Times are nanoseconds since the Unix epoch, lengths nanoseconds; None where the line does not say.

    Attributes:
        usual: How many steps a line stands for, where the log says so; 0: as most of its lines do.
        first: The number the first step has; a log that counts from 0 says 0.
        marks: What it was told so far beside steps.
        waits: By phase, what one step of each line waited [ns]; later lines waited 0.
        unended: The number of the last line, if it has no newline: it may be cut.
        stepped: The last line that tells of a step, where its source tells of the step itself only later.
    """

    usual: int = 0
    first: int = 1
    marks: list[Mark] = field(default_factory=list)
    waits: dict[str, array[int]] = field(default_factory=dict)
    unended: int = 0
    stepped: int = 0
    _told: Table = field(default_factory=lambda: Table("line", "step", "at", "took", "count", "rank"))

    def __len__(self) -> int:
        """Return how many lines told of steps so far."""
        return len(self._told)

    @property
    def columns(self) -> dict[str, Column]:
        """What lines told of steps so far: ``line``, ``step``, ``at``, ``took``, ``count``, ``rank``, as for `step`."""
        return self._told.columns

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number and the bytes of each line of the file; where its gzip breaks they end, with a complaint.

        Of a last line without a newline the number that it ends with is left out, as it may be cut.

        Raises:
            OSError: It cannot be read.
        """
        number, first = 0, b""
        try:
            for number, line in files.lines(self.path):
                if not line.endswith(b"\n"):
                    line = self._whole(number, line)  # noqa: PLW2901
                self._now = number, line
                if number == 1:
                    first = line
                yield number, line
        except files.TornError as error:
            self._torn(number, error)
        self._bound(first, self._now[1])

    def read(
        self,
        learn: Callable[[bytes], Spans | None],
        many: Callable[[Ints, list[NDArray[np.float64]]], bool],
        take: Callable[[int, bytes], None],
        marks: Sequence[bytes] = (),
    ) -> None:
        """Read the lines of the file, those at once that are alike but for their digits; else as `lines` does.

        That a last line has no newline is a complaint if it says something.

        Args:
            learn: Told a line, returns where its numbers are; nothing of a line that says nothing, None of one that
                must be read by itself. It must find the same in lines that differ in nothing but digits.
            many: Takes the numbers of lines, ``(n,)``, and the numbers in them as learned, each ``(n,)``, NaN where a
                line has none. It returns whether it could: if not, they are taken one by one.
            take: Takes the number and the bytes of one line.
            marks: A line that holds none of them says nothing; without any, ``learn`` alone decides.

        Raises:
            OSError: It cannot be read.
        """
        alike, number, begin, line = Alike(learn, marks), 0, b"", b""
        try:
            for first, block in files.blocks(self.path):
                if not block.endswith(b"\n"):
                    if len(block) < files.MAX_LINE and learn(block) != ():
                        self.bad.add("the last and has no end: it may be cut", first)
                    block = self._whole(first, block)  # noqa: PLW2901
                found = alike.split(first, block)
                if first == 1:
                    begin = found.line(1)
                done = 0
                for place, alone in [*found.alone(), (len(found.numbers), None)]:
                    some = found.numbers[done:place], [values[done:place] for values in found.values]
                    if place - done < _FEW or not many(*some):
                        for number in some[0].tolist():
                            self._take(number, found.line(number), take)
                    done = place
                    if alone is not None:
                        self._take(alone, found.line(alone), take)
                number = found.last
                line = found.line(number)
        except files.TornError as error:
            self._torn(number, error)
        self._bound(begin, line)

    def _take(self, number: int, line: bytes, take: Callable[[int, bytes], None]) -> None:
        self._now = number, line
        take(number, line)

    def _whole(self, number: int, line: bytes) -> bytes:
        """Return the last line of a file, without a newline, without the number that it ends with: it may be cut."""
        if len(line) >= files.MAX_LINE:
            return line
        self.unended = number
        return _LAST_NUMBER.sub(b"", line)

    def _torn(self, number: int, error: files.TornError) -> None:
        self.bad.add("where its gzip breaks, and the rest is left out", number, str(error))

    def step(
        self,
        step: int,
        *,
        line: int,
        at_ns: int | None = None,
        took_ns: int | None = None,
        count: int = 0,
        rank: int = -1,
        waits: dict[str, int] | None = None,
    ) -> bool:
        """Note a line that tells of the steps up to a number; return whether it makes sense (else it is left out).

        Args:
            step: The last step it stands for.
            line: The line's number.
            at_ns: When the step ended.
            took_ns: How long **one** step took.
            count: How many steps it stands for; 0: those since the line before, at most as many as is usual.
            rank: Who says it.
            waits: By phase, how long **one** step waited.
        """
        took = UNKNOWN if took_ns is None else took_ns
        at = UNKNOWN if at_ns is None else at_ns
        why = ""
        if not 0 <= step < BOUND:
            why = "its step number is out of range"
        elif not 0 <= count < BOUND:
            why = "it stands for an impossible number of steps"
        elif (took != UNKNOWN and not 0 <= took <= LONGEST) or (at != UNKNOWN and not 0 <= at < BOUND):
            why = "its time is out of range"
        if why:
            self.bad.add("no step, left out", line, why)
            return False
        self._told.append((line, step, at, took, count, rank))
        if waits:
            for phase, wait in waits.items():
                self.wait(phase, wait)
        if at != UNKNOWN:
            self.seen(at)
        return True

    def steps(
        self, step: Ints, *, line: Ints, at: Ints, took: Ints, rank: Ints, waits: dict[str, Ints] | None = None
    ) -> None:
        """Note many lines, as `step` does one.

        Args:
            step: As for `step`, this and the others ``(n,)``.
            line: As for `step`.
            at: As for `step`, `UNKNOWN` for None.
            took: As for `step`, `UNKNOWN` for None.
            rank: As for `step`.
            waits: By phase, how long **one** step of each line waited, from 0 to `LONGEST`, ``(n,)``.
        """
        n, last = len(step), len(self)
        if n < _FEW or not (_is_below(step, BOUND) and _is_below(at, BOUND) and _is_below(took, LONGEST + 1)):
            rows = zip(*(values.tolist() for values in (step, line, at, took, rank)), strict=True)
            for index, (number, where, when, own, who) in enumerate(rows):
                own_ns = None if own == UNKNOWN else own
                told = self.step(number, line=where, at_ns=None if when == UNKNOWN else when, took_ns=own_ns, rank=who)
                for phase, values in (waits or {}).items() if told else ():
                    self.wait(phase, int(values[index]))
            return
        self._told.extend(line, step, at, took, np.broadcast_to(np.int64(0), n), rank)
        for phase, values in (waits or {}).items():
            waited = self.waits.setdefault(phase, array("q"))
            waited.frombytes(bytes(8 * (last - len(waited))))
            waited.frombytes(np.ascontiguousarray(values, np.int64).data.cast("B"))
        if len(known := at[at != UNKNOWN]):
            self._see(known)

    def wait(self, phase: str, took_ns: int) -> None:
        """Say what one step of the last step line waited in a phase [ns]; an impossible amount is passed over."""
        if len(self) and 0 <= took_ns <= LONGEST:
            self.waits.setdefault(phase, array("q"))
            self.waits[phase].extend([0] * (len(self) - len(self.waits[phase])))
            self.waits[phase][-1] = took_ns

    def span(
        self,
        category: str,
        *,
        line: int,
        at_ns: int | None = None,
        took_ns: int | None = None,
        inferred: bool = False,
    ) -> None:
        """Note an interval that ended with this line.

        Without ``took_ns`` it is what no step took between the two step lines around it, where they have times.
        An inferred one the log does not tell: its source worked it out from other times.
        """
        if took_ns is not None and not 0 <= took_ns <= LONGEST:
            self.bad.add(f"no {category}, left out", line, "its time is out of range")
            return
        took = UNKNOWN if took_ns is None else took_ns
        self._mark(Mark("span", line, category, took=took, inferred=inferred), at_ns)

    def saved(self, step: int, *, line: int, at_ns: int | None = None) -> None:
        """Note that progress through a step is durable."""
        if -1 <= step < BOUND:
            self._mark(Mark("saved", line, step=step), at_ns)

    def restored(self, step: int, *, line: int, at_ns: int | None = None) -> None:
        """Note that the program continues after a step; -1 is from scratch."""
        if -1 <= step < BOUND:
            self._mark(Mark("restored", line, step=step), at_ns)

    def banner(self, *, line: int, at_ns: int | None = None) -> None:
        """Note that a program began: after steps, that is another attempt. Several in a row are one."""
        self._mark(Mark("banner", line), at_ns)

    def close(self, reason: str, *, line: int, at_ns: int | None = None) -> None:
        """Note how a program ended, see `headway.events.CLOSE_REASONS`; later steps of its attempt undo it."""
        self._mark(Mark("close", line, reason), at_ns)

    def _mark(self, mark: Mark, at_ns: int | None) -> None:
        if at_ns is not None:
            self.seen(at_ns)
        mark.at, mark.timed, mark.told = self.last_at, at_ns is not None, len(self)
        if mark.line == self._now[0]:
            mark.rank = bare(self._now[1]).rank
        previous = self.marks[-1] if self.marks else None
        if previous and mark.kind in {"banner", "close"} and (previous.kind, previous.name) == (mark.kind, mark.name):
            stepped = max(self.stepped, self.columns["line"][-1] if len(self) else 0)
            if stepped < previous.line and (stepped or mark.kind == "banner"):
                return  # many ranks say it: once is enough
        self.marks.append(mark)

    def place(self, zone: tzinfo | None) -> bool:
        """Read the times so far, which name no zone, as of one; return whether that is possible where there are some.

        Args:
            zone: The zone; None leaves them as they are.
        """
        if zone is None or not self.n_local:
            return True
        if self.n_zoned:
            return False
        at = self.columns["at"].values()
        known = np.flatnonzero(at != UNKNOWN)
        placed = at.astype(np.int64)
        placed[known] = in_order(placed[known], zone)
        self.columns["at"] = Column()
        self.columns["at"].extend(placed)
        marks = [mark for mark in self.marks if mark.at != UNKNOWN]
        for mark, moment in zip(marks, in_order(np.array([mark.at for mark in marks], np.int64), zone), strict=True):
            mark.at = int(moment)
        self.earliest, self.opening, latest = (
            None if moment is None else utc_of(moment, zone) for moment in (self.earliest, self.opening, self.latest)
        )
        self.latest = max([*placed[known][-1:].tolist(), *([] if latest is None else [latest])], default=None)
        self.n_local, self.n_zoned = 0, self.n_local
        return True

    def run(
        self,
        name: str,
        asked: Asked,
        *,
        devices: int | None = None,
        accelerator: str | None = None,
        rows: str | None = None,
        stepless: bool = False,
    ) -> Run:
        """Return the run.

        Args:
            name: What it is called; it is cleaned.
            asked: What the reader says.
            devices: How many devices the log says there were; None: it does not say.
            accelerator: What they are.
            rows: What a row is, see `headway.events.ROWS`; None: ``step`` in an attempt whose first line is one step,
                else ``block``.
            stepless: Whether spans are enough.

        Raises:
            SourceError: No line told of a step, slug ``no-runs``.
        """
        return build(self, name, asked, devices=devices, accelerator=accelerator, rows=rows, stepless=stepless)
