"""Runtime goodput R of a job: five first-order losses over held time, and the exact value beside their sum.

The losses of held time (Wongpanich et al. 2025, arXiv 2502.06982, "runtime goodput"; the two terms
of an interval after Young 1974):

* startup: once a window, restart + load + warm-up
* input wait: a share of held time
* checkpoint: writing, d / t, and rework, t / 2M, at the interval t
* recovery: (detection + restart + load + warm-up) / M
* forced preemption: rate x (lost work + startup)

They are added, which is right while each is small. The exact value takes saves, rework and recovery
from the renewal form of `headway.model.checkpoint`, on the time the other three leave.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from headway.errors import ArgumentError
from headway.model.checkpoint import left_of, method_named, named, renewal
from headway.model.checks import amount, fits, inverse, positive, share
from headway.model.quantities import quantity
from headway.model.scheduling import ratio

POINT: Final = 0.01


@dataclass(frozen=True, slots=True)
class RuntimeGoodputResult:
    """What runtime losses leave of held time. Shares are of held time; times are quantities.

    Attributes:
        mtbf_s, write_s, interval_s, startup_s, recovery_s, preemption_cost_s, window_s: The times in
            seconds, for code that counts: the quantities below are made of them.
        preemptions_per_s: Forced preemptions [1 / s].
        input_wait_share: Waiting for data.
        method: How the interval was found: ``young``, ``daly``, ``exact`` or ``given``.
    """

    mtbf_s: Any
    write_s: Any
    interval_s: Any
    startup_s: Any
    recovery_s: Any
    preemption_cost_s: Any
    window_s: Any
    preemptions_per_s: Any
    input_wait_share: Any
    method: str

    @property
    def mtbf(self) -> Any:
        """Mean time between failures of the job [s]."""
        return quantity(self.mtbf_s, "second")

    @property
    def write_time(self) -> Any:
        """Time one save blocks [s]."""
        return quantity(self.write_s, "second")

    @property
    def interval(self) -> Any:
        """Work between two saves [s]."""
        return quantity(self.interval_s, "second")

    @property
    def startup_time(self) -> Any:
        """Restart + load + warm-up [s]."""
        return quantity(self.startup_s, "second")

    @property
    def recovery_time(self) -> Any:
        """Detection + startup [s]."""
        return quantity(self.recovery_s, "second")

    @property
    def preemption_cost(self) -> Any:
        """What one forced preemption costs: lost work + startup [s]."""
        return quantity(self.preemption_cost_s, "second")

    @property
    def write_share(self) -> Any:
        """Writing checkpoints: d / t."""
        return ratio(self.write_s, self.interval_s)

    @property
    def rework_share(self) -> Any:
        """Work done again after a failure, half an interval each time: t / 2M."""
        never = np.isinf(self.mtbf_s)
        if isinstance(self.mtbf_s, float) and isinstance(self.interval_s, float):
            return 0.0 if never else 0.5 * (self.interval_s / self.mtbf_s)
        with np.errstate(invalid="ignore"):
            return np.where(never, 0.0, 0.5 * (self.interval_s / self.mtbf_s))

    @property
    def checkpoint_share(self) -> Any:
        """Writing and rework."""
        return self.write_share + self.rework_share

    @property
    def recovery_share(self) -> Any:
        """Coming back after a failure."""
        return self.recovery_s / self.mtbf_s

    @property
    def startup_share(self) -> Any:
        """Starting once a window."""
        return self.startup_s / self.window_s

    @property
    def preemption_share(self) -> Any:
        """Forced preemptions."""
        return self.preemptions_per_s * self.preemption_cost_s

    @property
    def failure_side(self) -> Any:
        """What grows with the number of devices: checkpoint and recovery."""
        return self.checkpoint_share + self.recovery_share

    @property
    def runtime_loss(self) -> Any:
        """The five losses added, to first order; 1 or more where they leave nothing."""
        return (
            self.startup_share
            + self.input_wait_share
            + self.checkpoint_share
            + self.recovery_share
            + self.preemption_share
        )

    @property
    def outcome(self) -> Any:
        """``ok``, or ``no-progress``: to first order the losses take all the time; see `notes`."""
        return named(self.runtime_loss >= 1.0, "no-progress", "ok")

    @property
    def runtime_goodput(self) -> Any:
        """R to first order: 1 - `runtime_loss`; 0 where the outcome is ``no-progress``."""
        return left_of(self.runtime_loss)

    @property
    def runtime_without_input_wait(self) -> Any:
        """R to first order if no step waited for its data: what an input pipeline can reach."""
        return left_of(self.runtime_loss - self.input_wait_share)

    @property
    def exact_runtime_goodput(self) -> Any:
        """R with saves, rework and recovery by the renewal form, on the time the other three losses leave."""
        kept = renewal(self.interval_s, self.write_s, self.mtbf_s, self.recovery_s)
        return kept * left_of(self.startup_share + self.input_wait_share + self.preemption_share)

    @property
    def first_order_error(self) -> Any:
        """`runtime_goodput` less the exact value; negative where adding the losses counts too much."""
        return self.runtime_goodput - self.exact_runtime_goodput

    @property
    def interruption_interval(self) -> Any:
        """Mean time between interruptions, failures and preemptions together [s]."""
        return quantity(inverse(1.0 / self.mtbf_s + self.preemptions_per_s), "second")

    @property
    def interruption_checkpoint_interval(self) -> Any:
        """The interval if saves had to cover preemptions as well [s]; Daly's where an interval was given."""
        find = method_named("daly" if self.method == "given" else self.method)
        return quantity(find(self.write_s, inverse(1.0 / self.mtbf_s + self.preemptions_per_s)), "second")

    @property
    def notes(self) -> tuple[str, ...]:
        """What is doubtful in these figures, and what to do, a sentence or two each."""
        return tuple(_notes(self))

    def as_dict(self) -> dict[str, Any]:
        """Return every field by name; times in seconds, their names end in ``_s``."""
        return {name: getattr(self, name) for name in RESULT_FIELDS}


