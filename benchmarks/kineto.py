"""Traces of the PyTorch profiler: megabytes a second and memory at two sizes, and beside HolisticTraceAnalysis.

The first table repeats one trace with later times until it has the size. The second reads the same files with both,
each in a process of its own, in one run; HTA is asked for its temporal and its overlap breakdown. Where no Python with
HTA is given, the second is skipped. Ratios are HTA over Headway.

    python benchmarks/kineto.py [TRACE.json.gz ...] [--mb 10 1000] [--hta-python VENV/bin/python]
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

MEASURE = """
import json, sys, time
from pathlib import Path
{imports}
begin, used = time.perf_counter(), time.process_time()
{work}
seconds, used = time.perf_counter() - begin, time.process_time() - used
peak = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024
print("RESULT " + json.dumps([seconds, used, peak, found]))
"""
HEADWAY = MEASURE.format(
    imports="from headway.sources.kineto import facts",
    work="""
x = facts(Path(sys.argv[1]))
found = [x.busy_ns / x.span_ns * 100, (x.comm_ns - x.exposed_ns) / x.comm_ns * 100 if x.comm_ns else None]
""",
)
HTA = MEASURE.format(
    imports="from hta.trace_analysis import TraceAnalysis",
    work="""
trace = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=str(Path(sys.argv[1]).parent))
times = trace.get_temporal_breakdown(visualize=False)
found = [100 - float(times["idle_time_pctg"][0]), None]
try:
    found[1] = float(trace.get_comm_comp_overlap(visualize=False)["comp_comm_overlap_pctg"][0])
except Exception:
    pass
""",
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--mb", type=float, nargs="+", default=[10, 100, 1000], help="sizes unpacked [MB]")
    options.add_argument("--hta-python", default="", help="a Python that has HTA")
    options.add_argument("traces", nargs="*", type=Path, help="real traces, for the second table")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'MB':>8}{'seconds':>10}{'cpu s':>9}{'MB/s cpu':>10}{'peak MiB':>10}")
        for size in given.mb:
            path = Path(folder, "big.json")
            n_bytes = write(path, size * 1e6, given.traces[0] if given.traces else None)
            seconds, used, peak, _ = measure(sys.executable, HEADWAY, path)
            print(f"{n_bytes / 1e6:8.0f}{seconds:10.2f}{used:9.2f}{n_bytes / 1e6 / used:10.0f}{peak:10.0f}", flush=True)
            path.unlink()
        compare(given, Path(folder))


def compare(given: argparse.Namespace, folder: Path) -> None:
    """Print both on each file: time, memory, busy share and share of communication that compute hides [%]."""
    if not given.hta_python or not Path(given.hta_python).exists():
        print("no --hta-python: HolisticTraceAnalysis is skipped")
        return
    traces = given.traces
    if not traces:
        write(folder / "synthetic.json", 1e7, None)
        traces = [folder / "synthetic.json"]
    print(f"\n{'trace':24}{'':9}{'seconds':>9}{'peak MiB':>10}{'busy %':>9}{'hidden %':>10}")
    for trace in traces:
        copied = Path(shutil.copy(trace, folder))  # HTA writes caches beside what it reads
        rows = []
        for name, python, code in (("headway", sys.executable, HEADWAY), ("HTA", given.hta_python, HTA)):
            try:
                seconds, _, peak, (busy, hidden) = measure(python, code, copied)
            except RuntimeError as error:
                print(f"{trace.name[:23]:24}{name:9} failed: {str(error)[-60:]}")
                continue
            rows.append((seconds, peak))
            shown = "-" if hidden is None else f"{hidden:.2f}"
            print(f"{trace.name[:23]:24}{name:9}{seconds:9.2f}{peak:10.0f}{busy:9.2f}{shown:>10}")
        if len(rows) == 2:
            print(f"{'':24}{'ratio':9}{rows[1][0] / rows[0][0]:9.1f}{rows[1][1] / rows[0][1]:10.1f}", flush=True)


def measure(python: str, code: str, path: Path) -> list:
    done = subprocess.run([python, "-c", code, str(path)], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return json.loads(line[7:])
    raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")


def write(path: Path, size: float, like: Path | None) -> int:
    """Write a trace of that size: one that is given, or a synthetic one, again and again with later times."""
    whole = synthetic() if like is None else gzip.decompress(like.read_bytes())
    begin = whole.index(b"[", whole.index(b'"traceEvents"')) + 1
    end = whole.rindex(b"]", begin)
    events = whole[begin:end].strip()
    n_bytes = 0
    with path.open("wb") as file:
        n_bytes += file.write(whole[:begin])
        turn = 0
        while n_bytes < size:
            later = 10_000_000 * turn
            shifted = re.sub(rb'"ts": ?(\d+)', lambda found, by=later: b'"ts": %d' % (int(found[1]) + by), events)
            n_bytes += file.write((b",\n" if turn else b"") + shifted)
            turn += 1
        n_bytes += file.write(b"]}\n")
    return n_bytes


def synthetic() -> bytes:
    """Return a trace of 12 steps: of nine events two are a device's, one in twenty of these communication."""
    chance = random.Random(0)
    args = {"External id": 9, "device": 0, "stream": 7, "grid": [132, 1, 1], "block": [256, 1, 1], "correlation": 7}
    events = []
    for n in range(12):
        mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 9, "tid": 9}
        events.append(mark | {"ts": 1000.5 + 60000 * n, "dur": 59000.0, "args": {}})
        for m in range(1000):
            at = 1000 + 60000 * n + 58 * m
            comm = chance.random() < 0.05
            kernel = {
                "ph": "X",
                "cat": "kernel",
                "name": "ncclDevKernel_AllReduce" if comm else "void gemm<float>(float*)",
            }
            kernel |= {"pid": 0, "tid": 20 if comm else 7, "ts": at + 0.125, "dur": round(chance.random() * 60, 3)}
            copy = {
                "ph": "X",
                "cat": "gpu_memcpy",
                "name": "Memcpy DtoD",
                "pid": 0,
                "tid": 7,
                "ts": at + 50.5,
                "dur": 3.0,
            }
            events += [kernel | {"args": args}, copy | {"args": args}]
            for k in range(7):
                op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 9, "tid": 9, "ts": at + k, "dur": 9.5}
                events.append(op | {"args": {"External id": m, "Input Dims": [[64, 64], [64, 64]]}})
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()


if __name__ == "__main__":
    main()
