"""What a cluster reports: a node when it has built its stage, a stage when it has run, a run as a whole."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from enum import Enum
from statistics import median
from typing import Any, Final, Self

from headway.cluster.record import (
    Record,
    as_layers,
    count,
    dots,
    items,
    mapping,
    number,
    plain,
    refusal,
    shown,
    text_of,
)
from headway.errors import ArgumentError

_MODES: Final = ("relay", "pipelined")
_RULE: Final = "\N{BOX DRAWINGS LIGHT HORIZONTAL}" * 74
_STANDS_OUT: Final = 1.02
"""How far above the median of the others a stage is the straggler [ratio]."""


class ReduceKind(Enum):
    """How values of several nodes become one.

    Example:
        >>> ReduceKind.of("max") is ReduceKind.MAX is ReduceKind.Max
        True
    """

    SUM = "sum"
    MEAN = "mean"
    MAX = "max"
    MIN = "min"
    Sum = SUM
    Mean = MEAN
    Max = MAX
    Min = MIN

    @classmethod
    def of(cls, kind: ReduceKind | str) -> ReduceKind:
        """Return the kind itself or the one of that value.

        Raises:
            ArgumentError: There is no such kind.
        """
        try:
            return cls(kind)
        except ValueError:
            raise ArgumentError(
                f"Cannot reduce by {shown(kind)}: there is no such kind",
                "Give one of " + ", ".join(one.value for one in cls),
                "bad-reduce",
                kind=kind,
            ) from None


@dataclass(frozen=True)
class NodeReport(Record):
    """What a node says when its stage is built.

    Attributes:
        addr: The node's name.
        layers: The layers it holds.
        device: Where it holds them, such as ``cpu``.
        precision: The precision of the layers' linear weights, such as ``bf16``.
        build_ms: Time to build the stage and load its weights [ms].
        resident_bytes: Parameters and packed weights [bytes]; not what the process takes up.
        n_params: Elements of its parameters.
        n_packed: How many of them are held packed.
        rss_bytes: What the process takes up in memory [bytes]; None where it is not known.

    Example:
        >>> report = NodeReport("n0", (0, 4), "cpu", "bf16", 12.5, 2048, 1024, 0)
        >>> report.to_json()["layers"], NodeReport.from_json(report.to_json()) == report
        ({'start': 0, 'end': 4}, True)
    """

    addr: str
    layers: range
    device: str
    precision: str
    build_ms: float
    resident_bytes: int
    n_params: int
    n_packed: int
    _: KW_ONLY
    rss_bytes: int | None = None

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ArgumentError: One has a value it cannot have.
        """
        self._keep(layers=as_layers(self.layers))
        self._check("addr device precision", "build_ms", "resident_bytes n_params n_packed rss_bytes")


