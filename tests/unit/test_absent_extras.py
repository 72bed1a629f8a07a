"""The core works where no extra is installed, and says what to install where one is needed."""

import subprocess
import sys

import pytest

EXTRAS = ["sklearn", "torch", "jax", "transformers", "lightning", "plotly", "ray", "pandas"]
BLOCK = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))\n"


def run(code, folder):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", BLOCK + code], cwd=folder, capture_output=True, text=True, check=False
    )


def test_a_run_is_recorded_and_reported_without_any_extra(tmp_path):
    done = run(
        "import headway\n"
        "with headway.start('r1') as rec:\n"
        "    for _ in rec.track(range(5)):\n"
        "        with rec.tracker.time_transfer(wait_for=[1, {'a': 2.0}]): pass\n"
        "    rec.saved(4)\n"
        "ledger = headway.account(headway.load('headway-logs'))\n"
        "assert ledger.steps.retained == 5, ledger.steps\n"
        "from headway.cli.main import main\n"
        "sys.exit(main(['report', 'headway-logs']))\n",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "runtime goodput R" in done.stdout


@pytest.mark.parametrize("name", EXTRAS)
def test_no_extra_is_imported_by_the_way(tmp_path, name):
    code = (
        "import sys, headway\n"
        "headway.start, headway.track, headway.GoodputTracker, headway.load, headway.account, headway.Ledger\n"
        f"assert {name!r} not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_demo_says_what_to_install(tmp_path):
    done = run("import importlib.util\n"
               "importlib.util.find_spec = lambda name, *rest: None\n"
               "from headway.cli.main import main\n"
               "sys.exit(main(['demo']))\n", tmp_path)  # fmt: skip
    assert done.returncode == 2
    assert "pip install scikit-learn" in done.stderr
