"""The ledger of a pool, in hours that can be counted by hand."""

import random
from collections import Counter
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway import account
from headway.errors import ArgumentError
from headway.events import Close, Open
from headway.ledger import jobs as jobs_module
from headway.ledger.history import Outage, Pool, Process, Run
from headway.ledger.jobs import Job, Jobs

H = 3600 * 10**9


def job(start, end, devices=1, submit=None, state="completed", **given):
    return Job(
        id="1", milli=round(devices * 1000), state=state, submit_ns=None if submit is None else submit * H,
        start_ns=None if start is None else start * H, end_ns=None if end is None else end * H, **given,
    )  # fmt: skip


def hours(ledger):
    return {name: ns / H for name, ns in ledger.amounts_ns.items()}


def test_without_a_size_only_what_was_held_is_there():
    ledger = account(Pool("p", "slurm", [job(0, 4, 2), job(1, 2, 8, state="failed")]))
    assert hours(ledger) == {"allocated": 16.0}
    assert (ledger.scheduling, ledger.runtime, ledger.mpg) == (None, None, None)
    assert {state: part.held_ns / H for state, part in ledger.by("state").items()} == {"completed": 8.0, "failed": 8.0}


def test_free_devices_are_queued_as_far_as_jobs_asked_for_them_and_unallocated_beyond():
    jobs = [job(0, 4, 2, submit=0), job(4, 6, 3, submit=1)]
    ledger = account(Pool("p", "slurm", jobs, devices=4, begin_ns=0, end_ns=8 * H))
    assert hours(ledger) == {"allocated": 8.0 + 6.0, "queued": 6.0, "unallocated": 2.0 + 2.0 + 8.0}
    assert ledger.scheduling == 14 / 32
    assert sum(ledger.amounts_ns.values()) == ledger.offered_ns == 32 * H
    assert (ledger.queue.n_ran, ledger.queue.max_s, ledger.queue.mean_s) == (2, 3 * 3600, 1.5 * 3600)


def test_a_split_tells_whose_jobs_waited_also_of_those_that_hold_nothing():
    jobs = [
        job(1, 4, 2, submit=0, user="ana"), job(4, 6, 3, submit=1, user="ana"), job(2, 3, submit=2, user="bo"),
        job(None, None, 8, submit=3, user="eve", state="pending"), job(5, 6, user="dan"),
    ]  # fmt: skip
    pieces = account(Pool("p", "slurm", jobs)).by("user")
    assert {user: (one.jobs, one.held_ns / H) for user, one in pieces.items()} == {
        "ana": (2, 12.0), "bo": (1, 1.0), "eve": (0, 0.0), "dan": (1, 1.0),
    }  # fmt: skip
    told = {
        user: one.queue and (one.queue.n_ran, one.queue.n_never_ran, one.queue.mean_s) for user, one in pieces.items()
    }
    assert told == {"ana": (2, 0, 2 * 3600), "bo": (1, 0, 0), "eve": (0, 1, None), "dan": None}
    assert {(one.attempts, one.ranks) for one in pieces.values()} == {(0, 0)}


def test_what_is_out_of_service_is_drained_unless_it_is_held():
    pool = Pool("p", "slurm", [job(0, 2, 3)], 4, [Outage(2, 0, 3 * H)], begin_ns=0, end_ns=4 * H)
    assert hours(account(pool)) == {"allocated": 6.0, "drained": 2.0 + 2.0, "unallocated": 2.0 + 4.0}


def test_a_job_that_never_ran_holds_nothing_and_is_said():
    ledger = account(Pool("p", "slurm", [job(0, 1), job(None, None, 8, submit=0, state="pending")]))
    assert hours(ledger) == {"allocated": 1.0}
    assert "1 of 2 jobs asked for 8 devices in all and never ran" in ledger.warnings[0]


def test_jobs_beyond_the_size_are_added_and_said():
    ledger = account(Pool("p", "slurm", [job(0, 2, 8)], devices=4))
    assert hours(ledger) == {"allocated": 16.0}
    assert ledger.scheduling == 1.0
    assert "jobs held up to 8 devices at once, more than the 4" in ledger.warnings[0]


def test_windows_add_to_the_whole_and_shared_devices_stay_whole_nanoseconds():
    jobs = [job(0, 3, 0.333, user="a"), job(1, 7, 0.5, user="b"), job(2, 3, 1.25, user="a", submit=0)]
    ledger = account(Pool("p", "slurm", jobs, devices=2))
    assert sum(ledger.amounts_ns.values()) == ledger.offered_ns
    assert sum(part.held_ns for part in ledger.by("user").values()) == ledger.held_ns
    pieces = list(ledger.windows(every_ns=H))
    assert sum(piece.held_ns for piece in pieces) == pytest.approx(ledger.held_ns, abs=len(pieces))
    assert sum(piece.offered_ns for piece in pieces) == ledger.offered_ns


def test_a_summary_has_amounts_and_no_times():
    ledger = account(Pool("p", "table", totals_ns={"completed": 3 * H, "failed": H}))
    assert ledger.held_ns == 4 * H
    assert ledger.by("state")["failed"].held_ns == H
    assert (ledger.start_ns, ledger.queue) == (None, None)


@st.composite
def pools(draw):
    at = st.integers(0, 12)
    jobs = [
        Job(id="1", milli=draw(st.integers(0, 3)) * 1000, state="x", submit_ns=draw(st.none() | at),
            start_ns=draw(st.none() | at), end_ns=draw(st.none() | at))
        for _ in range(draw(st.integers(0, 5)))
    ]  # fmt: skip
    outages = [Outage(draw(st.integers(0, 3)), draw(at), draw(st.none() | at)) for _ in range(draw(st.integers(0, 2)))]
    return Pool("p", "x", jobs, draw(st.integers(1, 6)), outages, begin_ns=0, end_ns=12)


