"""What an argument of the model may be: each check names the argument, what was found and the limit."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import Any, NoReturn

from headway.errors import ArgumentError
from headway.model.quantities import magnitude


def factor(value: Any, name: str) -> Any:
    """Return a factor of the goodput, in (0, 1].

    Raises:
        ArgumentError: It is outside, or no number.
    """
    found = magnitude(value, "dimensionless", name)
    if not isinstance(found, float) and found.size and found.min() > 0 and found.max() <= 1:
        return found  # two passes over an array, where the checks below take five
    place = _first(found, lambda x: (x > 0) & (x <= 1))
    if place is not None:
        _refuse(f"Cannot use {name} = {place}: a factor is above 0 and at most 1", "bad-factor", name, found)
    return found


def share(value: Any, name: str) -> Any:
    """Return a share of time, in [0, 1].

    Raises:
        ArgumentError: It is outside, or no number.
    """
    found = magnitude(value, "dimensionless", name)
    place = _first(found, lambda x: (x >= 0) & (x <= 1))
    if place is not None:
        _refuse(f"Cannot use {name} = {place}: a share is from 0 to 1", "bad-share", name, found)
    return found


def positive(value: Any, unit: str, name: str, *, infinite: bool = False) -> Any:
    """Return a magnitude above 0, and finite unless infinity means something here.

    Raises:
        ArgumentError: It is not, or no such quantity.
    """
    found = magnitude(value, unit, name)
    place = _first(found, lambda x: (x > 0) & ((x < math.inf) | infinite))
    if place is not None:
        limit = "it must be above 0" if infinite else "it must be above 0 and finite"
        _refuse(f"Cannot use {name} = {place} {_shown(unit)}: {limit}".replace(" :", ":"), "bad-amount", name, found)
    return found


def amount(value: Any, unit: str, name: str) -> Any:
    """Return a magnitude from 0 on, and finite.

    Raises:
        ArgumentError: It is not, or no such quantity.
    """
    found = magnitude(value, unit, name)
    place = _first(found, lambda x: (x >= 0) & (x < math.inf))
    if place is not None:
        text = f"Cannot use {name} = {place} {_shown(unit)}: it must be from 0 on and finite".replace(" :", ":")
        _refuse(text, "bad-amount", name, found)
    return found


def fits(**values: Any) -> None:
    """Check that arrays broadcast with each other.

    Raises:
        ArgumentError: They do not.
    """
    shapes = {name: value.shape for name, value in values.items() if hasattr(value, "shape")}
    if len(shapes) < 2:
        return
    import numpy as np

    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError as error:
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ArgumentError(
            f"Cannot use these arrays together: {told}; their shapes do not broadcast",
            "Give arrays of one shape, or add axes of length 1",
            "unfit-arrays",
            shapes=shapes,
        ) from error


def inverse(value: Any) -> Any:
    """Return 1 / value; infinity for 0."""
    if isinstance(value, float):
        return 1.0 / value if value else math.inf
    import numpy as np

    with np.errstate(divide="ignore"):
        return 1.0 / np.asarray(value)


def likely(name: str, known: Iterable[str]) -> str:
    """Return a hint at the name that was meant, or nothing.

    Example:
        >>> likely("runtme", ["scheduling", "runtime"])
        ' (did you mean runtime?)'
    """
    by_lower = {item.lower(): item for item in known}
    close = difflib.get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.5)
    return f" (did you mean {by_lower[close[0]]}?)" if close else ""


def _first(found: Any, allowed: Any) -> Any:
    """Return the first value that is not allowed, and where it stands; None where all are."""
    good = allowed(found)
    if good is True or (good is not False and good.all()):
        return None
    if good is False:
        return found
    import numpy as np

    where = np.unravel_index(int(np.argmin(good)), good.shape)
    return f"{float(found[where])} (at {', '.join(str(int(i)) for i in where)})"


def _shown(unit: str) -> str:
    return "" if unit == "dimensionless" else unit


def _refuse(what: str, slug: str, name: str, found: Any) -> NoReturn:
    next_step = f"Give another {name}"
    if slug == "bad-factor":
        raise ArgumentError(what, next_step + "; where it was not measured, give None", "bad-factor", found=found)
    if slug == "bad-share":
        raise ArgumentError(what, next_step, "bad-share", name=name, found=found)
    raise ArgumentError(what, next_step, "bad-amount", name=name, found=found)