@dataclass(frozen=True)
class StageTiming(Record):
    """What one stage took in a drive, as the coordinator keeps it.

    Attributes:
        addr: The node's name.
        layers: The layers of the stage.
        device: Where it ran.
        build_ms: Time to build the stage and load its weights [ms].
        forward_ms: Time the stage computed [ms].
        resident_bytes: Parameters and packed weights [bytes].
        wait_ms: Time the stage waited for others [ms].
        predicted_ms: What the plan expected of `forward_ms` [ms]; None where it had no information.
        budget_bytes: What the plan allowed the stage to hold [bytes].
        rss_bytes: What the process takes up in memory [bytes].
        precision: The precision of its linear weights.
    """

    addr: str
    layers: range
    device: str
    build_ms: float
    forward_ms: float
    resident_bytes: int
    _: KW_ONLY
    wait_ms: float = 0.0
    predicted_ms: float | None = None
    budget_bytes: int | None = None
    rss_bytes: int | None = None
    precision: str | None = None

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ArgumentError: One has a value it cannot have.
        """
        self._keep(layers=as_layers(self.layers))
        self._check(
            "addr device precision",
            "build_ms forward_ms wait_ms predicted_ms",
            "resident_bytes budget_bytes rss_bytes",
        )


@dataclass(frozen=True, eq=False)
class ClusterRun(Record):
    """One drive of a model over its stages: what came out, and what each stage took.

    Attributes:
        timings: One a stage, in the order of the layers.
        total_forward_ms: The sum of the stages in relay, the wall clock when pipelined [ms].
        output: What the last stage gave, flat, as float32: an array or list of numbers.
        mode: ``relay``, one micro-batch, stage after stage; or ``pipelined``, micro-batches overlap.
        shape: Shape of the output, such as (n_sequences, n_tokens, n_vocabulary).
        micro_batches: Into how many the input was cut.
        wall_ms: Wall clock of the drive [ms].
        prefill_ms: Part of it for the given tokens [ms].
        decode_ms: Part of it for the generated tokens [ms].
        tokens: Generated token ids, one list a sequence.
        recovered: What was replaced during the drive, a sentence each.

    Example:
        >>> stages = [StageTiming("n0", "0:2", "cpu", 10, 30.0, 2 * 10**9), StageTiming("n1", "2:4", "cpu", 9, 20.0, 10**9)]
        >>> run = ClusterRun(stages, 50.0)
        >>> run.tokens_per_s(8), run.critical_path_ms(), run.reduce_resident_gb("mean"), run.straggler
        (160.0, 30.0, 1.5, 'n0')
    """  # noqa: E501

    timings: Sequence[StageTiming]
    total_forward_ms: float
    output: Any = ()
    _: KW_ONLY
    mode: str = "relay"
    shape: tuple[int, ...] | None = None
    micro_batches: int = 1
    wall_ms: float | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    tokens: list[list[int]] = field(default_factory=list)
    recovered: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            ArgumentError: One has a value it cannot have.
        """
        cls = type(self)
        self._check("mode", "total_forward_ms wall_ms prefill_ms decode_ms", "micro_batches")
        if self.mode not in _MODES:
            raise refusal(cls, f"mode is {shown(self.mode)}", "Give " + " or ".join(_MODES), "mode")
        if self.micro_batches == 0:
            raise refusal(cls, "micro_batches is 0; a drive has one at least", "Give 1 or more", "micro_batches")
        timings = tuple(items(cls, "timings", self.timings))
        for one in timings:
            if not isinstance(one, StageTiming):
                raise refusal(cls, f"timings holds {shown(one)}", "Give StageTiming objects", "timings")
        tokens = [
            [count(cls, "tokens", one) for one in items(cls, "tokens", row)]
            for row in items(cls, "tokens", self.tokens)
        ]
        recovered = tuple(text_of(cls, "recovered", one) for one in items(cls, "recovered", self.recovered))
        self._keep(timings=timings, tokens=tokens, recovered=recovered)
        self._check_output()

    def _check_output(self) -> None:
        cls, output = type(self), self.output
        if (
            not hasattr(output, "__len__")
            or isinstance(output, str | bytes | Mapping)
            or getattr(output, "ndim", 1) != 1
        ):
            raise refusal(cls, f"output is {shown(output)}", "Give a flat array or list of numbers", "output")
        if hasattr(output, "dtype"):
            if getattr(output.dtype, "kind", "f") not in "fiu":
                raise refusal(cls, f"output is an array of {output.dtype}", "Give output as numbers", "output")
        else:
            for one in items(cls, "output", output):
                if isinstance(one, str):  # from_json has made numbers of them
                    raise refusal(cls, f"output holds {shown(one)}", "Give output as numbers", "output")
                number(cls, "output", one)
        if self.shape is None:
            return
        shape = tuple(count(cls, "shape", one) for one in items(cls, "shape", self.shape))
        if len(output) and math.prod(shape) != len(output):
            found = f"shape is {shape}, of {math.prod(shape)} values; output has {len(output)}"
            raise refusal(cls, found, "Give the shape of the output", "shape")
        self._keep(shape=shape)

    def tokens_per_s(self, seq: int) -> float:
        """Return the throughput of `seq` tokens [1/s]; 0.0 when the run took no time, else finite.

        Of a time so short that the quotient is beyond what a float holds, it is the largest float.

        Args:
            seq: How many tokens were driven, >= 0.
        """
        tokens = count(type(self), "seq", seq)
        if self.total_forward_ms == 0:
            return 0.0
        seconds = self.total_forward_ms / 1000.0 or math.ulp(0.0)
        return min(tokens / seconds, sys.float_info.max)

    def reduce_resident_gb(self, kind: ReduceKind | str) -> float:
        """Return resident bytes over the stages [GB, 1e9 bytes]; 0.0 of no stage.

        The sum is of GB, a float after the other in the order of the stages; the mean is that sum through their number.

        Args:
            kind: How they become one, or its value such as "sum".

        Raises:
            ArgumentError: There is no such kind.
        """
        kind = ReduceKind.of(kind)
        held = [one.resident_bytes / 1e9 for one in self.timings] or [0.0]
        if kind is ReduceKind.MAX:
            return max(held)
        if kind is ReduceKind.MIN:
            return min(held)
        total = 0.0
        for one in held:  # sum() carries what rounding loses, from Python 3.12 on
            total += one
        return total / (len(held) if kind is ReduceKind.MEAN else 1)

    def critical_path_ms(self) -> float:
        """Return the time of the longest stage [ms]: what bounds a pipeline; 0.0 of no stage."""
        return max((one.forward_ms for one in self.timings), default=0.0)

    @property
    def straggler(self) -> str | None:
        """Node of the longest stage, if it took over 2 % more than the median of the others; else None."""
        if len(self.timings) < 2:
            return None
        longest = max(self.timings, key=lambda one: one.forward_ms)
        return longest.addr if longest.forward_ms > self.median_of_others_ms() * _STANDS_OUT else None

    def median_of_others_ms(self) -> float:
        """Return the median time of all stages but the longest [ms]; 0.0 of fewer than two."""
        return median(sorted(one.forward_ms for one in self.timings)[:-1] or [0.0])

    @property
    def logits(self) -> Any:
        """The output as a float32 array of `shape`; flat where no shape is known.

        It is read-only where a drive gave it: `logits.copy()` can be written.

        Raises:
            ArgumentError: There is a shape, and the run came without its output.
        """
        import numpy as np

        flat = np.asarray(self.output, dtype=np.float32)
        if self.shape is not None and math.prod(self.shape) != flat.size:
            found = "the output was left out"
            raise refusal(type(self), found, "Give a run that was written with output=True", "output")
        return flat if self.shape is None else flat.reshape(self.shape)

    def table(self) -> str:
        r"""Return the run as a table of fixed columns: a row a stage, and a line of sums.

        Example:
            >>> run = ClusterRun([StageTiming("n0", "0:4", "cpu", 1500, 250, 2 * 10**9)], 250)
            >>> print(run.table().replace("\N{BOX DRAWINGS LIGHT HORIZONTAL}" * 74, "--"), end="")
            node                  layers    device       build     forward    resident
            --
            n0                    0..4      cpu           1.5s        0.2s       2.0G
            --
            reduce: Σ resident 2.0 GB, max resident 2.0 GB | total forward 0.2s, critical path 0.2s across 1 stages
        """
        head = f"{'node':<22}{'layers':<10}{'device':<8}{'build':>10}{'forward':>12}{'resident':>12}"
        rows = [
            f"{one.addr:<22}{dots(one.layers):<10}{one.device:<8}{one.build_ms / 1000:>9.1f}s"
            f"{one.forward_ms / 1000:>11.1f}s{one.resident_bytes / 1e9:>10.1f}G"
            for one in self.timings
        ]
        sums = (
            f"reduce: Σ resident {self.reduce_resident_gb(ReduceKind.SUM):.1f} GB, "
            f"max resident {self.reduce_resident_gb(ReduceKind.MAX):.1f} GB | "
            f"total forward {self.total_forward_ms / 1000:.1f}s, "
            f"critical path {self.critical_path_ms() / 1000:.1f}s across {len(self.timings)} stages"
        )
        return "".join(f"{line}\n" for line in (head, _RULE, *rows, _RULE, sums))

    def to_json(self, output: bool = False) -> dict[str, Any]:
        """Return the run as plain JSON types.

        Args:
            output: Whether the output goes with it; numbers that JSON lacks are then "nan", "inf" and "-inf".
        """
        told = {one.name: plain(getattr(self, one.name)) for one in fields(self) if one.name != "output"}
        return told | ({"output": [plain(float(one)) for one in self.output]} if output else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | str | bytes) -> Self:
        """Return the run that `to_json` gave; its output, if it has one, as a list.

        Raises:
            ArgumentError: It is no JSON object, or a field is missing or has a value it cannot have.
        """
        given = dict(mapping(cls, data))
        if "timings" in given:
            given["timings"] = [StageTiming.from_json(one) for one in items(cls, "timings", given["timings"])]
        if "output" in given:
            given["output"] = [number(cls, "output", one) for one in items(cls, "output", given["output"])]
        return super().from_json(given)
