"""Philly's ``cluster_job_log``: a JSON array of jobs with their attempts, given as rows of one attempt each."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from headway.sources import files
from headway.sources.table.records import Chunk, Note, Notes
from headway.sources.text import Complaints, clean

NAMES: Final = ("jobid", "user", "vc", "status", "submitted_time", "start_time", "end_time", "gpus")
"""What the columns of its rows are called."""
_MARKS: Final = (b'"jobid"', b'"attempts"', b'"submitted_time"')
_BEGIN: Final = re.compile(r'\{\s{0,40}"(?:status|vc|jobid|attempts|submitted_time|user)"')
"""Where a job begins; what is in it begins otherwise, so that one that is damaged costs no other."""
_EDGE: Final = 64
"""What is kept of a piece without a beginning, that may have half of one [characters]."""
_PIECE: Final = 1 << 20
_LONGEST: Final = 1 << 22
"""A job of more is passed over [characters]."""
_MOST_DAMAGED: Final = 1000
_AT_ONCE: Final = 1000


def is_philly(head: bytes) -> bool:
    """Return whether a file begins as such a log.

    Example:
        >>> is_philly(b'[{"status": "Pass", "jobid": "a", "attempts": [], "submitted_time": null}]')
        True
    """
    return head.lstrip()[:1] in {b"[", b"{"} and all(mark in head for mark in _MARKS)


class Attempts:
    """The attempts in a log, with the number of the job that each is of.

    Attributes:
        torn: Why the file cannot be read to its end; empty where it can.
        whole: Always True: a cut of the file is told by its last job.
    """

    whole = True

    def __init__(self, path: Path, bad: Complaints) -> None:
        self._path = path
        self._notes = Notes(bad)
        self.torn = ""

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        """Yield the number of the job and the fields; what is no job is a complaint."""
        for numbers, rows in self.chunks():
            yield from zip(numbers, rows, strict=True)

    def chunks(self) -> Iterator[Chunk]:
        """Yield attempts as `__iter__` does, many at a time."""
        numbers: list[int] = []
        rows: list[list[str]] = []
        for number, found in self._found():
            if not isinstance(found, list):
                if rows and not self._notes.late(found):
                    yield numbers, rows
                    numbers, rows = [], []
                self._notes.make(found)
                continue
            numbers.append(number)
            rows.append(found)
            if len(rows) == _AT_ONCE:
                yield numbers, rows
                numbers, rows = [], []
        if rows:
            yield numbers, rows

    def _found(self) -> Iterator[tuple[int, list[str] | Note]]:
        """Yield the number of the job, and the fields of each attempt or what is wrong with it."""
        for number, job in self._objects():
            if job is None or not isinstance(job.get("attempts"), list) or "jobid" not in job:
                why = "damaged or cut" if job is None else "without jobid or attempts"
                yield number, (number, "no job, left out", number, why, 1)
                continue
            said = [_text(job.get(name)) for name in NAMES[:5]]
            attempts = job["attempts"]
            if not attempts:
                what = "never tried, left out: how many GPUs it asked for is not told"
                yield number, (number, what, number, "", 1)
            for index, attempt in enumerate(attempts):
                start, end = (_text(attempt.get(name)) if isinstance(attempt, dict) else "" for name in NAMES[5:7])
                began, ended = (time.lower() not in {"", "none"} for time in (start, end))
                if began and (ended or index == len(attempts) - 1):
                    yield number, [*said[:4], "" if index else said[4], start, end, str(_gpus(attempt))]
                    continue
                why = "the start" if ended else "the end" if began else "start and end"
                what = "of an attempt without its times, which is left out"
                yield number, (number, what, number, f"{why} not told", 1)

    def _objects(self) -> Iterator[tuple[int, dict[str, Any] | None]]:
        """Yield the objects of the array one by one; of a damaged one None, and what can be read after it."""
        decoder = json.JSONDecoder()
        pieces = self._pieces()
        number, at, text, n_damaged = 0, 0, "", 0
        more = True
        while n_damaged < _MOST_DAMAGED:
            found = _BEGIN.search(text, at)
            if found is None:
                piece = next(pieces, "")
                if not piece:
                    return
                text, at = text[max(at, len(text) - _EDGE) :] + piece, 0
                continue
            at = found.start()
            try:
                job, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError) as error:
                if more and len(text) - at < _LONGEST:
                    piece = next(pieces, "")
                    text, at, more = text[at:] + piece, 0, bool(piece)
                    continue
                n_damaged += 1
                yield number + n_damaged, None
                at = max(found.end(), getattr(error, "pos", 0))
                continue
            number += 1
            yield number + n_damaged, job
        self.torn = f"{n_damaged} jobs are damaged, and the file is read no further"

    def _pieces(self) -> Iterator[str]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        n_bytes, text = 0, ""
        try:
            with files.plain(self._path) as file:
                while data := file.read1(_PIECE):
                    n_bytes += len(data)
                    text += decoder.decode(data)
                    if len(text) >= _PIECE // 2:
                        yield text
                        text = ""
        except files.TornError as error:
            self.torn = f"the file is torn after {n_bytes} bytes and read up to there: {clean(str(error))}"
        yield text + decoder.decode(b"", final=True)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)[:200]


def _gpus(attempt: dict[str, Any]) -> int | str:
    """Return how many GPUs an attempt had; nothing where it is not told."""
    detail = attempt.get("detail")
    if not isinstance(detail, list) or not detail:
        return ""
    held = [server.get("gpus") if isinstance(server, dict) else None for server in detail]
    return sum(len(gpus) for gpus in held if isinstance(gpus, list)) if all(map(_is_list, held)) else ""


def _is_list(value: Any) -> bool:
    return isinstance(value, list)
