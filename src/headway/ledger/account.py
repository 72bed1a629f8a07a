"""Events to ledger: attempts put in order, the gaps between them booked, ranks added up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.errors import ArgumentError
from headway.ledger.history import Pool, Run
from headway.ledger.ledger import Ledger, Saving, Steps, combine
from headway.ledger.pool import account_pool
from headway.ledger.rank import Rank
from headway.ledger.retention import durable_step
from headway.ledger.timeline import Timeline, build
from headway.units import instant_ns, show_seconds

LATE_NS: Final = 2 * NS_PER_S
"""A process this old when it began to record had done something worth a word, such as importing."""


def account(
    run: Run | Pool | Sequence[Run | Pool], until: float | datetime | None = None, *, until_ns: int | None = None
) -> Ledger:
    """Return the ledger of a run: every nanosecond its ranks held, by category; of a pool what its jobs held.

    Args:
        run: What a source read; of several runs it is the sum.
        until: End of the window, on the wall clock: epoch seconds [s] or a datetime (without a
            zone it is UTC). None: where the events of the last rank end.
        until_ns: The same to the nanosecond [ns since the Unix epoch]; it goes before ``until``.

    Raises:
        LedgerError: The categories of a rank do not sum to the window it held.
        ArgumentError: It is no run and no pool, or runs and pools are to be added.

    Example:
        >>> from headway.events import Close, Open, Step
        >>> from headway.ledger.history import Process, Rows
        >>> steps = [Step(step=n, start=n * 10**9, end=(n + 1) * 10**9) for n in range(3)]
        >>> process = Process(Open(wall_ns=0, mono_ns=0), [Close(at=4 * 10**9)], Rows.from_events(steps))
        >>> account(Run("r1", "native", [process])).seconds
        {'productive': 3.0, 'shutdown': 1.0}
    """
    if until_ns is None and until is not None:
        until_ns = instant_ns(until) if isinstance(until, datetime) else round(until * NS_PER_S)
    if isinstance(run, Run) and not run.clock:
        return _without_clock(run, asked_until=until_ns is not None)
    if isinstance(run, Run):
        return _History.of(run, until_ns).whole()
    if isinstance(run, Pool):
        return account_pool(run, until_ns)
    given: Any = run  # whatever the types say: it is what a program passed
    several: list[Any] = list(given) if isinstance(given, Iterable) else [given]
    for one in several:
        if not isinstance(one, Run | Pool):
            raise ArgumentError(
                f"Cannot make a ledger of {type(one).__name__}: it is no run and no pool",
                "Give what headway.load returned; of served requests, headway.ledger.serving.attain tells",
                "no-ledger",
            )
    if len({type(one) for one in several}) > 1:
        raise ArgumentError(
            "Cannot add runs and pools: what a run held may be part of what a pool tells",
            "Give the runs, or the pools",
            "mixed-kinds",
        )
    return combine([account(one, until_ns=until_ns) for one in several])


def _without_clock(run: Run, *, asked_until: bool) -> Ledger:
    """Return the ledger of a run of which only lengths are known, and not when it was."""
    whole = _History.of(run, None).whole()
    said = ("it has no clock: up to when it is counted changes nothing",) if asked_until else ()
    return replace(whole, start_ns=None, end_ns=None, measure=None, warnings=(*whole.warnings, *said))


@dataclass(frozen=True, eq=False)
class _History:
    """A run made ready to be measured in any window."""

    run: Run
    ranks: tuple[Rank, ...]
    begin_ns: int
    end_ns: int

    @classmethod
    def of(cls, run: Run, until_ns: int | None) -> _History:
        by_rank: dict[int, list[Timeline]] = {}
        for process in run.processes:
            by_rank.setdefault(process.open.rank, []).append(build(process))
        every = [line for lines in by_rank.values() for line in lines]
        if not every:
            return cls(run, (), 0, 0)
        begin = min(line.begin_wall_ns for line in every)
        end = max(line.end_wall_ns for line in every) if until_ns is None else max(begin, until_ns)
        saved = durable_step(every)
        ranks = tuple(
            Rank.of(rank, lines, saved if (own := durable_step(lines)) is None else own, end)
            for rank, lines in sorted(by_rank.items())
        )
        return cls(run, ranks, begin, end)

    def whole(self) -> Ledger:
        """Return the ledger of the whole window, with what only the whole can tell."""
        ledger = self.measure(self.begin_ns, self.end_ns)
        lines = [line for rank in self.ranks for line in rank.lines]
        background: Counter[str] = Counter()
        for line in lines:
            for span in line.facts.background:
                background[span.category] += (span.end - span.start) * line.facts.open.devices
        return replace(
            ledger,
            background_ns=dict(background),
            steps=self._steps(),
            attempts=len({line.facts.open.attempt for line in lines}),
            warnings=tuple(dict.fromkeys(self._warnings(lines))),
            saving=_saving(self.ranks),
            stall=max((x for line in lines if (x := line.stall())), key=lambda x: x.wait_ns, default=None),
            energy_j=self.run.energy_j,
            measure=self.measure,
        )

    def _steps(self) -> Steps:
        """Return the counts of the whole window; where nothing cuts it, steps at its very end count too."""
        ends = max((line.end_wall_ns for rank in self.ranks for line in rank.lines), default=self.end_ns)
        end_ns = self.end_ns if self.end_ns < ends else self.end_ns + 1
        return sum((rank.steps(self.begin_ns, end_ns) for rank in self.ranks), Steps())

    def measure(self, begin_ns: int, end_ns: int) -> Ledger:
        """Return the ledger of a window of the wall clock [ns since the Unix epoch]."""
        parts = [part for rank in self.ranks for part in rank.parts(begin_ns, end_ns)]
        total = combine([part.ledger for part in parts])
        return replace(
            total,
            attempts=len({part.attempt for part in parts if part.ledger.held_ns or part.ledger.released_ns}),
            ranks=len(self.ranks),
            devices=sum(max(line.facts.open.devices for line in rank.lines) for rank in self.ranks),
            parts=tuple(parts),
            start_ns=begin_ns if parts else None,
            end_ns=end_ns if parts else None,
            runs=(self.run.name,),
            unknown=self.run.unknown,
        )

    def _warnings(self, lines: Sequence[Timeline]) -> Iterator[str]:
        yield from self.run.warnings
        expected = max((line.facts.open.world_size for line in lines), default=0)
        if len(self.ranks) < expected:
            yield f"ranks {len(self.ranks)} of {expected} present"
        if any(len(line.step) for line in lines) and not any(line.facts.saved for line in lines):
            closes = [rank.lines[-1].facts.close for rank in self.ranks]
            failed = any(close is not None and close.reason in {"failed", "signal"} for close in closes)
            lost = (
                "its failure lost is not known, and counts as kept" if failed else "a failure would lose is not known"
            )
            yield f"saves not recorded: what {lost}"
        yield from self._unclosed()
        for rank in self.ranks:
            yield from rank.warnings
        for line in lines:
            yield from line.warnings
            yield from _late(line)

    def _unclosed(self) -> Iterator[str]:
        """Say which ranks ended without a word: they run still, hang, or were killed."""
        open_ranks = [rank for rank in self.ranks if rank.lines[-1].facts.close is None]
        last_ns = max((rank.lines[-1].end_wall_ns for rank in open_ranks), default=self.end_ns)
        if last_ns < self.end_ns or not open_ranks or "R" in self.run.unknown:
            return
        when = datetime.fromtimestamp(last_ns // NS_PER_S, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
        who = f"{len(open_ranks)} of {len(self.ranks)} ranks" if len(self.ranks) > 1 else "the last attempt"
        yield (
            f"{who} did not close: still running, hung or killed; last event {when} UTC. "
            "--until now counts the time since"
        )


def _late(line: Timeline) -> Iterator[str]:
    age_ns = line.facts.open.age_ns or 0
    if age_ns > LATE_NS:
        yield (
            f"{line.facts.name}: recording began {show_seconds(age_ns / NS_PER_S)} after the process, and that time "
            "is in no category; call headway.start first of all"
        )


def _saving(ranks: Sequence[Rank]) -> Saving:
    """Return what the run says of its saves, from the rank that says most."""
    if not ranks:
        return Saving()
    best = max(ranks, key=lambda rank: sum(len(line.facts.saved) for line in rank.lines))
    marks = [mark.step for line in best.lines for mark in line.facts.saved]
    apart = [after - before for before, after in pairwise(marks) if after > before]
    spans = [span for line in best.lines for span in line.facts.spans if span.category == "checkpoint_save"]
    kept = [line.own[line.state == 0] for line in best.lines]
    own = np.concatenate(kept) if kept else np.zeros(0, np.int64)
    return Saving(
        n_saves=len(marks),
        n_failures=max(rank.failures() for rank in ranks),
        interval_steps=int(np.median(apart)) if apart else None,
        save_ns=sum(span.end - span.start for span in spans) // len(spans) if spans else None,
        step_ns=int(np.median(own)) if len(own) else None,
    )
