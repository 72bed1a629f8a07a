"""What serving kept: how many requests met their targets, and how many that are a second.

A request is good when it was answered and met every target. One that failed, or has no token, is never
good; one whose time to a target nobody knows is undetermined, and never good by default.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headway.clock import NS_PER_S
from headway.errors import ArgumentError
from headway.ledger.history import Served
from headway.units import parse_duration

Slo = Mapping[str, float]
"""Targets by name, ``ttft``, ``tpot`` or ``e2e``, each the longest time that is good [s]."""
TARGETS: Final = {
    "ttft": "time to the first token",
    "tpot": "time an output token after the first",
    "e2e": "time from sending to the last token",
}
QUANTILES: Final = (0.5, 0.9, 0.99)
_ALIASES: Final = {"itl": "tpot", "e2el": "e2e"}
_PAIR: Final = re.compile(r"(\w+)\s*[:=]\s*(.*)", re.DOTALL)
_SECOND: Final = re.compile(r"[a-z]\s+\d", re.IGNORECASE)  # a second time, whose name was forgotten
_BETWEEN: Final = re.compile(r"[\s,;]+(?=\w+\s*[:=])")
_Z: Final = 1.959963984540054  # the standard normal's 97.5 %


def parse_slo(text: str) -> dict[str, float]:
    """Return the targets of a service-level objective, by name [s].

    Args:
        text: Pairs of a name and a time, with blanks or commas between: ``ttft:500ms tpot:50ms e2e:5s``.
            ``itl`` is another name of ``tpot``: the mean of a request's times between tokens.

    Raises:
        ArgumentError: It has no such pair, a name that is none, one twice, or a time that is none.

    Example:
        >>> parse_slo("ttft:500ms, tpot=50 ms")
        {'ttft': 0.5, 'tpot': 0.05}
    """
    slo: dict[str, float] = {}
    for part in _BETWEEN.split(text.strip(" \t\r\n,;")):
        pair = _PAIR.fullmatch(part)
        if pair is None or _SECOND.search(pair[2]):
            raise _bad_slo(text, f"{part[:40]!r} is no name with a time" if part else "it is empty")
        name = _ALIASES.get(pair[1].lower(), pair[1].lower())
        if name not in TARGETS:
            raise _bad_slo(text, f"there is no target {pair[1][:40]!r}; known are {', '.join((*TARGETS, *_ALIASES))}")
        if name in slo:
            raise _bad_slo(text, f"it has {name} twice")
        slo[name] = parse_duration(pair[2]) / NS_PER_S
    return slo


def _bad_slo(text: str, found: str) -> ArgumentError:
    what = f"Cannot read the targets {text[:80]!r}: {found}"
    return ArgumentError(what, 'Write them as "ttft:500ms tpot:50ms e2e:5s"', "bad-slo", text=text)


def per_token(
    ttft_s: NDArray[np.float64], e2e_s: NDArray[np.float64], tokens: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the time an output token after the first [s]: (e2e - ttft) / (tokens - 1); NaN where there is no second.

    Args:
        ttft_s: Time to the first token [s], ``(n,)``.
        e2e_s: Time to the last token [s], ``(n,)``.
        tokens: Output tokens, ``(n,)``; -1 where nobody says.

    Example:
        >>> per_token(np.array([1.0, 1.0]), np.array([3.0, 1.0]), np.array([5, 1])).tolist()
        [0.5, nan]
    """
    between = np.where(tokens > 1, tokens - 1.0, np.nan)
    with np.errstate(all="ignore"):  # a file may say infinity, or the largest of floats
        return np.asarray((e2e_s - ttft_s) / between, np.float64)


