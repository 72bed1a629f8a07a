"""Columns of the cells of Slurm's tables, read at once; a cell that is not as it mostly is, is left as unsure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING, Final

import numpy as np

from headway.clock import NS_PER_S
from headway.ledger.jobs import UNTOLD
from headway.sources.slurm import fields
from headway.sources.text import LIMIT, clean
from headway.sources.zone import either

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Which = NDArray[np.bool_]

UNSURE: Final = UNTOLD + 1
"""Of a cell that is not read here."""
_IDENT: Final = re.compile(rb"\d{1,20}(?:_\d{1,20})?")
_IDENTS: Final = re.compile(rb"(?:\d{1,20}(?:_\d{1,20})?,)*")
_NOTHING: Final = frozenset({b"", b"Unknown", b"None", b"N/A", b"(null)"})
_LENGTH: Final = len("2024-01-31T12:00:00")
_MINUTE: Final = len("2024-01-31T12:00")
_ZONED: Final = _LENGTH + len("+0100")
_SIGNS: Final = np.frombuffer(b"--T::", np.uint8)
_SIGNS_AT: Final = [4, 7, 10, 13, 16]
_DIGITS_AT: Final = [at for at in range(_LENGTH) if at not in _SIGNS_AT]
_YEARS: Final = (1971, 2100)
_EPOCH_S: Final = range(31536000, 4133980800)
"""The seconds of those years since the Unix epoch."""


def text(cell: bytes) -> str:
    """Return what a cell says."""
    return cell.decode("utf-8", "replace").strip()


def length(cell: bytes) -> int:
    """Return a duration [ns]; `UNTOLD` where there is none."""
    try:
        length = fields.length(text(cell))
    except ValueError:
        return UNSURE
    return UNTOLD if length is None else length


def bare(cells: Sequence[bytes]) -> Sequence[bytes]:
    """Return cells without blanks around them."""
    return [cell.strip() for cell in cells] if b" " in b"".join(cells) else cells


def plain(cells: Sequence[bytes]) -> Which:
    """Return which cells are plain numbers of jobs."""
    if _IDENTS.fullmatch(b",".join(cells) + b","):
        return np.ones(len(cells), bool)
    return np.array([bool(_IDENT.fullmatch(cell)) for cell in cells])


def names(cells: Sequence[bytes]) -> list[bytes]:
    """Return names fit for a screen."""
    whole = b"".join(cells)
    if whole.isascii() and whole.decode().isprintable() and max(map(len, cells)) <= LIMIT:
        return [cell.strip() for cell in cells]
    return [clean(text(cell)).encode("utf-8", "surrogatepass") for cell in cells]


def moments(cells: Sequence[bytes], zone: tzinfo | None = None) -> tuple[Ints, Which]:
    """Return moments [ns since the Unix epoch], and which have no zone; one that clocks show twice is unsure.

    Args:
        cells: As they are in the table.
        zone: Of those that name none; None: UTC.
    """
    cells = bare(cells)
    if _MINUTE in map(len, cells):
        cells = [cell + b":00" if len(cell) == _MINUTE else cell for cell in cells]
    texts = np.array(cells, f"S{_ZONED + 1}")
    chars = texts.view(np.uint8).reshape(len(cells), -1)
    well = (chars[:, _DIGITS_AT] - 48 <= 9).all(axis=1) & (chars[:, _SIGNS_AT] == _SIGNS).all(axis=1)
    local = well & (chars[:, _LENGTH] == 0)
    signs = chars[:, _LENGTH + 1 : _ZONED].astype(np.int64) - 48
    hours, minutes = signs[:, 0] * 10 + signs[:, 1], signs[:, 2] * 10 + signs[:, 3]
    ahead, behind = chars[:, _LENGTH] == ord("+"), chars[:, _LENGTH] == ord("-")
    zoned = well & (ahead | behind) & ((signs >= 0) & (signs <= 9)).all(axis=1) & (chars[:, _ZONED] == 0)
    zoned &= (hours < 24) & (minutes < 60)
    found = np.full(len(cells), UNSURE)
    read = local | zoned
    seconds = _seconds(chars[read][:, _DIGITS_AT].astype(np.int64) - 48)
    off = np.where(ahead, 1, -1) * (hours * 3600 + minutes * 60) * zoned
    found[read] = np.where(seconds == UNSURE, UNSURE, (seconds - off[read]) * NS_PER_S)
    if zone is not None:
        sure = local & (found != UNSURE)
        before, after = either(found[sure], zone)
        found[sure] = np.where(after > before, UNSURE, before)
    for at in np.flatnonzero(~read).tolist():
        if cells[at] in _NOTHING:
            found[at] = UNTOLD
        elif cells[at].isdigit() and len(cells[at]) < len("31536000000") and int(cells[at]) in _EPOCH_S:
            found[at] = int(cells[at]) * NS_PER_S
    return found, local


def _seconds(digits: Ints) -> Ints:
    """Return moments of the digits of year, month, day, hour, minute and second, ``(n, 14)`` [s]."""
    year = digits[:, :4] @ [1000, 100, 10, 1]
    month, day, hour, minute, second = (digits[:, at] * 10 + digits[:, at + 1] for at in range(4, 14, 2))
    fits = (year >= _YEARS[0]) & (year <= _YEARS[1]) & (month >= 1) & (month <= 12) & (day >= 1)
    months = np.where(fits, (year - 1970) * 12 + month - 1, 0)
    begin, end = (
        first.view("datetime64[M]").astype("datetime64[D]").astype(np.int64) for first in (months, months + 1)
    )
    fits &= (day <= end - begin) & (hour < 24) & (minute < 60) & (second < 60)
    found: Ints = np.where(fits, ((begin + day - 1) * 24 + hour) * 3600 + minute * 60 + second, UNSURE)
    return found
