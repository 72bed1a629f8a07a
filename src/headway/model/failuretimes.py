"""Times between failures for the simulator: exponential, Weibull, or replayed from a list of real ones.

Every draw is made for all replicas of a batch, whether they still run or not, so that a replica
is the same however many others there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Draw = Callable[[Ints, Ints], Ints]
"""From the replicas' places in the batch, and how often each failed so far, to times [ns]; each ``(n,)``."""

NEVER_NS: Final = 1 << 62
"""A time to failure longer than anything that is simulated, 146 years [ns]."""


class FailureTimes(Protocol):
    """Where times between failures come from."""

    def begin(self, rng: np.random.Generator, width: int) -> Draw:
        """Return how a batch of `width` replicas draws its times."""


@dataclass(frozen=True, slots=True)
class Exponential:
    """Failures without memory: exponential times of this mean.

    Attributes:
        mean_ns: Mean time between failures [ns], > 0; infinity for none.

    Example:
        >>> draw = Exponential(1e9).begin(np.random.default_rng(0), 1000)
        >>> float(draw(np.arange(1000), np.zeros(1000, np.int64)).mean().round(-8))
        1000000000.0
    """

    mean_ns: float

    def begin(self, rng: np.random.Generator, width: int) -> Draw:
        """Return how a batch of `width` replicas draws its times."""
        return _scaled(rng, width, self.mean_ns, None)


@dataclass(frozen=True, slots=True)
class Weibull:
    """Weibull times of this mean, the device as good as new after each failure (a renewal process).

    A shape below 1 has failures in clusters (infant mortality), above 1 wear; 1 is exponential.
    The scale is mean / Gamma(1 + 1 / shape); a time is scale x E^(1/shape) with E standard exponential.

    Attributes:
        mean_ns: Mean time between failures [ns], > 0.
        shape: The exponent, > 0.
    """

    mean_ns: float
    shape: float

    def begin(self, rng: np.random.Generator, width: int) -> Draw:
        """Return how a batch of `width` replicas draws its times."""
        return _scaled(rng, width, self.mean_ns / math.gamma(1 + 1 / self.shape), 1 / self.shape)


@dataclass(frozen=True, eq=False)
class Replayed:
    """Real times between failures.

    Attributes:
        times_ns: The times, ``(n_times,)`` [ns].
        in_order: True: each replica begins at a random one and goes round the list in its order.
            False: each time is drawn from the list anew, with replacement (a bootstrap).
    """

    times_ns: Ints
    in_order: bool = False

    def begin(self, rng: np.random.Generator, width: int) -> Draw:
        """Return how a batch of `width` replicas draws its times."""
        times, n_times = self.times_ns, len(self.times_ns)
        if self.in_order:
            first = rng.integers(n_times, size=width)
            return lambda place, n_failed: times[(first[place] + n_failed) % n_times]
        return lambda place, n_failed: times[rng.integers(n_times, size=width)[place]]  # noqa: ARG005


def _scaled(rng: np.random.Generator, width: int, scale_ns: float, power: float | None) -> Draw:
    """Return how to draw scale x E^power, E being standard exponential; to the next whole nanosecond."""
    endless = math.isinf(scale_ns)
    safe = power is None and scale_ns * 64 < NEVER_NS  # no exponential draw from 64-bit floats reaches 64

    def draw(place: Ints, n_failed: Ints) -> Ints:  # noqa: ARG001
        times = rng.standard_exponential(width)
        if len(place) < width:
            times = times[place]
        if endless:
            return np.full(len(times), NEVER_NS)
        if power is not None:
            times **= power
        times *= scale_ns
        whole = (times if safe else np.minimum(times, NEVER_NS)).astype(np.int64)
        whole += 1
        return whole

    return draw
