"""How often a job of n devices fails: from its components in series, or from what was observed.

Parts in series fail the job as soon as one fails, and the rates of independent exponential parts
add (Barlow and Proschan 1975). A job of n devices fails n times as often as one of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from headway.errors import ArgumentError
from headway.model.checks import amount, fits, inverse, likely, positive
from headway.model.frozen import FrozenDict, Scenario, mapping
from headway.model.quantities import magnitude, quantity


@dataclass(frozen=True, slots=True)
class FailureResult:
    """How often a job fails.

    Attributes:
        component_rates_per_s: By component, failures of one device's share of it [1 / s].
        device_rate_per_s: Of one device [1 / s].
        system_rate_per_s: Of the whole job [1 / s].
    """

    component_rates_per_s: Mapping[str, Any]
    device_rate_per_s: Any
    system_rate_per_s: Any

    @property
    def component_rates(self) -> dict[str, Any]:
        """By component, failures a device [1 / h]."""
        return {name: quantity(rate, "1/second").to("1/hour") for name, rate in self.component_rates_per_s.items()}

    @property
    def device_rate(self) -> Any:
        """Failures of one device [1 / h]."""
        return quantity(self.device_rate_per_s, "1/second").to("1/hour")

    @property
    def system_rate(self) -> Any:
        """Failures of the job [1 / h]."""
        return quantity(self.system_rate_per_s, "1/second").to("1/hour")

    @property
    def mtbf_s(self) -> Any:
        """Mean time between failures of the job [s]; infinite where nothing fails."""
        return inverse(self.system_rate_per_s)

    @property
    def mtbf(self) -> Any:
        """Mean time between failures of the job [h]."""
        return quantity(self.mtbf_s, "second").to("hour")

    @property
    def failures_per_day(self) -> Any:
        """Failures of the job a day."""
        return self.system_rate_per_s * 86400.0


@dataclass(frozen=True, kw_only=True, eq=False)
class SeriesFailureScenario(Scenario):
    """A job whose nodes fail when one of their components does.

    Attributes:
        n_devices: Devices of the job; an array for several sizes.
        devices_per_node: Devices of one node.
        component_mttf: By component, its mean time to failure [s].
        per_node: By component, how many of it a node has; a count of 0 cannot fail the node.

    Example:
        >>> job = SeriesFailureScenario(
        ...     n_devices=128, devices_per_node=8, component_mttf={"gpu": "50000 h"}, per_node={"gpu": 8}
        ... )
        >>> f"{job.result.mtbf:.1f}"
        '390.6 hour'
    """

    n_devices: Any
    devices_per_node: Any
    component_mttf: Mapping[str, Any]
    per_node: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Check the inputs.

        Raises:
            ArgumentError: One cannot be used, or a component has no count or no time.
        """
        super().__post_init__()
        self._keep("n_devices", positive(self.n_devices, "dimensionless", "n_devices"))
        self._keep("devices_per_node", positive(self.devices_per_node, "dimensionless", "devices_per_node"))
        times = mapping(self.component_mttf, "component_mttf")
        counts = mapping(self.per_node, "per_node")
        for name in {**times, **counts}:
            if name not in times or name not in counts:
                lacks, has = ("component_mttf", counts) if name not in times else ("per_node", times)
                raise ArgumentError(
                    f"Cannot use the component {name!r}: it is not in {lacks}{likely(name, set(has) - {name})}",
                    "Give each component its time to failure and its count in a node; a count may be 0",
                    "lone-component",
                    component=name,
                )
        mttf = {
            name: quantity(positive(value, "second", f"component_mttf {name}", infinite=True), "second")
            for name, value in times.items()
        }
        per_node = {name: amount(value, "dimensionless", f"per_node {name}") for name, value in counts.items()}
        self._keep("component_mttf", FrozenDict(mttf))
        self._keep("per_node", FrozenDict(per_node))
        fits(
            n_devices=self.n_devices,
            devices_per_node=self.devices_per_node,
            **{f"component_mttf {name}": value.magnitude for name, value in mttf.items()},
            **{f"per_node {name}": value for name, value in per_node.items()},
        )

    @property
    def result(self) -> FailureResult:
        """The rates, and their inverse."""
        rates = {
            name: self.per_node[name] / self.devices_per_node / magnitude(mttf, "second", name)
            for name, mttf in self.component_mttf.items()
        }
        device = sum(rates.values(), 0.0)
        return FailureResult(FrozenDict(rates), device, device * self.n_devices)

    def at(self, n_devices: Any) -> Self:
        """Return the same at another number of devices."""
        return self.variant(n_devices=n_devices)


@dataclass(frozen=True, kw_only=True, eq=False)
class ObservedFailureScenario(Scenario):
    """A job that fails as often, a device, as what was observed.

    Attributes:
        n_devices: Devices of the job; an array for several sizes.
        n_failures: How many failures were seen, or their mean, >= 0.
        duration: In how long [s].
        observed_devices: On how many devices; None for `n_devices`.

    Example:
        >>> seen = ObservedFailureScenario(n_devices=16384, n_failures=419, duration="54 day")
        >>> f"{seen.result.mtbf:.3f}", f"{seen.at(8192).result.mtbf:.3f}"
        ('3.093 hour', '6.186 hour')
    """

    n_devices: Any
    n_failures: Any
    duration: Any
    observed_devices: Any = None

    def __post_init__(self) -> None:
        """Check the inputs.

        Raises:
            ArgumentError: One cannot be used.
        """
        super().__post_init__()
        self._keep("n_devices", positive(self.n_devices, "dimensionless", "n_devices"))
        self._keep("n_failures", amount(self.n_failures, "dimensionless", "n_failures"))
        self._keep("duration", quantity(positive(self.duration, "second", "duration"), "second"))
        watched = self.n_devices if self.observed_devices is None else self.observed_devices
        self._keep("observed_devices", positive(watched, "dimensionless", "observed_devices"))
        fits(
            n_devices=self.n_devices,
            n_failures=self.n_failures,
            duration=magnitude(self.duration, "second", "duration"),
            observed_devices=self.observed_devices,
        )

    @property
    def result(self) -> FailureResult:
        """The rates, and their inverse."""
        device = self.n_failures / magnitude(self.duration, "second", "duration") / self.observed_devices
        return FailureResult(FrozenDict(observed=device), device, device * self.n_devices)

    def at(self, n_devices: Any) -> Self:
        """Return the same at another number of devices."""
        return self.variant(n_devices=n_devices)


Failures = SeriesFailureScenario | ObservedFailureScenario
