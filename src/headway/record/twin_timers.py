"""The timers of the core in Python; each is one thing with its core, in two objects."""

# ruff: noqa: SLF001
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from headway.record.around import Function, around

if TYPE_CHECKING:
    from headway.record.twin import PythonCore


class PythonTimer:
    """Times one phase in a with-statement; made once, and used again for every batch."""

    __slots__ = ("_core", "_phase", "_strays")

    def __init__(self, core: PythonCore, phase: int) -> None:
        self._core, self._phase, self._strays = core, phase, 0

    def __enter__(self) -> Self:
        core = self._core
        owner = core._owner
        if owner is None:
            return self._refuse()
        read = core._read
        now = read()
        core._current[owner] += now - core._last
        core._last = now
        core._outer.append(owner)
        core._owner = self._phase
        return self

    def __exit__(self, error_type: object = None, error: object = None, trace: object = None) -> None:
        core = self._core
        phase = self._phase
        if core._owner != phase:
            self._leave_out_of_order()
            return
        read = core._read
        now = read()
        core._current[phase] += now - core._last
        core._last = now
        try:
            core._owner = core._outer.pop()
        except IndexError:  # another thread has begun a batch meanwhile
            core._owner = core._n_phases

    def __call__(self, function: Function, /) -> Function:
        """Return the function with this timer around each call."""
        return around(self, function)

    def wait_for(self, tree: Any) -> Any:
        """Wait until the arrays in `tree` are ready, inside the timed block; return it."""
        self._core._wait(tree)
        return tree

    def _refuse(self) -> Self:
        self._strays += 1
        self._core._faults.note("timer-outside-batch", "a timer began while no batch was open")
        return self

    def _leave_out_of_order(self) -> None:
        core = self._core
        outer = core._outer
        if self._strays > 0:
            self._strays -= 1
            return
        for place in range(len(outer) - 1, 0, -1) if core._owner is not None else ():
            if outer[place : place + 1] == [self._phase]:  # a slice: another thread may shorten it
                del outer[place : place + 1]
                return
        core._faults.note("timer-outside-batch", "a timer ended after its batch")


class PythonNobody(PythonTimer):
    """The timer of an unknown phase, which was noted when it was asked for: books nothing."""

    __slots__ = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return


class PythonBatch:
    """The with-statement of a batch."""

    __slots__ = ("_core",)

    def __init__(self, core: PythonCore) -> None:
        self._core = core

    def __enter__(self) -> PythonCore:
        self._core.start_batch()
        return self._core

    def __exit__(self, *error: object) -> None:
        self._core.end_batch()

    def __call__(self, function: Function, /) -> Function:
        """Return the function with a batch around each call."""
        return around(self, function)
