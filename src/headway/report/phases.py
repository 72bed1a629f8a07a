"""The phases of a step's wait: which wait for data and which for the other ranks, and what shortens each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from headway.clock import NS_PER_S
from headway.ledger.ledger import Ledger
from headway.units import show_seconds

_OF_PEERS: Final = re.compile(
    r"wait|sync(?!hetic)|barrier|collective|all_?(?:reduce|gather|to_?all)|reduce_?scatter|comm(?:s|$|_)|communicat|nccl"
)
_OF_DATA: Final = re.compile(r"data|input|batch|loader|source|queue")

_CHANGES: Final[Mapping[str, tuple[str, str]]] = {
    "source": ("load ahead of the step", "the loader: prefetch, more workers"),
    "transform": ("transform ahead of the step", "the transform: in the loader's workers, or done once and stored"),
    "transfer": ("copy ahead of the step", "the copy to the device: pinned memory, the next batch during this step"),
}
_LOOP: Final = "the loop"


@dataclass(frozen=True, slots=True)
class Advice:
    """What shortens one wait.

    Attributes:
        text: What to do, with the fact it rests on.
        where: Where to look.
        gain_ns: What it returns [device-ns].
        up_to: Whether some of it may stay.
    """

    text: str
    where: str
    gain_ns: int
    up_to: bool


def is_of_peers(phase: str) -> bool:
    """Return whether a phase of that name waits for other ranks, and not for data.

    Example:
        >>> [is_of_peers(name) for name in ("allreduce", "grad_sync", "source", "data_wait")]
        [True, True, False, False]
    """
    name = phase.lower()
    return _OF_PEERS.search(name) is not None and _OF_DATA.search(name) is None


def peer_wait_ns(ledger: Ledger) -> int:
    """Return what was waited for other ranks, bubbles and communication that nothing hid among it [device-ns]."""
    inside = sum(ledger.amounts_ns.get(name, 0) for name in ("bubble", "exposed_communication"))
    return _phases_of_peers(ledger) + inside


def data_wait_ns(ledger: Ledger) -> int:
    """Return what was waited for data [device-ns]."""
    return ledger.amounts_ns.get("input_wait", 0) - _phases_of_peers(ledger)


def _phases_of_peers(ledger: Ledger) -> int:
    return sum(ns for phase, ns in ledger.waits_ns.items() if is_of_peers(phase))


def shorten_waits(ledger: Ledger, ns: int) -> Iterator[Advice]:
    """Yield what shortens the input wait: a change for each phase, or for the one stall that it mostly is.

    Args:
        ledger: Of one run.
        ns: Its ``input_wait`` [device-ns].
    """
    stall = _stall(ledger, ns)
    if stall is not None:
        yield stall
        return
    waits = {phase: waited for phase, waited in ledger.waits_ns.items() if waited > 0}
    if not waits or sum(waits.values()) > ns:
        waits = {_LOOP: ns}
    fits = _fits_behind_the_steps(ledger)
    for phase, waited in waits.items():
        if is_of_peers(phase):
            text = f"balance the ranks: {phase} takes {_show(waited)}"
            yield Advice(text, "the rank that waits least holds the others: --by rank", waited, up_to=True)
            continue
        change, where = _CHANGES.get(phase, _CHANGES["source"])
        if not fits:
            where += "; waits are longer than the steps they could hide behind"
        yield Advice(f"{change}: {phase} waits {_show(waited)}", where, waited, up_to=not fits)


def _fits_behind_the_steps(ledger: Ledger) -> bool:
    """Return whether each rank has the productive time to hide its own wait for data behind."""
    ranks = ledger.by("rank").values() or [ledger]
    return all(data_wait_ns(rank) <= rank.amounts_ns.get("productive", 0) for rank in ranks)


def _stall(ledger: Ledger, ns: int) -> Advice | None:
    """Return the advice on one stall that is more than half of the wait; None where there is none."""
    stall = ledger.stall
    if stall is None:
        return None
    mine = [part for part in ledger.parts if (part.rank, part.attempt) == (stall.rank, stall.attempt)]
    waited = stall.wait_ns * (mine[0].ledger.devices if mine else 1)
    if not ns / 2 < waited <= ns:
        return None
    who = f"rank {stall.rank}, step {stall.step}" if ledger.ranks > 1 else f"step {stall.step}"
    text = f"one stall: {who} waited {_show(waited)} of {_show(ns)}"
    return Advice(text, "what the loader met at that step: storage, a worker that began again", waited, up_to=True)


def _show(ns: int) -> str:
    return show_seconds(ns / NS_PER_S)
