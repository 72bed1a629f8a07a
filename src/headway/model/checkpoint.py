"""How often to save: Young's, Daly's and the exact best interval, and what is left of the time.

Failures are a Poisson process of mean distance M; a save takes d and blocks; an interval t is the
work between two saves; a restart takes R.

* Young (1974), "A first order approximation to the optimum checkpoint interval": sqrt(2 d M).
* Daly (2006), "A higher order estimate of the optimum checkpoint interval for restart dumps":
  sqrt(2 d M) [1 + 1/3 sqrt(d/2M) + 1/9 (d/2M)] - d for d < 2M, else M.
* The exact renewal form (Daly 2006, eq. 13, as a fraction): t / (M e^(R/M) (e^((t+d)/M) - 1)).
* Kokolis et al. (2024), "Revisiting Reliability in Large-Scale Machine Learning Research
  Clusters", arXiv 2410.21680: the expected ETTR.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headway.errors import ArgumentError
from headway.model.checks import amount, fits, likely, positive
from headway.model.frozen import Scenario
from headway.model.quantities import magnitude, quantity


def optimal_interval(save: Any, mtbf: Any, method: str = "daly") -> Any:
    """Return the checkpoint interval that loses least time [s].

    Args:
        save: Time to write one checkpoint, blocking [s], >= 0.
        mtbf: Mean time between failures of the whole job [s], > 0; infinite where nothing fails.
        method: ``daly``, ``young``, or ``exact``.

    Raises:
        ArgumentError: An argument cannot be used, or there is no such method.

    Example:
        >>> f"{optimal_interval('5 min', '24 h').to('min'):.2f}"
        '116.69 minute'
    """
    d, m = amount(save, "second", "save"), positive(mtbf, "second", "mtbf", infinite=True)
    fits(save=d, mtbf=m)
    return quantity(method_named(method)(d, m), "second")


def best_interval(save: Any, mtbf: Any) -> Any:
    """Return the interval that makes `efficiency` greatest [s], found numerically.

    The derivative of the exact form is zero where -ln(1 - x) - x = d/M with x = t/M; the left side
    is convex and rises, so Newton's steps from above end at the root. The restart moves it nowhere.

    Example:
        >>> f"{best_interval('5 min', '24 h').to('min'):.2f}"
        '116.69 minute'
    """
    return optimal_interval(save, mtbf, "exact")


def efficiency(interval: Any, save: Any, mtbf: Any, restart: Any = 0.0) -> Any:
    """Return the share of time that is kept work, in [0, 1], by the exact renewal form (Daly 2006).

    Args:
        interval: Work between two saves [s], > 0.
        save: Time to write one checkpoint, blocking [s], >= 0.
        mtbf: Mean time between failures of the whole job [s], > 0; infinite where nothing fails.
        restart: From a failure until work goes on [s], >= 0.

    Raises:
        ArgumentError: An argument cannot be used.

    Example:
        >>> f"{efficiency('22 min', '60 s', '3.093 h', '2 min'):.3f}"
        '0.889'
    """
    t, d = positive(interval, "second", "interval"), amount(save, "second", "save")
    m, r = positive(mtbf, "second", "mtbf", infinite=True), amount(restart, "second", "restart")
    fits(interval=t, save=d, mtbf=m, restart=r)
    return renewal(t, d, m, r)


def expected_ettr(nodes: Any, failure_rate: Any, interval: Any, restart: Any, save: Any = 0.0) -> Any:
    """Return the expected effective training time ratio: (1 - N r (u + t/2)) / (1 + d/t), first order.

    Kokolis et al. (2024), arXiv 2410.21680. Where the failures would take all the time the
    first-order form has left its ground and 0 is returned; `efficiency` has the exact value.

    Args:
        nodes: Nodes of the job, > 0.
        failure_rate: Failures of one node [1 / s], >= 0, such as ``"6.50 / (1000 day)"``.
        interval: Time between two saves [s], > 0.
        restart: From a failure until work goes on [s], >= 0.
        save: Time one save blocks [s], >= 0.

    Raises:
        ArgumentError: An argument cannot be used.

    Example:
        >>> f"{expected_ettr(2000, '6.50 / (1000 day)', '5 min', '5 min'):.3f}"
        '0.932'
    """
    n, r = positive(nodes, "dimensionless", "nodes"), amount(failure_rate, "1/second", "failure_rate")
    t, u = positive(interval, "second", "interval"), amount(restart, "second", "restart")
    d = amount(save, "second", "save")
    fits(nodes=n, failure_rate=r, interval=t, restart=u, save=d)
    lost = n * r * (u + t / 2.0)
    return left_of(lost) / (1.0 + d / t)


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckpointInterval(Scenario):
    """How often to save, by three methods, and what each keeps.

    Attributes:
        save: Time to write one checkpoint, blocking [s].
        mtbf: Mean time between failures of the whole job [s].
        restart: From a failure until work goes on [s].
        method: Which interval `interval` is: ``daly``, ``young`` or ``exact``.

    Example:
        >>> plan = CheckpointInterval(save="30 s", mtbf="4 h", restart="5 min")
        >>> f"{plan.interval.to('min'):.1f}", f"{plan.efficiency:.3f}", plan.outcome
        ('15.2 minute', '0.918', 'ok')
    """

    save: Any
    mtbf: Any
    restart: Any = 0.0
    method: str = "daly"

    def __post_init__(self) -> None:
        """Check the inputs.

        Raises:
            ArgumentError: One cannot be used.
        """
        super().__post_init__()
        method_named(self.method)
        values = {
            "save": amount(self.save, "second", "save"),
            "mtbf": positive(self.mtbf, "second", "mtbf", infinite=True),
            "restart": amount(self.restart, "second", "restart"),
        }
        fits(**values)
        for name, value in values.items():
            self._keep(name, quantity(value, "second"))

    @property
    def interval(self) -> Any:
        """The interval by `method` [s]."""
        return optimal_interval(self.save, self.mtbf, self.method)

    @property
    def young(self) -> Any:
        """Young's interval [s]."""
        return optimal_interval(self.save, self.mtbf, "young")

    @property
    def daly(self) -> Any:
        """Daly's interval [s]."""
        return optimal_interval(self.save, self.mtbf, "daly")

    @property
    def exact(self) -> Any:
        """The best interval of the exact form [s]."""
        return optimal_interval(self.save, self.mtbf, "exact")

    @property
    def efficiency(self) -> Any:
        """Share of time that is kept work at `interval`, by the exact form."""
        return self._kept(magnitude(self.interval, "second", "interval"))

    def at(self, interval: Any) -> Any:
        """Return the share of time that is kept work at another interval [s], by the exact form."""
        return self._kept(positive(interval, "second", "interval"))

    def _kept(self, interval: Any) -> Any:
        others = (magnitude(getattr(self, name), "second", name) for name in ("save", "mtbf", "restart"))
        return renewal(interval, *others)

    @property
    def outcome(self) -> Any:
        """``ok``, or ``save-exceeds-mtbf``: a failure is to be expected before the first save is written."""
        late = magnitude(self.save, "second", "save") >= magnitude(self.mtbf, "second", "mtbf")
        return named(late, "save-exceeds-mtbf", "ok")

    @property
    def notes(self) -> tuple[str, ...]:
        """What is doubtful, and what to do, a sentence each."""
        if not np.any(np.asarray(self.outcome) == "save-exceeds-mtbf"):
            return ()
        text = (
            "One save takes as long as the mean time between failures: little work will ever be kept. "
            "Write less, faster or in the background, or take fewer devices."
        )
        return (text,)


