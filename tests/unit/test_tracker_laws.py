"""Laws of the hot core on random programs: phases and the rest are the wall time, and both cores agree."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headway.clock import ManualClock

from tracker_cores import CORES, tracker_class

PHASES = ("source", "transform", "transfer")
ns = st.integers(0, 10**12)
# A program: time passes, a timer goes round a program, or a duration is recorded by hand.
program = st.recursive(
    st.lists(ns.map(lambda n: ("pass", n)), max_size=3),
    lambda inner: st.lists(ns.map(lambda n: ("pass", n)) | st.tuples(st.sampled_from(PHASES), inner), max_size=4),
    max_leaves=20,
)
# Calls in any order, sensible or not.
calls = st.lists(
    st.tuples(
        st.sampled_from(["start", "end", "enter", "exit", "begin", "cancel", "reset"]),
        st.sampled_from(PHASES),
        st.integers(0, 1000),
    )
    | st.tuples(st.just("record"), st.sampled_from([*PHASES, "other"]), st.integers(-3, 50)),
    max_size=40,
)


def run(tracker, clock, steps, owner, booked):
    """Run a program, and book by the definition: an instant belongs to the innermost timer."""
    for what, inside in steps:
        if what == "pass":
            clock._mono += inside
            booked[owner] += inside
        else:
            with tracker.time(what):
                run(tracker, clock, inside, what, booked)


@pytest.mark.parametrize("core", CORES)
@given(st.lists(program, min_size=1, max_size=3))
def test_phases_and_the_rest_are_the_wall_time(core, programs):
    clock = ManualClock()
    tracker = tracker_class(core)(clock=clock)
    total = dict.fromkeys((*PHASES, "rest"), 0)
    for steps in programs:
        with tracker.batch():
            run(tracker, clock, steps, "rest", total)
    assert dict(zip(PHASES, tracker._totals_ns, strict=True)) == {name: total[name] for name in PHASES}
    assert sum(total.values()) == tracker._wall_end_ns - tracker._wall_start_ns
    assert tracker.faults.counts == {}
    assert tracker.overcounted_sec == 0


def drive(tracker, clock, steps):
    for what, phase, amount in steps:
        clock._mono += max(0, amount)
        if what == "start":
            tracker.start_batch()
        elif what == "end":
            tracker.end_batch()
        elif what == "enter":
            tracker.time(phase).__enter__()
        elif what == "exit":
            tracker.time(phase).__exit__(None, None, None)
        elif what == "begin":
            tracker.begin_step(amount)
        elif what == "cancel":
            tracker.cancel_step()
        elif what == "reset":
            tracker.reset()
        else:
            tracker.record(phase, amount / 1e9)
    seen = tracker.faults.counts, tracker.next_step, tracker.last_end_ns, tracker._open_since_ns, tracker._totals_ns
    return tracker.summary(), tracker.overcounted_sec, [tracker.per_batch(name) for name in PHASES], *seen


LEFT_OPEN = [("start", "source", 0), ("enter", "source", 1), ("enter", "source", 1), ("end", "source", 1)]


@given(calls)
@example([*LEFT_OPEN, ("exit", "source", 1)])
@example([*LEFT_OPEN, ("exit", "source", 1), ("exit", "source", 1)])
def test_both_cores_agree_on_any_calls(steps):
    answers = []
    for core in CORES:
        clock = ManualClock()
        answers.append(drive(tracker_class(core)(clock=clock), clock, steps))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("core", CORES)
def test_each_timer_that_outlives_its_batch_counts_once(core):
    clock = ManualClock()
    tracker = tracker_class(core)(clock=clock)
    drive(tracker, clock, LEFT_OPEN)
    for late in (1, 2):
        tracker.time_source().__exit__(None, None, None)
        assert tracker.faults.counts == {"timer-outside-batch": late}
    assert tracker.per_batch_source == [2e-9]


@pytest.mark.parametrize("core", CORES)
@given(st.lists(st.tuples(*[st.integers(0, 10**9)] * 4), max_size=30), st.integers(0, 5))
def test_a_log_and_a_memory_say_the_same(core, tmp_path_factory, batches, n):
    kind = tracker_class(core)
    clocks = ManualClock(), ManualClock()
    memory = kind(clock=clocks[0])
    with kind(tmp_path_factory.mktemp("run"), clock=clocks[1]) as log:
        for tracker, clock in zip((memory, log), clocks, strict=True):
            for *amounts, rest in batches:
                with tracker.batch():
                    for phase, amount in zip(PHASES, amounts, strict=True):
                        with tracker.time(phase):
                            clock._mono += amount
                    clock._mono += rest
        assert log.per_batch_source == memory.per_batch_source
        assert log.per_batch_wall == memory.per_batch_wall
        assert log.summary() == memory.summary()
        assert log.worst(n) == memory.worst(n)
        ours, theirs = log.distribution(), memory.distribution()
        assert ours.keys() == theirs.keys()
        for name, spread in ours.items():
            np.testing.assert_allclose(
                (spread.p50, spread.p95, spread.max), (theirs[name].p50, theirs[name].p95, theirs[name].max), rtol=1e-12
            )
