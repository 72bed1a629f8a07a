"""What one recorded batch costs: start, three timed phases, end.

Side by side in one run: our tracker on a log and in memory, compiled and in Python; datarax 0.1.4,
which keeps batches in memory only; and eight bare reads of the clock, which no tracker can go
below by much. The contenders take turns, so that a busy machine slows all of them; the figures
are medians, the ratios medians of the turns' own ratios.

    python benchmarks/record.py [--peer goodput.py] [--batches 20000] [--turns 31]
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from types import ModuleType
from unittest import mock

from headway.record import hot, tracker

PEERS = Path(__file__).parent / ".peers"
BARE, PEER = "eight perf_counter_ns()", "datarax 0.1.4, in memory"
LOG, PYTHON = "Headway on a log", "the same in Python"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--peer", type=Path, help="datarax's goodput.py; by default it is downloaded")
    arguments.add_argument("--batches", type=int, default=20_000, help="batches a turn")
    arguments.add_argument("--turns", type=int, default=31)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        on_log = {LOG: tracker.GoodputTracker(Path(folder, "c")), PYTHON: tracker_in_python()(Path(folder, "python"))}
        loops = contenders(load("peer_goodput", given.peer or fetch_peer()), on_log)
        times = take_turns(loops, given.batches, given.turns)
        for one in on_log.values():
            one.close()
    show(times)


def contenders(peer: ModuleType, on_log: dict[str, tracker.GoodputTracker]) -> dict[str, Callable[[int], None]]:
    """Return what is measured, by name: each a function of the number of batches."""

    def in_memory(n: int) -> None:
        loop_over(tracker.GoodputTracker())(n)

    def the_peer(n: int) -> None:
        loop_over(peer.GoodputTracker())(n)

    logs = {name: loop_over(one) for name, one in on_log.items()}
    return {BARE: bare_reads, **logs, "Headway in memory": in_memory, PEER: the_peer}


def loop_over(one) -> Callable[[int], None]:
    """Return the loop that every tracker runs."""

    def loop(n: int) -> None:
        for _ in range(n):
            one.start_batch()
            with one.time_source():
                pass
            with one.time_transform():
                pass
            with one.time_transfer():
                pass
            one.end_batch()

    return loop


def bare_reads(n: int) -> None:
    read = perf_counter_ns
    for _ in range(n):
        read()
        read()
        read()
        read()
        read()
        read()
        read()
        read()


def take_turns(loops: dict[str, Callable[[int], None]], batches: int, turns: int) -> dict[str, list[float]]:
    """Return each one's time of a batch in every turn [ns]; the first turn warms up."""
    times: dict[str, list[float]] = {name: [] for name in loops}
    for turn in range(turns + 1):
        for name, loop in loops.items():
            start = time.perf_counter_ns()
            loop(batches)
            if turn:
                times[name].append((time.perf_counter_ns() - start) / batches)
    return times


def show(times: dict[str, list[float]]) -> None:
    def ratio(over: str, under: str) -> float:
        return statistics.median(a / b for a, b in zip(times[over], times[under], strict=True))

    print(f"Python {sys.version.split()[0]}, compiled core: {hot.COMPILED}")
    print(f"{'one batch':28}{'median ns':>10}{'best ns':>9}{'x bare reads':>14}{'faster than datarax':>21}")
    for name, taken in times.items():
        bare, faster = ratio(name, BARE), ratio(PEER, name)
        print(f"{name:28}{statistics.median(taken):10.0f}{min(taken):9.0f}{bare:13.2f}x{faster:20.2f}x")
    print(f"on a log: {ratio(PEER, LOG):.2f}x as fast as datarax in memory (bar 3), "
          f"{ratio(LOG, BARE):.2f}x eight bare reads (goal 1.3)")  # fmt: skip


def tracker_in_python() -> type[tracker.GoodputTracker]:
    """Return the tracker on the core in Python, beside the compiled one."""
    with mock.patch.object(hot, "Core", hot.PythonCore):
        return load("tracker_in_python", Path(tracker.__file__)).GoodputTracker


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def fetch_peer() -> Path:
    """Download datarax 0.1.4 without its dependencies, once, and return its one module."""
    module = PEERS / "datarax-0.1.4" / "datarax" / "performance" / "goodput.py"
    if not module.exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(PEERS), "datarax==0.1.4"]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(PEERS.glob("datarax-0.1.4-*.whl"))) as wheel:
            wheel.extract("datarax/performance/goodput.py", PEERS / "datarax-0.1.4")
    return module


if __name__ == "__main__":
    main()
