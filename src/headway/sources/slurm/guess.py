"""Tables of ``squeue`` and ``sinfo`` without a header: columns told by what stands in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

from headway.clock import NS_PER_S
from headway.sources.slurm import fields
from headway.sources.slurm.nodes import node_state
from headway.sources.slurm.table import SACCT, SINFO, SQUEUE, Header

_JOB: Final = re.compile(r"\d{1,20}(?:_(?:\d+|\[.*))?(?:\+\d+)?(?:\.\S+)?", re.ASCII)
_STEP: Final = re.compile(r"\d[\d_+]*\.(?:batch|extern|interactive|\d+)", re.ASCII)
_NODE: Final = re.compile(r"[A-Za-z][\w.-]*(?:\[[\d,-]+\][\w.-]*)*", re.ASCII)
_NODE_LIST: Final = re.compile(rf"{_NODE.pattern}(?:,{_NODE.pattern})*", re.ASCII)
_COUNT: Final = re.compile(r"[1-9]\d{0,6}", re.ASCII)
_GRES: Final = re.compile(r"\(null\)|gpu:\S+|gres[/:]gpu\S*")
_LINES: Final = 200
"""So many lines of the beginning tell what columns are."""


def kind(head: bytes) -> str | None:
    """Return which command printed a table without a header; None where it is none that is known."""
    found = header(head)
    return found.kind if found else None


def header(head: bytes) -> Header | None:
    r"""Return what columns seem to be; None where it is no table of Slurm's.

    Example:
        >>> found = header(b"7|RUNNING|cpu=1,gres/gpu=2|2024-01-01T00:00:00|\n")
        >>> found.kind, found.columns
        ('squeue', {0: 'job', 1: 'state', 2: 'alloc_tres', 3: 'submit'})
    """
    lines = [line for line in head.split(b"\n")[: _LINES + 1] if line.strip()]
    if not head.endswith(b"\n") and len(lines) > 1:
        lines.pop()
    if not lines or not (delimiter := _delimiter(lines)):
        return None
    table = [
        [cell.decode("utf-8", "replace").strip() for cell in line.rstrip(b"\r").split(delimiter)] for line in lines
    ]
    width = len(table[0])
    if width < 3 or any(len(cells) != width for cells in table):
        return None
    closed = all(not cells[-1] for cells in table)
    columns = [list(column) for column in zip(*table, strict=True)][: width - closed]
    found = _jobs(columns) or _nodes(columns)
    if found is None:
        return None
    return Header(found[0], found[1], width - closed, delimiter, closed)


def _delimiter(lines: list[bytes]) -> bytes | None:
    """Return what stands between cells: a bar and what follows each bar, or a tab or semicolon."""
    for sign in (b"|", b"\t", b";"):
        if all(line.count(sign) == lines[0].count(sign) > 1 for line in lines):
            after = {line[at + 1 : at + 2] for line in lines for at, char in enumerate(line) if char == sign[0]}
            follower = after.pop() if len(after) == 1 else b""
            return sign + follower if follower and not follower.isalnum() and not follower.isspace() else sign
    return None


def _where(columns: Iterable[list[str]], test: Callable[[str], object]) -> list[int]:
    """Return the places of the columns of which every cell passes."""
    return [index for index, column in enumerate(columns) if all(test(cell) for cell in column)]


def _jobs(columns: list[list[str]]) -> tuple[str, dict[int, str]] | None:
    states = _where(columns, fields.state)
    idents = _where(columns, _JOB.fullmatch)
    if not states or not idents:
        return None
    told = {fields.state(cell) for cell in columns[states[0]]}
    job = max(idents, key=lambda at: (any("_" in cell for cell in columns[at]), len(set(columns[at])), -at))
    found = {job: "job", states[0]: "state"}
    if any(_STEP.fullmatch(cell) for cell in columns[job]) or not told <= fields.LIVE | fields.WAITING:
        return (SACCT, found) if all(fields.is_long(cell) for cell in columns[states[0]]) else None
    allocated = _where(columns, lambda cell: fields.nothing(cell) or "cpu=" in cell or "gres/gpu=" in cell)
    allocated = [at for at in allocated if any("=" in cell for cell in columns[at])]
    each = _where(columns, lambda cell: fields.nothing(cell) or _GRES.fullmatch(cell))
    each = [at for at in each if any("gpu" in cell for cell in columns[at])]
    if allocated:
        found[allocated[0]] = "alloc_tres"
    elif each:
        found[each[0]] = "req_gres"
    running = [index for index, cell in enumerate(columns[states[0]]) if fields.state(cell) in fields.LIVE]
    found |= _times(columns, running)
    found |= {at: "elapsed" for at in _elapsed(columns, running) if at not in found}
    if "req_gres" in found.values():
        found |= {at: name for at, name in _n_nodes(columns, running).items() if at not in found}
    return (SQUEUE, found) if len(found) > 3 else None


def _times(columns: list[list[str]], running: list[int]) -> dict[int, str]:
    """Return which columns are Submit, the earliest that every job has, and Start, the latest of jobs that run."""
    moments: dict[int, list[int | None]] = {}
    for index, column in enumerate(columns):
        try:
            moments[index] = [
                fields.Moments().read(cell) if "T" in cell or fields.nothing(cell) else _no() for cell in column
            ]
        except ValueError:
            continue
    full = [at for at, column in moments.items() if None not in column]
    found = {}
    if full:
        submit = min(full, key=lambda at: (sum(one or 0 for one in moments[at]), at))
        found[submit] = "submit"
    live = [at for at, column in moments.items() if running and all(column[row] for row in running) and at not in found]
    lengths = [[_length(column[row]) for row in running] for column in columns]
    told = {at: [moments[at][row] or 0 for row in running] for at in live}
    due = {
        at
        for at in live
        for other in live
        if [high - low for high, low in zip(told[at], told[other], strict=True)] in lengths and told[at] != told[other]
    }
    if starts := [at for at in live if at not in due]:
        found[max(starts, key=lambda at: (sum(told[at]) // NS_PER_S, -at))] = "start"
    return found


def _elapsed(columns: list[list[str]], running: list[int]) -> list[int]:
    """Return the column that tells how long jobs ran: no time of one that waits, and less than a limit of minutes."""
    waiting = [row for row in range(len(columns[0])) if row not in running]
    clocks = {
        at: lengths
        for at, column in enumerate(columns)
        if (lengths := [_length(cell) if ":" in cell else None for cell in column])
        and all(lengths[row] for row in running)
        and all(length is not None or not cell or cell.isalpha() for length, cell in zip(lengths, column, strict=True))
    }
    if waiting:
        found = [at for at, lengths in clocks.items() if running and all(lengths[row] == 0 for row in waiting)]
    else:
        limits = [
            at
            for at, lengths in clocks.items()
            if all(length and not length % (60 * NS_PER_S) for length in lengths)
            and all(
                (low or 0) <= (high or 0) for other in clocks.values() for low, high in zip(other, lengths, strict=True)
            )
        ]
        found = [at for at in clocks if limits and at != limits[0]]
    return found if len(found) == 1 else []


def _n_nodes(columns: list[list[str]], running: list[int]) -> dict[int, str]:
    """Return the columns that tell on how many nodes jobs are: a number, of jobs that run as that of names."""
    sizes: dict[tuple[int, ...], int] = {}
    for at, column in enumerate(columns):
        if running and all(_NODE_LIST.fullmatch(column[row]) for row in running):
            try:
                sizes.setdefault(tuple(fields.n_nodes(column[row]) for row in running), at)
            except ValueError:
                continue
    numbers = _where(columns, _COUNT.fullmatch)
    numbers.sort(key=lambda at: sum(map(int, columns[at])))
    for size, at in sorted(sizes.items(), key=lambda one: -sum(one[0])):
        if fit := [number for number in numbers if tuple(int(columns[number][row]) for row in running) == size]:
            return {fit[0]: "nodes"}
        if max(size) > 1:
            return {at: "node_list"}
    return {}


def _no() -> int:
    raise ValueError("it is no moment")


def _length(text: str) -> int | None:
    try:
        return fields.length(text)
    except ValueError:
        return None


def _nodes(columns: list[list[str]]) -> tuple[str, dict[int, str]] | None:
    states = _where(columns, node_state)
    gres = [at for at in _where(columns, _GRES.fullmatch) if any("gpu" in cell for cell in columns[at])]
    names = [at for at in _where(columns, _NODE.fullmatch) if at not in {*states, *gres}]
    if not states or not gres or not names:
        return None
    node = max(names, key=lambda at: (len(set(columns[at])), -at))
    used = [at for at in gres if any("IDX" in cell for cell in columns[at])]
    each = [at for at in gres if at not in used]
    found = {node: "node", states[0]: "state"}
    if each:
        found[each[0]] = "gres"
    if used:
        found[used[0]] = "gres_used"
    return SINFO, found


def told(found: Header, where: str) -> str:
    """Return the sentence that says how the columns were told."""
    names = ", ".join(f"{index + 1} {name}" for index, name in sorted(found.columns.items()))
    return f"{where}: it has no header line, its columns are told by their content ({names}); write it with a header"
