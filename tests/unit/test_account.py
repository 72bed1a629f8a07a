"""The ledger's fine print, a rule a test, in seconds that can be counted by hand."""

import numpy as np
import pytest

from headway import account
from headway.errors import ArgumentError, LedgerError
from headway.events import Begin, ClockPair, Close, End, Fault, Open, Restored, Saved, Span, Step, Unknown
from headway.ledger.history import Process, Rows, Run
from headway.ledger.ledger import Ledger

S = 10**9
WALL = 1_700_000_000 * S


def steps(first, n, at=0, length=10, **waits):
    return [
        Step(
            step=first + i,
            start=(at + i * length) * S,
            end=(at + (i + 1) * length) * S,
            phases={name: wait * S for name, wait in waits.items()},
        )
        for i in range(n)
    ]


def attempt(name, events, found=(), wall=0, **fields):
    opened = Open(wall_ns=WALL + wall * S, mono_ns=0, run="r1", attempt=name, **fields)
    return Process(opened, events, Rows.from_events(found))


def closed(at, reason="finished"):
    return Close(at=at * S, reason=reason)


def span(category, start, end, **fields):
    return Span(category=category, start=start * S, end=end * S, **fields)


def seconds(*processes, **options):
    return account(Run("r1", "native", processes), **options).seconds


def test_the_later_started_of_two_crossing_spans_owns_what_they_share():
    events = [span("evaluation", 0, 6), span("checkpoint_save", 4, 10), closed(10)]
    assert seconds(attempt("a0", events)) == {"checkpoint_save": 6.0, "evaluation": 4.0}


def test_the_later_started_of_two_crossing_steps_owns_what_they_share():
    rows = [Step(step=0, start=0, end=6 * S), Step(step=1, start=4 * S, end=10 * S, phases={"source": 7 * S})]
    ledger = account(Run("r1", "native", [attempt("a0", [closed(10)], rows)]))
    assert ledger.seconds == {"productive": 4.0, "input_wait": 6.0}
    assert any("exceed" in text and "1.0 s" in text for text in ledger.warnings)


def test_a_span_inside_a_step_is_not_step_time():
    events = [span("checkpoint_save", 12, 15), closed(20)]
    assert seconds(attempt("a0", events, steps(0, 2))) == {"productive": 17.0, "checkpoint_save": 3.0}


def test_a_begin_without_end_reaches_to_the_end_of_its_attempt():
    events = [Begin(id=1, category="checkpoint_save", at=20 * S), ClockPair(wall_ns=WALL + 26 * S, mono_ns=26 * S)]
    assert seconds(attempt("a0", events, steps(0, 2))) == {"productive": 20.0, "checkpoint_save": 6.0}


def test_duplicates_count_once():
    rows = steps(0, 3)
    begin, end = Begin(id=4, category="evaluation", at=30 * S), End(id=4, at=35 * S)
    events = [begin, end, end, begin, closed(35)]
    ledger = account(Run("r1", "native", [attempt("a0", events, [*rows, *rows])]))
    assert ledger.seconds == {"productive": 30.0, "evaluation": 5.0}
    assert ledger.steps.executed == 3


def test_an_attempt_without_a_step_is_startup_less_its_spans():
    assert seconds(attempt("a0", [span("device_init", 1, 4), closed(10)])) == {"startup": 7.0, "device_init": 3.0}


def test_without_a_mark_a_new_attempt_discards_from_its_own_first_step():
    first = attempt("a0", [], steps(0, 5))
    again = attempt("a1", [closed(30)], steps(3, 3), wall=60)
    ledger = account(Run("r1", "native", [again, first]))
    assert ledger.seconds == {"productive": 60.0, "rework": 20.0, "recovery": 10.0}
    assert (ledger.steps.executed, ledger.steps.retained, ledger.steps.reworked) == (8, 6, 2)


