"""Who this process is: its run, attempt, rank and host, from arguments or from the launcher's environment.

Arguments come first, then ``HEADWAY_*``, then torchrun, Slurm and Open MPI. What makes no sense is
counted as a fault and passed over; nothing here raises.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from headway.clock import NS_PER_S, SYSTEM, Clock
from headway.record.faults import Faults

_T = TypeVar("_T")
_LAUNCHERS: Final = (
    ("HEADWAY_RANK", "HEADWAY_WORLD_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)
"""Where each launcher says rank and world size; the two are taken from one launcher."""

_UNSAFE: Final = re.compile(r"[^\w.+=@,-]")
LARGEST: Final = 2**61 - 1
"""The largest number that is written; a reader takes a larger one for damage."""
_LONGEST_NAME: Final = 160  # bytes; file systems take 255, and suffixes come behind


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a process is.

    Attributes:
        run: The run's name, as it was given.
        attempt: The name of this launch; unique, and sortable by time where no launcher names it.
        rank: The process's number among those of the run, from 0.
        world_size: How many processes the run has.
        host: The name of the machine.
    """

    run: str
    attempt: str
    rank: int = 0
    world_size: int = 1
    host: str = ""


def identify(
    run: object = None,
    attempt: object = None,
    rank: object = None,
    world_size: object = None,
    *,
    faults: Faults,
    script: str | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock = SYSTEM,
) -> Identity:
    """Return who this process is.

    Args:
        run: The run's name; by default from the environment, else the script's name with the launch's.
        attempt: The name of this launch; by default the launcher's, else the time [UTC, us] and the pid.
        rank: Number of this process, from 0.
        world_size: How many processes there are, > rank.
        faults: Where nonsense is counted.
        script: The program that a run without a name is called after; by default this process's.
        environ: The environment; by default this process's.
        clock: The clock that names a launch.

    Example:
        >>> env = {"RANK": "3", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "j7", "TORCHELASTIC_RESTART_COUNT": "1"}
        >>> me = identify("digits", faults=Faults(), environ=env)
        >>> me.attempt, me.rank, me.world_size
        ('j7-0001', 3, 8)
    """
    env = os.environ if environ is None else environ
    place = _place(env, rank, world_size, faults)
    job = _job(env)
    launch = job or _launch(env, clock)
    return Identity(
        run=_text(run) or _text(env.get("HEADWAY_RUN")) or f"{_script(script)}-{launch}",
        attempt=_text(attempt) or _given_attempt(env) or _restarts(env, launch, named=bool(job)),
        rank=place[0],
        world_size=place[1],
        host=_quietly(socket.gethostname, ""),
    )


def log_root(directory: object = None, environ: Mapping[str, str] | None = None) -> str:
    """Return the absolute path of the folder of all runs.

    Example:
        >>> log_root(environ={"HEADWAY_DIR": "/data/logs"}), log_root("/logs")
        ('/data/logs', '/logs')
    """
    env = os.environ if environ is None else environ
    given = directory if directory is not None else env.get("HEADWAY_DIR") or "headway-logs"
    try:
        root = os.fsdecode(given)  # type: ignore[arg-type]
    except TypeError:
        root = show(given)
    return _quietly(lambda: os.path.abspath(root), root)  # noqa: PTH100 - pathlib is the dearest import of all here


def safe_name(name: str) -> str:
    """Return a folder name for any text; one that had to be changed carries a checksum of the text.

    Example:
        >>> safe_name("digits-3"), safe_name("../etc/x")
        ('digits-3', '_._etc_x-537a21c3')
    """
    safe = _UNSAFE.sub("_", name)
    if safe[:1] == ".":
        safe = "_" + safe[1:]
    short = safe.encode()[:_LONGEST_NAME].decode(errors="ignore")
    if short == name and name:
        return name
    return f"{short}-{zlib.crc32(name.encode(errors='surrogatepass')):08x}"


