"""Read back what a recorder wrote, without the reader under test elsewhere."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np

from headway.events import Close, decode


def log_folders(root):
    """The folders of all processes below a root, by name."""
    return sorted(path.parent for path in Path(root).glob("*/*/events.jsonl"))


def events(folder, kind=None):
    """The events of a log, torn lines left out."""
    found = []
    for line in (Path(folder) / "events.jsonl").read_bytes().splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            found.append(decode(line))
    return found if kind is None else [event for event in found if isinstance(event, kind)]


def reason(folder):
    closes = events(folder, Close)
    assert len(closes) <= 1
    return closes[0].reason if closes else None


def rows(folder):
    """The whole rows of the file."""
    found = np.load(Path(folder) / "steps.npy", mmap_mode="r")
    return np.array(found[found["seq"] == np.arange(1, len(found) + 1)])


def script(text, root, *, check=True, **environ):
    """Run a program with the logs below that root; return it ended."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("HEADWAY_RUN")}
    ended = subprocess.run(
        [sys.executable, "-c", text],
        env=env | {"HEADWAY_DIR": str(root)} | environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if check:
        assert ended.returncode == 0, ended.stderr
    return ended
