"""The demo: what it refuses, what it counts, and the whole of it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headway
from headway.cli import demo
from headway.cli.main import main
from headway.errors import HeadwayError

ROOT = Path(__file__).parents[2]


def test_without_scikit_learn_it_says_what_to_install():
    with pytest.raises(HeadwayError, match=r"pip install scikit-learn.*\[missing-extra\]"):
        demo.require_sklearn(find=lambda _: None)


def test_it_does_not_write_into_a_folder_in_use(tmp_path, capsys):
    (tmp_path / "mine").write_text("")
    assert main(["demo", "--dir", str(tmp_path)]) == 2
    assert "not an empty folder" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["/proc/x", "/dev/null/x"])
def test_a_folder_that_cannot_be_made_is_one_line(path, capsys):
    assert main(["demo", "--dir", path]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"headway: Cannot make the folder {path} for the demo: ")
    assert line.endswith("[no-folder]")


def test_the_commands_it_names_can_be_typed():
    def nowhere(_):
        return None

    assert demo.this_program(["/x/bin/headway", "demo"], which=lambda name: f"/usr/bin/{name}") == "headway"
    assert demo.this_program(["/my x/bin/headway", "demo"], which=nowhere) == "'/my x/bin/headway'"
    assert demo.this_program(["/x/headway/__main__.py"], which=nowhere) == f"{sys.executable} -m headway"


def test_the_steps_of_a_log_are_counted_while_it_is_written(tmp_path):
    assert demo.recorded_steps(tmp_path) == 0
    with headway.start("run", dir=tmp_path) as rec:
        for _ in rec.track(range(3), quiet=True):
            pass
        assert demo.recorded_steps(tmp_path) == 3


def test_a_training_that_fails_is_an_error_of_the_demo(tmp_path, monkeypatch, capfd):
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit(3)")
    start = subprocess.Popen
    monkeypatch.setattr(
        demo, "_start", lambda _: start([sys.executable, str(broken)], stdout=subprocess.PIPE, text=True)
    )
    assert main(["demo", "--dir", str(tmp_path / "new")]) == 2
    assert "exit code 3" in capfd.readouterr().err


def test_the_script_in_the_package_is_the_example():
    assert (ROOT / "src/headway/cli/train_digits.py").resolve() == ROOT / "examples" / "train_digits.py"


@pytest.mark.slow
def test_the_demo_trains_is_killed_resumes_and_reports(tmp_path):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADWAY_")}
    result = subprocess.run(
        [sys.executable, "-m", "headway", "demo", "--dir", str(tmp_path / "demo")],
        capture_output=True, text=True, check=False, env=environment, timeout=300,
    )  # fmt: skip
    assert (result.returncode, result.stderr) == (0, "")
    assert float(re.search(r"training: ([\d.]+)%", result.stdout)[1]) > 85
    assert "2 attempts" in result.stdout
    assert "waiting 1.5 s, as a scheduler would" in result.stdout
    for name in ("productive", "rework", "recovery", "startup", "input_wait", "checkpoint_save"):
        assert name in result.stdout
    logs = tmp_path / "demo" / "logs"
    shown = subprocess.run(
        [sys.executable, "-m", "headway", "report", str(logs), "--json"], capture_output=True, text=True, check=True
    )
    (run,) = json.loads(shown.stdout)["runs"]
    steps = run["steps"]
    assert steps["retained"] == 400
    assert steps["executed"] > 400
    assert run["categories_s"]["recovery"] >= demo.PAUSE_S