def moment_name(wall_ns: int, pid: int) -> str:
    """Return a name that sorts by time: UTC to the microsecond, and the pid.

    Example:
        >>> moment_name(1_700_000_000_123_456_789, 42)
        '20231114T221320.123456-42'
    """
    second, ns = divmod(wall_ns, NS_PER_S)
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(second))}.{ns // 1000:06d}-{pid}"


def whole_number(value: object, least: int, name: str, faults: Faults) -> int | None:
    """Return the value as an int of at least ``least``; ``None`` where it is none, which is counted.

    Example:
        >>> faults = Faults()
        >>> whole_number("8", 1, "devices", faults), whole_number("abc", 1, "devices", faults)
        (8, None)
    """
    if value is None:
        return None
    try:
        number = int(value)  # type: ignore[call-overload]
        good = least <= number <= LARGEST and (isinstance(value, str) or bool(number == value))
    except Exception:  # noqa: BLE001 - an argument of the user's must not stop training
        good = False
    if not good:
        faults.note("argument", f"{name} is {show(value)}, not a whole number from {least} to 2**61 - 1")
        return None
    return int(number)


def _place(env: Mapping[str, str], rank: object, world_size: object, faults: Faults) -> tuple[int, int]:
    """Return rank and world size: the arguments, and what they leave open from the first launcher there."""
    found_rank = whole_number(rank, 0, "rank", faults)
    found_size = whole_number(world_size, 1, "world_size", faults)
    for rank_name, size_name in _LAUNCHERS:
        if found_rank is not None and found_size is not None:
            break
        if rank_name not in env or (rank_name == "SLURM_PROCID" and not _in_slurm_step(env)):
            continue
        env_rank = whole_number(env[rank_name], 0, rank_name, faults)
        env_size = whole_number(
            _slurm_size(env) if size_name == "SLURM_NTASKS" else env.get(size_name), 1, size_name, faults
        )
        if env_rank is not None:
            found_rank = env_rank if found_rank is None else found_rank
            found_size = env_size if found_size is None else found_size
    number = found_rank or 0
    if found_size is not None and number >= found_size:
        faults.note("argument", f"rank is {number}, beyond the world size {found_size}")
    return number, found_size if found_size is not None and found_size > number else number + 1


def _in_slurm_step(env: Mapping[str, str]) -> bool:
    """Return whether srun started this process: a batch script has SLURM_PROCID=0 and all the job's tasks."""
    return "SLURM_STEP_ID" in env or "SLURM_STEPID" in env or env.get("SLURM_PROCID") != "0"


def _slurm_size(env: Mapping[str, str]) -> str | None:
    return env.get("SLURM_STEP_NUM_TASKS") or env.get("SLURM_NTASKS")


def _job(env: Mapping[str, str]) -> str:
    """Return the id that all ranks of this launch have from their launcher; empty where there is none."""
    elastic = _text(env.get("TORCHELASTIC_RUN_ID"))
    if elastic and elastic != "none":  # torchrun says "none" where no id was given
        return elastic
    if job := _text(env.get("SLURM_JOB_ID")):
        return f"slurm{job}"
    return _text(env.get("PMIX_NAMESPACE")) if "OMPI_COMM_WORLD_RANK" in env else ""


def _given_attempt(env: Mapping[str, str]) -> str:
    """Return ``HEADWAY_ATTEMPT``, told apart where torchrun restarted its workers inside that attempt."""
    given, restart = _text(env.get("HEADWAY_ATTEMPT")), env.get("TORCHELASTIC_RESTART_COUNT", "0")
    return f"{given}.{restart.zfill(4)}" if given and restart.isdecimal() and int(restart) else given


def _restarts(env: Mapping[str, str], launch: str, *, named: bool) -> str:
    """Return the launch's name with the counts of its restarts, those that are there."""
    keys = ["TORCHELASTIC_RESTART_COUNT"]
    if named and "SLURM_JOB_ID" in env:
        keys = ["SLURM_RESTART_COUNT", "SLURM_STEP_ID", *keys]
    return "-".join([launch, *(env[key].strip().zfill(4) for key in keys if env.get(key, "").strip())])


def _launch(env: Mapping[str, str], clock: Clock) -> str:
    """Return a name for this launch: of the torchrun that started this rank and its neighbours, else of itself."""
    if "TORCHELASTIC_RESTART_COUNT" in env:
        started = _quietly(_parent_started_ns, 0)
        if started:
            return moment_name(started, os.getppid())
    return moment_name(clock.wall_ns(), os.getpid())


def _parent_started_ns() -> int:
    """Return when the parent process began [ns since the Unix epoch], to a tick; the same for all its children."""
    with open(f"/proc/{os.getppid()}/stat", encoding="ascii", errors="replace") as stat:  # noqa: PTH123
        ticks = int(stat.read().rpartition(")")[2].split()[19])
    with open("/proc/stat", encoding="ascii") as stat:  # noqa: PTH123
        boot = next(int(line.split()[1]) for line in stat if line.startswith("btime"))
    return boot * NS_PER_S + ticks * NS_PER_S // os.sysconf("SC_CLK_TCK")


def _script(script: str | None) -> str:
    """Return a program's name without its folder and ending."""
    program = script if script is not None else (getattr(sys, "argv", None) or [""])[0]
    stem = os.path.splitext(os.path.basename(str(program)))[0]  # noqa: PTH119, PTH122
    return stem if stem not in {"", "-", "-c", "-m"} else "python"


def _text(value: object) -> str:
    """Return a value as text that can be stored; ``None`` and blanks are empty."""
    return "" if value is None else show(value).strip()


def show(value: object) -> str:
    """Return any object as text that can be stored, also one whose ``__str__`` fails.

    Example:
        >>> show(7)
        '7'
    """
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception as error:  # noqa: BLE001 - an argument of the user's must not stop training
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _quietly(function: Callable[[], _T], otherwise: _T) -> _T:
    try:
        return function()
    except (OSError, ValueError, LookupError, StopIteration):
        return otherwise
