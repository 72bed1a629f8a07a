"""The step lines of a training log as columns: of one rank, in the order of time, each once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from headway.clock import NS_PER_S
from headway.units import show_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headway.sources.steps.lines import StepLines

    Ints = NDArray[np.int64]

UNKNOWN: Final = -(1 << 62)
"""A time or a length that nobody says."""
HOUR_NS: Final = 3600 * NS_PER_S
"""A clock is set by so much where summer time begins or ends [ns]."""


@dataclass(slots=True)
class Mark:
    """One thing a line says beside steps.

    Attributes:
        kind: ``span``, ``saved``, ``restored``, ``banner`` or ``close``.
        line: Its line's number.
        at: When [ns since the Unix epoch]; of a line without a time that of the one before it, or `UNKNOWN`.
        timed: Whether the line itself has a time.
        name: The category of a span, the reason of a close.
        step: The step of a save or a restore.
        took: How long a span took [ns], or `UNKNOWN`.
        inferred: Whether a span was worked out from other times.
        told: How many step lines were told before it.
        place: How many step lines come before it, once all are in their order.
        rank: Who tells it; -1 where the line does not say.
    """

    kind: str
    line: int
    name: str = ""
    step: int = 0
    took: int = UNKNOWN
    at: int = UNKNOWN
    timed: bool = False
    told: int = 0
    place: int = 0
    inferred: bool = False
    rank: int = -1


@dataclass(eq=False)
class Lines:
    """Step lines in their order, as columns, each ``(n,)``, int32 or int64; one of equal numbers may be read-only.

    Attributes:
        line, step, at, took, count: As `headway.sources.steps.lines.StepLines.step` says, `UNKNOWN` for None.
        waits: By phase [ns], of one step.
        clocked: Whether they have times; else the file's order is theirs.
        shift_from: The line from which on times were moved by an hour, where a clock was set back.
    """

    line: Ints
    step: Ints
    at: Ints
    took: Ints
    count: Ints
    waits: dict[str, Ints]
    clocked: bool
    shift_from: int | None = None

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.step)

    def take(self, which: NDArray[np.generic] | slice) -> Lines:
        """Return some of them: by place, or by a mask; of a range no copy is made."""
        return Lines(
            picked(self.line, which),
            picked(self.step, which),
            picked(self.at, which),
            picked(self.took, which),
            picked(self.count, which),
            {name: picked(values, which) for name, values in self.waits.items()},
            self.clocked,
            self.shift_from,
        )


def picked(values: Ints, which: NDArray[np.generic] | slice) -> Ints:
    """Return some of the numbers; of equal ones that are kept as one, as one again."""
    if values.strides != (0,) or isinstance(which, slice) or not len(values):
        return values[which]
    n = int(np.count_nonzero(which)) if which.dtype == bool else len(which)
    return np.broadcast_to(values[0], n)


def parts(n: int, size: int = 1 << 16) -> Iterator[slice]:
    """Yield ranges that make up n places, so that what is worked out for each takes little memory.

    Example:
        >>> list(parts(5, 3))
        [slice(0, 3, None), slice(3, 5, None)]
    """
    for begin in range(0, n, size):
        yield slice(begin, min(begin + size, n))


def search(values: Ints, wanted: Sequence[int], side: Literal["left", "right"] = "left") -> list[int]:
    """Return where numbers belong among ordered ones; in their own type, as else all of these would be copied."""
    bounds = np.iinfo(values.dtype)
    fit = np.clip(np.array(wanted, np.int64), bounds.min, bounds.max).astype(values.dtype)
    return [int(place) for place in np.searchsorted(values, fit, side)]


def counting(rank: Ints) -> int:
    """Return the rank that most lines tell of, of several the first.

    Example:
        >>> counting(np.array([0, 7, 7, -1]))
        7
    """
    if rank.strides == (0,) and len(rank):
        return int(rank[0])
    names, counts = np.unique(rank, return_counts=True)
    return int(names[np.argmax(counts)]) if len(names) else -1


def once(log: StepLines, lines: Lines) -> list[Mark]:
    """Return the marks of a log, each once.

    What several ranks tell is taken from the one whose steps count, or if it does not tell it from the one that does
    so most; how a program ended, from all.
    """
    main = counting(log.columns["rank"].values())
    told: dict[tuple[str, str], dict[int, int]] = {}
    for mark in log.marks:
        if mark.rank >= 0:
            ranks = told.setdefault((mark.kind, mark.name), {})
            ranks[mark.rank] = ranks.get(mark.rank, 0) + 1
    whose = {}
    for kind, ranks in told.items():
        whose[kind] = main if main in ranks else max(ranks, key=lambda one: (ranks[one], -one))
    marks = [one for one in log.marks if one.rank in {-1, whose.get((one.kind, one.name))} or one.kind == "close"]
    return _timed_once(log, lines, marks) if lines.clocked else _once_between(log, marks, main)


def _once_between(log: StepLines, marks: Sequence[Mark], main: int) -> list[Mark]:
    """Return the marks of a log whose lines have no times, without those told again.

    A step line that is told several times in a row is told by so many that do not say who they are; they tell what
    follows as often.
    """
    step, rank = (log.columns[name].values() for name in ("step", "rank"))
    begun = [mark.told for mark in marks if mark.kind in {"banner", "restored"} and mark.told < len(step)]
    begins = np.ones(len(step), bool)
    np.not_equal(step[1:], step[:-1], out=begins[1:])
    begins[begun] = True
    if begins.all():
        return list(marks)
    first = np.flatnonzero(begins)
    n_told = np.diff(first, append=len(step))
    n_own = np.maximum(np.add.reduceat(rank == main, first, dtype=np.int64), 1)
    left: dict[tuple[object, ...], int] = {}
    kept = []
    for mark, behind in zip(marks, search(first, [mark.told for mark in marks]), strict=True):
        place = max(behind - 1, 0)
        key = mark.kind, mark.name, mark.step, mark.took, behind
        n = left.get(key, 0)
        left[key] = n + 1
        if n % int((n_told if mark.rank < 0 else n_own)[place]) == 0:
            kept.append(mark)
    return kept


def _timed_once(log: StepLines, lines: Lines, marks: Sequence[Mark]) -> list[Mark]:
    """Return the marks of a log whose lines have times, without those told again.

    That is at a moment of their own, or after a step line told again; and that a program began, before one told again.
    """
    step, at, number = (log.columns[name] for name in ("step", "at", "line"))
    told: dict[tuple[object, ...], int] = {}
    kept = []
    for mark in marks:
        before = None if mark.timed or not mark.told else step[mark.told - 1]
        key = mark.kind, mark.name, mark.step, mark.took, mark.at, mark.timed, before
        if key in told and (mark.timed or told[key] != mark.told):
            continue
        told[key] = mark.told
        if mark.kind in {"banner", "restored"} and not mark.timed and mark.told < len(step):
            low, high = (search(lines.at, [at[mark.told]], side)[0] for side in ("left", "right"))
            low += search(lines.step[low:high], [step[mark.told]])[0]
            if low < high and lines.step[low] == step[mark.told] and lines.line[low] < number[mark.told]:
                continue
        kept.append(mark)
    return kept


@dataclass
class Ordering:
    """How the lines of a log come into their order.

    Attributes:
        log: What it was told.
        warnings: Sentences that are added to.
    """

    log: StepLines
    warnings: list[str]

    def lines(self) -> Lines:
        """Return the lines in order, each once."""
        return self._ordered(self._one_rank(self._columns()))

    def _columns(self) -> tuple[Lines, Ints]:
        found = {name: column.values() for name, column in self.log.columns.items()}
        n = len(found["step"])
        waits = {}
        for name, values in self.log.waits.items():
            values.frombytes(bytes(8 * (n - len(values))))
            waits[name] = np.frombuffer(values, np.int64)
        n_timed = n - int(np.count_nonzero(found["at"] == UNKNOWN))
        clocked = 2 * n_timed >= n
        if not clocked and n_timed:
            self.warnings.append(
                f"only {n_timed} of {n} lines that tell of steps have a time: their times are not used"
            )
            found["at"] = np.broadcast_to(np.int64(UNKNOWN), n)
        columns = (found["line"], found["step"], found["at"], found["took"], found["count"])
        return Lines(*columns, waits, clocked), found["rank"]

    def _one_rank(self, found: tuple[Lines, Ints]) -> Lines:
        """Return the lines of the rank that says most."""
        lines, rank = found
        if rank.strides == (0,):
            return lines
        chosen = counting(rank)
        mine = rank == chosen
        if not mine.all():
            who = f"rank {chosen}" if chosen >= 0 else "lines without a rank"
            n_ranks = len(np.unique(rank))
            self.warnings.append(f"steps are told by {n_ranks} ranks; only {who} is counted, which tells most")
            lines = lines.take(mine)
        return lines

    def _ordered(self, lines: Lines) -> Lines:
        """Return the lines in order, each once."""
        if lines.clocked:
            self._fill(lines)
            self._unfold(lines)
            if not _in_order(lines):
                lines = lines.take(np.lexsort((lines.line, lines.step, lines.at)))
        same = np.flatnonzero(lines.step[1:] == lines.step[:-1]) + 1
        for values in (lines.at, lines.took):
            same = same[values[same] == values[same - 1]]
        return lines.take(np.delete(np.arange(len(lines)), same)) if same.size else lines

    def _fill(self, lines: Lines) -> None:
        """Give lines without a time that of the line before, if others have one."""
        missing = lines.at == UNKNOWN
        if missing.any():
            places = np.where(missing, -1, np.arange(len(lines)))
            before = np.maximum.accumulate(places)
            lines.at = lines.at[np.where(before < 0, int(np.argmin(missing)), before)]
            for number in lines.line[missing][:3].tolist():
                self.log.bad.add("a step without a time among others that have one, counted with no length", number)
            if (more := int(missing.sum()) - 3) > 0:
                what = "a step without a time among others that have one, counted with no length"
                self.log.bad.add(what, "…", count=more)

    def _unfold(self, lines: Lines) -> None:
        """Undo that a clock without a zone was set back by an hour while the steps went on."""
        back = np.flatnonzero(lines.at[1:] < lines.at[:-1])
        if len(back) != 1 or not self.log.n_local or self.log.n_zoned:
            return
        at = int(back[0])
        jump = int(lines.at[at] - lines.at[at + 1])
        if 0 < jump <= HOUR_NS and lines.step[at + 1] > lines.step[at]:
            lines.at = lines.at.astype(np.int64)
            lines.at[at + 1 :] += HOUR_NS
            lines.shift_from = int(lines.line[at + 1])
            self.log.earliest = min(self.log.opening or 0, int(lines.at.min()))
            self.log.latest = max(self.log.last_at + HOUR_NS, int(lines.at.max()))
            self.warnings.append(
                f"times go back by {show_seconds(jump / NS_PER_S)} in {self.log.bad.noun} {lines.shift_from} while the "
                "steps go on: the clock is taken to have been set back by 1 h there, as at the end of summer time"
            )


def _in_order(lines: Lines) -> bool:
    """Return whether lines are in the order of time, step and line as they are."""
    for part in parts(len(lines) - 1):
        later = slice(part.start + 1, part.stop + 1)
        good = lines.line[later] >= lines.line[part]
        for values in (lines.step, lines.at):
            good = (values[later] > values[part]) | ((values[later] == values[part]) & good)
        if not good.all():
            return False
    return True
