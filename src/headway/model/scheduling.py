"""Scheduling goodput of a pool from one look at it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headway.errors import ArgumentError
from headway.model.checks import fits, share
from headway.model.frozen import Scenario


@dataclass(frozen=True, kw_only=True, eq=False)
class SchedulingSnapshotScenario(Scenario):
    """What a pool's devices did at one moment, as shares of those offered.

    S counts what complete allocations hold; a gang still waiting for members holds devices and
    does nothing with them (Wongpanich et al. 2025, arXiv 2502.06982).

    Attributes:
        assigned_share: Assigned to some job, in [0, 1].
        incomplete_gang_share: Of the offered, assigned to jobs that still wait for members.
        input_wait_share: Of the offered, in complete jobs that wait for their data.

    Example:
        >>> pool = SchedulingSnapshotScenario(assigned_share=0.8, incomplete_gang_share=0.15)
        >>> round(pool.scheduling_goodput, 2)
        0.65
    """

    assigned_share: Any
    incomplete_gang_share: Any = 0.0
    input_wait_share: Any = 0.0

    def __post_init__(self) -> None:
        """Check the shares.

        Raises:
            ArgumentError: One is outside [0, 1], or the parts exceed the whole.
        """
        super().__post_init__()
        for name in ("assigned_share", "incomplete_gang_share", "input_wait_share"):
            self._keep(name, share(getattr(self, name), name))
        fits(
            assigned_share=self.assigned_share,
            incomplete_gang_share=self.incomplete_gang_share,
            input_wait_share=self.input_wait_share,
        )
        over = self.incomplete_gang_share + self.input_wait_share > self.assigned_share
        if over if isinstance(over, bool) else over.any():
            raise ArgumentError(
                f"Cannot use the snapshot: incomplete gangs {self.incomplete_gang_share} and input wait "
                f"{self.input_wait_share} exceed the assigned share {self.assigned_share}",
                "Give all three as shares of the devices offered",
                "bad-snapshot",
                assigned_share=self.assigned_share,
            )

    @property
    def scheduling_goodput(self) -> Any:
        """S: held by complete allocations over offered."""
        return self.assigned_share - self.incomplete_gang_share

    @property
    def scheduling_loss(self) -> Any:
        """1 - S."""
        return 1.0 - self.scheduling_goodput

    @property
    def unassigned_share(self) -> Any:
        """Share that nobody holds."""
        return 1.0 - self.assigned_share

    @property
    def executing_share(self) -> Any:
        """Share that computes: held by complete jobs, and not waiting for data."""
        return self.scheduling_goodput - self.input_wait_share

    @property
    def input_wait_of_held(self) -> Any:
        """Input wait over what complete jobs hold: a loss of R, not of S; 0 where nothing is held."""
        return ratio(self.input_wait_share, self.scheduling_goodput)

    @property
    def partial_hold_ceiling(self) -> Any:
        """S if no gang waited for members."""
        return self.assigned_share


def ratio(part: Any, whole: Any) -> Any:
    """Return part over whole; 0 where the part is 0, whatever the whole."""
    if isinstance(part, float) and isinstance(whole, float):
        return part / whole if part else 0.0
    import numpy as np

    part, whole = np.broadcast_arrays(part, whole)
    return np.divide(part, whole, out=np.zeros(part.shape), where=part != 0)