def young(save: Any, mtbf: Any) -> Any:
    """Return sqrt(2 d M) of magnitudes in one unit."""
    return root(times(2.0 * save, mtbf))


def daly(save: Any, mtbf: Any) -> Any:
    """Return Daly's higher-order interval of magnitudes in one unit."""
    part = save / (2.0 * mtbf)
    higher = young(save, mtbf) * (1.0 + root(part) / 3.0 + part / 9.0) - save
    if isinstance(part, float):
        return higher if part < 1.0 else mtbf
    return np.where(part < 1.0, higher, mtbf)


def exact(save: Any, mtbf: Any) -> Any:
    """Return the best interval of the exact form, of magnitudes in one unit."""
    delta = np.asarray(save / mtbf, dtype=float)
    x = np.minimum(np.sqrt(2.0 * delta), -np.expm1(-(1.0 + delta)))
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(60):
            step = (-np.log1p(-x) - x - delta) * (1.0 - x) / x
            if not np.any(step > 0):
                break
            x = np.where(step > 0, x - step, x)
    found = np.where(np.isinf(mtbf) | (delta == 0), young(save, mtbf), np.where(x > 0, x, 0.0) * _finite(mtbf))
    return plain(found)


METHODS: Final[dict[str, Callable[[Any, Any], Any]]] = {"daly": daly, "young": young, "exact": exact}


def method_named(name: Any) -> Callable[[Any, Any], Any]:
    """Return the method of that name, on magnitudes in one unit.

    Raises:
        ArgumentError: There is none.
    """
    if not isinstance(name, str) or name not in METHODS:
        raise ArgumentError(
            f"Cannot find the interval by {name!r}: methods are {', '.join(METHODS)}{likely(name, METHODS)}",
            "Give one of them; daly is the default for new work",
            "unknown-method",
            method=name,
        )
    return METHODS[name]


def renewal(interval: Any, save: Any, mtbf: Any, restart: Any) -> Any:
    """Return the exact share of kept work of magnitudes in one unit; an interval of 0 is its limit.

    Always by NumPy's own functions, so that one value and an array of them agree to the last bit.
    """
    t, d, m, r = (np.asarray(value, dtype=float) for value in (interval, save, mtbf, restart))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        kept = (t / m) / np.expm1((t + d) / m) * np.exp(-r / m)
        # Limits: no time between saves and none to save; nothing ever fails.
        kept = np.where((t == 0) & (d == 0), np.exp(-r / m), kept)
        free = np.where(np.isinf(t) | (d == 0), 1.0, t / (t + d))
    return plain(np.where(np.isinf(m), free, kept))


def root(value: Any) -> Any:
    """Return the square root; one value and an array of them agree to the last bit."""
    return math.sqrt(value) if isinstance(value, float) else np.sqrt(value)


def times(a: Any, b: Any) -> Any:
    """Return a product in which nothing times infinity is nothing."""
    if isinstance(a, float) and isinstance(b, float):
        return a * b if a else 0.0
    with np.errstate(invalid="ignore"):
        return np.where(np.equal(a, 0.0), 0.0, np.multiply(a, b))


def plain(value: Any) -> Any:
    """Return an array of one value without axes as a float."""
    found = np.asarray(value)
    return float(found) if found.ndim == 0 else found


def left_of(loss: Any) -> Any:
    """Return what a first-order loss leaves: 1 - loss, and nothing where that would be below 0."""
    if isinstance(loss, float):
        return 1.0 - loss if loss < 1.0 else 0.0
    return np.where(loss < 1.0, 1.0 - loss, 0.0)


def named(condition: Any, yes: str, no: str) -> Any:
    """Return one name by a condition, or an array of them."""
    if np.ndim(condition) == 0:
        return yes if condition else no
    return np.where(condition, yes, no)


def _finite(mtbf: Any) -> Any:
    return np.where(np.isinf(mtbf), 1.0, mtbf)
