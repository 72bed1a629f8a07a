"""What the events of one process say, in order and once: spans, marks, its end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from headway.clock import NS_PER_S
from headway.events import (
    AnyEvent,
    Begin,
    ClockPair,
    Close,
    End,
    Exit,
    Fault,
    Notice,
    Open,
    Restored,
    Rows,
    Saved,
    Span,
    Unknown,
)
from headway.ledger.history import Process
from headway.ledger.history import Rows as StepRows
from headway.units import show_seconds

FARTHEST_NS: Final = 2**61
"""Times beyond it (73 years from the clock's zero) are taken for damage."""
WALL_JUMP_NS: Final = NS_PER_S
"""A wall clock that has moved by more against the monotonic one is worth a warning."""


@dataclass(slots=True)
class Facts:
    """The events of one process, sorted by meaning.

    Attributes:
        open: How it began.
        close: How it ended; None when it wrote no such line.
        spans, background: Spans that take time, and those beside the training.
        saved, restored: Marks in the order of their time.
        rows: What its rows are, see `headway.events.ROWS`.
        last_ns: The last moment any event names [ns].
        warnings: What could not be made sense of, a sentence each.
    """

    open: Open
    close: Close | None = None
    spans: list[Span] = field(default_factory=list)
    background: list[Span] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    restored: list[Restored] = field(default_factory=list)
    rows: str = "step"
    last_ns: int = 0
    warnings: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The process, for messages."""
        return f"attempt {self.open.attempt} rank {self.open.rank}"

    @property
    def end_ns(self) -> int:
        """Where the attempt ends: at its close, else at its last event [ns]."""
        return max(self.open.mono_ns, self.last_ns if self.close is None else self.close.at)

    def wall_ns(self, mono_ns: int) -> int:
        """Return a moment of this process on the wall clock [ns since the Unix epoch]."""
        return self.open.wall_ns + mono_ns - self.open.mono_ns


def gather(process: Process) -> Facts:
    """Return the facts of a process; its rows count only for its last moment."""
    found = _Gathering(Facts(process.open, rows=process.open.rows, warnings=list(process.warnings)))
    moments = [process.open.mono_ns]
    for event in process.events:
        times = _times(event)
        if any(abs(at) > FARTHEST_NS for at in times):
            found.odd["an event at an impossible time"] += 1
        elif isinstance(event, Span) and event.end < event.start:
            found.odd["a span that ends before it starts"] += 1
        else:
            found.take(event)
            moments.extend(times)
    moments.extend(_reach(process.rows))
    found.facts.last_ns = max(moments)
    return found.finish(min(moments))


def _reach(rows: StepRows) -> tuple[int, ...]:
    """Return the first start and the last end of the rows [ns], those at impossible times left out."""
    if not len(rows):
        return ()
    sane = (rows.start >= -FARTHEST_NS) & (rows.end <= FARTHEST_NS)
    start, end = (rows.start, rows.end) if sane.all() else (rows.start[sane], rows.end[sane])
    return (int(start.min()), int(end.max())) if len(start) else ()


class _Gathering:
    """The state of `gather`."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.begun: dict[int, Begin] = {}
        self.ended: dict[int, End] = {}
        self.spans: dict[Span, None] = {}
        self.faults: dict[str, Fault] = {}
        self.odd: Counter[str] = Counter()

    def take(self, event: AnyEvent | Unknown) -> None:
        """Sort one event by its meaning; what says nothing to a ledger is passed over."""
        match event:
            case Begin():
                self.begun.setdefault(event.id, event)
            case End():
                self.ended.setdefault(event.id, event)
            case Span():
                self.spans[event] = None
            case Saved():
                self.facts.saved.append(event)
            case Restored():
                self.facts.restored.append(event)
            case _:
                self.take_rare(event)

    def take_rare(self, event: AnyEvent | Unknown) -> None:
        """Sort an event that comes once or so."""
        match event:
            case Rows():
                self.facts.rows = event.rows
            case ClockPair():
                _watch_clock(self.facts, event)
            case Fault():
                before = self.faults.get(event.what, event)
                self.faults[event.what] = max(before, event, key=lambda fault: (fault.count, fault.at))
            case Close():
                before_close = self.facts.close or event
                self.facts.close = max(before_close, event, key=lambda close: (close.at, close.reason))
            case Open():
                self.odd["a second open line"] += 1

    def finish(self, first_ns: int) -> Facts:
        """Pair what began with what ended, bring all in order and say what was odd."""
        _pair(self.facts, self.begun, self.ended, self.spans, self.odd)
        self.facts.saved = sorted(set(self.facts.saved), key=lambda mark: (mark.at, mark.step))
        self.facts.restored = sorted(set(self.facts.restored), key=lambda mark: (mark.at, mark.step))
        _warn(self.facts, self.odd, self.faults, first_ns)
        return self.facts


def _times(event: object) -> tuple[int, ...]:
    match event:
        case Span():
            return (event.start, event.end)
        case ClockPair():
            return (event.mono_ns,)
        case Begin() | End() | Saved() | Restored() | Notice() | Rows() | Fault() | Exit() | Close():
            return (event.at,)
    return ()


def _watch_clock(facts: Facts, pair: ClockPair) -> None:
    moved = pair.wall_ns - facts.wall_ns(pair.mono_ns)
    if abs(moved) > WALL_JUMP_NS:
        facts.warnings.append(
            f"{facts.name}: the wall clock moved by {moved / NS_PER_S:+.1f} s against the monotonic one; "
            "only the monotonic one counts inside an attempt"
        )


def _pair(
    facts: Facts, begun: dict[int, Begin], ended: dict[int, End], spans: dict[Span, None], odd: Counter[str]
) -> None:
    """Make spans of begin and end lines; one without an end reaches to the end of the attempt."""
    for number, begin in begun.items():
        end = ended.pop(number, None)
        until = max(begin.at, facts.end_ns) if end is None else end.at
        if until < begin.at:
            odd["a span that ends before it starts"] += 1
            continue
        ok = end is not None and end.ok
        spans[Span(category=begin.category, start=begin.at, end=until, ok=ok, background=begin.background)] = None
    odd["an end without its begin"] += len(ended)
    for span in sorted(spans, key=lambda span: (span.start, -span.end, span.category)):
        (facts.background if span.background else facts.spans).append(span)


def _warn(facts: Facts, odd: Counter[str], faults: dict[str, Fault], first_ns: int) -> None:
    facts.warnings.extend(f"{facts.name}: {what}, {count} times" for what, count in odd.items() if count)
    for fault in faults.values():
        reason = f" ({fault.error})" if fault.error else ""
        facts.warnings.append(f"{facts.name}: not recorded: {fault.what}, {fault.count} times{reason}")
    if first_ns < facts.open.mono_ns:
        early = show_seconds((facts.open.mono_ns - first_ns) / NS_PER_S)
        facts.warnings.append(f"{facts.name}: {early} of events before its open line are left out")
    if facts.last_ns > facts.end_ns:
        late = show_seconds((facts.last_ns - facts.end_ns) / NS_PER_S)
        facts.warnings.append(f"{facts.name}: {late} of events after its close line are left out")
