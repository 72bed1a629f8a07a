"""What nodes, stages and runs report: into JSON and back, the metrics, and the table to the character."""

import io
import json
import math
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from headway.cluster.record import as_layers
from headway.cluster.report import ClusterRun, NodeReport, ReduceKind, StageTiming
from headway.cluster.runtable import rich_table
from headway.errors import ArgumentError

GOLDEN = Path(__file__).parents[2] / "golden"
GB = 10**9


def stage(addr="n0", layers="0:4", forward_ms=100.0, resident_bytes=GB, **other):
    given = {"device": "cpu", "build_ms": 50.0}
    return StageTiming(addr=addr, layers=layers, forward_ms=forward_ms, resident_bytes=resident_bytes, **given | other)


def run(*forwards, **other):
    return ClusterRun([stage(f"n{at}", (at, at + 1), ms) for at, ms in enumerate(forwards)], sum(forwards), **other)


SEVERAL = ClusterRun(
    [
        stage("127.0.0.1:7001", "0:10", 1249.0, 14_250_000_000, build_ms=12_340),
        stage("a-name-of-more-than-22-characters", "10:21", 980.0, 9_960_000_000, device="cuda:0", build_ms=49),
        stage("node2", "21:32", 86_400_000.0, 40_000_000, device="a-long-device", build_ms=0),
    ],
    86_402_229.0,
)
TABLES = {"cluster_several": SEVERAL, "cluster_one": ClusterRun([stage()], 100), "cluster_empty": ClusterRun([], 0)}


def held_to_golden(name, got):
    golden = GOLDEN / f"{name}.txt"
    if not golden.exists() or golden.read_text() != got:
        golden.with_suffix(".failed").write_text(got)
    assert got == (golden.read_text() if golden.exists() else ""), f"see {golden.with_suffix('.failed')}"


def screen(made, width=160, **console):
    stream = io.StringIO()
    Console(file=stream, width=width, color_system=None, **console).print(rich_table(made))
    return stream.getvalue()


@pytest.mark.parametrize("name", TABLES)
def test_the_table_is_the_golden_one(name):
    held_to_golden(name, TABLES[name].table())


def test_the_table_has_its_rules_and_ends_each_line():
    lines = SEVERAL.table().split("\n")
    assert lines[1] == lines[-3] == "─" * 74
    assert lines[-1] == ""
    assert lines[0] == "node                  layers    device       build     forward    resident"


def test_an_empty_run_is_zero_everywhere():
    empty = ClusterRun([], 0)
    assert [empty.reduce_resident_gb(kind) for kind in ReduceKind] == [0.0] * 4
    assert (empty.tokens_per_s(8), empty.critical_path_ms(), empty.straggler) == (0.0, 0.0, None)
    assert empty.logits.shape == (0,)


def test_metrics_of_a_run():
    made = ClusterRun([stage("a", "0:2", 30, 3 * GB), stage("b", "2:4", 20, GB)], 50)
    assert made.tokens_per_s(8) == 160.0
    assert made.critical_path_ms() == 30.0
    assert [made.reduce_resident_gb(kind) for kind in ("sum", "mean", "max", "min")] == [4.0, 2.0, 3.0, 1.0]
    assert made.reduce_resident_gb(ReduceKind.Mean) == 2.0


def test_only_a_run_of_no_time_has_no_throughput_and_none_has_an_infinite_one():
    assert [ClusterRun([], ms).tokens_per_s(8) for ms in (5e-324, 1e-310)] == [sys.float_info.max] * 2
    assert [ClusterRun([], ms).tokens_per_s(seq) for ms, seq in ((0, 8), (5e-324, 0))] == [0.0, 0.0]
    assert ClusterRun([], 1e-300).tokens_per_s(8) == 8 / (1e-300 / 1000)


def test_sizes_are_summed_as_gb_one_after_another():
    sizes = [100_000_000, 600_000_000, 2_600_000_000, 50_000_000]
    made = ClusterRun([stage(resident_bytes=size) for size in sizes], 1)
    assert sum(sizes) / 1e9 == 3.35
    assert made.reduce_resident_gb("sum") == ((0.1 + 0.6) + 2.6) + 0.05 == 3.3499999999999996
    assert made.reduce_resident_gb("mean") == 3.3499999999999996 / 4
    assert "Σ resident 3.3 GB" in made.table()


def test_reduce_kinds_go_by_both_spellings():
    assert [ReduceKind.Sum, ReduceKind.Mean, ReduceKind.Max, ReduceKind.Min] == list(ReduceKind)
    with pytest.raises(ArgumentError, match=r"'median'.*sum, mean, max, min.*\[bad-reduce\]"):
        run(1).reduce_resident_gb("median")


@pytest.mark.parametrize(
    ("forwards", "straggler"),
    [
        ((), None),
        ((100,), None),
        ((100, 102), None),
        ((100, 102.1), "n1"),
        ((0, 1), "n1"),
        ((0, 0), None),
        ((130, 100, 90, 110), "n0"),
        ((50, 50, 51), None),
    ],
)
def test_the_straggler_stands_out(forwards, straggler):
    assert run(*forwards).straggler == straggler


