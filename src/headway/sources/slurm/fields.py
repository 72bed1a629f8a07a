"""What Slurm writes in its fields: moments, durations, counts of GPUs, states, lists of nodes."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, TypeVar

from headway.clock import NS_PER_S
from headway.sources.zone import utc_of

NOTHING: Final = frozenset({"", "unknown", "none", "n/a", "(null)", "null", "none assigned", "invalid"})
"""What Slurm writes where it has nothing to say, in lower case."""
MOST_DEVICES: Final = 10_000_000
"""A job or node of more GPUs is damage."""
STATES: Final = {
    "BF": "boot_fail", "CA": "cancelled", "CD": "completed", "CF": "configuring", "CG": "completing",
    "DL": "deadline", "F": "failed", "NF": "node_fail", "OOM": "out_of_memory", "PD": "pending", "PR": "preempted",
    "R": "running", "RD": "resv_del_hold", "RF": "requeue_fed", "RH": "requeue_hold", "RQ": "requeued",
    "RS": "resizing", "RV": "revoked", "S": "suspended", "SE": "special_exit", "SI": "signaling",
    "SO": "stage_out", "ST": "stopped", "TO": "timeout",
}  # fmt: skip
"""Short and long names of the states of jobs."""
LIVE: Final = frozenset(
    {"running", "suspended", "completing", "configuring", "resizing", "signaling", "stage_out", "stopped"}
)
"""States of a job that holds its devices."""
WAITING: Final = frozenset({"pending", "requeue_hold", "requeue_fed", "resv_del_hold", "special_exit"})
"""States of a job in the queue."""
LONG: Final = frozenset({*STATES.values(), "launch_failed", "reconfig_fail", "power_up_node", "update_db"})
"""Every state of a job."""
OVER: Final = LONG - LIVE - WAITING
"""States of a job that has ended."""
MOST_NODES: Final = 200_000
_CUT: Final = 5
"""A state cut to less is none where nothing says that it is cut [characters]."""
_WORD: Final = re.compile(r"[A-Za-z_]+")
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?!\d))?)(?:\.\d+)?(Z|[+-]\d\d:?\d\d)?", re.ASCII)
_CLOCK: Final = re.compile(r"T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d", re.ASCII)
_PLAIN: Final = len("2024-01-31T12:00:00")
_LENGTH: Final = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,8}):)?(\d{1,8}):(\d\d)(?:\.\d*)?", re.ASCII)
_TASKS: Final = re.compile(r"_\[([0-9,:-]+)(?:%(\d+))?", re.ASCII)
_NODE: Final = re.compile(r"[\w.-]+")
_NODES: Final = re.compile(r"(?:[^,\[\]\s]|\[[^\]]*\])+")
_PIECES: Final = re.compile(r"\[[^\]]*\]|[^\[\]]+")
_YEARS: Final = (1971, 2100)
LONGEST_NS: Final = 100 * 366 * 86400 * NS_PER_S
"""A job that took longer is damage."""
_QUARTER_NS: Final = 900 * NS_PER_S
"""Clocks are put back at whole quarters of an hour [ns]."""
_SHORT: Final = 500
_LONGEST_NAME: Final = 255


_K = TypeVar("_K", bound=str | bytes)
_V = TypeVar("_V")


class Short(dict[_K, _V]):
    """What a function makes of texts, kept for those that are short, of which there are not too many.

    Example:
        >>> lengths = Short(len)
        >>> lengths["seven"], lengths["x" * 600], [*lengths]
        (5, 600, ['seven'])
    """

    def __init__(self, make: Callable[[_K], _V], most: int = 1 << 14) -> None:
        super().__init__()
        self._make: Callable[[_K], _V] = make
        self._most = most

    def __missing__(self, text: _K) -> _V:
        made: _V = self._make(text)
        if len(text) <= _SHORT:
            if len(self) >= self._most:
                self.clear()
            self[text] = made
        return made


class CutError(Exception):
    """A cell was cut to the width of its column: Slurm ends such cells with ``+``."""


def whole(text: str, column: str = "") -> str:
    """Return a cell that is not cut.

    Raises:
        CutError: It is; with the column's name, where that is given.
    """
    if text.rstrip().endswith("+"):
        raise CutError(f"{column} {text.strip()[:40]}".strip())
    return text


def nothing(text: str) -> bool:
    """Return whether a field says nothing.

    Example:
        >>> nothing("Unknown"), nothing("0")
        (True, False)
    """
    return text.strip().lower() in NOTHING


class Moments:
    """Reads moments, and notes whether one came without its zone.

    Attributes:
        zone: Of those that name none; None: UTC.
        local: Whether a moment had no zone.
    """

    def __init__(self, zone: tzinfo | None = None) -> None:
        self.zone = zone
        self.local = False
        self._days: dict[str, int] = {}

    def read(self, text: str) -> int | None:
        """Return a moment [ns since the Unix epoch], also one cut to its minute; None where the field says nothing.

        Raises:
            ValueError: It is no moment, or none of a year from 1971 to 2100.

        Example:
            >>> Moments().read("2023-01-15T03:01:10") // 10**9
            1673751670
            >>> Moments().read("N/A")
        """
        if len(text) == _PLAIN and (day := self._days.get(text[:10])) is not None and _CLOCK.fullmatch(text, 10):
            self.local = True
            return self._placed((day + int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:])) * NS_PER_S)
        text = text.strip()
        if nothing(text):
            return None
        if text.isdecimal() and text.isascii() and len(text) < 12:
            return _in_range(datetime.fromtimestamp(int(text), UTC)) if int(text) else None
        if not (match := _MOMENT.fullmatch(text)):
            raise ValueError(f"{text[:40]} is no moment as 2024-01-31T12:00:00")
        self.local |= match[2] is None
        moment = _in_range(datetime.fromisoformat(match[1] + (match[2] or "Z")))
        if len(text) == _PLAIN:
            self._days[text[:10]] = moment // NS_PER_S // 86400 * 86400
        return moment if match[2] else self._placed(moment)

    def readings(self, text: str, moment: int | None) -> list[int | None]:
        """Return what a moment may be, the earlier first: two where clocks of the zone show it twice.

        Args:
            text: As it is told.
            moment: What `read` made of it [ns since the Unix epoch].
        """
        if self.zone is None or moment is None or not (back := _back_ns(moment // _QUARTER_NS, self.zone)):
            return [moment]
        match = _MOMENT.fullmatch(text.strip())
        return [moment, moment + back] if match and match[2] is None else [moment]

    def _placed(self, local_ns: int) -> int:
        """Return what a clock of the zone showed [ns since the Unix epoch]."""
        return local_ns if self.zone is None else utc_of(local_ns, self.zone)


@lru_cache(1 << 12)
def _back_ns(quarter: int, zone: tzinfo) -> int:
    """Return after how long clocks show a quarter of an hour since the Unix epoch again [ns]; 0: not again."""
    shown = datetime.fromtimestamp(quarter * 900, UTC).astimezone(zone)
    before, after = (shown.replace(fold=fold).utcoffset() or timedelta(0) for fold in (0, 1))
    return 0 if shown.fold else max(round((before - after).total_seconds()), 0) * NS_PER_S


def _in_range(moment: datetime) -> int:
    if not _YEARS[0] <= moment.year <= _YEARS[1]:
        raise ValueError(f"{moment:%Y-%m-%d} is outside the years {_YEARS[0]} to {_YEARS[1]}")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1) * NS_PER_S


def length(text: str) -> int | None:
    """Return a duration, of seconds or as ``[days-][hours:]minutes:seconds`` [ns]; None where there is none.

    Raises:
        ValueError: It is longer than 100 years.

    Example:
        >>> length("1-00:15:56") // 10**9, length("4:59") // 10**9, length("87356") // 10**9
        (87356, 299, 87356)
    """
    text = text.strip()
    if text.isdecimal() and text.isascii() and len(text) < 20:
        seconds = int(text)
    elif match := _LENGTH.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        seconds += ((days * 24 + hours) * 60 + minutes) * 60
    else:
        return None
    if seconds * NS_PER_S > LONGEST_NS:
        raise ValueError(f"{text[:40]} is longer than 100 years")
    return seconds * NS_PER_S


def is_long(text: str) -> bool:
    """Return whether a state of a job is written out.

    Example:
        >>> is_long("CANCELLED by 7"), is_long("CA")
        (True, False)
    """
    match = _WORD.match(text.strip())
    return match is not None and match[0].lower() in LONG


def state(text: str) -> str:
    """Return a state of a job as one long word; nothing where it is none.

    Example:
        >>> state("CANCELLED by 1185"), state("PD"), state("OUT_OF_ME+"), state("COMPLETI"), state("Tuesday")
        ('cancelled', 'pending', 'out_of_memory', 'completing', '')
    """
    return _STATE[text]


def _state(text: str) -> str:
    if not (match := _WORD.match(text.strip())):
        return ""
    word = match[0]
    if word in STATES:
        return STATES[word]
    word = word.lower()
    if word in LONG:
        return word
    if not text.strip().endswith("+") and (len(word) < _CUT or not match[0].isupper() or match[0] != text.strip()):
        return ""
    cut = [long for long in LONG if long.startswith(word)]
    return cut[0] if len(cut) == 1 else ""


_STATE: Final = Short(_state)


def tasks(text: str) -> tuple[list[range], int]:
    """Return which tasks of an array a record of the queue lists, and how many may run at once, 0 for all.

    Example:
        >>> tasks("42_[7-8%1]"), tasks("42_[0-6:2,9]"), tasks("42_3")
        (([range(7, 9)], 1), ([range(0, 7, 2), range(9, 10)], 0), ([], 0))
    """
    if not (match := _TASKS.search(text)):
        return [], 0
    found: list[range] = []
    for part in match[1].split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        if low.isdecimal() and len(low) < 10:
            last = int(high) if high.isdecimal() and len(high) < 10 else int(low)
            each = int(step) if step.isdecimal() and len(step) < 10 else 1
            found.append(range(int(low), max(last, int(low)) + 1, max(each, 1)))
    return found, int(match[2]) if match[2] and len(match[2]) < 10 else 0


def nodes(text: str) -> list[str]:
    """Return the names in a list of nodes, which are counted before one of them is made.

    Raises:
        ValueError: They are more than any machine has, or no list of names.

    Example:
        >>> nodes("gpu[08-10,12],login1")
        ['gpu08', 'gpu09', 'gpu10', 'gpu12', 'login1']
    """
    if len(text) <= _LONGEST_NAME and _NODE.fullmatch(text):
        return [text]
    names: list[str] = []
    for pieces in _counted(text)[0]:
        found = [""]
        for spans in pieces:
            parts = [part for span in spans for part in _named(span)]
            found = [name + part for name in found for part in parts]
        names += found
    return names


def n_nodes(text: str) -> int:
    """Return how many names a list of nodes has.

    Raises:
        ValueError: As `nodes`.

    Example:
        >>> n_nodes("gpu[08-10,12],login1")
        5
    """
    return _counted(text)[1]


def _counted(text: str) -> tuple[list[list[list[_Span]]], int]:
    """Return what the pieces of each item of a list of nodes stand for, and how many names these are."""
    items = [[_spans(piece) for piece in _PIECES.findall(item)] for item in _NODES.findall(text.strip())]
    n_names = 0
    for pieces in items:
        n_of_item = 1
        for spans in pieces:
            n_of_item = min(n_of_item * sum(len(numbers) for _, _, numbers in spans), MOST_NODES + 1)
        n_names += n_of_item
        if n_names > MOST_NODES:
            raise ValueError(f"{text[:40]} are more nodes than any machine has")
        if sum(max(map(_length, spans)) for spans in pieces) > _LONGEST_NAME:
            raise ValueError(f"{text[:40]} is longer than the name of any node")
    return items, n_names


_Span = tuple[str, int, range]
"""A text, or numbers and with how many digits they are written: of a text 0, and one number."""


def _named(span: _Span) -> list[str]:
    """Return what a part of a node's name stands for."""
    text, width, numbers = span
    return [f"{number:0{width}}" for number in numbers] if width else [text]


def _length(span: _Span) -> int:
    """Return how long what it stands for is at most."""
    text, width, numbers = span
    return max(width, len(str(numbers[-1]))) if width else len(text)


def _spans(piece: str) -> list[_Span]:
    """Return what a piece of a node's name stands for: itself, or all numbers in its brackets."""
    if not piece.startswith("["):
        return [(piece, 0, range(1))]
    spans: list[_Span] = []
    for part in piece[1:-1].split(","):
        low, dash, high = part.partition("-")
        if not dash:
            spans.append((low, 0, range(1)))
        elif (
            low.isdecimal()
            and high.isdecimal()
            and len(low) < 20
            and len(high) < 10
            and 0 <= int(high) - int(low) < MOST_NODES
        ):
            spans.append(("", len(low), range(int(low), int(high) + 1)))
        else:
            raise ValueError(f"{piece[:40]} is no list of numbers")
    return spans