def test_a_discarded_step_is_rework_with_its_waits_and_without_its_spans():
    first = attempt("a0", [span("evaluation", 12, 14)], steps(0, 3, source=4))
    again = attempt("a1", [Restored(step=0, at=0), closed(20)], steps(1, 2), wall=30)
    assert seconds(first, again) == {"productive": 26.0, "evaluation": 2.0, "input_wait": 4.0, "rework": 18.0}


def test_restored_inside_an_attempt_is_rollback():
    rows = [*steps(0, 4), *steps(2, 3, at=45)]
    ledger = account(Run("r1", "native", [attempt("a0", [Restored(step=1, at=45 * S), closed(75)], rows)]))
    assert ledger.seconds == {"productive": 50.0, "rollback": 20.0, "unaccounted": 5.0}
    assert (ledger.steps.executed, ledger.steps.retained, ledger.steps.rolled_back) == (7, 5, 2)


def test_a_number_that_comes_back_is_part_of_that_step():
    epochs = [*steps(0, 4), *steps(0, 4, at=40)]
    ledger = account(Run("r1", "native", [attempt("a0", [closed(80)], epochs)]))
    assert ledger.seconds == {"productive": 80.0}
    assert (ledger.steps.executed, ledger.steps.retained) == (4, 4)


@pytest.mark.parametrize(
    ("reason", "lost"), [("failed", 20.0), ("signal", 20.0), ("finished", 0.0), ("preempted", 0.0)]
)
def test_what_a_failed_run_had_not_saved_is_rework(reason, lost):
    events = [Saved(step=2, at=30 * S), closed(50, reason)]
    assert seconds(attempt("a0", events, steps(0, 5))).get("rework", 0.0) == lost


def test_a_failed_run_that_records_no_saves_loses_nothing_that_is_known():
    assert seconds(attempt("a0", [closed(50, "failed")], steps(0, 5))) == {"productive": 50.0}


def test_what_is_not_saved_yet_is_uncommitted_while_the_run_is_open():
    ledger = account(Run("r1", "native", [attempt("a0", [Saved(step=2, at=30 * S)], steps(0, 5))]))
    assert ledger.seconds == {"productive": 50.0}
    assert ledger.steps.uncommitted == 2


def test_a_save_of_one_rank_counts_for_ranks_that_record_none_whatever_their_clocks_say():
    first = attempt("a0", [Restored(step=-1, at=0), Saved(step=4, at=50 * S), closed(100, "failed")], steps(0, 10))
    skewed = attempt("a0", [Restored(step=-1, at=0), closed(100, "failed")], steps(0, 10), wall=70, rank=1)
    ledger = account(Run("r1", "native", [first, skewed]))
    assert ledger.seconds == {"productive": 100.0, "rework": 100.0}


def test_of_two_marks_before_the_first_step_the_last_counts():
    first = attempt("a0", [Saved(step=4, at=50 * S)], steps(0, 5))
    again = attempt("a1", [Restored(step=-1, at=0), Restored(step=4, at=S), closed(52)], steps(5, 5, at=2), wall=50)
    assert seconds(first, again) == {"productive": 100.0, "startup": 2.0}


def test_compile_is_inferred_from_three_later_steps_on():
    slow_first = [Step(step=0, start=0, end=13 * S), *steps(1, 3, at=13)]
    assert seconds(attempt("a0", [closed(43)], slow_first)) == {"productive": 40.0, "compile": 3.0}
    assert seconds(attempt("a0", [closed(33)], slow_first[:3])) == {"productive": 33.0}


def test_compile_is_not_inferred_beside_a_span_of_it_or_from_blocks():
    rows = [Step(step=0, start=0, end=13 * S), *steps(1, 3, at=13)]
    recorded = [span("compile", 1, 3), closed(43)]
    assert seconds(attempt("a0", recorded, rows)) == {"productive": 41.0, "compile": 2.0}
    assert seconds(attempt("a0", [closed(43)], rows, rows="block")) == {"productive": 43.0}


