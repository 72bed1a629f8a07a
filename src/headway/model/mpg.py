"""MPG = S x R x P, its four shares, what a point of each factor is worth, and what a ceiling would give.

Wongpanich et al. (2025), "Machine Learning Fleet Efficiency", arXiv 2502.06982. Every loss is
charged once, at the first boundary it fails: 1 = (1-S) + S(1-R) + SR(1-P) + SRP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headway.errors import ArgumentError
from headway.model.checks import amount, factor, fits, inverse, likely
from headway.model.frozen import FrozenDict
from headway.model.quantities import currency, magnitude, quantity

FACTORS: Final = {"S": "scheduling", "R": "runtime", "P": "program"}
_NO_CEILINGS: Final[FrozenDict] = FrozenDict()


class GoodputResult(tuple[Any, ...]):
    """What three factors give; a field is computed when it is read, so a sweep pays for what it uses.

    Made by `GoodputModel.solve`. Fields are floats, or arrays where an input is one. Arrays of floats
    are not copied: leave them as they are while the result is in use. (A scenario has copies.)

    Example:
        >>> case = GoodputModel().solve(0.9, 0.9, 0.7, device_hour_rate="4 USD/hour")
        >>> f"{case.mpg:.3f}", f"{case.useful_rate:.3f}"
        ('0.567', '7.055 USD / hour')
    """

    __slots__ = ()

    @property
    def scheduling(self) -> Any:
        """S: device-time held by complete allocations over device-time offered."""
        return self[0]

    @property
    def runtime(self) -> Any:
        """R: retained over held."""
        return self[1]

    @property
    def program(self) -> Any:
        """P: ideal over retained."""
        return self[2]

    @property
    def ceilings(self) -> Mapping[str, Any]:
        """The values that the owners of the factors can reach, by S, R, P."""
        found: Mapping[str, Any] = _NO_CEILINGS if self[3] is None else self[3]
        return found

    @property
    def device_hour_rate(self) -> Any:
        """Price of one offered device-hour [currency / hour]; None where none was given."""
        return None if self[4] is None else quantity(*self[4])

    @property
    def mpg(self) -> Any:
        """Useful over offered: S x R x P."""
        return product(self[0], self[1], self[2])

    @property
    def job_product(self) -> Any:
        """What the job answers for: R x P."""
        return self[1] * self[2]

    @property
    def after_scheduling(self) -> Any:
        """Held over offered: S."""
        return self[0]

    @property
    def after_runtime(self) -> Any:
        """Retained over offered: S x R."""
        return self[0] * self[1]

    @property
    def scheduling_share(self) -> Any:
        """Share of the offered time lost to scheduling: 1 - S."""
        return 1.0 - self[0]

    @property
    def runtime_share(self) -> Any:
        """Share of the offered time lost to the runtime: S(1 - R)."""
        return self[0] * (1.0 - self[1])

    @property
    def program_share(self) -> Any:
        """Share of the offered time lost in the program: SR(1 - P)."""
        return self[0] * self[1] * (1.0 - self[2])

    @property
    def point_value(self) -> dict[str, Any]:
        """What MPG gains for each unit of a factor: the product of the other two."""
        s, r, p = self[0], self[1], self[2]
        return {"S": r * p, "R": s * p, "P": s * r}

    @property
    def ceiling_ratio(self) -> dict[str, Any]:
        """MPG at a factor's ceiling over MPG now."""
        return {key: ceiling / self[place] for place, key, ceiling in self._reachable()}

    @property
    def ceiling_gain(self) -> dict[str, Any]:
        """What MPG gains at a factor's ceiling."""
        worth = self.point_value
        return {key: (ceiling - self[place]) * worth[key] for place, key, ceiling in self._reachable()}

    @property
    def mpg_at_ceiling(self) -> dict[str, Any]:
        """MPG with that factor at its ceiling and the others as they are."""
        worth = self.point_value
        return {key: ceiling * worth[key] for _, key, ceiling in self._reachable()}

    @property
    def full_scheduling_gain(self) -> Any:
        """What MPG gains if everything offered is held."""
        return (1.0 - self[0]) * self.job_product

    @property
    def cost_multiple(self) -> Any:
        """Offered device-time for one useful one: 1 / MPG; infinite where MPG is below the least float."""
        return inverse(self.mpg)

    @property
    def job_cost_multiple(self) -> Any:
        """Held device-time for one useful one: 1 / RP."""
        return inverse(self.job_product)

    @property
    def runtime_headroom(self) -> Any:
        """What MPG would gain, relative to now, if no held time were lost: 1/R - 1."""
        return inverse(self[1]) - 1.0

    @property
    def useful_rate(self) -> Any:
        """Price of a useful device-hour [currency / hour]; None without a price."""
        if self[4] is None:
            return None
        price, unit = self[4]
        return quantity(price * self.cost_multiple, unit)

    def as_dict(self) -> dict[str, Any]:
        """Return every field by name; of money the magnitude, with its unit in the name."""
        fields = {name: getattr(self, name) for name in RESULT_FIELDS}
        fields["useful_rate"] = None if self[4] is None else fields["useful_rate"].magnitude
        return fields | {"useful_rate_unit": None if self[4] is None else self[4][1]}

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in ("scheduling", "runtime", "program", "mpg"))
        return f"GoodputResult({shown})"

    def _reachable(self) -> list[tuple[int, str, Any]]:
        known = self[3]
        return [] if known is None else [(place, key, known[key]) for place, key in enumerate(FACTORS) if key in known]


