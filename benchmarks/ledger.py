"""The ledger and a poll of it, against ml-goodput-measurement 0.2.3 on the same history, in one run.

usage: ledger.py [--steps 10000 100000 1000000] [--limit SECONDS]

The peer reads its log from memory, Headway its log from disk, both up to one step before the
end and then once more. The peer runs in an environment of its own, benchmarks/.peers/goodput.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from headway import account
from headway.sources.native.follow import Follower

from history import write_headway_log
from peers import environment

HERE = Path(__file__).parent
PEER = "ml-goodput-measurement==0.2.3"


def ours(n_steps: int) -> tuple[float, float, dict[str, float]]:
    """Return the medians of a first read with its ledger and of a poll after 100 new steps [s]."""
    wholes, polls = [], []
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "bench"
        write_headway_log(folder, n_steps)
        rows = folder / "a19-r0" / "steps.npy"
        full = rows.read_bytes()
        for _ in range(5):
            rows.write_bytes(full[: 4096 + (len(full) - 4096) // 56 * 56 - 100 * 56])
            begin = time.perf_counter()
            follower = Follower(folder)
            account(follower.poll()[0])
            first = time.perf_counter()
            _append(rows, full)
            added = time.perf_counter()
            ledger = account(follower.poll()[0])
            wholes.append(first - begin)
            polls.append(time.perf_counter() - added)
    return statistics.median(wholes), statistics.median(polls), ledger.seconds


def _append(path: Path, full: bytes) -> None:
    """Write the rows that are missing, as the running process would."""
    with path.open("ab") as out:
        out.write(full[out.tell() :])


def peer(python: Path, n_steps: int, limit_s: float) -> dict[str, float] | None:
    """Return what the peer took, or None when it took longer than the limit [s]."""
    command = [str(python), str(HERE / "peer_goodput.py"), str(n_steps)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=True)
    except subprocess.TimeoutExpired:
        return None
    return json.loads(done.stdout)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    options.add_argument("--limit", type=float, default=300.0, help="longest wait for the peer [s]")
    given = options.parse_args()
    python = environment("goodput", PEER)
    print(f"{'steps':>9} {'headway':>10} {'peer':>10} {'ratio':>9} {'poll':>10} {'peer':>10} {'ratio':>9}")
    for n_steps in given.steps:
        whole, poll, _ = ours(n_steps)
        theirs = peer(python, n_steps, given.limit)
        whole_p, poll_p = (given.limit, given.limit) if theirs is None else (theirs["whole_s"], theirs["poll_s"])
        over = "" if theirs else ">"
        first = (
            f"{whole * 1e3:7.1f} ms {over + format(whole_p, '.3f'):>8} s {over + format(whole_p / whole, '.0f'):>8}x"
        )
        later = f"{poll * 1e3:7.1f} ms" + (f" {poll_p:8.3f} s {poll_p / poll:8.0f}x" if theirs else "")
        print(f"{n_steps:>9} {first} {later}")


if __name__ == "__main__":
    sys.exit(main())
