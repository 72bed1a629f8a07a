"""What a measured run tells a model: its times, its failures with an interval, and what it does not tell."""

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.errors import ArgumentError
from headway.ledger.ledger import Ledger, Part, Saving, Steps
from headway.model import GoodputScenario, fit
from headway.model.checkpoint import daly, renewal
from headway.model.fitting import Fit
from headway.model.mtbf import Mtbf
from headway.model.poisson import garwood, most_when_none_seen, poisson_cdf
from headway.model.projection import project
from headway.model.renewal import split

from unit.logged import accounted
from unit.shown import S, digits, ledger

SAVING = Saving(n_saves=9, n_failures=2, interval_steps=20, save_ns=2 * S, step_ns=S)


def run(ends=("failed", "failed", "finished"), devices=4, **seconds):
    """A run of three attempts, on each device 300 s, 10 s of them each between attempts."""
    amounts = {"productive": 160, "input_wait": 40, "recovery": 20, "startup": 12, "rework": 60, "checkpoint_save": 8}
    amounts |= seconds
    held = ledger({name: value * devices for name, value in amounts.items()}, attempts=3, ranks=1, devices=devices)
    parts = tuple(
        Part(0, f"a{n}", ledger({"rework": 5, "startup": 4, "recovery": 1 if n else 0}), end)
        for n, end in enumerate(ends)
    )
    return dataclasses.replace(held, parts=parts, saving=SAVING, steps=Steps(300, 200), runs=("r1",))


# Limits of a Poisson mean at 95 %, chi-square tables: Garwood (1936); Ulm (1990).
@pytest.mark.parametrize(
    ("count", "low", "high"),
    [
        (0, 0.0, 3.6889), (1, 0.0253, 5.5716), (2, 0.2422, 7.2247), (3, 0.6187, 8.7673), (10, 4.7954, 18.3904),
        (100, 81.3640, 121.6268), (419, 379.8359, 461.1059),
    ],
)  # fmt: skip
def test_garwoods_limits_are_those_of_the_tables(count, low, high):
    assert garwood(count) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(0, 300))
def test_a_limit_is_where_the_count_is_just_improbable_enough(count):
    low, high = garwood(count)
    assert poisson_cdf(count, high) == pytest.approx(0.025, rel=1e-6)
    assert count == 0 or 1 - poisson_cdf(count - 1, low) == pytest.approx(0.025, rel=1e-6)
    assert low <= count < high


def test_none_seen_is_a_bound_and_not_infinity():
    assert most_when_none_seen() == pytest.approx(3, abs=0.005)
    seen = Mtbf.of(0, 300.0)
    assert (seen.value_s, seen.high_s, seen.n_failures) == (None, None, 0)
    assert seen.low_s == pytest.approx(100, rel=0.002)


def test_a_run_tells_its_times_on_each_device():
    told = fit(run())
    assert (told.run, told.devices, told.attempts, told.held_s) == ("r1", 4, 3, 300)
    assert (told.startup_s, told.recovery_s, told.restart_s) == (4, 10, 14)
    assert (told.save_s, told.interval_steps) == (2, 20)
    assert told.input_wait_fraction == 0.2
    assert (told.step_s, told.interval_s) == (1, 20)
    assert told.mtbf.value_s == 150
    assert told.mtbf.low_s == pytest.approx(300 / 7.2247, rel=1e-4)
    assert (told.n_preemptions, told.preemptions_per_day, told.preemption_share) == (0, 0, 0)
    assert told.restart_share == pytest.approx((20 + 12 * 2 / 3) / 300)
    assert told.missing.keys() == {"scheduling", "program"}


def test_devices_do_not_change_what_a_job_tells():
    one, many = fit(run(devices=1)), fit(run(devices=512))
    assert dataclasses.replace(many, devices=1) == one


def test_what_a_run_does_not_tell_is_none_and_says_what_would():
    told = fit(ledger({"productive": 10}, attempts=1, ranks=1, devices=1))
    assert told.recovery_s is told.save_s is told.interval_s is told.restart_s is None
    assert told.mtbf.value_s is None
    assert told.mtbf.low_s == pytest.approx(10 / 2.9957, rel=1e-4)
    for name in ("recovery_s", "save_s", "interval_steps", "mtbf", "scheduling", "program", "startup_s"):
        assert told.missing[name], name
        assert name == "mtbf" or getattr(told, name) is None
    assert "background" in fit(ledger({"productive": 1}, background_ns={"checkpoint_save": S})).missing["save_s"]


