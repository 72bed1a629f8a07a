"""`headway cluster run`: a model over its nodes, driven and measured."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headway.cli.clustertext import (
    command_of,
    draw_command,
    draw_plan,
    draw_run,
    ms,
    needs_engine,
    require_engine,
)
from headway.cli.clusterview import ClusterView, working
from headway.cli.main import say
from headway.cli.modeltext import json_option, put
from headway.errors import ArgumentError, HeadwayError
from headway.record.identity import safe_name
from headway.report.sheet import Sheet
from headway.sources.text import clean

if TYPE_CHECKING:
    from headway.cluster.cluster import Cluster
    from headway.cluster.report import ClusterRun

_OPTIONS: Final = {
    "input_ids": "--prompt-ids", "micro_batches": "--micro-batches", "mode='pipelined'": "--mode pipelined",
    "steps is": "--steps is",
}  # fmt: skip
"""What arguments of a drive are called on the command line."""
_IDS: Final = re.compile(r"\s*[0-9]{1,12}(\s*[, ]\s*[0-9]{1,12})*\s*")


class PromptIds(click.ParamType[list[list[int]]]):
    """Token ids: ``1,2,3`` is one prompt, ``@FILE`` a file of JSON with a list of them."""

    name = "ids"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[list[int]]:
        """Return the prompts.

        Raises:
            ArgumentError: They cannot be read.
        """
        del param, ctx
        if isinstance(value, list):
            return value
        if value.startswith("@"):
            return _from_file(value[1:])
        if not _IDS.fullmatch(value):
            raise _bad(f"Cannot read the prompt {value[:40]!r}: it is no list of token ids", value)
        return [[int(word) for word in re.findall(r"[0-9]+", value)]]


def _from_file(path: str) -> list[list[int]]:
    try:
        prompts = json.loads(Path(path).read_bytes())
    except OSError as error:
        what = f"Cannot read the prompts in {path}: {error.strerror or error}"
        raise ArgumentError(what, "Check the path", "bad-prompt", found=path) from error
    except (ValueError, RecursionError) as error:
        raise _bad(f"Cannot read the prompts in {path}: it is no JSON", path) from error
    if isinstance(prompts, list) and prompts and all(isinstance(row, list) and row for row in prompts):
        ids = [one for row in prompts for one in row]
        if all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in ids):
            return prompts
    raise _bad(f"Cannot read the prompts in {path}: it holds no list of lists of token ids", path)


def _bad(what: str, found: str) -> ArgumentError:
    return ArgumentError(
        what, 'Write one as "1,2,3", or give @FILE with JSON such as [[1, 2], [3, 4]]', "bad-prompt", found=found
    )


@dataclass(frozen=True, slots=True)
class _Drives:
    """What is to be driven, and how often."""

    ids: list[list[int]] | None
    batch: int
    mode: str
    micro_batches: int | None
    steps: int
    repeat: int

    def check(self, cluster: Cluster) -> None:
        """Refuse what cannot be driven, before it costs a launch.

        Raises:
            ArgumentError: It cannot; the message names the options.
        """
        try:
            cluster.request(**self._arguments())
        except ArgumentError as error:
            raise ArgumentError(
                _as_options(error.what), _as_options(error.next_step), error.slug, **error.details
            ) from error

    def go(self, cluster: Cluster) -> list[ClusterRun]:
        """Drive; only the tokens come back, as nothing shows the logits."""
        return [cluster.drive(**self._arguments()) for _ in range(self.repeat)]

    def _arguments(self) -> dict[str, Any]:
        return {
            "input_ids": self.ids, "batch": self.batch, "mode": self.mode, "steps": self.steps,
            "micro_batches": self.micro_batches, "logits": "none",
        }  # fmt: skip


def _as_options(text: str) -> str:
    for argument, option in _OPTIONS.items():
        text = text.replace(argument, option)
    return text


@click.command("run")
@click.argument("config", metavar="CONFIG", type=click.Path(path_type=Path))
@click.option(
    "--prompt-ids",
    "prompts",
    metavar="IDS",
    type=PromptIds(),
    multiple=True,
    help='Token ids of a prompt, such as "1,2,3", or @FILE: JSON with a list of such lists. May be repeated.',
)
@click.option("--batch", metavar="N", type=click.IntRange(min=1), help="How many random prompts. Default: 1.")
@click.option(
    "--mode",
    type=click.Choice(["relay", "pipelined"]),
    default="relay",
    show_default=True,
    help="The batch stage after stage, or its micro-batches overlapping.",
)
@click.option(
    "--micro-batches",
    metavar="N",
    type=click.IntRange(min=1),
    help="Of pipelined. Default: the most up to twice the stages.",
)
@click.option(
    "--steps",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Tokens to generate for each prompt.",
)
@click.option("--repeat", metavar="N", type=click.IntRange(min=1), default=1, show_default=True, help="Drive so often.")
@click.option("--table", is_flag=True, help="Print the table of sums of the last drive too, in tenths.")
@json_option
def command(
    *,
    config: Path,
    prompts: tuple[list[list[int]], ...],
    batch: int | None,
    mode: str,
    micro_batches: int | None,
    steps: int,
    repeat: int,
    table: bool,
    as_json: bool,
) -> None:
    """Split the model over the nodes, run it, and show what each stage took.

    CONFIG is a cluster's TOML file. Without --prompt-ids the prompts are random, of the config's
    seq tokens. A worker that is lost is named; a standby takes its place. Ctrl-C ends all workers.
    """  # fmt: skip
    from headway.cluster.cluster import Cluster

    if prompts and batch is not None:
        raise click.UsageError("--batch is of random prompts; leave it or --prompt-ids out.")
    ids = [row for each in prompts for row in each] or None
    drives = _Drives(ids, batch or 1, mode, micro_batches, steps, repeat)
    cluster = Cluster.from_path(config)
    if needs_engine(cluster.config):
        require_engine()
    with working("Measuring the nodes", quiet=as_json):
        placement = cluster.plan()
    drives.check(cluster)
    n_layers, model = cluster.cost.n_layers, cluster.config.model
    if not as_json:
        put({}, lambda sheet: draw_plan(sheet, placement, n_layers, model, cluster.config), as_json=False)
    shape = (len(ids), len(ids[0])) if ids else (drives.batch, cluster.config.seq)
    runs = _drive(cluster, drives, quiet=as_json)
    for addr, why in cluster.log_faults.items():
        say(f"headway: the log of {addr} is not whole: {clean(why)}")
    document = {
        "plan": placement.to_json(),
        "nodes": [cluster.reports[one.addr].to_json() for one in cluster.config.nodes if one.addr in cluster.reports],
        "runs": [run.to_json() for run in runs],
        "log": log_of(cluster),
        "log_faults": cluster.log_faults,
    }
    put(document, lambda sheet: _draw(sheet, runs, shape, log_of(cluster), table=table), as_json=as_json)


def _drive(cluster: Cluster, drives: _Drives, *, quiet: bool) -> list[ClusterRun]:
    """Launch, drive and close; where that fails, say where the log is."""
    try:
        with cluster, ClusterView(quiet=quiet) as cluster.watch:
            cluster.launch()
            return drives.go(cluster)
    except (HeadwayError, KeyboardInterrupt):
        if (log := Path(log_of(cluster))).exists():
            say(f"headway: where the time went: {command_of('headway', 'report', log)}")
        raise


def log_of(cluster: Cluster) -> str:
    """Return the folder of a cluster's log."""
    return str(Path(cluster.log_root) / safe_name(cluster.run))


def _draw(sheet: Sheet, runs: list[ClusterRun], shape: tuple[int, int], log: str, *, table: bool) -> None:
    if table:
        print()
    draw_run(sheet, runs[-1], shape, table=table)
    if len(runs) > 1:
        sheet.head("Each drive")
        sheet.table(
            ["drive", "wall", "stages", "longest", "recovered"],
            [
                [f"{number}", ms(run.wall_ms), ms(sum(one.forward_ms for one in run.timings)),
                 ms(run.critical_path_ms()), "; ".join(run.recovered) or "-"]
                for number, run in enumerate(runs, 1)
            ],
            left=(0, 4),
            wraps=4 if any(run.recovered for run in runs) else None,
        )  # fmt: skip
        sheet.say(
            "Wall: by the clock. Stages: the sum of what they computed; more than wall where they overlap. Longest: "
            "the longest stage."
        )
    if Path(log).is_dir():  # with workers on other hosts it is there
        draw_command(sheet, "Where the time went:", "headway", "report", Path(log))