RESULT_FIELDS: Final = (
    "mpg", "job_product", "after_scheduling", "after_runtime", "scheduling_share", "runtime_share",
    "program_share", "point_value", "ceiling_ratio", "ceiling_gain", "mpg_at_ceiling", "full_scheduling_gain",
    "cost_multiple", "job_cost_multiple", "runtime_headroom", "useful_rate",
)  # fmt: skip


class GoodputModel:
    """ML productivity goodput from its three factors, after Wongpanich et al. (2025), arXiv 2502.06982."""

    __slots__ = ()

    def solve(
        self,
        scheduling: Any,
        runtime: Any,
        program: Any,
        ceilings: Mapping[str, Any] | None = None,
        device_hour_rate: Any = None,
    ) -> GoodputResult:
        """Return what the factors give.

        Args:
            scheduling: S, in (0, 1]; arrays broadcast.
            runtime: R, in (0, 1].
            program: P, in (0, 1].
            ceilings: By S, R, P: the value that factor's owner can reach, from the factor to 1.
            device_hour_rate: Price of one offered device-hour [USD / hour], or a text or quantity
                in USD, EUR or GBP; >= 0.

        Raises:
            ArgumentError: A factor is unknown or outside (0, 1], a ceiling is below its factor or
                above 1, or the price is none.

        Example:
            >>> case = GoodputModel().solve([0.5, 1.0], 0.9, 0.4)
            >>> case.mpg.round(2).tolist()
            [0.18, 0.36]
        """
        if (
            scheduling.__class__ is runtime.__class__ is program.__class__ is float
            and 0.0 < scheduling <= 1.0 >= runtime > 0.0 < program <= 1.0
            and ceilings is device_hour_rate  # both None: the way of most solves, kept short
        ):
            return GoodputResult((scheduling, runtime, program, None, None))
        return checked(scheduling, runtime, program, ceilings, device_hour_rate)


def product(first: Any, second: Any, third: Any) -> Any:
    """Return the product of three floats or arrays; of a sweep it takes no more memory than the result."""
    found = first * second
    if isinstance(found, float) or found.shape != getattr(third, "shape", ()):
        return found * third
    found *= third
    return found


def checked(scheduling: Any, runtime: Any, program: Any, ceilings: Any, device_hour_rate: Any) -> GoodputResult:
    """Return the result of inputs that may be anything."""
    given = {"scheduling": scheduling, "runtime": runtime, "program": program}
    missing = [name for name, value in given.items() if value is None]
    if missing:
        raise ArgumentError(
            f"Cannot solve the goodput: {' and '.join(missing)} not known; MPG is the product of all three factors",
            f"Give {' and '.join(missing)}, measured or assumed, such as scenario.variant({missing[0]}=0.9)",
            "missing-factor",
            missing=missing,
        )
    factors = [value if _is_sweep(value) else factor(value, name) for name, value in given.items()]
    top = check_ceilings(ceilings, dict(zip(FACTORS, factors, strict=True)))
    price = check_rate(device_hour_rate)
    fits(scheduling=factors[0], runtime=factors[1], program=factors[2], **top)
    return GoodputResult((*factors, top or None, price))


def _is_sweep(value: Any) -> bool:
    """Return whether it is an array of good factors as it stands: taken without a copy, which would cost most."""
    sweep = hasattr(value, "dtype") and value.dtype == float and bool(value.ndim and value.size)
    return sweep and bool(value.min() > 0 and value.max() <= 1)


def check_ceilings(ceilings: Mapping[str, Any] | None, factors: Mapping[str, Any]) -> FrozenDict:
    """Return ceilings that are at most 1 and not below their factors; of an unknown factor only the first holds.

    Raises:
        ArgumentError: It is no mapping, a key is not S, R or P, or a ceiling is outside.
    """
    if not isinstance(ceilings, Mapping | None):
        raise ArgumentError(
            f"Cannot use ceilings = {repr(ceilings)[:60]}: it is no mapping from S, R or P to a value",
            'Give ceilings such as {"R": 0.95}',
            "bad-mapping",
            name="ceilings",
        )
    found = {}
    for key, value in (ceilings or {}).items():
        if key not in FACTORS:
            hint = likely(key, FACTORS)
            raise ArgumentError(
                f"Cannot use the ceiling of {key!r}: factors are S (scheduling), R (runtime), P (program){hint}",
                "Give ceilings by S, R or P",
                "unknown-ceiling",
                key=key,
            )
        found[key] = top = magnitude(value, "dimensionless", f"ceiling {key}")
        low = 0.0 if factors[key] is None else factors[key]
        fits(**{FACTORS[key]: low, f"ceiling {key}": top})
        good = (low <= top) & (top <= 1) & (top > 0)
        if not (good if isinstance(good, bool) else good.all()):
            raise ArgumentError(
                f"Cannot use the ceiling {key} = {_extreme(top)}: {FACTORS[key]} is {_extreme(low)}; "
                "a ceiling is from its factor to 1",
                f"Give a ceiling that {FACTORS[key]} can reach, or leave it out",
                "bad-ceiling",
                key=key,
                ceiling=top,
                factor=low,
            )
    return FrozenDict(found)


def check_rate(rate: Any) -> tuple[Any, str] | None:
    """Return a price and its unit, such as ``USD/hour``; None for none.

    Raises:
        ArgumentError: It is no price, or negative.
    """
    if rate is None:
        return None
    unit = f"{currency(rate)}/hour"
    return amount(rate, unit, "device_hour_rate"), unit


def _extreme(value: Any) -> str:
    return str(value) if isinstance(value, float) else f"array from {value.min()} to {value.max()}"
