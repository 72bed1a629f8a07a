import asyncio
import gc
import logging
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headway
from headway.clock import ManualClock
from headway.events import SPAN_CATEGORIES, Begin, ClockPair, End, Fault, Notice, Open, Restored, Rows, Saved, Span
from headway.record.recorder import active
from headway.record.span import _here
from headway.sources.columns import BOUND

from recorded import events, log_folders, reason, rows


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(logging.getLogger("headway"), "level", logging.ERROR)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def rec(tmp_path, clock):
    with headway.start("r", dir=tmp_path, attempt="a", clock=clock) as rec:
        yield rec


def spans(rec):
    """The recorded spans as (category, begin, end, ok, background)."""
    ends = {event.id: event for event in events(rec.path, End)}
    return [
        (begin.category, begin.at, ends[begin.id].at, ends[begin.id].ok, begin.background)
        for begin in events(rec.path, Begin)
        if begin.id in ends
    ]


# --- the log --------------------------------------------------------------------------------


def test_the_first_line_says_who_writes(tmp_path, clock):
    clock.advance(5)
    rec = headway.start("r/1", tmp_path, "a", 2, 4, 8, "H100-SXM", phases=("source", "pack"), clock=clock)
    rec.close()
    first = events(rec.path)[0]
    assert first == Open(
        wall_ns=clock.wall_ns(), mono_ns=5 * 10**9, run="r/1", attempt="a", rank=2, world_size=4, devices=8,
        accelerator="H100-SXM", host=first.host, pid=os.getpid(), phases=("source", "pack"),
    )  # fmt: skip
    assert rec.path.endswith("/a-r2")
    assert first.host
    assert not rec.faults.counts


def test_what_is_said_is_written_as_it_happens(rec, clock):
    clock.advance(1)
    rec.saved(100)
    rec.restored(100)
    rec.notice("preemption")
    at = 10**9
    assert events(rec.path)[1:] == [Saved(step=100, at=at), Restored(step=100, at=at), Notice(name="preemption", at=at)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, "finished"),
        (ValueError(), "failed"),
        (KeyboardInterrupt(), "signal"),
        (SystemExit(), "finished"),
        (SystemExit(0), "finished"),
        (SystemExit(1), "failed"),
        (SystemExit("no data"), "failed"),
        (SystemExit([]), "failed"),
    ],
)
def test_the_with_statement_says_why_it_ended(tmp_path, error, expected):
    def body():
        with headway.start("r", dir=tmp_path):
            if error is not None:
                raise error

    if error is None:
        body()
    else:
        with pytest.raises(type(error)):
            body()
    assert reason(log_folders(tmp_path)[0]) == expected


@pytest.mark.parametrize("given_reason", ["finished", "failed", "preempted", "signal", "released"])
def test_a_reason_can_be_given_and_the_first_one_counts(rec, given_reason):
    rec.close(given_reason)
    rec.close("failed")
    assert reason(rec.path) == given_reason
    assert rec.closed


def test_an_unknown_reason_is_a_failure_and_counted(rec):
    rec.close("tired")
    assert reason(rec.path) == "failed"
    assert rec.faults.counts == {"argument": 1}


def test_the_last_clock_pair_shows_drift(rec, clock):
    clock.advance(10)
    clock.jump_wall(-3600)
    rec.close()
    pair = events(rec.path, ClockPair)[-1]
    assert pair == ClockPair(wall_ns=clock.wall_ns(), mono_ns=10 * 10**9)


