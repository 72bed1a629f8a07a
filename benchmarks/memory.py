"""Memory of a tracker over many batches: on a log it is flat, in memory it grows.

Each figure is the growth of a fresh process's resident memory, and apart from it the part that is
no mapped file [KiB].

    python benchmarks/memory.py [--batches 100000 1000000]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

CHILD = """
import sys
from headway import GoodputTracker

def resident():
    lines = open("/proc/self/status").read().splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmRSS", "RssAnon"))}
    return sizes["VmRSS"], sizes["RssAnon"]

def batches(tracker, n):
    for _ in range(n):
        tracker.start_batch()
        with tracker.time_source():
            pass
        with tracker.time_transform():
            pass
        with tracker.time_transfer():
            pass
        tracker.end_batch()

log, n = sys.argv[1], int(sys.argv[2])
tracker = GoodputTracker(log or None)
batches(tracker, 1000)
before = resident()
batches(tracker, n)
after = resident()
tracker.summary()
print(after[0] - before[0], after[1] - before[1])
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--batches", type=int, nargs="+", default=[100_000, 1_000_000])
    print(f"{'batches':>12}{'on a log':>22}{'in memory':>22}{'ratio':>9}   growth of RSS (not of files) [KiB]")
    for n in arguments.parse_args().batches:
        with tempfile.TemporaryDirectory() as folder:
            log, memory = growth(str(Path(folder) / "run"), n), growth("", n)
        print(f"{n:12,}{show(log):>22}{show(memory):>22}{memory[0] / max(1, log[0]):8.0f}x")


def growth(log: str, n: int) -> tuple[int, int]:
    """Return how much n batches added to the process [KiB]: in all, and of no file."""
    done = subprocess.run([sys.executable, "-c", CHILD, log, str(n)], check=True, capture_output=True, text=True)
    total, anonymous = map(int, done.stdout.split())
    return total, anonymous


def show(sizes: tuple[int, int]) -> str:
    return f"{sizes[0]:,} ({sizes[1]:,})"


if __name__ == "__main__":
    main()
