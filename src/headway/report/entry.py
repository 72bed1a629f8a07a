"""What is shown: runs with their ledgers, and how the reader asked to see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.errors import ArgumentError
from headway.ledger.ledger import KEYS, Ledger, combine
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
        by: One of `headway.ledger.ledger.KEYS`, to show each piece beside the whole; None for the whole alone.
        windows: Whether windows were asked for.
    """

    price: Price | None = None
    by: str | None = None
    windows: bool = False


def groups(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Return the entries that can be added: runs, traces, and pools.

    What a run held may be part of what a pool tells, and what a trace shows is a part of some run.
    """
    kinds: dict[str, list[Entry]] = {"run": [], "trace": [], "pool": []}
    for entry in entries:
        kinds[kind(entry)].append(entry)
    return [group for group in kinds.values() if group]


def kind(entry: Entry) -> str:
    """Return what an entry is: a run, a trace or a pool.

    Example:
        >>> kind(Entry("r1", "kineto", Ledger()))
        'trace'
    """
    return "pool" if entry.ledger.of_pool else "trace" if entry.source == "kineto" else "run"


def total(entries: Sequence[Entry]) -> Ledger:
    """Return the sum of several runs, or of several pools, as one ledger."""
    return combine([entry.ledger for entry in entries])


def split_key(entries: Sequence[Entry], key: str | None) -> None:
    """Refuse to split by what none of the entries has; what some have is shown for those.

    Raises:
        ArgumentError: As `split` does.
    """
    if key is not None and entries and not any(_has(entry.ledger, key) for entry in entries):
        split(entries[0].ledger, key)


def shown_by(ledger: Ledger, key: str | None) -> str | None:
    """Return by what a ledger is shown split: as asked, where it has such pieces; a pool else by state."""
    if key is not None and _has(ledger, key):
        return key
    return "state" if ledger.of_pool else None


def _has(ledger: Ledger, key: str) -> bool:
    return not ledger.parts or ledger.of_pool != (key in {"rank", "attempt"})


def split(ledger: Ledger, key: str) -> dict[str, Ledger]:
    """Return the ledger split: ranks in the order of their numbers, attempts of their names, of a pool the most first.

    Raises:
        ArgumentError: A run has no such pieces, or a pool.
    """
    if not _has(ledger, key):
        what, keys = ("pool", KEYS[2:]) if ledger.of_pool else ("run", KEYS[:2])
        raise ArgumentError(
            f"Cannot split {', '.join(ledger.runs)} by {key}: a {what} splits by {', '.join(keys)}",
            "Give one of them",
            "bad-split",
            key=key,
        )
    pieces = ledger.by(key)
    if ledger.of_pool:
        return dict(sorted(pieces.items(), key=lambda piece: (-piece[1].held_ns, piece[0])))
    return {name: pieces[name] for name in sorted(pieces, key=int if key == "rank" else str)}
