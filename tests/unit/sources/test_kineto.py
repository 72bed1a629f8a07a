"""Traces of the PyTorch profiler and of JAX: the numbers of real ones, and of broken ones what is left."""

import gzip
import itertools
import json
import random
from contextlib import suppress
from pathlib import Path

import pytest

from data import real
from headway.errors import SourceError
from headway.ledger.account import account
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.kineto import chrometrace
from headway.sources.kineto import devices as kineto_devices
from headway.sources.kineto import launches as kineto_launches
from headway.sources.kineto import spans as kineto_spans
from headway.sources.kineto.source import Kineto, facts, merge

SAMPLES = Path(__file__).parents[2] / "contract" / "samples"
TORCH = (SAMPLES / "kineto_torch.json").read_bytes()
REAL = {
    "h100_nanogpt_rank0": (303266.455, 0.98153, 280130.035, 23754.198, 15732.816, [62264, 59439, 61202, 59738]),
    "mi300x_resnet": (86567.708, 0.97036, 25739.351, 71516.523, 55625.186, [16799, 15951, 15887]),
    "a100_nccl": (660551.006, 0.23844, 115655.843, 46876.492, 39559.466, [222442, 219727, 224936]),
    "hta_rank0": (1222847, 0.44785, 210320, 396199, 336983, [607312, 622928]),
    "hta_rank1": (1231186, 0.47113, 271973, 379053, 303523, [607904, 630639]),
    "h100_bert_small": (3907.825, 0.07918, 307.198, 0, 0, [4426]),
}
QUEUED = {"h100_nanogpt_rank0", "mi300x_resnet"}
"""Where the device was still busy with the step before the first that is marked."""
FLOAT_US = 0.05
"""What floats lose in sums over thousands of times of 4e12 us, as those values are; here they are exact."""


def load(path, **asked):
    assert Kineto().recognise(path, files.head(path)) is None
    (run,) = Kineto().load(path, Asked(**asked))
    return run


def of(tmp_path, data, name="trace.json"):
    path = tmp_path / name
    if not isinstance(data, bytes):
        data = json.dumps(data).encode()
    path.write_bytes(data)
    return path


def kernel(start, length, name="gemm", pid=0, tid=7, cat="kernel"):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": length, "args": {}}


def step(number, start, length, cat="user_annotation", **more):
    return kernel(start, length, f"ProfilerStep#{number}", pid=9, tid=9, cat=cat) | more


def said(run):
    return " | ".join((*run.warnings, *(text for process in run.processes for text in process.warnings)))


# What real traces hold


@pytest.mark.parametrize("name", REAL)
def test_real_traces(name):
    path = real("traces", f"{name}.json.gz")
    span, busy, compute, comm, exposed, steps = REAL[name]
    found = facts(path)
    assert found.span_ns / 1e3 == pytest.approx(span, abs=0.0015)
    assert round(found.busy_ns / found.span_ns, 5) == busy
    assert found.compute_ns / 1e3 == pytest.approx(compute, abs=FLOAT_US)
    assert found.comm_ns / 1e3 == pytest.approx(comm, abs=FLOAT_US)
    assert found.exposed_ns / 1e3 == pytest.approx(exposed, abs=FLOAT_US)
    assert [round(length / 1e3) for length in found.steps_ns] == steps
    run = load(path)
    ledger = account(run)
    assert not run.warnings
    assert not run.processes[0].warnings
    assert len(run.processes[0].rows) - len(steps) == (name in QUEUED)
    assert ledger.held_ns == found.span_ns
    assert ledger.amounts_ns.get("exposed_communication", 0) == found.exposed_ns
    assert ledger.amounts_ns["host_gap"] == found.host_gap_ns
    assert ledger.program == pytest.approx(1 - (found.exposed_ns + found.host_gap_ns) / found.span_ns)
    assert ledger.runtime is None


def test_a_real_trace_without_a_device():
    with pytest.raises(SourceError, match="30 events, and none is of a device") as caught:
        facts(real("traces", "cpu_only.json.gz"))
    assert caught.value.slug == "no-device-events"


def test_two_real_ranks_are_one_run():
    runs = [load(real("traces", f"hta_rank{rank}.json.gz")) for rank in (1, 0)]
    assert {run.name for run in runs} == {"hta · 128 ranks"}
    run = merge(runs)
    assert [process.open.rank for process in run.processes] == [0, 1]
    assert {process.open.world_size for process in run.processes} == {128}
    ranks = account(run).by("rank")
    assert ranks["1"].amounts_ns["exposed_communication"] == 303523000
    assert ranks["0"].amounts_ns["exposed_communication"] == 336983000


