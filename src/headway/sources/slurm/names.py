"""What ``squeue`` and ``sinfo`` call their columns, also where a name is cut to its width or touches the next one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_OF_JOBS: Final = """
    ACCOUNT ACCRUE_TIME ADMIN_COMMENT ALLOC_NODES ALLOC_SID ARRAY_JOB_ID ARRAY_TASK_ID ASSOC_ID BATCH_FLAG
    BOARDS_PER_NODE BURST_BUFFER BURST_BUFFER_STATE CLUSTER CLUSTER_FEATURES COMMAND COMMENT CONTAINER CONTIGUOUS
    CORES_PER_SOCKET CORE_SPEC CPUS CPUS_PER_TASK CPUS_PER_TRES DEADLINE DELAY_BOOT DEPENDENCY DERIVED_EC ELIGIBLE_TIME
    END_TIME EXC_NODES EXEC_HOST EXIT_CODE EXTRA FEATURES GRES GROUP GROUP_ID HET_JOB_ID HET_JOB_ID_SET HET_JOB_OFFSET
    JOBID LAST_SCHED_EVAL LICENSES MAX_CPUS MAX_NODES MCSLABEL MEM_PER_TRES MIN_CPUS MIN_MEMORY MIN_TIME MIN_TMP_DISK
    NAME NETWORK NICE NODELIST NODELIST(REASON) NODES NTASKS_PER_BOARD NTASKS_PER_CORE NTASKS_PER_NODE NTASKS_PER_SOCKET
    ORIGIN ORIGIN_RAW OVER_SUBSCRIBE PARTITION PENDING_TIME PREEMPT_TIME PREFER PRIORITY PROFILE QOS REASON REBOOT
    REQUEUE REQ_NODES REQ_SWITCH RESERVATION RESIZE_TIME RESTART_COUNT RESTARTS S:C:T SCHEDNODES SIBLINGS_ACTIVE
    SIBLINGS_VIABLE SOCKETS SOCKETS_PER_BOARD SOCKETS_PER_NODE ST START_TIME STATE STDERR STDIN STDOUT SUBMIT_TIME
    SYSTEM_COMMENT TASKS THREADS THREADS_PER_CORE TIME TIME_LEFT TIME_LIMIT TRES_ALLOC TRES_BIND TRES_FREQ TRES_PER_JOB
    TRES_PER_NODE TRES_PER_SOCKET TRES_PER_TASK UID USER WAIT4SWITCH WCKEY WORK_DIR
"""
_OF_NODES: Final = """
    ACTIVE_FEATURES ALLOCMEM ALLOCNODES AVAIL AVAIL_FEATURES CLUSTER COMMENT CORES CPUS CPUS(A/I/O/T) CPU_LOAD
    DEFAULTTIME EXTRA FEATURES FREE_MEM GRES GRES_USED GROUPS HOSTNAMES JOB_SIZE MAX_CPUS_PER_NODE MEMORY NODELIST
    NODES NODES(A/I) NODES(A/I/O/T) NODE_ADDR OVERSUBSCRIBE PARTITION PORT PREEMPT_MODE PRIO_JOB_FACTOR PRIO_TIER
    REASON RESERVATION ROOT S:C:T SHARE SOCKETS STATE THREADS TIMELIMIT TIMESTAMP TMP_DISK USER VERSION
    WEIGHT
"""
_SHORTEST: Final = 5
"""A name cut to less is none [characters]."""


def _begun(names: Sequence[str]) -> Mapping[str, str]:
    """Return names by themselves, and by what only one of them begins with."""
    found: dict[str, str] = {}
    for name in names:
        for length in range(_SHORTEST, len(name)):
            found[name[:length]] = "" if name[:length] in found else name
    return {**found, **{name: name for name in names}}


_SQUEUE: Final = _begun(_OF_JOBS.split())
_SINFO: Final = _begun(_OF_NODES.split())
_JOBS: Final = ("JOBID", "ARRAY_JOB_ID")
_MOST, _LONGEST = 300, 60
"""No header has more names, and no two of them are longer [characters]."""
_TOKEN: Final = re.compile(r"\S{0,60}NODELIST \(REASON\)|\S+")


def whole(names: Sequence[str]) -> list[str]:
    """Return names of columns with those that are cut as they are in full, where they begin one that is known alone.

    Example:
        >>> whole(["JOBID", "TRES_PER_N", "TIME", "TRES_PER_"]), whole(["HOSTNAME", "STATE"])
        (['JOBID', 'TRES_PER_NODE', 'TIME', 'TRES_PER_'], ['HOSTNAMES', 'STATE'])
    """
    known = _known(" ".join(names))
    return [known.get(name) or name for name in names]


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a column as it stands in a header.

    Attributes:
        start: Where it begins.
        full: What it is in full.
        width: How much of it is there: less than all of it where it is cut to the width of its column.
    """

    start: int
    full: str
    width: int


def apart(line: str) -> list[Name]:
    """Return the names of columns with blanks or nothing between them.

    Names touch where the first is as wide as its column; where there is not one way to take them apart, they stay.

    Example:
        >>> [(name.start, name.full) for name in apart("JOBID  PARTITSUBMIT_TIME  NODELIST (REASON)")]
        [(0, 'JOBID'), (7, 'PARTITION'), (13, 'SUBMIT_TIME'), (26, 'NODELIST(REASON)')]
        >>> apart("JOBID XYZSTATE")[1]
        Name(start=6, full='XYZSTATE', width=8)
    """
    known = _known(line)
    found: list[Name] = []
    for match in _TOKEN.finditer(line):
        token = match[0].replace(" ", "")
        if len(found) > _MOST:
            return []
        name = known.get(token)
        ways = [
            (left, at, right)
            for at in (range(2, len(token) - 1) if not name and len(token) <= _LONGEST else ())
            if (left := known.get(token[:at])) and (right := known.get(token[at:]))
        ]
        if len(ways) == 1:
            ((left, at, right),) = ways
            found += [Name(match.start(), left, at), Name(match.start() + at, right, len(token) - at)]
        else:
            found.append(Name(match.start(), name or token, len(token)))
    return found


def _known(line: str) -> Mapping[str, str]:
    return _SQUEUE if any(name in line for name in _JOBS) else _SINFO
