"""The last line of a terminal, which a progress bar shares with the program's own prints.

While a bar stands there, what the program prints makes it go away first, so that every print
begins at column 0; the bar comes back with its next drawing, once the printed line has ended.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any, TextIO


class SharedLine:
    """Draws over one line of a stream.

    To see a print coming, it puts a function in front of the ``write`` of stdout and stderr where
    these are terminals, and takes it away with `close`; the streams stay the same objects.

    Args:
        stream: Where to draw. What it raises is the caller's to handle.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._columns = 0  # how many are drawn on
        self._others = False  # whether a line of the program's own has not ended yet
        self._own = False  # whether what is written is the drawing
        self._open = True
        self._hooks: list[tuple[Any, Any, Any]] | None = None

    def draw(self, text: str, columns: int, end: str = "") -> None:
        """Draw the text, padded to that many columns; not into a line of the program's own.

        Args:
            text: What to draw.
            columns: How wide the line is.
            end: What follows, such as a newline: then a line of the program's own is ended first.
        """
        if self._hooks is None:
            self._hook()
        if self._others and not end:
            return
        self._write(("\n" if self._others else "\r") + text.ljust(columns) + end)
        self._columns = 0 if end else columns

    def close(self) -> None:
        """Let the program's prints alone again."""
        self._open = False
        for stream, hook, before in self._hooks or ():
            with contextlib.suppress(Exception):  # a stream may be anything
                if vars(stream).get("write") is not hook:  # somebody else's by now: ours only passes on
                    continue
                if before is None:
                    del stream.write
                else:
                    stream.write = before
        self._hooks = []

    def _write(self, text: str) -> None:
        self._own = True
        try:
            self._stream.write(text)
            self._stream.flush()
        finally:
            self._own = False

    def _make_way(self, text: object) -> None:
        """Clear the line for a text of the program's own."""
        if self._own or not self._open or not isinstance(text, str) or not text:
            return
        columns, self._columns = self._columns, 0
        if columns:
            with contextlib.suppress(Exception):  # the print itself will meet what is wrong
                self._write("\r" + " " * columns + "\r")
        self._others = not text.endswith("\n")

    def _hook(self) -> None:
        self._hooks = []
        for stream in {id(stream): stream for stream in (sys.stdout, sys.stderr, self._stream)}.values():
            with contextlib.suppress(Exception):  # a stream may be anything, or None
                if stream.isatty():
                    before = vars(stream).get("write")
                    hook = self._in_front_of(stream.write)
                    stream.write = hook  # type: ignore[method-assign]
                    self._hooks.append((stream, hook, before))

    def _in_front_of(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def hook(text: Any, /) -> Any:
            self._make_way(text)
            return write(text)

        return hook
