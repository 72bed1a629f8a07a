"""Spans: named intervals, as a with-statement or around a function.

Which spans the running code is in belongs to its context: a thread has one of its own, and so has
a task of asyncio. Which of them are still open belongs to their recorder.
"""

from __future__ import annotations

import weakref
from contextvars import ContextVar
from typing import Final, Protocol, Self

from headway.events import SPAN_CATEGORIES
from headway.record.around import Function, around_each

_here: Final[ContextVar[tuple[OpenSpan, ...]]] = ContextVar("headway_spans", default=())  # the innermost last


class OpenSpan:
    """A span that has begun.

    Attributes:
        id: Its number in the log.
        began_ns: When it began [ns].
        training: Whether its loops train: not in an evaluation, say.
        background: Whether it takes no time.
        owner: The open spans it is one of; ``None`` once it has ended.
        holder: Who is to end it, if that is known.
    """

    __slots__ = ("background", "began_ns", "holder", "id", "owner", "training")

    def __init__(self, owner: OpenSpans, number: int, category: str, began_ns: int, *, background: bool) -> None:
        self.id = number
        self.began_ns = began_ns
        self.background = background
        self.training = background or category not in SPAN_CATEGORIES
        self.owner: OpenSpans | None = owner
        self.holder: weakref.ref[SpanTimer] | None = None


class OpenSpans:
    """The open spans of one recorder.

    Attributes:
        open: They.

    Example:
        >>> spans = OpenSpans()
        >>> span = spans.begin(1, "evaluation", 5, background=False)
        >>> spans.any_before(5), spans.any_before(4)
        (True, False)
        >>> spans.end(span)
        >>> spans.any_before(5)
        False
    """

    def __init__(self) -> None:
        self.open: set[OpenSpan] = set()

    def begin(self, number: int, category: str, now_ns: int, *, background: bool) -> OpenSpan:
        """Return a span that begins now."""
        span = OpenSpan(self, number, category, now_ns, background=background)
        try:
            self.open.add(span)
        except BaseException:  # an interrupt: nobody would end it
            self.end(span)
            raise
        return span

    def end(self, span: OpenSpan) -> None:
        """Take one away; one that has ended stays so."""
        span.owner = None
        self.open.discard(span)

    def clear(self) -> None:
        """End them all: their log has ended, or belongs to the parent of this process."""
        for span in tuple(self.open):
            self.end(span)

    def left_behind(self) -> list[OpenSpan]:
        """Return those that nobody can end any more: an interrupt came on the way into `SpanTimer.__exit__`."""
        return [span for span in tuple(self.open) if span.holder is not None and span.holder() is None]

    def any_before(self, moment_ns: int) -> bool:
        """Return whether one that takes time began by then."""
        return any(span.began_ns <= moment_ns for span in tuple(self.open) if not span.background)

    def outside_training(self) -> bool:
        """Return whether the running code is in one, such as an evaluation, whose loops are no training steps."""
        return any(span.owner is self and not span.training for span in _here.get())


class SpanLog(Protocol):
    """Where a span says that it begins and ends; neither raises."""

    def begin_span(self, category: str, *, background: bool) -> OpenSpan:
        """Return a span that begins now."""

    def end_span(self, span: OpenSpan, *, ok: bool) -> None:
        """End that span now."""


class SpanTimer:
    """One named interval; `headway.Recorder.span` makes it.

    A with-statement books its body. As a decorator it books every call, each by itself: of an
    async function until it has returned, of a generator from its first item until its end, the
    time its caller takes between two items included.
    """

    def __init__(self, log: SpanLog, category: str, *, background: bool = False) -> None:
        self._log = log
        self._category = category
        self._background = background
        self._entered: list[OpenSpan] = []

    def __enter__(self) -> Self:
        span = self._log.begin_span(self._category, background=self._background)
        try:
            span.holder = weakref.ref(self)
            self._entered.append(span)
            _here.set((*_still_open(), span))
        except BaseException:  # an interrupt, after which nothing leaves this
            self._end(span, ok=False)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        span = self._leave()
        if span is not None:
            self._end(span, ok=kind is None or issubclass(kind, GeneratorExit))
            _here.set(_still_open())

    def __call__(self, function: Function) -> Function:
        """Return the function with a span around each call."""
        return around_each(self._fresh, function)

    def _leave(self) -> OpenSpan | None:
        """Take out the innermost that this context entered, else the last that any did; None where there is none."""
        entered = self._entered
        mine = [span for span in _here.get() if span in entered]
        for span in (*reversed(mine), *reversed(entered)):
            try:
                entered.remove(span)
                return span  # noqa: TRY300 - in the try: an interrupt that comes with it would lose the span
            except ValueError:  # another thread was faster
                continue
            except BaseException:
                self._end(span, ok=False)
                raise
        return None

    def _end(self, span: OpenSpan, *, ok: bool) -> None:
        """End it, also when an interrupt comes in between."""
        try:
            self._log.end_span(span, ok=ok)
        except BaseException:
            if span.owner is not None:
                self._log.end_span(span, ok=ok)
            raise

    def _fresh(self) -> SpanTimer:
        return SpanTimer(self._log, self._category, background=self._background)


def _still_open() -> tuple[OpenSpan, ...]:
    """Return this context's spans without those that have ended, here or elsewhere."""
    return tuple(span for span in _here.get() if span.owner is not None)
