"""`headway cluster demo`: a small model over two workers; one is killed, its standby goes on, and nothing is lost."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

import click

from headway.cli.cluster_run import log_of
from headway.cli.clustertext import draw_plan, draw_run, require_engine
from headway.cli.clusterview import ClusterView
from headway.cli.demo import this_program
from headway.errors import ClusterError, HeadwayError
from headway.report.sheet import Sheet

if TYPE_CHECKING:
    from headway.cluster.cluster import Cluster
    from headway.cluster.report import ClusterRun

HIDDEN: Final = 256
INNER: Final = 704
LAYERS: Final = 8
VOCAB: Final = 2048
HEADS: Final = 8
STEPS: Final = 96
PROMPTS: Final = ((11, 12, 13, 14, 15, 16, 17, 18), (21, 22, 23, 24, 25, 26, 27, 28))

CONFIG: Final = """\
model = "llama"
log_dir = "logs"
reserve_ram_gb = 0
heartbeat_s = 2

[placement]
context = 512

[[node]]
addr = "left"
precision = "fp32"

[[node]]
addr = "right"
precision = "fp32"

[[node]]
addr = "spare"
precision = "fp32"
role = "standby"
standby_for = "right"
"""


@click.command("demo")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="An empty or new folder for model, config and log. Default: a temporary one, which is removed.",
)
def command(*, keep: Path | None) -> None:
    """Split a small model over two local workers, kill one, and go on.

    The model is a Llama of 8 layers with random weights. One of its two workers is killed by SIGKILL
    in the middle of a drive; a standby takes its place, and the logits are compared.
    """  # fmt: skip
    require_engine()
    folder = _folder(keep)
    try:
        _show(folder)
        if keep is not None:
            program, config = this_program(sys.argv), shlex.quote(str(folder / "cluster.toml"))
            click.echo(f"\nIt lies in {folder}. Try on it:\n  {program} cluster run {config} --steps 8 --repeat 3")
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def write_checkpoint(folder: Path) -> None:
    """Write a Llama of random weights, its config and its safetensors file, into a new folder."""
    import numpy as np
    from safetensors.numpy import save_file

    random = np.random.default_rng(0)
    folder.mkdir()

    def weight(*shape: int) -> Any:
        return random.normal(0.0, 0.05, shape).astype(np.float16)

    def norm() -> Any:
        return np.ones(HIDDEN, np.float16)

    tensors = {"model.embed_tokens.weight": weight(VOCAB, HIDDEN), "lm_head.weight": weight(VOCAB, HIDDEN)}
    tensors["model.norm.weight"] = norm()
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        tensors |= {f"{name}.self_attn.{part}_proj.weight": weight(HIDDEN, HIDDEN) for part in "qkvo"}
        tensors |= {f"{name}.mlp.{part}_proj.weight": weight(INNER, HIDDEN) for part in ("gate", "up")}
        tensors[f"{name}.mlp.down_proj.weight"] = weight(HIDDEN, INNER)
        tensors |= {f"{name}.{part}_layernorm.weight": norm() for part in ("input", "post_attention")}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "vocab_size": VOCAB,
        "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "hidden_act": "silu",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def _folder(keep: Path | None) -> Path:
    try:
        if keep is None:
            return Path(tempfile.mkdtemp(prefix="headway-cluster-demo-"))
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise click.BadParameter(f"{keep} is not an empty folder; give a new one.", param_hint="--keep")
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HeadwayError(
            f"Cannot make {keep or 'a temporary folder'} for the demo: {error.strerror}",
            "Give --keep a new folder in a place that you can write",
            "no-folder",
            directory=str(keep),
        ) from error
    return keep


def _show(folder: Path) -> None:
    from headway.cli.report import show
    from headway.cluster.cluster import Cluster

    click.echo("1. Write a Llama of 8 layers with random weights, and measure this machine")
    write_checkpoint(folder / "llama")
    (folder / "cluster.toml").write_text(CONFIG)
    cluster = Cluster.from_path(folder / "cluster.toml")
    placement = cluster.plan()
    _screen(lambda sheet: draw_plan(sheet, placement, LAYERS, "llama", cluster.config))
    click.echo("\n2. Start the workers, and drive two prompts through them")
    with cluster:
        with ClusterView() as cluster.watch:
            cluster.launch()
            first = cluster.drive(PROMPTS, steps=STEPS)
        _told(first)
        pid = cluster.pids()["right"]
        click.echo(f"\n3. Drive them again, and kill `right` (process {pid}) by SIGKILL on the way")
        with ClusterView() as cluster.watch:
            second = _drive_and_kill(cluster, pid, (first.wall_ms or 0.0) / 3000)
        _told(second)
        _compare(first, second)
    click.echo("\n4. Where the time of the stages went, by their log\n")
    sys.stdout.flush()
    show([log_of(cluster)])


def _told(run: ClusterRun) -> None:
    _screen(lambda sheet: draw_run(sheet, run, (len(PROMPTS), len(PROMPTS[0])), table=True, where=""))


def _screen(draw: Any) -> None:
    sheet = Sheet(sys.stdout)
    click.echo()
    draw(sheet)
    sys.stdout.flush()


def _drive_and_kill(cluster: Cluster, pid: int, after_s: float) -> ClusterRun:
    """Drive once more, and kill a worker so long after; where it came too late for that drive, drive again."""
    killer = Timer(after_s, _kill, [pid])
    killer.start()
    try:
        run = cluster.drive(PROMPTS, steps=STEPS)
    finally:
        killer.join()
    return run if run.recovered else cluster.drive(PROMPTS, steps=STEPS)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _compare(first: ClusterRun, second: ClusterRun) -> None:
    """Say that both drives gave the same.

    Raises:
        ClusterError: They did not.
    """
    import numpy as np

    if first.tokens != second.tokens or not np.array_equal(first.logits, second.logits) or not second.recovered:
        off = float(np.abs(first.logits - second.logits).max())
        raise ClusterError(
            f"Cannot go on with the demo: the logits differ by {off:g} after a standby took over",
            "Report this, with the versions of torch and transformers",
            "demo-failed",
        )
    click.echo(f"\nThe {first.logits.size:,} logits of both drives are equal, bit by bit.")
