"""Laws of the model, for any input: shares, directions, one value and an array, ways to write a quantity."""

import math

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from headway.model import (
    GoodputModel,
    GoodputScenario,
    RuntimeGoodputModel,
    Scenarios,
    best_interval,
    efficiency,
    optimal_interval,
)
from headway.model.mpg import RESULT_FIELDS
from headway.model.quantities import magnitude, quantity

factors = st.floats(1e-6, 1.0)
solve = GoodputModel().solve
losses = RuntimeGoodputModel().solve
times = st.floats(1e-3, 1e6)
mtbfs = st.floats(1.0, 1e9)
shrinking = st.floats(0.01, 1.0)


@st.composite
def three(draw):
    return draw(factors), draw(factors), draw(factors)


@given(three())
def test_the_four_shares_sum_to_1(given_factors):
    """Each share is rounded on its own: up to three units in the last place of 1 may be left."""
    result = solve(*given_factors)
    shares = (result.scheduling_share, result.runtime_share, result.program_share, result.mpg)
    assert abs(math.fsum(shares) - 1.0) <= 3 * 2**-53
    assert min(shares) >= 0


@given(three(), st.sampled_from("SRP"), factors)
def test_mpg_rises_with_each_factor(given_factors, which, other):
    place = "SRP".index(which)
    low, high = sorted((given_factors[place], other))
    changed = [[*given_factors[:place], value, *given_factors[place + 1 :]] for value in (low, high)]
    assert solve(*changed[0]).mpg <= solve(*changed[1]).mpg
    assert solve(*changed[0], {which: high}).mpg_at_ceiling[which] == pytest.approx(solve(*changed[1]).mpg, rel=1e-15)


@given(three(), three(), three())
def test_trade_ratios_multiply(first, second, third):
    names = ("scheduling", "runtime", "program")
    a, b, c = (GoodputScenario(**dict(zip(names, x, strict=True))) for x in (first, second, third))
    assert a.trade_ratio(b) * b.trade_ratio(c) == pytest.approx(a.trade_ratio(c), rel=1e-14)
    assert a.trade_ratio(a) == 1.0


def picked(value, place):
    return {key: picked(item, place) for key, item in value.items()} if isinstance(value, dict) else at(value, place)


def at(value, place):
    value = getattr(value, "magnitude", value)
    return float(value[place]) if getattr(value, "shape", ()) else value


@given(st.lists(three(), min_size=1, max_size=9), st.floats(0, 100))
def test_a_goodput_and_an_array_of_them_agree_to_the_last_bit(many, price):
    columns = [np.array(column) for column in zip(*many, strict=True)]
    whole = solve(*columns, {"S": 1.0, "P": np.ones(len(many))}, price)
    for place, one in enumerate(many):
        single = solve(*one, {"S": 1.0, "P": 1.0}, price)
        for name in RESULT_FIELDS:
            assert picked(getattr(single, name), place) == picked(getattr(whole, name), place), name


RUNTIME = ("runtime_loss", "runtime_goodput", "exact_runtime_goodput", "first_order_error", "outcome", "interval_s")


@given(
    st.lists(st.tuples(mtbfs, times, times), min_size=1, max_size=9),
    st.sampled_from(["daly", "young", "exact"]),
)
def test_a_runtime_and_an_array_of_them_agree_to_the_last_bit(many, method):
    mtbf, save, restart = (np.array(column) for column in zip(*many, strict=True))
    whole = losses(mtbf=mtbf, save=save, restart=restart, method=method)
    for place, (m, d, r) in enumerate(many):
        single = losses(mtbf=m, save=d, restart=r, method=method)
        for name in RUNTIME:
            assert getattr(single, name) == getattr(whole, name)[place], name


@given(st.integers(1, 10**6), st.sampled_from([("second", 1), ("min", 60), ("hour", 3600), ("day", 86400)]))
def test_a_text_a_quantity_and_a_number_agree(count, unit):
    name, seconds = unit
    as_number = float(count * seconds)
    assert magnitude(f"{count} {name}", "second", "x") == magnitude(quantity(float(count), name), "second", "x")
    assert magnitude(f"{count} {name}", "second", "x") == pytest.approx(as_number, rel=1e-15)
    assert optimal_interval(f"{count} {name}", 1e6).magnitude == pytest.approx(
        optimal_interval(as_number, 1e6).magnitude, rel=1e-13
    )


@given(mtbfs, times, times, shrinking)
def test_runtime_falls_as_failures_come_sooner_and_saves_and_restarts_take_longer(mtbf, save, restart, by):
    best = losses(mtbf=mtbf, save=save * by, load=0, restart=restart * by, method="exact")
    for worse in (
        losses(mtbf=mtbf * by, save=save * by, load=0, restart=restart * by, method="exact"),
        losses(mtbf=mtbf, save=save, load=0, restart=restart * by, method="exact"),
        losses(mtbf=mtbf, save=save * by, load=0, restart=restart, method="exact"),
    ):
        assert worse.exact_runtime_goodput <= best.exact_runtime_goodput * (1 + 1e-9)
    by_young = [losses(mtbf=m, save=save, load=0, restart=restart, method="young") for m in (mtbf * by, mtbf)]
    assert by_young[0].runtime_goodput <= by_young[1].runtime_goodput * (1 + 1e-12)


@given(mtbfs, times, times)
@example(mtbf=1.0, save=1e6, restart=1e6)
def test_a_share_is_never_negative(mtbf, save, restart):
    result = losses(mtbf=mtbf, save=save, restart=restart, input_wait=0.3, preemption_rate=1e-5)
    assert 0 <= result.runtime_goodput <= 1
    assert 0 <= result.exact_runtime_goodput <= 1
    assert (result.outcome == "no-progress") == (result.runtime_loss >= 1) == (result.runtime_goodput == 0)
    assert (result.outcome == "no-progress") <= bool(result.notes)


@given(st.floats(1e-9, 1e-4), st.floats(0, 1))
def test_the_exact_form_meets_the_first_order_sum_as_saves_shrink(ratio, restart):
    """The terms left out are of second order: products of two losses."""
    mtbf = 1e6
    result = losses(mtbf=mtbf, save=ratio * mtbf, load=0, restart=restart * math.sqrt(ratio) * mtbf, method="young")
    assert abs(result.first_order_error) <= result.runtime_loss**2
    assert result.first_order_error <= 1e-12  # adding the losses counts too much, never too little


@given(st.floats(1e-12, 20.0), st.floats(0.2, 5.0))
def test_no_interval_keeps_more_than_the_best(ratio, other):
    mtbf = 1e4
    best = best_interval(ratio * mtbf, mtbf).magnitude
    assume(best > 0)
    kept = efficiency(best, ratio * mtbf, mtbf)
    assert efficiency(best * other, ratio * mtbf, mtbf) <= kept * (1 + 1e-9)
    for method in ("young", "daly"):
        assert efficiency(optimal_interval(ratio * mtbf, mtbf, method), ratio * mtbf, mtbf) <= kept * (1 + 1e-9)


@given(st.integers(1, 4000))
def test_a_sweep_is_the_scenario_at_each_size(n):
    job = Scenarios.Llama2_70BRuntimeGoodput128
    assert job.sweep([n])[n] == job.at(n).result
    assert job.at(2 * n).result.mtbf_s == job.at(n).result.mtbf_s / 2