def test_a_straggler_is_one_of_its_place_not_of_its_name():
    one = stage()
    assert ClusterRun([one, one], 200).straggler is None
    for twice in (ClusterRun([one, stage(forward_ms=300)], 400), ClusterRun([stage(forward_ms=300), one, one], 500)):
        assert twice.straggler == "n0"
        assert "straggler n0, 3.00 times" in screen(twice)


@pytest.mark.parametrize(
    "layers", [range(2, 5), (2, 5), [2, 5], {"start": 2, "end": 5}, "2:5", np.array([2, 5]).tolist()]
)
def test_layers_come_in_several_forms(layers):
    assert as_layers(layers) == range(2, 5)
    assert NodeReport("n", layers, "cpu", "bf16", 1, 2, 3, 0).layers == range(2, 5)


@pytest.mark.parametrize(
    "layers",
    [None, 3, "5:2", "-1:2", "1..2", "1:", "²:3", (1,), (1, 2, 3), (1.0, 2), (True, 2), {"start": 1}, range(4, 0, -1),
     range(0, 9, 3), range(-2, 1), {1, 2}, b"1:2", "0:99999999999"],
)  # fmt: skip
def test_what_is_no_range_of_layers_is_named(layers):
    with pytest.raises(ArgumentError, match=r"\[bad-layers\]"):
        stage(layers=layers)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("addr", 3),
        ("addr", None),
        ("device", b"cpu"),
        ("precision", 16),
        *[("forward_ms", one) for one in (-1, math.nan, math.inf, "3", None, True, 10**400, [1])],
        ("build_ms", -0.5),
        ("wait_ms", math.nan),
        ("predicted_ms", "fast"),
        *[("resident_bytes", one) for one in (-1, 1.5, True, None, "1", 2**64)],
        ("rss_bytes", -1),
        ("budget_bytes", 0.5),
    ],
)
def test_a_value_a_stage_cannot_have_names_its_field(field, value):
    with pytest.raises(ArgumentError, match=rf"Cannot make a StageTiming: {field} .*\[bad-report\]") as caught:
        stage(**{field: value})
    assert caught.value.details == {"field": field}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("timings", [3]),
        ("timings", "n0"),
        ("total_forward_ms", -1),
        ("mode", "parallel"),
        ("micro_batches", 0),
        ("tokens", [[1.5]]),
        ("tokens", [3]),
        ("recovered", "n0 died"),
        ("output", 3),
        ("output", "1 2"),
        ("output", np.zeros((2, 2))),
        *[("output", one) for one in (["a"], ["1"], [None], [True], [1j], [[1.0]], [10**400], {1.0})],
        *[("output", np.array(one)) for one in (["a"], [True], [1j], [None])],
        ("shape", (2, -1)),
        ("shape", 3),
        ("decode_ms", math.inf),
    ],
)
def test_a_value_a_run_cannot_have_names_its_field(field, value):
    with pytest.raises(ArgumentError, match=rf"Cannot make a ClusterRun: {field} .*\[bad-report\]"):
        ClusterRun(**{"timings": [], "total_forward_ms": 0} | {field: value})


def test_times_stay_as_they_are_and_only_the_table_rounds():
    one = stage(forward_ms=np.float32(0.1), build_ms=-0.0)
    assert (one.forward_ms, str(one.build_ms)) == (float(np.float32(0.1)), "0.0")
    assert type(stage(resident_bytes=np.int64(3)).resident_bytes) is int


def test_a_number_too_long_to_be_shown_is_refused_as_well():
    with pytest.raises(ArgumentError, match="resident_bytes is a value of type int"):
        stage(resident_bytes=10**5000)


def test_the_logits_have_their_shape():
    output = np.arange(6, dtype=np.float32)
    made = run(1, output=output, shape=[1, 2, 3])
    assert made.output is output
    assert made.logits.shape == made.shape == (1, 2, 3)
    assert ClusterRun([], 0, [1, 2]).logits.dtype == np.float32
    with pytest.raises(ArgumentError, match=r"shape is \(5,\), of 5 values; output has 6"):
        run(1, output=output, shape=(5,))
    with pytest.raises(ArgumentError, match="the output was left out"):
        ClusterRun.from_json(made.to_json()).logits  # noqa: B018


names = st.text(max_size=8)
times = st.floats(0, 1e12)
sizes = st.integers(0, 2**64 - 1)
ranges = st.tuples(st.integers(0, 99), st.integers(0, 99)).map(lambda pair: range(min(pair), max(pair)))
maybe = lambda one: st.none() | one  # noqa: E731
reports = st.builds(
    NodeReport, names, ranges, names, names, times, sizes, sizes, sizes, rss_bytes=maybe(sizes)
)  # fmt: skip
timings = st.builds(
    StageTiming, names, ranges, names, times, times, sizes, wait_ms=times, predicted_ms=maybe(times),
    budget_bytes=maybe(sizes), rss_bytes=maybe(sizes), precision=maybe(names),
)  # fmt: skip
runs = st.builds(
    ClusterRun, st.lists(timings, max_size=3), times, st.lists(st.floats(width=32), max_size=4),
    mode=st.sampled_from(["relay", "pipelined"]), micro_batches=st.integers(1, 9), wall_ms=maybe(times),
    prefill_ms=maybe(times), decode_ms=maybe(times),
    tokens=st.lists(st.lists(st.integers(0, 99), max_size=3), max_size=3),
    recovered=st.lists(names, max_size=2),
)  # fmt: skip


