"""What would return most: its wording, its order, and gains that are never more than the loss."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.ledger.categories import BY_NAME, CATEGORIES
from headway.ledger.ledger import Ledger, Part, Saving, Stall, Steps
from headway.model import fit, levers
from headway.model.saves import plan_saves
from headway.report.advice import advise
from headway.report.phases import is_of_peers
from headway.report.straggler import compare_ranks
from headway.units import Price, show_seconds

from unit.logged import accounted
from unit.shown import S, ledger, ranks

SAVING = Saving(n_saves=10, n_failures=1, interval_steps=50, save_ns=10, step_ns=10)


def saves(rework=280, save=20, steps=98, **saving):
    return Ledger(
        {"productive": 700, "rework": rework, "checkpoint_save": save}, held_ns=700 + rework + save,
        steps=Steps(steps, steps - 28, 0, 28, 0), ranks=1, saving=dataclasses.replace(SAVING, **saving),
    )  # fmt: skip


def texts(ledger, **options):
    return {change.category: change.text for change in advise(ledger, **options)}


def test_the_best_comes_first_with_its_gain_in_points_and_money():
    shown = ledger({"productive": 60, "startup": 10, "recovery": 30})
    first, second = advise(shown, Price(3600.0))
    assert (first.text, first.gain, first.money) == ("restart sooner: 30.0 s between attempts", 0.3, 30.0)
    assert second.text == "build less before the first step: startup took 10.0 s"
    assert advise(shown)[0].money is None


def test_a_perfect_run_needs_no_advice():
    assert advise(ledger({"productive": 3})) == []
    assert advise(ledger({"productive": 3, "recovery": 0})) == []
    assert advise(Ledger()) == []


def test_each_phase_has_its_own_change_and_gain():
    shown = ledger(
        {"productive": 6, "input_wait": 4.5}, waits_ns={"source": 3 * S, "transform": S, "allreduce": S // 2}
    )
    source, transform, peers = advise(shown)
    assert source.text == "load ahead of the step: source waits 3.0 s"
    assert transform.text == "transform ahead of the step: transform waits 1.0 s"
    assert peers.text == "balance the ranks: allreduce takes 500 ms"
    assert [change.seconds for change in (source, transform, peers)] == [3.0, 1.0, 0.5]
    assert [change.up_to for change in (source, transform, peers)] == [False, False, True]


def test_a_loader_slower_than_the_step_cannot_be_hidden_whole():
    (change,) = advise(ledger({"productive": 1, "input_wait": 4}))
    assert change.up_to
    assert change.text == "load ahead of the step: the loop waits 4.0 s"


def test_a_gain_that_holds_only_on_average_is_a_limit():
    waits = {0: 0, 1: 9}
    parts = [Part(r, "a0", ledger({"productive": 5, "input_wait": wait})) for r, wait in waits.items()]
    assert advise(sum(part.ledger for part in parts))[0].up_to is False
    (change,) = advise(dataclasses.replace(sum(part.ledger for part in parts), parts=tuple(parts)))
    assert change.up_to


def test_one_stall_is_no_slow_loader():
    def stalled(wait_s, **fields):
        shown = ledger({"productive": 9, "input_wait": 3.3}, waits_ns={"source": round(3.3 * S)}, **fields)
        return advise(dataclasses.replace(shown, stall=Stall(30, 1, "a0", round(wait_s * S))))

    (change,) = stalled(3.0)
    assert change.text == "one stall: step 30 waited 3.0 s of 3.3 s"
    assert change.seconds == 3.0
    assert "workers" not in change.where
    assert stalled(3.0, ranks=2)[0].text == "one stall: rank 1, step 30 waited 3.0 s of 3.3 s"
    assert stalled(1.6)[0].text == "load ahead of the step: source waits 3.3 s"
    part = Part(1, "a0", ledger({"productive": 9, "input_wait": 3.3}, devices=2))
    assert stalled(1.65, parts=(part,))[0].text.startswith("one stall: step 30 waited 3.3 s of")


@pytest.mark.parametrize("phase", ["allreduce", "all_reduce", "grad_sync", "barrier", "comm", "Communication", "wait"])
def test_phases_that_wait_for_peers(phase):
    assert is_of_peers(phase)


@pytest.mark.parametrize("phase", ["source", "transform", "data_wait", "wait_for_batch", "loader", "commit"])
def test_phases_that_wait_for_data(phase):
    assert not is_of_peers(phase)


def test_dalys_interval_says_to_save_more_often():
    plan = plan_saves(fit(saves()))
    assert (plan.every, plan.more_often) == ("every 13 steps, not 50", True)
    assert plan.interval_s == pytest.approx(13 * 10e-9)
    change = next(change for change in advise(saves()) if change.category == "rework")
    assert change.text == "save more often: every 13 steps, not 50"
    assert change.where == 'headway model interval --save "10 ns" --mtbf "1 us"'
    assert change.gain * 1000 == pytest.approx(280 * (1 - 13 / 50) - 20 * (50 / 13 - 1), abs=1)
    assert change.up_to  # how long a restart takes is not known


def test_or_less_often_and_never_both():
    shown = saves(rework=10, save=500, interval_steps=3)
    assert plan_saves(fit(shown)).every == "every 15 steps, not 3"
    said = texts(shown)
    assert "rework" not in said
    assert said["checkpoint_save"].startswith("save in the background")
    change = next(change for change in advise(shown) if change.category == "checkpoint_save")
    assert change.where.startswith("or every 15 steps, not 3: 360 ns less; headway model interval --save")


def test_each_rank_fails_with_the_others():
    one = saves()
    two = dataclasses.replace(one + one, ranks=2, devices=2, attempts=1, saving=one.saving)
    assert plan_saves(fit(two)) == plan_saves(fit(one))


def test_a_window_takes_how_it_saves_from_the_whole_run():
    window = dataclasses.replace(saves(), saving=Saving(), steps=Steps(9, 1, 0, 8, 0))
    assert texts(window)["rework"].startswith("save, and record it")
    assert texts(window, history=saves())["rework"] == "save more often: every 13 steps, not 50"


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"n_saves": 0}, "save, and record it: 28 steps done again or lost"),
        ({"n_failures": 0}, "save when the notice of an end comes: 28 steps done again or lost"),
        ({"save_ns": None}, "save more often: 28 steps done again or lost"),
        ({"interval_steps": None}, "save more often: 28 steps done again or lost"),
    ],
)
def test_without_a_base_the_gain_is_only_a_limit(known, said):
    change = next(change for change in advise(saves(**known)) if change.category == "rework")
    assert (change.text, change.up_to) == (said, True)


@pytest.mark.parametrize(("every", "save"), [(200, 4.0), (5, 8.0)])
def test_what_another_distance_returns_is_what_the_lever_returns(tmp_path, every, save):
    shown = accounted(tmp_path, 12, every=every, save=save, mtbf=300.0)
    lever = next(lever for lever in levers(shown) if lever.name == "save_interval")
    assert not lever.up_to
    changes = {change.category: change for change in advise(shown)}
    if every == 200:
        assert changes["rework"].text == lever.text
        assert changes["rework"].gain == pytest.approx(lever.gain, abs=1e-6)
        assert not changes["rework"].up_to
    else:
        assert "rework" not in changes
        gain = show_seconds(lever.gain * shown.window_ns / S)
        assert f"{gain} less" in changes["checkpoint_save"].where


def test_preemptions_are_a_change_of_their_own(tmp_path):
    shown = accounted(tmp_path, 3, ends="preempted")
    (lever,) = (lever for lever in levers(shown) if lever.name == "preemptions")
    (change,) = (change for change in advise(shown) if "preempted" in change.text)
    assert change.text == lever.text == "be preempted less: it was 3 times"
    assert 0 < change.gain <= lever.gain
    assert change.up_to


def test_a_hang_names_its_rank():
    parts = [Part(r, "a0", ledger({"productive": 5, **({"silent": 4} if r == 3 else {})})) for r in range(4)]
    whole = sum(part.ledger for part in parts)
    shown = Ledger(whole.amounts_ns, held_ns=whole.held_ns, parts=tuple(parts))
    assert texts(shown)["silent"] == "find the hang: rank 3 was silent for 4.0 s"
    assert "a process was silent" in texts(ledger({"silent": 1}))["silent"]


def test_what_is_inferred_says_so():
    assert texts(ledger({"compile": 1}, inferred=frozenset({"compile"})))["compile"].endswith("1.0 s (inferred)")


def test_every_loss_has_its_advice():
    for line in CATEGORIES:
        changes = advise(Ledger({line.name: S}, held_ns=S if line.factor != "S" else 0, offered_ns=S))
        assert bool(changes) == (line.factor is not None), line.name
        assert all(change.where and change.text for change in changes)
    for name in ("custom:sdc_check", "custom:unrecorded"):
        assert len(advise(ledger({name: 1}))) == 1


amounts = st.dictionaries(
    st.sampled_from([n for n in BY_NAME if BY_NAME[n].factor in {None, "R"}]), st.integers(0, 10**15)
)


@given(
    amounts,
    st.builds(
        Saving,
        n_saves=st.integers(0, 9), n_failures=st.integers(0, 5), interval_steps=st.none() | st.integers(1, 10**6),
        save_ns=st.none() | st.integers(0, 10**12), step_ns=st.none() | st.integers(0, 10**12),
    ),
    st.integers(0, 10**6),
)  # fmt: skip
def test_no_gain_is_larger_than_its_loss(amounts_ns, saving, executed):
    shown = Ledger(amounts_ns, held_ns=sum(amounts_ns.values()), steps=Steps(executed), saving=saving, ranks=1)
    changes = advise(shown)
    assert [change.gain for change in changes] == sorted((change.gain for change in changes), reverse=True)
    for change in changes:
        assert 0 < change.seconds * S <= amounts_ns[change.category] * (1 + 1e-12)
        assert 0 < change.gain <= 1


def test_an_inferred_crumb_of_compiling_is_no_advice():
    assert "compile" not in texts(ledger({"productive": 99, "compile": 0.09}, inferred=frozenset({"compile"})))
    assert "compile" in texts(ledger({"productive": 99, "compile": 0.09}))


@pytest.mark.parametrize(
    ("ends", "word"), [(("failed",), "find why"), (("failed", "finished"), "record"), ((), "record")]
)
def test_a_command_that_only_failed_is_not_told_to_record(ends, word):
    parts = tuple(Part(0, f"a{n}", ledger({"custom:unrecorded": 1}), end) for n, end in enumerate(ends))
    assert texts(ledger({"custom:unrecorded": 1}, parts=parts))["custom:unrecorded"].startswith(word)


def test_the_rank_that_waits_least_for_its_peers_is_the_straggler():
    compared = compare_ranks(ranks(phase="allreduce"))
    assert (compared.straggler, compared.straggler_wait_s, compared.slowest_loader) == ("2", 0.2, None)
    assert compared.sentences() == ["straggler: rank 2 waits least (200 ms) while the others wait for it"]
    assert compare_ranks(ranks((4, 4.1, 3.95, 3.9), "allreduce")).straggler is None
    assert compare_ranks(ranks((0, 0, 0, 0), "allreduce")).straggler is None


def test_the_rank_that_waits_most_for_its_data_holds_the_others():
    compared = compare_ranks(ranks((0.2, 2, 0.3, 0.2), "source"))
    assert (compared.straggler, compared.slowest_loader) == (None, "1")
    assert compared.sentences() == [
        "rank 1 waits longest for its data: 2.0 s, the others 200 ms (median); in lockstep they wait for it"
    ]
    assert compared.wait.min_s == 0.2
    assert compare_ranks(ranks((4, 4.1, 0.2, 3.9))).sentences() == []
    assert compare_ranks(ranks((0, 0, 0, 0))).sentences() == []
    assert compare_ranks(ledger({"productive": 1})) is None
