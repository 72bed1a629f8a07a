"""The recorder of one process: spans, steps, saves and restores, written as they happen.

    with headway.start("digits") as rec:
        for batch in rec.track(loader):
            ...
            with rec.span("checkpoint_save"):
                save(model)
            rec.saved(step)

No method raises into training: what is wrong is counted, and the report says so.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Self, TypeVar

from headway.clock import SYSTEM, Clock
from headway.events import DEFAULT_PHASES, SPAN_CATEGORIES, Begin, End, Notice, Restored, Rows, Saved, span_category
from headway.record.faults import Faults
from headway.record.identity import Identity, show, whole_number
from headway.record.lifecycle import reason_of
from headway.record.logfolder import STEPS_FILE, LogFolder, open_log, weakly
from headway.record.span import OpenSpan, OpenSpans, SpanTimer
from headway.record.steplog import StepLog
from headway.record.tracked import Given, Track
from headway.record.tracker import GoodputTracker, check_phases

_Item = TypeVar("_Item")
_started: Final[list[weakref.ref[Recorder]]] = []
_newest: Final[list[Recorder]] = []  # kept for a bare `headway.track`, whether or not the program has a name for it
_MOST_NAMES: Final = 500  # of spans that are looked at: a program may make one up for each call


def start(  # noqa: PLR0917 - the order is part of the interface
    run: str | None = None,
    dir: Any = None,  # noqa: A002 - the public name of this argument
    attempt: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    devices: int = 1,
    accelerator: str | None = None,
    *,
    phases: Sequence[str] = DEFAULT_PHASES,
    clock: Clock | None = SYSTEM,
) -> Recorder:
    """Begin to record this process and return its recorder.

    What is not given comes from the launcher's environment: ``HEADWAY_*``, torchrun, Slurm, Open MPI.

    Args:
        run: The run's name; attempts of one name are one run. By default one of this launch.
        dir: The folder of all runs; by default ``$HEADWAY_DIR``, else ``./headway-logs``.
        attempt: The name of this launch; by default the launcher's, else the time and the pid.
        rank: Number of this process, from 0.
        world_size: How many processes the run has.
        devices: How many devices this process holds.
        accelerator: Their model, such as ``H100-SXM``.
        phases: The names of what a step can wait for.
        clock: Where times come from; None is the system's.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, start("digits", dir=folder) as rec:
        ...     for image in rec.track([1, 2, 3], quiet=True):
        ...         with rec.tracker.time_transfer():
        ...             pass
        ...     rec.saved(2)
        >>> rec.tracker.summary().total_batches
        3
    """
    recorder = open_recorder(
        run=run,
        dir=dir,
        attempt=attempt,
        rank=rank,
        world_size=world_size,
        devices=devices,
        accelerator=accelerator,
        phases=phases,
        clock=clock,
    )
    _started[:] = [one for one in _started if _open(one) is not None] + [weakref.ref(recorder)]
    _newest[:] = [recorder]
    return recorder


def open_recorder(*, phases: Sequence[str] = DEFAULT_PHASES, **arguments: Any) -> Recorder:
    """Return a recorder with the arguments of `start`; a bare `headway.track` does not find it."""
    faults = Faults()
    return Recorder(open_log(phases=_usable(phases, faults), faults=faults, **arguments))


def _usable(phases: Sequence[str], faults: Faults) -> tuple[str, ...]:
    """Return the phases if rows can have them, else the default ones, which is counted."""
    try:
        return check_phases(phases)
    except Exception as error:  # noqa: BLE001 - an argument of the user's must not stop training
        faults.note("argument", error)
        return DEFAULT_PHASES


def _tracker_on(log: LogFolder) -> GoodputTracker:
    """Return the tracker that writes the log's rows; without a folder it keeps the sums alone, in flat memory."""
    steps = log.steps or StepLog(f"{os.devnull}/{STEPS_FILE}", log.phases, log.faults)
    tracker = GoodputTracker(_steps=steps, phases=log.phases, clock=log.clock, _faults=log.faults, _kept=log)
    if log.steps is None:
        tracker.detach()
    return tracker


def active() -> Recorder | None:
    """Return the recorder that `start` made last in this process and that is still open."""
    return next(filter(None, map(_open, reversed(_started))), None)


def _open(started: weakref.ref[Recorder]) -> Recorder | None:
    """Return a recorder that is still there and still open."""
    recorder = started()
    return None if recorder is None or recorder.closed else recorder


