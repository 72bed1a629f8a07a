"""The simulator: its known answers, what its arguments mean, and what it refuses."""

import math
import pickle

import numpy as np
import pytest

from headway.errors import ArgumentError
from headway.model import replicas, simulate
from headway.model.quantities import Quantity

MTBI_S = 54 * 86400 / 419
"""Llama 3 405B: 54 days, 419 unexpected interruptions (arXiv 2407.21783, table 5)."""
BASE = {"work": 864_000, "interval": 600, "save": 30, "mtbf": 7200, "restart": 300}


def exact(interval, save, mtbf, restart):
    """The renewal form: exponential failures, which strike saves and restarts too."""
    return interval / (mtbf * math.exp(restart / mtbf) * math.expm1((interval + save) / mtbf))


def best(save, mtbf, restart):
    """The interval of the best goodput [s], to the second."""
    return int(max(range(30, 4 * int(math.sqrt(2 * save * mtbf))), key=lambda t: exact(t, save, mtbf, restart)))


def inside(simulation, value):
    low, high = simulation.interval_95
    return low <= value <= high


@pytest.mark.parametrize(
    ("interval", "save", "mtbf", "restart"),
    [
        (300, 10, 11135, 300),
        (600, 30, 11135, 120),
        (1200, 60, 11135, 600),
        (3600, 300, 7200, 600),
        (600, 600, 600, 600),
        (60, 1, 100_000, 0),
        (7000, 300, 86_400, 600),
        (1800, 0, 3600, 60),
    ],
)
def test_its_mean_meets_the_exact_form_within_its_own_interval(interval, save, mtbf, restart):
    case = {"interval": interval, "save": save, "mtbf": mtbf, "restart": restart}
    assert inside(simulate(work=50 * interval, replicas=3000, seed=1, **case), exact(*case.values()))


def test_of_many_intervals_as_many_hold_the_exact_form_as_they_say():
    case = {"interval": 600, "save": 30, "mtbf": 7200, "restart": 300}
    hits = sum(inside(simulate(work=12_000, seed=seed, **case), exact(*case.values())) for seed in range(400))
    assert 0.92 * 400 <= hits <= 0.98 * 400


