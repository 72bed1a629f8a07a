"""Frozen things: a dictionary nobody changes, and the base of all scenarios."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NoReturn, Self

from headway.errors import ArgumentError
from headway.model.checks import likely
from headway.model.quantities import quantity


class FrozenDict(dict[str, Any]):
    """A dictionary that cannot be changed; it is hashed by its keys, and pickles.

    Example:
        >>> FrozenDict(S=0.8)["S"]
        0.8
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        for key, value in super().items():
            super().__setitem__(key, locked(value))

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("this mapping belongs to a frozen object; make a variant of that object instead")

    __setitem__ = __delitem__ = __ior__ = _refuse
    pop = popitem = clear = update = setdefault = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)

    def __copy__(self) -> FrozenDict:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FrozenDict:
        return self


def locked(value: Any) -> Any:
    """Return a value that nobody can change: arrays are copied, lists become tuples, at any depth.

    Example:
        >>> locked({"seen": [1, [2]]})["seen"]
        (1, (2,))
    """
    if isinstance(value, list | tuple):
        return value if hasattr(value, "_fields") else tuple(locked(item) for item in value)
    if isinstance(value, set):
        return frozenset(value)
    if isinstance(value, Mapping):
        return value if isinstance(value, FrozenDict) else FrozenDict(value)
    if hasattr(value, "setflags") and value.ndim:
        return _locked_array(value)
    if hasattr(value, "magnitude") and hasattr(value, "units"):
        inner = value.magnitude
        return value.__class__(_locked_array(inner) if hasattr(inner, "setflags") else inner, value.units)
    return value


def mapping(value: Any, name: str) -> dict[str, Any]:
    """Return a copy of what must be a mapping.

    Raises:
        ArgumentError: It is none.
    """
    if isinstance(value, Mapping):
        return dict(value.items())
    raise ArgumentError(
        f"Cannot use {name} = {repr(value)[:60]}: it is no mapping from names to values",
        f"Give {name} as a dictionary",
        "bad-mapping",
        name=name,
    )


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Scenario:
    """Inputs of a model, checked when made.

    Attributes:
        name: A name for people.
        description: What it describes, in a sentence.
        source: Where the inputs come from.
        date: When that was published, as ``2024-07`` or ``2024-07-31``.
        facts: What the source gives beside the inputs, by name.
    """

    name: str = ""
    description: str = ""
    source: str = ""
    date: str = ""
    facts: Mapping[str, Any] = dataclasses.field(default_factory=FrozenDict)

    def __post_init__(self) -> None:
        """Take a copy of the facts that nobody changes.

        Raises:
            ArgumentError: They are no mapping.
        """
        self._keep("facts", FrozenDict(mapping(self.facts, "facts")))

    def variant(self, **changes: Any) -> Self:
        """Return a copy with some inputs changed; the values are checked again.

        Raises:
            ArgumentError: A change is of no field of this scenario, or a value cannot be used.
        """
        known = [field.name for field in dataclasses.fields(self)]
        for name in changes:
            if name not in known:
                raise ArgumentError(
                    f"Cannot change {name!r} of a {type(self).__name__}: it has no such field{likely(name, known)}",
                    f"Give one of {', '.join(known)}",
                    "unknown-field",
                    field=name,
                    known=known,
                )
        return dataclasses.replace(self, **changes)

    def _keep(self, name: str, value: Any) -> None:
        """Set a field while the object is made; its arrays are nobody's to change."""
        object.__setattr__(self, name, locked(value))

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(_same(getattr(self, field.name), getattr(other, field.name)) for field in dataclasses.fields(self))

    def __hash__(self) -> int:
        return hash((type(self), self.name, self.source))

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {field.name: _packed(getattr(self, field.name)) for field in dataclasses.fields(self)}
        return _unpack, (type(self), fields)


def _locked_array(array: Any) -> Any:
    if not array.flags.writeable and array.base is None:
        return array
    copy = array.copy()
    copy.setflags(write=False)
    return copy


@dataclasses.dataclass(frozen=True)
class _Packed:
    """A quantity on its way between processes: pint would bind it to the other side's global registry."""

    magnitude: Any
    unit: str


def _packed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _packed(item) for key, item in value.items()}
    return _Packed(value.magnitude, f"{value.units:P}") if hasattr(value, "magnitude") else value


def _unpacked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unpacked(item) for key, item in value.items()}
    return quantity(value.magnitude, value.unit) if isinstance(value, _Packed) else value


def _unpack(cls: type[Scenario], fields: dict[str, Any]) -> Scenario:
    return cls(**{name: _unpacked(value) for name, value in fields.items()})


def _same(a: Any, b: Any) -> bool:
    same = a == b
    return bool(same) if isinstance(same, bool) or same is NotImplemented else bool(getattr(same, "all", bool)())
