"""The model against mlsysim, side by side: import, one solve, a sweep of a million scenarios.

    python benchmarks/model.py [SCENARIOS]

Simulated job-years a second are in simulate.py.
mlsysim runs in its own environment, and sweeps a tenth as many: its time grows with each scenario.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
import time
import timeit
from pathlib import Path

import numpy as np

from headway.model import GoodputModel, Scenarios
from headway.model.mpg import RESULT_FIELDS

from peers import environment

SOLVE_BAR, SWEEP_BAR = 20, 1e7


def best(code: str, n: int, rounds: int = 9, **names: object) -> float:
    """Return the least time of one run of the code over some rounds [s]."""
    return min(timeit.repeat(code, globals=names, number=n, repeat=rounds)) / n


def importing(python: str | Path, code: str, rounds: int = 5) -> float:
    """Return what a fresh interpreter takes for the code, less a bare one [s]."""

    def seconds(what: str) -> float:
        began = time.perf_counter()
        subprocess.run([str(python), "-c", what], check=True)
        return time.perf_counter() - began

    seconds(code)
    return statistics.median(seconds(code) - seconds("pass") for _ in range(rounds))


def line(what: str, ours: float, theirs: float, bar: float | None = None) -> bool:
    """Print both times and their ratio; return whether the bar is met."""
    ratio = theirs / ours
    met = bar is None or ratio >= bar
    told = "" if bar is None else f"  bar {bar:g}x  {'met' if met else 'MISSED'}"
    print(f"{what:52} {ours * 1e6:12.3f} us {theirs * 1e6:14.3f} us {ratio:10.1f}x{told}")
    return met


def read_all(result: object) -> None:
    """Read every field of a result."""
    for name in RESULT_FIELDS:
        getattr(result, name)


def solves(peer: dict[str, float]) -> bool:
    """Compare single solves; mlsysim computes every field at once, Headway each when it is read."""
    case, job = Scenarios.Llama2_70BSharedPoolGoodput128, Scenarios.Llama2_70BRuntimeGoodput128
    names = {"solve": GoodputModel().solve, "s": case.scheduling, "r": case.runtime, "p": case.program}
    names |= {"ceilings": case.ceilings, "rate": case.device_hour_rate, "read_all": read_all}
    met = line("one solve of three floats", best("solve(s, r, p)", 100_000, **names), peer["solve_s"], SOLVE_BAR)
    line("  with its MPG read", best("solve(s, r, p).mpg", 100_000, **names), peer["solve_s"])
    line("  with every field read", best("read_all(solve(s, r, p))", 20_000, **names), peer["solve_s"])
    whole = "solve(s, r, p, ceilings, rate)"
    line("  with ceilings and a price", best(whole, 5_000, **names), peer["whole_s"])
    line("  with ceilings and a price, every field read", best(f"read_all({whole})", 2_000, **names), peer["whole_s"])
    line("a runtime scenario's result", best("job.result.runtime_goodput", 2_000, job=job), peer["runtime_s"])
    return met


def sweeps(n: int, peer: dict[str, float]) -> bool:
    """Compare sweeps over arrays."""
    draw = np.random.default_rng(0)
    arrays = [draw.uniform(0.01, 1.0, n) for _ in range(3)]
    solve = GoodputModel().solve
    one = best("solve(*arrays).mpg", 1, solve=solve, arrays=arrays) / n
    every = best("read_all(solve(*arrays))", 1, solve=solve, arrays=arrays, read_all=read_all) / n
    line(f"a scenario of a sweep of {n:,}, MPG read", one, peer["sweep_s"])
    line("  with every field read", every, peer["sweep_s"])
    single = best("solve(0.65, 0.9, 0.48).mpg", 100_000, solve=solve)
    print(f"{'  scenarios a second a core, MPG':52} {1 / one:12.3g}   bar {SWEEP_BAR:g}", end="")
    print(f"  {'met' if 1 / one >= SWEEP_BAR else 'MISSED'}; every field {1 / every:.3g}")
    print(f"{'  a solve over a scenario of the sweep':52} {single / one:12.1f}x")
    return 1 / one >= SWEEP_BAR


def main() -> int:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    python = environment("mlsysim", "mlsysim==0.3.0")
    script = Path(__file__).with_name("peer_goodput_model.py")
    peer = json.loads(subprocess.check_output([str(python), str(script), str(max(1, n // 10))], text=True))
    print(f"{'':52} {'headway':>15} {'mlsysim 0.3.0':>17}")
    line(
        "import, fresh interpreter",
        importing(sys.executable, "from headway.model import GoodputModel, GoodputScenario, Scenarios"),
        importing(python, "from mlsysim import Scenarios"),
    )
    draw, solve = random.Random(0), GoodputModel().solve
    factors = [tuple(draw.uniform(0.01, 1.0) for _ in range(3)) for _ in range(max(1, n // 10))]
    ours = sum(solve(*one).mpg for one in factors) / len(factors)
    if abs(ours - peer["mpg"]) > 1e-12:
        print(f"both do not agree: {ours} and {peer['mpg']}", file=sys.stderr)
        return 1
    met = [solves(peer), sweeps(n, peer)]
    return int(not all(met))


if __name__ == "__main__":
    sys.exit(main())
