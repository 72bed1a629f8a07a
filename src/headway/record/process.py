"""What the logs of a process say of the process itself: how old it is, and where they lie."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Final

import msgspec

from headway.clock import NS_PER_S, Clock, SystemClock

_MOST_NOTES: Final = 1000  # logs of one process that leave a note
_first: Final[list[int]] = []  # the pid that has begun a log: a forked child begins its own


def is_first_log() -> bool:
    """Return whether this is the first call of this process."""
    if _first == [os.getpid()]:
        return False
    _first[:] = [os.getpid()]
    return True


def process_age_ns(clock: Clock) -> int | None:
    """Return how long this process has run [ns], to a tick of the kernel; ``None`` where that says nothing.

    It is known on Linux only. A session at a prompt is as old as its user is patient, and a clock
    of the user's own does not tell this machine's time.
    """
    if not isinstance(clock, SystemClock) or hasattr(sys, "ps1") or "ipykernel" in sys.modules:
        return None
    try:
        with open("/proc/self/stat", "rb", buffering=0) as stat:  # noqa: PTH123
            ticks = int(stat.read(4096).rpartition(b")")[2].split()[19])
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        age = now - ticks * NS_PER_S // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, LookupError, AttributeError):
        return None
    return age if 0 <= age < now else None


def tell_launcher(path: str, run: str, attempt: str, rank: int) -> None:
    """Leave a note of this log in the folder that ``HEADWAY_LAUNCH`` names, for the launcher to find it.

    It is never written over another: each log of a process has its own. A failure says nothing: the
    log itself is whole without the note.

    Args:
        path: The folder of the log.
        run: The run's name.
        attempt: The attempt's.
        rank: The number of the process among those of the run.
    """
    folder = os.environ.get("HEADWAY_LAUNCH", "")
    if not path or not os.path.isabs(folder):  # noqa: PTH117 - pathlib is the dearest import of all here
        return
    note = msgspec.json.encode({"path": path, "run": run, "attempt": attempt, "rank": rank}) + b"\n"
    for number in range(1, _MOST_NOTES + 1):
        ending = f"-{number}" if number > 1 else ""
        try:
            name = os.path.join(folder, f"recorded-{os.getpid()}{ending}.json")  # noqa: PTH118
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            continue
        except (OSError, ValueError):
            return
        with contextlib.suppress(OSError):
            os.write(fd, note)
        with contextlib.suppress(OSError):
            os.close(fd)
        return
