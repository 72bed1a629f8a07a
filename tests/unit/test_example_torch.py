import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headway.events import Begin, Restored, Saved

from recorded import events, log_folders, reason, rows

pytest.importorskip("torch")
pytest.importorskip("sklearn")

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_digits_torch.py"


def start(home):
    return subprocess.Popen([sys.executable, EXAMPLE, home], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_saves(home, n, process):
    """Wait until the training has saved so often: the kill is to come in its middle."""
    while process.poll() is None:
        if sum(len(events(folder, Saved)) for folder in log_folders(home / "logs")) >= n:
            return
        time.sleep(0.02)


def test_it_learns_is_killed_and_goes_on(tmp_path):
    first = start(tmp_path)
    wait_for_saves(tmp_path, 2, first)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    second = start(tmp_path)
    out, err = second.communicate(timeout=120)
    assert second.returncode == 0, err
    assert float(out.split(":")[1].strip().rstrip("%")) > 90

    killed, resumed = log_folders(tmp_path / "logs")
    assert (reason(killed), reason(resumed)) == (None, "finished")
    (restored,) = events(resumed, Restored)
    assert restored.step >= max(event.step for event in events(killed, Saved))
    steps = rows(resumed)["step"].tolist()
    assert steps == list(range(restored.step + 1, steps[-1] + 1))
    assert steps[-1] == events(resumed, Saved)[-1].step == 12 * 23 - 1
    assert {event.category for event in events(resumed, Begin)} == {
        "checkpoint_restore",
        "checkpoint_save",
        "evaluation",
    }
    assert err == ""
