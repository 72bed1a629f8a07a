"""GoodputTracker in memory: the seed's meaning, wrong use, nesting, own phases. Exact, on a clock moved by hand."""

import copy
import dataclasses
import gc
import inspect
import logging
import math
import pickle
import subprocess
import sys
import threading
import time
import weakref

import pytest

from headway.clock import ManualClock
from headway.errors import ArgumentError
from headway.record.metrics import GoodputMetrics

from tracker_cores import CORES, tracker_class


@pytest.fixture(params=CORES)
def make(request):
    return tracker_class(request.param)


@pytest.fixture
def clock():
    return ManualClock(monotonic_ns=10**15)


@pytest.fixture
def tracker(make, clock):
    return make(clock=clock)


def one_batch(tracker, clock, source=0.0, transform=0.0, transfer=0.0, rest=0.0):
    tracker.start_batch()
    with tracker.time_source():
        clock.advance(source)
    with tracker.time_transform():
        clock.advance(transform)
    with tracker.time_transfer():
        clock.advance(transfer)
    clock.advance(rest)
    tracker.end_batch()


class TestSeed:
    def test_an_empty_summary_is_all_zeros(self, tracker):
        assert tracker.summary() == GoodputMetrics(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        assert tracker.per_batch_source == tracker.per_batch_wall == []

    def test_the_fields_and_their_order(self):
        names = [field.name for field in dataclasses.fields(GoodputMetrics)]
        assert names == [
            "total_batches",
            "wall_clock_sec",
            "source_sec",
            "transform_sec",
            "transfer_sec",
            "productive_sec",
            "overhead_sec",
            "goodput_ratio",
        ]
        with pytest.raises(dataclasses.FrozenInstanceError):
            GoodputMetrics(0, 0, 0, 0, 0, 0, 0, 0).total_batches = 1

    def test_sums_over_two_batches_and_the_gap_between_them(self, tracker, clock):
        one_batch(tracker, clock, 0.25, 0.5, 0.125, 0.125)
        clock.advance(1.0)  # between batches: wall time of the summary, of no batch
        one_batch(tracker, clock, 0.75, 0.0, 0.0, 0.25)
        assert tracker.summary() == GoodputMetrics(2, 3.0, 1.0, 0.5, 0.125, 1.625, 1.375, 1.625 / 3.0)
        assert tracker.per_batch_source == [0.25, 0.75]
        assert tracker.per_batch_transform == [0.5, 0.0]
        assert tracker.per_batch_transfer == [0.125, 0.0]
        assert tracker.per_batch_wall == [1.0, 1.0]
        assert all(type(seconds) is float for seconds in tracker.per_batch_wall)

    def test_durations_recorded_by_hand_add_up(self, tracker, clock):
        tracker.start_batch()
        tracker.record_source(0.1)
        tracker.record_source(duration_sec=0.2)
        tracker.record_transform(1)
        tracker.record_transfer(0.25)
        clock.advance(2)
        tracker.end_batch()
        assert tracker.per_batch_source == [0.3]
        assert tracker.per_batch_transform == [1.0]
        assert tracker.per_batch_transfer == [0.25]

    def test_reset_in_a_batch_leaves_that_batch_open(self, tracker, clock):
        one_batch(tracker, clock, 1.0)
        tracker.start_batch()
        with tracker.time_source():
            clock.advance(0.25)
            tracker.reset()
            clock.advance(0.25)
        tracker.end_batch()
        assert tracker.summary() == GoodputMetrics(1, 0.5, 0.5, 0.0, 0.0, 0.5, 0.0, 1.0)
        assert tracker.per_batch_wall == [0.5]
        assert tracker.faults.counts == {}

    def test_a_timer_is_a_decorator_that_times_each_call(self, tracker, clock):
        waited = []

        @tracker.batch()
        def step():
            return load(0.5) + move(0.25)

        @tracker.time_source()
        def load(seconds, *, again=True):
            """Load."""
            clock.advance(seconds)
            return 1 + (load(seconds, again=False) if again else 0)

        @tracker.time_transfer(wait_for=lambda: waited.append(1))
        def move(seconds):
            clock.advance(seconds)
            return 1

        @tracker.time("none")
        def fail():
            raise KeyError

        assert [step(), step()] == [3, 3]
        with pytest.raises(KeyError):
            fail()
        assert (load.__name__, load.__doc__, len(waited)) == ("load", "Load.", 2)
        assert tracker.per_batch_source == [1.0, 1.0]
        assert tracker.per_batch_transfer == [0.25, 0.25]
        assert tracker.faults.counts == {"unknown-phase": 1}
        for wrong in ((), (load, load)):
            with pytest.raises(TypeError):
                tracker.time_source()(*wrong)

    def test_reset_empties_the_same_lists(self, tracker, clock):
        walls = tracker.per_batch_wall
        one_batch(tracker, clock, 1.0)
        tracker.reset()
        assert walls == []
        assert tracker.per_batch_wall is walls
        assert tracker.summary().total_batches == 0
        one_batch(tracker, clock, 0.5)
        assert tracker.summary() == GoodputMetrics(1, 0.5, 0.5, 0.0, 0.0, 0.5, 0.0, 1.0)
        assert tracker.worst(1)[0].batch == 0

    def test_the_real_clock_is_the_monotonic_one(self, make):
        tracker = make()
        before = time.monotonic_ns()
        one_batch(tracker, ManualClock())
        assert before <= tracker.last_end_ns <= time.monotonic_ns()

    def test_public_names_of_the_hot_path_have_signatures(self, make):
        assert list(inspect.signature(make.time_transfer).parameters) == ["self", "wait_for"]
        assert list(inspect.signature(make.record_source).parameters) == ["self", "duration_sec"]
        assert list(inspect.signature(make.record).parameters) == ["self", "phase", "duration_sec"]
        assert make.start_batch.__doc__


class TestTimers:
    def test_an_exception_books_its_time(self, tracker, clock):
        with pytest.raises(KeyError), tracker.batch(), tracker.time_source():  # noqa: PT012
            clock.advance(0.5)
            raise KeyError
        assert tracker.per_batch_source == [0.5]
        assert tracker.faults.counts == {}

    def test_nested_timers_book_an_instant_once_to_the_innermost(self, tracker, clock):
        with tracker.batch(), tracker.time_source():
            clock.advance(0.125)
            with tracker.time_transform():
                clock.advance(0.25)
                with tracker.time_source():
                    clock.advance(0.5)
            clock.advance(1)
        assert tracker.per_batch_source == [1.625]
        assert tracker.per_batch_transform == [0.25]
        assert tracker.overcounted_sec == 0.0

    def test_a_timer_in_itself(self, tracker, clock):
        with tracker.batch(), tracker.time_source() as outer:
            clock.advance(0.25)
            with tracker.time_source() as inner:
                clock.advance(0.25)
            clock.advance(0.25)
        assert outer is inner
        assert tracker.per_batch_source == [0.75]

    def test_timers_that_end_out_of_order_keep_their_own_time(self, tracker, clock):
        source, transform = tracker.time_source(), tracker.time_transform()
        tracker.start_batch()
        source.__enter__()
        clock.advance(0.25)
        transform.__enter__()
        clock.advance(0.5)
        source.__exit__(None, None, None)
        clock.advance(1)
        transform.__exit__(None, None, None)
        clock.advance(2)
        tracker.end_batch()
        assert tracker.per_batch_source == [0.25]
        assert tracker.per_batch_transform == [1.5]
        assert tracker.faults.counts == {}

    def test_a_batch_that_ends_inside_a_timer_books_up_to_there(self, tracker, clock):
        tracker.start_batch()
        with tracker.time_source():
            clock.advance(0.5)
            tracker.end_batch()
            clock.advance(0.5)
        assert tracker.per_batch_source == [0.5]
        assert tracker.faults.counts == {"timer-outside-batch": 1}

    def test_a_batch_that_begins_inside_a_timer_is_not_charged_to_it(self, tracker, clock):
        with tracker.time_source():
            tracker.start_batch()
            with tracker.time_source():
                clock.advance(0.25)
            clock.advance(0.5)
        clock.advance(1)
        tracker.end_batch()
        assert tracker.per_batch_source == [0.25]
        assert tracker.faults.counts == {"timer-outside-batch": 1}

    def test_the_batch_statement_yields_the_tracker(self, tracker):
        with tracker.batch() as inside:
            assert inside is tracker

    def test_arity_is_checked_as_for_any_function(self, tracker):
        with pytest.raises(TypeError):
            tracker.time_source(1, 2)
        with pytest.raises(TypeError):
            tracker.time_source(wait=1)
        with pytest.raises(TypeError):
            tracker.record_source()
        with pytest.raises(TypeError):
            tracker.record("source")
        with pytest.raises(TypeError):
            tracker.time()


class TestWrongUse:
    @pytest.fixture(autouse=True)
    def reported(self, caplog):
        caplog.set_level(logging.WARNING, logger="headway")
        return caplog

    def test_an_end_without_a_start_is_counted_and_reported_once(self, tracker, reported):
        tracker.end_batch()
        tracker.end_batch()
        assert tracker.faults.counts == {"batch-not-started": 2}
        assert len(reported.records) == 1
        assert "[batch-not-started]" in reported.text
        assert tracker.summary().total_batches == 0

    def test_a_start_while_one_is_open_gives_that_one_up(self, tracker, clock):
        tracker.start_batch()
        tracker.record_source(5)
        clock.advance(1)
        one_batch(tracker, clock, 0.5)
        assert tracker.faults.counts == {"batch-abandoned": 1}
        assert tracker.summary().wall_clock_sec == 0.5
        assert tracker.per_batch_source == [0.5]
        assert tracker.next_step == 1

    def test_a_timer_outside_a_batch(self, tracker, clock):
        with tracker.time_source():
            clock.advance(1)
        assert tracker.faults.counts == {"timer-outside-batch": 1}
        one_batch(tracker, clock)
        assert tracker.per_batch_source == [0.0]

    def test_a_duration_outside_a_batch(self, tracker, clock):
        tracker.record_source(1)
        one_batch(tracker, clock)
        assert tracker.per_batch_source == [0.0]
        assert tracker.faults.counts == {"record-outside-batch": 1}

    @pytest.mark.parametrize(
        "duration", [math.nan, math.inf, "0.5", b"1", None, [], 1j, 10**400, 1e9, memoryview(b"1")]
    )
    def test_what_is_no_duration(self, tracker, clock, duration):
        tracker.start_batch()
        tracker.record_source(duration)
        tracker.end_batch()
        assert tracker.per_batch_source == [0.0]
        assert tracker.faults.counts == {"bad-duration": 1}

    @pytest.mark.parametrize("duration", [-1e-12, -5, -math.inf])
    def test_a_negative_duration(self, tracker, duration):
        tracker.start_batch()
        tracker.record_source(duration)
        tracker.record_source(-0.0)
        tracker.end_batch()
        assert tracker.per_batch_source == [0.0]
        assert tracker.faults.counts == {"negative-duration": 1}

    def test_durations_of_a_phase_cannot_overflow(self, tracker, clock):
        for _ in range(3):
            tracker.start_batch()
            tracker.record_source(0.75e8)
            tracker.end_batch()
        assert tracker.faults.counts == {"bad-duration": 2}
        assert tracker.summary().source_sec == 0.75e8

    def test_an_unknown_phase(self, tracker, clock):
        tracker.start_batch()
        with tracker.time("pack"):
            clock.advance(1)
        tracker.record("pack", 1)
        with tracker.time([]):
            pass
        tracker.end_batch()
        assert tracker.faults.counts == {"unknown-phase": 3}
        assert tracker.summary().productive_sec == 0.0

    def test_a_clock_that_fails_stands_still(self, make):
        class Broken(ManualClock):
            broken = False

            def monotonic_ns(self):
                if self.broken:
                    raise OSError("gone")
                return super().monotonic_ns()

        clock = Broken()
        tracker = make(clock=clock)
        tracker.start_batch()
        clock.advance(1)
        with tracker.time_source():
            clock.advance(0.5)
            clock.broken = True
        tracker.end_batch()
        assert tracker.per_batch_wall == [1.0]
        assert tracker.faults.counts == {"clock": 2}

    def test_interrupts_are_not_swallowed(self, make):
        class Interrupted(ManualClock):
            def monotonic_ns(self):
                raise KeyboardInterrupt

        tracker = make(clock=Interrupted())
        with pytest.raises(KeyboardInterrupt):
            tracker.start_batch()

    def test_a_broken_handler_of_the_program_is_not_ours(self, tracker):
        class Broken(logging.Filter):
            def filter(self, record):
                raise ValueError("broken")

        broken = Broken()
        logging.getLogger("headway").addFilter(broken)
        try:
            tracker.end_batch()
        finally:
            logging.getLogger("headway").removeFilter(broken)
        assert tracker.faults.counts == {"batch-not-started": 1}


class TestOvercount:
    def test_recorded_time_beyond_the_wall_is_kept_and_shown(self, tracker, clock, caplog):
        for _ in range(2):
            tracker.start_batch()
            tracker.record_source(3)
            clock.advance(1)
            tracker.end_batch()
        one_batch(tracker, clock, 0.5, rest=0.5)
        metrics = tracker.summary()
        assert metrics == GoodputMetrics(3, 3.0, 6.5, 0.0, 0.0, 6.5, 0.0, 6.5 / 3)
        assert metrics.overcounted_sec == tracker.overcounted_sec == 4.0
        assert "4.0 s recorded beyond" in str(metrics)
        assert "input pipeline 216.7 % of its wall time (goodput_ratio): source 6.5 s" in str(metrics)
        assert [record.getMessage()[-13:] for record in caplog.records] == ["[overcounted]"]
        assert tracker.faults.counts == {}
        for twin in (copy.copy(metrics), copy.deepcopy(metrics), pickle.loads(pickle.dumps(metrics))):
            assert twin == metrics
            assert twin.overcounted_sec == 4.0

    def test_a_batch_with_room_does_not_hide_the_excess_of_another(self, tracker, clock):
        one_batch(tracker, clock, rest=10)
        tracker.start_batch()
        tracker.record_source(1)
        tracker.end_batch()
        assert tracker.overcounted_sec == 1.0

    def test_none_by_default(self, tracker, clock):
        one_batch(tracker, clock, 1.0)
        assert tracker.summary().overcounted_sec == 0.0
        assert "beyond" not in str(tracker.summary())
        tracker.reset()
        assert tracker.overcounted_sec == 0.0


class TestPhases:
    def test_own_phases(self, make, clock):
        tracker = make(phases=["tokenize", "source"], clock=clock)
        with tracker.batch():
            with tracker.time("tokenize"):
                clock.advance(0.5)
            tracker.record("tokenize", duration_sec=0.25)
            with tracker.time_source():
                clock.advance(0.5)
            with tracker.time_transfer():
                clock.advance(0.5)
            tracker.record_transform(1)
        assert tracker.per_batch("tokenize") == [0.75]
        assert tracker.per_batch_source == [0.5]
        assert tracker.per_batch_transfer == []
        assert tracker.summary() == GoodputMetrics(1, 1.5, 0.5, 0.0, 0.0, 1.25, 0.25, 1.25 / 1.5)
        assert tracker.faults.counts == {"unknown-phase": 2}

    def test_no_phase_at_all(self, make, clock):
        tracker = make(phases=(), clock=clock)
        with tracker.batch():
            clock.advance(1)
        assert tracker.per_batch_wall == [1.0]
        assert tracker.worst() == tracker.worst(1)

    @pytest.mark.parametrize(
        "phases",
        [
            "source",
            ["a b"],
            ["1"],
            ["a", "a"],
            ["step"],
            ["seq"],
            ["end_ns"],
            ["größe"],
            [1],
            [f"p{n}" for n in range(65)],
            ["x" * 2001],
        ],
    )
    def test_names_that_cannot_be(self, make, phases):
        with pytest.raises(ArgumentError, match=r"\[bad-phases\]"):
            make(phases=phases)

    @pytest.mark.parametrize("given", [{"flush_every": n} for n in (0, -3, "x", 2.5, [])])
    @pytest.mark.parametrize("log", [False, True])
    def test_rows_that_cannot_be_flushed_so_often(self, make, tmp_path, given, log):
        with pytest.raises(ArgumentError, match=r"\[bad-flush\]"):
            make(tmp_path / "r" if log else None, **given)
        assert not (tmp_path / "r").exists()

    @pytest.mark.parametrize("seconds", [-1, "x", "5", math.nan, math.inf, [], 1j])
    def test_seconds_that_no_flush_can_wait(self, make, tmp_path, seconds):
        with pytest.raises(ArgumentError, match=r"\[bad-flush\]"):
            make(tmp_path / "r", flush_s=seconds)


class TestQueries:
    def test_one_stall_in_a_thousand_batches_is_seen(self, tracker, clock):
        for number in range(1000):
            one_batch(tracker, clock, source=19.0 if number == 617 else 0.008, rest=0.002)
        spread = tracker.distribution()
        assert list(spread) == ["source", "transform", "transfer", "batch"]
        assert (spread["source"].p50, spread["source"].p95, spread["source"].max) == (0.008, 0.008, 19.0)
        assert spread["batch"].max == 19.002
        worst = tracker.worst(2)
        assert [batch.batch for batch in worst] == [617, 0]
        assert worst[0].phases == {"source": 19.0, "transform": 0.0, "transfer": 0.0}

    def test_nothing_recorded(self, tracker):
        assert tracker.distribution() == {}
        assert tracker.worst() == []

    def test_fewer_than_asked_for(self, tracker, clock):
        one_batch(tracker, clock, 0.5)
        assert len(tracker.worst(5)) == 1
        assert tracker.worst(0) == tracker.worst(-1) == []


class TestRecorderSide:
    def test_steps_by_number(self, tracker, clock):
        tracker.begin_step(40)
        clock.advance(1)
        tracker.end_step()
        assert tracker.next_step == 41
        assert tracker.last_end_ns == 10**15 + 10**9
        tracker.next_step = 7
        one_batch(tracker, clock)
        assert tracker.next_step == 8

    @pytest.mark.parametrize("step", ["7", None, 1 << 70])
    def test_a_number_that_is_none_becomes_the_next(self, tracker, step):
        tracker.next_step = 3
        tracker.begin_step(step)
        tracker.end_step()
        assert tracker.next_step == 4
        assert tracker.faults.counts == {"bad-step": 1}

    @pytest.mark.parametrize("begin", ["start_batch", "batch"])
    def test_the_first_batch_calls_the_hook_once(self, tracker, begin):
        calls = []
        tracker.on_first_batch = lambda: calls.append(tracker.next_step)
        tracker.begin_step(1)
        tracker.end_step()
        assert calls == []
        for _ in range(2):
            if begin == "batch":
                with tracker.batch():
                    pass
            else:
                tracker.start_batch()
                tracker.end_batch()
        assert calls == [2]
        assert tracker.on_first_batch is None
        tracker.on_first_batch = None
        tracker.start_batch()

    def test_a_hook_that_fails_is_counted(self, tracker):
        tracker.on_first_batch = lambda: 1 / 0
        tracker.start_batch()
        tracker.end_batch()
        assert tracker.faults.counts == {"first-batch": 1}
        assert tracker.summary().total_batches == 1

    def test_detached_in_memory_is_harmless(self, tracker, clock):
        tracker.detach()
        one_batch(tracker, clock, 1.0)
        assert tracker.summary().total_batches == 1

    def test_closing_in_memory_does_nothing(self, tracker):
        with tracker:
            tracker.close()


def test_no_tracker_is_leaked(make):
    tracker = make()
    timer = tracker.time_source()
    gone = weakref.ref(tracker)
    del tracker
    gc.collect()
    assert gone() is not None  # the timer keeps it
    with timer:
        pass
    del timer
    gc.collect()
    assert gone() is None


def test_memory_of_objects_does_not_grow(make, clock):
    tracker = make(clock=clock)

    def blocks_after(n):
        for _ in range(n):
            one_batch(tracker, clock)
            with tracker.batch(), tracker.time("source", wait_for=[1]), tracker.time("none"):
                tracker.record_source("x")
        tracker.reset()
        gc.collect()
        return sys.getallocatedblocks()

    before = blocks_after(100)
    assert blocks_after(2000) - before < 200


def test_threads_of_one_tracker_raise_nothing(make, monkeypatch):
    tracker = make()
    barrier = threading.Barrier(4)
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work():
        barrier.wait()
        for _ in range(2000):
            tracker.start_batch()
            with tracker.time_source(), tracker.time_transform():
                pass
            tracker.end_batch()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    assert raised == []
    assert tracker.summary().total_batches == len(tracker.per_batch_wall) > 0


@pytest.mark.parametrize("pure", ["0", "1"])
def test_recording_pulls_in_no_numpy_and_the_switch_works(tmp_path, pure):
    code = """
import sys
from headway import GoodputTracker
from headway.record import hot
with GoodputTracker(log=sys.argv[1]) as tracker:
    for _ in range(20):
        with tracker.batch(), tracker.time_source():
            pass
    assert len(tracker.per_batch_source) == 20
heavy = {"numpy", "torch", "jax", "ray", "rich", "pandas"} & set(sys.modules)
assert not heavy, heavy
print(hot.COMPILED)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "run"],
        env={"HEADWAY_PURE_PYTHON": pure, "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if pure == "1":
        assert done.stdout.strip() == "False"
