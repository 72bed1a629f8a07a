"""Laws of the simulator."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import ArgumentError
from headway.model import simulate
from headway.model.replicas import Job, run
from headway.model.savingplan import Background, Blocking, TwoLevel
from headway.model.simulation import Replicas

from property.slow_simulator import Listed, Slow

REPLICAS = 3
small = st.integers(0, 6)


@st.composite
def plans(draw):
    interval, save = draw(st.integers(1, 8)), draw(small)
    kind = draw(st.sampled_from(["blocking", "background", "levels"]))
    if kind == "blocking":
        return Blocking(interval, save)
    if kind == "levels":
        return TwoLevel(interval, save, draw(st.integers(0, 9)), draw(st.integers(1, 4)))
    taken = draw(st.integers(0, save))
    return Background(max(interval, save - taken), save, taken)


def strikes(least):
    rows = st.lists(st.integers(least, 60), min_size=12, max_size=12)
    return st.lists(rows, min_size=REPLICAS, max_size=REPLICAS).map(np.array)


@st.composite
def jobs(draw):
    preempted = draw(st.booleans())
    return Job(
        work=draw(st.integers(1, 60)),
        plan=draw(plans()),
        failures=Listed(draw(strikes(1))),
        preemptions=Listed(draw(strikes(1))) if preempted else None,
        restart=draw(small),
        startup=draw(small),
        load=draw(small),
        notice=preempted and draw(st.booleans()),
        gap=draw(small) if preempted else 0,
        local_loss=draw(st.sampled_from([0.0, 1.0])),
        spares=draw(st.none() | st.integers(0, 3)),
        repair=draw(st.integers(1, 80)),
        limit=draw(st.sampled_from([1 << 60, 150])),
    )


@given(jobs())
@settings(max_examples=500, deadline=None)
def test_it_books_every_nanosecond_as_the_slow_simulator_does(job):
    got = Replicas.of(run(job, REPLICAS, 0), job.work)
    for n in range(REPLICAS):
        preemptions = [] if job.preemptions is None else job.preemptions.table[n].tolist()
        want = Slow(job, job.failures.table[n].tolist(), preemptions).run()
        amounts = {name: int(ns[n]) for name, ns in got.amounts_ns.items() if ns[n]}
        assert amounts == {name: ns for name, ns in want.books.items() if ns}
        assert sum(amounts.values()) == got.held_ns[n] == want.held
        assert (got.released_ns[n], got.finished[n]) == (want.released, want.finished)
        assert (got.failures[n], got.preemptions[n]) == (want.n_failures, want.n_preemptions)


@st.composite
def cases(draw):
    seconds = st.floats(0, 2000)
    case = {
        "work": draw(st.floats(1, 50_000)),
        "interval": draw(st.floats(10, 5000)),
        "save": draw(seconds),
        "restart": draw(seconds),
        "startup": draw(seconds),
        "load": draw(seconds),
        "seed": draw(st.integers(0, 1 << 60)),
        "replicas": draw(st.integers(1, 40)),
        "limit": 200_000,
    }
    source = draw(st.sampled_from(["exponential", "weibull", "resample", "in-order"]))
    if source in {"exponential", "weibull"}:
        case |= {"mtbf": draw(st.floats(100, 1e6)), "shape": 1 if source == "exponential" else draw(st.floats(0.4, 4))}
    else:
        times = draw(st.lists(st.floats(50, 1e5), min_size=1, max_size=9))
        case |= {"replay": times, "replay_order": source}
    if draw(st.booleans()):
        case |= {"durable_every": draw(st.integers(1, 6)), "durable_save": draw(seconds)}
        case |= {"local_loss": draw(st.floats(0, 1))}
    elif draw(st.booleans()):
        case |= {"background": True, "slowdown": draw(st.floats(0, 0.9))}
    if draw(st.booleans()):
        case |= {"spares": draw(st.integers(0, 4)), "repair": draw(st.floats(1, 20_000))}
    if draw(st.booleans()):
        case |= {"preemption": draw(st.floats(500, 1e6)), "notice": draw(seconds), "gap": draw(seconds)}
    return case


def arrays(simulation):
    found = simulation.replicas
    rest = {name: getattr(found, name) for name in ("held_ns", "released_ns", "failures", "preemptions", "finished")}
    return {**found.amounts_ns, **rest}


@given(cases())
@settings(max_examples=200, deadline=None)
def test_each_replica_sums_to_what_it_held(case):
    simulation = simulate(**case)
    whole = sum(simulation.replicas.amounts_ns.values())
    assert (whole == simulation.replicas.held_ns).all()
    assert all((ns >= 0).all() for ns in simulation.replicas.amounts_ns.values())
    ledgers = [simulation.ledger(n) for n in range(case["replicas"])]
    assert math.isclose(sum(ledgers).runtime, simulation.runtime_goodput, rel_tol=1e-12, abs_tol=1e-15)
    assert (
        abs(simulation.mean_ledger.held_ns * case["replicas"] - simulation.replicas.held_ns.sum()) <= case["replicas"]
    )
    done = simulation.replicas.finished
    assert (simulation.replicas.amounts_ns["productive"][done] == simulation.job.work).all()


@given(cases())
@settings(max_examples=100, deadline=None)
def test_the_same_seed_gives_the_same_and_more_replicas_begin_with_the_same(case):
    first, again, more = simulate(**case), simulate(**case), simulate(**case | {"replicas": case["replicas"] + 7})
    n = case["replicas"]
    for name, values in arrays(first).items():
        assert np.array_equal(values, arrays(again)[name])
        assert np.array_equal(values, arrays(more)[name][:n])


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(0, 1000), st.booleans())
def test_no_failures_leave_the_saves_alone(work, interval, save, background):
    found = simulate(
        work=work, interval=interval, save=save, mtbf=math.inf, restart=99, background=background, replicas=2
    )
    n_saves = 1 if background else -(-work // interval)
    waits = found.replicas.amounts_ns.get("checkpoint_save", np.zeros(2))
    if not background:
        assert (waits == n_saves * save * 10**9).all()
    assert found.outcome == "finished"
    assert (found.runtime_goodput == 1) == (save == 0)


@given(st.integers(0, 1000), st.floats(600, 5000), st.floats(10, 300), st.floats(0, 600))
@settings(max_examples=40, deadline=None)
def test_goodput_falls_as_failures_come_oftener(seed, interval, save, restart):
    """On the same random numbers, and of the mean: one replica may gain when a failure strikes just after a save."""
    case = {"work": 20 * interval, "interval": interval, "save": save, "restart": restart, "seed": seed}
    found = [simulate(**case, mtbf=mtbf, replicas=400) for mtbf in (4_000, 16_000, 64_000, math.inf)]
    for worse, better in pairwise(found):
        assert worse.runtime_goodput < better.runtime_goodput + (better.interval_95[1] - better.interval_95[0])


@given(st.dictionaries(st.sampled_from(["work", "interval", "save", "restart", "mtbf"]), st.floats(), min_size=1))
def test_any_number_is_simulated_or_refused(changes):
    case = {"work": 3600.0, "interval": 600.0, "save": 30.0, "mtbf": 7200.0, "replicas": 2, "limit": 7200.0} | changes
    try:
        found = simulate(**case)
    except ArgumentError:
        return
    assert found.outcome in {"finished", "no-progress", "unfinished"}
    assert (found.advice is None) == (found.outcome == "finished")
    assert found.ledger(1).runtime == pytest.approx(found.goodput[1])
