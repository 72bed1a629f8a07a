"""The goodput of a job on a pool: three factors, their ceilings and a price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from headway.errors import ArgumentError
from headway.model.checks import factor, fits, likely
from headway.model.frozen import FrozenDict, Scenario
from headway.model.mpg import FACTORS, GoodputResult, check_ceilings, check_rate, checked
from headway.model.quantities import quantity

if TYPE_CHECKING:
    from headway.ledger.ledger import Ledger


@dataclass(frozen=True, kw_only=True, eq=False)
class GoodputScenario(Scenario):
    """Scheduling, runtime and program goodput of a job on a pool.

    Attributes:
        scheduling, runtime, program: S, R and P, in (0, 1] or arrays; None where it is not known.
        ceilings: By S, R, P: the value that factor's owner can reach.
        device_hour_rate: Price of one offered device-hour [currency / hour]; None where there is none.

    Example:
        >>> from headway.model import Scenarios
        >>> round(Scenarios.Llama2_70BSharedPoolGoodput128.result.mpg, 3)
        0.282
    """

    scheduling: Any
    runtime: Any
    program: Any
    ceilings: Mapping[str, Any] = field(default_factory=FrozenDict)
    device_hour_rate: Any = None

    def __post_init__(self) -> None:
        """Check the factors, the ceilings and the price.

        Raises:
            ArgumentError: One cannot be used.
        """
        super().__post_init__()
        known = {}
        for key, name in FACTORS.items():
            value = getattr(self, name)
            known[key] = None if value is None else factor(value, name)
            self._keep(name, known[key])
        self._keep("ceilings", check_ceilings(self.ceilings, known))
        fits(**{FACTORS[key]: value for key, value in known.items()}, **self.ceilings)
        price = check_rate(self.device_hour_rate)
        self._keep("device_hour_rate", None if price is None else quantity(*price))

    @property
    def result(self) -> GoodputResult:
        """What `headway.model.GoodputModel` gives for it.

        Raises:
            ArgumentError: A factor is not known.
        """
        return checked(self.scheduling, self.runtime, self.program, self.ceilings, self.device_hour_rate)

    def trade_ratio(self, other: GoodputScenario) -> Any:
        """Return the other's useful fraction over this one's.

        Raises:
            ArgumentError: The other is no such scenario, or a factor is not known.

        Example:
            >>> half = GoodputScenario(scheduling=0.5, runtime=1.0, program=1.0)
            >>> half.trade_ratio(half.variant(scheduling=1.0))
            2.0
        """
        if not isinstance(other, GoodputScenario):
            raise ArgumentError(
                f"Cannot compare with {repr(other)[:60]}: it is no GoodputScenario",
                "Give a scenario, such as scenario.variant(runtime=0.95)",
                "bad-scenario",
            )
        return other.result.mpg / self.result.mpg

    @classmethod
    def from_ledger(cls, ledger: Ledger, **given: Any) -> Self:
        """Return the scenario that a measured ledger describes.

        Args:
            ledger: What `headway.account` returned.
            given: Fields that the ledger does not know, such as ``scheduling``, ``program`` or
                ``device_hour_rate``.

        Raises:
            ArgumentError: The ledger holds nothing, a given value cannot be used, or is of no field.
        """
        told = {name: given.pop(name) for name in ("program", "scheduling", "device_hour_rate") if name in given}
        known = [item.name for item in fields(cls) if item.name != "runtime"]
        for name in given:
            if name not in known:
                raise ArgumentError(
                    f"Cannot make a scenario of the ledger with {name!r}: it is no field to give{likely(name, known)}",
                    f"Give one of {', '.join(known)}",
                    "unknown-field",
                    field=name,
                    known=known,
                )
        made: Self = import_module("headway.model.fitting").scenario_from_ledger(cls, ledger, **told)
        return made.variant(**given) if given else made
