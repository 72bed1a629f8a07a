"""`headway.load`: what is at a path decides, and what cannot be read is said clearly."""

import os
import socket
import subprocess
import sys

import numpy as np
import pytest

import headway
from headway import account
from headway.errors import ArgumentError, SourceError
from headway.sources import files, load, load_all, registry
from headway.sources.text import Complaints, clean

EVENT = '{"kind":"open","run":"r","attempt":"a0","wall_ns":1700000000000000000,"mono_ns":0}\n'


def slug_of(path, **options):
    with pytest.raises(SourceError) as caught:
        load(path, **options)
    assert str(caught.value).startswith("Cannot ")
    assert "\x1b" not in str(caught.value)
    return caught.value.slug


def test_load_is_a_public_name():
    assert headway.load is load


@pytest.mark.parametrize("name", ["digits.jsonl", "notes.txt", "events.jsonl", "noend"])
def test_content_decides_and_not_the_name(tmp_path, name):
    (tmp_path / name).write_text(EVENT)
    assert load(tmp_path / name)[0].name == "r"


def test_nothing_there(tmp_path):
    assert slug_of(tmp_path / "nowhere\x1b[2J") == "no-such-path"


@pytest.mark.parametrize("content", [b"hello\n", b"\0" * 99, bytes(range(256)), b'{"a": 1}\n'])
def test_what_no_source_knows_says_what_was_tried(tmp_path, content):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"native: .*; mlperf: .*\[unknown-source\]"):
        load(path)


def test_an_array_of_something_else_is_no_log(tmp_path):
    np.save(tmp_path / "weights.npy", np.arange(3))
    assert slug_of(tmp_path / "weights.npy") == "unknown-source"


def test_an_empty_file_and_an_empty_folder(tmp_path):
    (tmp_path / "log").write_bytes(b"")
    (tmp_path / "runs").mkdir()
    assert slug_of(tmp_path / "log") == "empty-file"
    assert slug_of(tmp_path / "runs") == "no-runs"


@pytest.mark.parametrize(("head", "word"), [(b"\xff\xfe{\0", "UTF-16"), (b"\x1f\x8b\x08", "compressed")])
def test_the_next_step_fits_what_was_found(tmp_path, head, word):
    (tmp_path / "log").write_bytes(head)
    with pytest.raises(SourceError, match=word):
        load(tmp_path / "log")


def test_pipes_sockets_and_devices_are_not_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for path in ("pipe", "socket", "/dev/null", "/dev/zero"):
            assert slug_of(path) == "not-a-file"


def test_a_pipe_in_a_log_folder_is_not_opened(tmp_path):
    folder = tmp_path / "a0-r0"
    folder.mkdir()
    (folder / "events.jsonl").write_text(EVENT)
    os.mkfifo(folder / "steps.npy")
    (run,) = load(tmp_path)
    assert any("it is a pipe, not a file" in text for text in run.processes[0].warnings)


def test_loops_and_closed_files(tmp_path, monkeypatch):
    (tmp_path / "loop").symlink_to("loop")
    assert slug_of(tmp_path / "loop") == "unreadable-path"
    assert slug_of("nul\0byte") == "unreadable-path"
    assert slug_of(tmp_path / ("x" * 5000)) == "unreadable-path"
    (tmp_path / "closed").write_text(EVENT)

    def closed(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.os, "open", closed)
    assert slug_of(tmp_path / "closed") == "unreadable-path"


def test_a_source_can_be_named(tmp_path):
    (tmp_path / "log").write_text(EVENT)
    assert load(tmp_path / "log", source="native")[0].source == "native"
    assert slug_of(tmp_path / "log", source="mlperf") == "unknown-source"
    with pytest.raises(ArgumentError, match=r"\[no-such-source\]"):
        load(tmp_path / "log", source="nope")


@pytest.mark.parametrize("devices", [0, -1, 1.5, True, "8"])
def test_devices_are_a_count(tmp_path, devices):
    with pytest.raises(ArgumentError, match=r"\[bad-devices\]"):
        load(tmp_path, devices=devices)


def test_names_are_fit_for_a_screen():
    assert clean("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\u202e\x9b\ud800\r\n") == "link\N{REPLACEMENT CHARACTER}"
    assert clean("x" * 300) == "x" * 199 + "…"