class Recorder:
    """Writes one process's log; `start` makes it.

    Spans may come from any thread, steps from one.

    Attributes:
        tracker: The times of the steps, phase by phase.
        step_thread: Which thread's step is open.
    """

    def __init__(self, log: LogFolder) -> None:
        self._log = log
        self._clock = log.clock
        self._ids = itertools.count(1)
        self.step_thread: int | None = None
        self._step_holder: weakref.ref[StepTimer] | None = None
        self.tracker = _tracker_on(log)
        self.tracker.on_first_batch = self._rows_are_batches
        self._spans = OpenSpans()
        self._inside = (0, 0)  # how many steps were whole, and how many items have come inside the next since
        log.on_end += [weakly(self, Recorder.end_items), weakly(self.tracker, GoodputTracker.detach), self._spans.clear]
        log.open_since = weakly(self, Recorder._open_since)
        self._names: set[str] = set(SPAN_CATEGORIES)
        log.watch(self.tracker)

    @property
    def identity(self) -> Identity:
        """Who this process is: run, attempt, rank, world size, host."""
        return self._log.identity

    @property
    def path(self) -> str:
        """The folder of this process's log; empty where none could be made."""
        return self._log.path

    @property
    def faults(self) -> Faults:
        """What could not be recorded so far."""
        return self._log.faults

    @property
    def closed(self) -> bool:
        """Whether the log has ended."""
        return self._log.closed

    def span(self, category: str, background: bool = False) -> SpanTimer:
        """Return a span, as a with-statement or a decorator; it ends also when its body raises.

        Args:
            category: One of `headway.events.SPAN_CATEGORIES`; any other is stored as ``custom:<name>``.
            background: Whether training goes on meanwhile; such a span takes no time from the ledger.
        """
        name = show(category)
        if name not in self._names:
            self._look_at(name)
        return SpanTimer(self, span_category(name), background=bool(background))

    def step(self, n: int | None = None) -> StepTimer:
        """Return one training step as a with-statement.

        Inside a loop over `track` the step has begun already, and this adds nothing to it.

        Args:
            n: Its number; by default the one after the last, or after what `restored` said.
        """
        return StepTimer(self, n)

    def track(
        self,
        iterable: Iterable[_Item],
        *,
        total: int | None = None,
        initial: int | None = None,
        description: str | None = None,
        desc: str | None = None,
        quiet: bool | None = None,
        first_step: int | None = None,
    ) -> Track[_Item]:
        """Return the loader with every item recorded as a step; see `headway.track`."""
        return Track(
            iterable,
            Given(self),
            total=total,
            initial=initial,
            description=desc if description is None else description,
            quiet=quiet,
            first_step=first_step,
        )

    def saved(self, step: int) -> None:
        """Say that progress through that step is durable."""
        number = self._done_step(step)
        if number is not None:
            self._log.write(Saved(step=number, at=self._clock.monotonic_ns()))

    def restored(self, step: int) -> None:
        """Say that this process continues after that step (-1: from scratch); numbering goes on from there."""
        number = self._done_step(step)
        if number is not None:
            self.tracker.next_step = number + 1
            self._log.write(Restored(step=number, at=self._clock.monotonic_ns()))

    def notice(self, name: str) -> None:
        """Write down something the outside said; ``preemption`` makes the end by a signal a preemption."""
        self._log.write(Notice(name=show(name), at=self._clock.monotonic_ns()))

    def close(self, reason: str = "finished") -> None:
        """End the log; a second call does nothing.

        Args:
            reason: One of `headway.events.CLOSE_REASONS`.
        """
        self._log.close(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close(reason_of(error))

    def begin_span(self, category: str, *, background: bool) -> OpenSpan:
        """Write that a span begins now; return it."""
        self._end_left_spans()
        span = self._spans.begin(next(self._ids), category, self._clock.monotonic_ns(), background=background)
        try:
            self._log.write(Begin(id=span.id, category=category, at=span.began_ns, background=background))
        except BaseException:  # an interrupt, which may have come when the line was written
            self.end_span(span, ok=False)
            raise
        return span

    def end_span(self, span: OpenSpan, *, ok: bool) -> None:
        """Write that a span ends now; an interrupt leaves it open, or ends it whole."""
        if span.owner is not None:
            self._log.write(End(id=span.id, at=self._clock.monotonic_ns(), ok=ok))
            self._spans.end(span)

    def outside_training(self) -> bool:
        """Return whether the running code is in a span, such as an evaluation, whose loops are no training steps."""
        self._end_left_spans()
        return self._spans.outside_training()

    def _end_left_spans(self) -> None:
        """End the spans that an interrupt has left open, and that nobody can end any more."""
        for span in self._spans.left_behind():
            self.end_span(span, ok=False)

    def begin_step(self, n: object = None, holder: weakref.ref[StepTimer] | None = None) -> bool:
        """Begin a step; return whether it did: not when one is open, whose time this then is.

        Args:
            n: Its number.
            holder: Who is to end it; when that is gone nobody will.
        """
        if self._spans.open:
            self._end_left_spans()
        if self.step_thread is not None and self.step_is_open():
            self.pass_over(of_another_thread=self.step_thread != threading.get_ident())
            return False
        number, me = self.step_number(n), threading.get_ident()
        self.tracker.begin_step(number)
        self._step_holder = holder
        self.step_thread = me  # after it: an interrupt in between leaves a batch that the next one takes over
        return True

    def step_is_open(self) -> bool:
        """Return whether a step is open; one of this thread that an interrupt has left behind is none."""
        if self.step_thread is None:
            return False
        if self.step_thread != threading.get_ident():
            return True
        began, holder = self.tracker._open_since_ns is not None, self._step_holder  # noqa: SLF001 - the core's own side
        if began and (holder is None or holder() is not None):
            return True
        self.step_thread = self._step_holder = None
        self.tracker.cancel_step()
        self.faults.note("step-interrupted", "an interrupt came where a step began or ended; that step is not recorded")
        return False

    def end_step(self) -> None:
        """End the step that `begin_step` began, and keep its times."""
        self.step_thread = self._step_holder = None
        self.tracker.end_step()

    def pass_over(self, *, of_another_thread: bool) -> None:
        """Take note of an item or step that is none, since one is open: another thread's, or one that it is part of."""
        if self._log.ending:
            return
        if of_another_thread:
            self.faults.note("step-thread", "a step began while another thread's was open")
            return
        n_whole, n_items = self._inside
        now_whole = self.tracker._count  # noqa: SLF001 - the core's own side
        self._inside = (now_whole, n_items + 1 if now_whole == n_whole else 1)

    def end_items(self) -> None:
        """Count what came inside the open step, which will not go on: a half-used iterator swallows later loops.

        Inside a step whose loop goes on it is part of that step, and so is a single item: that of
        a loop which runs in step with this one, as by ``zip``.
        """
        (n_whole, n_items), self._inside = self._inside, (0, 0)
        if self.closed or self.step_thread is None or n_items < 2 or n_whole != self.tracker._count:  # noqa: SLF001
            return
        self.faults.note(
            "nested-loop",
            f"{n_items} items came inside a step that did not go on; they are part of it and no steps",
            count=n_items,
            next_step="Put an evaluation into a span, and do not keep a half-used iterator of a tracked loader",
        )

    def step_number(self, n: object) -> int:
        """Return the number of the step that begins next: the one given, if it can be one."""
        number = whole_number(n, 0, "step", self.faults)
        return self.tracker.next_step if number is None else number

    def source_timer(self) -> AbstractContextManager[Any]:
        """Return what times the open step's wait for its data; nothing where the phases know no source."""
        return self.tracker.time_source() if "source" in self.tracker.phases else nullcontext()

    def _open_since(self) -> int | None:
        """Return when the open step began; None also inside a span that began before it, which owns its time."""
        since = self.tracker._open_since_ns  # noqa: SLF001 - the core's own side
        return None if since is None or self._spans.any_before(since) else since

    def _look_at(self, name: str) -> None:
        """Say so, once, where a name that is no category was probably meant to be one."""
        if len(self._names) < _MOST_NAMES:
            self._names.add(name)
            if not name.startswith("custom:"):
                from headway.record.spanname import hint

                if text := hint(name):
                    self.faults.tell("span-name", text, about=name)

    def _done_step(self, step: object) -> int | None:
        if step is None:
            self.faults.note("argument", "step is None, not a whole number of at least -1")
        return whole_number(step, -1, "step", self.faults)

    def _rows_are_batches(self) -> None:
        self._log.write(Rows(rows="batch", at=self._clock.monotonic_ns()))


class StepTimer:
    """One training step; `Recorder.step` makes it."""

    __slots__ = ("__weakref__", "_began", "_n", "_recorder")

    def __init__(self, recorder: Recorder, n: int | None) -> None:
        self._recorder = recorder
        self._n = n
        self._began = False

    def __enter__(self) -> Self:
        self._began = self._recorder.begin_step(self._n, weakref.ref(self))
        return self

    def __exit__(self, *_: object) -> None:
        if self._began:
            self._began = False
            self._recorder.end_step()
