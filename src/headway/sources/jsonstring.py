"""Text that stands in a string of JSON: what a program printed, in a log whose every line is JSON."""

from __future__ import annotations

import json
import re
from typing import Final

_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+')
_DEEPEST: Final = 3
"""So many strings are unpacked one in another."""


def unescaped(text: bytes) -> bytes:
    r"""Return a text as it was printed where it is the rest of a JSON string, as in a line of Docker's log.

    Example:
        >>> unescaped(rb' {\"key\": 5}\n","stream":"stdout"}')
        b' {"key": 5}\n'
        >>> unescaped(b' {"key": 5}')
        b' {"key": 5}'
    """
    for _ in range(_DEEPEST):
        if text[: text.find(b'"')][-1:] != b"\\":
            break
        string = _STRING.match(text)
        try:
            text = str(json.loads(b'"' + string[0] + b'"')).encode("utf-8", "replace") if string else text
        except ValueError:
            break
    return text
