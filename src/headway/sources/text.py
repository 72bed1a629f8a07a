"""What files say, made fit for a screen: control characters out, and many complaints told as few."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

LIMIT: Final = 200
"""The longest name or reason that is kept of a file [characters]."""
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_UNFIT: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def clean(text: str, limit: int = LIMIT) -> str:
    r"""Return the text without escape sequences and control characters, and not longer than the limit.

    Names, hosts and reasons come from files that others wrote; none may move a terminal's cursor,
    turn its writing direction, or fail to be encoded.

    Args:
        text: What a file or a path says.
        limit: The longest result [characters].

    Example:
        >>> clean("run\x1b[31m-7\x07\n")
        'run-7'
    """
    text = _UNFIT.sub("", _ESCAPES.sub("", text))
    text = _SURROGATES.sub("\N{REPLACEMENT CHARACTER}", text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


@dataclass
class Complaints:
    """What could not be read, by kind: the first few places and how many there are.

    Attributes:
        where: The file the places are in.
        noun: What a place is called: ``line`` or ``record``.
        shown: How many places of a kind are named.
    """

    where: str
    noun: str = "line"
    shown: int = 3
    _places: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def add(self, what: str, place: object, reason: str = "", count: int = 1) -> None:
        """Note one complaint.

        Args:
            what: The kind, as the end of a sentence: ``no event, left out``.
            place: The number of the line or record.
            reason: What is wrong there.
            count: How many places this one stands for.
        """
        places = self._places.setdefault(what, [])
        self._counts[what] = self._counts.get(what, 0) + count
        if len(places) < self.shown:
            places.append((f"{place}", f" ({clean(reason)})" if reason else ""))

    def __len__(self) -> int:
        """Return how many complaints there are."""
        return sum(self._counts.values())

    def sentences(self) -> list[str]:
        """Return one sentence a kind.

        Example:
            >>> complaints = Complaints("a.jsonl")
            >>> complaints.add("no event, left out", 3, "truncated")
            >>> complaints.sentences()
            ['a.jsonl: line 3 is no event, left out (truncated)']
        """
        return [self._sentence(what, places) for what, places in self._places.items()]

    def _sentence(self, what: str, places: list[tuple[str, str]]) -> str:
        count = self._counts[what]
        if count == 1:
            return f"{self.where}: {self.noun} {places[0][0]} is {what}{places[0][1]}"
        more = ", …" if count > len(places) else ""
        named = ", ".join(place + reason for place, reason in places)
        return f"{self.where}: {count} {self.noun}s are {what}: {named}{more}"
