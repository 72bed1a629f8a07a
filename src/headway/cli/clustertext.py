"""What the commands of `headway cluster` share: nodes, plans and drives on a screen, and what has to be installed."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headway.errors import ClusterError
from headway.report.sheet import MAX_WIDTH, Sheet
from headway.units import show_bytes, show_seconds

if TYPE_CHECKING:
    from headway.cluster.config import ClusterConfig
    from headway.cluster.placement import Placement, StagePlan, Trial
    from headway.cluster.probe import NodeProbe
    from headway.cluster.report import ClusterRun

_ENGINE: Final = ("torch", "transformers", "safetensors")
_LONG: Final = 22
"""Names longer than that fold in the tables [characters]."""
_PROMPTS: Final = 8
_IDS: Final = 12
"""So much of what was generated a screen shows: of so many prompts, so many ids."""


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
    """Return a size [bytes] for a person, a GB being 1e9 bytes; a dash where it is not known.

    Example:
        >>> gb(4_104_000_000), gb(12_345_678), gb(None)
        ('4.10 GB', '12 MB', '-')
    """
    return "-" if size is None else show_bytes(size)


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


def counted(count: int, noun: str) -> str:
    """Return so many of something.

    Example:
        >>> counted(1, "token"), counted(2_000, "token")
        ('1 token', '2,000 tokens')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def command_of(*words: str | Path) -> str:
    """Return a command to be copied; a path below the current folder is relative to it.

    Example:
        >>> command_of("headway", "report", Path.cwd() / "my logs" / "r")
        "headway report 'my logs/r'"
    """
    return shlex.join(str(_near(word)) if isinstance(word, Path) else word for word in words)


def draw_command(sheet: Sheet, about: str, *words: str | Path) -> None:
    """Write a command on a line of its own, which does not wrap, so that it can be copied."""
    print(f"\n  {about}\n    {sheet.glyphs.clean(command_of(*words))}")


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


def draw_plan(sheet: Sheet, placement: Placement, n_layers: int, model: str, config: ClusterConfig) -> None:
    """Write which layers go where, and how that was found."""
    about = f"{counted(n_layers, 'layer')} on {counted(len(placement.stages), 'node')}, policy {placement.policy}"
    sheet.title(f"Plan of {model}", about)
    nodes_table(
        sheet,
        ["node", "layers", "device", "precision", "need", "budget", "holds", "token"],
        [_stage_cells(stage) for stage in placement.stages],
        left=(0, 1, 2, 3),
    )
    sheet.say(
        *(_standby(one.addr, list(one.fits), one.budget_bytes) for one in placement.standbys),
        f"No standby for {', '.join(placement.uncovered)}." if placement.uncovered else "",
        *(f"{node.addr} drains: no layers." for node in config.nodes if node.role == "draining"),
    )
    if len(placement.trials) > 1 or placement.trials[-1].precision:
        sheet.say(*map(_trial, placement.trials))
    sheet.say(*(f"Note: {note}." for note in placement.notes))
    sheet.say(
        "Layers a..b: from a up to and without b. Need: weights and KV window; holds: layers that would fit there; "
        "token: predicted time for one.",
    )


def draw_run(
    sheet: Sheet, run: ClusterRun, shape: tuple[int, int], *, table: bool = False, where: str = " (--json has all)"
) -> None:
    """Write what a drive gave: predicted against measured, tokens, and what was replaced.

    Args:
        sheet: Where to.
        run: The drive.
        shape: Of its prompts: how many, and tokens of each.
        table: Whether the table of sums stands before.
        where: What is said of tokens that are left out.
    """
    from rich.console import Console
    from rich.padding import Padding

    from headway.cluster.runtable import rich_table

    for line in run.table().splitlines() if table else ():
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
        print()
        for number, row in enumerate(run.tokens[:_PROMPTS]):
            _draw_ids(sheet, f"  {number}: ", row, where)
        if left := len(run.tokens[_PROMPTS:]):
            print(f"  and {counted(left, 'prompt')} more{where}")


def probes_json(probes: Mapping[str, NodeProbe]) -> list[dict[str, Any]]:
    """Return probes as plain JSON types."""
    return [one.to_json() for one in probes.values()]


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number}"


def _gflops(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.3g} GFLOP/s" if rate < 1000 else f"{rate:,.0f} GFLOP/s"


def _near(path: Path) -> Path:
    with suppress(ValueError, OSError):
        return path.relative_to(Path.cwd()) if path.is_absolute() else path
    return path


def _draw_ids(sheet: Sheet, head: str, ids: list[int], where: str) -> None:
    """Write token ids, broken between them alone."""
    left = len(ids[_IDS:])
    text = " ".join(map(str, ids[:_IDS])) + (f" and {left} more{where}" if left else "")
    width = min(sheet.width, MAX_WIDTH)
    print(textwrap.fill(text, width, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False))


def _stage_cells(stage: StagePlan) -> list[str]:
    return [
        stage.addr, dots(stage.layers), stage.device, stage.precision, gb(stage.need_bytes), gb(stage.budget_bytes),
        f"{stage.capacity}", ms(stage.predicted_ms),
    ]  # fmt: skip


def _standby(addr: str, fits: list[str], budget: int) -> str:
    can = f"can take the stage of {' or '.join(fits)}" if fits else "has room for no stage"
    return f"Standby {addr} {can}; " + (f"its budget is {gb(budget)}." if budget > 0 else "it has no budget.")


def _trial(trial: Trial) -> str:
    word = "fits" if trial.fits else "does not fit"
    name = trial.precision or "The model"
    return f"{name} {word}: it needs {show_bytes(trial.need_bytes, trial.budget_bytes)}."


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
    said = f"{what}: {counted(tokens, 'token')}"
    return f"{said} in {ms(time)}, {1000 * tokens / time:,.0f} tokens/s." if time else f"{said}."
