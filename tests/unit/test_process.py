"""What the first log of a process says of the process: its age, and a note for the launcher."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headway.clock import SYSTEM, ManualClock
from headway.events import Open
from headway.record.process import process_age_ns, tell_launcher

from recorded import events, log_folders, script

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the age is known on Linux only")


@pytest.fixture(autouse=True)
def no_prompt(monkeypatch):
    monkeypatch.delattr(sys, "ps1", raising=False)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)


def ages(root):
    return [events(folder, Open)[0].age_ns for folder in log_folders(root)]


@linux
def test_the_age_is_the_kernels():
    before = process_age_ns(SYSTEM)
    began = time.monotonic_ns()
    assert 0 < before <= process_age_ns(SYSTEM) <= before + time.monotonic_ns() - began + 10**6
    uptime_s = float(Path("/proc/uptime").read_text().split()[0])
    assert before < uptime_s * 1e9


def test_a_prompt_and_a_clock_of_ones_own_have_no_age(monkeypatch):
    assert process_age_ns(ManualClock()) is None
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert process_age_ns(SYSTEM) is None
    monkeypatch.delattr(sys, "ps1")
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    assert process_age_ns(SYSTEM) is None


@pytest.mark.parametrize("stat", [b"", b"7 (x) S 1", b"7 (a) b) " + b"x " * 30, b"7 (x) " + b"9" * 400 + b" 1" * 30])
def test_what_cannot_be_read_is_not_known(tmp_path, monkeypatch, stat):
    (tmp_path / "stat").write_bytes(stat)
    real = open
    monkeypatch.setattr("builtins.open", lambda _, *a, **k: real(tmp_path / "stat", *a, **k))
    assert process_age_ns(SYSTEM) is None or stat.endswith(b" 1")
    monkeypatch.setattr("builtins.open", lambda *_, **__: (_ for _ in ()).throw(PermissionError()))
    assert process_age_ns(SYSTEM) is None


@linux
def test_only_the_first_log_of_a_process_has_it_also_in_a_child(tmp_path):
    text = (
        "import headway, os\n"
        "for name in 'ab': headway.start('r', attempt=name).close()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    for name in 'cd': headway.start('r', attempt=name).close()\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
    )
    began = time.monotonic_ns()
    script(text, tmp_path)
    first, second, childs, childs_second = ages(tmp_path)
    assert 0 < first < time.monotonic_ns() - began + 10**8
    assert childs < first + 10**8
    assert (second, childs_second) == (None, None)


@linux
def test_a_session_at_a_prompt_has_none(tmp_path):
    subprocess.run(
        [sys.executable, "-i", "-q"],
        input="import headway\nheadway.start('r').close()\n",
        env=os.environ | {"HEADWAY_DIR": str(tmp_path)},
        text=True,
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert ages(tmp_path) == [None]


# --- the note for the launcher --------------------------------------------------------------


def notes(folder):
    return [json.loads(path.read_text()) for path in sorted(folder.glob("recorded-*.json"))]


def test_every_log_of_every_process_leaves_a_note(tmp_path):
    launch, logs = tmp_path / "launch", tmp_path / "logs"
    launch.mkdir()
    text = (
        "import headway, subprocess, sys\n"
        "for name in 'ab': headway.start('r', attempt=name, rank=2).close()\n"
        "if len(sys.argv) == 1: subprocess.run([sys.executable, __file__, 'child'], check=True)\n"
    )
    (tmp_path / "train.py").write_text(text)
    script(
        f"import runpy, sys; sys.argv = [{str(tmp_path / 'train.py')!r}]; runpy.run_path(sys.argv[0])",
        logs, HEADWAY_LAUNCH=str(launch),
    )  # fmt: skip
    found = sorted(notes(launch), key=lambda note: note["attempt"])
    assert found == [
        {"path": str(logs / "r" / f"{attempt}-r2"), "run": "r", "attempt": attempt, "rank": 2}
        for attempt in ("a", "a.002", "b", "b.002")
    ]
    names = sorted(path.name.partition("-")[2] for path in launch.iterdir())
    pids = sorted({name.removesuffix(".json").removesuffix("-2") for name in names})
    assert names == sorted(f"{pid}{ending}.json" for pid in pids for ending in ("", "-2"))


def test_a_note_is_never_written_over_and_a_failure_says_nothing(tmp_path, monkeypatch):
    mine = tmp_path / f"recorded-{os.getpid()}.json"
    mine.write_text("{}")
    for folder in (tmp_path, tmp_path / "none", "relative", "", "/\0"):
        monkeypatch.setattr(os, "environ", {"HEADWAY_LAUNCH": str(folder)})
        tell_launcher("/logs/r/a-r0", "r", "a", 0)
    assert mine.read_text() == "{}"
    mine.unlink()
    second = tmp_path / f"recorded-{os.getpid()}-2.json"
    assert json.loads(second.read_text())["attempt"] == "a"
    second.unlink()
    monkeypatch.setattr(os, "environ", {"HEADWAY_LAUNCH": str(tmp_path)})
    tell_launcher("", "r", "a", 0)
    assert list(tmp_path.iterdir()) == []
    tell_launcher("/logs/r/a-r0", "r", "a", 0)
    assert notes(tmp_path) == [{"path": "/logs/r/a-r0", "run": "r", "attempt": "a", "rank": 0}]
