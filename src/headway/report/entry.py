"""What is shown: runs with their ledgers, and how the reader asked to see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.ledger.ledger import Ledger, combine
from headway.units import Price


@dataclass(frozen=True, eq=False)
class Entry:
    """One run and its ledger.

    Attributes:
        run: The run's name.
        source: The source that read it, such as ``native``.
        ledger: Where its device-time went.
        path: Where it was read from.
        warnings: What reading it could not make sense of; the ledger's own are added when shown.
        windows: Ledgers of windows of it, in the order of time.
        history: The whole run, where the ledger is a window of it.
    """

    run: str
    source: str
    ledger: Ledger
    path: str = ""
    warnings: Sequence[str] = ()
    windows: Sequence[Ledger] = ()
    history: Ledger | None = None

    @property
    def all_warnings(self) -> list[str]:
        """Warnings of the reading and of the ledger, each once."""
        return list(dict.fromkeys([*self.warnings, *self.ledger.warnings]))


@dataclass(frozen=True, slots=True)
class Options:
    """How a report is to be shown.

    Attributes:
        price: What a device-hour costs; None leaves money out.
        by: ``rank`` or ``attempt`` to show each beside the whole; None for the whole alone.
        windows: Whether windows were asked for.
    """

    price: Price | None = None
    by: str | None = None
    windows: bool = False


def total(entries: Sequence[Entry]) -> Ledger:
    """Return the sum of several runs, as one ledger."""
    return combine([entry.ledger for entry in entries])


def split(ledger: Ledger, key: str) -> dict[str, Ledger]:
    """Return the ledger by ``rank`` or ``attempt``: ranks in the order of their numbers, attempts of their names."""
    pieces = ledger.by(key)
    return {name: pieces[name] for name in sorted(pieces, key=int if key == "rank" else str)}
