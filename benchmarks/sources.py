"""Each source: megabytes a second, and memory, at two sizes, beside a plain pass over the file.

    python benchmarks/sources.py [--mb 10 200] [--only slurm megatron]

Times are of reading, by the processor, in a process that has read a small log of the same kind before; memory is the
peak of reading and of making the ledger, and by row what it is beyond that of the small log. `kineto.py` measures
traces beside another program.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from logs import LOGS

SMALL = 1e5
MEASURE = """
import json, sys, time
from pathlib import Path
from headway import account
from headway.ledger.history import Pool, Run
from headway.sources import load

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10

small, large = map(Path, sys.argv[1:])
account([one for one in load(small) if isinstance(one, Run | Pool)])
base, begin = peak(), time.process_time()
found = load(large)
used = time.process_time() - begin
account([one for one in found if isinstance(one, Run | Pool)])
full, begin = peak(), time.process_time()
for path in large.iterdir() if large.is_dir() else [large]:
    with path.open("rb") as file:
        for line in file:
            pass
print(json.dumps([found[0].source, used, time.process_time() - begin, full, full - base]))
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--mb", type=float, nargs="+", default=[10, 50], help="sizes [MB]")
    options.add_argument("--only", nargs="+", default=LOGS, choices=LOGS, metavar="LOG", help="of these sources")
    given = options.parse_args()
    print(f"{'log':<14}{'MB':>6}{'rows':>10}{'MB/s':>7}{'of a plain pass':>17}{'peak MiB':>10}{'bytes/row':>11}")
    for name in given.only:
        for size in given.mb:
            with tempfile.TemporaryDirectory() as folder:
                print(f"{name:<14}{row(Path(folder), name, size * 1e6)}", flush=True)


def row(folder: Path, name: str, size: float) -> str:
    small, large = folder / "small", folder / "large"
    LOGS[name](small, SMALL)
    n = LOGS[name](large, size)
    command = [sys.executable, "-c", MEASURE, str(small), str(large)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        return "  failed: " + ran.stderr.strip().splitlines()[-1]
    source, used, plain, peak, more = json.loads(ran.stdout)
    assert source == name.partition("_")[0]
    mb = sum(path.stat().st_size for path in (large.iterdir() if large.is_dir() else [large])) / 1e6
    return f"{mb:>6.0f}{n:>10}{mb / used:>7.0f}{plain / used:>16.1%}{peak / 2**20:>10.0f}{more / n:>11.0f}"


if __name__ == "__main__":
    main()
