"""Time mlsysim's goodput model; runs in that package's own environment.

usage: peer_goodput_model.py N_SWEEP    prints one JSON object
"""

from __future__ import annotations

import json
import random
import sys
import time
import timeit

from mlsysim import Scenarios
from mlsysim.solvers import GoodputModel


def best(code: str, n: int, rounds: int = 9, **names: object) -> float:
    """Return the least time of one run of the code over some rounds [s]."""
    return min(timeit.repeat(code, globals=names, number=n, repeat=rounds)) / n


def main() -> None:
    solve, case = GoodputModel().solve, Scenarios.Llama2_70BSharedPoolGoodput128
    names = {"solve": solve, "s": case.scheduling, "r": case.runtime, "p": case.program}
    names |= {"ceilings": case.ceilings, "rate": case.device_hour_rate}
    draw = random.Random(0)
    factors = [tuple(draw.uniform(0.01, 1.0) for _ in range(3)) for _ in range(int(sys.argv[1]))]
    began = time.perf_counter()
    total = sum(solve(*one).mpg for one in factors)
    sweep = time.perf_counter() - began
    job = Scenarios.Llama2_70BRuntimeGoodput128
    answer = {
        "solve_s": best("solve(s, r, p)", 20_000, **names),
        "whole_s": best("solve(s, r, p, ceilings, rate)", 2_000, **names),
        "runtime_s": best("job.result", 200, job=job),
        "sweep_s": sweep / len(factors),
        "mpg": total / len(factors),
    }
    print(json.dumps(answer))


main()
