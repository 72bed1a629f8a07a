"""How attempts ended, in words."""

from __future__ import annotations

from collections import Counter
from typing import Final

from headway.ledger.ledger import Ledger

_WORDS: Final = {None: "did not close", "signal": "by a signal"}
_BAD: Final = {"failed": "failed", "signal": "ended by a signal", None: "did not close"}


def endings(ledger: Ledger) -> dict[str, list[str | None]]:
    """Return by attempt why its ranks closed, what most of them said first; None is one that did not."""
    found: dict[str, Counter[str | None]] = {}
    for part in ledger.parts:
        found.setdefault(part.attempt, Counter())[part.ended] += 1
    return {attempt: [reason for reason, _ in reasons.most_common()] for attempt, reasons in found.items()}


def ending(reasons: list[str | None]) -> str:
    """Return in a few words how an attempt ended.

    Example:
        >>> ending(["finished"]), ending([None, "failed"])
        ('finished', 'did not close, failed')
    """
    return ", ".join(_WORDS.get(reason, reason or "") for reason in reasons)


def bad_endings(ledger: Ledger) -> str:
    """Return which attempts ended badly; one without a close counts where another came after it."""
    last = {part.rank: part.attempt for part in ledger.parts}.values()
    bad = {}
    there = {part.attempt for part in ledger.parts if part.ledger.held_ns}
    for attempt, reasons in endings(ledger).items():
        if attempt not in there:  # of a window before or after it
            continue
        worst = next((reason for reason in ("failed", "signal", None) if reason in reasons), "finished")
        if worst in _BAD and not (worst is None and attempt in last):
            bad[attempt] = _BAD[worst]
    if len(bad) < 2:
        return "".join(f"attempt {attempt} {how}" for attempt, how in bad.items())
    counts = ", ".join(f"{n} {how}" for how, n in Counter(bad.values()).items())
    return f"of {ledger.attempts} attempts {counts} (--by attempt)"


def is_open(ledger: Ledger) -> bool:
    """Return whether the last attempt of a rank did not close: it may run still."""
    last = {part.rank: part.ended for part in ledger.parts}
    return None in last.values()
