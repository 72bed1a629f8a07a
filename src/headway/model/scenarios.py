"""The published scenarios, by name; each is read when it is asked for. What a source does not give is absent."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from operator import attrgetter
from typing import Any, Final

from headway.errors import ArgumentError
from headway.model.checkpoint import CheckpointInterval
from headway.model.checks import likely
from headway.model.failures import ObservedFailureScenario, SeriesFailureScenario
from headway.model.flops import FleetMfuScenario
from headway.model.frozen import Scenario
from headway.model.runtime_scenario import RuntimeGoodputScenario
from headway.model.scenario import GoodputScenario
from headway.model.scheduling import SchedulingSnapshotScenario

KINDS: Final[dict[str, type[Scenario]]] = {
    kind.__name__: kind
    for kind in (
        CheckpointInterval,
        FleetMfuScenario,
        GoodputScenario,
        ObservedFailureScenario,
        RuntimeGoodputScenario,
        SchedulingSnapshotScenario,
        SeriesFailureScenario,
    )
}
_REFERENCE: Final = re.compile(r"=(\w+)(?:\.([\w.]+))?")


class _Scenarios:
    """The scenarios by name, as attributes; `names` lists them, and iterating gives the names.

    Example:
        >>> Scenarios.Llama3_405BGoodput16K.result.mpg
        0.369
    """

    def names(self) -> list[str]:
        """Return the names, sorted."""
        return sorted(_table())

    def get(self, name: str) -> Any:
        """Return the scenario of that name.

        Raises:
            ArgumentError: There is none; the message has the likely one.
        """
        if name not in _table():
            raise ArgumentError(
                f"Cannot find the scenario {str(name)[:60]!r}: there is none of that name{likely(name, _table())}",
                "See the names with headway.model.Scenarios.names()",
                "unknown-scenario",
                name=name,
            )
        return _made(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self.get(name)
        except ArgumentError as error:
            raise AttributeError(str(error), name=name, obj=None) from error

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(_table())

    def __contains__(self, name: object) -> bool:
        return name in _table()

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.names()]

    def __repr__(self) -> str:
        return f"Scenarios({', '.join(self.names())})"


@cache
def _table() -> dict[str, dict[str, Any]]:
    return tomllib.loads(files("headway.model").joinpath("data/scenarios.toml").read_text(encoding="utf-8"))


@cache
def _made(name: str) -> Scenario:
    given = _resolved(dict(_table()[name]))
    kind = KINDS[given.pop("kind")]
    if kind is GoodputScenario:  # a factor that the source does not give is not known
        given = {"scheduling": None, "runtime": None, "program": None} | given
    return kind(**given)


def _resolved(value: Any) -> Any:
    """Return a value of the table; ``=Name.path`` is what another scenario says there."""
    if isinstance(value, dict):
        return {key: _resolved(item) for key, item in value.items()}
    found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return value
    other = _made(found[1])
    return attrgetter(found[2])(other) if found[2] else other


Scenarios: Final = _Scenarios()