def test_inferred_compile_comes_off_before_a_step_is_called_rework():
    rows = [Step(step=0, start=0, end=13 * S, phases={"source": S}), *steps(1, 3, at=13, source=1)]
    again = attempt("a1", [Restored(step=-1, at=0), closed(10)], steps(0, 1), wall=43)
    assert seconds(attempt("a0", [], rows), again) == {"productive": 10.0, "compile": 3.0, "rework": 40.0}


def test_a_batch_row_reaches_to_the_next_one():
    rows = [Step(step=i, start=i * 10 * S, end=(i * 10 + 2) * S, phases={"source": 2 * S}) for i in range(3)]
    events = [span("evaluation", 12, 15), closed(30)]
    assert seconds(attempt("a0", events, rows, rows="batch")) == {
        "productive": 13.0,
        "input_wait": 6.0,
        "evaluation": 3.0,
        "shutdown": 8.0,
    }


def test_overlapping_attempts_keep_their_lengths_and_warn():
    first, second = attempt("a0", [], steps(0, 3)), attempt("a1", [closed(20)], steps(3, 2), wall=25)
    ledger = account(Run("r1", "native", [first, second]))
    assert ledger.seconds == {"productive": 50.0}
    assert any("overlap by 5.0 s" in text for text in ledger.warnings)


def test_a_gap_after_finished_is_held_and_said():
    ledger = account(
        Run(
            "r1",
            "native",
            [attempt("a0", [closed(10)], steps(0, 1)), attempt("a1", [closed(10)], steps(1, 1), wall=15)],
        )
    )
    assert ledger.seconds == {"productive": 20.0, "recovery": 5.0}
    assert any("had finished" in text for text in ledger.warnings)


@pytest.mark.parametrize("others", [[closed(100)], []])
def test_a_silent_rank_is_silent_until_the_others_end(others):
    ledger = account(
        Run("r1", "native", [
            attempt("a0", others, steps(0, 10), world_size=2),
            attempt("a0", [], steps(0, 4), rank=1, world_size=2),
        ])
    )  # fmt: skip
    assert ledger.by("rank")["1"].seconds == {"productive": 40.0, "silent": 60.0}


def test_until_cuts_what_came_later():
    process = attempt("a0", [closed(30)], steps(0, 3))
    assert seconds(process, until=WALL / S + 15) == {"productive": 15.0}
    assert account(Run("r1", "native", [process]), until=WALL / S + 15).steps.executed == 2


def test_what_is_missing_is_said():
    ledger = account(Run("r1", "native", [attempt("a0", [closed(10)], steps(0, 1), rank=3, world_size=8)]))
    assert "ranks 1 of 8 present" in ledger.warnings
    assert any("saves not recorded" in text for text in ledger.warnings)


def test_a_wall_clock_that_jumps_moves_nothing_and_is_said():
    events = [ClockPair(wall_ns=WALL + 3610 * S, mono_ns=10 * S), closed(20)]
    ledger = account(Run("r1", "native", [attempt("a0", events, steps(0, 2))]))
    assert ledger.seconds == {"productive": 20.0}
    assert any("moved by +3600.0 s" in text for text in ledger.warnings)


def test_faults_of_recording_are_said_once_with_their_last_count():
    events = [Fault(what="rows", count=n, at=n * S, error="ENOSPC") for n in (1, 7)]
    ledger = account(Run("r1", "native", [attempt("a0", [*events, closed(10)], steps(0, 1))]))
    assert sum("not recorded: rows, 7 times (ENOSPC)" in text for text in ledger.warnings) == 1


def test_damage_is_left_out_and_said():
    events = [
        span("evaluation", 8, 2),
        End(id=9, at=5 * S),
        Span(category="evaluation", start=0, end=2**62),
        Unknown({"kind": "new", "at": 10**30}),
        closed(10),
    ]
    rows = [
        Step(step=0, start=2 * S, end=9 * S),
        Step(step=1, start=9 * S, end=3 * S),
        Step(step=2, start=0, end=2**62),
    ]
    ledger = account(Run("r1", "native", [attempt("a0", events, rows)]))
    assert ledger.seconds == {"productive": 7.0, "startup": 2.0, "shutdown": 1.0}
    for words in ("ends before it starts", "without its begin", "impossible time", "2 steps left out"):
        assert any(words in text for text in ledger.warnings), words


