"""steps.npy outlives its writer: killed at any moment, read while it grows, left alone by a fork."""

import os
import select
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from headway.clock import ManualClock
from headway.errors import ArgumentError
from headway.record.faults import Faults
from headway.record.steplog import HEADER_BYTES, StepLog, header

from tracker_cores import CORES, tracker_class

PHASES = ("source", "transform", "transfer")
TESTS = str(Path(__file__).parents[1])


def log_and_tracker(core, path, **options):
    faults = Faults()
    steps = StepLog(path, PHASES, faults, **options)
    return steps, tracker_class(core)(_steps=steps, _faults=faults)


def record(tracker, n):
    for _ in range(n):
        tracker.start_batch()
        with tracker.time_source():
            pass
        tracker.end_batch()


def whole_so_far(table):
    """Return how many rows are whole, of a file that may be growing."""
    good = table["seq"] == np.arange(1, len(table) + 1)
    return int(good.argmin()) if not good.all() else len(table)


def whole(table):
    """Return how many rows are whole; after the first that is not, none may be."""
    n = whole_so_far(table)
    assert not table["seq"][n:].any()
    return n


def check_rows(table, n):
    assert whole(table) >= n
    rows = table[: whole(table)]
    assert np.array_equal(rows["step"], np.arange(len(rows)))
    assert (rows["end_ns"] >= rows["start_ns"]).all()
    assert (rows["source"] <= rows["end_ns"] - rows["start_ns"]).all()
    assert (np.diff(rows["start_ns"]) >= 0).all()


@pytest.fixture(params=CORES)
def core(request):
    tracker_class(request.param)
    return request.param


