"""Runtime losses: what they leave, when they leave nothing, and how far the sum is from the exact value."""

import numpy as np
import pytest

from headway.model import (
    CheckpointInterval,
    GoodputModel,
    ObservedFailureScenario,
    RuntimeGoodputModel,
    RuntimeGoodputScenario,
    Scenarios,
    efficiency,
    expected_ettr,
)

JOB = Scenarios.Llama2_70BRuntimeGoodput128
solve = RuntimeGoodputModel().solve


def test_without_failures_and_saves_nothing_is_lost():
    result = solve(mtbf=float("inf"), save=0)
    assert (result.runtime_goodput, result.exact_runtime_goodput, result.first_order_error) == (1.0, 1.0, 0.0)
    assert (result.outcome, result.notes) == ("ok", ())


def test_without_failures_a_save_is_never_due():
    assert solve(mtbf=float("inf"), save=60, load=0).runtime_goodput == 1.0
    assert solve(mtbf=float("inf"), save=60, load=0, interval=540).exact_runtime_goodput == pytest.approx(0.9)


def test_saves_that_cost_nothing_leave_the_recovery_alone():
    result = solve(mtbf=10_000, save=0, restart=100, load=0)
    assert result.checkpoint_share == 0.0
    assert result.recovery_share == pytest.approx(0.01)
    assert result.exact_runtime_goodput == pytest.approx(np.exp(-0.01) * (1 - 100 / 604800))


def test_a_save_longer_than_the_mtbf_makes_no_progress_and_says_what_to_do():
    result = solve(mtbf=60, save=120)
    assert (result.outcome, result.runtime_goodput) == ("no-progress", 0.0)
    assert result.runtime_loss > 1
    assert 0 < result.exact_runtime_goodput < 0.1
    assert "one save takes longer" in result.notes[0]
    assert "fewer devices" in result.notes[0]


def test_losses_that_leave_nothing_are_named():
    result = solve(mtbf="1 day", save=1, preemption_rate="100 / day", lost_work="1 h")
    assert (result.outcome, result.runtime_goodput, result.exact_runtime_goodput) == ("no-progress", 0.0, 0.0)
    assert "add to 1 or more" in result.notes[0]


def test_the_note_gives_the_exact_value_where_the_sum_is_off_by_a_point():
    assert JOB.result.notes == ()
    (note,) = JOB.at(16384).result.notes
    assert "off by 1.2 points; the exact value is 0.8288" in note
    (note,) = JOB.at([128, 16384]).result.notes
    assert "up to 1.2 points in 1 of 2" in note


def test_a_sweep_is_one_call():
    sizes = np.array([128, 1024, 16384, 10_000_000])
    result = JOB.at(sizes).result
    assert result.outcome.tolist() == ["ok", "ok", "ok", "no-progress"]
    for place, n in enumerate(sizes.tolist()):
        one = JOB.at(n).result
        for name in ("runtime_goodput", "exact_runtime_goodput", "failure_side", "mtbf_s", "interval_s"):
            assert getattr(one, name) == getattr(result, name)[place]
    assert result.mtbf.to("hour").magnitude.shape == (4,)
    assert result.interruption_interval.magnitude.shape == (4,)
    assert result.as_dict()["method"] == "young"


def test_the_result_says_how_its_interval_was_found():
    assert JOB.variant(method="daly").result.method == "daly"
    assert JOB.variant(interval="1 h").result.method == "given"
    assert JOB.variant(interval="1 h").result.interval.to("min").magnitude == pytest.approx(60)
    assert JOB.variant(interval="1 h").result.interruption_checkpoint_interval.magnitude > 0
    assert solve(mtbf=1e5, save=1).method == "daly"


def test_the_save_is_given_or_follows_from_the_size():
    assert JOB.save_time.magnitude == pytest.approx(9.8)
    assert JOB.variant(save="30 s").save_time.magnitude == pytest.approx(30)
    assert JOB.n_devices == 128


def test_the_crossover_is_the_first_size_by_steps_from_this_one():
    n = JOB.crossover(128)
    sides = JOB.at([n - 128, n]).result.failure_side
    assert sides[0] <= JOB.input_wait < sides[1]
    assert [JOB.crossover(step) for step in (100, 1000, 12800)] == [12928, 13128, 12928]
    assert JOB.at(16384).crossover(128) == 16384
    assert JOB.variant(input_wait=0.0).crossover(8) == 128
    never = RuntimeGoodputScenario(
        failures=ObservedFailureScenario(n_devices=8, n_failures=0, duration="1 day"), save=1, input_wait=0.1
    )
    assert never.crossover(8) is None


def test_the_least_and_the_greatest_numbers_give_no_surprise():
    tiny = 5e-324
    assert GoodputModel().solve(tiny, tiny, 1.0).cost_multiple == float("inf")
    assert GoodputModel().solve([tiny, 1.0], [tiny, 0.5], 1.0).cost_multiple.tolist() == [float("inf"), 2.0]
    assert expected_ettr(1e9, 1e300, 1e300, 1) == 0.0
    assert expected_ettr([1, 1e9], 1e-6, 1, 1).tolist()[1] == 0.0
    plan = CheckpointInterval(save="1 s", mtbf=float("inf"))
    assert (plan.efficiency, plan.outcome, plan.notes) == (1.0, "ok", ())
    assert plan.variant(mtbf="1 day").young > plan.variant(mtbf="1 day").daly
    assert efficiency(1e-300, 1e300, 1e-300, 1e300) == 0.0


def test_a_job_without_input_wait_is_its_ceiling():
    assert JOB.result.runtime_without_input_wait == pytest.approx(0.9809027917260171, rel=1e-12)