def test_events_outside_open_and_close_are_left_out_and_said():
    opened = Open(wall_ns=WALL, mono_ns=5 * S, run="r1", attempt="a0")
    process = Process(opened, [closed(12), span("evaluation", 11, 20)], Rows.from_events(steps(0, 1)))
    ledger = account(Run("r1", "native", [process]))
    assert ledger.seconds == {"productive": 5.0, "shutdown": 1.0, "evaluation": 1.0}
    assert any("5.0 s of events before its open" in text for text in ledger.warnings)
    assert any("8.0 s of events after its close" in text for text in ledger.warnings)


def test_background_spans_take_no_time_and_are_listed():
    events = [span("checkpoint_save", 5, 15, background=True), closed(20)]
    ledger = account(Run("r1", "native", [attempt("a0", events, steps(0, 2), devices=4)]))
    assert ledger.seconds == {"productive": 80.0}
    assert dict(ledger.background_ns) == {"checkpoint_save": 40 * S}


def test_waits_are_kept_by_phase_and_negative_ones_are_said():
    rows = [*steps(0, 2, source=3, transform=1), Step(step=2, start=20 * S, end=30 * S, phases={"source": -5})]
    ledger = account(Run("r1", "native", [attempt("a0", [closed(30)], rows)]))
    assert dict(ledger.waits_ns) == {"source": 6 * S, "transform": 2 * S}
    assert any("negative waits" in text for text in ledger.warnings)


def test_a_window_without_an_event_is_a_window_of_loss():
    ledger = account(Run("r1", "native", [attempt("a0", [], steps(0, 2))]), until=WALL / S + 60)
    windows = [window.seconds for window in ledger.windows(every_ns=20 * S)]
    assert windows == [{"productive": 20.0}, {"silent": 20.0}, {"silent": 20.0}]
    assert [window.seconds for window in ledger.windows(last_ns=50 * S)] == [{"productive": 10.0, "silent": 40.0}]


def test_steps_wholly_after_the_close_are_no_steps():
    ledger = account(Run("r1", "native", [attempt("a0", [closed(30)], steps(0, 5))]))
    assert ledger.seconds == {"productive": 30.0}
    assert ledger.steps.executed == 3
    assert any("20.0 s of events after its close" in text for text in ledger.warnings)


def test_pieces_by_rank_and_attempt_count_what_they_hold():
    runs = [
        attempt(name, [closed(10)], steps(n, 1), wall=wall, rank=rank, world_size=2, devices=4)
        for n, (name, wall) in enumerate((("a0", 0), ("a1", 20)))
        for rank in (0, 1)
    ]
    ledger = account(Run("r1", "native", runs))
    by_rank, by_attempt = ledger.by("rank")["1"], ledger.by("attempt")["a1"]
    assert (by_rank.attempts, by_rank.ranks, by_rank.devices) == (2, 1, 4)
    assert (by_attempt.attempts, by_attempt.ranks, by_attempt.devices) == (1, 2, 8)
    assert [window.attempts for window in ledger.windows(every_ns=10 * S)] == [1, 1, 1]


def test_what_the_run_says_of_its_saves():
    marks = [Saved(step=9, at=100 * S), Saved(step=19, at=202 * S), Saved(step=29, at=304 * S)]
    saves = [span("checkpoint_save", 100, 102), span("checkpoint_save", 202, 204)]
    process = attempt("a0", [*marks, *saves, closed(320, "failed")], steps(0, 30))
    saving = account(Run("r1", "native", [process])).saving
    assert (saving.n_saves, saving.n_failures, saving.interval_steps) == (3, 1, 10)
    assert (saving.save_ns, saving.step_ns) == (2 * S, 10 * S)


