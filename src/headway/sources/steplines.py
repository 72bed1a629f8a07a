r"""What the lines of a training log say, put together: steps, spans, saves, restarts and how it ended.

A source reads the lines of its format and tells a `StepLines` what each says; at the end it asks for the run:

    log = StepLines("nanogpt", path)
    for number, line in files.lines(path):
        if b"iter " not in line:      # cheap first: most lines say nothing
            continue
        said = bare(line)             # without colours and the rank in front
        log.step(7, line=number, at_ns=log.stamp(said.text, number), took_ns=143_000_000, rank=said.rank)
    return log.run("name", asked, devices=8)

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
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from headway.clock import NS_PER_S
from headway.sources import files
from headway.sources.columns import BOUND
from headway.sources.stepcolumns import UNKNOWN, Mark
from headway.sources.stepruns import build
from headway.sources.text import Complaints, clean

if TYPE_CHECKING:
    from pathlib import Path

    from headway.ledger.history import Run
    from headway.sources.asked import Asked

LONGEST: Final = 366 * 86400 * NS_PER_S
"""No step and no span takes longer [ns]."""
LOOKED_AT: Final = 16 << 20
"""How far into a file a source looks to recognise it [bytes]."""
_PIECE: Final = 1 << 18
_COLOURS: Final = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]")
_RANK: Final = re.compile(
    r"\s*(?:\[(?:default|rank ?|1,)(\d{1,7})\](?:<\w{1,9}>)?:?|(\d{1,7}):(?=\s))\s?", re.IGNORECASE
)
_STAMP: Final = re.compile(
    r"(?:\D|(?<!\d)(?:\d{1,3}(?!\d)|\d{4,6}(?![\d/-]))){0,48}?(?<!\d)"
    r"(?:(\d{4})[-/](\d\d)[-/](\d\d)|(\d\d)/(\d\d)/(\d{4}))[ T](\d\d:\d\d):(\d\d)"
    r"(?:[.,](\d{1,9}))?(?:\s?(Z\b|UTC\b|GMT\b|[+-]\d\d:?\d\d\b))?"
)
_PLAIN_STAMP: Final = re.compile(r" ?\[?(\d{4}-\d\d-\d\d) (\d\d:\d\d):([0-5]\d)(?:[.,](\d{1,9}))?\]")
"""The commonest by far, as `_STAMP` would read it."""
_ENDINGS: Final = (
    (b"DUE TO PREEMPTION", "preempted"),
    (b"DUE TO TIME LIMIT", "preempted"),
    (b"Traceback (most recent call last)", "failed"),
    (b"srun: error:", "failed"),
    (b"slurmstepd: error:", "failed"),
    (b"Killing subprocess", "failed"),
    (b"received SIGTERM", "failed"),
    (b"ChildFailedError", "failed"),
    (b"Segmentation fault", "failed"),
    (b"CUDA out of memory", "failed"),
    (b"OutOfMemoryError", "failed"),
)


class Bare(NamedTuple):
    """A line without what a launcher put around it: its text, and the rank it is from (-1: it does not say)."""

    text: str
    rank: int = -1


def bare(line: bytes) -> Bare:
    r"""Return a line without colour codes and the prefix of a rank.

    Example:
        >>> bare(b"[rank3]:\x1b[32mstep 1\x1b[0m\r\n"), bare(b" 12: iteration 7"), bare(b"12:30:07 up")
        (Bare(text='step 1', rank=3), Bare(text='iteration 7', rank=12), Bare(text='12:30:07 up', rank=-1))
    """
    if b"\x1b" in line:
        line = _COLOURS.sub(b"", line)
    text = line.decode("utf-8", "replace").strip("\r\n\0\ufeff")
    found = _RANK.match(text)
    if found is None:
        return Bare(text)
    return Bare(text[found.end() :], int(found[1] or found[2]))


class Stamp(NamedTuple):
    """A moment at the beginning of a line [ns since the Unix epoch], and whether it names its zone."""

    ns: int
    zoned: bool


def stamp(text: str) -> Stamp | None:
    """Return the date and time that a line begins with, up to 48 characters in; None where it has none.

    A time without a zone is read as UTC: `StepLines` says so.

    Raises:
        ValueError: It looks like one and is none, or is before 1970 or after 2042.

    Example:
        >>> stamp("[2024-01-02 03:04:05,25] step 1"), stamp("[titan] 2024-01-02T05:04:05.25+02:00 x"), stamp("step 1")
        (Stamp(ns=1704164645250000000, zoned=False), Stamp(ns=1704164645250000000, zoned=True), None)
    """
    if found := _PLAIN_STAMP.match(text):
        day, clock, second, fraction = found.groups()
        ns = (_minute(f"{day} {clock}") + int(second)) * NS_PER_S + int((fraction or "0").ljust(9, "0"))
        if 0 <= ns < BOUND:
            return Stamp(ns, zoned=False)
    found = _STAMP.match(text)
    if found is None:
        return None
    year, month, day, us_month, us_day, us_year, clock, second, fraction, zone = found.groups()
    minute = _minute(f"{year or us_year}-{month or us_month}-{day or us_day} {clock}")
    ns = (minute + int(second)) * NS_PER_S + int((fraction or "0").ljust(9, "0"))
    if zone and zone[0] in "+-":
        away = int(zone[1:3]) * 3600 + int(zone[-2:]) * 60
        ns -= (away if zone[0] == "+" else -away) * NS_PER_S
    if not 0 <= ns < BOUND or int(second) > 60:
        raise ValueError(f"{clean(found[0].strip(), 60)!r} is out of range")
    return Stamp(ns, zone is not None)


@lru_cache(4096)
def _minute(text: str) -> int:
    """Return a date and time of day [s since the Unix epoch]."""
    return int(datetime.strptime(text, "%Y-%m-%d %H:%M").replace(tzinfo=UTC).timestamp())


def ending(line: bytes) -> str | None:
    """Return how a program ended, as `headway.events.CLOSE_REASONS` say it, if the line tells; else None.

    Example:
        >>> ending(b"Traceback (most recent call last):"), ending(b"all is well")
        ('failed', None)
    """
    for mark, reason in _ENDINGS:
        if mark in line:
            return reason
    return None


def holds(path: Path, head: bytes, mark: bytes, line: re.Pattern[bytes]) -> bool:
    """Return whether a line near the beginning of a file is of a kind, for a source that is asked to recognise it.

    Args:
        path: The file.
        head: Its beginning, see `headway.sources.registry.Source`.
        mark: What such a line holds: looked for first, as it is quick.
        line: What such a line matches, anywhere in it.
    """
    if path.is_dir():
        return False
    if mark in head and line.search(head):
        return True
    left, before = LOOKED_AT, b""
    with suppress(OSError, files.TornError), files.plain(path) as file:
        while left > 0 and (piece := file.read(min(left, _PIECE))):
            left -= len(piece)
            both = before + piece
            if mark in both and line.search(both):
                return True
            before = piece[-4096:]
    return False


def seconds_ns(text: str | float, unit: float = 1.0) -> int | None:
    """Return a length as nanoseconds; None where it is no number from 0 to a year.

    Args:
        text: A number, or what spells one.
        unit: What it counts [s].

    Example:
        >>> seconds_ns("1.5"), seconds_ns("250", 1e-3), seconds_ns("nan"), seconds_ns("-1")
        (1500000000, 250000000, None, None)
    """
    try:
        value = float(text) * unit
    except (ValueError, OverflowError):
        return None
    return round(value * NS_PER_S) if 0 <= value <= LONGEST / NS_PER_S else None


@dataclass
class StepLines:
    """A training log as its source reads it, line by line in the order of the file.

    Times are nanoseconds since the Unix epoch, lengths nanoseconds; None where the line does not say.

    Attributes:
        source: The name of the source.
        path: The file.
        usual: How many steps a line stands for, where the log says so; 0: as most of its lines do.
        first: The number the first step has; a log that counts from 0 says 0.
        bad: What could not be read; a source adds its own complaints.
        warnings: What else is to be said of the run; a source adds its own sentences.
        marks, columns, waits: What it was told so far.
        earliest, latest: The first and the last moment that it names.
        opening, last_at: The moments that are named first and last in the file.
        n_zoned, n_local: How many times name a zone, and how many do not.
    """

    source: str
    path: Path
    usual: int = 0
    first: int = 1
    bad: Complaints = field(init=False)
    warnings: list[str] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    columns: dict[str, array[int]] = field(init=False)
    waits: dict[str, array[int]] = field(default_factory=dict)
    earliest: int | None = None
    latest: int | None = None
    opening: int | None = None
    n_zoned: int = 0
    n_local: int = 0
    last_at: int = UNKNOWN

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self.bad = Complaints(clean(self.path.name))
        self.columns = {name: array("q") for name in ("line", "step", "at", "took", "count", "rank")}

    def __len__(self) -> int:
        """Return how many lines told of steps so far."""
        return len(self.columns["step"])

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the number and the bytes of each line of the file; where its gzip breaks they end, with a complaint.

        Raises:
            OSError: It cannot be read.
        """
        number = 0
        try:
            for number, line in files.lines(self.path):
                yield number, line
        except files.TornError as error:
            self.bad.add("where its gzip breaks, and the rest is left out", number, str(error))

    def stamp(self, text: str, line: int) -> int | None:
        """Return the moment a line begins with; None where it has none, or with a complaint one of no sense.

        It is also remembered as a moment at which the program ran.
        """
        try:
            found = stamp(text)
        except ValueError as error:
            self.bad.add("with a time of no sense, read without it", line, str(error))
            return None
        if found is None:
            return None
        self.n_zoned += found.zoned
        self.n_local += not found.zoned
        self.seen(found.ns)
        return found.ns

    def seen(self, at_ns: int) -> None:
        """Note a moment at which the program ran: the log's first and last bound the run."""
        if 0 <= at_ns < BOUND:
            if self.earliest is None:
                self.earliest = self.opening = at_ns
            elif at_ns < self.earliest:
                self.earliest = at_ns
            if self.latest is None or at_ns > self.latest:
                self.latest = at_ns
            self.last_at = at_ns

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
        columns = self.columns
        columns["line"].append(line)
        columns["step"].append(step)
        columns["at"].append(at)
        columns["took"].append(took)
        columns["count"].append(count)
        columns["rank"].append(rank)
        for phase, wait in (waits or {}).items():
            self.wait(phase, wait)
        if at != UNKNOWN:
            self.seen(at)
        return True

    def wait(self, phase: str, took_ns: int) -> None:
        """Say what one step of the last step line waited in a phase [ns]; an impossible amount is passed over."""
        if len(self) and 0 <= took_ns <= LONGEST:
            self.waits.setdefault(phase, array("q"))
            self.waits[phase].extend([0] * (len(self) - len(self.waits[phase])))
            self.waits[phase][-1] = took_ns

    def span(self, category: str, *, line: int, at_ns: int | None = None, took_ns: int | None = None) -> None:
        """Note an interval that ended with this line.

        Without ``took_ns`` it is what no step took between the two step lines around it, where they have times.
        """
        if took_ns is not None and not 0 <= took_ns <= LONGEST:
            self.bad.add(f"no {category}, left out", line, "its time is out of range")
            return
        self._mark(Mark("span", line, category, took=UNKNOWN if took_ns is None else took_ns), at_ns)

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
        mark.at, mark.timed = self.last_at, at_ns is not None
        previous = self.marks[-1] if self.marks else None
        if previous and mark.kind in {"banner", "close"} and (previous.kind, previous.name) == (mark.kind, mark.name):
            if mark.kind == "close" and self.columns["line"] and self.columns["line"][-1] < previous.line:
                return  # many ranks say it: once is enough
            if mark.kind == "banner" and (not len(self) or self.columns["line"][-1] < previous.line):
                return
        self.marks.append(mark)

    def run(
        self,
        name: str,
        asked: Asked,
        *,
        devices: int | None = None,
        accelerator: str | None = None,
        rows: str | None = None,
    ) -> Run:
        """Return the run.

        Args:
            name: What it is called; it is cleaned.
            asked: What the reader says.
            devices: How many devices the log says there were; None: it does not say.
            accelerator: What they are.
            rows: What a row is, see `headway.events.ROWS`; None: ``step`` where each line is one step, else ``block``.

        Raises:
            SourceError: No line told of a step, slug ``no-runs``.
        """
        return build(self, name, asked, devices=devices, accelerator=accelerator, rows=rows)