RESULT_FIELDS: Final = (
    "mtbf_s", "write_s", "interval_s", "method", "write_share", "rework_share", "checkpoint_share",
    "recovery_s", "recovery_share", "startup_s", "startup_share", "input_wait_share", "preemption_cost_s",
    "preemption_share", "failure_side", "runtime_loss", "runtime_goodput", "outcome",
    "exact_runtime_goodput", "first_order_error", "notes",
)  # fmt: skip


class RuntimeGoodputModel:
    """Runtime goodput from what a job loses of the time it holds; see the module for the formulas."""

    __slots__ = ()

    def solve(
        self,
        *,
        mtbf: Any,
        save: Any,
        load: Any = None,
        detection: Any = 0.0,
        restart: Any = 0.0,
        warmup: Any = 0.0,
        input_wait: Any = 0.0,
        window: Any = 604800.0,
        lost_work: Any = 0.0,
        preemption_rate: Any = 0.0,
        interval: Any = None,
        method: str = "daly",
    ) -> RuntimeGoodputResult:
        """Return what the losses leave; arrays broadcast.

        Args:
            mtbf: Mean time between failures of the whole job [s], > 0; infinite where nothing fails.
            save: Time one save blocks [s], >= 0.
            load: Time to read a checkpoint back [s]; as long as to save it where it is not given.
            detection: From a failure until it is noticed [s], >= 0.
            restart: Until the processes run again, without `load` [s], >= 0.
            warmup: Until they are at speed [s], >= 0.
            input_wait: Share of held time that waits for data, in [0, 1].
            window: Time for which the job is started once [s], > 0; a week where it is not given.
            lost_work: Work a forced preemption loses [s], >= 0.
            preemption_rate: Forced preemptions [1 / s], >= 0.
            interval: Work between two saves [s], > 0; the best by `method` where it is not given.
            method: ``daly``, ``young`` or ``exact``.

        Raises:
            ArgumentError: An argument cannot be used.

        Example:
            >>> run = RuntimeGoodputModel().solve(mtbf="3.093 h", save="60 s", restart="5 min")
            >>> f"{run.runtime_goodput:.3f}", f"{run.exact_runtime_goodput:.3f}"
            ('0.863', '0.871')
        """
        find = method_named(method)
        m = positive(mtbf, "second", "mtbf", infinite=True)
        d = amount(save, "second", "save")
        read = d if load is None else amount(load, "second", "load")
        noticed = amount(detection, "second", "detection")
        again, warm = amount(restart, "second", "restart"), amount(warmup, "second", "warmup")
        wait = share(input_wait, "input_wait")
        held = positive(window, "second", "window")
        lost = amount(lost_work, "second", "lost_work")
        forced = amount(preemption_rate, "1/second", "preemption_rate")
        given = None if interval is None else positive(interval, "second", "interval")
        fits(
            mtbf=m, save=d, load=read, detection=noticed, restart=again, warmup=warm, input_wait=wait,
            window=held, lost_work=lost, preemption_rate=forced, interval=given,
        )  # fmt: skip
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # refused below
            startup = again + read + warm
            recovery, preempted = noticed + startup, lost + startup
            every = find(d, m) if given is None else given
        _in_range(recovery=recovery, preemption=preempted)
        _in_range(interval=np.where(np.isinf(m), 1.0, every), best=np.where((every == 0) & (d > 0), math.inf, 1.0))
        return RuntimeGoodputResult(
            mtbf_s=m,
            write_s=d,
            interval_s=every,
            startup_s=startup,
            recovery_s=recovery,
            preemption_cost_s=preempted,
            window_s=held,
            preemptions_per_s=forced,
            input_wait_share=wait,
            method=method if given is None else "given",
        )


def _in_range(**sums: Any) -> None:
    for name, value in sums.items():
        if not np.all(np.isfinite(value)):
            raise ArgumentError(
                f"Cannot solve the runtime goodput: these times give no {name} within the range of floats",
                "Give times in seconds that a job can have",
                "bad-amount",
                name=name,
            )


def _notes(result: RuntimeGoodputResult) -> list[str]:
    found = []
    stuck = np.asarray(result.runtime_loss) >= 1.0
    if stuck.any():
        late = np.any(stuck & (np.asarray(result.write_s) >= np.asarray(result.mtbf_s)))
        cause = "one save takes longer than the mean time between failures" if late else "the losses add to 1 or more"
        found.append(
            f"No progress to first order{_how_many(stuck)}: {cause}. "
            "Save faster or in the background, restart faster, or take fewer devices."
        )
    off = np.abs(np.asarray(result.first_order_error)) > POINT
    if off.any():
        value = np.asarray(result.exact_runtime_goodput)
        exact, most = (f"{float(value):.4f}", "") if value.ndim == 0 else ("in exact_runtime_goodput", "up to ")
        error = np.abs(np.asarray(result.first_order_error)).max()
        found.append(
            f"The first-order sum is off by {most}{error * 100:.1f} points{_how_many(off)}; "
            f"the exact value is {exact}. Use that one."
        )
    return found


def _how_many(which: Any) -> str:
    return "" if which.ndim == 0 else f" in {int(which.sum())} of {which.size}"
