"""A record that is checked field by field, goes into JSON and comes back; and layers as ranges."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from numbers import Integral, Real
from typing import Any, Final, Self

from headway.errors import ArgumentError

_LAYERS: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,9})")
_MOST: Final = 2**64


def as_layers(layers: Any) -> range:
    """Return layers as the range from the first of them up to, and without, the end.

    Args:
        layers: A range, a pair (start, end), a mapping with start and end, or a text "start:end".

    Raises:
        ArgumentError: It is none of these, or not 0 <= start <= end.

    Example:
        >>> as_layers("0:4"), as_layers((0, 4)), as_layers({"start": 0, "end": 4})
        (range(0, 4), range(0, 4), range(0, 4))
    """
    pair: Any = None
    if isinstance(layers, range) and layers.step == 1:
        pair = (layers.start, layers.stop)
    elif isinstance(layers, str) and (found := _LAYERS.fullmatch(layers)):
        pair = tuple(map(int, found.groups()))
    elif isinstance(layers, Mapping):
        pair = (layers.get("start"), layers.get("end"))
    elif isinstance(layers, list | tuple):
        pair = layers
    if pair is not None and len(pair) == 2 and all(is_whole(at) for at in pair) and 0 <= pair[0] <= pair[1] < _MOST:
        return range(int(pair[0]), int(pair[1]))
    raise ArgumentError(
        f"Cannot use layers: found {shown(layers)}; layers are a start and an end, 0 <= start <= end",
        'Give layers such as range(0, 4) or "0:4"',
        "bad-layers",
        layers=layers,
    )


def dots(layers: range) -> str:
    """Return layers as they are shown, such as ``0..4``."""
    return f"{layers.start}..{layers.stop}"


class Record:
    """A dataclass that goes into JSON and comes back."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON types; layers as {"start", "end"}."""
        return {one.name: plain(getattr(self, one.name)) for one in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str | bytes) -> Self:
        """Return the record that `to_json` gave; unknown keys are passed over.

        Args:
            data: The mapping, or its JSON text.

        Raises:
            ArgumentError: It is no JSON object, or a field is missing or has a value it cannot have.
        """
        given = mapping(cls, data)
        known = {one.name: one for one in fields(cls)}  # type: ignore[arg-type]
        for name, one in known.items():
            if name not in given and one.default is MISSING and one.default_factory is MISSING:
                raise refusal(cls, f"{name} is missing", f"Give {name}", name)
        return cls(**{name: given[name] for name in known if name in given})

    def _keep(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check(self, texts: str, times: str, counts: str) -> None:
        """Check and keep fields by what they hold; one whose default is None may be None."""
        may_lack = {one.name for one in fields(self) if one.default is None}  # type: ignore[arg-type]
        for names, read in ((texts, text_of), (times, _time), (counts, count)):
            for name in names.split():
                value = getattr(self, name)
                if value is not None or name not in may_lack:
                    self._keep(**{name: read(type(self), name, value)})


def plain(value: Any) -> Any:
    """Return a value as plain JSON types."""
    if isinstance(value, range):
        return {"start": value.start, "end": value.stop}
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def mapping(cls: type, data: Any) -> Mapping[str, Any]:
    """Return a JSON object, from its text too."""
    found = data
    if isinstance(data, str | bytes):
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            raise refusal(cls, f"found {shown(data)}, which is no JSON", "Give what to_json gave", "") from None
    if not isinstance(found, Mapping):
        raise refusal(cls, f"found {shown(found)}, which is no JSON object", "Give what to_json gave", "")
    return found


def items(cls: type, name: str, value: Any) -> Sequence[Any]:
    """Return a field that is a list."""
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value
    raise refusal(cls, f"{name} is {shown(value)}", f"Give {name} as a list", name)


def text_of(cls: type, name: str, value: Any) -> str:
    """Return a field that is text."""
    if isinstance(value, str):
        return value
    raise refusal(cls, f"{name} is {shown(value)}", f"Give {name} as text", name)


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number, and no truth."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def count(cls: type, name: str, value: Any) -> int:
    """Return a field that is a whole number from 0 on."""
    if is_whole(value) and 0 <= value < _MOST:
        return int(value)
    raise refusal(cls, f"{name} is {shown(value)}", f"Give {name} as a whole number from 0 to 2^64 - 1", name)


def _time(cls: type, name: str, value: Any) -> float:
    try:
        time = float(value) if _is_number(value) else math.nan
    except OverflowError:
        time = math.inf
    if 0 <= time < math.inf:
        return time + 0.0  # no negative zero
    raise refusal(cls, f"{name} is {shown(value)}", f"Give {name} as a finite number [ms], 0 or more", name)


def number(cls: type, name: str, value: Any) -> float:
    """Return one number of a field; ``nan``, ``inf`` and ``-inf`` may be written out."""
    known = value in {"nan", "inf", "-inf"} if isinstance(value, str) else _is_number(value)
    try:
        if known:
            return float(value)
    except OverflowError:
        pass
    raise refusal(cls, f"{name} holds {shown(value)}", f"Give {name} as numbers", name)


def shown(value: Any) -> str:
    """Return a value as an error shows it, on one line and not long."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # a whole number of too many digits
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= 80 else text[:79] + "…"


def refusal(cls: type, found: str, next_step: str, name: str) -> ArgumentError:
    """Return the error about a field, with what was found and what to give."""
    return ArgumentError(f"Cannot make a {cls.__name__}: {found}", next_step, "bad-report", field=name)
