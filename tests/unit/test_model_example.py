import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "blocking_saves.py"


def test_saves_that_block_for_a_minute_cannot_have_given_90_percent():
    shown = subprocess.check_output([sys.executable, "-W", "error", EXAMPLE], text=True).splitlines()
    assert "16,384 GPUs, a failure every 3.09 h" in shown[0]
    kept = {line.split(" every ")[0].strip(): line.split("min:")[1].split("%")[0].strip() for line in shown[1:]}
    assert kept == {"save  1 s": "96.0", "save 10 s": "93.3", "save 30 s": "90.4", "save 60 s": "87.6"}
    assert [line.endswith("not the 90 % that was published") for line in shown[1:]] == [False, False, False, True]