@given(pools(), st.sampled_from([1 << 16, 4]))
def test_it_counts_each_instant_as_a_slow_one_does(pool, at_once):
    amounts = dict.fromkeys(("allocated", "queued", "unallocated", "drained"), 0)
    for t in range(12):
        held = sum(j.milli for j in pool.jobs if j.start_ns is not None and j.start_ns <= t < _or(j.end_ns, 12)) // 1000
        wanted = (
            sum(j.milli for j in pool.jobs if j.submit_ns is not None and j.submit_ns <= t < _left_queue(j)) // 1000
        )
        out = sum(o.devices for o in pool.outages if o.begin_ns <= t < _or(o.end_ns, 12))
        size = max(pool.devices, held)
        drained = min(out, size - held)
        queued = min(wanted, size - held - drained)
        for name, n in zip(amounts, (held, queued, size - held - drained - queued, drained), strict=True):
            amounts[name] += n
    with mock.patch("headway.ledger.pool._AT_ONCE", at_once):
        ledger = account(pool)
    assert +Counter(ledger.amounts_ns) == +Counter(amounts)


def _or(at, end):
    return end if at is None else at


def _left_queue(job):
    return _or(job.end_ns, 12) if job.start_ns is None else job.start_ns


def test_columns_give_back_the_jobs_they_were_given():
    jobs = [
        job(0, 4, 2, submit=0, name="tränen", user="ana", partition="gpu"),
        job(None, None, 8, state="pending", account="lm"),
        job(1, None, user="ana"),
    ]
    columns = Jobs.of(jobs)
    assert [*columns] == jobs
    assert [*columns.take(np.array([2, 0]))] == [jobs[2], jobs[0]]
    assert columns[-1] == jobs[-1]
    assert columns[1:] == jobs[1:]
    assert Jobs.of(columns) is columns
    with pytest.raises(IndexError):
        columns[3]


def test_jobs_of_one_number_are_found_in_their_order():
    columns = Jobs.of(Job(id=f"{n % 7 if n % 3 else n}", milli=n, state="") for n in range(60))
    by_id = {}
    for place, one in enumerate(columns):
        by_id.setdefault(one.id, []).append(place)
    assert sorted(columns.several()) == sorted(places for places in by_id.values() if len(places) > 1)


@pytest.mark.parametrize("mix", [jobs_module._MIX, 0])  # 0: hardly anything tells jobs apart at first sight
def test_a_job_that_says_the_same_as_one_before_is_taken_out(monkeypatch, mix):
    monkeypatch.setattr(jobs_module, "_MIX", mix)
    chance = random.Random(3)
    for n in (0, 1, 2, 30, 300):
        jobs = [
            Job(id=chance.choice(["", "7", "8", "ä"]), milli=chance.randrange(2), state=chance.choice("ab"),
                start_ns=chance.choice([None, 1]), name=chance.choice(["", "x"]))
            for _ in range(n)
        ]  # fmt: skip
        columns = Jobs.of(jobs)
        assert columns.drop_repeated() == n - len(set(jobs))
        assert [*columns] == list(dict.fromkeys(jobs))
        columns.append(job(0, 1))
        assert columns[-1] == job(0, 1)


def test_a_sum_beyond_64_bits_is_exact():
    big = [Job(id="1", milli=10**11, state="x", start_ns=0, end_ns=10**18 + n) for n in range(40)]
    ledger = account(Pool("p", "x", big, devices=10**9))
    assert ledger.held_ns == sum(10**8 * (10**18 + n) for n in range(40))


def test_jobs_that_nobody_saw_after_the_end_of_what_was_read_are_said():
    pool = Pool("p", "slurm", [job(0, None, 2, state="running"), job(0, 1)], begin_ns=0, end_ns=4 * H)
    assert not any("taken for granted" in text for text in account(pool).warnings)
    ledger = account(pool, until_ns=10 * H)
    assert hours(ledger) == {"allocated": 21.0}
    assert any("ends 6.00 h before the window" in text and "12.00 h" in text for text in ledger.warnings)


def test_a_sum_of_pools_knows_s_where_each_does():
    sized, other = Pool("p", "slurm", [job(0, 2)], devices=4), Pool("q", "slurm", [job(0, 2)])
    assert account([sized, sized]).scheduling == 0.25
    assert account([sized, other]).scheduling is None
    assert account([other, other]).scheduling is None


def test_only_runs_and_pools_have_a_ledger_and_are_not_added_to_each_other():
    run = Run("r", "native", [Process(Open(wall_ns=0, mono_ns=0), [Close(at=5)])])
    with pytest.raises(ArgumentError, match="mixed-kinds"):
        account([run, Pool("q", "slurm", [job(0, 2)])])
    with pytest.raises(ArgumentError, match=r"ledger of str.*no-ledger"):
        account(["x"])
    with pytest.raises(ArgumentError, match=r"ledger of int.*no-ledger"):
        account(7)


def test_what_it_is_is_told_in_a_line():
    run = Run("r", "native", [Process(Open(wall_ns=0, mono_ns=0), [Close(at=5)])])
    assert repr(run) == "<Run 'r' of native: 1 attempts, 1 processes, 0 rows>"
    assert repr(Pool("q", "slurm", Jobs.of([job(0, 2)]))) == "<Pool 'q' of slurm: 1 jobs, of unknown size>"
