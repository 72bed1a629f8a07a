"""Environments of the packages that benchmarks compare with: made once, beside the benchmarks, never committed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HOME = Path(__file__).parent / ".peers"


def environment(name: str, *requirements: str) -> Path:
    """Return the Python of an environment with these packages; makes it when it is missing."""
    python = HOME / name / "bin" / "python"
    done = HOME / name / "installed"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME / name)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *requirements], check=True)
        done.touch()
    return python


def module_file(requirement: str, inside: str) -> Path:
    """Return one file of a package that is downloaded and unpacked, not installed."""
    folder = HOME / requirement.replace("==", "-")
    if not (folder / inside).exists():
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), requirement]
        subprocess.run(command, check=True)
        for wheel in folder.glob("*.whl"):
            subprocess.run([sys.executable, "-m", "zipfile", "-e", str(wheel), str(folder)], check=True)
    return folder / inside
