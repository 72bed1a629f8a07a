"""A disk that is full, gone or not ours never reaches training."""

import os
import subprocess

import pytest

from headway.events import Fault, Saved

from recorded import events, log_folders, reason, rows, script

LOOP = """
import headway, os, resource, shutil, signal, sys
with headway.start('r', attempt='a') as rec:
    {before}
    for n in rec.track(range({n})):
        if n % 10 == 0:
            rec.saved(n)
    {after}
print('trained', n + 1, dict(rec.faults.counts))
"""


def train(root, before="pass", after="pass", n=100, **environ):
    ended = script(LOOP.format(before=before, after=after, n=n), root, **environ)
    assert ended.stdout.startswith(f"trained {n}")
    return ended


@pytest.mark.parametrize("pure", ["0", "1"])
def test_a_limit_on_the_size_of_files(tmp_path, pure):
    before = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (6000, -1))"
    ended = train(tmp_path, before=before, n=30_000, HEADWAY_PURE_PYTHON=pure)
    (folder,) = log_folders(tmp_path)
    assert "'event-write'" in ended.stdout
    assert "'rows'" in ended.stdout
    assert 16_000 < len(rows(folder)) < 30_000
    assert len(ended.stderr.splitlines()) <= 4


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_that_is_freed_again_loses_no_event(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no mount here")
    try:
        fill = "open(os.environ['HEADWAY_DIR'] + '/ballast', 'wb', 0)"
        before = (
            f"ballast = {fill}\n"
            "    try:\n        while ballast.write(b'x' * 512): pass\n    except OSError: ballast.close()"
        )
        ended = train(disk, before=before, after="os.unlink(os.environ['HEADWAY_DIR'] + '/ballast')", n=5000)
        (folder,) = log_folders(disk)
        assert "event-write" in ended.stdout
        assert f"cannot write {folder}/steps.npy: No space left on device. Free some space there" in ended.stderr
        assert f"bytes of {folder}/events.jsonl were written. Free some space there" in ended.stderr
        assert all(line.startswith("headway: ") for line in ended.stderr.splitlines())
        assert [event.step for event in events(folder, Saved)] == list(range(0, 5000, 10))
        assert reason(folder) == "finished"
        assert {fault.what for fault in events(folder, Fault)} >= {"event-write"}
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_folder_that_is_deleted_while_it_is_written(tmp_path):
    ended = train(tmp_path, before="shutil.rmtree(rec.path)", n=40_000)
    assert "log-deleted" in ended.stdout
    assert log_folders(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written(tmp_path):
    tmp_path.chmod(0o500)
    ended = train(tmp_path)
    assert "'folder': 1" in ended.stdout


def test_a_file_system_that_is_read_only():
    ended = train("/proc/headway")
    assert "'folder': 1" in ended.stdout
    assert "[folder]" in ended.stderr
    assert ended.stderr.startswith("headway: folder: cannot make /proc/headway/r: ")
    assert "Set HEADWAY_DIR, or give dir=" in ended.stderr


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "r").write_text("mine")
    ended = train(tmp_path)
    assert "'folder': 1" in ended.stdout
    assert (tmp_path / "r").read_text() == "mine"


def test_no_more_file_descriptors(tmp_path):
    before = "resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4096)); other = headway.start('r', attempt='b')"
    ended = train(tmp_path, before=before)
    assert "trained 100" in ended.stdout