def test_many_complaints_are_told_as_few():
    complaints = Complaints("f")
    for line in range(9):
        complaints.add("odd", line)
    assert complaints.sentences() == ["f: 9 lines are odd: 0, 1, 2, …"]


def test_a_file_that_goes_away_while_it_is_read_is_said(tmp_path, monkeypatch):
    def gone(*_):
        raise FileNotFoundError(2, "No such file or directory")

    (tmp_path / "log").write_text(":::MLLOG {}\n")
    monkeypatch.setattr("headway.sources.mlperf.read", gone)
    assert slug_of(tmp_path / "log") == "no-such-path"


def test_files_of_one_pool_that_are_given_one_by_one_are_one_pool(tmp_path):
    (tmp_path / "jobs").write_text(
        "JobID|State|Start|End|AllocTRES\n1|COMPLETED|2024-01-01T00:00:00|2024-01-01T01:00:00|gres/gpu=8\n"
    )
    (tmp_path / "nodes").write_text("NODELIST|STATE|GRES\na1|idle|gpu:8\na2|idle|gpu:8\n")
    (pool,) = load_all([tmp_path / "jobs", tmp_path / "nodes", tmp_path / "jobs"])
    assert (pool.devices, len(pool.jobs), pool.name) == (16, 1, tmp_path.name)


def test_a_name_that_is_nearly_there_is_named(tmp_path):
    (tmp_path / "jobs.txt").write_text("x")
    with pytest.raises(SourceError, match=r"Check the path: there is .*jobs\.txt\. \[no-such-path\]"):
        load(tmp_path / "jobs.tx")


def test_a_log_without_a_clock_has_no_window_and_no_end_to_wait_for(tmp_path):
    (tmp_path / "log").write_text("".join(f"iter {n}: loss 2.0, time 100.00ms, mfu 40.00%\n" for n in range(9)))
    (run,) = load(tmp_path / "log")
    ledger = account(run, until=2_000_000_000)
    assert (ledger.start_ns, ledger.end_ns, ledger.seconds.get("silent")) == (None, None, None)
    assert ledger.held_ns == account(run).held_ns
    assert any("no clock" in text for text in ledger.warnings)


def test_a_table_whose_columns_another_source_knows_too_is_read_by_the_mapping_that_fits(tmp_path):
    (tmp_path / "jobs.csv").write_text("JobID,State,Start,End,GPUs\n1,done,2024-01-01 00:00:00,2024-01-01 01:00:00,8\n")
    (tmp_path / "m.toml").write_text('[columns]\nid="JobID"\nstart="Start"\nend="End"\ndevices="GPUs"\nstate="State"\n')
    (pool,) = load(tmp_path / "jobs.csv", mapping=tmp_path / "m.toml")
    assert (pool.source, pool.jobs[0].milli, pool.jobs[0].state) == ("table", 8000, "done")


def test_a_source_is_imported_when_its_turn_comes_and_is_called_as_the_place_it_is_in(tmp_path):
    (tmp_path / "log").write_text('{"kind":"open","run":"r","attempt":"a","wall_ns":0,"mono_ns":0}\n')
    code = (
        "import sys, headway; headway.load(sys.argv[1]); "
        "print([name for name in ('table', 'slurm', 'guidellm') if f'headway.sources.{name}' in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "log")], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"
    assert [registry._called(home) for home in registry.HOMES] == [source.name for source in registry.SOURCES]


@pytest.mark.parametrize("at", [0, 20, 99])
def test_a_line_of_another_program_takes_no_log_away(at, tmp_path):
    other = (
        " [2025-03-04 10:01:09.010] iteration 1/ 200 | consumed samples: 8 | elapsed time per iteration (ms): 9000.0 |"
    )
    lines = [f"iter {n}: loss 2.0, time 500.00ms, mfu 40.00%" for n in range(99)]
    (tmp_path / "log").write_text("\n".join([*lines[:at], other, *lines[at:]]) + "\n")
    (run,) = load(tmp_path / "log")
    assert (run.source, len(run.processes[0].rows)) == ("nanogpt", 99)
    assert "it holds lines of megatron too, of 1 steps: left out" in run.warnings
    (run,) = load(tmp_path / "log", source="megatron")
    assert (run.source, len(run.processes[0].rows)) == ("megatron", 1)
