"""Run every benchmark, one after the other; each prints ratios measured side by side in its own run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPTS = (
    "import_time",
    "record",
    "memory",
    "overhead",
    "ledger",
    "model",
    "simulate",
    "all_reduce",
    "cluster",
    "sources",
    "kineto",
)


def main() -> int:
    failed = []
    for name in SCRIPTS:
        print(f"\n== {name} ==", flush=True)
        command = [sys.executable, str(Path(__file__).with_name(f"{name}.py"))]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
