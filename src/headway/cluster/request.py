"""What a cluster is asked to drive: a batch of prompts, checked, and how it passes the stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headway.cluster.control.message import Drive
from headway.cluster.record import is_whole, shown
from headway.errors import ArgumentError

if TYPE_CHECKING:
    from numpy.typing import NDArray

MODES: Final = ("relay", "pipelined")
LOGITS: Final = ("all", "last", "none")
MOST_IDS: Final = 2**28
"""The most token ids of one drive: they are told to the first stage in one message of 8 bytes each."""
_MOST_STEPS: Final = 2**31


@dataclass(frozen=True, eq=False)
class Request:
    """One drive.

    Attributes:
        ids: Token ids, ``(batch, length)`` int64, little-endian.
        mode: One of `MODES`.
        micro_batches: How many parts of the batch overlap.
        steps: How many tokens to generate for each prompt.
        logits: Which to return, one of `LOGITS`.
    """

    ids: NDArray[np.int64]
    mode: str
    micro_batches: int
    steps: int
    logits: str

    def __post_init__(self) -> None:
        """Check the fields but the ids.

        Raises:
            ArgumentError: One has a value it cannot have.
        """
        if not _is_one_of(MODES, self.mode):
            raise refused("mode", f"mode is {shown(self.mode)}", f"Give one of {', '.join(MODES)}")
        if not is_whole(self.steps) or not 0 <= self.steps <= _MOST_STEPS:
            raise refused("steps", f"steps is {shown(self.steps)}", "Give a whole number from 0 to 2^31")
        if not _is_one_of(LOGITS, self.logits):
            raise refused("logits", f"logits is {shown(self.logits)}", f"Give one of {', '.join(LOGITS)}")
        whole = is_whole(self.micro_batches)
        if self.mode == "relay" and not (whole and self.micro_batches == 1):
            found = f"micro_batches is {shown(self.micro_batches)}, and relay has one"
            raise refused("micro_batches", found, "Give mode='pipelined', or leave micro_batches out")
        if not whole or self.micro_batches < 1 or len(self.ids) % self.micro_batches:
            found = f"micro_batches is {shown(self.micro_batches)}, and no divisor of a batch of {len(self.ids)}"
            raise refused("micro_batches", found, "Give a divisor of the batch")

    @property
    def n_forwards(self) -> int:
        """How often the batch passes the stages: once for the prompts, then once a token but the last."""
        return max(1, self.steps)

    @property
    def n_tokens(self) -> int:
        """How many tokens of a sequence pass them."""
        return int(self.ids.shape[1]) + self.n_forwards - 1

    def order(self, generation: int, first_step: int) -> Drive:
        """Return it as the workers of a group are told."""
        return Drive(
            generation=generation,
            ids=self.ids.tobytes(),
            batch=self.ids.shape[0],
            length=self.ids.shape[1],
            micro_batches=int(self.micro_batches),
            steps=int(self.steps),
            first_step=first_step,
            logits=self.logits,
        )


def as_ids(given: Any, vocab: int) -> NDArray[np.int64]:
    """Return token ids as a matrix, each checked; a single prompt is a batch of one.

    Raises:
        ArgumentError: They differ in length, are no whole numbers, or no tokens of the vocabulary.

    Example:
        >>> as_ids([3, 1, 2], vocab=8).tolist()
        [[3, 1, 2]]
    """
    try:
        ids = np.asarray(given)
    except ValueError as error:
        found = "the prompts of input_ids differ in length"
        raise refused("input_ids", found, "Drive prompts of one length together") from error
    if ids.ndim == 1:
        ids = ids[None]
    if ids.ndim != 2 or not ids.size or not np.issubdtype(ids.dtype, np.integer):
        found = f"input_ids are {ids.dtype} of shape {ids.shape}"
        raise refused("input_ids", found, "Give whole numbers of shape (batch, length)")
    if ids.size > MOST_IDS:
        raise refused("input_ids", f"input_ids are {ids.size} token ids", f"Give {MOST_IDS} at most")
    if ids.min() < 0 or ids.max() >= vocab:
        wrong = int(ids.min()) if ids.min() < 0 else int(ids.max())
        found = f"{wrong} is no token of a vocabulary of {vocab}"
        raise refused("input_ids", found, f"Give ids from 0 to {vocab - 1}")
    return np.ascontiguousarray(ids, dtype="<i8")


def random_ids(batch: int, length: int, vocab: int, seed: int) -> NDArray[np.int64]:
    """Return random prompts, ``(batch, length)``; the same for the same seed.

    Raises:
        ArgumentError: The batch is no whole number above zero, or larger than a drive can be.
    """
    if not is_whole(batch) or batch < 1:
        raise refused("batch", f"batch is {shown(batch)}", "Give a whole number from 1 on")
    if int(batch) * length > MOST_IDS:
        found = f"batch is {shown(batch)}, of {length} tokens each; at most {MOST_IDS} are driven at once"
        raise refused("batch", found, f"Give {MOST_IDS // length} at most" if length <= MOST_IDS else "Lower seq")
    return np.random.default_rng(seed).integers(0, vocab, (batch, length), dtype=np.int64)


def most_parts(batch: int, n_stages: int) -> int:
    """Return the largest divisor of a batch that is at most twice the number of stages.

    Example:
        >>> most_parts(12, 2), most_parts(7, 2)
        (4, 1)
    """
    return max(n for n in range(1, 2 * n_stages + 1) if batch % n == 0)


def refused(name: str, found: str, next_step: str) -> ArgumentError:
    """Return the error about an argument of a drive."""
    return ArgumentError(f"Cannot drive: {found}", next_step, "bad-drive", argument=name)


def _is_one_of(words: tuple[str, ...], value: Any) -> bool:
    return isinstance(value, str) and value in words