# What counts as what


def test_by_hand(tmp_path):
    path = of(
        tmp_path,
        {
            "traceEvents": [
                kernel(0, 10),
                kernel(5, 10, tid=8),
                kernel(12, 8, "ncclDevKernel_AllReduce", tid=20),
                kernel(18, 4, "Memcpy DtoD", cat="gpu_memcpy"),
                kernel(30, 2, "Memset (Device)", cat="gpu_memset"),
                kernel(0, 99, "nccl:all_reduce", cat="gpu_user_annotation"),
                kernel(0, 99, "aten::mm", cat="cpu_op"),
            ]
        },
    )
    found = facts(path)
    assert found == type(found)(32000, 24000, 15000, 8000, 5000, 6000, 8000, ())
    run = load(path, devices=3)
    assert run.processes[0].open.devices == 3
    assert "no step is marked" in said(run)
    assert run.processes[0].rows.waits["host_gap"].tolist() == [8000]


def test_order_and_repetition_change_nothing(tmp_path):
    events = json.loads(TORCH)["traceEvents"]
    expected = facts(of(tmp_path, TORCH))
    for seed in range(5):
        chance = random.Random(seed)
        mixed = events + chance.choices(events, k=20)
        chance.shuffle(mixed)
        assert facts(of(tmp_path, mixed)) == expected


def test_steps_of_the_device_where_the_host_has_none(tmp_path):
    marks = [step(3, 10, 20, "gpu_user_annotation", pid=0), step(3, 15, 25, "gpu_user_annotation", pid=0, tid=8)]
    assert facts(of(tmp_path, [kernel(0, 50), *marks])).steps_ns == (30000,)
    assert facts(of(tmp_path, [kernel(0, 50), *marks, step(3, 5, 12)])).steps_ns == (12000,)


def test_steps_outside_of_what_the_device_did_are_told(tmp_path):
    run = load(of(tmp_path, [kernel(100, 50), *(step(n, 40 * n, 39) for n in range(6))]))
    assert run.processes[0].rows.step.tolist() == [2, 3]
    assert "4 of 6 marked steps" in said(run)


def launched(at, number, start, length, name="gemm", cat="cuda_runtime"):
    args = {"args": {"grid": [1, 1, 1], "correlation": number}}
    return [kernel(at, 2, "launch", 9, 9, cat) | args, kernel(start, length, name) | args]


@pytest.mark.parametrize("cat", ["cuda_runtime", "cuda_driver"])
def test_a_step_of_the_device_begins_with_the_first_kernel_that_its_host_launched(tmp_path, cat):
    events = [
        *launched(0, 1, 10, 80, cat=cat),
        step(5, 12, 10),
        *launched(15, 3, 95, 100, cat=cat),
        step(6, 30, 10),
        *launched(31, 4, 92, 5, "nccl", cat=cat),
        *launched(32, 2, 200, 90, cat=cat),
        step(7, 50, 10),
    ]
    chance = random.Random(3)
    for _ in range(3):
        chance.shuffle(events)
        run = load(of(tmp_path, events))
        (rows,) = (process.rows for process in run.processes)
        assert rows.step.tolist() == [4, 5, 6]
        assert rows.start.tolist() == [10000, 95000, 200000]
        assert rows.end.tolist() == [95000, 200000, 290000]
        assert rows.waits["exposed_communication"].tolist() == [3000, 0, 0]
        assert rows.waits["host_gap"].tolist() == [2000, 5000, 0]
        assert "1 of 3 marked steps" in said(run)


def test_launches_that_are_too_many_or_unknown_leave_the_marks_of_the_host(tmp_path, monkeypatch):
    events = [*launched(0, 1, 10, 80), step(5, 0, 40), *launched(41, 2, 95, 100), step(6, 40, 60)]
    assert load(of(tmp_path, events)).processes[0].rows.start.tolist() == [10000, 95000]
    unknown = [event for event in events if event["cat"] != "cuda_runtime"]
    assert load(of(tmp_path, unknown)).processes[0].rows.start.tolist() == [10000, 40000]
    monkeypatch.setattr(kineto_launches, "MAX_LAUNCHES", 1)
    assert load(of(tmp_path, events)).processes[0].rows.start.tolist() == [10000, 40000]


