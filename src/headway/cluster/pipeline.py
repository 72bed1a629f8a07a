"""One forward of a batch through all stages, on `torch.distributed.pipelining`."""

from __future__ import annotations

from typing import Final

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

from headway.cluster.stage import DTYPES, Stage

_MOST_SHAPES: Final = 4
"""So many shapes of a forward are kept ready: each holds what it receives in memory of its own."""


class Pipeline:
    """This rank's end of the stages of one group; every rank calls the same methods in the same order.

    Attributes:
        rank, world: Which stage this is, of how many.
    """

    def __init__(self, stage: Stage, group: dist.ProcessGroup | None = None) -> None:
        self.stage, self.group = stage, group
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)
        self._schedules: dict[tuple[int, int, int], ScheduleGPipe] = {}
        kinds = tuple(DTYPES.values())
        told = [torch.zeros(1, dtype=torch.int64, device=stage.device) for _ in range(self.world)]
        dist.all_gather(told, torch.tensor([kinds.index(stage.dtype)], device=stage.device), group=group)
        self._given_dtype = kinds[int(told[max(0, self.rank - 1)])]  # the stage before may compute in another

    def forward(self, ids: torch.Tensor | None, batch: int, length: int, micro_batches: int) -> torch.Tensor | None:
        """Run one forward, after what the stages' caches hold.

        Args:
            ids: Token ids ``(batch, length)``, on the first rank.
            batch: Number of sequences; a multiple of ``micro_batches``.
            length: Tokens of each.
            micro_batches: How many parts of the batch overlap; 1 lets it pass stage after stage.

        Returns:
            Logits ``(batch, length, vocab)`` on the last rank, elsewhere None.
        """
        schedule = self._schedule(batch // micro_batches, length, micro_batches)
        arguments = (ids,) if self.rank == 0 else ()
        with torch.inference_mode():
            return schedule.eval(*arguments)  # type: ignore[no-any-return]

    def warmed(self, batch: int, length: int, micro_batches: int) -> bool:
        """Return whether a forward of that shape has run, and few others since."""
        return (batch // micro_batches, length, micro_batches) in self._schedules

    def next_tokens(self, logits: torch.Tensor | None, batch: int) -> torch.Tensor:
        """Return on every rank the likeliest next token of each sequence, ``(batch, 1)``."""
        if logits is None:
            tokens = torch.empty((batch, 1), dtype=torch.int64, device=self.stage.device)
        else:
            tokens = logits[:, -1:].argmax(dim=-1).clone()
        if self.world > 1:
            dist.broadcast(tokens, dist.get_global_rank(self._world_group(), self.world - 1), group=self.group)
        return tokens

    def _world_group(self) -> dist.ProcessGroup:
        group = self.group or dist.group.WORLD
        assert group is not None  # noqa: S101 - a pipeline is made inside a group
        return group

    def _schedule(self, batch: int, length: int, micro_batches: int) -> ScheduleGPipe:
        key = (batch, length, micro_batches)
        if key not in self._schedules:
            stage = self.stage
            ids = torch.empty((batch, length), dtype=torch.int64, device="meta")
            hidden = torch.empty((batch, length, stage.hidden), dtype=stage.dtype, device="meta")
            logits = torch.empty((batch, length, stage.vocab), dtype=stage.dtype, device="meta")
            engine = PipelineStage(
                stage,
                self.rank,
                self.world,
                stage.device,
                input_args=ids if stage.first else hidden.to(self._given_dtype),
                output_args=logits if stage.last else hidden,
                group=self.group,
            )
            self._schedules[key] = ScheduleGPipe(engine, micro_batches)
        self._schedules[key] = self._schedules.pop(key)  # the last used is last
        if len(self._schedules) > _MOST_SHAPES:
            del self._schedules[next(iter(self._schedules))]
        return self._schedules[key]