@given(reports | timings)
def test_a_report_comes_back_from_json_as_it_went(made):
    text = json.dumps(made.to_json(), allow_nan=False)
    back = type(made).from_json(text)
    assert back == made
    assert back == type(made).from_json(text.encode()) == type(made).from_json(made.to_json() | {"new": [1]})
    assert pickle.loads(pickle.dumps(made)) == made


@given(runs)
def test_a_run_comes_back_from_json_as_it_went(made):
    text = json.dumps(made.to_json(output=True), allow_nan=False)
    back = ClusterRun.from_json(text)
    assert back.timings == made.timings
    assert back.to_json(output=True) == made.to_json(output=True)
    assert np.array_equal(back.logits, made.logits, equal_nan=True)
    assert "output" not in made.to_json()


@given(runs)
def test_the_metrics_of_any_run_hold_together(made):
    low, mean, high, total = (made.reduce_resident_gb(kind) for kind in ("min", "mean", "max", "sum"))
    assert 0 <= low <= mean * (1 + 1e-12)
    assert mean <= high * (1 + 1e-12) <= total * (1 + 1e-11)
    assert made.critical_path_ms() == max([one.forward_ms for one in made.timings], default=0.0)
    assert made.table().count("\n") >= 4 + len(made.timings)


@pytest.mark.parametrize("data", ["", "{", "[]", "3", b"\xff", "[" * 100_000, None, [("addr", "n0")], "9" * 5000])
def test_what_is_no_json_object_is_an_error(data):
    for cls in (NodeReport, StageTiming, ClusterRun):
        with pytest.raises(ArgumentError, match=rf"Cannot make a {cls.__name__}: .* no JSON"):
            cls.from_json(data)


def test_a_missing_field_is_named():
    for cls, made in ((NodeReport, NodeReport("n", "0:1", "cpu", "bf16", 1, 2, 3, 0)), (StageTiming, stage())):
        for name in ("addr", "layers", "build_ms", "resident_bytes"):
            told = {key: value for key, value in made.to_json().items() if key != name}
            with pytest.raises(ArgumentError, match=f"{name} is missing"):
                cls.from_json(told)
    with pytest.raises(ArgumentError, match="timings is missing"):
        ClusterRun.from_json({"total_forward_ms": 1})


@pytest.mark.parametrize("output", [["1"], [None], [True], [10**400], "nan", {"0": 1}])
def test_output_in_json_is_numbers(output):
    with pytest.raises(ArgumentError, match="output"):
        ClusterRun.from_json({"timings": [], "total_forward_ms": 0, "output": output})


def test_the_screen_shows_predicted_against_measured_and_the_straggler():
    slow = stage("n1", "4:8", 300, 2 * GB, predicted_ms=150, budget_bytes=4 * GB, wait_ms=20, precision="int8")
    made = ClusterRun([stage(), slow], 400, mode="pipelined", recovered=["n2 was replaced by n1"])
    head, below, first, second, *rest = (line.split() for line in screen(made, width=80).splitlines())
    assert head == ["predicted", "memory"]
    assert below == ["node", "layers", "as", "forward", "predicted", "/forward", "wait", "/budget"]
    assert first == ["n0", "0..4", "cpu", "100", "ms", "-", "-", "0.0", "s", "1.00", "GB"]
    assert " ".join(second) == "n1 4..8 cpu int8 300 ms 150 ms 0.50 20 ms 2.00/4.00 GB"
    assert [" ".join(line) for line in rest] == [
        "pipelined, total 400 ms, critical path 300 ms",
        "straggler n1, 3.00 times that of the other",
        "n2 was replaced by n1",
    ]


def test_a_straggler_that_hardly_stands_out_is_not_named_on_the_screen():
    stages = [stage("n0", forward_ms=100), stage("n1", forward_ms=100)]
    assert "straggler" not in screen(ClusterRun([*stages, stage("n2", forward_ms=109)], 309))
    assert "straggler n2, 1.11 times the median of the others" in screen(
        ClusterRun([*stages, stage("n2", forward_ms=111)], 311)
    )
    assert "straggler" not in screen(ClusterRun(stages[:1], 100))


def test_a_name_cannot_steer_the_terminal():
    made = ClusterRun([stage("n\x1b[2J\x1b]0;x\x07[bold]\u202e0")], 1, recovered=["gone\x1b[31m\n"])
    shown = screen(made)
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "n[bold]0" in shown


def test_an_empty_run_and_a_narrow_screen_can_be_shown():
    assert "total 0" in screen(ClusterRun([], 0))
    assert screen(SEVERAL, width=40)


def test_the_report_types_need_no_heavy_import():
    code = "import sys, headway.cluster.report; print(*sorted({'numpy', 'rich', 'torch', 'ray'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
