"""`headway model`: what goodput could be. Each of its commands is in ``headway.cli.model_<name>``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import click

from headway.cli.main import LazyGroup

MODEL_COMMANDS: Final[Mapping[str, str]] = {
    "list": "List the scenarios and published runs that have a name.",
    "show": "Show one of them: its inputs, its result, its levers.",
    "solve": "Multiply S, R and P, and show where the rest goes.",
    "whatif": "Take a recorded run to another size, and show what it would lose.",
    "sweep": "Take a scenario over a range of sizes, as a chart.",
    "interval": "Compute how often to save.",
    "simulate": "Simulate a scenario with random failures.",
}
"""By name, what each does."""


@click.group(cls=LazyGroup, table=MODEL_COMMANDS, home="headway.cli.model_{}:command")
def model() -> None:
    """Compute what goodput could be: what-if, sweeps, save intervals, simulation.

    Times are written as 30s, "15 min", 4h or 2d, prices as "2 USD/h". Everything is of a whole job:
    one failure stops all its devices.
    """