def test_a_ledger_that_does_not_balance_is_an_error():
    with pytest.raises(LedgerError, match=r"sum to 3 ns, the window is 4 ns.*\[unbalanced\]"):
        Ledger({"productive": 3}, held_ns=4)
    with pytest.raises(LedgerError, match="negative"):
        Ledger({"productive": 5, "recovery": -1}, held_ns=4)


def test_what_cannot_be_measured_again_has_no_windows():
    with pytest.raises(ArgumentError, match=r"\[no-history\]"):
        list(Ledger().windows(every_ns=1))
    ledger = account(Run("r1", "native", [attempt("a0", [closed(10)], steps(0, 1))]))
    with pytest.raises(ArgumentError, match=r"\[bad-window\]"):
        list(ledger.windows(every_ns=0))
    with pytest.raises(ArgumentError, match=r"\[bad-split\]"):
        ledger.by("node")


def test_factors_that_nobody_measured_are_none():
    empty, held = Ledger(), Ledger({"productive": 1, "recovery": 1}, held_ns=2)
    assert (empty.runtime, held.runtime) == (None, 0.5)
    assert (held.scheduling, held.program, held.mpg) == (None, None, None)
    pool = Ledger({"productive": 3, "below_peak": 3, "recovery": 2, "queued": 2}, held_ns=8, offered_ns=10)
    assert (pool.scheduling, pool.runtime, pool.program) == (0.8, 0.75, 0.5)
    assert pool.mpg == pytest.approx(0.3)


def test_a_phase_that_is_a_program_loss_is_lost_inside_the_retained_step():
    run = Run(
        "r1", "native", [attempt("a0", [closed(40)], steps(0, 4, source=1, bubble=4), phases=("source", "bubble"))]
    )
    ledger = account(run)
    assert ledger.seconds == {"productive": 20.0, "input_wait": 4.0, "bubble": 16.0}
    assert (ledger.runtime, ledger.program) == (0.9, pytest.approx(20 / 36))
    assert dict(ledger.waits_ns) == {"source": 4 * S}
    assert ledger.stall.wait_ns == S


def test_a_program_loss_of_a_discarded_step_is_rework():
    first = attempt("a0", [closed(20, "failed")], steps(0, 2, bubble=4))
    again = attempt("a1", [closed(20)], steps(1, 2, bubble=4), wall=20)
    assert seconds(first, again) == {"productive": 18.0, "rework": 10.0, "bubble": 12.0}


def test_a_program_loss_of_zero_was_measured():
    ledger = account(Run("r1", "native", [attempt("a0", [closed(20)], steps(0, 2, bubble=0))]))
    assert ledger.seconds == {"productive": 20.0, "bubble": 0.0}
    assert ledger.program == 1.0


def test_p_of_a_sum_is_not_known_where_only_some_tell_it():
    told = account(Run("a", "native", [attempt("a0", [closed(20)], steps(0, 2, bubble=4))]))
    untold = account(Run("b", "native", [attempt("a0", [closed(20)], steps(0, 2))]))
    assert told.program == 0.6
    assert (told + untold).program is None
    assert "P" in (told + untold).unknown
    assert (told + told).program == 0.6


def test_an_empty_run_is_an_empty_ledger():
    ledger = account(Run("r1", "native", []))
    assert ledger.seconds == {}
    assert ledger.held_ns == 0


def test_ten_million_nanosecond_sums_are_exact():
    n = 1_000_000
    start = np.arange(n, dtype=np.int64) * 10_000_019
    rows = Rows(np.arange(n), start, start + 10_000_018, {"source": np.full(n, 3_333_333)})
    process = Process(Open(wall_ns=WALL, mono_ns=0), [Close(at=n * 10_000_019)], rows)
    ledger = account(Run("r1", "native", [process]))
    assert ledger.held_ns == n * 10_000_019
    assert dict(ledger.amounts_ns) == {
        "productive": n * (10_000_018 - 3_333_333),
        "input_wait": n * 3_333_333,
        "unaccounted": n - 1,
        "shutdown": 1,
    }
