"""Where the steps, evaluations and saves of a MaxText log lie: on its clock, or end to end where it has none."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from headway.clock import NS_PER_S
from headway.sources.steps.columns import UNKNOWN, search

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

SPANS: Final = ("evaluation", "checkpoint_save")
"""What a program does between steps."""
STARTS: Final = ("banner", "restored")
"""What tells that a program began."""
_WORTH: Final = 0.1
"""Less than that of a step's time is not told from its usual ups and downs."""
_LITTLE: Final = 20
"""One part of a step in so many may pass beside its seconds."""
_LATE: Final = 3
"""The line of a step is written by so many steps later, at most, and its seconds tell of the time until then."""


@dataclass(slots=True)
class Told:
    """A line that tells of something else than steps.

    Attributes:
        number: The line's number.
        kind: What it tells: one of `SPANS` that ended, or that began with ``begins`` behind it; ``waits``: the program
            has handed a step to the devices and does something else; else a kind of mark.
        step: Of which step.
        at: When [ns since the Unix epoch], -1 where nothing tells it.
        rank: Who says it.
        name: The category of the span that ended.
        until: When it ended [ns since the Unix epoch], -1 where nothing tells it.
        took: How long it took [ns], -1 where nothing tells it.
        inferred: Whether that was worked out from other times.
        flushes: Whether the line of the last step comes after it, although that step ended before.
    """

    number: int
    kind: str
    step: int = 0
    at: int = -1
    rank: int = -1
    name: str = ""
    until: int = -1
    took: int = -1
    inferred: bool = False
    flushes: bool = False

    def lasted(self, took: int, *, until: int | None = None, name: str = "", inferred: bool = False) -> None:
        """Note how long what ended with the line took [ns]."""
        self.took, self.until, self.inferred = took, self.at if until is None else until, inferred
        self.name = name or self.kind


class Rows(NamedTuple):
    """The lines of steps in the order of the file: number, step, seconds [ns], time, rank; `UNKNOWN` for none."""

    line: Ints
    step: Ints
    took: Ints
    at: Ints
    rank: Ints


def usual(rows: Rows, told: Sequence[Told]) -> int:
    """Return how long a step usually takes, beside which nothing else was done [ns]; 0 where nothing tells."""
    after = [one.step + 1 for one in told if one.kind in SPANS]
    plain = rows.took[(rows.took != UNKNOWN) & ~np.isin(rows.step, after)]
    return int(np.median(plain, overwrite_input=True)) if len(plain) else 0


def end_to_end(rows: Rows, told: Sequence[Told], own: Sequence[int]) -> Ints:
    """Return how long each step took [ns], and note how long evaluations and saves did.

    The seconds of a step may go from the step before it: what was done after that is in them then. Where they do not,
    an evaluation took what its own steps did.

    Args:
        rows: The steps.
        told: The other lines, in the order of the file.
        own: What the steps of each evaluation among them took together [ns]; -1 of all that tell nothing.
    """
    took, most = rows.took.astype(np.int64), usual(rows, told)
    places = search(rows.line, [one.number for one in told])
    before: dict[int, list[tuple[Told, int]]] = {}
    begun = [(one.number, place) for one, place in zip(told, places, strict=True) if one.kind in STARTS]
    for one, low, length in zip(told, places, own, strict=True):
        if one.kind not in SPANS:
            continue
        next_begun = bisect_right(begun, (one.number, 0))
        end = begun[next_begun][1] if next_begun < len(begun) else len(rows.step)
        later = np.flatnonzero(rows.step[low : min(low + _LATE, end)] == one.step + 1)
        if len(later) and most and took[low + later[0]] > most * (1 + _WORTH):
            before.setdefault(low + int(later[0]), []).append((one, length))
        elif length > 0:
            one.lasted(length)
    for place, pairs in before.items():
        beyond = int(took[place]) - most
        for near in range(place + 1, min(place + _LATE, len(took))):
            if near in before or rows.step[near] != rows.step[near - 1] + 1 or not 0 <= 2 * took[near] < most:
                break
            beyond -= most - int(took[near])  # it waited for that step, too
        if beyond > 0:
            _share(beyond, pairs)
            took[place] -= beyond
    return took


def _share(beyond: int, pairs: Sequence[tuple[Told, int]]) -> None:
    """Say of what was done before one step how long it took, of what all of that did [ns]."""
    kinds = {one.kind for one, _ in pairs}
    told = sum(length for one, length in pairs if length > 0)
    last = pairs[-1][0]
    for one, _ in pairs:
        one.took = 0  # it is in what another took
    if len(kinds) > 1 and 0 < told < beyond:
        for one, length in pairs:
            if length > 0:
                one.lasted(length)
        last = next(one for one, length in reversed(pairs) if length <= 0)
        last.lasted(beyond - told, inferred=True)
    else:
        last.lasted(beyond, name=last.kind if len(kinds) == 1 else "unaccounted", inferred=True)