def test_a_clock_pair_comes_with_an_event_once_a_minute(rec, clock):
    for _ in range(10):
        clock.advance(20)
        rec.saved(1)
    assert [pair.mono_ns // 10**9 for pair in events(rec.path, ClockPair)] == [60, 120, 180]


def test_faults_are_written_when_they_change_and_at_the_close(rec, clock):
    rec.saved("x")
    rec.saved(1)
    assert events(rec.path, Fault) == []
    clock.advance(10)
    rec.saved(1)
    rec.saved(2)
    assert [(fault.what, fault.count) for fault in events(rec.path, Fault)] == [("argument", 1)]
    rec.saved(None)
    rec.saved("y")
    rec.close()
    faults = events(rec.path, Fault)
    assert [(fault.what, fault.count) for fault in faults] == [("argument", 1), ("argument", 3)]
    assert "is y," in faults[-1].error


def test_two_processes_of_one_rank_never_share_a_folder(tmp_path):
    recs = [headway.start("r", dir=tmp_path, attempt="a", rank=0) for _ in range(3)]
    for rec in recs:
        rec.saved(1)
        rec.close()
    assert [Path(rec.path).name for rec in recs] == ["a-r0", "a.002-r0", "a.003-r0"]
    assert [events(rec.path)[0].attempt for rec in recs] == ["a", "a.002", "a.003"]
    assert all(len(events(rec.path, Saved)) == 1 for rec in recs)


def test_the_started_recorder_is_the_active_one_until_it_is_closed(tmp_path):
    assert active() is None
    with headway.start("a", dir=tmp_path) as first:
        with headway.start("b", dir=tmp_path) as second:
            assert active() is second
        assert active() is first
    assert active() is None


# --- steps ----------------------------------------------------------------------------------


def test_a_step_is_a_row_with_its_phases(rec, clock):
    clock.advance(1)
    with rec.step(7):
        with rec.tracker.time_source():
            clock.advance(0.25)
        clock.advance(0.5)
        with rec.tracker.time_transfer():
            clock.advance(0.125)
    with rec.step():
        clock.advance(1)
    rec.close()
    assert rows(rec.path).tolist() == [
        (7, 1_000_000_000, 1_875_000_000, 250_000_000, 0, 125_000_000, 1),
        (8, 1_875_000_000, 2_875_000_000, 0, 0, 0, 2),
    ]
    assert not rec.faults.counts


def test_no_number_is_written_that_a_reader_takes_for_damage(rec):
    for n in (BOUND, BOUND - 1):
        with rec.step(n):
            pass
        rec.saved(n)
    rec.close()
    assert rows(rec.path)["step"].tolist() == [0, BOUND - 1]
    assert [event.step for event in events(rec.path, Saved)] == [BOUND - 1]
    assert rec.faults.counts == {"argument": 2}


@pytest.mark.parametrize(("clock", "faults"), [(None, {}), (5, {"argument": 1}), (object(), {"argument": 1})])
def test_what_is_no_clock_is_the_systems(tmp_path, clock, faults):
    before = time.monotonic_ns()
    with headway.start("r", dir=tmp_path, clock=clock) as rec, rec.step():
        pass
    assert before <= rows(rec.path)["start_ns"][0] <= time.monotonic_ns()
    assert rec.faults.counts == faults


def test_numbering_goes_on_after_what_was_restored(rec):
    with rec.step():
        pass
    rec.restored(100)
    for _ in range(2):
        with rec.step():
            pass
    rec.restored(-1)
    with rec.step():
        pass
    rec.close()
    assert rows(rec.path)["step"].tolist() == [0, 101, 102, 0]


def test_a_step_whose_body_raises_is_kept(rec, clock):
    def diverge():
        clock.advance(1)
        raise ValueError("diverged")

    with pytest.raises(ValueError, match="diverged"), rec.step():
        diverge()
    rec.close()
    assert rows(rec.path)["end_ns"].tolist() == [10**9]


def test_a_step_in_a_step_is_part_of_it(rec, clock):
    with rec.step(3), rec.step(9):
        clock.advance(1)
    rec.close()
    assert rows(rec.path)["step"].tolist() == [3]
    assert not rec.faults.counts


def test_a_step_of_another_thread_is_counted_and_left_out(rec):
    def other():
        with rec.step():
            pass

    with rec.step(1):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    rec.close()
    assert rows(rec.path)["step"].tolist() == [1]
    assert rec.faults.counts == {"step-thread": 1}


def test_a_batch_of_the_bare_tracker_is_a_batch_and_the_log_says_so(rec):
    assert events(rec.path, Rows) == []
    for _ in range(2):
        rec.tracker.start_batch()
        rec.tracker.end_batch()
    assert events(rec.path, Rows) == [Rows(rows="batch", at=0)]


# --- a step that is open when the log ends --------------------------------------------------


def unfinished(rec):
    return [(span.category, span.start, span.end, span.ok) for span in events(rec.path, Span)]


def test_an_open_step_is_named_when_the_log_ends(rec, clock):
    clock.advance(1)
    with rec.step():
        clock.advance(2)
        rec.close()
        clock.advance(4)
    rec.close()
    assert unfinished(rec) == [("custom:unfinished_step", 10**9, 3 * 10**9, False)]
    assert len(rows(rec.path)) == 0


def test_so_is_an_open_item_of_a_loop(rec, clock):
    items = iter(rec.track(iter(int, 1), quiet=True))
    for _ in range(2):
        next(items)
        clock.advance(1)
    rec.close()
    items.close()
    assert unfinished(rec) == [("custom:unfinished_step", 10**9, 2 * 10**9, False)]
    assert rows(rec.path)["step"].tolist() == [0]


def test_so_is_an_open_batch_of_a_bare_tracker(tmp_path, clock):
    tracker = headway.GoodputTracker(tmp_path / "r", clock=clock)
    tracker.start_batch()
    clock.advance(1)
    tracker.close()
    (folder,) = log_folders(tmp_path)
    assert [(span.category, span.end) for span in events(folder, Span)] == [("custom:unfinished_step", 10**9)]


def test_a_loop_that_ended_or_whose_loader_raised_leaves_no_open_step(rec, clock):
    def broken():
        yield 1
        clock.advance(1)
        raise OSError("bad shard")

    list(rec.track([1], quiet=True))
    with pytest.raises(OSError, match="bad shard"):
        list(rec.track(broken(), quiet=True))
    with pytest.raises(ValueError), rec.step():
        raise ValueError
    rec.close()
    assert unfinished(rec) == []


def test_the_time_in_a_span_that_began_before_the_step_is_the_spans(rec, clock):
    with rec.span("evaluation"):
        clock.advance(1)
        with rec.step():
            clock.advance(1)
            rec.close()
    assert unfinished(rec) == []


def test_a_background_span_or_one_inside_the_step_changes_nothing(rec, clock):
    with rec.span("checkpoint_save", background=True), rec.step():
        clock.advance(1)
        with rec.span("evaluation"):
            clock.advance(1)
            rec.close()
    assert unfinished(rec) == [("custom:unfinished_step", 0, 2 * 10**9, False)]


# --- names that were probably meant otherwise -----------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("checkpiont_save", "for checkpoint_save time use 'checkpoint_save'"),
        ("Evaluation", "for evaluation time use 'evaluation'"),
        ("eval", "for evaluation time use 'evaluation'"),
        ("val", "for evaluation time use 'evaluation'"),
        ("validation", "for evaluation time use 'evaluation'"),
        ("restore", "for checkpoint_restore time use 'checkpoint_restore'"),
        ("save", "for checkpoint_save time use 'checkpoint_save'"),
        ("checkpoint", "for checkpoint_save time use 'checkpoint_save'"),
        ("device-init", "for device_init time use 'device_init'"),
        ("input_wait", "track(loader)"),
        ("rework", "booked by the ledger itself"),
        ("productive", "booked by the ledger itself"),
    ],
)
def test_a_name_that_means_a_category_is_said_once(rec, caplog, name, said):
    caplog.set_level(logging.WARNING, logger="headway")
    for _ in range(3):
        with rec.span(name):
            pass
    (message,) = caplog.messages
    assert message.startswith(f"headway: span '{name}' is stored as custom:{name}; ")
    assert said in message
    assert events(rec.path, Begin)[0].category == f"custom:{name}"
    assert not rec.faults.counts


