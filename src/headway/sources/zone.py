"""Zones of time: of a name, and by how much clocks in one are ahead of UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

import numpy as np

from headway.clock import NS_PER_S

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_OFFSET: Final = re.compile(r"(?:UTC)?([+-])(\d\d):?(\d\d)", re.ASCII)
_QUARTER_NS: Final = 900 * NS_PER_S
"""Clocks are put forward or back at whole quarters of an hour [ns]."""
_DAY_NS: Final = 86_400 * NS_PER_S
_SET_BACK_NS: Final = 600 * NS_PER_S
"""Who writes at the same time is no further apart than that; a clock is set back by more [ns]."""


def zone_of(name: str) -> tzinfo:
    """Return the zone of a name such as ``Asia/Shanghai``, ``UTC``, ``+08:00`` or ``UTC+08:00``.

    Raises:
        ValueError: There is none of that name.

    Example:
        >>> zone_of("+05:30")
        datetime.timezone(datetime.timedelta(seconds=19800))
    """
    if name == "UTC":
        return UTC
    if found := _OFFSET.fullmatch(name):
        minutes = int(found[2]) * 60 + int(found[3])
        if minutes >= 24 * 60:
            raise ValueError(f"there is no zone {name!r}")
        return timezone(timedelta(minutes=-minutes if found[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (OSError, LookupError, ValueError) as error:
        raise ValueError(f"there is no zone {name!r}") from error


def utc(local_ns: Ints, zone: tzinfo) -> Ints:
    """Return what clocks in a zone show as moments [ns since the Unix epoch], ``(n,)``.

    A time that clocks show twice, or never, where they are put back or forward, is read as before the change.

    Args:
        local_ns: What they show, counted as if it were UTC [ns since the Unix epoch], ``(n,)``.
        zone: The zone.

    Example:
        >>> shown = np.array([0, 1_711_846_800 * NS_PER_S])  # 1970-01-01 00:00, 2024-03-31 01:00
        >>> ((shown - utc(shown, zone_of("Europe/Zurich"))) // NS_PER_S).tolist()
        [3600, 3600]
    """
    return either(local_ns, zone)[0]


def either(local_ns: Ints, zone: tzinfo) -> tuple[Ints, Ints]:
    """Return what clocks in a zone show as moments, read as before a change of the clocks and as after it.

    Both are the same but for the times that clocks show twice, or never, where they are put back or forward.

    Args:
        local_ns: As of `utc`.
        zone: The zone.

    Returns:
        Moments [ns since the Unix epoch], ``(n,)``, maybe one array twice.

    Example:
        >>> shown = np.array([30, 150, 270]) * 60 * NS_PER_S + 1_729_987_200 * NS_PER_S  # 2024-10-27 00:30, 02:30 ...
        >>> before, after = either(shown, zone_of("Europe/Zurich"))
        >>> ((after - before) // NS_PER_S).tolist()
        [0, 3600, 0]
    """
    always = zone.utcoffset(None)
    if always is not None:
        moments = local_ns - _ns(always)
        return moments, moments
    days, places = np.unique(local_ns // _DAY_NS, return_inverse=True)
    ahead = [_all_day_ns(day, zone) for day in days.tolist()]
    moments = local_ns - np.array([one or 0 for one in ahead], np.int64)[places]
    if None not in ahead:
        return moments, moments
    odd = np.array([one is None for one in ahead])[places]
    quarters, places = np.unique(local_ns[odd] // _QUARTER_NS, return_inverse=True)
    read = []
    for fold in (0, 1):
        moved = np.array([_ahead_ns(quarter, zone, fold) for quarter in quarters.tolist()], np.int64)
        read.append(moments.copy())
        read[fold][odd] = local_ns[odd] - moved[places]
    return read[0], read[1]


def utc_of(local_ns: int, zone: tzinfo) -> int:
    """Return what a clock in a zone shows as `utc` does, one moment alone [ns since the Unix epoch].

    Example:
        >>> utc_of(0, zone_of("+01:00")) // NS_PER_S
        -3600
    """
    return local_ns - _ahead_ns(local_ns // _QUARTER_NS, zone, 0)


def in_order(local_ns: Ints, zone: tzinfo) -> Ints:
    """Return what a clock in a zone showed one after the other as moments [ns since the Unix epoch], ``(n,)``.

    Of the times in an hour that it showed twice, those after it went back are read as after the change.

    Args:
        local_ns: What it showed, counted as if it were UTC [ns since the Unix epoch], ``(n,)``, in order.
        zone: The zone.

    Example:
        >>> shown = (np.array([0, 45, 5, 50, 60]) * 60 + 1_729_994_400) * NS_PER_S  # 2024-10-27 02:00, 02:45 ...
        >>> (np.diff(in_order(shown, zone_of("Europe/Zurich"))) // (60 * NS_PER_S)).tolist()
        [45, 20, 45, 10]
    """
    before, after = either(local_ns, zone)
    twice = np.flatnonzero(after > before)
    if not len(twice):
        return before
    for stretch in np.split(twice, np.flatnonzero(np.diff(twice) > 1) + 1):
        back = np.flatnonzero(before[stretch[1:]] < before[stretch[:-1]] - _SET_BACK_NS)
        if len(back):
            again = stretch[back[0] + 1 :]
            before[again] = after[again]
    return before


@lru_cache(1 << 16)
def _ahead_ns(quarter: int, zone: tzinfo, fold: int) -> int:
    shown = datetime(1970, 1, 1) + timedelta(minutes=15 * quarter)  # noqa: DTZ001 - its zone is the next line's
    return _ns(shown.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta(0))


@lru_cache(1 << 16)
def _all_day_ns(day: int, zone: tzinfo) -> int | None:
    """Return by how much clocks are ahead all of a day [ns]; None where they are put forward or back."""
    of_hours = range(96 * day - 4, 96 * day + 101, 4)
    found = {_ahead_ns(quarter, zone, fold) for quarter in of_hours for fold in (0, 1)}
    return found.pop() if len(found) == 1 else None


def _ns(length: timedelta) -> int:
    return round(length.total_seconds()) * NS_PER_S
