"""`headway.track`: one line round any loader records its steps and shows how far it is.

for batch in headway.track(loader):
train(batch)
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
from collections.abc import Iterable
from typing import Any, Final, TypeVar

from headway.record.identity import log_root, show
from headway.record.recorder import Recorder, active, open_recorder
from headway.record.tracked import Given, Track

_Item = TypeVar("_Item")
_implicit: Final[dict[tuple[str | None, str], Recorder]] = {}
_to_say: Final[dict[str, int]] = {}  # the folders of runs, and the process that records there


def track(
    iterable: Iterable[_Item],
    *,
    run: str | None = None,
    dir: Any = None,  # noqa: A002 - the public name of this argument
    total: int | None = None,
    initial: int | None = None,
    description: str | None = None,
    desc: str | None = None,
    quiet: bool | None = None,
    recorder: Recorder | None = None,
    first_step: int | None = None,
) -> Track[_Item]:
    """Return the loader with every item recorded as one training step, and a progress bar.

    A step begins before the loader's ``next()`` and ends when the loop comes back; only ``next()``
    itself is timed as waiting for data. The steps go to the recorder given, else to the one that
    `headway.start` began, else to one that is made and kept until the process ends. Inside a step,
    as in an evaluation within a training loop, and inside a span such as ``evaluation``, items are
    no steps: wrap the innermost loop that trains. A generator is closed when the loop is left; any
    other iterator can be gone on with. A copy wraps a copy of the loader, and one that is sent to
    another process records there.

    Args:
        iterable: Any loader, list, iterator or generator.
        run: The run's name where no recorder is open; by default one of this launch.
        dir: The folder of all runs where no recorder is open.
        total: How many items there are; by default ``initial`` and the loader's length.
        initial: How many of them were done before: the bar begins there. By default 0; after a
            resume the first step's number, where that and the loader's length make the total.
        description: What stands in front of the bar.
        desc: The same.
        quiet: Whether to draw no bar; by default where stderr is no terminal.
        recorder: Where to record.
        first_step: Number of the first step; by default the one after the last.

    Example:
        >>> import headway, tempfile
        >>> with tempfile.TemporaryDirectory() as folder, headway.start("digits", dir=folder) as rec:
        ...     images = track([1, 2, 3], quiet=True)
        ...     len(images), sum(images), rec.tracker.summary().total_batches
        (3, 6, 3)
    """
    return Track(
        iterable,
        Given(recorder) if recorder is not None else functools.partial(recorder_for, run, dir),
        total=total,
        initial=initial,
        description=desc if description is None else description,
        quiet=quiet,
        first_step=first_step,
        on_bar=_say_at_the_end,
    )


def recorder_for(run: str | None, directory: Any) -> Recorder:
    """Return the open recorder that fits, else one for the whole process, so that epochs are one attempt."""
    opened = active()
    if opened is not None and (run is None or show(run) == opened.identity.run):
        return opened
    key = (None if run is None else show(run), log_root(directory))
    if key not in _implicit or _implicit[key].closed:
        _implicit[key] = open_recorder(run=run, dir=directory)
    return _implicit[key]


def _say_at_the_end(recorder: Recorder) -> None:
    """See to it that who saw a bar learns where the log is, when it was begun without being asked for."""
    if recorder.path and recorder.identity.rank == 0 and recorder in _implicit.values():
        if not _to_say:
            atexit.register(_say)
        _to_say[os.path.dirname(recorder.path)] = os.getpid()  # noqa: PTH120


def _say() -> None:
    for folder, pid in _to_say.items():
        if pid == os.getpid():  # and no child that was forked
            with contextlib.suppress(Exception):  # stderr may be anything, or closed
                print(where(folder), file=sys.stderr)  # noqa: T201 - for who sees the bar


def where(folder: str) -> str:
    """Return the line that says where a run's log is and how to read it.

    Example:
        >>> where("/data/my logs/digits")
        "headway: recorded in /data/my logs/digits · headway report '/data/my logs/digits'"
    """
    import shlex

    near = os.path.relpath(folder)
    path = folder if near.startswith(os.pardir) else near
    return f"headway: recorded in {path} · headway report {shlex.quote(path)}"
