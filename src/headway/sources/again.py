"""Where to read on in JSON of which a value is broken, in time that grows with the text."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Final

_FREE: Final = 1 << 24
"""So much is looked at for nothing, whatever the text [characters]."""
_TIMES: Final = 16
"""So often the text before may be looked at for nothing beside that."""
_DEEP: Final = 500
"""So many brackets are open at least where values are too deep to be read."""
_BRACKET: Final = re.compile(r"[\[{]")
_DIGITS: Final = re.compile(r"\d{4300}")
_TAIL: Final = 16
"""What is cut breaks so close to its end, or in a string [characters]."""


class Again:
    """Where the next value is looked for, as often as one is broken.

    A broken value may have swallowed those after it, so that they are looked for from its beginning on. Where too
    much was looked at for nothing, all is passed over up to the place that broke it: else values inside each other
    would be read over and over.

    Attributes:
        skipped: Whether values may lie before the last place that was told.

    Example:
        >>> again, text = Again(), '{"a": {"a": 7 ]}'
        >>> try:
        ...     json.loads(text)
        ... except ValueError as error:
        ...     again.after(text, 0, error)
        1
    """

    def __init__(self) -> None:
        self.skipped = False
        self._looked = 0

    def after(self, text: str, at: int, error: Exception, gone: int = 0) -> int:
        """Return the place in a text from which on the next value is looked for.

        Args:
            text: What is known of the whole text.
            at: Where in it the broken value begins.
            error: What was wrong with it.
            gone: How much of the whole text was before [characters].
        """
        reach = max(_reach(text, at, error), at + 1)
        self._looked += reach - at
        self.skipped = self._looked > _FREE + _TIMES * (gone + at)
        return reach if self.skipped else at + 1


def is_cut(text: str, error: Exception) -> bool:
    """Return whether a value may be whole with more text.

    Example:
        >>> try:
        ...     json.loads('{"a": "b')
        ... except ValueError as error:
        ...     is_cut('{"a": "b', error)
        True
    """
    if not isinstance(error, json.JSONDecodeError):
        return False
    return error.msg.startswith("Unterminated") or error.pos >= len(text) - _TAIL


def _reach(text: str, at: int, error: Exception) -> int:
    """Return up to where a broken value was read, or less."""
    if isinstance(error, json.JSONDecodeError):
        return error.pos
    if isinstance(error, RecursionError):
        found = next(islice(_BRACKET.finditer(text, at), _DEEP, None), None)
    else:  # of an integer that is too long
        found = _DIGITS.search(text, at)
    return found.end() if found else len(text)
