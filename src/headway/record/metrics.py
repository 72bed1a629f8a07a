"""The summary of a tracker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from headway.units import show_percent, show_seconds


@dataclass(frozen=True)
class GoodputMetrics:
    """How well the input pipeline filled its own wall time.

    Its `goodput_ratio` is the pipeline's; the ledger's runtime goodput is the run's.

    Attributes:
        total_batches: Batches that ended.
        wall_clock_sec: From the start of the first to the end of the last [s].
        source_sec: Loading [s].
        transform_sec: Work on the data [s].
        transfer_sec: To the device [s].
        productive_sec: All phases [s].
        overhead_sec: The rest of the wall time, at least 0 [s].
        goodput_ratio: Productive over wall time; 0.0 when there was none.
        overcounted_sec: Recorded time beyond each batch's own wall time, summed [s]. Where it is
            above zero, the productive time holds it too, and the ratio is too high. It is no
            field: it takes no part in comparing and unpacking.

    Example:
        >>> print(GoodputMetrics(10, 4.0, 2.0, 0.5, 0.5, 3.0, 1.0, 0.75))
        10 batches in 4.0 s: input pipeline 75.0 % of its wall time (goodput_ratio): source 2.0 s, \
transform 500 ms, transfer 500 ms; overhead 1.0 s
    """

    total_batches: int
    wall_clock_sec: float
    source_sec: float
    transform_sec: float
    transfer_sec: float
    productive_sec: float
    overhead_sec: float
    goodput_ratio: float

    overcounted_sec: ClassVar[float] = 0.0

    @classmethod
    def of(
        cls, total_batches: int, wall_sec: float, phases: dict[str, float], overcounted_sec: float
    ) -> GoodputMetrics:
        """Return the summary of amounts.

        Args:
            total_batches: Batches that ended.
            wall_sec: From the start of the first to the end of the last [s].
            phases: Time by phase [s].
            overcounted_sec: Recorded time beyond each batch's wall time [s].

        Example:
            >>> GoodputMetrics.of(1, 4.0, {"source": 3.0}, 0.0).goodput_ratio
            0.75
        """
        productive = 0.0
        for seconds in phases.values():  # plain additions: sum() compensates from Python 3.12 on
            productive += seconds
        metrics = cls(
            total_batches=total_batches,
            wall_clock_sec=wall_sec,
            source_sec=phases.get("source", 0.0),
            transform_sec=phases.get("transform", 0.0),
            transfer_sec=phases.get("transfer", 0.0),
            productive_sec=productive,
            overhead_sec=max(0.0, wall_sec - productive),  # so it is defined; the excess is overcounted_sec
            goodput_ratio=productive / wall_sec if wall_sec > 0 else 0.0,
        )
        if overcounted_sec:
            vars(metrics)["overcounted_sec"] = overcounted_sec
        return metrics

    def __str__(self) -> str:
        """Return the summary as one line."""
        named = (("source", self.source_sec), ("transform", self.transform_sec), ("transfer", self.transfer_sec))
        phases = ", ".join(f"{name} {show_seconds(seconds)}" for name, seconds in named)
        text = (
            f"{self.total_batches} batches in {show_seconds(self.wall_clock_sec)}: "
            f"input pipeline {show_percent(self.goodput_ratio)} of its wall time (goodput_ratio): {phases}; "
            f"overhead {show_seconds(self.overhead_sec)}"
        )
        if self.overcounted_sec:
            text += f"; {show_seconds(self.overcounted_sec)} recorded beyond the batches' wall time"
        return text

    def __getstate__(self) -> dict[str, Any]:
        """Pickle with the overcount."""
        return dict(vars(self))
