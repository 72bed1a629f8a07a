"""The JSON form: the keys that are kept, and that any reader can read it."""

import json

import pytest

from headway.cli.report import Cut
from headway.events import Close, Open, Step
from headway.ledger.history import Process, Rows, Run
from headway.ledger.ledger import Ledger
from headway.report.document import build, dump
from headway.report.entry import Entry, Options
from headway.units import Price

from unit.shown import NASTY, S, attempts, digits, pool, ranks, windows

KEPT = [
    "run", "source", "attempts", "ranks", "devices", "held_s", "released_s",
    "categories_s", "factors", "steps", "inferred", "warnings",
]  # fmt: skip


def strict(text):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text.encode("ascii"), parse_constant=refuse)


def one(ledger, options=None, **fields):
    entry = Entry("r1", "native", ledger, **fields)
    (run,) = strict(dump([entry], options or Options()))["runs"]
    return run


def test_the_keys_of_schema_1_come_in_their_order():
    document = strict(dump([Entry("r1", "native", digits(warnings=("w",)), warnings=["v", "w"])]))
    assert list(document) == ["schema", "runs"]
    assert document["schema"] == 1
    (run,) = document["runs"]
    assert [key for key in run if key in KEPT] == KEPT
    assert run["warnings"] == ["v", "w"]
    assert run["inferred"] == ["compile"]
    assert run["steps"] == {"executed": 522, "retained": 500, "uncommitted": 3}
    assert run["factors"] == {"scheduling": None, "runtime": 25.3 / 41.2, "program": None, "mpg": None}


def test_categories_are_those_that_are_there_and_sum_to_what_was_held():
    run = one(digits())
    assert set(run["categories_s"]) == {"productive", "recovery", "input_wait", "rework", "startup", "compile"}
    assert sum(run["categories_s"].values()) == pytest.approx(run["held_s"], abs=1e-9)
    assert "offered_s" not in run


def test_a_pool_adds_what_was_offered_and_then_the_sum_is_that():
    run = one(pool())
    assert run["offered_s"] == sum(run["categories_s"].values()) == 100.0
    assert run["factors"]["mpg"] == pytest.approx(0.6)


def test_nanoseconds_are_not_rounded():
    ledger = Ledger({"productive": 1_234_567_891}, held_ns=1_234_567_891)
    assert one(ledger)["held_s"] == 1.234567891


def test_nothing_held_is_null_and_not_a_number():
    run = one(Ledger(), Options(price=Price(2)))
    assert run["factors"]["runtime"] is None
    assert run["categories_s"] == {}
    assert run["window"] == {"start_s": None, "end_s": None}
    assert run["advice"] == []


def test_windows_are_added_when_asked_for():
    run = one(digits(), Options(windows=True), windows=windows())
    assert [window["start_s"] for window in run["windows"]] == [1_700_000_000.0, 1_700_000_010.0, 1_700_000_020.0]
    assert [window["factors"]["runtime"] for window in run["windows"]] == [0.8, 0.0, None]
    assert "windows" not in one(digits())


def test_ranks_are_compared_and_split():
    run = one(ranks(phase="sync"), Options(by="rank"))
    assert run["ranks_compared"]["straggler"] == "2"
    assert run["ranks_compared"]["slowest_loader"] is None
    assert list(run["by"]["rank"]) == ["0", "1", "2", "3"]
    assert sum(piece["held_s"] for piece in run["by"]["rank"].values()) == pytest.approx(run["held_s"])


def test_attempts_say_how_they_ended():
    pieces = one(attempts(), Options(by="attempt"))["by"]["attempt"]
    assert [piece["ended"] for piece in pieces.values()] == [[None], ["failed"], ["failed"], ["signal"], ["finished"]]


def test_a_price_adds_costs():
    run = one(digits(), Options(price=Price(3600, "EUR")))
    assert run["cost"]["currency"] == "EUR"
    assert run["cost"]["held"] == pytest.approx(41.2)
    assert run["cost"]["categories"]["recovery"] == pytest.approx(6.1)
    assert run["advice"][0]["money"] == pytest.approx(6.1)


def test_several_runs_have_a_total():
    document = build([Entry("a", "native", digits()), Entry("b", "native", ranks())], Options())
    assert [run["run"] for run in document["runs"]] == ["a", "b"]
    assert document["total"]["held_s"] == pytest.approx(41.2 + 56.2)


def test_runs_and_pools_are_not_added_to_each_other():
    jobs = Ledger({"allocated": 5 * S}, held_ns=5 * S, jobs=2)
    entries = [Entry("a", "native", digits()), Entry("p", "slurm", jobs), Entry("q", "slurm", jobs)]
    document = build(entries, Options())
    assert "total" not in document
    assert document["total_of_pools"]["held_s"] == 10.0
    document = build([*entries, Entry("b", "native", ranks())], Options())
    assert document["total"]["held_s"] == pytest.approx(41.2 + 56.2)


def test_any_name_is_strict_json():
    ledger = Ledger({f"custom:{NASTY}": S}, held_ns=S, waits_ns={NASTY: S}, warnings=(NASTY,))
    run = one(ledger, path=NASTY)
    assert run["path"] == NASTY.replace("\udc80", "?")


def test_a_window_counts_the_steps_that_began_in_it():
    rows = Rows.from_events([Step(step=n, start=n * S, end=(n + 1) * S) for n in range(10)])
    run = Run("r1", "native", [Process(Open(wall_ns=0, mono_ns=0), [Close(at=10 * S)], rows)])
    entry = Cut(every_ns=4 * S, last_ns=5 * S).entry(run)
    (shown,) = strict(dump([entry], Options(windows=True)))["runs"]
    assert shown["steps"] == {"executed": 5, "retained": 5, "uncommitted": 0}
    assert [window["steps"]["executed"] for window in shown["windows"]] == [4, 1]