def test_preemptions_are_counted_with_what_they_took():
    told = fit(run(ends=("preempted", "finished", "finished")))
    assert told.n_preemptions == 1
    assert told.preemptions_per_day == pytest.approx(86400 / 300)
    assert told.preemption_share * 1200 == pytest.approx(5 + 4 + 1)
    assert told.recovery_s == 20  # the gap after a preemption is not held


def test_nothing_held_tells_nothing():
    with pytest.raises(ArgumentError, match=r"held no device-time.*\[nothing-held\]"):
        fit(Ledger())


def test_a_scenario_of_a_measured_run():
    scenario = GoodputScenario.from_ledger(digits(), scheduling=0.8, program=0.4)
    assert scenario.runtime == digits().runtime
    assert scenario.result.mpg == pytest.approx(0.8 * 0.4 * digits().runtime)
    with pytest.raises(ArgumentError, match="program needs a trace or a FLOP count") as caught:
        GoodputScenario.from_ledger(digits(), scheduling=0.8)
    assert caught.value.slug == "unmeasured-factor"
    with pytest.raises(ArgumentError, match="scheduling and program not measured"):
        GoodputScenario.from_ledger(digits())


TIMES = st.floats(1, 1e6)


@given(TIMES, st.floats(0, 1e5), st.floats(10, 1e8), st.floats(0, 1e5))
def test_the_split_sums_to_one_and_keeps_the_exact_form(interval, save, mtbf, restart):
    found = split(interval, save, mtbf, restart)
    parts = dataclasses.astuple(found)
    assert math.fsum(parts) == pytest.approx(1, abs=1e-12)
    assert min(parts) >= -1e-15
    assert found.kept == renewal(interval, save, mtbf, restart)


# Llama 3 405B at 16,384 GPUs, MTBI 3.093 h: what the best interval keeps, by save and restart.
@pytest.mark.parametrize(
    ("save", "kept"), [(10, (94.8, 93.3, 90.8)), (30, (91.8, 90.4, 88.0)), (60, (89.0, 87.6, 85.3))]
)
def test_known_answers_of_the_split(save, kept):
    mtbf = 54 * 86400 / 419
    for minutes, share in zip((2, 5, 10), kept, strict=True):
        assert 100 * split(daly(float(save), mtbf), save, mtbf, 60 * minutes).kept == pytest.approx(share, abs=0.05)


def test_a_run_at_another_size():
    told = fit(run())
    then = project(told, devices=8)
    assert then.mtbf.value_s == 75
    assert then.mtbf.low_s == told.mtbf.low_s / 2
    assert sum(then.shares.values()) == pytest.approx(1)
    assert then.runtime == then.shares["productive"]
    assert then.shares["input_wait"] / then.shares["productive"] == pytest.approx(0.25)
    assert then.shares["recovery"] / then.shares["startup"] == pytest.approx(10 / 4)
    assert then.runtime < project(told, devices=4).runtime
    assert then.interval_s == pytest.approx(daly(2.0, 75.0))
    held = project(told, devices=8, interval=25.0)
    assert held.interval_s == 25
    assert held.runtime < then.runtime + 1e-3


def test_options_take_the_place_of_what_was_measured():
    then = project(fit(run()), mtbf="4 h", save="30 s", restart=300, interval="20 min")
    assert (then.mtbf.value_s, then.save_s, then.restart_s, then.interval_s) == (14400, 30, 300, 1200)
    assert then.mtbf.low_s is None
    assert then.shares["productive"] == pytest.approx(0.8 * renewal(1200, 30, 14400, 300))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"save": 1, "restart": 1}, "time between failures is not known"),
        ({"mtbf": 1, "restart": 1}, "--save"),
        ({"mtbf": 1, "save": 1}, "--restart"),
        ({"mtbf": 0, "save": 1, "restart": 1}, "above zero"),
        ({"mtbf": math.inf, "save": 1, "restart": 1}, "finite"),
        ({"mtbf": 1, "save": "3 m", "restart": "1 USD"}, "restart"),
        ({"devices": 0}, "bad-size"),
        ({"devices": 1.5}, "bad-size"),
    ],
)
def test_what_is_missing_or_nonsense_is_named(given, said):
    with pytest.raises(ArgumentError, match=said):
        project(Fit(run="r1", devices=1), **given)


@pytest.mark.parametrize("wait", [0.0, 0.5, 1.0])
def test_the_wait_within_a_step_is_counted_once(tmp_path, wait):
    told = fit(accounted(tmp_path, wait=wait, mtbf=300.0))
    assert (told.step_s, told.interval_s, told.interval_steps, told.save_s) == (1, 25, 25, 4)
    assert told.input_wait_fraction == pytest.approx(wait, abs=0.01)
