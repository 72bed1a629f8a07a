"""What ``--json`` makes of Slurm's commands, one record at a time."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from headway.sources import files
from headway.sources.again import Again, is_cut
from headway.sources.slurm import fields
from headway.sources.slurm.table import SACCT, SINFO, SQUEUE, Row
from headway.sources.text import Complaints

_LIST: Final = re.compile(r'"(jobs|nodes|sinfo)"\s*:\s*\[')
_BETWEEN: Final = re.compile(r"[\s,]*")
_FIRST_KEY: Final = re.compile(r'\{\s*("[^"]{1,100}")\s*:')
_PIECE: Final = 1 << 20
_MOST: Final = 1 << 24
"""A longer record is none [characters]."""
_LONGEST_BEGIN: Final = 1000
"""How long the beginning of a record is at most [characters]."""
_DECODER: Final = json.JSONDecoder()


def kind(head: bytes) -> str | None:
    """Return which command printed JSON; None where none did.

    Example:
        >>> kind(b'{"jobs": [{"job_id": 7, "job_state": ["RUNNING"], "tres_alloc_str": ""}]}')
        'squeue'
    """
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().decode("utf-8", "replace")
    if not text.startswith("{") or not (found := _LIST.search(text)):
        return None
    if found[1] != "jobs":
        return SINFO if '"state"' in text and ('"gres"' in text or '"partition' in text) else None
    if '"job_state"' in text or '"tres_alloc_str"' in text or '"accrue_time"' in text:
        return SQUEUE
    return SACCT if '"association"' in text or '"tres"' in text or '"allocation_nodes"' in text else None


def records(
    path: Path, found: str, complaints: Complaints, see: Callable[[str], None]
) -> Iterator[tuple[int, str, Row]]:
    """Yield each record: its number, the command, what it says; what is none is complained of.

    Args:
        path: The file.
        found: The command.
        complaints: Where to complain.
        see: Is told the moment of the list, ``last_update``, where there is one.

    Raises:
        OSError: The file cannot be read.
    """
    make = {SACCT: _accounted, SQUEUE: _queued, SINFO: _node}[found]
    for number, record in enumerate(_objects(path, complaints, see), 1):
        try:
            rows = list(make(record))
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            complaints.add("no record, left out", number, f"{type(error).__name__}: {error}")
            continue
        for row in rows:
            yield number, found, row


def _pieces(path: Path, complaints: Complaints) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    try:
        with files.plain(path) as file:
            while data := file.read1(_PIECE):
                yield decoder.decode(data)
    except files.TornError as error:
        complaints.add("the last before the gzip breaks", "?", str(error))


def _see(text: str, see: Callable[[str], None]) -> None:
    """Tell the moment of the list from what stands beside it in the file."""
    try:
        beside, _ = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return
    moment = _moment(_object(beside).get("last_update"))
    if moment:
        see(moment)


def _rest(text: str, pieces: Iterator[str]) -> str:
    """Return what is left of a file, of one that is not too long."""
    while len(text) < _MOST and (more := next(pieces, None)) is not None:
        text += more
    return text


def _objects(path: Path, complaints: Complaints, see: Callable[[str], None]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects of the list; where one is damaged, reading goes on at the next that begins as the first."""
    pieces = _pieces(path, complaints)
    text = ""
    while not (opened := _LIST.search(text)):
        more = next(pieces, None)
        if more is None or len(text) > _MOST:
            return
        text += more
    _see(text[: opened.start()].rstrip().rstrip(",") + "}", see)
    values = _Values(text[opened.end() :], pieces, complaints)
    yield from values
    if values.closed:
        _see("{" + _rest(values.text[values.at + 1 :], pieces).lstrip().removeprefix(","), see)


class _Values:
    """The objects of a list one by one, from where it is opened.

    Attributes:
        text: What is known of the list and is still to be read, from `at` on.
        closed: Whether its end is at `at`.
    """

    def __init__(self, text: str, pieces: Iterator[str], complaints: Complaints) -> None:
        self.text, self.at, self.closed = text, 0, False
        self._pieces = pieces
        self._complaints = complaints
        self._gone = 0
        self._again = Again()
        self._begin: re.Pattern[str] | None = None

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        number = 1
        while True:
            self.at = _past(self.text, self.at)
            self.closed = self.text.startswith("]", self.at)
            if self.closed:
                return
            if self._begin is None and (key := _FIRST_KEY.match(self.text, self.at)):
                self._begin = re.compile(rf"\{{\s*{re.escape(key[1])}\s*:")
            try:
                value, self.at = _DECODER.raw_decode(self.text, self.at)
            except (ValueError, RecursionError) as error:
                if is_cut(self.text, error) and len(self.text) - self.at < _MOST and self._read(self.at):
                    self.at = 0
                    continue
                if not self._finds_next(number, error):
                    return
            else:
                if isinstance(value, dict):
                    yield value
                else:
                    self._complaints.add("no record, left out", number, "it is no object")
            number += 1

    def _read(self, begin: int) -> bool:
        """Read more text and forget what is before a place; return whether there is more."""
        more = next(self._pieces, None)
        if more is None:
            return False
        self.text = self.text[begin:] + more
        self._gone += begin
        return True

    def _finds_next(self, number: int, error: Exception) -> bool:
        """Go on to where a record begins after one that is broken, and return whether one does."""
        known = self.at < len(self.text)
        self._complaints.add("no record, left out", number, str(error) if known else "the file is cut before it")
        start = self._again.after(self.text, self.at, error, self._gone)
        if self._again.skipped:
            self._complaints.add(
                "broken after much that was read for nothing, left out with all that begins inside it", number
            )
        while self._begin:
            if found := self._begin.search(self.text, start):
                self.at = found.start()
                return True
            start = max(start, len(self.text) - _LONGEST_BEGIN)
            if not self._read(start):
                return False
            start = 0
        return False