@pytest.mark.parametrize(
    ("save", "restart_min", "percent"),
    [
        *[(10, 2, 94.8), (10, 5, 93.3), (10, 10, 90.8)],
        *[(30, 2, 91.8), (30, 5, 90.4), (30, 10, 88.0)],
        *[(60, 2, 89.0), (60, 5, 87.6), (60, 10, 85.3)],
    ],
)
def test_llama_3_could_not_give_90_percent_with_blocking_saves_of_a_minute(save, restart_min, percent):
    restart = 60 * restart_min
    interval = best(save, MTBI_S, restart)
    case = {"interval": interval, "save": save, "mtbf": MTBI_S, "restart": restart}
    found = simulate(work=48 * 86400 // interval * interval, seed=1, replicas=1024, **case)
    assert inside(found, exact(*case.values()))
    assert 100 * found.runtime_goodput == pytest.approx(percent, abs=0.1)


def test_restart_startup_and_load_together_are_the_recovery_of_the_exact_form():
    case = {"interval": 600, "save": 30, "mtbf": 7200}
    found = simulate(work=600 * 500, startup=100, load=120, restart=80, seed=3, **case)
    low, high = found.interval_95
    assert low <= 1 / (1 / exact(600, 30, 7200, 300) + 100 / (600 * 500)) <= high + 1e-4
    assert list(found.mean_ledger.seconds) == [
        "productive", "startup", "checkpoint_restore", "checkpoint_save", "rework", "recovery",
    ]  # fmt: skip


def test_a_weibull_of_shape_1_is_exponential_and_its_mean_is_the_mtbf():
    for shape in (0.5, 2.0):
        found = simulate(**BASE | {"shape": shape, "save": 0, "restart": 0, "interval": 1e-3, "work": 7200 * 400})
        assert found.replicas.failures.mean() == pytest.approx(400, rel=0.02)
    assert simulate(**BASE, shape=1).runtime_goodput == simulate(**BASE).runtime_goodput


def test_failures_in_clusters_cost_less_than_evenly_spread_ones():
    clustered, plain, spread = (simulate(**BASE, shape=shape).runtime_goodput for shape in (0.6, 1, 3))
    assert clustered > plain > spread


def test_a_replayed_list_in_order_goes_round_from_a_random_place():
    found = simulate(work=40, interval=10, save=0, replay=[19, 12, 38], replay_order="in-order", replicas=200)
    # From 19: 10 kept, 10 kept, and 20 to do. From 12: 10 kept, and 30 to do. From 38: 30 kept, and 10 to do.
    ends = set(zip(found.replicas.held_ns.tolist(), found.replicas.failures.tolist(), strict=True))
    assert ends == {(51 * 10**9, 2), (42 * 10**9, 1), (48 * 10**9, 1)}


def test_a_replayed_list_of_exponential_times_gives_what_exponential_times_give():
    times = np.random.default_rng(0).exponential(7200, 20_000)
    case = {name: value for name, value in BASE.items() if name != "mtbf"}
    found = simulate(**case, replay=times)
    assert found.runtime_goodput == pytest.approx(exact(600, 30, times.mean(), 300), abs=0.002)


def test_background_saves_cost_what_they_slow_down_and_lose_what_is_not_durable_yet():
    blocking, background = simulate(**BASE), simulate(**BASE, background=True)
    slowed = simulate(**BASE, background=True, slowdown=0.5)
    assert blocking.runtime_goodput < slowed.runtime_goodput < background.runtime_goodput
    calm = simulate(**BASE | {"mtbf": math.inf, "work": 6000}, background=True, slowdown=0.5, replicas=1)
    assert calm.ledger(0).seconds == {"productive": 6000, "checkpoint_save": 9 * 15 + 30}


def test_an_interval_is_never_shorter_than_a_background_save():
    short = simulate(**BASE | {"interval": 1, "save": 300}, background=True)
    assert short.runtime_goodput == simulate(**BASE | {"interval": 300, "save": 300}, background=True).runtime_goodput


def test_two_levels_lie_between_all_saves_local_and_all_durable():
    levels = {"durable_every": 5, "durable_save": 120}
    kept, some, lost = (simulate(**BASE, **levels, local_loss=p).runtime_goodput for p in (0, 0.3, 1))
    durable = simulate(**BASE | {"interval": 3000, "save": 120 + 4 * 30}).runtime_goodput
    assert kept > some > lost
    assert lost == pytest.approx(durable, abs=0.005)
    one = simulate(**BASE, durable_every=1, durable_save=30, local_loss=0.5)
    assert one.runtime_goodput == simulate(**BASE).runtime_goodput


def test_spares_are_taken_at_once_and_without_one_the_job_waits_for_the_repair():
    goodput = [simulate(**BASE, spares=n, repair="6 h").runtime_goodput for n in (0, 1, 3, 20)]
    assert goodput == sorted(goodput)
    assert goodput[-1] == simulate(**BASE).runtime_goodput
    none = simulate(**BASE, spares=0, repair="6 h", replicas=1).ledger(0)
    plain = simulate(**BASE, replicas=1).ledger(0)
    assert none.seconds["recovery"] - plain.seconds["recovery"] == pytest.approx(6 * 3600 * plain.saving.n_failures)


def test_a_notice_of_a_save_keeps_the_work_and_gaps_are_released():
    case = BASE | {"mtbf": math.inf, "preemption": "2 h", "gap": "1 h"}
    noticed, short, none = (simulate(**case, notice=notice) for notice in (30, 29, 0))
    assert noticed.runtime_goodput > short.runtime_goodput == none.runtime_goodput
    assert "rework" not in noticed.replicas.amounts_ns
    ledger = noticed.ledger(0, devices=8)
    assert ledger.released_ns == 8 * 3600 * 10**9 * (ledger.attempts - 1)
    assert not noticed.replicas.failures.any()


def test_a_job_that_cannot_get_on_is_stopped_and_says_what_to_do():
    found = simulate(**BASE | {"mtbf": "30 s"}, replicas=50)
    assert (found.outcome, found.runtime_goodput, found.replicas.finished.any()) == ("no-progress", 0, False)
    assert found.advice.startswith("50 of 50 replicas did not finish: failures leave them no time")
    assert found.ledger(0).warnings == ("the job did not finish",)
    assert found.mean_ledger.warnings == (found.advice,)


def test_a_limit_stops_what_gets_on():
    found = simulate(**BASE, limit="1 day", replicas=50)
    assert found.outcome == "unfinished"
    assert "within 24.00 h. Give a longer limit" in found.advice
    assert (found.replicas.held_ns >= 86_400 * 10**9).all()
    assert 0.7 < found.runtime_goodput < 0.9


def test_the_loop_has_an_end_in_any_case(monkeypatch):
    monkeypatch.setattr(replicas, "MOST_STRIKES", 3)
    found = simulate(**BASE, replicas=50)
    assert found.outcome == "unfinished"
    assert (found.replicas.failures == 3).all()


def test_units_are_texts_quantities_or_seconds():
    texts = simulate(work="10 day", interval="10 min", save="30 s", mtbf="2 h", restart="5 min", replicas=3)
    quantities = {name: Quantity(value, "second") for name, value in BASE.items()}
    for other in (simulate(**BASE, replicas=3), simulate(**quantities, replicas=3)):
        assert (texts.replicas.held_ns == other.replicas.held_ns).all()
    listed = simulate(work=60, interval=10, save=0, replay=["15 s", "0.5 min"], replicas=1)
    assert (
        listed.replicas.held_ns == simulate(work=60, interval=10, save=0, replay=[15, 30]).replicas.held_ns[0]
    ).all()


def test_a_replica_has_a_ledger_and_the_mean_has_one():
    found = simulate(**BASE)
    ledger, mean = found.ledger(7, devices=4), found.mean_ledger
    assert ledger.runtime == found.goodput[7]
    assert (ledger.devices, ledger.saving.n_failures) == (4, found.replicas.failures[7])
    assert mean.runtime == pytest.approx(found.runtime_goodput, rel=1e-12)
    assert found.quantile(0) == found.goodput.min() <= found.quantile(0.05) <= found.quantile(0.5)
    assert found.job_years == pytest.approx(found.replicas.held_ns.astype(float).sum() / 1e9 / 86400 / 365.25)


def test_one_replica_has_no_interval():
    assert simulate(**BASE, replicas=1).interval_95 is None


def test_large_sums_are_exact():
    found = simulate(work="10 year", interval="1 day", save="1 h", mtbf="10 day", replicas=100)
    want = sum(int(ns) for ns in found.replicas.amounts_ns["productive"])
    assert want > 1 << 63
    assert found.runtime_goodput == want / sum(int(ns) for ns in found.replicas.held_ns)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"work": 0}, "work = 0.0 s: it must be at least 1 ns"),
        ({"work": math.inf}, "work = inf s"),
        ({"work": "11 year"}, "work = 347133600.0 s: it must be 0 to 10 years"),
        ({"interval": 0}, "interval = 0.0 s"),
        ({"save": -1}, "save = -1.0 s"),
        ({"save": [1, 2]}, "save = an array"),
        ({"save": math.nan}, "save = nan s"),
        ({"mtbf": 0}, "mtbf = 0.0 s"),
        ({"mtbf": [1, 2]}, "mtbf = an array"),
        ({"mtbf": None}, "failures: they come from mtbf or from replay"),
        ({"replay": [1]}, "failures: they come from mtbf or from replay"),
        ({"mtbf": None, "replay": []}, "replay of 0 times"),
        ({"mtbf": None, "replay": [1, 0]}, "replay of 2 times"),
        ({"mtbf": None, "replay": [1], "shape": 2}, "shape = 2 with replay"),
        ({"mtbf": None, "replay": [1], "replay_order": "sorted"}, "replay_order = 'sorted'"),
        ({"shape": 0}, "shape = 0"),
        ({"slowdown": 0.1}, "slowdown = 0.1 of a blocking save"),
        ({"slowdown": 1, "background": True}, "slowdown = 1: it must be in [0, 1)"),
        ({"durable_every": 2}, "two levels of saves"),
        ({"durable_every": 0, "durable_save": 1, "local_loss": 0}, "durable_every = 0"),
        ({"durable_every": 2, "durable_save": 1, "local_loss": 2}, "local_loss = 2: it must be in [0, 1]"),
        ({"durable_every": 2, "durable_save": 1, "local_loss": 0, "background": True}, "two levels of saves in the"),
        ({"spares": 1}, "repairs"),
        ({"repair": 1}, "repairs"),
        ({"spares": 1001, "repair": 1}, "spares = 1001: it must be a whole number from 0 to 1000"),
        ({"notice": 1}, "notice or gap without preemption"),
        ({"preemption": 0}, "preemption = 0.0 s"),
        ({"replicas": 0}, "replicas = 0: it must be a whole number from 1 on"),
        ({"replicas": 1.5}, "replicas = 1.5"),
        ({"seed": -1}, "seed = -1"),
        (
            {"interval": 1e-6, "save": 3600},
            "864000000001 saves: with them the job takes 1.97e+08 years without a failure",
        ),
    ],
)
def test_nonsense_is_refused(changes, found):
    with pytest.raises(ArgumentError) as caught:
        simulate(**BASE | changes)
    assert f"Cannot simulate {found}" in str(caught.value)
    assert str(caught.value).endswith("[bad-simulation]")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_there_is_no_such_replica_or_quantile():
    simulation = simulate(**BASE, replicas=2)
    with pytest.raises(ArgumentError, match="Cannot show replica 2: there are 2") as caught:
        simulation.ledger(2)
    assert caught.value.slug == "no-such-replica"
    with pytest.raises(ArgumentError, match="quantile 5: it is outside"):
        simulation.quantile(5)
    with pytest.raises(ArgumentError, match="devices = 0"):
        simulation.ledger(0, devices=0)