def test_each_such_name_is_said(rec, caplog):
    caplog.set_level(logging.WARNING, logger="headway")
    for name in ("eval", "val", "eval"):
        rec.span(name)
    assert len(caplog.messages) == 2


def test_other_names_say_nothing(rec, caplog):
    caplog.set_level(logging.WARNING, logger="headway")
    own = ["sdc_check", "phase one", "tokenize", "optimizer", "log_images", "sync", "custom:eval", "", "x" * 10**6, "é"]
    for name in [*SPAN_CATEGORIES, *own, *map(str, range(2000))]:
        rec.span(name)
    assert caplog.messages == []


# --- spans ----------------------------------------------------------------------------------


def test_a_span_is_written_when_it_begins_and_when_it_ends(rec, clock):
    clock.advance(1)
    with rec.span("evaluation"):
        assert events(rec.path, Begin) == [Begin(id=1, category="evaluation", at=10**9)]
        clock.advance(2)
    with rec.span("sdc_check", background=True):
        pass
    assert spans(rec) == [
        ("evaluation", 10**9, 3 * 10**9, True, False),
        ("custom:sdc_check", 3 * 10**9, 3 * 10**9, True, True),
    ]


def test_a_span_whose_body_raises_is_closed_and_not_ok(rec):
    with pytest.raises(KeyError), rec.span("evaluation"):
        raise KeyError
    assert spans(rec) == [("evaluation", 0, 0, False, False)]


