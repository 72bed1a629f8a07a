"""Dense peaks of accelerators, from their data sheets; an unknown one is an error, not another one."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from headway.errors import ArgumentError
from headway.model.checks import likely


@cache
def accelerators() -> dict[str, dict[str, Any]]:
    """Return the table: by name, ``bf16_flop_per_s``, ``source`` and ``date``.

    Example:
        >>> accelerators()["H100 SXM"]["bf16_flop_per_s"]
        989000000000000.0
    """
    text = files("headway.model").joinpath("data/accelerators.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def peak_flops(accelerator: str) -> float:
    """Return the dense bfloat16 peak of an accelerator [flop / s].

    Raises:
        ArgumentError: It is not in the table.

    Example:
        >>> f"{peak_flops('A100 SXM'):.3g}"
        '3.12e+14'
    """
    table = accelerators()
    if accelerator not in table:
        raise ArgumentError(
            f"Cannot find the accelerator {accelerator!r}: it is not in the table{likely(accelerator, table)}",
            f'Give one of {", ".join(sorted(table))}, or its dense peak such as "989 Tflop/s"',
            "unknown-accelerator",
            accelerator=accelerator,
        )
    return float(table[accelerator]["bf16_flop_per_s"])
