"""A disk that is full, or a limit on the file: training goes on, and what is there stays readable."""

import errno
import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headway.record.faults import Faults
from headway.record.steplog import HEADER_BYTES, StepLog

from tracker_cores import CORES, tracker_class

TESTS = str(Path(__file__).parents[1])
PHASES = ("source", "transform", "transfer")


@pytest.fixture(params=CORES)
def core(request):
    tracker_class(request.param)
    return request.param


def child(code, *arguments):
    """Run code in a process of its own: SIGBUS and limits are the whole process's."""
    head = f"import sys; sys.path.insert(0, {TESTS!r})\nfrom crash.test_steplog import log_and_tracker, record, whole\n"
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", head + code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", place], check=False, capture_output=True
    ).returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk(core, small_disk):
    done = child(
        """
import numpy as np, os
steps, tracker = log_and_tracker(sys.argv[1], sys.argv[2] + "/steps.npy", chunk_rows=1024)
record(tracker, 10_000)
lost = tracker.faults.counts["rows"]
table = np.load(sys.argv[2] + "/steps.npy", mmap_mode="r")
assert whole(table) == len(table) == 10_000 - lost == tracker._n_rows, (whole(table), lost)
assert 4000 < len(table) <= 256 * 1024 // 56
assert tracker.summary().total_batches == 10_000
assert "No space" in tracker.faults.errors["rows"]
tracker.detach()
steps.close()
assert len(np.load(sys.argv[2] + "/steps.npy")) == 10_000 - lost
assert set(tracker.faults.counts) == {"rows"}
""",
        core,
        small_disk,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("[rows]") == 1


def test_a_store_into_a_hole_is_what_would_kill(small_disk):
    """The control: without the reserve, the test above would end by SIGBUS."""
    done = child(
        """
import mmap, os
fd = os.open(sys.argv[1] + "/hole", os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, 1 << 20)
hole = mmap.mmap(fd, 1 << 20)
for at in range(0, 1 << 20, 4096):
    hole[at] = 1
""",
        small_disk,
    )
    assert done.returncode == -signal.SIGBUS


def test_a_disk_that_fills_up_under_the_map_and_is_freed_again(core, small_disk):
    done = child(
        """
import numpy as np, os
path = sys.argv[2] + "/steps.npy"
steps, tracker = log_and_tracker(sys.argv[1], path, chunk_rows=1024)
record(tracker, 10)
ballast = os.open(sys.argv[2] + "/ballast", os.O_CREAT | os.O_WRONLY)
try:
    while os.write(ballast, b"x" * 4096):
        pass
except OSError:
    pass
record(tracker, 1014)  # into the chunk that was reserved: a hole would be SIGBUS here
assert tracker.faults.counts == {}
assert whole(np.load(path, mmap_mode="r")) == 1024
record(tracker, 500)  # what is left of the last page, then nothing
lost = tracker.faults.counts["rows"]
os.ftruncate(ballast, 0)
record(tracker, 600)
assert tracker.faults.counts == {"rows": lost}
table = np.load(path, mmap_mode="r")
assert whole(table) == 1024 + 1100 - lost
assert steps._map is not None  # it maps again
assert (np.diff(table["step"][: whole(table)]) > 1).sum() == 1
""",
        core,
        small_disk,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("limit", [0, 100, HEADER_BYTES, HEADER_BYTES + 30, HEADER_BYTES + 560, 60_000])
def test_a_limit_on_the_size_of_a_file(core, tmp_path, limit):
    done = child(
        """
import numpy as np, os, resource
path, limit = sys.argv[2] + "/steps.npy", int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
steps, tracker = log_and_tracker(sys.argv[1], path, chunk_rows=512)
record(tracker, 2000)
assert tracker.summary().total_batches == 2000
lost = tracker.faults.counts["rows"]
n = max(0, (limit - 4096) // 56)
assert lost == 2000 - n, (lost, n)
if limit >= 4096:
    assert whole(np.load(path, mmap_mode="r")) == n
    assert os.path.getsize(path) == 4096 + 56 * n  # cut back to whole rows
else:
    assert not os.path.exists(path)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
record(tracker, 1000)
assert tracker.faults.counts == {"rows": lost}
tracker.detach()
steps.close()
assert len(np.load(path)) == n + 1000
""",
        core,
        tmp_path,
        limit,
    )
    assert done.returncode == 0, done.stderr


def fill(core, path, n, **options):
    faults = Faults()
    steps = StepLog(path, PHASES, faults, **options)
    tracker = tracker_class(core)(_steps=steps, _faults=faults)
    for _ in range(n):
        tracker.start_batch()
        tracker.end_batch()
    return steps, tracker


def fails(code):
    def call(*arguments, **options):
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EOPNOTSUPP, errno.ENODEV])
def test_where_space_cannot_be_reserved_rows_are_appended(core, tmp_path, monkeypatch, code):
    monkeypatch.setattr(os, "posix_fallocate", fails(code))
    steps, tracker = fill(core, tmp_path / "steps.npy", 300)
    assert len(np.load(tmp_path / "steps.npy")) == 300
    assert tracker.faults.counts == {}
    tracker.detach()
    steps.close()
    table = np.load(tmp_path / "steps.npy")
    assert np.array_equal(table["seq"], np.arange(1, 301))


def test_where_no_map_can_be_had_rows_are_appended(core, tmp_path, monkeypatch):
    monkeypatch.setattr(mmap, "mmap", fails(errno.ENODEV))
    fill(core, tmp_path / "steps.npy", 300)
    assert len(np.load(tmp_path / "steps.npy")) == 300


def test_a_page_that_cannot_be_written_is_met_before_a_store(core, tmp_path, monkeypatch):
    monkeypatch.setattr("headway.record.steplog._fault_in", fails(errno.EFAULT))
    fill(core, tmp_path / "steps.npy", 300)
    assert len(np.load(tmp_path / "steps.npy")) == 300


def test_without_posix_fallocate_rows_are_appended(core, tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    fill(core, tmp_path / "steps.npy", 600)
    assert len(np.load(tmp_path / "steps.npy")) == 600


def test_a_short_write_is_cut_back_to_the_row(core, tmp_path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    pwrite, tick = os.pwrite, iter(range(10**6))

    def short(fd, data, at):
        if len(data) == 56 and next(tick) % 3 == 2:
            return pwrite(fd, data[:20], at)
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", short)
    _, tracker = fill(core, tmp_path / "steps.npy", 30)
    table = np.load(tmp_path / "steps.npy")
    assert tracker.faults.counts == {"rows": 10}
    assert np.array_equal(table["seq"], np.arange(1, 21))
    assert (tmp_path / "steps.npy").stat().st_size == HEADER_BYTES + 20 * 56


def test_a_deleted_folder_does_not_disturb(core, tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    steps, tracker = fill(core, folder / "steps.npy", 10, chunk_rows=64)
    (folder / "steps.npy").unlink()
    folder.rmdir()
    for _ in range(200):
        tracker.start_batch()
        tracker.end_batch()
    assert tracker.summary().total_batches == 210
    assert tracker.per_batch_wall == []
    assert set(tracker.faults.counts) == {"read"}
    tracker.detach()
    steps.close()
