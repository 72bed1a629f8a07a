"""`headway.track`: one line round any loader records its steps and shows how far it is.

for batch in headway.track(loader):
train(batch)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, TypeVar

from headway.record.identity import log_root, show
from headway.record.recorder import Recorder, active, open_recorder
from headway.record.tracked import Track

_Item = TypeVar("_Item")
_implicit: Final[dict[tuple[str | None, str], Recorder]] = {}


def track(
    iterable: Iterable[_Item],
    *,
    run: str | None = None,
    dir: Any = None,  # noqa: A002 - the public name of this argument
    total: int | None = None,
    description: str | None = None,
    quiet: bool | None = None,
    recorder: Recorder | None = None,
    first_step: int | None = None,
) -> Track[_Item]:
    """Return the loader with every item recorded as one training step, and a progress bar.

    A step begins before the loader's ``next()`` and ends when the loop comes back; only ``next()``
    itself is timed as waiting for data. The steps go to the recorder given, else to the one that
    `headway.start` began, else to one that is made and kept until the process ends. Inside a step,
    as in an evaluation within a training loop, and inside a span such as ``evaluation``, items are
    no steps: wrap the innermost loop that trains. A generator is closed when the loop is left.

    Args:
        iterable: Any loader, list, iterator or generator.
        run: The run's name where no recorder is open; by default one of this launch.
        dir: The folder of all runs where no recorder is open.
        total: How many items will come; by default the loader's length.
        description: What stands in front of the bar.
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
        lambda: recorder if recorder is not None else _recorder_for(run, dir),
        total=total,
        description=description,
        quiet=quiet,
        first_step=first_step,
    )


def _recorder_for(run: str | None, directory: Any) -> Recorder:
    """Return the open recorder that fits, else one for the whole process, so that epochs are one attempt."""
    opened = active()
    if opened is not None and (run is None or show(run) == opened.identity.run):
        return opened
    key = (None if run is None else show(run), log_root(directory))
    if key not in _implicit or _implicit[key].closed:
        _implicit[key] = open_recorder(run=run, dir=directory)
    return _implicit[key]
