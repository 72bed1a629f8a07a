"""Laws every ledger keeps, whatever the history."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.ledger.account import account
from headway.ledger.history import Process, Rows, Run
from headway.ledger.ledger import Steps

from property.histories import runs
from property.slow_ledger import read, slow_account


@given(runs(), st.none() | st.integers(1000, 1400))
@settings(max_examples=600, deadline=None)
def test_it_counts_every_nanosecond_as_the_slow_ledger_does(run, until):
    ends = [p.open.wall_ns + 100 for p in run.processes]
    until_ns = None if until is None else max(until, *ends)
    ledger = account(run, until_ns=until_ns)
    amounts, held, released, executed, retained = slow_account(run.processes, until_ns)
    assert +Counter(ledger.amounts_ns) == +Counter(amounts)  # a bubble of 0 is there: it was measured
    assert (ledger.held_ns, ledger.released_ns) == (held, released)
    assert (ledger.steps.executed, ledger.steps.retained) == (executed, retained)


@given(runs())
@settings(max_examples=200, deadline=None)
def test_each_rank_sums_to_what_it_held(run):
    ledger = account(run)
    ranks = ledger.by("rank")
    assert len(ranks) == len({p.open.rank for p in run.processes})
    for part in ranks.values():
        assert sum(part.amounts_ns.values()) == part.held_ns
    assert sum(part.held_ns for part in ranks.values()) == ledger.held_ns
    assert sum(part.held_ns for part in ledger.by("attempt").values()) == ledger.held_ns
    steps = ledger.steps
    assert steps.executed == steps.retained + steps.reworked + steps.rolled_back


@given(runs(), st.integers(1, 70))
@settings(max_examples=200, deadline=None)
def test_windows_add_to_the_whole(run, every_ns):
    ledger = account(run)
    windows = list(ledger.windows(every_ns=every_ns))
    total = sum(windows)
    if ledger.start_ns == ledger.end_ns:
        assert windows == []
        return
    assert dict(total.amounts_ns) == dict(ledger.amounts_ns)
    assert (total.held_ns, total.released_ns) == (ledger.held_ns, ledger.released_ns)
    assert dict(total.waits_ns) == dict(ledger.waits_ns)
    if all(read(process)["end"] > process.open.mono_ns for process in run.processes):  # no length may lie on an edge
        assert total.steps == ledger.steps
        assert sum((part.ledger.steps for part in ledger.parts), Steps()) == ledger.steps


@given(runs(), st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_order_and_duplicates_change_nothing(run, random):
    def shuffled(process):
        events = [*process.events, *random.choices(process.events, k=2)] if process.events else []
        random.shuffle(events)
        order = list(range(len(process.rows)))
        order += random.choices(order, k=2) if order else []
        random.shuffle(order)
        which = np.array(order, np.int64)
        rows = process.rows
        waits = {phase: column[which] for phase, column in rows.waits.items()}
        return Process(process.open, events, Rows(rows.step[which], rows.start[which], rows.end[which], waits))

    again = [shuffled(process) for process in run.processes]
    random.shuffle(again)
    before, after = account(run), account(Run("again", "native", again))
    assert dict(before.amounts_ns) == dict(after.amounts_ns)
    assert before.steps == after.steps


@given(runs(), runs())
@settings(max_examples=50, deadline=None)
def test_ledgers_add(one, other):
    both = account(one) + account(other)
    assert both.held_ns == account(one).held_ns + account(other).held_ns
    assert sum(both.amounts_ns.values()) == both.held_ns
    if both.held_ns:
        assert sum(both.fractions.values()) == pytest.approx(1)
