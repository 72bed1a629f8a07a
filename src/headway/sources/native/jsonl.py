"""The events of an ``events.jsonl``: whole lines only, at any moment of its life."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from headway.events import AnyEvent, Open, Step, Unknown, decode
from headway.sources.columns import FIXED, Columns
from headway.sources.files import MAX_LINE, reason, regular
from headway.sources.native.tidy import flaw, tidy
from headway.sources.text import Complaints, clean

NAME: Final = "events.jsonl"
_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = b" \t\r\n\0"
_NO_EVENT: Final = "no event, left out"
_MOST_PHASES: Final = 64
_decoder = msgspec.json.Decoder(AnyEvent)


class EventFile:
    """An ``events.jsonl`` that is read as it grows; its steps go into columns.

    Args:
        path: Where it is.
        label: What it is called in messages.
        columns: What its steps are put into.
        follow: Whether it may be a link: the one that the reader gave may.

    Attributes:
        path: Where it is.
        opens: Its open lines; the first counts.
        events: Its other events but steps.
        offset: Everything before is done with: the beginning of the first line that is not [bytes].
        bytes_read: Everything that was read of it [bytes].
    """

    def __init__(self, path: Path, label: str, columns: Columns, *, follow: bool = True) -> None:
        self.path = path
        self._follow = follow
        self.opens: list[Open] = []
        self.events: list[AnyEvent | Unknown] = []
        self.offset = 0
        self.bytes_read = 0
        self._label = label
        self._columns = columns
        self._n_lines = 0
        self._skipping = False
        self._tail = b""
        self._bad = Complaints(label)
        self._trouble = ""

    def poll(self) -> None:
        """Read the lines that are new; an unfinished last one waits."""
        try:
            with regular(self.path, follow=self._follow) as fd:
                while data := self._read(fd):
                    if not self._take(data):
                        break
            self._trouble = ""
        except FileNotFoundError:
            self._trouble = "it is missing"
        except OSError as error:
            self._trouble = reason(error)

    def finish(self) -> None:
        """Take the last line as it is, for nothing more will come; one that is torn is dropped."""
        tail, self._tail = self._tail, b""
        if not self.offset:
            tail = tail.removeprefix(_BOM)
        self.offset += len(tail)
        if tail.strip() and not self._skipping:
            self._take_line(self._n_lines + 1, tail, "torn: the last line, dropped")

    def warnings(self, *, final: bool) -> list[str]:
        """Return what could not be read, a sentence each."""
        trouble = [f"{self._label}: it cannot be read, {self._trouble}"] if self._trouble and final else []
        return [*trouble, *self._bad.sentences()]

    def is_another(self) -> bool:
        """Return whether lines that were read are no longer there: the file was replaced."""
        try:
            return self.path.stat().st_size < self.offset
        except OSError:
            return False

    def _read(self, fd: int) -> bytes:
        data = os.pread(fd, MAX_LINE, self.offset)
        self.bytes_read += len(data)
        return data

    def _take(self, data: bytes) -> bool:
        """Take the whole lines of what was read from `offset` on; return whether there may be more."""
        end = data.rfind(b"\n") + 1
        self._tail = b"" if end else data
        if not end:
            return self._pass_over(data)
        if self._skipping:
            start = data.index(b"\n") + 1
            self._skipping = False
            self._n_lines += 1
        else:
            start = len(_BOM) if not self.offset and data.startswith(_BOM) else 0
        self.offset += end
        if start < end:
            self._take_lines(data[start:end])
        self._tail = data[end:]
        return len(data) == MAX_LINE

    def _pass_over(self, data: bytes) -> bool:
        """Pass over a piece without a line's end, if it is too long to wait for that."""
        if len(data) < MAX_LINE and not self._skipping:
            return False
        if not self._skipping:
            self._bad.add(f"longer than {MAX_LINE} bytes, left out", self._n_lines + 1)
        self._skipping = True
        self.offset += len(data)
        return len(data) == MAX_LINE

    def _take_lines(self, data: bytes) -> None:
        n = data.count(b"\n")
        if not self._take_fast(data, n):
            for number, line in enumerate(data.split(b"\n")[:-1], self._n_lines + 1):
                if line.strip():
                    self._take_line(number, line)
        self._n_lines += n

    def _take_fast(self, data: bytes, n: int) -> bool:
        """Take lines all at once, or nothing, when they are all events of known kinds."""
        try:
            events = _decoder.decode_lines(data)
        except (msgspec.DecodeError, RecursionError):
            return False
        if len(events) != n:
            return False
        steps = [event for event in events if type(event) is Step]
        names = dict.fromkeys(name for event in steps for name in event.phases)
        if len(names) > _MOST_PHASES or not self._add_steps(steps, list(names)):
            return False
        for number, event in enumerate(events, self._n_lines + 1):
            if type(event) is not Step:
                self._take_event(number, event)
        return True

    def _add_steps(self, steps: Sequence[Step], names: Sequence[str]) -> bool:
        try:
            fixed = {name: np.array([getattr(event, name) for event in steps], np.int64) for name in FIXED}
            waits = {clean(name): np.array([s.phases.get(name, 0) for s in steps], np.int64) for name in names}
        except OverflowError:
            return False
        for index in self._columns.extend(len(steps), fixed, waits):
            self._bad.add("impossible, left out", f"of step {steps[index].step}", flaw(steps[index]))
        return True

    def _take_line(self, number: int, line: bytes, if_bad: str = _NO_EVENT) -> None:
        whole = line.strip(_BLANK)
        if whole != line.strip():
            hole = len(line.strip()) - len(whole)
            self._bad.add(
                "a hole of zero bytes, which the host did not write before it was lost", number, f"{hole} bytes"
            )
        if not whole:
            return
        try:
            event = decode(whole)
        except (msgspec.DecodeError, RecursionError) as error:
            self._bad.add(if_bad, number, str(error))
            return
        self._take_event(number, event)

    def _take_event(self, number: int, event: AnyEvent | Unknown) -> None:
        if why := flaw(event):
            self._bad.add("impossible, left out", number, why)
        elif isinstance(event, Open):
            if self.opens:
                self._bad.add("a second open line; the first counts", number)
            self.opens.append(event)
        elif isinstance(event, Step):
            self._add_steps([event], list(event.phases)[:_MOST_PHASES])
        else:
            self.events.append(tidy(event))