def _past(text: str, at: int) -> int:
    """Return the place after blanks and commas."""
    found = _BETWEEN.match(text, at)
    return found.end() if found else at


def _text(value: Any) -> str:
    """Return a number or a word of JSON as text; a number that is not set is nothing."""
    if isinstance(value, Mapping):
        return _text(value.get("number")) if value.get("set", True) and not value.get("infinite") else ""
    if isinstance(value, list):
        return " ".join(_text(one) for one in value[:1])
    if value is None or isinstance(value, bool):
        return ""
    return str(value) if isinstance(value, str | int) else f"{value:.0f}"


def _moment(value: Any) -> str:
    text = _text(value)
    return "" if text == "0" else text


def _accounted(job: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the record of a job of ``sacct --json``."""
    time, tres = job["time"], job.get("tres") or {}
    state = job["state"]
    yield {
        "job": _ident(job), "raw": _text(job.get("job_id")),
        "state": _text(state["current"] if isinstance(state, Mapping) else state),
        "submit": _moment(time.get("submission")), "eligible": _moment(time.get("eligible")),
        "start": _moment(time.get("start")), "end": _moment(time.get("end")),
        "elapsed_raw": _text(time.get("elapsed")),
        "suspended": _text(time["suspended"]) if isinstance(time.get("suspended"), int | Mapping) else "",
        "alloc_tres": _tres(tres.get("allocated")), "req_tres": _tres(tres.get("requested")),
        "node_list": _text(job.get("nodes")), "name": _text(job.get("name")), "account": _text(job.get("account")),
        "user": _text(job.get("user")) or _text((job.get("association") or {}).get("user")),
        "partition": _text(job.get("partition")), "cluster": _text(job.get("cluster")),
    }  # fmt: skip


def _queued(job: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the record of a job of ``squeue --json``; only of one that is over ``end_time`` is an end, else a limit."""
    state = _text(job["job_state"])
    yield {
        "job": _ident(job), "raw": _text(job.get("job_id")), "state": state, "submit": _moment(job.get("submit_time")),
        "eligible": _moment(job.get("eligible_time")), "start": _moment(job.get("start_time")),
        "end": _moment(job.get("end_time")) if fields.state(state) in fields.OVER else "",
        "alloc_tres": _text(job.get("tres_alloc_str")), "req_tres": _text(job.get("tres_req_str")),
        "req_gres": _text(job.get("tres_per_node")), "nodes": _text(job.get("node_count")),
        "name": _text(job.get("name")), "user": _text(job.get("user_name")), "account": _text(job.get("account")),
        "partition": _text(job.get("partition")), "cluster": _text(job.get("cluster")),
    }  # fmt: skip


def _ident(job: Mapping[str, Any]) -> str:
    """Return a job's number as sacct prints it: of a task ``array_task``, of a part ``job+part``."""
    array, parts = _object(job.get("array")), _object(job.get("het"))
    array_id = _text(array.get("job_id", job.get("array_job_id")))
    if array_id not in {"", "0"}:
        task = _text(array.get("task_id", job.get("array_task_id")))
        waiting = _text(array.get("task", job.get("array_task_string")))
        if task and not waiting:
            return f"{array_id}_{task}"
        if waiting:
            return f"{array_id}_[{waiting.strip('[]')}]"
    het_id = _text(parts.get("job_id", job.get("het_job_id")))
    if het_id not in {"", "0"}:
        return f"{het_id}+{_text(parts.get('job_offset', job.get('het_job_offset'))) or 0}"
    return _text(job["job_id"])


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _tres(value: Any) -> str:
    """Return a list of resources as sacct prints it."""
    if not isinstance(value, list):
        return ""
    named = [one for one in value if isinstance(one, Mapping)]
    return ",".join(
        f"{_text(one.get('type'))}{'/' if one.get('name') else ''}{_text(one.get('name'))}={_text(one.get('count'))}"
        for one in named
    )


def _node(node: Mapping[str, Any]) -> Iterator[Row]:
    """Yield the records of nodes of ``sinfo --json`` or ``scontrol show nodes --json``."""
    names = node.get("nodes")
    if isinstance(names, Mapping):
        state = _object(node["node"]).get("state") if "node" in node else node.get("state")
        gres = _object(node.get("gres"))
        since = _moment(_object(node.get("reason")).get("time"))
        for name in names.get("nodes") or ():
            row = {"node": _text(name), "state": _words(state), "gres": _text(gres.get("total")), "since": since}
            yield {**row, "gres_used": _text(gres["used"])} if "used" in gres else row
        return
    yield {
        "node": _text(node.get("name") or node.get("hostname")),
        "state": _words(node["state"], node.get("state_flags")),
        "gres": _text(node.get("gres")), "gres_used": _text(node.get("gres_used")),
        "since": _moment(node.get("reason_changed_at")),
    }  # fmt: skip


def _words(*states: Any) -> str:
    """Return the words of a node's state as they are written in text, ``IDLE+DRAIN``."""
    words = [_text(word) for state in states for word in (state if isinstance(state, list) else [state])]
    return "+".join(filter(None, words))