def wilson(good: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share that was seen as `good` of `total`.

    Wilson, E. B. (1927), Probable inference, the law of succession, and statistical inference,
    J. Am. Stat. Assoc. 22, 209-212: the score interval, which stays within [0, 1] and holds the share.

    Args:
        good: How many, from 0 to `total`.
        total: Of how many, > 0.

    Example:
        >>> [round(bound, 4) for bound in wilson(9, 10)]
        [0.5958, 0.9821]
    """
    share, spread = good / total, _Z * _Z / total
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(spread * share * (1 - share) + spread * spread / 4) / (1 + spread)
    return (0.0 if good == 0 else middle - half), (1.0 if good == total else middle + half)


@dataclass(frozen=True, slots=True)
class Target:
    """How the requests that were answered stand to one target.

    Attributes:
        name: ``ttft``, ``tpot`` or ``e2e``.
        limit_s: The longest time that is good [s].
        missed: How many took longer.
        missed_alone: How many of these missed no other target.
        undetermined: Of how many the time is not known.
    """

    name: str
    limit_s: float
    missed: int
    missed_alone: int
    undetermined: int


@dataclass(frozen=True, slots=True)
class Attainment:
    """How many requests met all targets.

    Attributes:
        total: Requests: good, bad, failed and undetermined ones.
        good: Answered, and within every target.
        bad: Answered, and beyond a target.
        failed: With an error, or without a token.
        undetermined: Answered, beyond no target, but a time that one asks for is not known.
        targets: Each target by itself.
        duration_s: How long the test took [s]; None where nobody says.
        devices: How many devices served; None where nobody says.
        n_cut: How many of the undetermined ones the end of the test cut off.
    """

    total: int
    good: int
    bad: int
    failed: int
    undetermined: int
    targets: tuple[Target, ...] = ()
    duration_s: float | None = None
    devices: int | None = None
    n_cut: int = 0

    @property
    def share(self) -> float | None:
        """Good ones of all, in [0, 1]; None without requests, or where no request's times could be judged."""
        judged = self.good + self.bad or (self.failed and not self.undetermined)
        return self.good / self.total if judged else None

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The share if all that are undetermined were bad, and if all were good; None without requests."""
        return (self.good / self.total, (self.good + self.undetermined) / self.total) if self.total else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the share, from the lower bound's to the upper bound's; None without requests."""
        if not self.total:
            return None
        return wilson(self.good, self.total)[0], wilson(self.good + self.undetermined, self.total)[1]

    @property
    def goodput(self) -> float | None:
        """Good requests a second; None where the share or the duration is not known."""
        return self.good / self.duration_s if self.duration_s and self.share is not None else None

    @property
    def goodput_per_device(self) -> float | None:
        """Good requests a second and device; None where the number of devices, too, is not known."""
        return self.goodput / self.devices if self.goodput is not None and self.devices else None


def attain(served: Served, slo: Slo) -> Attainment:
    """Return how many requests met the targets.

    Args:
        served: The requests.
        slo: The targets, as `parse_slo` returns them; without any, every request that was answered is good.

    Example:
        >>> import numpy as np
        >>> times = np.array([0.1, 0.7, np.nan])
        >>> served = Served("t", "vllm", times, times, times, np.array([9, 9, 0]), np.ones(3, bool), duration_s=2.0)
        >>> found = attain(served, {"ttft": 0.5})
        >>> found.good, found.bad, found.failed, round(found.share, 3), found.goodput
        (1, 1, 1, 0.333, 0.5)
    """
    failed = failures(served)
    times = {name: column(served, name) for name in slo}
    beyond = {name: ~failed & (times[name] > slo[name]) for name in slo}
    unknown = {name: ~failed & np.isnan(times[name]) for name in slo}
    n_beyond = sum((mask.astype(np.int8) for mask in beyond.values()), np.zeros(len(failed), np.int8))
    bad = n_beyond > 0
    undetermined = ~bad & np.any([np.zeros_like(failed), *unknown.values()], axis=0)
    n_bad, n_failed, n_undetermined = (int(np.count_nonzero(mask)) for mask in (bad, failed, undetermined))
    targets = tuple(
        Target(
            name,
            slo[name],
            int(np.count_nonzero(beyond[name])),
            int(np.count_nonzero(beyond[name] & (n_beyond == 1))),
            int(np.count_nonzero(unknown[name])),
        )
        for name in TARGETS
        if name in slo
    )
    return Attainment(
        total=len(failed),
        good=len(failed) - n_bad - n_failed - n_undetermined,
        bad=n_bad,
        failed=n_failed,
        undetermined=n_undetermined,
        targets=targets,
        duration_s=duration(served),
        devices=served.devices,
        n_cut=served.n_cut,
    )


def failures(served: Served) -> NDArray[np.bool_]:
    """Return which requests failed: with an error, or without a token."""
    return np.asarray(~served.ok | (served.tokens == 0), np.bool_)


def column(served: Served, name: str) -> NDArray[np.float64]:
    """Return the times of one target [s], ``(n,)``; NaN where there is none that can be: negative, or infinite.

    A request with a single token has no time a token after the first, whatever the file says.
    """
    times = {"ttft": served.ttft_s, "tpot": served.tpot_s, "e2e": served.e2e_s}[name]
    usable = np.isfinite(times) & (times >= 0)
    if name == "tpot":
        usable &= served.tokens != 1
    return np.where(usable, times, np.nan)


def duration(served: Served) -> float | None:
    """Return how long the test took [s]; None where that is no length of time."""
    length_s = served.duration_s
    return length_s if length_s is not None and math.isfinite(length_s) and length_s > 0 else None


@dataclass(frozen=True, slots=True)
class Quantiles:
    """One time over the requests that were answered and of which it is known.

    Attributes:
        count: How many.
        values_s: The time at each of `QUANTILES`, interpolated linearly [s]; None without any.
    """

    count: int
    values_s: tuple[float, ...] | None


def quantiles(served: Served) -> dict[str, Quantiles]:
    """Return how each time is distributed, by the name of its target."""
    answered = ~failures(served)
    found = {}
    for name in TARGETS:
        times = column(served, name)
        times = times[answered & ~np.isnan(times)]
        values = tuple(float(value) for value in np.quantile(times, QUANTILES)) if len(times) else None
        found[name] = Quantiles(len(times), values)
    return found