class OnClock:
    """Steps whose lines have times.

    JAX hands steps to the devices ahead of their end, and the line of a step is written when it has ended: what passes
    between two lines is a step, and what was done beside it. The seconds tell of the time that the program took to hand
    steps over: of what passed between lines the same, a step or two later. So they tell which of that time is steps.

    Args:
        rows: The steps.
        told: The other lines, in the order of the file.
    """

    def __init__(self, rows: Rows, told: Sequence[Told]) -> None:
        self._took = rows.took.astype(np.int64)
        self._most = self._usual = usual(rows, told)
        names, counts = np.unique(rows.rank, return_counts=True)
        main = int(names[np.argmax(counts)])
        self._own = np.flatnonzero((rows.at != UNKNOWN) & (rows.rank == main))
        at, line = rows.at[self._own], rows.line[self._own]
        if (at[1:] < at[:-1]).any():
            self._own = self._own[np.lexsort((line, at))]
        step = rows.step[self._own]
        self._own = self._own[np.concatenate([np.ones(min(len(step), 1), bool), step[1:] != step[:-1]])]
        self._step, self._at, self._line = (values[self._own] for values in (rows.step, rows.at, rows.line))
        self._seconds = self._took[self._own]
        mine = [one for one in told if one.at >= 0 and (one.rank in {main, -1} or main == -1)]
        self._told = sorted(mine, key=lambda one: (one.at, one.number))

    def took(self) -> Ints:
        """Return how long each step took [ns], in the order of the file; note how long evaluations and saves did.

        It is `UNKNOWN` of those that took all of the time since the line before them that nothing else did.
        """
        if not len(self._own):
            return self._took
        after, beside, begun, waits = self._between()
        goes_on = np.zeros(len(self._own), bool)
        np.equal(self._step[1:], self._step[:-1] + 1, out=goes_on[1:])
        goes_on[[place for place in begun if place < len(goes_on)]] = False
        own = np.where(goes_on, np.diff(self._at, prepend=self._at[0]), 0)
        for place, length in beside.items():
            if place < len(own):
                own[place] -= length
        whole = 0 if (self._at % NS_PER_S).any() else NS_PER_S
        plain = goes_on.copy()
        plain[[place for place in (*after, *beside) if place < len(plain)]] = False
        if not whole and plain.any():
            self._most = int(np.median(own[plain], overwrite_input=True))
        for place, some in after.items():
            if place < len(goes_on) and (length := self._infer(place, some, own, goes_on, plain)):
                own[place] -= length
                if not goes_on[place]:
                    waits.setdefault(place, some[-1].until - length)
        took = np.where(goes_on, UNKNOWN, self._seconds)
        for place, length in self._shorter(own, goes_on, plain, late=bool(whole)).items():
            took[place] = length
        self._until_waited(took, goes_on, waits)
        self._took[self._own] = took
        return self._took

    def _until_waited(self, took: Ints, goes_on: NDArray[np.bool_], waits: dict[int, int]) -> None:
        """Let first steps take their seconds, and what passed since they were handed over."""
        for place, waited in waits.items():
            if place < len(took) and not goes_on[place] and self._seconds[place] != UNKNOWN:
                took[place] = self._seconds[place] + int(self._at[place]) - waited

    def _shorter(
        self, own: Ints, goes_on: NDArray[np.bool_], plain: NDArray[np.bool_], *, late: bool
    ) -> dict[int, int]:
        """Return by place how long steps were that seconds do not tell to have taken all of their time [ns].

        What passed between two lines beyond the seconds is of the step as far as the seconds of the next two lines
        are longer than what passed before them, each such second counted once. At the beginning, where steps are handed
        over before any has ended, at the end, where nothing tells those seconds, and beside something else, which waits
        for the devices, a step may have been as long as usual, and longer by what the next two were shorter than usual,
        or by what the log says that the program waited for a step.

        Args:
            own: What passed between its line and the one before, less what else was done there [ns].
            goes_on: Whether it is the next step of the line before.
            plain: Whether nothing else was done between the two.
            late: Whether times are in whole seconds: a line may then seem up to a second late, or early.
        """
        n = len(own)
        near = ~plain
        for away in range(1, _LATE + 1):
            near[away:] |= ~plain[:-away]
            if away < _LATE:
                near[:-away] |= ~plain[away:]
        edge = near.copy()
        edge[-_LATE:] = True
        least = np.where(edge, self._usual, 0)
        seconds = np.maximum(np.where(self._seconds == UNKNOWN, own, self._seconds), least)
        beyond = own - seconds
        enough = np.maximum(seconds, self._usual) // _LITTLE
        spare = np.where(plain, np.maximum(-beyond, 0), 0)
        spare = np.where(near & goes_on, np.maximum(spare, self._usual - own), spare)
        found: dict[int, int] = {}
        waited = self._waited()
        for place in np.flatnonzero(goes_on & (beyond > enough)).tolist():
            left = int(beyond[place])
            for other in ((place - 2, place - 1) if late else ()) + (place + 1, place + 2):
                if 0 <= other < n:
                    used = min(left, int(spare[other]))
                    spare[other] -= used
                    left -= used
            more = waited.get(place, 0) - (int(beyond[place]) - left)
            left -= min(left, max(more, 0))
            if left > enough[place]:
                found[place] = max(int(own[place]) - left, 0)
        return found

    def _waited(self) -> dict[int, int]:
        """Return by the line of a step before which it did how long the program waited for one to be saved [ns]."""
        waited: dict[int, int] = {}
        since: dict[int, int] = {}
        for one, place in zip(self._told, self._places(), strict=True):
            if one.kind in STARTS:
                since.clear()
            elif one.kind == "waits":
                since.setdefault(one.step, one.at)
            elif one.kind == "checkpoint_save begins":
                waited[place] = max(waited.get(place, 0), one.at - since.pop(one.step, one.at))
        return waited

    def _between(self) -> tuple[dict[int, list[Told]], dict[int, int], set[int], dict[int, int]]:
        """Pair what began and ended.

        Returns:
            By the line of a step before which it ended: what ended of which nothing tells when it began; how long all
            else took [ns]; where a program began; and when the first step of one was handed over [ns since the Unix
            epoch].
        """
        after: dict[int, list[Told]] = {}
        beside: dict[int, int] = {}
        begun: set[int] = set()
        waits: dict[int, int] = {}
        began: dict[tuple[str, int], int] = {}
        ended: set[tuple[str, int]] = set()
        for one, place in zip(self._told, self._places(), strict=True):
            key = one.kind.removesuffix(" begins"), one.step
            if one.kind in STARTS:
                begun.add(place)
                began.clear()
                ended.clear()
                for earlier in (after, waits):
                    earlier.pop(place, None)
            elif one.kind == "waits":
                if place < len(self._step) and self._step[place] == one.step:
                    waits.setdefault(place, one.at)
            elif one.kind.endswith(" begins"):
                began.setdefault(key, one.at)
            elif one.kind in SPANS and key in began:
                one.lasted(one.at - began.pop(key))
                ended.add(key)
                beside[place] = beside.get(place, 0) + one.took
            elif one.kind in SPANS and key in ended:
                one.took = 0  # another host says it again
            elif one.kind in SPANS:
                ended.add(key)
                after.setdefault(place, []).append(one)
        return after, beside, begun, waits

    def _places(self) -> list[int]:
        """Return for each other line how many lines of steps come before it."""
        moments = [one.at for one in self._told]
        rows = zip(self._told, search(self._at, moments), search(self._at, moments, "right"), strict=True)
        places, same, own = [], (0, 0), self._line[:0]
        for one, low, high in rows:  # many may be of one moment
            if same != (low, high):
                same, own = (low, high), np.sort(self._line[low:high])
            places.append(low + int(np.searchsorted(own, one.number)))
        return places

    def _infer(
        self, place: int, some: Sequence[Told], own: Ints, goes_on: NDArray[np.bool_], plain: NDArray[np.bool_]
    ) -> int:
        """Say how long took what ended before a line, of which nothing tells when it began; return it [ns]."""
        last, kinds = some[-1], {one.kind for one in some}
        after = place + 1 < len(goes_on) and goes_on[place + 1]
        if goes_on[place]:
            low = int(self._at[place - 1])
            beyond = int(own[place]) - self._most
            if after and plain[place + 1] and 2 * own[place + 1] < self._most:
                beyond -= self._most - int(own[place + 1])  # it waited for the step of the next line, too
        elif after and last.step == self._step[place]:
            low, beyond = 0, int(self._seconds[place + 1]) - self._most
        else:
            return 0
        if not self._most or beyond <= self._most * _WORTH:
            return 0
        until = last.at if last.at > low else low + beyond
        length = min(beyond, until - low)
        for one in some:
            one.took = 0  # it is in what the last took
        last.lasted(length, until=until, name=last.kind if len(kinds) == 1 else "unaccounted", inferred=True)
        return length