def test_a_span_object_can_be_nested_and_used_again(rec, clock):
    span = rec.span("x")
    with span:
        clock.advance(1)
        with span:
            clock.advance(1)
    with span:
        pass
    assert [(begin, end) for _, begin, end, _, _ in spans(rec)] == [
        (0, 2 * 10**9),
        (10**9, 2 * 10**9),
        (2 * 10**9,) * 2,
    ]


def test_a_span_as_a_decorator_books_every_call(rec, clock):
    @rec.span("evaluation")
    def evaluate(seconds, *, fail=False):
        """Evaluate."""
        clock.advance(seconds)
        if fail:
            raise ValueError
        return seconds

    assert evaluate(1) == 1
    with pytest.raises(ValueError):
        evaluate(2, fail=True)
    assert evaluate.__name__ == "evaluate"
    assert evaluate.__doc__ == "Evaluate."
    assert [(end - begin, ok) for _, begin, end, ok, _ in spans(rec)] == [(10**9, True), (2 * 10**9, False)]


def test_a_recursive_function_has_nested_spans(rec):
    @rec.span("x")
    def count(n):
        return n and count(n - 1) + 1

    assert count(4) == 4
    assert len(spans(rec)) == 5


def test_an_async_function_is_booked_until_it_returns(rec, clock):
    @rec.span("checkpoint_save", background=True)
    async def save(seconds):
        await asyncio.sleep(0)
        clock.advance(seconds)
        return seconds

    async def both():
        return await asyncio.gather(save(1), save(2))

    assert asyncio.run(both()) == [1, 2]
    assert sorted((begin, end) for _, begin, end, _, _ in spans(rec)) == [(0, 10**9), (0, 3 * 10**9)]


def test_a_generator_is_booked_from_its_first_item_to_its_end(rec, clock):
    @rec.span("evaluation")
    def batches():
        clock.advance(1)
        answer = yield 1
        clock.advance(1)
        yield answer
        return "done"

    items = batches()
    clock.advance(5)
    assert (next(items), items.send("sent")) == (1, "sent")
    with pytest.raises(StopIteration, match="done"):
        next(items)
    for _ in batches():
        break
    assert [(end - begin, ok) for _, begin, end, ok, _ in spans(rec)] == [(2 * 10**9, True), (10**9, True)]


