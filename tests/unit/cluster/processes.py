"""What the tests of the cluster ask of processes: whether they live, what they listen on, and waiting for it."""

import contextlib
import sys
import time
from pathlib import Path

LOOPBACK = "0100007F" if sys.byteorder == "little" else "7F000001"
"""127.0.0.1 as /proc/net/tcp writes it."""


def until(condition, within_s=5.0):
    """Wait for a condition; return what it gave."""
    end = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.005)
    return found


def stat_of(pid):
    """Return the state of a process and its parent; None when it is gone."""
    with contextlib.suppress(OSError):
        state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
        return state, int(parent)
    return None


def lives(pid):
    return (found := stat_of(pid)) is not None and found[0] != "Z"


def workers_of(parent):
    """Return the workers among the children of a process."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if (found := stat_of(pid)) and found[1] == parent and _is_worker(pid)]


def _is_worker(pid):
    with contextlib.suppress(OSError):
        return b"\0cluster\0worker\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def listening(pid):
    """Return the addresses, in hexadecimal, on which a process listens."""
    inodes = set()
    for number in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            kind, _, inode = str(number.readlink()).partition(":")
            if kind == "socket":
                inodes.add(inode.strip("[]"))
    found = []
    for table in ("tcp", "tcp6"):
        rows = [line.split() for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]]
        found += [row[1].partition(":")[0] for row in rows if row[3] == "0A" and row[9] in inodes]
    return found
