"""One drive on one rank: prefill of a batch, then a token at a time, each forward measured."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns

import msgspec
import torch

from headway.cluster.control.message import Drive, Driven
from headway.cluster.pipeline import Pipeline
from headway.cluster.stagelog import StageLog


def run(pipeline: Pipeline, order: Drive, log: StageLog, done: Callable[[], None] = lambda: None) -> Driven:
    """Run a drive on this rank; all ranks of the group run it at once.

    The first forward of a shape is run once before, and left out: it costs up to seven times a later one.

    Args:
        pipeline: This rank's stage in its group.
        order: What to run.
        log: Where each forward is written as a step.
        done: Called after each forward; what it raises ends the drive, before that forward is written.

    Returns:
        Times a forward on every rank; tokens and logits on the last.
    """
    log.busy()
    ids = torch.frombuffer(bytearray(order.ids), dtype=torch.int64).reshape(order.batch, order.length)
    ids = ids.to(pipeline.stage.device)
    _warm(pipeline, order, ids, log)
    forwards = _Forwards(pipeline, order, log, done)
    kept: list[torch.Tensor] = []
    tokens = [ids]
    for n in range(max(1, order.steps)):
        logits = forwards.forward(tokens[-1])
        if logits is not None:
            kept.append(_kept(logits, order.logits))
        tokens.append(pipeline.next_tokens(logits, order.batch))
        forwards.step(order.first_step + n)
    log.saved(order.first_step + len(forwards.wall_ns) - 1)
    log.idle()
    return forwards.result(kept, tokens[1 : 1 + order.steps])


def _kept(logits: torch.Tensor, which: str) -> torch.Tensor:
    return logits[:, {"all": slice(None), "last": slice(-1, None), "none": slice(0)}[which]]


def _warm(pipeline: Pipeline, order: Drive, ids: torch.Tensor, log: StageLog) -> None:
    lengths = [order.length, *([1] if order.steps > 1 else [])]
    if all(pipeline.warmed(order.batch, length, order.micro_batches) for length in lengths):
        return
    with log.span("warmup"):
        pipeline.stage.begin(order.micro_batches)
        for length in lengths:
            logits = pipeline.forward(ids[:, :length], order.batch, length, order.micro_batches)
            pipeline.next_tokens(logits, order.batch)


class _Forwards:
    """What the forwards of a drive took on this rank."""

    def __init__(self, pipeline: Pipeline, order: Drive, log: StageLog, done: Callable[[], None]) -> None:
        self.pipeline, self.order, self.log, self.done = pipeline, order, log, done
        self.forward_ns: list[int] = []
        self.wall_ns: list[int] = []
        pipeline.stage.begin(order.micro_batches)
        pipeline.stage.compute_ns = 0
        self.began_ns = monotonic_ns()
        log.begin(self.began_ns)

    def forward(self, ids: torch.Tensor) -> torch.Tensor | None:
        batch, length = ids.shape
        return self.pipeline.forward(ids, batch, length, self.order.micro_batches)

    def step(self, number: int) -> None:
        """End a forward: what was not computing in it was waiting for the other stages."""
        self.done()
        now, stage = monotonic_ns(), self.pipeline.stage
        wall = now - self.began_ns
        self.forward_ns.append(min(stage.compute_ns, wall))
        self.wall_ns.append(wall)
        self.log.step(number, self.began_ns, now, wall - self.forward_ns[-1])
        self.began_ns, stage.compute_ns = now, 0
        self.log.begin(now)

    def result(self, kept: list[torch.Tensor], tokens: list[torch.Tensor]) -> Driven:
        from headway.cluster.worker import resident_bytes

        measured = Driven(
            generation=self.order.generation,
            forward_ns=self.forward_ns,
            wall_ns=self.wall_ns,
            rss_bytes=resident_bytes(),
            log_fault=self.log.fault,
        )
        if not self.pipeline.stage.last:
            return measured
        logits = torch.cat(kept, dim=1).float().cpu().contiguous()
        return msgspec.structs.replace(
            measured,
            tokens=torch.cat(tokens, dim=1).tolist() if tokens else [],
            logits=logits.numpy().tobytes(),
            shape=tuple(logits.shape),
        )
