"""The example that takes a small run to 1,024 devices runs, on its own run and on one that is given."""

import runpy
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_at_scale.py"


def run(*arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLE, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_records_a_run_and_takes_it_to_scale():
    shown = run()
    assert "tiny: R " in shown
    assert "in 2 attempts" in shown
    assert "1 failure in " in shown
    assert "on 1,024 devices, a failure every 28.85 h, saved every 41.3 min: R " in shown
    assert "save in the background: 30.0 s each: +" in shown


def test_it_takes_a_run_that_is_given(tmp_path):
    runpy.run_path(str(EXAMPLE))["record"](tmp_path)
    assert run(tmp_path).startswith("tiny: R ")
