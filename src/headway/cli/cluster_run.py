"""`headway cluster run`: a model over its nodes, driven and measured."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from headway.cli.clustertext import draw_plan, draw_run, ms, needs_engine, require_engine
from headway.cli.clusterview import ClusterView, working
from headway.cli.modeltext import json_option, put
from headway.errors import ArgumentError
from headway.record.identity import safe_name
from headway.report.sheet import Sheet

if TYPE_CHECKING:
    from headway.cluster.cluster import Cluster
    from headway.cluster.report import ClusterRun

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
        raise _bad(f"Cannot read the prompts in {path}: {error.strerror or error}", path) from error
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

    def go(self, cluster: Cluster) -> list[ClusterRun]:
        """Drive; only the tokens come back, as nothing shows the logits."""
        return [
            cluster.drive(
                self.ids, batch=self.batch, mode=self.mode, steps=self.steps, micro_batches=self.micro_batches,
                logits="none",
            )
            for _ in range(self.repeat)
        ]  # fmt: skip


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
    if not as_json:
        put({}, lambda sheet: draw_plan(sheet, placement, cluster.cost.n_layers, cluster.config.model), as_json=False)
    shape = (len(ids), len(ids[0])) if ids else (drives.batch, cluster.config.seq)
    with cluster:
        with ClusterView(quiet=as_json) as cluster.watch:
            cluster.launch()
            runs = drives.go(cluster)
        document = {
            "plan": placement.to_json(),
            "nodes": [
                cluster.reports[one.addr].to_json() for one in cluster.config.nodes if one.addr in cluster.reports
            ],
            "runs": [run.to_json() for run in runs],
            "log": log_of(cluster),
        }
        put(document, lambda sheet: _draw(sheet, runs, shape, log_of(cluster)), as_json=as_json)


def log_of(cluster: Cluster) -> str:
    """Return the folder of a cluster's log."""
    return str(Path(cluster.log_root) / safe_name(cluster.run))


def _draw(sheet: Sheet, runs: list[ClusterRun], shape: tuple[int, int], log: str) -> None:
    print()
    draw_run(sheet, runs[-1], shape)
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
    sheet.say(f"Where the time went: headway report {shlex.quote(log)}")
