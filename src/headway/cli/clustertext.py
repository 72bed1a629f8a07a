"""What the commands of `headway cluster` share: nodes, plans and drives on a screen, and what has to be installed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from headway.errors import ClusterError
from headway.report.sheet import Sheet
from headway.units import show_seconds

if TYPE_CHECKING:
    from headway.cluster.config import ClusterConfig
    from headway.cluster.placement import Placement, StagePlan, Trial
    from headway.cluster.probe import NodeProbe
    from headway.cluster.report import ClusterRun

_ENGINE: Final = ("torch", "transformers", "safetensors")
_LONG: Final = 22
"""Names longer than that fold in the tables [characters]."""


def require_engine(find: Callable[[str], object] = find_spec) -> None:
    """Check that what runs a stage is installed.

    Args:
        find: How a module is looked up.

    Raises:
        ClusterError: It is not.
    """
    missing = [name for name in _ENGINE if find(name) is None]
    if missing:
        raise ClusterError(
            f"Cannot run a model on this machine: {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} "
            "not installed",
            "Run: pip install 'headway[cluster]'",
            "missing-extra",
            extra="cluster",
        )


def needs_engine(config: ClusterConfig) -> bool:
    """Return whether workers run on this machine, as this program starts them."""
    return config.launcher == "local" and any(node.ssh is None for node in config.nodes if node.role != "draining")


def gb(size: int | None) -> str:
    """Return a size [bytes] in GB of 1e9 bytes; a dash where it is not known.

    Example:
        >>> gb(4_104_000_000), gb(12_345_678), gb(None)
        ('4.10 GB', '12 MB', '-')
    """
    if size is None:
        return "-"
    return f"{size / 1e6:,.0f} MB" if 0 <= size < 1e8 else f"{size / 1e9:,.2f} GB"


def ms(time: float | None) -> str:
    """Return a time [ms] for a person; a dash where it is not known."""
    return "-" if time is None else show_seconds(time / 1000)


def dots(layers: range) -> str:
    """Return layers as tables show them.

    Example:
        >>> dots(range(0, 4))
        '0..4'
    """
    return f"{layers.start}..{layers.stop}"


def nodes_table(sheet: Sheet, head: list[str], rows: list[list[str]], left: tuple[int, ...] = (0,)) -> None:
    """Write a table whose first column is a node; a long name folds."""
    long = any(len(row[0]) > _LONG for row in rows)
    sheet.table(head, rows, left=left, wraps=0 if long else None)


def draw_probes(sheet: Sheet, probes: Iterable[NodeProbe]) -> None:
    """Write what nodes have and how fast they are."""
    found = list(probes)
    sheet.head("What is there")
    nodes_table(
        sheet,
        ["node", "os", "cores", "RAM", "available", "disk free"],
        [
            [one.addr, one.os, _count(one.cores), gb(one.ram_bytes), gb(one.available_bytes), gb(one.disk_free_bytes)]
            for one in found
        ],
        left=(0, 1),
    )
    sheet.head("How fast it is")
    nodes_table(
        sheet,
        ["node", "device", "threads", "one token", "a prompt", "disk"],
        [
            [one.addr, one.device, _count(one.threads), *map(_gflops, (one.gflops, one.gflops_prefill)),
             "-" if one.disk_mb_s is None else f"{one.disk_mb_s:,.0f} MB/s"]
            for one in found
        ],
        left=(0, 1),
    )  # fmt: skip
    others = [(one, device) for one in found for device in one.devices if device.device != "cpu"]
    if others:
        sheet.head("Devices")
        nodes_table(
            sheet,
            ["node", "device", "name", "memory", "available"],
            [
                [one.addr, device.device, device.name, gb(device.memory_bytes), gb(device.available_bytes)]
                for one, device in others
            ],
            left=(0, 1, 2),
        )
    sheet.say(
        "One token: a matrix and a vector, fp32; a prompt: a matrix and 512 rows. Disk: pages that were not in memory. "
        "A dash: no information."
    )


def draw_plan(sheet: Sheet, placement: Placement, n_layers: int, model: str) -> None:
    """Write which layers go where, and how that was found."""
    count = len(placement.stages)
    about = f"{n_layers} layers on {count} {'node' if count == 1 else 'nodes'}, policy {placement.policy}"
    sheet.title(f"Plan of {model}", about)
    nodes_table(
        sheet,
        ["node", "layers", "device", "precision", "need", "budget", "holds", "token"],
        [_stage_cells(stage) for stage in placement.stages],
        left=(0, 1, 2, 3),
    )
    sheet.say(*(_standby(one.addr, list(one.fits), one.budget_bytes) for one in placement.standbys))
    if len(placement.trials) > 1 or placement.trials[-1].precision:
        sheet.say(*map(_trial, placement.trials))
    sheet.say(*(f"Note: {note}." for note in placement.notes))
    sheet.say(
        "Need: weights and KV window; holds: layers that would fit there; token: predicted time for one.",
    )


def draw_run(sheet: Sheet, run: ClusterRun, shape: tuple[int, int], first: int | None = None) -> None:
    """Write what a drive gave: the table of sums, predicted against measured, tokens, and what was replaced.

    Args:
        sheet: Where to.
        run: The drive.
        shape: Of its prompts: how many, and tokens of each.
        first: How many of the generated tokens to show; None: all.
    """
    from rich.console import Console
    from rich.padding import Padding

    from headway.cluster.runtable import rich_table

    for line in run.table().splitlines():
        print(sheet.glyphs.clean(line))
    sheet.head("Predicted and measured")
    console = Console(file=sys.stdout, width=sheet.width)
    with console.capture() as capture:
        console.print(Padding(rich_table(run), (0, 0, 0, 2)))
    shown = re.sub(r" +$", "", capture.get(), flags=re.MULTILINE)
    print(shown.encode("ascii", "replace").decode() if sheet.glyphs.plain else shown, end="")
    sheet.say(*_rates(run, shape))
    if run.tokens:
        sheet.head("Generated")
        sheet.say(*(f"{number}: {_some(row, first)}" for number, row in enumerate(run.tokens)))


def probes_json(probes: Mapping[str, NodeProbe]) -> list[dict[str, Any]]:
    """Return probes as plain JSON types."""
    return [one.to_json() for one in probes.values()]


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number}"


def _gflops(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.3g} GFLOP/s" if rate < 1000 else f"{rate:,.0f} GFLOP/s"


def _some(tokens: list[int], first: int | None) -> str:
    rest = 0 if first is None else len(tokens[first:])
    return " ".join(map(str, tokens[:first])) + (f" and {rest} more" if rest else "")


def _stage_cells(stage: StagePlan) -> list[str]:
    return [
        stage.addr, dots(stage.layers), stage.device, stage.precision, gb(stage.need_bytes), gb(stage.budget_bytes),
        f"{stage.capacity}", ms(stage.predicted_ms),
    ]  # fmt: skip


def _standby(addr: str, fits: list[str], budget: int) -> str:
    can = f"can take the stage of {' or '.join(fits)}" if fits else "has room for no stage"
    return f"Standby {addr} {can}; its budget is {gb(budget)}."


def _trial(trial: Trial) -> str:
    word = "fits" if trial.fits else "does not fit"
    name = trial.precision or "The model"
    return f"{name} {word}: it needs {gb(trial.need_bytes)} of {gb(trial.budget_bytes)}."


def _rates(run: ClusterRun, shape: tuple[int, int]) -> list[str]:
    """Say how many tokens went through in which time, the prompts' and the generated ones apart."""
    batch, length = shape
    said = [_rate("Prompts", batch * length, run.prefill_ms)]
    steps = len(run.tokens[0]) if run.tokens else 0
    if steps > 1:
        said.append(_rate("Decoded", batch * (steps - 1), run.decode_ms))
    if run.micro_batches > 1:
        said.append(f"In {run.micro_batches} micro-batches.")
    return said


def _rate(what: str, tokens: int, time: float | None) -> str:
    said = f"{what}: {tokens:,} tokens"
    return f"{said} in {ms(time)}, {1000 * tokens / time:,.0f} tokens/s." if time else f"{said}."
