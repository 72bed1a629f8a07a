"""Model FLOP utilisation of a node and of a fleet of them: the program factor P, and what scaling costs.

MFU after Chowdhery et al. (2022), PaLM, arXiv 2204.02311, appendix B: 6 N FLOP a token, over
devices x dense peak x time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from headway.errors import ArgumentError
from headway.model.accelerators import peak_flops
from headway.model.checks import fits, positive
from headway.model.frozen import Scenario
from headway.model.quantities import magnitude, quantity

_NUMBER: Final = re.compile(r"\s*[0-9.]+(?:[eE][-+]?[0-9]+)?\s*", re.ASCII)
_WITH_UNITS: Final = ("peak", "node_step_time", "fleet_step_time")


def mfu(parameters: Any, tokens: Any, devices: Any, peak: Any, step_time: Any) -> Any:
    """Return the model FLOP utilisation: 6 N tokens over devices x peak x time.

    Args:
        parameters: Parameters of the model, N.
        tokens: Tokens of one step.
        devices: How many devices share it.
        peak: Dense peak of one device [flop / s].
        step_time: Time of one step [s].

    Raises:
        ArgumentError: One is not above 0.

    Example:
        >>> round(mfu(70e9, 35446, 128, "989 Tflop/s", "245 ms"), 3)
        0.48
    """
    n = positive(parameters, "dimensionless", "parameters")
    batch = positive(tokens, "dimensionless", "tokens")
    width = positive(devices, "dimensionless", "devices")
    top = positive(peak, "flop/second", "peak")
    time = positive(step_time, "second", "step_time")
    fits(parameters=n, tokens=batch, devices=width, peak=top, step_time=time)
    return 6.0 * n * batch / (width * top * time)


@dataclass(frozen=True, kw_only=True, eq=False)
class FleetMfuScenario(Scenario):
    """One training job on one node and on a fleet: what becomes of its utilisation.

    Attributes:
        parameters: Parameters of the model.
        peak: Dense peak of one device [flop / s], or the name of an accelerator such as ``"H100 SXM"``.
        node_devices, fleet_devices: Devices of the node and of the fleet.
        node_tokens, fleet_tokens: Tokens of one step there.
        node_step_time, fleet_step_time: Time of one step there [s].

    Example:
        >>> from headway.model import Scenarios
        >>> round(Scenarios.Llama2_70BFleetMfu128.scaling_efficiency, 3)
        0.738
    """

    parameters: Any
    peak: Any
    node_devices: Any
    fleet_devices: Any
    node_tokens: Any
    fleet_tokens: Any
    node_step_time: Any
    fleet_step_time: Any

    def __post_init__(self) -> None:
        """Check the inputs.

        Raises:
            ArgumentError: One is not above 0, the accelerator is unknown, arrays do not fit, or an MFU is above 1.
        """
        super().__post_init__()
        for name in ("parameters", "node_devices", "fleet_devices", "node_tokens", "fleet_tokens"):
            self._keep(name, positive(getattr(self, name), "dimensionless", name))
        for name in ("node_step_time", "fleet_step_time"):
            self._keep(name, quantity(positive(getattr(self, name), "second", name), "second"))
        named = isinstance(self.peak, str) and "/" not in self.peak and not _NUMBER.fullmatch(self.peak)
        peak = peak_flops(self.peak) if named else self.peak
        self._keep("peak", quantity(positive(peak, "flop/second", "peak"), "flop/second"))
        fields = [*("parameters", "node_devices", "fleet_devices", "node_tokens", "fleet_tokens"), *_WITH_UNITS]
        fits(**{name: getattr(getattr(self, name), "magnitude", getattr(self, name)) for name in fields})
        for place in ("node", "fleet"):
            self._check(place)

    def _check(self, place: str) -> None:
        names = ("parameters", f"{place}_tokens", f"{place}_devices", "peak", f"{place}_step_time")
        values = {name: getattr(self, name) for name in names}
        found = mfu(*values.values())
        most = found if isinstance(found, float) else float(found.max())
        if most > 1.0:
            told = ", ".join(f"{name} = {value}" for name, value in values.items())
            raise ArgumentError(
                f"Cannot use the {place}: its MFU would be {most:.4g}, above 1, by {told}",
                "Give other values; the peak is of one device, the tokens are those of one step on all devices",
                "bad-factor",
                found=found,
            )

    @property
    def node_mfu(self) -> Any:
        """MFU on the node."""
        return mfu(self.parameters, self.node_tokens, self.node_devices, self.peak, self.node_step_time)

    @property
    def fleet_mfu(self) -> Any:
        """MFU on the fleet: P of the job."""
        return mfu(self.parameters, self.fleet_tokens, self.fleet_devices, self.peak, self.fleet_step_time)

    @property
    def scaling_efficiency(self) -> Any:
        """MFU of the fleet over that of the node."""
        return self.fleet_mfu / self.node_mfu

    @property
    def extra_step_time(self) -> Any:
        """What a step of the fleet takes longer [s]; negative where it is shorter."""
        return quantity(self._fleet_s - self._node_s, "second")

    @property
    def extra_share(self) -> Any:
        """That, over the step of the fleet."""
        return (self._fleet_s - self._node_s) / self._fleet_s

    @property
    def _fleet_s(self) -> Any:
        return magnitude(self.fleet_step_time, "second", "fleet_step_time")

    @property
    def _node_s(self) -> Any:
        return magnitude(self.node_step_time, "second", "node_step_time")
