"""Levers: what each is worth, in which order, and never more than the loss it takes from."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import ArgumentError
from headway.ledger.categories import BY_NAME
from headway.ledger.ledger import Ledger, Saving, Steps
from headway.model import GoodputScenario, Scenarios, fit, levers
from headway.model.checkpoint import daly
from headway.model.fitting import Fit
from headway.model.lever import price_of, together
from headway.model.mtbf import Mtbf
from headway.model.projection import project
from headway.model.told import tell
from headway.units import Price

from unit.logged import accounted
from unit.shown import S, digits, ledger, pool

HELD = ledger(
    {"productive": 600, "rework": 280, "checkpoint_save": 20, "recovery": 60, "startup": 40},
    attempts=5, ranks=1, devices=2, saving=Saving(9, 4, 50, 10 * S // 50, S // 5), steps=Steps(4000, 3000, 0, 1000),
)  # fmt: skip


def named(source, **options):
    return {lever.name: lever for lever in levers(source, **options)}


def test_a_point_of_goodput_is_worth_what_the_devices_cost():
    # 512 GPUs at 11.2775 USD/h for 30 days: 90 to 97 % is 291,014 USD.
    told = Fit(devices=512, shares={"productive": 0.9, "input_wait": 0.07, "startup": 0.03})
    for price in (11.2775, "11.2775 USD/hour", Price(11.2775)):
        (lever,) = levers(told, price=price)
        assert (lever.name, lever.gain, lever.up_to) == ("input_wait", 0.07, False)
        assert lever.device_hours == pytest.approx(0.07 * 512 * 720)
        assert lever.money == pytest.approx(291_013.63, abs=0.01)
    assert levers(told, month="60 d")[0].device_hours == pytest.approx(2 * 0.07 * 512 * 720)
    assert levers(told, devices=1)[0].device_hours == pytest.approx(0.07 * 720)
    assert levers(Fit(shares=told.shares), price=1)[0].money is None


def test_a_quantity_is_a_price_too():
    from headway.model.quantities import Quantity

    told = Fit(devices=1, shares={"input_wait": 0.5})
    assert levers(told, price=Quantity(2, "USD/hour"))[0].money == pytest.approx(720)
    assert levers(told, month=Quantity(1, "day"))[0].device_hours == pytest.approx(12)


def test_the_levers_of_a_measured_run_best_first():
    found = levers(HELD)
    assert [lever.gain for lever in found] == sorted((lever.gain for lever in found), reverse=True)
    by_name = {lever.name: lever for lever in found}
    assert by_name.keys() == {"save_interval", "restart", "restart_at_once", "background_saves"}
    saves = by_name["save_interval"]
    assert saves.text == "save more often: every 35 steps, not 50"
    assert saves.where.startswith('headway model interval --save "200 ms"')
    told = fit(HELD)
    now = project(told, interval=told.interval_s).runtime
    assert saves.gain == pytest.approx(project(told, interval=0.2 * 35).runtime - now, rel=0.02)
    assert by_name["restart_at_once"].loss == pytest.approx((60 + 40 * 4 / 5) / 1000)
    assert by_name["restart_at_once"].up_to
    halved = project(told, interval=told.interval_s, restart=told.restart_s / 2).runtime
    assert by_name["restart"].gain == pytest.approx(halved - now, rel=0.02)
    assert not by_name["restart"].up_to
    assert by_name["background_saves"].gain == pytest.approx(0.02)


def test_few_failures_leave_a_gain_open():
    lever = named(HELD)["restart_at_once"]
    assert 0 < lever.low < lever.gain < lever.high < 1
    more = dataclasses.replace(fit(HELD), mtbf=Mtbf.of(400, 50_000.0))
    narrow = named(more)["restart_at_once"]
    assert lever.low < narrow.low < narrow.gain < narrow.high < lever.high
    given = dataclasses.replace(fit(HELD), mtbf=Mtbf(125.0))
    assert named(given)["restart_at_once"].low is None
    assert named(HELD)["background_saves"].low is None


def test_what_was_not_recorded_has_no_lever():
    assert levers(ledger({"productive": 10}, attempts=1, devices=1)) == []
    told = named(digits())
    assert "preemptions" not in told
    assert told["input_wait"].gain == pytest.approx(4.9 / 41.2)
    assert told["compile_cache"].up_to


def test_a_pool_has_the_levers_of_every_factor():
    found = named(pool())
    assert found["scheduling"].losses == ("S",)
    assert found["scheduling"].gain == pytest.approx((1 - 0.8) * pool().runtime * pool().program)
    assert found["program"].gain == pytest.approx(0.8 * pool().runtime * (1 - pool().program))
    assert "runtime" not in found


def test_a_scenario_goes_to_its_ceilings_and_without_one_to_a_bound():
    scenario = Scenarios.Llama2_70BSharedPoolGoodput128
    found = named(scenario)
    for name, letter in (("scheduling", "S"), ("runtime", "R"), ("program", "P")):
        assert found[name].gain == pytest.approx(scenario.result.ceiling_gain[letter])
        assert not found[name].up_to
    free = named(scenario.variant(ceilings={}))
    assert free["scheduling"].gain == pytest.approx(scenario.result.full_scheduling_gain)
    assert free["program"].gain == pytest.approx(scenario.result.program_share)
    assert all(lever.up_to for lever in free.values())


def test_a_modelled_run_has_the_levers_of_a_measured_one():
    found = named(Scenarios.Llama2_70BRuntimeGoodput128, price=2)
    assert found["input_wait"].gain == pytest.approx(1 / 13)
    assert found["preemptions"].losses == ("preemption",)
    assert found["input_wait"].device_hours == pytest.approx(128 * 720 / 13)
    job = Scenarios.Llama2_70BRuntimeGoodput128.variant(interval="10 h", save="60 s")
    assert named(job)["save_interval"].text.startswith("save more often: every 3.")


@pytest.mark.parametrize("source", [None, 3, "run", Scenarios.SharedPoolSchedulingSnapshot])
def test_nonsense_has_no_levers(source):
    with pytest.raises(ArgumentError, match="no-levers"):
        levers(source)


def test_what_is_not_known_leaves_a_bound():
    told = dataclasses.replace(fit(HELD), save_s=None)
    found = named(told)
    assert "save_interval" not in found
    assert found["restart"].gain == pytest.approx((60 + 40 * 4 / 5) / 2000)
    assert found["restart"].up_to
    known = named(dataclasses.replace(fit(HELD), recovery_s=None))["save_interval"]
    assert known.gain == pytest.approx(0.28 * (1 - 35 / 50) - 0.02 * (50 / 35 - 1))
    assert known.up_to


def test_a_gain_is_what_the_exact_form_returns(tmp_path):
    told = fit(accounted(tmp_path, 9, devices=4))
    slow = {"mtbf": 3600, "save": 30, "restart": 3600}
    for facts in (slow, slow | {"restart": 60, "interval": 1}):
        now = project(told, **facts)
        found = named(now)
        best = project(told, **(facts | {"interval": daly(30.0, 3600.0)})).runtime
        half = project(told, **(facts | {"interval": now.interval_s, "restart": facts["restart"] / 2})).runtime
        assert found["restart"].gain == pytest.approx(half - now.runtime)
        if "interval" in facts:
            assert found["save_interval"].gain == pytest.approx(best - now.runtime, abs=0.001)
            assert found["save_interval"].gain > 0.6
    assert found["save_interval"].gain <= found["save_interval"].loss


def test_where_the_first_order_fails_the_exact_form_divides_the_time():
    for size in (16384, 131072, 524288, 10**8):
        scenario = Scenarios.Llama2_70BRuntimeGoodput128.at(size)
        told = tell(scenario)
        assert math.fsum(told.shares.values()) == pytest.approx(1)
        assert told.runtime == pytest.approx(scenario.result.exact_runtime_goodput)
        found = levers(scenario)
        assert found
        assert all(0 < lever.gain <= lever.loss <= 1 for lever in found)
        assert together(found) <= 1 - told.runtime + 1e-9
    assert {lever.outcome for lever in found} == {"no-progress"}


def test_a_run_that_fails_before_its_save_is_written_makes_no_progress(tmp_path):
    told = fit(accounted(tmp_path, 9))
    assert {lever.outcome for lever in levers(told)} == {told.outcome} == {"ok"}
    then = project(told, mtbf=20, save=60)
    assert then.outcome == "no-progress"
    found = named(then)
    assert found["background_saves"].text.startswith("save far faster")
    assert found["background_saves"].outcome == "no-progress"
    assert all(lever.gain <= lever.loss <= 1 for lever in found.values())
    assert "restart_at_once" not in found or found["restart_at_once"].gain < 0.02
    assert project(told, mtbf=20, save=60).outcome == "no-progress"


def test_a_scenario_has_its_own_price():
    scenario = GoodputScenario(scheduling=0.9, runtime=0.9, program=0.7, device_hour_rate="4 EUR/hour")
    assert levers(scenario, devices=1)[0].money == pytest.approx(4 * levers(scenario, devices=1, price=1)[0].money)
    assert price_of(scenario, given=False) == Price(4.0, "EUR")
    assert levers(Scenarios.Llama3_405BGoodput16K, devices=1)[0].money is None


NUMBERS = (math.nan, math.inf, -math.inf, -1, True)


def test_a_quantity_in_another_currency_is_a_price():
    from headway.model.quantities import Quantity

    assert price_of(Quantity(2, "EUR/hour")) == Price(2.0, "EUR")
    with pytest.raises(ArgumentError):
        price_of(Quantity(2, "hour"))


@pytest.mark.parametrize(
    "options",
    [
        {"price": []}, {"price": "two"}, {"month": "soon"}, {"month": None}, {"month": 0}, {"devices": 0},
        {"devices": 1.5}, {"devices": "8"}, {"price": Price(-1.0)}, {"price": Price(math.nan)},
        *({name: number} for name in ("price", "month", "devices") for number in NUMBERS),
    ],
)  # fmt: skip
def test_a_price_or_a_month_that_cannot_be_read_is_an_error(options):
    with pytest.raises(ArgumentError):
        levers(HELD, **options)


AMOUNTS = st.dictionaries(st.sampled_from([*BY_NAME, "custom:x"]), st.integers(1, 10**12), min_size=1)
SAVINGS = st.builds(
    Saving, n_saves=st.integers(0, 9), n_failures=st.integers(0, 5), interval_steps=st.none() | st.integers(1, 1000),
    save_ns=st.none() | st.integers(0, 10**11), step_ns=st.none() | st.integers(1, 10**11),
)  # fmt: skip


@given(AMOUNTS, SAVINGS, st.integers(1, 9), st.integers(1, 1000))
def test_no_lever_is_larger_than_its_loss_nor_all_than_all_losses(amounts, saving, attempts, devices):
    held = sum(ns for name, ns in amounts.items() if BY_NAME.get(name, BY_NAME["startup"]).factor != "S")
    if not held:
        return
    whole = sum(amounts.values())
    shown = Ledger(amounts, held_ns=held, offered_ns=whole, attempts=attempts, ranks=1, devices=devices, saving=saving)
    found = levers(shown, price=1)
    for lever in found:
        assert 0 < lever.gain <= lever.loss * (1 + 1e-9)
        assert lever.loss <= 1 + 1e-9
        for limit in (lever.low, lever.high):
            assert limit is None or (math.isfinite(limit) and limit <= 1)
    assert together(found) <= 1 - amounts.get("productive", 0) / whole + 1e-9


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(0.01, 1))
def test_the_levers_of_factors_are_within_their_shares(scheduling, runtime, program):
    scenario = GoodputScenario(scheduling=scheduling, runtime=runtime, program=program)
    for lever in levers(scenario):
        share = getattr(scenario.result, f"{lever.name}_share")
        assert lever.loss == pytest.approx(share, abs=1e-12)
        assert 0 < lever.gain <= share + 1e-12


@given(st.floats(1e3, 1e7), st.floats(0.1, 600), st.floats(1, 3600))
def test_saving_at_the_best_interval_there_is_no_better_one(mtbf, save, restart):
    then = project(Fit(devices=1, shares={"productive": 1.0}), mtbf=mtbf, save=save, restart=restart)
    assert "save_interval" not in named(then)
    assert together(levers(then)) <= 1 - then.runtime + 1e-9