def test_old_names_of_categories(tmp_path):
    events = [kernel(0, 5, cat="Kernel"), kernel(6, 1, cat="Memcpy"), kernel(8, 1, cat="Memset")]
    assert facts(of(tmp_path, events)).busy_ns == 7000


def test_nanoseconds_of_a_time_since_the_epoch_are_kept(tmp_path):
    text = json.dumps([kernel("START", 1.5), step(1, 0, 1)]).replace('"START"', "1682725898236567.123")
    run = load(of(tmp_path, text.encode()))
    assert run.processes[0].open.wall_ns == 1682725898236567123


def test_the_wall_clock_and_the_device(tmp_path):
    (process,) = load(of(tmp_path, TORCH)).processes
    assert process.open.wall_ns == 1700000000000000000 + 5000130000
    assert process.open.accelerator == "NVIDIA H100 80GB HBM3"


def test_xla(tmp_path):
    run = load(of(tmp_path, gzip.compress((SAMPLES / "kineto_xla.json").read_bytes()), "host.trace.json.gz"))
    assert [process.open.rank for process in run.processes] == [0, 1]
    assert [process.rows.step.tolist() for process in run.processes] == [[7, 8], [7, 8]]
    assert [process.rows.waits["exposed_communication"].tolist() for process in run.processes] == [
        [200500, 200500],
        [160500, 160500],
    ]


def test_xla_on_a_gpu_goes_by_its_streams(tmp_path):
    names = {1: "Stream #14(Compute)", 2: "Stream #15(Compute)", 3: "XLA Ops", 4: "Steps"}
    events = [
        {"ph": "X", "pid": 1, "tid": 1, "ts": 10, "dur": 30, "name": "loop_add_fusion"},
        {"ph": "X", "pid": 1, "tid": 2, "ts": 35, "dur": 10, "name": "ncclDevKernel_AllReduce_Sum_f32"},
        {"ph": "X", "pid": 1, "tid": 3, "ts": 0, "dur": 99, "name": "fusion"},
        {"ph": "X", "pid": 2, "tid": 1, "ts": 5, "dur": 90, "name": "train", "args": {"step_num": "4"}},
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "/host:CPU"}},
        *({"ph": "M", "pid": 1, "tid": n, "name": "thread_name", "args": {"name": name}} for n, name in names.items()),
    ]
    found = facts(of(tmp_path, {"traceEvents": [*events, {}]}))
    assert found == type(found)(35000, 35000, 30000, 10000, 5000, 0, 0, (90000,))


@pytest.mark.parametrize(
    ("name", "run_name", "rank"),
    [
        ("llama-rank3.json", "llama", 3),
        ("rank_12_llama.pt.trace.json.gz", "llama", 12),
        ("node-7_4242.1700000000000000000.pt.trace.json", "node", 0),
        ("crank3.json", "crank3", 0),
    ],
)
def test_rank_and_name_of_a_file(tmp_path, name, run_name, rank):
    run = load(of(tmp_path, [kernel(0, 5)], name))
    assert (run.name, run.processes[0].open.rank) == (run_name, rank)


def test_several_devices_of_one_process_are_ranks(tmp_path):
    info = {"rank": 1, "world_size": 2}
    run = load(of(tmp_path, {"distributedInfo": info, "traceEvents": [kernel(0, 9), kernel(4, 9, pid=1)]}))
    assert [(process.open.rank, process.open.world_size) for process in run.processes] == [(2, 4), (3, 4)]
    assert account(run).amounts_ns == {"productive": 18000, "host_gap": 8000, "exposed_communication": 0}


# Ranks together


def test_clocks_that_do_not_agree_are_set_by_the_step_they_share(tmp_path):
    runs = [
        load(of(tmp_path, [kernel(at, 50), step(5, at, 25), step(6, at + 25, 25)], f"rank{rank}.json"))
        for rank, at in enumerate((100, 900000))
    ]
    run = merge(runs)
    assert len({process.open.wall_ns for process in run.processes}) == 1
    assert "clocks" in said(run)
    assert account(run).held_ns == 100000