class TestFile:
    def test_it_is_whole_after_closing(self, core, tmp_path):
        path = tmp_path / "steps.npy"
        steps, tracker = log_and_tracker(core, path, chunk_rows=512)
        record(tracker, 1300)
        tracker.detach()
        steps.close()
        steps.close()
        table = np.load(path, mmap_mode="r")
        assert table.shape == (1300,)
        assert table.dtype.names == ("step", "start_ns", "end_ns", *PHASES, "seq")
        assert path.stat().st_size == HEADER_BYTES + 1300 * 56
        check_rows(table, 1300)
        assert np.array_equal(np.load(path), table)

    @pytest.mark.parametrize("n", [0, 1, 511, 512, 513])
    def test_at_the_border_of_a_chunk(self, core, tmp_path, n):
        steps, tracker = log_and_tracker(core, tmp_path / "steps.npy", chunk_rows=512)
        record(tracker, n)
        check_rows(np.load(tmp_path / "steps.npy", mmap_mode="r"), n)
        tracker.detach()
        steps.close()
        assert len(np.load(tmp_path / "steps.npy")) == n

    def test_a_chunk_that_begins_in_the_middle_of_a_page(self, core, tmp_path):
        steps, tracker = log_and_tracker(core, tmp_path / "steps.npy", chunk_rows=7)
        record(tracker, 100)
        check_rows(np.load(tmp_path / "steps.npy"), 100)
        tracker.detach()
        steps.close()
        assert len(np.load(tmp_path / "steps.npy")) == 100

    def test_many_phases(self, core, tmp_path):
        names = tuple(f"phase_{n}" for n in range(64))
        steps = StepLog(tmp_path / "steps.npy", names, Faults())
        tracker = tracker_class(core)(_steps=steps, phases=names, clock=ManualClock())
        tracker.start_batch()
        tracker.record("phase_63", 1.5)
        tracker.end_batch()
        assert tracker.per_batch("phase_63") == [1.5]
        assert np.load(tmp_path / "steps.npy")["phase_63"][0] == 1_500_000_000

    def test_names_too_long_for_the_header(self):
        with pytest.raises(ValueError, match="header"):
            header(["x" * 5000], 0)

    def test_the_names_that_a_tracker_takes_fit_the_header(self, core):
        kind = tracker_class(core)
        names = [f"{'x' * 29}{n:02d}" for n in range(64)]
        kind(phases=names)
        assert len(header(names, 10**15)) == HEADER_BYTES
        with pytest.raises(ArgumentError):
            kind(phases=[f"{'x' * 30}{n:02d}" for n in range(64)])

    def test_reset_keeps_the_rows_and_starts_the_summary_anew(self, core, tmp_path):
        _, tracker = log_and_tracker(core, tmp_path / "steps.npy")
        record(tracker, 3)
        tracker.reset()
        assert tracker.per_batch_wall == []
        record(tracker, 2)
        assert tracker.summary().total_batches == len(tracker.per_batch_source) == 2
        assert [batch.batch for batch in tracker.worst(9)] in ([3, 4], [4, 3])
        assert whole(np.load(tmp_path / "steps.npy", mmap_mode="r")) == 5

    def test_flushing(self, core, tmp_path, monkeypatch):
        flushed = []
        monkeypatch.setattr(os, "fsync", flushed.append)
        for options, expected in (({"flush_every": 10}, 10), ({"flush_s": 0.0}, 101), ({}, 0)):
            flushed.clear()
            path = tmp_path / f"{expected}.npy"
            _, tracker = log_and_tracker(core, path, **options)
            record(tracker, 100)
            assert len(flushed) == expected
            check_rows(np.load(path), 100)

    def test_after_closing_rows_are_lost_and_counted(self, core, tmp_path):
        steps, tracker = log_and_tracker(core, tmp_path / "steps.npy")
        record(tracker, 2)
        assert steps.refill(2) is not None
        steps.close()  # a window is out: the file is not cut under it
        assert steps._faults.counts == {"close": 1}
        record(tracker, 1)
        assert whole(np.load(tmp_path / "steps.npy")) == 3
        tracker.detach()
        assert steps.append(b"x" * 56) is False
        assert steps._faults.counts == {"close": 1, "rows": 1}

    def test_a_file_that_is_there_is_not_touched(self, core, tmp_path):
        path = tmp_path / "steps.npy"
        path.write_bytes(b"mine")
        steps, tracker = log_and_tracker(core, path)
        record(tracker, 5)
        assert steps._faults.counts == {"rows": 5}
        assert path.read_bytes() == b"mine"
        assert tracker.summary().total_batches == 5

    def test_a_folder_that_comes_later(self, core, tmp_path):
        _, tracker = log_and_tracker(core, tmp_path / "later" / "steps.npy")
        record(tracker, 3)
        (tmp_path / "later").mkdir()
        record(tracker, 400)
        assert tracker.faults.counts == {"rows": 3}
        table = np.load(tmp_path / "later" / "steps.npy")
        assert whole(table) == len(tracker.per_batch_wall) == 400
        assert table["step"][0] == 3

    def test_a_window_of_the_wrong_size_is_refused(self, core):
        class Steps:
            appended = 0

            def refill(self, n_rows):
                return memoryview(bytearray(57))

            def append(self, row):
                self.appended += 1
                raise RuntimeError("nowhere")

        steps = Steps()
        tracker = tracker_class(core)(_steps=steps)
        record(tracker, 2)
        assert steps.appended == 2
        assert tracker.faults.counts == {"rows": 3}


def test_readers_can_load_it_at_any_moment(core, tmp_path):
    path = tmp_path / "steps.npy"
    code = f"""
import sys
sys.path.insert(0, {TESTS!r})
from crash.test_steplog import log_and_tracker, record
steps, tracker = log_and_tracker({core!r}, {str(path)!r}, chunk_rows=64)
print("ready", flush=True)
for _ in range(40):
    record(tracker, 500)
print("done", flush=True)
sys.stdin.read()
tracker.detach()
steps.close()
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        done, seen = False, 0
        while not done:
            done = bool(select.select([child.stdout], [], [], 0)[0])
            n = whole_so_far(np.load(path, mmap_mode="r"))
            assert n >= seen
            seen = n
        child.stdin.close()
    assert child.returncode == 0
    assert len(np.load(path)) == 20_000


@pytest.mark.parametrize("moment", range(8))
def test_a_killed_process_loses_no_whole_row(core, tmp_path, moment):
    path = tmp_path / "steps.npy"
    code = f"""
import sys
sys.path.insert(0, {TESTS!r})
from crash.test_steplog import log_and_tracker, record
steps, tracker = log_and_tracker({core!r}, {str(path)!r}, chunk_rows=64)
while True:
    record(tracker, 1)
    print(tracker._n_rows, flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=-1) as child:
        for _ in range(1 + 37 * moment):  # it goes on by itself meanwhile, so the kill meets it anywhere
            child.stdout.readline()
        child.send_signal(signal.SIGKILL)
        announced = child.stdout.read().split(b"\n")[:-1]
    assert child.returncode == -signal.SIGKILL
    last = int(announced[-1]) if announced else 1 + 37 * moment
    check_rows(np.load(path, mmap_mode="r"), last)


