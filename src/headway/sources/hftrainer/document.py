"""The JSON of a trainer's state, read piece by piece: its history may be long."""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Iterator
from typing import Any, Final

from headway.sources import files

_PIECE: Final = 1 << 18
_LONGEST: Final = 1 << 24
"""No value beside the history is longer [characters]."""
_SOME: Final = re.compile(r"\S")
_COMMA: Final = re.compile(r"\s*,\s*(?=[^\s\]])")
"""What is between two elements, if both are there."""


class Document:
    """A JSON object read piece by piece, so that its history is never whole in memory."""

    def __init__(self, file: io.BufferedReader[Any]) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode
        self._json = json.JSONDecoder()
        self._text = ""
        self._at = 0
        self._ended = False
        self._passed = 1

    @property
    def line(self) -> int:
        """The number of the line it is read to."""
        return self._passed + self._text.count("\n", 0, self._at)

    def members(self) -> Iterator[tuple[str, Any]]:
        """Yield each key with its value; of ``log_history`` each entry with its number, from 1.

        Raises:
            ValueError: It is no JSON object, or breaks off.
        """
        self._expect("{")
        while self._peek() != "}":
            key = self._value()
            self._expect(":")
            if key == "log_history" and self._peek() == "[":
                yield from (("log_history", one) for one in enumerate(self._items(), 1))
            else:
                yield str(key), self._value()
            if self._peek() != "}":
                self._expect(",")

    def rest(self) -> int:
        """Return the number of the line that the object ends in, if something comes after it; else 0."""
        self._expect("}")
        line = self.line
        return line if self._peek() else 0

    def _items(self) -> Iterator[Any]:
        self._expect("[")
        while self._peek() != "]":
            yield self._value()
            while found := _COMMA.match(self._text, self._at):
                self._at = found.end()
                yield self._decoded()
            if self._peek() != "]":
                self._expect(",")
        self._expect("]")

    def _more(self, size: int = _PIECE) -> None:
        """Read on; what was used of the text is let go."""
        self._passed += self._text.count("\n", 0, self._at)
        data = files.piece(self._file, size)
        self._ended = not data
        self._text = self._text[self._at :] + self._decode(data, final=not data)
        self._at = 0

    def _peek(self) -> str:
        """Return the next character that is no blank; nothing at the end."""
        while True:
            if found := _SOME.search(self._text, self._at):
                self._at = found.start()
                return found[0]
            self._at = len(self._text)
            if self._ended:
                return ""
            self._more()

    def _expect(self, mark: str) -> None:
        if self._peek() != mark:
            raise ValueError(f"no {mark}")
        self._at += 1

    def _value(self) -> Any:
        self._peek()
        return self._decoded()

    def _decoded(self) -> Any:
        """Return the value that begins here."""
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except ValueError:
                if self._ended or len(self._text) - self._at > _LONGEST:
                    raise
            else:
                if end < len(self._text) or self._ended:  # a number at the end may go on
                    self._at = end
                    return value
            self._more(max(_PIECE, len(self._text) - self._at))