def test_ranks_of_other_steps_and_two_windows_of_one_rank(tmp_path):
    first = load(of(tmp_path, [kernel(0, 50), step(5, 0, 25)], "rank0.json"))
    second = load(of(tmp_path, [kernel(100, 50), step(6, 100, 25)], "rank0.json"))
    run = merge([second, first])
    assert [(process.open.attempt, process.open.wall_ns) for process in run.processes] == [("a0", 0), ("a1", 100000)]
    assert "share 0 of 2 steps" in said(run)


# What is broken


@pytest.mark.parametrize("size", [64, 300, 1000])
def test_blocks_of_any_size_say_the_same(tmp_path, monkeypatch, size):
    expected = facts(of(tmp_path, TORCH))
    monkeypatch.setattr(chrometrace, "BLOCK", size)
    monkeypatch.setattr(kineto_spans, "_COMPACT", 2)
    assert facts(of(tmp_path, TORCH)) == expected


SPOILED = [
    "-3",
    "1e300",
    "NaN",
    "null",
    '"x"',
    "[[]]",
    "{}",
    "9223372036854775",
    "9" * 17,
    "9" * 30,
    "9" * 5000,
    "true",
]


@pytest.mark.parametrize("spoiled", SPOILED)
@pytest.mark.parametrize("key", ["dur", "ts"])
def test_events_without_a_time_are_left_out_and_named(tmp_path, key, spoiled):
    text = json.dumps([kernel(5, 5), kernel(20, 5) | {key: "SPOILED"}]).replace('"SPOILED"', spoiled)
    path = of(tmp_path, text.encode())
    if (key, spoiled) == ("ts", "-3"):
        assert facts(path).span_ns == 13000
        return
    assert facts(path).span_ns == 5000
    assert "event 2 is without a time, left out" in said(load(path))


def test_kernels_that_cupti_has_no_time_of_do_not_begin_in_1970(tmp_path):
    path = of(tmp_path, [kernel(1615207264505000, 5), kernel(0, 0), kernel(1615207264505010, 5)])
    assert (facts(path).span_ns, facts(path).busy_ns) == (15000, 10000)
    assert "event 2 is without a time, left out (ts 0, dur 0)" in said(load(path))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"stream": 7', b'"stream": 7, "bandwidth": -inf'),
        (b'"stream": 7', b'"stream": 7, "list": [{"ph": 1}, {"ph": [nan]}]'),
        (b"gemm<", b"ge\xffm<"),
        (b"gemm<", b"ge\x00m<"),
        (b"gemm<", b"C:\\Users\\x"),
        (b"gemm<", b"},{"),
        (b"gemm<", b'\\"},\\n{\\"ph\\":'),
        (b"\n", b"\r\n"),
        (b'"ph": "X"', b'"ph": "X", "unknown": {"a": [{}]}'),
        (b"{\n", b"\xef\xbb\xbf{\n"),
    ],
)
def test_what_writers_spoil_changes_nothing(tmp_path, monkeypatch, before, after):
    expected = facts(of(tmp_path, TORCH))
    count = 1 if before == b"{\n" else -1
    for size in (700, 1 << 20):
        monkeypatch.setattr(chrometrace, "BLOCK", size)
        path = of(tmp_path, TORCH.replace(before, after, count))
        assert facts(path) == expected
        assert not load(path).warnings


def test_no_event_is_named_with_its_byte(tmp_path):
    path = of(tmp_path, b'[{"ph":"X","pid":1,"name":1},' + json.dumps(kernel(0, 5)).encode() + b", 17, [3]]")
    assert facts(path).span_ns == 5000
    assert f"2 bytes are no event, left out: {path.read_bytes().index(b'17')}," in said(load(path))


@pytest.mark.parametrize("depth", [1000, 100_000, 300_000])
def test_deep_nesting(tmp_path, depth):
    deep = b"[" * depth + b"]" * depth
    event = json.dumps(kernel(0, 5)).encode()
    path = of(tmp_path, b'{"traceEvents":[' + event + b',{"ph":"X","args":' + deep + b"}," + event + b"]}")
    assert facts(path).span_ns == 5000
    assert depth == 1000 or "left out" in said(load(path)) or "breaks off" in said(load(path))


def test_cut_at_every_place(tmp_path):
    whole = facts(of(tmp_path, TORCH)).busy_ns
    last = 0
    for n in range(0, len(TORCH), 37):
        path = of(tmp_path, TORCH[:n])
        try:
            busy = facts(path).busy_ns
        except SourceError:
            assert not last
            continue
        assert last <= busy <= whole
        assert "is where the trace breaks off" in said(load(path))
        last = busy
    assert last == whole


