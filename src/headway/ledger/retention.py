"""Retention: which steps of a rank were kept, done again, or given up on purpose.

A new attempt discards the steps after its ``restored`` mark, or without one those from its own
first number on: rework. A ``restored`` mark inside an attempt discards what came before it and
lies after its step: rollback. What a failed run had not saved when it ended is rework too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headway.ledger.timeline import STATES, Timeline

if TYPE_CHECKING:
    from numpy.typing import NDArray

_REWORK = STATES.index("rework")
_ROLLBACK = STATES.index("rollback")


@dataclass(frozen=True, slots=True)
class _Cut:
    """From here on steps after ``step`` are discarded; ``at_ns`` is None at the start of an attempt."""

    step: int
    code: int
    at_ns: int | None


def durable_step(lines: Sequence[Timeline]) -> int | None:
    """Return through which step progress is durable: what the last ``saved`` mark says; None without one."""
    marks = [
        (line.facts.wall_ns(mark.at), line.begin_wall_ns, mark.step) for line in lines for mark in line.facts.saved
    ]
    return max(marks)[-1] if marks else None


def settle(lines: Sequence[Timeline], durable: int | None) -> list[Timeline]:
    """Return the timelines of a rank with the fate of their rows.

    Args:
        lines: The attempts of one rank, in their order.
        durable: Through which step their progress is durable; None where nobody says.
    """
    later: deque[_Cut] = deque()
    closed = lines[-1].facts.close
    if durable is not None and closed is not None and closed.reason in {"failed", "signal"}:
        later.append(_Cut(durable, _REWORK, None))
    saved_to = durable if closed is None else None
    settled: list[Timeline] = []
    for line in reversed(lines):
        cuts = list(_cuts(line))
        settled.append(line.with_state(_fate(line, cuts, later), saved_to))
        later.extendleft(reversed(cuts))
    return settled[::-1]


def _cuts(line: Timeline) -> Iterator[_Cut]:
    """Yield what an attempt discards, in the order of time; of marks before its first step the last counts."""
    first_ns = int(line.start[0]) if len(line.start) else None
    initial = [mark for mark in line.facts.restored if first_ns is None or mark.at <= first_ns]
    if initial:
        yield _Cut(initial[-1].step, _REWORK, None)
    elif first_ns is not None:
        yield _Cut(int(line.step[0]) - 1, _REWORK, None)
    for mark in line.facts.restored[len(initial) :]:
        yield _Cut(mark.step, _ROLLBACK, mark.at)


def _fate(line: Timeline, own: Sequence[_Cut], later: Iterable[_Cut]) -> NDArray[np.int8]:
    """Return the state of each row: the first cut that reaches it decides."""
    state = np.zeros(len(line.step), np.int8)
    for cut in own:
        if cut.at_ns is not None:
            state[(state == 0) & (line.step > cut.step) & (line.start < cut.at_ns)] = cut.code
    least, lowest = int(line.step.min(initial=0)), int(line.step.max(initial=-1))
    for cut in later:
        if lowest < least:
            break  # nothing is left of it
        if cut.step < lowest:
            state[(state == 0) & (line.step > cut.step)] = cut.code
            lowest = cut.step
    return state