def test_an_async_generator_is_booked_too(rec, clock):
    @rec.span("evaluation")
    async def batches():
        for n in range(3):
            clock.advance(1)
            yield n

    async def collect():
        return [n async for n in batches()]

    assert asyncio.run(collect()) == [0, 1, 2]
    assert spans(rec) == [("evaluation", 0, 3 * 10**9, True, False)]


def test_spans_of_many_threads_have_ids_of_their_own(rec):
    @rec.span("checkpoint_save", background=True)
    def save():
        pass

    def work():
        shared = rec.span("x")
        for _ in range(50):
            save()
            with shared:
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ids = [event.id for event in events(rec.path, Begin)]
    assert len(ids) == len(set(ids)) == len(spans(rec)) == 800
    assert not rec.faults.counts


def test_a_span_that_another_thread_ends_is_closed_once(rec):
    span = rec.span("evaluation")
    span.__enter__()
    thread = threading.Thread(target=span.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    span.__exit__(None, None, None)
    assert len(events(rec.path, End)) == 1
    assert len(list(rec.track([1, 2], quiet=True))) == 2
    assert rec.tracker.summary().total_batches == 2


def test_a_span_left_open_at_the_close_does_not_swallow_the_next_recorders_steps(tmp_path):
    first = headway.start("a", dir=tmp_path)
    left_open = first.span("evaluation")
    left_open.__enter__()
    first.close()
    with headway.start("b", dir=tmp_path) as second:
        list(second.track(range(5), quiet=True))
    assert len(rows(second.path)) == 5
    left_open.__exit__(None, None, None)


def test_a_span_of_one_recorder_is_none_of_another(tmp_path, rec):
    with headway.start("b", dir=tmp_path) as other, rec.span("evaluation"):
        list(other.track(range(5), quiet=True))
        list(rec.track(range(3), quiet=True))
    assert (len(rows(other.path)), rec.tracker.summary().total_batches) == (5, 0)


def test_an_evaluation_of_one_task_does_not_swallow_the_steps_of_another(rec):
    shared = rec.span("evaluation")

    async def evaluate(turns):
        with shared:
            for _ in range(turns):
                await asyncio.sleep(0)
            list(rec.track(range(3), quiet=True))

    async def train():
        await asyncio.sleep(0)
        for _ in rec.track(range(20), quiet=True):
            await asyncio.sleep(0)

    async def main():
        await asyncio.gather(evaluate(2), train(), evaluate(4))

    asyncio.run(main())
    rec.close()
    assert len(rows(rec.path)) == 20
    assert [event.id for event in events(rec.path, End)] == [1, 2]


def test_a_task_of_an_evaluation_evaluates_while_that_lasts(rec):
    async def loop():
        list(rec.track(range(2), quiet=True))

    async def main():
        with rec.span("evaluation"):
            await asyncio.create_task(loop())
            later = asyncio.create_task(loop())
        await later

    asyncio.run(main())
    assert rec.tracker.summary().total_batches == 2


def test_spans_that_other_threads_end_do_not_pile_up(rec):
    for _ in range(5):
        span = rec.span("x")
        span.__enter__()
        _in_thread(lambda span=span: span.__exit__(None, None, None))
    assert len(_here.get()) <= 1


# --- a recorder that is dropped -------------------------------------------------------------


def open_files():
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="Linux only")
def test_a_recorder_that_nobody_has_any_more_lets_its_files_go(tmp_path):
    headway.start("last", dir=tmp_path)
    before = open_files()
    for _ in range(5):
        rec = headway.start("r", dir=tmp_path)
        with rec.span("evaluation"):
            pass
        with rec.step():
            pass
        rec.saved("x")
    paths = [rec.path]
    del rec
    with headway.start("last", dir=tmp_path):
        assert open_files() <= before + 3
    found = events(paths[0])
    assert [event.what for event in found if isinstance(event, Fault)] == ["argument"]
    assert reason(paths[0]) is None  # nobody said how it ended
    assert len(rows(paths[0])) == 1
    assert (Path(paths[0]) / "steps.npy").stat().st_size < 5000


