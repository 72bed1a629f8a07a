"""What the losses that a trainer logged tell of where its training went on from.

The Hugging Face Trainer writes ``train_loss`` when a training ends: the sum of the losses of the steps since it was
begun, or begun again, divided by the number of all steps. Each loss that it logs is the mean over the steps since the
one before. So the sum of those tells after which step the training went on: after step 0, if it was not begun again.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_FEWEST: Final = 5
"""So many losses tell how often they are logged."""
_ROUNDED: Final = 5e-5
"""Losses are rounded to four digits behind the point."""
_SINGLE: Final = 1e-4
"""They are added up as float32: the sum is that exact, of itself."""
_AT_MOST: Final = 2
"""No loss of the steps after the last that is logged is so many times that."""
_NARROW: Final = 10
"""Where steps that count are at least so many times as far apart as the step is uncertain, it is none by chance."""


@dataclass
class Losses:
    """The losses of a training, each the mean over the steps since the one before.

    Attributes:
        steps: After which step each was logged.
        means: What each is.
        train: The ``train_loss``; None where it is not said.
        epoch: How many epochs the last step was in; 0 where it is not said.
    """

    steps: array[int] = field(default_factory=lambda: array("q"))
    means: array[float] = field(default_factory=lambda: array("d"))
    train: float | None = None
    epoch: float = 0.0

    def gone_on(self, begin: int, end: int) -> tuple[float, float] | None:
        """Return between which steps the training went on, by its losses; None where they do not tell.

        Args:
            begin: The last step before the training.
            end: Its last step.

        Example:
            >>> losses = Losses(array("q", range(10, 101, 10)), array("d", [2.0] * 10), train=0.8)
            >>> [round(step, 2) for step in losses.gone_on(0, 100)]
            [59.99, 60.01]
        """
        steps = np.array([begin, *self.steps], np.float64)
        means = np.array(self.means, np.float64)
        apart = np.diff(steps)
        if self.train is None or not 0 < self.train < np.inf or len(means) < _FEWEST or steps[-1] > end:
            return None
        if not (apart > 0).all() or not (np.isfinite(means) & (means > 0)).all() or _has_holes(apart):
            return None
        sums = means * apart
        unsure = _ROUNDED * (steps[-1] - begin) + _SINGLE * float(sums.sum())
        most = self.train * end + unsure
        least = self.train * end - unsure - _AT_MOST * float(means[-1]) * (end - steps[-1])
        from_end = np.append(np.cumsum(sums[::-1])[::-1], 0)[::-1]
        at = steps[::-1]
        low, high = (float(np.interp(amount, from_end, at)) for amount in (most, least))
        return low, high

    def is_checkpoint(self, low: float, high: float, every: int) -> bool:
        """Return whether between two steps is one that a checkpoint is saved after, and not by chance.

        Args:
            low: The first of the two.
            high: The last of the two.
            every: After so many steps one is saved; 0 where that is not said: then as often as losses are logged.
        """
        each = float(every) or _commonest(np.diff(np.array(self.steps)))
        per_epoch = self.steps[-1] / self.epoch if self.epoch > 0 else 0.0
        for spacing, slack in ((each, 0.0), (per_epoch, 1.0)):  # epochs are rounded
            first, last = low - slack, high + slack
            if spacing >= max(1, _NARROW * (last - first)):
                step = round((low + high) / 2 / spacing) * spacing
                if first <= step <= last:
                    return True
        return False


def _has_holes(apart: Floats) -> bool:
    """Return whether losses are logged at one distance mostly and farther apart somewhere: some are missing."""
    return bool(apart.max() > _commonest(apart))


def _commonest(apart: NDArray[np.generic]) -> float:
    values, counts = np.unique(apart, return_counts=True)
    return float(values[np.argmax(counts)])
