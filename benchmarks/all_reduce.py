"""The all-reduce of a cluster against torch's own on the same ranks: gloo over loopback, one thread a rank, in one run.

Both take turns, a few calls a turn; what is printed are medians of the turns, and the median of the turns' own ratios.
Torch's own does not notice ranks that disagree, and keeps the NaN of one rank only in its Max.

    python benchmarks/all_reduce.py [--ranks 2] [--turns 41] [--mb 1 64]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from headway.cluster.collective import all_reduce
from headway.cluster.report import ReduceKind

ENGINE = "torch, sum"
CALLS_OF_64_MB = 3


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--ranks", type=int, default=2)
    options.add_argument("--turns", type=int, default=41)
    options.add_argument("--mb", type=float, nargs="+", default=[1, 64], help="sizes of the float32 tensor [MiB]")
    options.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options.add_argument("--store", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.rank is not None:
        run_rank(given)
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *sys.argv, "--store", str(Path(folder, "store")), "--rank"]
        ranks = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(given.ranks)]
        failed = [rank.wait() for rank in ranks]
    sys.exit(any(failed))


def run_rank(given: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(given.store, given.ranks)
    dist.init_process_group("gloo", store=store, rank=given.rank, world_size=given.ranks)
    if given.rank == 0:
        print(f"torch {torch.__version__}, {given.ranks} ranks, {os.cpu_count()} cores, float32")
        print(f"{'one call':24}{'MiB':>6}{'median ms':>11}{'best ms':>9}{'x torch, sum':>14}")
    for size in given.mb:
        tensor = torch.zeros(int(size * 2**20) // 4)
        times = take_turns(
            contenders(tensor), max(CALLS_OF_64_MB, min(40, int(64 * CALLS_OF_64_MB / size))), given.turns
        )
        if given.rank == 0:
            show(times, size)
    dist.destroy_process_group()


def contenders(tensor: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Return what is measured, by name."""
    return {
        ENGINE: lambda: dist.all_reduce(tensor),
        "torch, sum, once more": lambda: dist.all_reduce(tensor),
        "Headway, sum": lambda: all_reduce(None, tensor, ReduceKind.SUM),
        "Headway, mean": lambda: all_reduce(None, tensor, ReduceKind.MEAN),
        "Headway, max": lambda: all_reduce(None, tensor, ReduceKind.MAX),
    }


def take_turns(calls: dict[str, Callable[[], object]], n_calls: int, turns: int) -> dict[str, list[float]]:
    """Return each one's time of a call in every turn [ms]; the first turns warm up, and every other one runs back."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 2):
        for name in list(calls)[:: 1 if turn % 2 else -1]:
            dist.barrier()
            start = time.perf_counter_ns()
            for _ in range(n_calls):
                calls[name]()
            if turn >= 2:
                times[name].append((time.perf_counter_ns() - start) / n_calls / 1e6)
    return times


def show(times: dict[str, list[float]], size: float) -> None:
    for name, taken in times.items():
        ratio = statistics.median(ours / own for ours, own in zip(taken, times[ENGINE], strict=True))
        bar = " (bar 1.02)" if name == "Headway, sum" else ""
        print(f"{name:24}{size:6g}{statistics.median(taken):11.3f}{min(taken):9.3f}{ratio:13.3f}x{bar}", flush=True)


if __name__ == "__main__":
    main()
