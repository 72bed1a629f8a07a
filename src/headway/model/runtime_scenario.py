"""A job's runtime goodput at its size, at others, and the size at which failures cost more than waiting for data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

from headway.errors import ArgumentError
from headway.model.checkpoint import method_named
from headway.model.checks import amount, positive, share
from headway.model.failures import Failures, ObservedFailureScenario, SeriesFailureScenario
from headway.model.frozen import Scenario
from headway.model.quantities import magnitude, quantity
from headway.model.runtime import RuntimeGoodputModel, RuntimeGoodputResult

_MOST_STEPS: Final = 1 << 60
_CHECKS: Final = {
    "save": (amount, "second"), "load": (amount, "second"), "detection": (amount, "second"),
    "restart": (amount, "second"), "warmup": (amount, "second"), "lost_work": (amount, "second"),
    "window": (positive, "second"), "interval": (positive, "second"),
    "preemption_rate": (amount, "1/second"), "checkpoint_bytes": (amount, "byte"),
    "checkpoint_bandwidth": (positive, "byte/second"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class RuntimeGoodputScenario(Scenario):
    """A training job and what it loses of the time it holds.

    Times are in seconds, texts or quantities. Of the save, give its time, or the checkpoint's size
    and the bandwidth it is written and read with.

    Attributes:
        failures: How often it fails, and on how many devices.
        save: Time one save blocks [s].
        load: Time to read a checkpoint back [s]; None for as long as the save.
        checkpoint_bytes: Size of a checkpoint [B].
        checkpoint_bandwidth: With what it is written and read [B / s].
        detection, restart, warmup: After a failure [s].
        input_wait: Share of held time that waits for data.
        window: Time for which it is started once [s].
        lost_work: Work a forced preemption loses [s].
        preemption_rate: Forced preemptions [1 / s].
        interval: Work between two saves [s]; None for the best by `method`.
        method: ``daly``, ``young`` or ``exact``.

    Example:
        >>> from headway.model import Scenarios
        >>> job = Scenarios.Llama2_70BRuntimeGoodput128
        >>> round(job.result.runtime_goodput, 3), round(job.at(16384).result.runtime_goodput, 3)
        (0.904, 0.817)
    """

    failures: Failures
    save: Any = None
    load: Any = None
    checkpoint_bytes: Any = None
    checkpoint_bandwidth: Any = None
    detection: Any = 0.0
    restart: Any = 0.0
    warmup: Any = 0.0
    input_wait: Any = 0.0
    window: Any = 604800.0
    lost_work: Any = 0.0
    preemption_rate: Any = 0.0
    interval: Any = None
    method: str = "daly"

    def __post_init__(self) -> None:
        """Check the inputs.

        Raises:
            ArgumentError: One cannot be used, or the time of a save is not known.
        """
        super().__post_init__()
        if not isinstance(self.failures, SeriesFailureScenario | ObservedFailureScenario):
            raise ArgumentError(
                f"Cannot use failures = {self.failures!r}: it says neither how often nor on how many devices",
                "Give a SeriesFailureScenario or an ObservedFailureScenario",
                "bad-failures",
            )
        method_named(self.method)
        self._keep("input_wait", share(self.input_wait, "input_wait"))
        for name, (check, unit) in _CHECKS.items():
            value = getattr(self, name)
            self._keep(name, None if value is None else quantity(check(value, unit, name), unit))
        if self.save is None and (self.checkpoint_bytes is None or self.checkpoint_bandwidth is None):
            raise ArgumentError(
                "Cannot tell how long a save takes: neither save, nor checkpoint_bytes and checkpoint_bandwidth",
                'Give save, such as "30 s", or both of the others',
                "no-save-time",
            )

    @property
    def n_devices(self) -> Any:
        """Devices of the job."""
        return self.failures.n_devices

    @property
    def save_time(self) -> Any:
        """Time one save blocks [s]: as given, or size over bandwidth."""
        if self.save is not None:
            return self.save
        size = magnitude(self.checkpoint_bytes, "byte", "checkpoint_bytes")
        return quantity(size / magnitude(self.checkpoint_bandwidth, "byte/second", "checkpoint_bandwidth"), "second")

    @property
    def result(self) -> RuntimeGoodputResult:
        """What `headway.model.RuntimeGoodputModel` gives for it."""
        return RuntimeGoodputModel().solve(
            mtbf=self.failures.result.mtbf_s,
            save=self.save_time,
            load=self.load,
            detection=self.detection,
            restart=self.restart,
            warmup=self.warmup,
            input_wait=self.input_wait,
            window=self.window,
            lost_work=self.lost_work,
            preemption_rate=self.preemption_rate,
            interval=self.interval,
            method=self.method,
        )

    def at(self, n_devices: Any) -> Self:
        """Return the same job at another number of devices, or at an array of them; the save stays as it is."""
        return self.variant(failures=self.failures.at(n_devices))

    def sweep(self, sizes: Iterable[int]) -> dict[int, RuntimeGoodputResult]:
        """Return the result at each number of devices.

        Raises:
            ArgumentError: `sizes` is no list of them.

        Example:
            >>> from headway.model import Scenarios
            >>> sizes = Scenarios.Llama2_70BRuntimeGoodput128.sweep([128, 1024])
            >>> {n: round(result.runtime_goodput, 3) for n, result in sizes.items()}
            {128: 0.904, 1024: 0.894}
        """
        if not hasattr(sizes, "__iter__") or hasattr(sizes, "encode"):
            raise ArgumentError(
                f"Cannot sweep over {sizes!r}: it is no list of numbers of devices",
                "Give several, such as [128, 1024]",
                "bad-sizes",
            )
        return {size: self.at(size).result for size in sizes}

    def crossover(self, step: int) -> int | None:
        """Return the first size, from this one up by `step` devices, at which failures cost more than waiting for data.

        Failures cost what saving, rework and recovery take together, which grows with the devices.

        Args:
            step: Devices are added in this number, >= 1.

        Returns:
            The number of devices, this job's own where failures cost more already; None where they
            never do.

        Raises:
            ArgumentError: `step` is no whole number above 0, or an input is an array.

        Example:
            >>> from headway.model import Scenarios
            >>> job = Scenarios.Llama2_70BRuntimeGoodput128
            >>> job.crossover(128), job.crossover(1000), job.at(16384).crossover(128)
            (12928, 13128, 16384)
        """
        now = self.result
        several = not isinstance(now.failure_side, float) or not isinstance(now.input_wait_share, float)
        if type(step) is not int or step < 1 or several:
            raise ArgumentError(
                f"Cannot find the crossover by steps of {step!r}: it needs a whole number above 0, and one job: "
                "no input of it an array",
                "Give the devices of a node or of a pod, such as 128, to a job of one size, save and input wait",
                "bad-step-size",
                step=step,
            )

        def costs_more(k: int) -> bool:
            return bool(self.at(self.n_devices + k * step).result.failure_side > self.input_wait)

        low, high = -1, 0  # too few, and perhaps enough
        while not costs_more(high):
            low, high = high, 2 * high or 1
            if high > _MOST_STEPS:
                return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if costs_more(middle) else (middle, high)
        return int(self.n_devices + high * step)
