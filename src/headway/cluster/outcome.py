"""What the stages measured of a drive, made one run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from headway.cluster.control.message import Driven
from headway.cluster.placement import StagePlan
from headway.cluster.report import ClusterRun, NodeReport, StageTiming
from headway.cluster.request import Request


def collect(
    request: Request,
    stages: Sequence[StagePlan],
    reports: Mapping[str, NodeReport],
    answers: Mapping[str, Driven],
    *,
    seq: int,
    recovered: Sequence[str] = (),
) -> ClusterRun:
    """Return a drive as a run.

    Args:
        request: What was asked for.
        stages: Who had which layers, in their order.
        reports: What each node said of its stage, by address.
        answers: What each measured, by address.
        seq: Tokens that the plan's prediction of a prefill is for.
        recovered: What was replaced meanwhile, a sentence each.
    """
    timings = [_timing(request, stage, reports[stage.addr], answers[stage.addr], seq) for stage in stages]
    wall_ms = max(sum(answer.wall_ns) for answer in answers.values()) / 1e6
    prefill_ms = max(answer.wall_ns[0] for answer in answers.values()) / 1e6
    last = answers[stages[-1].addr]
    return ClusterRun(
        timings,
        sum(timing.forward_ms for timing in timings) if request.mode == "relay" else wall_ms,
        np.frombuffer(last.logits, dtype=np.float32),
        mode=request.mode,
        shape=last.shape,
        micro_batches=request.micro_batches,
        wall_ms=wall_ms,
        prefill_ms=prefill_ms,
        decode_ms=wall_ms - prefill_ms if request.n_forwards > 1 else None,
        tokens=last.tokens,
        recovered=tuple(recovered),
    )


def _timing(request: Request, stage: StagePlan, report: NodeReport, answer: Driven, seq: int) -> StageTiming:
    forward_ns, wall_ns = sum(answer.forward_ns), sum(answer.wall_ns)
    return StageTiming(
        stage.addr,
        report.layers,
        report.device,
        report.build_ms,
        forward_ns / 1e6,
        report.resident_bytes,
        wait_ms=(wall_ns - forward_ns) / 1e6,
        predicted_ms=_predicted_ms(request, stage, seq),
        budget_bytes=stage.budget_bytes,
        rss_bytes=answer.rss_bytes,
        precision=report.precision,
    )


def _predicted_ms(request: Request, stage: StagePlan, seq: int) -> float | None:
    """Return what the plan says of the whole drive: its prompts by the prefill's speed, its tokens one by one."""
    batch, length = (int(extent) for extent in request.ids.shape)
    n_decoded = request.n_forwards - 1
    if stage.predicted_prefill_ms is None or (n_decoded and stage.predicted_ms is None):
        return None
    return stage.predicted_prefill_ms * batch * length / seq + (stage.predicted_ms or 0.0) * batch * n_decoded
