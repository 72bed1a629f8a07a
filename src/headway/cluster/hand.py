"""A thread that does one thing after the other, and can be left behind in the middle of one.

The engine cannot be told to stop waiting for a peer that is gone: a send to it may sleep until the
group's timeout. Then the thread that sleeps is left to it, and another goes on.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any


class Task:
    """Something that a `Hand` does.

    Attributes:
        done: Set when it has ended.
        result: What it returned; None before.
        error: What it raised; None where it did not.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function = function
        self.done = threading.Event()
        self.result: Any = None
        self.error: Exception | None = None

    def run(self) -> None:
        """Do it."""
        try:
            self.result = self._function()
        except Exception as error:  # noqa: BLE001 - whoever waits for it raises it
            self.error = error
        finally:
            self.done.set()


class Hand:
    """One thread; it keeps what libraries keep by thread, such as their own threads."""

    def __init__(self, prepare: Callable[[], None] = lambda: None) -> None:
        """Start it.

        Args:
            prepare: Done first of all, in the thread.
        """
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._tasks.put(Task(prepare))
        threading.Thread(target=self._work, name="headway-drive", daemon=True).start()

    def start(self, function: Callable[[], Any]) -> Task:
        """Have something done after what is being done; return at once.

        Example:
            >>> task = Hand().start(lambda: 6 * 7)
            >>> task.done.wait(10), task.result
            (True, 42)
        """
        task = Task(function)
        self._tasks.put(task)
        return task

    def leave(self) -> None:
        """Let it end when it is through with what it does."""
        self._tasks.put(None)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task.run()
