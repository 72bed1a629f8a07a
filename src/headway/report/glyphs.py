"""What can be printed: bars, separators and text that came from files, for the encoding at hand."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Final

_AMOUNT: Final = re.compile(r" (?=\d)|(?<=\d) ")
_EIGHTHS: Final = "▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters of a screen.

    Attributes:
        encoding: What the output is written in.
        plain: Whether only ASCII is safe there.

    Example:
        >>> Glyphs.of("utf-8").bar(0.5, 5), Glyphs.of("ascii").bar(0.5, 5)
        ('██▌', '##')
    """

    encoding: str
    plain: bool

    @classmethod
    def of(cls, encoding: str) -> Glyphs:
        """Return the glyphs an encoding can write."""
        try:
            f"{_EIGHTHS}·…".encode(encoding)
        except (UnicodeEncodeError, LookupError):
            return cls(encoding, plain=True)
        return cls(encoding, plain=False)

    @property
    def dot(self) -> str:
        """What stands between the parts of a line."""
        return "-" if self.plain else "·"

    def bar(self, fraction: float, width: int) -> str:
        """Return a bar of that share of the width; anything above zero shows.

        Args:
            fraction: Share of the width, in [0, 1].
            width: The longest bar [characters].
        """
        if self.plain:
            return "#" * (max(1, round(fraction * width)) if fraction > 0 else 0)
        eighths = max(1, round(fraction * width * 8)) if fraction > 0 else 0
        return _EIGHTHS[-1] * (eighths // 8) + (_EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")

    def clean(self, text: str) -> str:
        r"""Return text from a file as one line that cannot steer a terminal and can be written.

        Example:
            >>> Glyphs.of("ascii").clean("r\x1b[31mü")
            'r?[31m?'
        """
        shown = "".join(char if char.isprintable() else "?" for char in text)
        encoding = "ascii" if self.plain else self.encoding
        return shown.encode(encoding, "replace").decode(encoding)

    def shorten(self, text: str, width: int) -> str:
        """Return the cleaned text in at most that many characters, its middle left out."""
        text = self.clean(text)
        if len(text) <= width:
            return text
        gap = ".." if self.plain else "…"
        head = (width - len(gap) + 1) // 2
        return text[:head] + gap + text[len(text) - (width - len(gap) - head) :]


def wrap(text: str, width: int) -> list[str]:
    """Return cleaned text in lines of at most that many characters; a number stays with what it counts.

    Example:
        >>> wrap("source 4.1 s, transform 800 ms", 27)
        ['source 4.1 s,', 'transform 800 ms']
    """
    return [line.replace("\0", " ") for line in textwrap.wrap(_AMOUNT.sub("\0", text), max(width, 1))]
