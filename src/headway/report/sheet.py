"""A screen of the model: a title, tables and sentences, in the style of a report."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import IO, Any, Final

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headway.report.glyphs import Glyphs, wrap

SCHEMA: Final = 1
MIN_WIDTH: Final = 72
"""Columns of the narrowest screen."""
MAX_WIDTH: Final = 100
"""Columns of the widest sentence."""


def dump(document: Mapping[str, Any]) -> str:
    """Return a document with its schema as one line of strict JSON; what is no number there is null.

    Example:
        >>> dump({"mtbf_s": float("inf")})
        '{"schema": 1, "mtbf_s": null}'
    """
    return json.dumps(_strict({"schema": SCHEMA, **document}), allow_nan=False)


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {_clean(str(key)): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _clean(value) if isinstance(value, str) else value


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


class Sheet:
    """A screen, written block by block.

    Args:
        stream: Where it goes.
        width: Its columns; None: those of the terminal.
    """

    def __init__(self, stream: IO[str], width: int | None = None) -> None:
        self._console = Console(file=stream, width=width)
        self._console.width = max(self._console.width, MIN_WIDTH)
        self.glyphs = Glyphs.of(self._console.encoding)
        self._headed = False

    @property
    def width(self) -> int:
        """Columns of the screen."""
        return self._console.width

    def title(self, title: str, about: str = "") -> None:
        """Write what the screen is of, and its figure below."""
        self._write(Text(self.glyphs.clean(title), style="bold"))
        if about:
            self._lines(about, 0, "bold")

    def head(self, text: str) -> None:
        """Write a heading, after an empty line."""
        self._write(Text(""))
        self._write(Text(self.glyphs.clean(text), style="bold"))
        self._headed = True

    def table(
        self,
        head: Sequence[str],
        rows: Sequence[Sequence[str | Text]],
        left: Sequence[int] = (0,),
        wraps: int | None = None,
    ) -> None:
        """Write rows of cells, after an empty line where no heading stands above.

        Args:
            head: The names of the columns; empty for none.
            rows: Their cells; a `Text` is written as it is.
            left: Numbers of the columns that start at the left.
            wraps: Number of the one that takes what width is left, and wraps; None: the first wraps where the screen
                is too narrow, so that no number is ever cut.
        """
        table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
        for place in range(max(map(len, rows), default=len(head))):
            fixed = place != (wraps or 0)
            table.add_column(
                justify="left" if place in left else "right", no_wrap=fixed, overflow="crop" if fixed else "fold",
                ratio=1 if place == wraps else None,
            )  # fmt: skip
        if any(head):
            table.add_row(*(Text(word, style="dim") for word in head))
        if wraps is not None:
            table.expand = True
            table.width = min(self.width, MAX_WIDTH) - 2
        for row in rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(self.glyphs.clean(cell)) for cell in row))
        if not self._headed:
            self._write(Text(""))
        self._write(Padding(table, (0, 0, 0, 2)))

    def say(self, *sentences: str, style: str = "") -> None:
        """Write sentences, each from a new line, after an empty line; empty ones are left out."""
        said = [text for text in sentences if text]
        if said:
            self._write(Text(""))
        for text in said:
            self._lines(text, 2, style)

    def _lines(self, text: str, indent: int, style: str) -> None:
        for line in wrap(self.glyphs.clean(text), min(self.width, MAX_WIDTH) - indent):
            self._write(Padding(Text(line, style=style), (0, 0, 0, indent)))

    def _write(self, block: RenderableType) -> None:
        """Cells are padded to their column: what is copied from a screen should not be."""
        self._headed = False
        with self._console.capture() as capture:
            self._console.print(block, markup=False, highlight=False)
        self._console.file.write(re.sub(r" +$", "", capture.get(), flags=re.MULTILINE))
