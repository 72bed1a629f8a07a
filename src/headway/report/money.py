"""What device-time costs, written with as many digits as the whole of it needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.clock import NS_PER_S
from headway.units import Price, show_money


@dataclass(frozen=True, slots=True)
class Costs:
    """Amounts of money of one page.

    Attributes:
        price: What one device costs.
        digits: Digits behind the point.

    Example:
        >>> costs = Costs.of(Price(2.0), 28 * 10**9)
        >>> costs.show(28.0), costs.show(0.003), costs.rate
        ('0.01556 USD', '<0.00001 USD', 'at 2 USD/h')
    """

    price: Price
    digits: int = 2

    @classmethod
    def of(cls, price: Price, window_ns: int) -> Costs:
        """Return the costs of a page, where the whole is that much device-time [device-ns]."""
        whole = price.cost(window_ns / NS_PER_S)
        return cls(price, min(9, 3 - math.floor(math.log10(whole))) if 0 < whole < 1 else 2)

    @property
    def rate(self) -> str:
        """The price, as a person reads it."""
        return f"at {self.price.per_device_hour:,.10g} {self.price.currency}/h"

    def show(self, seconds: float) -> str:
        """Return what that much device-time costs; what rounds to nothing is still not nothing."""
        amount, least = self.price.cost(seconds), 10.0**-self.digits
        if 0 < amount < least / 2:
            return f"<{least:.{self.digits}f} {self.price.currency}"
        if self.digits == 2:
            return show_money(amount, self.price.currency)
        return f"{amount:.{self.digits}f} {self.price.currency}"
