"""The table of categories: where device-time can go, and at which factor it is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Category:
    """One line of a ledger.

    Attributes:
        name: As written in logs and JSON.
        factor: The boundary at which its time is lost: ``S``, ``R`` or ``P``; None for what was kept.
        holds: What it holds, in a sentence.
        remedy: What usually returns it.
    """

    name: str
    factor: str | None
    holds: str
    remedy: str


CATEGORIES: Final = (
    Category("productive", None, "step time that was retained", ""),
    Category("allocated", None, "held by a job of whose inside nothing is known", ""),
    Category("startup", "R", "from open to the first step, less the spans in it", "build less before it"),
    Category("device_init", "R", "spans of that name", "initialise devices and communicators in parallel"),
    Category("compile", "R", "spans of that name, or inferred from the first step", "cache it between attempts"),
    Category("checkpoint_restore", "R", "spans of that name", "load it sharded, from memory or a nearer disk"),
    Category("input_wait", "R", "what the loop waited for its data: a step's phases", "load ahead of the step"),
    Category("checkpoint_save", "R", "blocking saves", "save in the background"),
    Category("evaluation", "R", "spans of that name", "evaluate less often, or on other devices"),
    Category("rework", "R", "whole steps done again, or lost before they were saved", "save more often"),
    Category("rollback", "R", "whole steps given up on purpose", "watch for divergence sooner"),
    Category("recovery", "R", "between attempts, while the devices were held", "restart sooner"),
    Category("silent", "R", "after the last event of a process never closed nor replaced", "find the hang"),
    Category("shutdown", "R", "from the last step to close, less the spans in it", "end sooner after the last step"),
    Category("unaccounted", "R", "the rest inside an attempt", "put a span around it"),
    Category("queued", "S", "waiting for devices in a scheduler's queue", "ask for what is free, or reserve"),
    Category("partial_gang", "S", "held by an allocation that is not complete", "allocate all or nothing"),
    Category("unallocated", "S", "offered devices that nobody held", "queue more work, or offer less"),
    Category("drained", "S", "devices taken out of service", "repair sooner"),
    Category("exposed_communication", "P", "communication no compute hid", "overlap it with compute"),
    Category("bubble", "P", "pipeline stages waiting for the slowest", "balance the stages; more micro-batches"),
    Category("host_gap", "P", "the device waiting for its host", "launch ahead; fewer, larger kernels"),
    Category("below_peak", "P", "compute below the device's dense peak", "larger or fused kernels; lower precision"),
)  # fmt: skip
"""Every category with a name of its own, in the order a reader meets them; other spans are ``custom:<name>``."""

BY_NAME: Final = {category.name: category for category in CATEGORIES}


PROGRAM: Final = frozenset(line.name for line in CATEGORIES if line.factor == "P")
"""What is lost inside retained step time. A phase of a row that has one of these names is booked under it."""


def category(name: str) -> Category:
    """Return the line of the table for that name, ``custom:<name>`` included.

    Raises:
        KeyError: No ledger books under that name.

    Example:
        >>> category("custom:sdc_check").factor
        'R'
    """
    if name.startswith("custom:"):
        return Category(name, "R", "spans of that name", "do it less often, or beside the training")
    return BY_NAME[name]
