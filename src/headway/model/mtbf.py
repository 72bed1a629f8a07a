"""How often a job fails, from a count of failures over held time, with what the count leaves open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headway.model.poisson import LEVEL, garwood, most_when_none_seen


@dataclass(frozen=True, slots=True)
class Mtbf:
    """Mean time between failures of a whole job.

    Attributes:
        value_s: The estimate, held time over failures [s]; None where none was seen.
        low_s: The least it can be at that confidence [s]; None where nothing was measured.
        high_s: The most it can be [s]; None for no limit.
        n_failures: How many were seen; None for a figure that was given.
        level: The confidence of the limits, in (0, 1).
    """

    value_s: float | None
    low_s: float | None = None
    high_s: float | None = None
    n_failures: int | None = None
    level: float = LEVEL

    @classmethod
    def of(cls, n_failures: int, held_s: float) -> Mtbf:
        """Return what so many failures in so much held time tell.

        Failures are taken for a Poisson process, the limits are Garwood's (1936). None seen is a
        bound and not infinity: the mean is above held time over 3, at 95 %.

        Args:
            n_failures: How many were seen, >= 0.
            held_s: How long the whole job held its devices [s], > 0.

        Example:
            >>> seen = Mtbf.of(10, 100.0)
            >>> seen.value_s, round(seen.low_s, 2), round(seen.high_s, 2)
            (10.0, 5.44, 20.85)
            >>> round(Mtbf.of(0, 100.0).low_s, 1), Mtbf.of(0, 100.0).value_s
            (33.4, None)
        """
        if n_failures == 0:
            return cls(None, held_s / most_when_none_seen(), None, 0)
        fewest, most = garwood(n_failures)
        return cls(held_s / n_failures, held_s / most, held_s / fewest, n_failures)

    def scaled(self, ratio: float) -> Mtbf:
        """Return the same for a job of so many times the devices: the rates of devices add.

        Example:
            >>> Mtbf(1000.0, 500.0).scaled(4)
            Mtbf(value_s=250.0, low_s=125.0, high_s=None, n_failures=None, level=0.95)
        """
        value, low, high = (None if x is None else x / ratio for x in (self.value_s, self.low_s, self.high_s))
        return Mtbf(value, low, high, self.n_failures, self.level)


UNKNOWN: Final = Mtbf(None)
"""Nothing is known of how often the job fails."""
