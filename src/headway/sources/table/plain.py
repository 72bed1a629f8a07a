"""Rows of a table made jobs many at a time, where nothing about them is odd."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.ledger.jobs import LABELS, UNTOLD, Jobs
from headway.sources.table.amounts import CACHED, SHORT, Amounts, BadCell
from headway.sources.table.clock import Clock, Form
from headway.sources.table.times import MISSING, UNITS_NS, Times, length_ns
from headway.sources.text import LIMIT, clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from headway.sources.table.mapping import Mapping as Columns

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

MOMENTS: Final = ("submit", "start", "end")
SLACK_NS: Final = 2_000_000_000
"""A duration that differs by less from what lies between its times is only rounded."""
_FAR: Final = 1 << 61
"""Moments and lengths beyond are looked at one by one, so that no sum leaves 64 bits [ns]."""


def label(text: str) -> str:
    """Return a name from a file, fit for a screen."""
    text = text.strip()
    return text if text.isascii() and text.isprintable() and len(text) <= LIMIT else clean(text)


@dataclass(frozen=True, eq=False)
class Told:
    """What rows tell; of those that are not plain, anything.

    Attributes:
        cells: By what a column is, its cells.
        plain: Which rows make a job about which there is nothing to say.
        milli: By row, devices in thousandths.
        moments: Submission, start and end of each [ns since the Unix epoch]; `UNTOLD` where there is none.
        unlike: Whose duration is not what lies between start and end.
        keys: By column of moments and row, numbers that differ where the texts do; None for moments that are numbers.
        form: How moments are written; None for numbers.
    """

    cells: Mapping[str, list[str]]
    plain: Bools
    milli: Ints
    moments: tuple[Ints, Ints, Ints]
    unlike: Bools
    keys: Ints | None = None
    form: Form | None = None


class Plain:
    """Reads rows as columns.

    Args:
        mapping: What the columns mean.
        places: By what a column is, where it is in a row.
        width: How many fields a row has.
        times: How moments are read.
        amounts: How devices are.

    Attributes:
        able: Whether it can read any: not where moments have a format whose parts are of several lengths.
    """

    def __init__(self, mapping: Columns, places: Mapping[str, int], width: int, times: Times, amounts: Amounts) -> None:
        self._form = Form.told(times.unit)
        self.able = times.unit == "iso" or times.unit in UNITS_NS or self._form is not None
        self._mapping = mapping
        self._places = places
        self._blank = [""] * width
        self._times = times
        self._clock = Clock(times)
        self._amounts = amounts
        self._length_ns = UNITS_NS[mapping.lengths]
        self._known: dict[str, dict[str, int]] = {name: {} for name in LABELS}

    def read(self, rows: Sequence[Sequence[str]]) -> Told:
        """Return what rows tell.

        Args:
            rows: Of any width; those of another than the header's are not plain.
        """
        width, n = len(self._blank), len(rows)
        plain = np.fromiter(map(len, rows), np.int64, n) == width
        if not plain.all():
            rows = [row if len(row) == width else self._blank for row in rows]
        cells = {what: [row[place] for row in rows] for what, place in self._places.items()}
        milli = self._milli(cells, plain)
        moments = {what: np.full(n, UNTOLD) for what in MOMENTS}
        columns = {what: cells[what] for what in MOMENTS if what in cells}
        keys = form = None
        if self._times.unit not in UNITS_NS:
            form = self._form or next((found for texts in columns.values() if (found := Form.of(texts))), None)
            if form is None:
                plain[:] = False
            else:
                every = [text for texts in columns.values() for text in texts]
                told, keys, good = self._clock.read(every, form)
                keys = keys.reshape(-1, n)
                moments.update(zip(columns, told.reshape(-1, n), strict=True))
                plain &= good.reshape(-1, n).all(axis=0)
        else:
            unit_ns = UNITS_NS[self._times.unit]
            for what, texts in columns.items():
                moments[what] = _numbers(texts, unit_ns, self._times.origin_ns, plain)
        unlike = self._by_lengths(cells, moments, plain)
        submit, start, end = moments.values()
        plain &= (start == UNTOLD) | (((end == UNTOLD) | (start <= end)) & (submit <= start))
        return Told(cells, plain, milli, (submit, start, end), unlike, keys, form)

    def _milli(self, cells: Mapping[str, list[str]], plain: Bools) -> Ints:
        every = list(zip(*(cells[what] for what in self._amounts.columns), strict=True))
        found = list(map(self._amounts.known.get, every))
        if None not in found:
            return np.array(found, np.int64)
        milli = np.zeros(len(every), np.int64)
        for place, (key, known) in enumerate(zip(every, found, strict=True)):
            try:
                milli[place] = self._amounts.read(key) if known is None else known
            except BadCell:
                plain[place] = False
        return milli

    def _by_lengths(self, cells: Mapping[str, list[str]], moments: dict[str, Ints], plain: Bools) -> Bools:
        """Find start and end by the length between, where they are not told; return where all three do not agree."""
        submit, start, end = moments.values()
        unlike = np.zeros(len(plain), bool)
        if "wait" in cells:
            wait = _numbers(cells["wait"], self._length_ns, 0, plain)
            plain &= (wait == UNTOLD) | (wait >= 0)
            known = (start == UNTOLD) & (submit != UNTOLD) & (wait != UNTOLD)
            start[known] = submit[known] + wait[known]
        if "duration" in cells:
            took = _numbers(cells["duration"], self._length_ns, 0, plain)
            plain &= (took == UNTOLD) | (took >= 0)
            told = took != UNTOLD
            if "start" not in cells:
                known = (start == UNTOLD) & (end != UNTOLD) & told
                start[known] = end[known] - took[known]
            known = (start != UNTOLD) & (end == UNTOLD) & told
            end[known] = start[known] + took[known]
            every = (start != UNTOLD) & (end != UNTOLD) & told
            unlike[every] = np.abs(end[every] - start[every] - took[every]) >= SLACK_NS
        return unlike

    def add(self, jobs: Jobs, told: Told, part: slice) -> None:
        """Add some of the rows, which are all plain.

        Args:
            jobs: Always the same.
            told: What they tell.
            part: Which of them.
        """
        milli = told.milli[part]
        submit, start, end = (moments[part] for moments in told.moments)
        labels = [self._labels(jobs, name, told.cells, part, len(milli)) for name in LABELS]
        ids, names = (_texts(told.cells.get(what), part, len(milli)) for what in ("id", "name"))
        jobs.add_columns(ids, milli, (submit, start, end), (labels[0], labels[1], labels[2], labels[3]), names)

    def _labels(self, jobs: Jobs, name: str, cells: Mapping[str, list[str]], part: slice, n: int) -> Ints:
        """Return the place of each label in the words of the jobs."""
        if name not in cells:
            return np.full(n, jobs.place(""))
        known, texts = self._known[name], cells[name][part]
        found = list(map(known.get, texts))
        if None in found:
            for index, text in enumerate(texts):
                if found[index] is None:
                    found[index] = known.get(text)
                if found[index] is None:
                    found[index] = place = jobs.place(self.word(name, text))
                    if len(known) < CACHED and len(text) < SHORT:
                        known[text] = place
        return np.array(found, np.int64)

    def word(self, name: str, text: str) -> str:
        """Return a label as a pool has it; a state by the name that the mapping gives it."""
        word = label(text)
        if name == "state":
            word = word.lower()
            word = self._mapping.states.get(word, word)
        return word


def _texts(cells: Sequence[str] | None, part: slice, n: int) -> list[bytes]:
    if cells is None:
        return [b""] * n
    texts = list(map(str.strip, cells[part]))
    joined = "".join(texts)
    if not (joined.isascii() and joined.isprintable() and max(map(len, texts)) <= LIMIT):
        texts = list(map(label, texts))
    return list(map(str.encode, texts))


def _numbers(texts: Sequence[str], unit_ns: int, origin_ns: int, plain: Bools) -> Ints:
    """Return numbers of a unit as nanoseconds from an origin; a row whose cell is none is not plain."""
    whole = [text[:-2] if text[-2:] == ".0" else text for text in texts]
    joined = "".join(whole)
    if not joined or (joined.isascii() and joined.isdigit()):
        try:
            found = np.array([int(text or 0) for text in whole], np.int64)
        except (ValueError, OverflowError):
            pass  # of one, too many digits
        else:
            if int(found.max()) <= (_FAR >> 1) // unit_ns and abs(origin_ns) <= _FAR >> 1:
                return np.where([not text for text in texts], UNTOLD, found * unit_ns + origin_ns)
    told = np.full(len(texts), UNTOLD)
    for place, text in enumerate(texts):
        if text.strip().lower() in MISSING:
            continue
        try:
            ns = length_ns(text, unit_ns) + origin_ns
        except ValueError:
            plain[place] = False
            continue
        if abs(ns) <= _FAR:
            told[place] = ns
        else:
            plain[place] = False
    return told
