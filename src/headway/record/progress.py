"""The progress bar of `headway.track`: how far, how fast, and how much of the time was not waiting.

    train  ████████▍       412/1875  118 it/s  goodput 93 %

It counts the steps that are done. It is redrawn at most ten times a second, on stderr, and never
raises: a bar that cannot be drawn is no longer drawn.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final, TextIO, TypeVar

from headway.clock import NS_PER_S, SYSTEM

_T = TypeVar("_T")
_REDRAW_NS: Final = NS_PER_S // 10
_MEASURED_NS: Final = NS_PER_S  # before that a rate says nothing
_BLOCKS: Final = " ▏▎▍▌▋▊▉█"
_WIDEST_BAR: Final = 30
_NARROWEST_BAR: Final = 5


def wants_bar(stream: TextIO | None, quiet: bool | None) -> bool:
    """Return whether to draw: as asked, else where the stream is a terminal."""
    if quiet is not None:
        return not quiet and stream is not None
    return stream is not None and _ask(lambda: stream.isatty(), otherwise=False)  # noqa: PLW0108 - may lack it


def bar_text(fraction: float, width: int, *, ascii_only: bool = False) -> str:
    """Return a bar of that many columns.

    Example:
        >>> bar_text(0.55, 10), bar_text(0.55, 10, ascii_only=True)
        ('█████▌    ', '#####     ')
    """
    fraction = min(max(fraction, 0.0), 1.0)  # of a drawing: a loader may yield more than it announced
    if ascii_only:
        return ("#" * int(fraction * width)).ljust(width)
    full, part = divmod(int(fraction * width * 8), 8)
    return ("█" * full + (_BLOCKS[part] if part else "")).ljust(width)


class Bar:
    """Draws one line for one pass over a loader.

    Args:
        description: What stands at its left end.
        total: How many items there are, those done before included; ``None`` when that is not known.
        stream: Where to draw.
        started_ns: When the pass began, on the clock whose readings `update` gets [ns].
        initial: How many of them were done before.
    """

    def __init__(self, description: str, total: int | None, stream: TextIO, started_ns: int, initial: int = 0) -> None:
        self._description = " ".join(description.split())
        self._total = total
        self._initial = initial
        self._stream = stream
        self._started_ns = started_ns
        self._due_ns = started_ns
        self._n = self._waited_ns = 0
        self._given = 0  # an item whose step is not done
        self._alive = True
        self._ascii = False
        if not _can_draw(stream):
            self._fall_back()

    def watch(self, items: Iterator[_T]) -> Iterator[_T]:
        """Yield the items; each counts when the next one is asked for, with the time it took to come."""
        waited = 0
        while True:
            asked = SYSTEM.monotonic_ns()
            done, self._given = self._given, 0
            self.update(asked, waited, done)
            try:
                item = next(items)
            except StopIteration:
                return
            waited = SYSTEM.monotonic_ns() - asked
            self._given = 1
            yield item

    def update(self, now_ns: int, waited_ns: int, n: int = 1) -> None:
        """Add steps that are done, and the time the loop waited for them; draw if it is time.

        Args:
            now_ns: The clock [ns].
            waited_ns: How long the loop waited for its data [ns].
            n: How many steps.
        """
        self._n += n
        self._waited_ns += waited_ns
        if now_ns >= self._due_ns:
            self._due_ns = now_ns + _REDRAW_NS
            self._draw(now_ns, "\r")  # what the program prints next begins at column 0

    def close(self, now_ns: int) -> None:
        """Draw the last state and leave it standing; the step that the loop broke out of counts."""
        self._n, self._given = self._n + self._given, 0
        self._draw(now_ns, "\n")
        self._alive = False

    def line(self, now_ns: int, columns: int) -> str:
        """Return the line as it is now, in at most that many columns."""
        elapsed_ns = now_ns - self._started_ns
        done = self._initial + self._n
        count = f"{done}/{self._total}" if self._total is not None else f"{done}"
        parts = [count]
        if self._n and elapsed_ns >= _MEASURED_NS:
            parts.append(_rate(self._n * NS_PER_S / elapsed_ns))
            parts.append(f"goodput {100 - 100 * self._waited_ns / elapsed_ns:.0f} %")
        text = "  ".join(parts)
        head = f"{self._description}  " if self._description else ""
        room = columns - len(head) - len(text) - 2
        if self._total and room >= _NARROWEST_BAR:
            text = bar_text(done / self._total, min(room, _WIDEST_BAR), ascii_only=self._ascii) + "  " + text
        return (head + text)[:columns]

    def _draw(self, now_ns: int, end: str) -> None:
        if not self._alive:
            return
        columns = _columns(self._stream)
        try:
            self._stream.write("\r" + self.line(now_ns, columns).ljust(columns) + end)
            self._stream.flush()
        except UnicodeError:
            self._fall_back()
        except Exception:  # noqa: BLE001 - the stream may be anything, and the loop goes on
            self._alive = False

    def _fall_back(self) -> None:
        self._ascii = True
        self._description = self._description.encode("ascii", "replace").decode()


def _rate(per_second: float) -> str:
    return f"{per_second:.3g} it/s" if per_second < 1000 else f"{per_second:.0f} it/s"


def _can_draw(stream: TextIO) -> bool:
    encoding = _ask(lambda: stream.encoding, otherwise="") or "ascii"
    return bool(_ask(lambda: _BLOCKS.encode(encoding), otherwise=b""))


def _columns(stream: TextIO) -> int:
    """Return the width to fill: one less than the terminal's, so that no terminal breaks the line."""
    return (_ask(lambda: os.get_terminal_size(stream.fileno()).columns, otherwise=0) or 80) - 1


def _ask(question: Callable[[], _T], otherwise: _T) -> _T:
    try:
        return question()
    except Exception:  # noqa: BLE001 - the stream may be anything, and the loop goes on
        return otherwise
