"""What the model takes, what it refuses, and what it says then."""

import copy
import pickle
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pint
import pytest

import headway.model
from headway.errors import ArgumentError
from headway.model import (
    CheckpointInterval,
    GoodputModel,
    GoodputScenario,
    RuntimeGoodputModel,
    RuntimeGoodputScenario,
    Scenarios,
    SchedulingSnapshotScenario,
    SeriesFailureScenario,
    efficiency,
    expected_ettr,
    optimal_interval,
    peak_flops,
)
from headway.model.quantities import magnitude, quantity

solve = GoodputModel().solve
JOB = Scenarios.Llama2_70BRuntimeGoodput128
HALF = GoodputScenario(scheduling=0.5, runtime=0.5, program=0.5)


def refused(slug, *parts):
    return pytest.raises(ArgumentError, match=rf"(?s){'.*'.join(parts)}.*\[{slug}\]$")


@pytest.mark.parametrize("bad", [0, 0.0, -0.1, 1.0000001, float("nan"), float("inf"), [0.5, 0.0], "120 %"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_factor_is_above_0_and_at_most_1(bad, place):
    given = [0.9, 0.9, 0.9]
    given[place] = bad
    with refused("bad-factor", ("scheduling", "runtime", "program")[place], "above 0 and at most 1"):
        solve(*given)


def test_the_first_bad_value_of_an_array_is_named_with_its_place():
    with refused("bad-factor", r"runtime = 1.5 \(at 1, 0\)"):
        solve(0.9, np.array([[0.5, 0.5], [1.5, 2.5]]), 0.9)


@pytest.mark.parametrize("bad", [True, np.True_, None, "fast", "", "0.5 s", "9" * 90, object(), 1j, [True], ["x"], {}])
def test_what_is_no_number_is_no_factor(bad):
    with pytest.raises(ArgumentError, match=r"missing-factor|bad-quantity"):
        solve(bad, 0.9, 0.9)


@pytest.mark.parametrize(
    "same", [0.5, Fraction(1, 2), np.float32(0.5), "0.5", "50 %", pint.UnitRegistry()("50 percent")]
)
def test_a_factor_may_be_written_in_many_ways(same):
    assert solve(same, 0.9, 0.9).mpg == solve(0.5, 0.9, 0.9).mpg


@pytest.mark.parametrize(
    ("ceilings", "slug"),
    [
        ({"S": 0.8}, "bad-ceiling"), ({"P": 1.1}, "bad-ceiling"), ({"R": float("nan")}, "bad-ceiling"),
        ({"Z": 0.95}, "unknown-ceiling"), ({"runtime": 0.95}, "unknown-ceiling"), ({"R": [0.95, 0.5]}, "bad-ceiling"),
    ],
)  # fmt: skip
def test_a_ceiling_is_of_a_factor_and_from_it_to_1(ceilings, slug):
    with refused(slug):
        solve(0.9, 0.9, 0.9, ceilings)
    with refused(slug):
        GoodputScenario(scheduling=0.9, runtime=0.9, program=0.9, ceilings=ceilings)


def test_a_ceiling_may_be_its_factor():
    assert solve(0.9, 0.9, 0.9, {"S": 0.9}).ceiling_gain == {"S": 0.0}


@pytest.mark.parametrize("rate", [-1, "2 hour", "USD/hour", float("nan"), float("inf"), "2 USD"])
def test_a_price_is_money_for_time(rate):
    with pytest.raises(ArgumentError, match="device_hour_rate"):
        solve(0.9, 0.9, 0.9, None, rate)


def test_a_price_keeps_its_currency():
    assert f"{solve(0.5, 1.0, 1.0, None, '2 EUR/hour').useful_rate}" == "4.0 EUR / hour"
    assert f"{solve(0.5, 1.0, 1.0, None, '$48 per day').useful_rate}" == "4.0 USD / hour"
    assert solve(0.5, 1.0, 1.0, None, quantity(2.0, "GBP/hour")).useful_rate == quantity(4.0, "GBP/hour")
    assert HALF.variant(device_hour_rate="3 USD/hour").device_hour_rate == quantity(3.0, "USD/hour")
    assert solve(0.5, 1.0, 1.0).device_hour_rate is None


@pytest.mark.parametrize(
    "text",
    ["9**9**9 s", "9**(9**9) s", "9^(99*99*99*99) s", "9⁹⁹⁹⁹⁹⁹⁹⁹⁹ s", "s" * 100,
     "(3 s", "3 ) s", "3 banana", "3 kg", "::",
     "5 USD", "__import__('os')", "3 s; 4 s", "1/0 s", "3 degC"],
)  # fmt: skip
def test_odd_texts_are_refused_at_once(text):
    with refused("bad-quantity", "save", "15 min"):
        optimal_interval(text, "3 h")


@pytest.mark.parametrize(("text", "seconds"), [("10m", 600), ("1h30m", 5400), ("15 min", 900), ("2", 2), ("3 s**1", 3)])
def test_a_time_may_be_written_as_elsewhere_on_the_command_line(text, seconds):
    assert magnitude(text, "second", "save") == seconds


def test_lists_of_texts_and_quantities_are_arrays():
    found = magnitude(["15 min", quantity(1.0, "hour"), 5], "second", "save")
    assert found.tolist() == [900, 3600, 5]


def test_arrays_that_do_not_broadcast():
    with refused("unfit-arrays", r"scheduling \(2,\)", r"runtime \(3,\)"):
        solve([0.5, 0.6], [0.5, 0.6, 0.7], 0.5)
    with refused("unfit-arrays"):
        efficiency([1.0, 2.0], [1.0, 2.0, 3.0], 5.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: optimal_interval(1, 0), lambda: optimal_interval(1, -1), lambda: optimal_interval(1, float("nan")),
        lambda: optimal_interval(-1, 1), lambda: efficiency(0, 1, 1), lambda: efficiency(1, 1, 1, -1),
        lambda: efficiency(1, float("inf"), 1), lambda: expected_ettr(0, 1, 1, 1),
        lambda: RuntimeGoodputModel().solve(mtbf=0, save=1), lambda: JOB.variant(interval=0),
        lambda: JOB.variant(window="0 s"), lambda: JOB.at(0), lambda: JOB.variant(preemption_rate=-1),
        lambda: Scenarios.Llama2_70BFleetMfu128.variant(node_tokens=0), lambda: CheckpointInterval(save=1, mtbf=0),
        lambda: Scenarios.Llama2_70BJobFailures128.variant(component_mttf={"gpu": 0, "pcie": 1, "network": 1}),
    ],
)  # fmt: skip
def test_amounts_that_mean_nothing(call):
    with refused("bad-amount"):
        call()


def test_an_unknown_accelerator_is_not_another_one():
    with refused("unknown-accelerator", "did you mean H100 SXM"):
        peak_flops("H100")
    with refused("unknown-accelerator"):
        Scenarios.Llama2_70BFleetMfu128.variant(peak="Z9000")


def test_names_that_are_not_there_and_the_likely_ones():
    with refused("unknown-field", "did you mean runtime", "scheduling, runtime, program"):
        HALF.variant(runtme=0.9)
    with refused("unknown-scenario", "did you mean Llama3_405BGoodput16K"):
        Scenarios.get("llama3_405bgoodput16")
    with pytest.raises(AttributeError, match="did you mean"):
        _ = Scenarios.Llama3_405BGoodput16
    with refused("unknown-method", "did you mean daly"):
        optimal_interval(1, 1, "dali")
    with pytest.raises(AttributeError):
        headway.model.nothing  # noqa: B018
    with pytest.raises(AttributeError):
        headway.model.quantities.nothing  # noqa: B018


def test_a_component_needs_its_time_and_its_count():
    job = Scenarios.Llama2_70BJobFailures128
    with refused("lone-component", "nic", "component_mttf"):
        job.variant(per_node={"gpu": 8, "pcie": 8, "network": 1, "nic": 1})
    with refused("lone-component", "network", "per_node"):
        job.variant(per_node={"gpu": 8, "pcie": 8})
    assert job.variant(per_node={"gpu": 0, "pcie": 0, "network": 0}).result.mtbf_s == float("inf")
    assert job.result.failures_per_day == pytest.approx(0.07936)
    assert job.result.component_rates["gpu"].to("1/hour").magnitude == pytest.approx(2e-5)
    assert job.result.device_rate.to("1/hour").magnitude * 128 == pytest.approx(
        job.result.system_rate.to("1/hour").magnitude
    )


def test_a_job_needs_its_failures_and_its_save():
    with refused("bad-failures"):
        RuntimeGoodputScenario(failures="3 h", save=1)
    with refused("no-save-time"):
        RuntimeGoodputScenario(failures=Scenarios.Llama3_405BFailures16K, checkpoint_bytes="1 TB")
    with refused("bad-step-size"):
        JOB.crossover(0)
    with refused("bad-share"):
        JOB.variant(input_wait=1.5)


def test_a_snapshot_is_not_more_than_it_holds():
    with refused("bad-snapshot"):
        SchedulingSnapshotScenario(assigned_share=0.5, incomplete_gang_share=0.4, input_wait_share=0.2)
    assert SchedulingSnapshotScenario(assigned_share=0.0).input_wait_of_held == 0.0
    looks = SchedulingSnapshotScenario(assigned_share=[0.0, 0.8], incomplete_gang_share=[0.0, 0.15])
    assert looks.input_wait_of_held.tolist() == [0.0, 0.0]


def test_what_is_unknown_stays_unknown():
    run = Scenarios.MegaScale_175BGoodput12288
    assert run.scheduling is None
    with refused("missing-factor", "scheduling and runtime not known"):
        _ = run.result
    assert run.variant(scheduling=1.0, runtime=0.9).result.mpg == pytest.approx(0.552 * 0.9)
    with refused("missing-factor"):
        HALF.trade_ratio(run)


def test_every_published_scenario_can_be_made_names_its_source_and_pickles():
    assert list(Scenarios) == Scenarios.names() == sorted(Scenarios.names())
    assert len(Scenarios) == len(Scenarios.names()) >= 13
    for name in Scenarios:
        made = Scenarios.get(name)
        assert made.source, name
        assert made.date, name
        assert name in dir(Scenarios)
        assert name in Scenarios
        assert pickle.loads(pickle.dumps(made)) == made == copy.deepcopy(made)
        assert made.variant() == made
        assert hash(made.variant()) == hash(made)
    assert Scenarios.Llama3_405BGoodput16K != HALF
    assert "Llama3_405BGoodput16K" in repr(Scenarios)


def test_scenarios_and_results_are_frozen():
    with pytest.raises(AttributeError):
        HALF.runtme = 0.9
    with pytest.raises(AttributeError):
        HALF.runtime = 0.9
    scenario = GoodputScenario(scheduling=np.array([0.5]), runtime=0.5, program=0.5, ceilings={"R": 0.9})
    with pytest.raises(TypeError):
        scenario.ceilings["R"] = 2.0
    with pytest.raises(ValueError, match="read-only"):
        scenario.scheduling[0] = 2.0
    assert hash(scenario.ceilings) == hash(scenario.variant().ceilings)


def test_a_scenario_keeps_its_inputs_when_the_caller_s_array_changes_and_a_sweep_is_not_copied():
    mine = np.array([0.5, 0.6])
    scenario, result = GoodputScenario(scheduling=mine, runtime=0.9, program=0.9), solve(mine, 0.9, 0.9)
    assert result.scheduling is mine
    mine[:] = 0.7
    assert scenario.scheduling.tolist() == [0.5, 0.6]


def test_a_result_pickles_and_shows_itself():
    result = solve(0.5, 0.5, 0.5, {"S": 1.0}, "2 EUR/hour")
    assert pickle.loads(pickle.dumps(result)) == result
    assert repr(result) == "GoodputResult(scheduling=0.5, runtime=0.5, program=0.5, mpg=0.125)"
    shown = result.as_dict()
    assert (shown["useful_rate"], shown["useful_rate_unit"]) == (16.0, "EUR/hour")
    assert solve(0.5, 0.5, 0.5).as_dict()["useful_rate"] is None


def test_plain_numbers_load_neither_pint_nor_numpy():
    code = (
        "import sys; from headway.model import GoodputModel, GoodputScenario\n"
        "GoodputModel().solve(0.9, 0.9, 0.7, {'S': 1.0}, 4.0).as_dict\n"
        "GoodputScenario(scheduling=1, runtime=0.9, program=0.41).result.mpg\n"
        "sys.exit(' '.join(name for name in ('pint', 'numpy') if name in sys.modules) or None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_global_registry_is_nobody_s_to_change():
    before = pint.get_application_registry().get()
    assert quantity(1.0, "USD/hour").units is not None
    assert pint.get_application_registry().get() is before
    with pytest.raises(pint.UndefinedUnitError):
        pint.UnitRegistry()("1 USD")


def test_no_public_name_is_that_of_a_module():
    folder = Path(headway.model.__file__).parent
    assert not set(headway.model.__all__) & {path.stem for path in folder.glob("*.py")}
    assert set(headway.model.__all__) <= set(dir(headway.model))
    assert headway.model.__all__ == sorted(headway.model.__all__)
    assert isinstance(SeriesFailureScenario, type)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("2,50 USD/h", "USD/hour"), ("1,5 h", "second"),
        ("5\N{FULLWIDTH FULL STOP}0 s", "second"), ("\N{FULLWIDTH DIGIT FIVE} s", "second"),
        ("2·5 h", "second"), ("0,9", "dimensionless"), ("1'000 s", "second"), ("1 000 s", "second"),
        ("1.000.000 s", "second"), ("5 .0 s", "second"), ("2 500 USD/h", "USD/hour"), ("$2,50/h", "USD/hour"),
        ("1 h 30", "second"), ("10-5", "dimensionless"), ("1½ h", "second"), ("5\N{NO-BREAK SPACE}000 s", "second"),
        ("٣ h", "second"), ("2\N{ARABIC DECIMAL SEPARATOR}5 h", "second"), ("1h-30m", "second"),
    ],
)  # fmt: skip
def test_a_number_that_may_be_meant_another_way_is_refused(text, unit):
    with refused("bad-quantity", "with a dot"):
        magnitude(text, unit, "x")


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1.5 h", "second", 5400), ("1h30m", "second", 5400), ("1 h 30 min", "second", 5400), ("2e3 ms", "second", 2),
        (".5 min", "second", 30), ("-5 s", "second", -5), ("6.50 / (1000 day)", "1/day", 0.0065),
        ("$2.50/h", "USD/hour", 2.5),
        ("USD 2/hour", "USD/hour", 2), ("5 µs", "second", 5e-6), ("1_000 s", "second", 1e3),
        ("2 * 30 s", "second", 60), ("5 day^-1", "1/day", 5), ("3 per day", "1/day", 3), ("90 %", "dimensionless", 0.9),
    ],
)  # fmt: skip
def test_products_of_plain_numbers_and_units_are_read(text, unit, value):
    assert magnitude(text, unit, "x") == pytest.approx(value)
