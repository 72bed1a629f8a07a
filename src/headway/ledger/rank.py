"""The attempts of one rank in their order, and the gaps between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headway.clock import NS_PER_S
from headway.ledger.categories import PROGRAM
from headway.ledger.ledger import Ledger, Part, Steps
from headway.ledger.retention import settle
from headway.ledger.timeline import Timeline
from headway.units import show_seconds

NOT_HELD: Final = frozenset({"preempted", "released"})
"""Reasons of a close after which the devices were given back."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Time on the wall clock in which a rank had no process [ns]."""

    begin: int
    end: int
    category: str


@dataclass(frozen=True, eq=False)
class Rank:
    """One rank.

    Attributes:
        number: Its number.
        lines: Its attempts, in the order of the wall clock, with the fate of their rows.
        gaps: What lies before each.
        silent: What lies after the last, when it fell silent.
        warnings: Sentences.
    """

    number: int
    lines: tuple[Timeline, ...]
    gaps: tuple[Gap | None, ...]
    silent: Gap | None
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, number: int, lines: Sequence[Timeline], durable: int | None, end_ns: int) -> Rank:
        """Return a rank from its attempts, in any order.

        Args:
            number: The rank.
            lines: Its attempts.
            durable: Through which step its progress is durable; None where nobody says.
            end_ns: End of the window [ns since the Unix epoch].
        """
        lines = sorted(lines, key=lambda line: (line.begin_wall_ns, line.facts.open.attempt))
        settled = settle(lines, durable)
        warnings: list[str] = []
        gaps: list[Gap | None] = [None]
        latest = settled[0]
        for line in settled[1:]:
            gaps.append(_gap(latest, line, warnings))
            if line.end_wall_ns >= latest.end_wall_ns:
                latest = line
        last = settled[-1]
        silent = None
        if last.facts.close is None and end_ns > latest.end_wall_ns:
            silent = Gap(latest.end_wall_ns, end_ns, "silent")
        return cls(number, tuple(settled), tuple(gaps), silent, tuple(warnings))

    def parts(self, begin_ns: int, end_ns: int) -> Iterator[Part]:
        """Yield the share of each attempt in a window of the wall clock."""
        for line, gap in zip(self.lines, self.gaps, strict=True):
            gaps = [gap, self.silent if line is self.lines[-1] else None]
            close = line.facts.close
            share = _share(line, gaps, begin_ns, end_ns)
            yield Part(self.number, line.facts.open.attempt, share, None if close is None else close.reason)

    def steps(self, begin_ns: int, end_ns: int) -> Steps:
        """Return the counts of its steps that began in a window of the wall clock."""
        shifts = [(line, line.begin_ns - line.begin_wall_ns) for line in self.lines]
        return sum((line.steps(begin_ns + shift, end_ns + shift) for line, shift in shifts), Steps())

    def failures(self) -> int:
        """Return how many of its attempts failed: closed so, or replaced without a close."""
        closes = [line.facts.close for line in self.lines]
        replaced = sum(close is None for close in closes[:-1])
        return replaced + sum(close is not None and close.reason in {"failed", "signal"} for close in closes)


def _gap(before: Timeline, after: Timeline, warnings: list[str]) -> Gap | None:
    """Return the gap between two attempts; an overlap is a warning, not a negative gap."""
    begin, end = before.end_wall_ns, after.begin_wall_ns
    close = before.facts.close
    if end < begin:
        amount = show_seconds((begin - end) / NS_PER_S)
        warnings.append(f"{before.facts.name} and {after.facts.name} overlap by {amount} on the wall clock")
        return None
    if close is not None and close.reason == "finished" and end > begin:
        warnings.append(
            f"{before.facts.name} had finished: the {show_seconds((end - begin) / NS_PER_S)} until the next attempt "
            'count as held; close with reason "released" when the devices are given back'
        )
    return Gap(begin, end, "released" if close is not None and close.reason in NOT_HELD else "recovery")


def _share(line: Timeline, gaps: Sequence[Gap | None], begin_ns: int, end_ns: int) -> Ledger:
    """Return the ledger of one attempt of one rank in a window; checks the law before devices multiply."""
    to_mono = line.begin_ns - line.begin_wall_ns
    amounts, waits = line.amounts(begin_ns + to_mono, end_ns + to_mono)
    held = _overlap(begin_ns, end_ns, line.begin_wall_ns, line.end_wall_ns)
    released = 0
    for gap in gaps:
        length = 0 if gap is None else _overlap(begin_ns, end_ns, gap.begin, gap.end)
        if gap is None or gap.category == "released":
            released += length
        else:
            amounts[gap.category] += length
            held += length
    devices = line.facts.open.devices
    return Ledger(
        amounts_ns={name: ns * devices for name, ns in amounts.items() if ns or name in PROGRAM},
        held_ns=held * devices,
        released_ns=released * devices,
        waits_ns={phase: ns * devices for phase, ns in waits.items() if ns},
        steps=line.steps(begin_ns + to_mono, end_ns + to_mono),
        inferred=frozenset(name for name in line.inferred if amounts[name]),
        attempts=1,
        ranks=1,
        devices=devices,
        runs=(line.facts.open.run,),
    )


def _overlap(begin: int, end: int, low: int, high: int) -> int:
    """Return how much two stretches of time share [ns]; stretches that do not meet share nothing."""
    return max(0, min(end, high) - max(begin, low))