def test_a_killed_writer_in_full_speed_tears_no_row(core, tmp_path):
    path = tmp_path / "steps.npy"
    code = f"""
import sys
sys.path.insert(0, {TESTS!r})
from crash.test_steplog import log_and_tracker, record
steps, tracker = log_and_tracker({core!r}, {str(path)!r}, chunk_rows=512)
print(flush=True)
record(tracker, 1 << 60)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=-1) as child:
        child.stdout.readline()
        while whole_so_far(np.load(path, mmap_mode="r")) < 3000:
            pass
        child.kill()
    check_rows(np.load(path, mmap_mode="r"), 3000)


def test_a_forked_child_leaves_the_log_alone(core, tmp_path):
    path = tmp_path / "steps.npy"
    steps, tracker = log_and_tracker(core, path, chunk_rows=64)
    record(tracker, 10)
    tracker.start_batch()
    child = os.fork()
    if child == 0:
        try:
            tracker.detach()
            steps.abandon()
            tracker.end_batch()
            record(tracker, 1000)
            steps.close()
            os._exit(0 if tracker.summary().total_batches == 1011 and not tracker.faults.counts else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert whole(np.load(path, mmap_mode="r")) == 10
    tracker.end_batch()
    record(tracker, 100)
    tracker.detach()
    steps.close()
    table = np.load(path)
    assert len(table) == 111
    check_rows(table, 111)


def test_a_child_that_only_closes_writes_nothing(core, tmp_path):
    path = tmp_path / "steps.npy"
    steps, tracker = log_and_tracker(core, path, chunk_rows=64)
    record(tracker, 10)
    before = path.read_bytes()
    child = os.fork()
    if child == 0:
        tracker.detach()
        steps.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert path.read_bytes() == before
    assert tracker.faults.counts == {}


def test_threads_record_on_one_log(core, tmp_path):
    steps, tracker = log_and_tracker(core, tmp_path / "steps.npy", chunk_rows=64)
    threads = [threading.Thread(target=record, args=(tracker, 500)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tracker.detach()
    steps.close()
    table = np.load(tmp_path / "steps.npy")
    assert whole(table) == len(table) == tracker._n_rows > 0


def test_the_shape_never_exceeds_the_file(tmp_path, monkeypatch):
    """Every write of the header is looked at: what it says is there."""
    path, said = tmp_path / "steps.npy", []
    pwrite = os.pwrite

    def look(fd, data, at):
        done = pwrite(fd, data, at)
        if at < HEADER_BYTES:
            said.append(len(np.load(path, mmap_mode="r")))
        return done

    monkeypatch.setattr(os, "pwrite", look)
    steps, tracker = log_and_tracker("python", path, chunk_rows=100)
    record(tracker, 250)
    tracker.detach()
    steps.close()
    assert said == [0, 100, 200, 300, 250]


def test_the_bytes_of_a_row(core, tmp_path):
    clock = ManualClock(monotonic_ns=1000)
    steps = StepLog(tmp_path / "steps.npy", PHASES, Faults())
    tracker = tracker_class(core)(_steps=steps, clock=clock)
    tracker.begin_step(12)
    with tracker.time_transform():
        clock.advance(2e-9)
    clock.advance(5e-9)
    tracker.end_step()
    row = (tmp_path / "steps.npy").read_bytes()[HEADER_BYTES : HEADER_BYTES + 56]
    assert struct.unpack("<7q", row) == (12, 1000, 1007, 0, 2, 0, 1)


@pytest.mark.slow
def test_ten_million_rows(tmp_path):
    path = tmp_path / "steps.npy"
    steps, tracker = log_and_tracker("compiled", path)
    start, end = tracker.start_batch, tracker.end_batch
    for _ in range(10_000_000):
        start()
        end()
    tracker.detach()
    steps.close()
    table = np.load(path, mmap_mode="r")
    assert len(table) == 10_000_000
    assert whole(table) == 10_000_000
    assert tracker.faults.counts == {}
    del table
    path.unlink()
