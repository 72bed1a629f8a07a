"""Simulated job-years a second, against event loops in plain Python, side by side in one run.

usage: simulate.py [--replicas 1000 16384] [--base 20]

``by save`` is the loop that one would write first: an event for each save and each failure.
``by failure`` is the best that plain Python does here: an event a failure, the saves between by division.
Both know blocking saves and exponential failures alone; their goodput is checked against `simulate`'s.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable

from headway.model import simulate

YEAR_S = 365.25 * 86400
LLAMA = {"work": 51.25 * 86400, "interval": 600.0, "save": 30.0, "mtbf": 11135.0, "restart": 300.0}
CASES = {
    "blocking": {},
    "background": {"background": True, "slowdown": 0.05},
    "two levels": {"durable_every": 6, "durable_save": 120, "local_loss": 0.1},
    "weibull 0.7": {"shape": 0.7},
    "replayed": {"mtbf": None, "replay": [600.0, 5400.0, 11000.0, 27000.0]},
    "4 spares": {"spares": 4, "repair": 86400},
    "preemption": {"preemption": 86400, "notice": 120, "gap": 3600},
}


def by_save(rng: random.Random, *, work: float, interval: float, save: float, mtbf: float, restart: float) -> float:
    """Return the held time of one replica [s], an event a save."""
    now, done, strike = 0.0, 0.0, rng.expovariate(1 / mtbf)
    while done < work:
        doing = min(interval, work - done)
        if now + doing + save <= strike:
            now += doing + save
            done += doing
            continue
        now = strike
        strike = now + rng.expovariate(1 / mtbf)
        while strike < now + restart:
            now = strike
            strike = now + rng.expovariate(1 / mtbf)
        now += restart
    return now


def by_failure(rng: random.Random, *, work: float, interval: float, save: float, mtbf: float, restart: float) -> float:
    """Return the held time of one replica [s], an event a failure."""
    held, left, recovery = 0.0, work, 0.0
    while True:
        strike = rng.expovariate(1 / mtbf)
        up = strike - recovery
        if up >= left and up >= (needed := left - (-left // interval) * save):
            return held + recovery + needed
        held += strike
        recovery = restart
        if up > 0:
            left -= up // (interval + save) * interval


def base(loop: Callable[..., float], replicas: int) -> tuple[float, float]:
    """Return job-years a second, and the goodput."""
    rng = random.Random(0)
    begin = time.perf_counter()
    held = sum(loop(rng, **LLAMA) for _ in range(replicas))
    return held / YEAR_S / (time.perf_counter() - begin), replicas * LLAMA["work"] / held


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--replicas", type=int, nargs="+", default=[1000, 16384])
    options.add_argument("--base", type=int, default=100, help="replicas of the loops in plain Python")
    given = options.parse_args()
    loops = {"by save": base(by_save, given.base), "by failure": base(by_failure, 10 * given.base)}
    for name, (speed, goodput) in loops.items():
        print(f"plain Python, {name:<10} {speed:12,.1f} job-years/s   R = {goodput:.4f}")
    slow, fast = (speed for speed, _ in loops.values())
    print(f"\n{'':<12} {'replicas':>9} {'job-years/s':>12} {'by save':>9} {'by failure':>11} {'R':>9}")
    for replicas in given.replicas:
        for name, changes in CASES.items():
            best = 0.0
            for _ in range(3):
                begin = time.perf_counter()
                found = simulate(**LLAMA | changes, replicas=replicas)
                best = max(best, found.job_years / (time.perf_counter() - begin))
            same = (f"{best / slow:8.0f}x", f"{best / fast:10.0f}x") if not changes else (" " * 9, " " * 11)
            print(f"{name:<12} {replicas:>9} {best:>12,.0f} {same[0]} {same[1]} {found.runtime_goodput:>9.4f}")
            if not changes:
                assert all(abs(found.runtime_goodput - goodput) < 0.005 for _, goodput in loops.values())


if __name__ == "__main__":
    sys.exit(main())