def test_a_torn_gzip_counts_up_to_there(tmp_path):
    chance = random.Random(1)
    events = [kernel(10 * n, chance.random() * 9) for n in range(20000)]
    data = gzip.compress(json.dumps(events).encode())
    path = of(tmp_path, data[: len(data) // 2], "trace.json.gz")
    assert 60_000_000 < facts(path).span_ns < 140_000_000
    assert "torn" in said(load(path))


def test_what_follows_the_end_is_told(tmp_path):
    assert "is where the trace ends" in said(load(of(tmp_path, TORCH + b"\0" * 99)))


def test_more_than_can_be_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(kineto_devices, "MAX_DEVICES", 2)
    monkeypatch.setattr(kineto_devices, "MAX_MARKS", 3)
    events = [*(kernel(n, 1, pid=n) for n in range(4)), *(step(n, n, 1) for n in range(5))]
    run = load(of(tmp_path, events))
    assert len(run.processes) == 2
    assert "2 events are beyond the devices" in said(run)
    assert "2 events are beyond the steps" in said(run)


def test_a_value_that_is_too_long_ends_the_reading(tmp_path, monkeypatch):
    monkeypatch.setattr(chrometrace, "MAX_VALUE", 4000)
    monkeypatch.setattr(chrometrace, "BLOCK", 512)
    path = of(tmp_path, [kernel(0, 5), kernel(9, 5, "x" * 90000), kernel(30, 5)])
    assert facts(path).span_ns == 5000
    assert "longer than" in said(load(path))


@pytest.mark.parametrize(
    "text",
    ['{"a": "traceEvents"}', '[{"name": 1}]', "[1, 2]", '{"kind":"open","run":"r"}', "traceEvents", "", "[[[[", "{{{{"],
)
def test_what_is_no_trace(tmp_path, text):
    assert Kineto().recognise(of(tmp_path, text.encode()), text.encode()) is not None


@pytest.mark.parametrize(
    ("process", "said"),
    [
        ("python 7", "ProfilerActivity.CUDA"),
        ("/host:CPU", "Profile JAX where"),
        ("Ascend Hardware", "Ascend's profiler"),
    ],
)
def test_a_trace_without_a_device_says_what_to_do(tmp_path, process, said):
    named = {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": process}}
    with pytest.raises(SourceError, match=r"\[no-device-events\]") as raised:
        load(of(tmp_path, [named, kernel(0, 5, pid=1, cat="cpu_op")]))
    assert said in str(raised.value)


def test_a_trace_of_no_events(tmp_path):
    for text in (b'{"traceEvents": []}', b'{"traceEvents": [1, 2]}', b'{"traceEvents": [{"ph":"X"}]}'):
        with pytest.raises(SourceError, match="none is of a device"):
            facts(of(tmp_path, text))


def test_garbage_of_all_kinds(tmp_path):
    chance = random.Random(7)
    for _ in itertools.repeat(None, 300):
        data = bytearray(TORCH)
        for _ in range(chance.randint(1, 6)):
            data[chance.randrange(len(data))] ^= chance.randint(1, 255)
        with suppress(SourceError):
            account(Kineto().load(of(tmp_path, bytes(data)), Asked()))


def test_names_from_the_file_are_cleaned(tmp_path):
    data = {
        "deviceProperties": [{"id": 0, "name": "H100\x1b[31m"}],
        "traceEvents": [kernel(0, 5), kernel(7, "\x1b[1m")],
    }
    run = load(of(tmp_path, data, "a\x1b[1m.json"))
    assert run.processes[0].open.accelerator == "H100"
    assert "\x1b" not in repr((run.name, run.path, said(run))).replace("\\x1b", "\x1b")


@pytest.mark.parametrize("flood", ['"a",', "[],", "1,", "{},", "{", ",", '"x'])
def test_floods(tmp_path, monkeypatch, flood):
    monkeypatch.setattr(chrometrace, "MAX_BROKEN", 500)
    monkeypatch.setattr(chrometrace, "MAX_VALUE", 100_000)
    monkeypatch.setattr(chrometrace, "BLOCK", 4096)
    path = of(tmp_path, b"[" + json.dumps(kernel(0, 5)).encode() + b"," + flood.encode() * 100_000)
    assert facts(path).span_ns == 5000
    assert "is where the trace breaks off" in said(load(path))
