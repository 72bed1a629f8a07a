"""Random histories of runs, small enough to be counted nanosecond by nanosecond."""

import numpy as np
from hypothesis import strategies as st

from headway.events import Begin, Close, End, Notice, Open, Restored, Saved, Span
from headway.ledger.history import Process, Rows, Run

TIMES = st.integers(0, 60)
CATEGORIES = st.sampled_from(["evaluation", "checkpoint_save", "compile", "startup", "custom:check", "device_init"])


@st.composite
def intervals(draw, longest=20):
    start = draw(TIMES)
    return start, start + draw(st.integers(0, longest))


@st.composite
def events(draw):
    found = []
    for start, end in draw(st.lists(intervals(), max_size=4)):
        found.append(Span(category=draw(CATEGORIES), start=start, end=end, background=draw(st.booleans())))
    for number in range(draw(st.integers(0, 2))):
        start, end = draw(intervals())
        found.append(Begin(id=number, category=draw(CATEGORIES), at=start))
        if draw(st.booleans()):
            found.append(End(id=number, at=end))
    found += [Saved(step=draw(st.integers(-1, 8)), at=at) for at in draw(st.lists(TIMES, max_size=2))]
    found += [Restored(step=draw(st.integers(-1, 8)), at=at) for at in draw(st.lists(TIMES, max_size=2))]
    if draw(st.booleans()):
        found.append(Notice(name="preemption", at=draw(TIMES)))
    if draw(st.booleans()):
        reason = draw(st.sampled_from(["finished", "failed", "preempted", "signal", "released"]))
        found.append(Close(at=draw(st.integers(0, 90)), reason=reason))
    return found


@st.composite
def rows(draw):
    if draw(st.booleans()):  # as a loop writes them: one after the other
        at, columns = draw(TIMES), []
        number = draw(st.integers(0, 6))
        for _ in range(draw(st.integers(0, 8))):
            at += draw(st.integers(0, 2))
            length = draw(st.integers(0, 6))
            columns.append((number, at, at + length))
            at += length
            number += 1
    else:  # as nobody should: crossing, nested, repeated
        columns = [(draw(st.integers(0, 8)), *draw(intervals(12))) for _ in range(draw(st.integers(0, 7)))]
        columns = list(dict.fromkeys(columns))
    step, start, end = (
        (np.array(c, np.int64) for c in zip(*columns, strict=True)) if columns else [np.zeros(0, np.int64)] * 3
    )
    waits = {
        phase: np.array([draw(st.integers(0, 5)) for _ in columns], np.int64)
        for phase in draw(st.sampled_from([(), ("source",), ("source", "bubble", "transform")]))
    }
    return Rows(step, start, end, waits)


@st.composite
def processes(draw, attempt, rank):
    mono = draw(st.integers(0, 20))
    opened = Open(
        wall_ns=1000 + draw(st.integers(0, 200)),
        mono_ns=mono,
        attempt=attempt,
        rank=rank,
        world_size=2,
        devices=draw(st.integers(1, 3)),
        rows=draw(st.sampled_from(["step", "step", "batch", "block"])),
    )
    return Process(opened, draw(events()), draw(rows()))


@st.composite
def runs(draw):
    found = []
    for rank in range(draw(st.integers(1, 2))):
        found += [draw(processes(f"a{k}", rank)) for k in range(draw(st.integers(1, 3)))]
    return Run("random", "native", found)