def test_the_newest_recorder_stays_for_a_bare_track(tmp_path):
    path = headway.start("r", dir=tmp_path).path
    gc.collect()
    list(headway.track(range(3), quiet=True))
    active().close()
    assert (len(rows(path)), reason(path)) == (3, "finished")


def test_whoever_has_its_tracker_still_records(tmp_path):
    rec = headway.start("r", dir=tmp_path)
    tracker, path = rec.tracker, rec.path
    tracker.on_first_batch = None
    del rec
    headway.start("other", dir=tmp_path).close()
    gc.collect()
    with tracker.batch():
        pass
    assert len(rows(path)) == 1


# --- never into training --------------------------------------------------------------------


class Hostile:
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__

    def __int__(self):
        raise RuntimeError("no number")

    def __iter__(self):
        raise RuntimeError("no items")

    def __bool__(self):
        raise RuntimeError("no truth")


ANYTHING = st.one_of(
    st.none(), st.integers(), st.floats(), st.text(max_size=5), st.binary(max_size=3), st.lists(st.integers()),
    st.builds(Hostile), st.just("\udc80"), st.just(1 << 80),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(arguments=st.tuples(*[ANYTHING] * 7), phases=ANYTHING)
def test_no_argument_of_start_raises(tmp_path, arguments, phases):
    run, attempt, rank, world_size, devices, accelerator, said = arguments
    with headway.start(run, tmp_path, attempt, rank, world_size, devices, accelerator, phases=phases) as rec:
        rec.saved(said)
        rec.restored(said)
        rec.notice(said)
        with rec.span(said), rec.step(said):
            pass
    assert reason(rec.path) == "finished"


def test_no_directory_stops_training(tmp_path):
    (tmp_path / "file").write_text("")
    for bad in (tmp_path / "file", "/proc/none", "\0", tmp_path / "file" / "below"):
        with headway.start("r", dir=bad) as rec:
            with rec.span("evaluation"), rec.step(1):
                pass
            rec.saved(1)
            assert list(rec.track(range(3), quiet=True)) == [0, 1, 2]
        assert rec.path == ""
        assert rec.faults.counts == {"folder": 1}
        assert rec.tracker.summary().total_batches == 4


CALLS = st.sampled_from(
    ["enter span", "exit span", "enter step", "exit step", "saved", "restored", "notice", "close", "start_batch",
     "end_batch", "next", "break", "reset", "detach", "time in", "time out", "thread"]
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=200)
@given(calls=st.lists(st.tuples(CALLS, ANYTHING), max_size=40))
def test_no_order_of_calls_raises(tmp_path, calls):
    rec = headway.start("r", dir=tmp_path)
    span, step, timer = rec.span("evaluation"), rec.step(), rec.tracker.time_source()
    items = iter(rec.track(iter(int, 1), quiet=True))
    none = (None, None, None)
    for name, value in calls:
        {
            "enter span": span.__enter__,
            "exit span": lambda: span.__exit__(*none),
            "enter step": step.__enter__,
            "exit step": lambda: step.__exit__(*none),
            "saved": lambda value=value: rec.saved(value),
            "restored": lambda value=value: rec.restored(value),
            "notice": lambda value=value: rec.notice(value),
            "close": lambda value=value: rec.close(value),
            "start_batch": rec.tracker.start_batch,
            "end_batch": rec.tracker.end_batch,
            "next": lambda: next(items, None),
            "break": items.close,
            "reset": rec.tracker.reset,
            "detach": rec.tracker.detach,
            "time in": timer.__enter__,
            "time out": lambda: timer.__exit__(*none),
            "thread": lambda: _in_thread(lambda: rec.step().__enter__()),
        }[name]()
    rec.close()
    for _ in calls:
        span.__exit__(*none)  # so that no span stays open for the loops of other tests
    assert len(rows(rec.path)) <= len(calls)


def _in_thread(function):
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()
