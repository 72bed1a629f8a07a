"""Scenarios that nobody can change, and clear errors for what they cannot use."""

import pickle
from operator import methodcaller

import numpy as np
import pytest

from headway.errors import ArgumentError
from headway.ledger.ledger import Ledger
from headway.model import (
    CheckpointInterval,
    FleetMfuScenario,
    GoodputModel,
    GoodputScenario,
    RuntimeGoodputModel,
    Scenarios,
    SeriesFailureScenario,
    simulate,
)

JOB = Scenarios.Llama2_70BRuntimeGoodput128
HALF = GoodputScenario(scheduling=0.5, runtime=0.5, program=0.5)
SERIES = {"n_devices": 8, "devices_per_node": 8, "component_mttf": {"gpu": 1e6}, "per_node": {"gpu": 8}}
FLEET = Scenarios.Llama2_70BFleetMfu128
RUN = {"work": "1 h", "interval": "10 min", "save": "1 s", "mtbf": "1 h", "replicas": 2}


def test_arrays_and_facts_are_locked_at_any_depth():
    top = np.array([0.8, 0.9])
    case = HALF.variant(ceilings={"R": top}, facts={"seen": [1, {"deep": [np.array([1.0])]}]})
    top[0] = 0.1
    assert case.ceilings["R"].tolist() == [0.8, 0.9]
    with pytest.raises(ValueError, match="read-only"):
        case.ceilings["R"][0] = 0.6
    assert case.facts["seen"][0] == 1
    with pytest.raises(TypeError, match="frozen"):
        case.facts["seen"][1]["deep"] = ()
    with pytest.raises(ValueError, match="read-only"):
        case.facts["seen"][1]["deep"][0][0] = 2.0
    assert isinstance(Scenarios.Llama3_405BGoodput16K.facts["mfu_of_its_phases"], tuple)
    mttf = SeriesFailureScenario(**SERIES | {"component_mttf": {"gpu": [1e6, 2e6]}})
    with pytest.raises(ValueError, match="read-only"):
        mttf.component_mttf["gpu"].magnitude[0] = 1.0
    assert pickle.loads(pickle.dumps(mttf)).result.mtbf_s.tolist() == mttf.result.mtbf_s.tolist()


def test_a_unit_changed_in_place_changes_no_value():
    plan = CheckpointInterval(save="30 s", mtbf="4 h")
    before = plan.interval
    plan.save.ito("hour")
    assert plan.save == CheckpointInterval(save="30 s", mtbf="4 h").save
    assert plan.interval.to("s").magnitude == pytest.approx(before.to("s").magnitude, rel=1e-12)


@pytest.mark.parametrize(
    ("slug", "call"),
    [
        ("bad-mapping", lambda: HALF.variant(ceilings=[("R", 0.95)])),
        ("bad-mapping", lambda: GoodputModel().solve(0.9, 0.9, 0.9, ceilings=5)),
        ("bad-quantity", lambda: HALF.variant(ceilings={"R": None})),
        ("bad-mapping", lambda: HALF.variant(facts=5)),
        ("bad-mapping", lambda: SeriesFailureScenario(**SERIES | {"component_mttf": None})),
        ("bad-mapping", lambda: SeriesFailureScenario(**SERIES | {"per_node": ["gpu"]})),
        ("unfit-arrays", lambda: SeriesFailureScenario(
            **SERIES | {"n_devices": [8, 16], "component_mttf": {"gpu": [1e6, 2e6, 3e6]}})),
        ("unfit-arrays", lambda: JOB.failures.at([8, 16]).variant(devices_per_node=[1, 2, 3])),
        ("unfit-arrays", lambda: FLEET.variant(node_tokens=[1e3, 2e3], fleet_tokens=[1e3, 2e3, 3e3])),
        ("bad-factor", lambda: FLEET.variant(node_step_time="1 ms")),
        ("unknown-method", lambda: CheckpointInterval(save=1.0, mtbf=9.0, method=["daly"])),
        ("bad-scenario", lambda: HALF.trade_ratio(5)),
        ("bad-sizes", lambda: JOB.sweep(5)),
        ("bad-sizes", lambda: JOB.sweep("128")),
        ("bad-step-size", lambda: JOB.variant(save=[1.0, 2.0]).crossover(8)),
        ("bad-step-size", lambda: JOB.at([8, 16]).crossover(8)),
        ("bad-simulation", lambda: simulate(**RUN, shape=[1, 2])),
        ("bad-simulation", lambda: simulate(**RUN, background="yes")),
        ("bad-simulation", lambda: simulate(**RUN, replay_order="x")),
        ("bad-simulation", lambda: simulate(**RUN, replay_order=["in-order"])),
        ("no-such-replica", lambda: simulate(**RUN).ledger(1.5)),
        ("unknown-field", lambda: GoodputScenario.from_ledger(Ledger({}, held_ns=0), foo=1)),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_by_name(slug, call):
    with pytest.raises(ArgumentError, match=rf"\[{slug}\]$"):
        call()


def test_a_peak_may_be_a_number_as_text():
    assert FLEET.variant(peak="989e12") == FLEET.variant(peak=989e12)
    assert isinstance(FLEET, FleetMfuScenario)


@pytest.mark.parametrize("size", [1e308, np.array([1e308, 1.0])])
def test_times_beyond_the_range_of_floats_are_refused(size):
    given = dict.fromkeys(("mtbf", "save", "lost_work", "preemption_rate"), size)
    with pytest.raises(ArgumentError, match=r"range of floats.*(?s:.*)\[bad-amount\]$"):
        RuntimeGoodputModel().solve(**given)
    with pytest.raises(ArgumentError, match=r"\[bad-amount\]$"):
        methodcaller("solve", save=1e-300, mtbf=1e-300, method="young")(RuntimeGoodputModel())
