"""Each source that reads lines: megabytes a second and peak memory at two sizes, beside a plain pass over the lines.

    python benchmarks/sources.py [--mb 10 200] [--only slurm megatron]

Traces have a benchmark of their own, `kineto.py`. Times are of the processor; memory is the peak of a fresh process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = 1_700_000_000
FIRST = datetime.fromtimestamp(START, tz=UTC)

MEASURE = """
import json, sys, time
from pathlib import Path
from headway.sources import load
begin = time.process_time()
found = load(sys.argv[1])
used = time.process_time() - begin
begin = time.process_time()
with open(sys.argv[1], "rb") as file:
    for line in file:
        pass
plain = time.process_time() - begin
peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
print(json.dumps([found[0].source, used, plain, peak]))
"""


def at(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return (FIRST + timedelta(seconds=seconds)).strftime(form)


def native(n: int) -> str:
    if not n:
        return json.dumps({"kind": "open", "wall_ns": START * 10**9, "mono_ns": 0, "run": "r", "attempt": "a"})
    return json.dumps({"kind": "step", "step": n, "start": n * 10**9, "end": (n + 1) * 10**9, "phases": {"source": 9}})


def mlperf(n: int) -> str:
    key = ["init_start", "run_start"][n] if n < 2 else ["block_start", "block_stop"][n % 2]
    return f':::MLLOG {{"namespace": "", "time_ms": {(START + n) * 1000}, "key": "{key}", "value": null}}'


def slurm(n: int) -> str:
    if not n:
        return "JobID|User|State|Submit|Start|End|AllocTRES"
    start, end = at(60 * n, "%Y-%m-%dT%H:%M:%S"), at(60 * n + 3600, "%Y-%m-%dT%H:%M:%S")
    return f"{n}|ana|COMPLETED|{start}|{start}|{end}|billing=64,cpu=64,gres/gpu=8,node=1"


def table(n: int) -> str:
    if not n:
        return "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
    return f"{n},u1,v1,8,64,1,COMPLETED,{at(60 * n)},{at(60 * n)},{at(60 * n + 3600)},3600,0"


def megatron(n: int) -> str:
    return (
        f" iteration {n + 1:8d}/ 9999999 | consumed samples: {n * 8} | "
        f"elapsed time per iteration (ms): {100 + n % 7}.0 | learning rate: 1.0E-05 | global batch size: 8 | "
        "lm loss: 2.0E+00 | number of skipped iterations: 0 | number of nan iterations: 0 |"
    )


def dllogger(n: int) -> str:
    told = {"timestamp": f"{START + n}.0", "elapsedtime": f"{n}.0", "type": "LOG", "step": n}
    return "DLLL " + json.dumps(told | {"data": {"reduced_train_loss": 2.0, "train_step_timing in s": 1.0}})


def torchtitan(n: int) -> str:
    return (
        f"[titan] {at(n)},000 - root - INFO - step: {n + 1}  loss: 2.0  memory: 1.00GiB(1.00%)  tps: 1,000  "
        "tflops: 100.00  mfu: 40.00%"
    )


def maxtext(n: int) -> str:
    return (
        f"completed step: {n}, seconds: 1.0, TFLOP/s/device: 100.0, Tokens/s/device: 999.0, total_weights: 8, loss: 2.0"
    )


def nanogpt(n: int) -> str:
    return f"iter {n}: loss 2.0000, time {100 + n % 7}.00ms, mfu 40.00%"


def lightning(n: int) -> str:
    return f"{n // 100},{n},2.0" if n else "epoch,step,train_loss"


def googlegoodput(n: int) -> str:
    told = {"job_start_time": float(START)} if not n else {"step_count": n, "step_start_time": START + float(n)}
    return json.dumps({"jsonPayload": {"job_name": "r", **told}})


LINES: tuple[Callable[[int], str], ...] = (
    native, mlperf, slurm, table, megatron, dllogger, torchtitan, maxtext, nanogpt, lightning, googlegoodput,
)  # fmt: skip


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--mb", type=float, nargs="+", default=[10, 100], help="sizes [MB]")
    options.add_argument("--only", nargs="+", default=[line.__name__ for line in LINES], help="these sources")
    given = options.parse_args()
    print(f"{'source':<16}{'MB':>7}{'MB/s':>8}{'of a plain pass':>17}{'peak MiB':>10}")
    for line in LINES:
        if line.__name__ not in given.only:
            continue
        for size in given.mb:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "log"
                written, n = 0, 0
                with path.open("w") as file:
                    while written < size * 1e6:
                        written += file.write(line(n) + "\n")
                        n += 1
                ran = subprocess.run(
                    [sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True
                )
            source, used, plain, peak = json.loads(ran.stdout)
            print(f"{source:<16}{size:>7.0f}{size / used:>8.0f}{plain / used:>16.1%}{peak:>10.0f}", flush=True)


if __name__ == "__main__":
    main()
