"""A log cut at every byte: what is read is a prefix of the truth, and what was cut is said."""

import json

import numpy as np
import pytest

from headway.record.steplog import field_names, header
from headway.sources import load
from headway.sources.native.follow import Follower

PHASES = ("source", "transform")
N = 6


def rows():
    table = np.zeros(N, [(name, "<i8") for name in field_names(PHASES)])
    index = np.arange(N)
    # No byte of a time is zero: half a row never looks like a whole one that is smaller.
    table["step"], table["start_ns"] = index, 0x0102030405060700 + index * 20
    table["end_ns"], table["source"], table["seq"] = table["start_ns"] + 15, 7, index + 1
    return table


EVENTS = [
    {"kind": "open", "run": "r", "attempt": "a0", "rank": 0, "wall_ns": 1700000000000000000, "mono_ns": 0},
    {"kind": "begin", "id": 1, "category": "evaluation", "at": 100},
    {"kind": "end", "id": 1, "at": 200, "ok": True},
    {"kind": "step", "step": 50, "start": 300, "end": 400, "phases": {"source": 5}},
    {"kind": "new", "of": ["a", "later", "version"]},
    {"kind": "saved", "step": 50, "at": 500},
    {"kind": "close", "at": 600, "reason": "finished"},
]
LINES = b"".join(json.dumps(event).encode() + b"\n" for event in EVENTS)
ROWS = header(PHASES, N) + rows().tobytes()


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "r" / "a0-r0"
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_bytes(LINES)
    (folder / "steps.npy").write_bytes(ROWS)
    return folder


def warnings(run):
    return [*run.warnings, *(text for process in run.processes for text in process.warnings)]


def test_whole_files_give_no_warning(folder):
    (run,) = load(folder)
    assert warnings(run) == []
    assert run.processes[0].rows.step.tolist() == [*range(N), 50]


def test_rows_cut_at_every_byte(folder):
    truth = rows()
    for n in range(len(ROWS)):
        if 300 < n < 4050:
            continue  # the blanks that fill the header
        (folder / "steps.npy").write_bytes(ROWS[:n])
        (run,) = load(folder)
        (process,) = run.processes
        whole = max(0, n - 4096) // truth.itemsize
        assert process.rows.step.tolist() == [*range(whole), 50]
        assert process.rows.start[:whole].tolist() == truth["start_ns"][:whole].tolist()
        assert process.rows.end[:whole].tolist() == truth["end_ns"][:whole].tolist()
        assert len(process.events) == len(EVENTS) - 2
        assert any("steps.npy" in text for text in warnings(run)), n


def test_events_cut_at_every_byte(folder):
    (whole_run,) = load(folder)
    truth = list(whole_run.processes[0].events)
    ends = np.cumsum([len(line) for line in LINES.splitlines(keepends=True)])
    for n in range(len(LINES)):
        (folder / "events.jsonl").write_bytes(LINES[:n])
        (run,) = load(folder)
        # A line is whole with its last brace; the newline after it adds nothing.
        n_lines = int((ends - 1 <= n).sum())
        assert len(run.processes) == (n_lines > 0)
        for process in run.processes:
            assert list(process.events) == truth[: len(process.events)]
            assert len(process.events) == n_lines - 1 - (n_lines > 3)
        assert bool(warnings(run)) == (n_lines == 0 or n not in {*ends, *(ends - 1)}), n


def test_rows_torn_at_every_byte_as_a_lost_host_leaves_them(folder):
    truth = rows()
    for n in range(4096, len(ROWS)):
        (folder / "steps.npy").write_bytes(ROWS[:n] + bytes(len(ROWS) - n))
        (process,) = load(folder)[0].processes
        whole = (n - 4096) // truth.itemsize
        # `seq` is small: its first byte makes the row whole, the others are zero.
        read = process.rows.step.tolist()[:-1]
        assert read == list(range(len(read)))
        assert len(read) - whole in {0, 1}
        assert process.rows.end[: len(read)].tolist() == truth["end_ns"][: len(read)].tolist()


def test_a_follower_of_a_log_that_grows_byte_by_byte_ends_with_the_truth(folder):
    (truth,) = load(folder)[0].processes
    events, steps = folder / "events.jsonl", folder / "steps.npy"
    events.write_bytes(b"")
    steps.write_bytes(b"")
    follower = Follower(folder.parent)
    for n in range(len(LINES) + 1):
        with events.open("r+b") as file:
            file.write(LINES[:n])
        seen = follower.poll()
    for n in [*range(0, 300, 7), *range(4050, len(ROWS) + 1)]:
        with steps.open("r+b") as file:
            file.write(ROWS[:n])
        seen = follower.poll()
    (process,) = seen[0].processes
    assert sorted(process.rows.step.tolist()) == sorted(truth.rows.step.tolist())
    assert sorted(process.rows.end.tolist()) == sorted(truth.rows.end.tolist())
    assert (process.events, list(process.warnings)) == (truth.events, [])
