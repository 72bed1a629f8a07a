"""Quantities in and out: numbers in a documented unit, texts such as ``"15 min"``, or pint quantities.

The registry is Headway's own, built when a text or a quantity first needs it: importing this
changes no other registry, and plain numbers never load pint.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn

from headway.clock import NS_PER_S
from headway.errors import ArgumentError
from headway.units import parse_duration

if TYPE_CHECKING:
    import pint

_LONGEST: Final = 80
_POWER: Final = re.compile(r"\*\*|\^")
_SMALL_POWER: Final = re.compile(r"(?:\*\*|\^)\s*[-+]?\s*[1-9](?![\w.])")
_SUPERSCRIPTS: Final = re.compile(r"[²³¹⁰⁴-⁹]{2}|[⁰⁴-⁹]")
_SIGNED: Final = re.compile(r"\s*([$€£])\s*([\d.,_]+(?:[eE][-+]?\d+)?)")
_TOKENS: Final = re.compile(r"(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[A-Za-zµμΩ_%]+|\S")
_STRANGE: Final = re.compile(r"[^A-Za-z0-9_.%()*^/+ \t$€£µμΩ⁻¹²³-]")
_DOT: Final = "; write one number in plain digits with a dot for its decimals, such as 2.50, and no separators"
_SIGNS: Final = {"$": "USD", "€": "EUR", "£": "GBP"}
_MONEY: Final = re.compile(r"\b(USD|EUR|GBP)\b")
_EXAMPLES: Final = {
    "second": "15 min",
    "USD/hour": "2 USD/hour",
    "1/second": "1 / day",
    "byte": "980 GB",
    "byte/second": "100 GB/s",
    "flop/second": "989 Tflop/s",
    "dimensionless": "90 %",
}


class _UnplainError(ValueError):
    """A text whose number may be meant another way than it would be read."""


@cache
def _registry() -> pint.UnitRegistry[Any]:
    import pint

    ours: pint.UnitRegistry[Any] = pint.UnitRegistry(cache_folder=None)
    ours.define("USD = [currency] = _ = dollar")
    ours.define("EUR = [euro_currency]")
    ours.define("GBP = [pound_sterling]")
    ours.define("flop = [operation] = FLOP")
    return ours


def __getattr__(name: str) -> Any:
    """Return ``registry`` or its ``Quantity``, building the registry at the first call."""
    if name == "registry":
        return _registry()
    if name == "Quantity":
        return _registry().Quantity
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def magnitude(value: Any, unit: str, name: str) -> Any:
    """Return a quantity's magnitude in a unit: a float, or an array of them.

    Args:
        value: A number or array, which is in `unit` already; a text such as ``"15 min"``; a pint
            quantity of any registry; a list of these.
        unit: The unit wanted, such as ``"second"``.
        name: The argument's name, for the error.

    Raises:
        ArgumentError: It is no such thing, or of another dimension.

    Example:
        >>> magnitude("15 min", "second", "save"), magnitude(900, "second", "save")
        (900.0, 900.0)
    """
    if type(value) is float:
        return value
    try:
        if isinstance(value, str):
            return _text(value, unit)
        if _is_quantity(value):
            value = _converted(value, unit)
        elif isinstance(value, list | tuple) and any(isinstance(x, str) or _is_quantity(x) for x in value):
            value = [magnitude(item, unit, name) for item in value]
        return _numbers(value)
    except _refusals() as error:
        _refuse(value, unit, name, error)


def quantity(value: Any, unit: str) -> Any:
    """Return a magnitude as a quantity of Headway's registry.

    Example:
        >>> f"{quantity(900.0, 'second').to('min'):.1f}"
        '15.0 minute'
    """
    return _registry().Quantity(value, _unit(unit))


def currency(value: Any) -> str:
    """Return the currency that a price is in: ``USD``, unless its text or its unit names another.

    Example:
        >>> currency("2 EUR/hour"), currency(2.0)
        ('EUR', 'USD')
    """
    if isinstance(value, str):
        found = _MONEY.search(_named(value))
        return found[1] if found else "USD"
    names = [name for name, _ in value.unit_items()] if _is_quantity(value) else []
    return next((name for name in names if name in _SIGNS.values()), "USD")


def _text(text: str, unit: str) -> float:
    """Return what a text says in a unit; a time may also be written as ``10m`` or ``1h30m``."""
    plain = _named(text.strip())
    powers = _POWER.findall(plain)
    if len(text) > _LONGEST or len(powers) > 1 or len(powers) != len(_SMALL_POWER.findall(plain)):
        raise ValueError("a quantity has at most 80 characters and one small power")
    if _SUPERSCRIPTS.search(plain) or not any(letter.isdecimal() for letter in plain):
        raise ValueError("a quantity has small powers, and a number")
    if not _is_product(plain):
        if unit != "second":
            raise _UnplainError("several numbers that are no product")
        try:
            return parse_duration(plain) / NS_PER_S
        except ArgumentError as error:
            raise _UnplainError("neither a product nor a duration") from error
    try:
        return float(plain)
    except ValueError:
        pass
    try:
        found = _registry().parse_expression(plain)
        return float(found.to(unit).magnitude if _is_quantity(found) else _numbers(found))
    except _refusals():
        if unit != "second":
            raise
        return parse_duration(plain) / NS_PER_S


def _is_product(text: str) -> bool:
    """Return whether a text is a product of numbers and units; 1h30m is none, and may be a duration.

    What pint would multiply unasked, as in ``1 000 s``, ``2,5 h`` or ``1 h 30``, is no product.

    Raises:
        _UnplainError: It has a sign that belongs to no plain number and no unit.
    """
    if _STRANGE.search(text):
        raise _UnplainError("a character of no plain number and no unit")
    before, numbers = "(", 0
    for part in _TOKENS.findall(text):
        after_operator = before in {"(", "*", "^", "/", "per"}
        if part in {"+", "-", "."} and (part == "." or not after_operator):
            raise _UnplainError("a sum, or a dot alone")
        if part[0] in "0123456789.":
            if numbers and not after_operator and before not in {"+", "-"}:
                return False
            numbers += 1
        before = part
    return True


def _converted(value: Any, unit: str) -> Any:
    """Return the magnitude of a quantity in a unit; at once where it is in that unit of our registry."""
    if isinstance(value, _registry().Quantity) and tuple(value.unit_items()) == _items(unit):
        return value.magnitude
    return value.to(unit).magnitude


def _named(text: str) -> str:
    return _SIGNED.sub(lambda match: f"{match[2]} {_SIGNS[match[1]]}", text)


def _numbers(value: Any) -> Any:
    """Return a number as float, several as an array of floats; neither truth values nor texts are numbers."""
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    import numpy as np

    found = np.asarray(value)
    odd = found.dtype.kind == "O" and any(x is None or isinstance(x, str | bool) for x in found.flat)
    if found.dtype.kind not in "fiuO" or odd:
        raise TypeError(f"no numbers but {found.dtype}")
    found = found.astype(float)  # a copy: what is made of it may outlive the caller's array
    return float(found) if found.ndim == 0 else found


def _is_quantity(value: Any) -> bool:
    return hasattr(value, "magnitude") and hasattr(value, "to")


def _refusals() -> tuple[type[BaseException], ...]:
    """Return what pint, Python's tokenizer and NumPy raise on what they cannot read."""
    theirs = [("pint", "PintError"), ("tokenize", "TokenError")]
    named = [getattr(sys.modules[module], name) for module, name in theirs if module in sys.modules]
    built_in = (TypeError, ValueError, AttributeError, ArithmeticError, AssertionError, SyntaxError, LookupError)
    return (*built_in, RecursionError, MemoryError, NotImplementedError, *named)


def _refuse(value: Any, unit: str, name: str, error: BaseException) -> NoReturn:
    if isinstance(error, ArgumentError) and error.slug == "bad-quantity":
        raise error
    wanted = "a number without a unit" if unit == "dimensionless" else f"a number in {unit}"
    raise ArgumentError(
        f"Cannot use {name} = {_short(value)}: it is neither {wanted} nor a quantity of that dimension",
        f'Give {wanted}, or a text with its unit such as "{_EXAMPLES.get(unit, "1 " + unit)}"'
        + (_DOT if isinstance(error, _UnplainError) else ""),
        "bad-quantity",
        name=name,
        unit=unit,
    ) from error


@cache
def _items(unit: str) -> tuple[tuple[str, Any], ...]:
    return tuple(_registry().Quantity(1.0, _unit(unit)).unit_items())


@cache
def _unit(unit: str) -> Any:
    return _registry().Unit(unit)


def _short(value: Any) -> str:
    shown = f"{value}" if _is_quantity(value) else repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
