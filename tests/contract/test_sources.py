"""What holds for every source: damage gives a clear error or a warning, and never another exception."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.errors import HeadwayError
from headway.ledger.account import account
from headway.sources import SOURCES, load

NATIVE = [
    {"kind": "open", "run": "r", "attempt": "a0", "rank": 0, "wall_ns": 1700000000000000000, "mono_ns": 0},
    {"kind": "span", "category": "evaluation", "start": 2000, "end": 3000},
    *({"kind": "step", "step": n, "start": 1000 * n, "end": 1000 * n + 900, "phases": {"source": 3}} for n in range(9)),
    {"kind": "saved", "step": 8, "at": 9000},
    {"kind": "close", "at": 9900},
]
MLPERF = [
    {"key": key, "time_ms": 1700000000000 + 1000 * n, "metadata": {"status": "success"}}
    for n, key in enumerate(
        [
            "init_start",
            "run_start",
            "block_start",
            "block_stop",
            "eval_start",
            "eval_stop",
            "block_start",
            "block_stop",
            "run_stop",
        ]
    )
]
GOOD = {
    "native": "".join(json.dumps(event) + "\n" for event in NATIVE).encode(),
    "mlperf": "".join(f":::MLLOG {json.dumps(record)}\n" for record in MLPERF).encode(),
}


@pytest.fixture(params=SOURCES, ids=lambda source: source.name)
def source(request):
    return request.param


def read(path, data):
    """Return what load and account make of these bytes: seconds and steps, or an error's slug."""
    path.write_bytes(data)
    try:
        runs = load(path)
    except HeadwayError as error:
        return error.slug if str(error).startswith("Cannot ") else f"no good message: {error}"
    return [(account(run).seconds, account(run).steps) for run in runs]


def test_every_source_has_a_good_log_here_and_a_line_in_the_docs(source):
    text = (Path(__file__).parents[2] / "docs" / "sources.md").read_text()
    assert f"| `{source.name}` |" in text
    assert source.name in GOOD


def test_the_docs_list_no_other_source():
    text = (Path(__file__).parents[2] / "docs" / "sources.md").read_text()
    listed = [line.split("`")[1] for line in text.split("\n## ")[0].splitlines() if line.startswith("| `")]
    assert listed == [source.name for source in SOURCES]


def test_a_good_log_is_read_by_its_own_source_only(source, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(GOOD[source.name])
    head = GOOD[source.name]
    assert [other.name for other in SOURCES if other.recognise(path, head) is None] == [source.name]
    (run,) = load(path)
    assert run.source == source.name
    assert run.path == str(path)
    assert list(run.processes[0].warnings) == []


def test_devices_count_as_given(source, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(GOOD[source.name])
    assert load(path, devices=7)[0].processes[0].open.devices == 7


def test_cut_anywhere(source, tmp_path):
    data = GOOD[source.name]
    for n in range(0, len(data), 3):
        read(tmp_path / "log", data[:n])


def test_shuffled_and_repeated_lines_say_the_same(source, tmp_path):
    lines = GOOD[source.name].splitlines(keepends=True)
    expected = read(tmp_path / "log", b"".join(lines))
    for seed in range(10):
        chance = random.Random(seed)
        mixed = lines + chance.choices(lines[1:], k=4)
        chance.shuffle(mixed)
        assert read(tmp_path / "log", b"".join(mixed)) == expected


@pytest.mark.parametrize(
    "number", ["1e999", "-1", "1" * 400, "1" * 5000, "NaN", "null", '"x"', "9223372036854775807", "[[]]"]
)
def test_gigantic_and_odd_numbers(source, tmp_path, number):
    lines = GOOD[source.name].decode().splitlines()
    for index, line in enumerate(lines):
        for name in ("end", "at", "wall_ns", "step", "time_ms", "start", "rank"):
            before, found, after = line.partition(f'"{name}": ')
            if found:
                rest = after[min(i for i, char in enumerate(after) if char in ",}") :]
                lines_now = [*lines[:index], before + found + number + rest, *lines[index + 1 :]]
                read(tmp_path / "log", "\n".join(lines_now).encode())


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "cp037"])
def test_other_encodings(source, tmp_path, encoding):
    read(tmp_path / "log", GOOD[source.name].decode().encode(encoding))


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\0" * 4096, bytes(range(256)) * 99, b"{" * 9999, b"[" * 99999])
def test_garbage_after_a_good_log_and_alone(source, tmp_path, data):
    assert read(tmp_path / "log", data) in {"unknown-source", "empty-file"}
    assert read(tmp_path / "log", GOOD[source.name] + data) == read(tmp_path / "log", GOOD[source.name])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes(source, tmp_path, data):
    text = bytearray(GOOD[source.name])
    for _ in range(data.draw(st.integers(1, 6))):
        text[data.draw(st.integers(0, len(text) - 1))] ^= data.draw(st.integers(1, 255))
    read(tmp_path / "log", bytes(text))


def test_escape_sequences_do_not_get_through(source, tmp_path):
    data = GOOD[source.name].decode().replace('"r"', '"r\\u001b[31m"').replace("success", "\\u001b[2Jfailed")
    path = tmp_path / "log\x1b[1m"
    path.write_text(data)
    for run in load(path):
        assert "\x1b" not in repr((run.name, run.path, run.warnings)).replace("\\x1b", "\x1b")
        for process in run.processes:
            assert "\\x1b" not in repr((process.open, process.warnings, process.events))
