"""What `import headway` costs a fresh interpreter, and that it pulls in nothing heavy.

Each is a fresh interpreter, in turn with a bare one; the figure is the median of the differences.

    python benchmarks/import_time.py [PAIRS]
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

LIMIT_S = 0.100
HEAVY = ("numpy", "torch", "jax", "ray", "rich", "pandas", "click", "pint", "duckdb")
CASES = {
    "import headway": HEAVY,
    "from headway import GoodputTracker": HEAVY,
    "from headway import start, track, GoodputTracker": HEAVY,
}


def seconds(code: str) -> float:
    """Return how long a fresh interpreter takes to run the code [s]."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began


def loaded(code: str, names: tuple[str, ...]) -> list[str]:
    """Return which of the modules the code loads."""
    ask = f"{code}\nimport sys\nprint(*[name for name in {names!r} if name in sys.modules])"
    return subprocess.check_output([sys.executable, "-c", ask], text=True).split()


def main() -> int:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    seconds("pass"), [seconds(code) for code in CASES]
    missed = 0
    bare = [seconds("pass") for _ in range(pairs)]
    print(f"{'python, bare':50} {statistics.median(bare) * 1e3:6.1f} ms")
    for code, names in CASES.items():
        added = statistics.median(seconds(code) - seconds("pass") for _ in range(pairs))
        heavy = loaded(code, names)
        result = "met" if added < LIMIT_S and not heavy else "MISSED"
        missed += result == "MISSED"
        print(f"{code:50} {added * 1e3:+6.1f} ms  loads {', '.join(heavy) or 'nothing heavy'}  {result}")
    print(f"bar: {LIMIT_S * 1e3:.0f} ms")
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
