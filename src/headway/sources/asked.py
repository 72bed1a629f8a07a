"""What the reader says of files that do not say it themselves, and what a source makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path

from headway.ledger.history import Pool, Run, Served


@dataclass(frozen=True, slots=True)
class Asked:
    """What the reader says.

    Attributes:
        devices: The number of devices of each rank; None for what the log says.
        capacity: The number of devices of a pool; None for what the files say.
        mapping: A TOML file that tells what the columns of a table mean; None: a ready one, by the columns' names.
        zone: Of times that name none; None: UTC, with a warning.
    """

    devices: int | None = None
    capacity: int | None = None
    mapping: Path | None = None
    zone: tzinfo | None = None


Loaded = Run | Pool | Served
"""What a source makes of a path."""
