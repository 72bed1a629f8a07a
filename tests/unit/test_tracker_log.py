"""GoodputTracker on a log: its folder, its end, and what it says of the rows in the file."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headway.clock import ManualClock

from tracker_cores import CORES, tracker_class

FILES = Path("/proc/self/fd")


@pytest.fixture(params=CORES)
def make(request):
    return tracker_class(request.param)


def only_attempt(run):
    (folder,) = run.iterdir()
    return folder


def events(run):
    return [json.loads(line) for line in (only_attempt(run) / "events.jsonl").read_text().splitlines()]


def test_a_run_folder_gets_an_attempt_with_both_files(make, tmp_path):
    clock = ManualClock(monotonic_ns=5)
    with make(tmp_path / "r1", clock=clock, phases=["tokenize"]) as tracker:
        for _ in range(3):
            with tracker.batch(), tracker.time("tokenize"):
                clock.advance(0.25)
        assert tracker.per_batch("tokenize") == [0.25] * 3
    first, *_, last = events(tmp_path / "r1")
    assert (first["kind"], first["run"], first["rows"], first["phases"]) == ("open", "r1", "batch", ["tokenize"])
    assert (last["kind"], last["reason"], last["at"]) == ("close", "finished", 750_000_005)
    table = np.load(only_attempt(tmp_path / "r1") / "steps.npy")
    assert table["step"].tolist() == [0, 1, 2]
    assert table["tokenize"].tolist() == [250_000_000] * 3
    assert tracker.per_batch_wall == [0.25] * 3  # still readable
    assert tracker.summary().total_batches == 3


def test_an_exception_closes_as_failed(make, tmp_path):
    with pytest.raises(KeyError), make(tmp_path / "r1"):
        raise KeyError
    assert events(tmp_path / "r1")[-1]["reason"] == "failed"


def test_batches_after_closing_are_harmless(make, tmp_path):
    tracker = make(tmp_path / "r1")
    tracker.start_batch()
    tracker.close("preempted")
    tracker.end_batch()
    tracker.close()
    assert len(np.load(only_attempt(tmp_path / "r1") / "steps.npy")) == 0
    assert tracker.per_batch_wall == []
    assert events(tmp_path / "r1")[-1]["reason"] == "preempted"


def test_a_folder_that_cannot_be_made_is_counted(make, tmp_path):
    (tmp_path / "file").write_text("")
    with make(tmp_path / "file" / "r1") as tracker, tracker.batch():
        pass
    assert tracker.summary().total_batches == 1
    assert tracker.per_batch_wall == []
    assert tracker.distribution() == {}
    assert "folder" in tracker.faults.counts


def test_flushing_is_asked_for_at_the_tracker(make, tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    with make(tmp_path / "r1", flush_every=5) as tracker:
        for _ in range(20):
            with tracker.batch():
                pass
    assert len(flushed) == 4


def test_memory_stays_flat(make, tmp_path):
    with make(tmp_path / "r1") as tracker:
        blocks = []
        for _ in range(3):
            for _ in range(20_000):
                tracker.start_batch()
                tracker.end_batch()
            blocks.append(sys.getallocatedblocks())
    assert blocks[2] - blocks[1] < 100


def test_normal_exit_closes_it(tmp_path):
    code = """
import os, sys
from headway import GoodputTracker
tracker = GoodputTracker(sys.argv[1])
with tracker.batch():
    pass
if not os.fork():
    with tracker.batch():
        pass
    tracker.close()
    sys.exit()
os.wait()
tracker.start_batch()
"""
    subprocess.run([sys.executable, "-c", code, tmp_path / "r1"], check=True)
    kinds = [event["kind"] for event in events(tmp_path / "r1")]
    assert kinds.count("open") == kinds.count("close") == 1
    assert len(np.load(only_attempt(tmp_path / "r1") / "steps.npy")) == 1


@pytest.mark.skipif(not FILES.exists(), reason="Linux only")
def test_a_tracker_that_nobody_has_any_more_lets_its_files_go(make, tmp_path):
    before = len(list(FILES.iterdir()))
    for _ in range(5):
        tracker = make(tmp_path / "r1")
        with tracker.batch():
            pass
        timer = tracker.time_source()
    del tracker
    gc.collect()
    assert len(list(FILES.iterdir())) == before + 3  # a timer keeps the last
    with timer:
        pass
    del timer
    gc.collect()
    assert len(list(FILES.iterdir())) == before
    for folder in (tmp_path / "r1").iterdir():
        assert [len(np.load(folder / "steps.npy")), (folder / "steps.npy").stat().st_size] == [1, 4096 + 56]
        assert '"close"' not in (folder / "events.jsonl").read_text()
