"""The hot core of a tracker: the compiled one where it was built, and its twin in Python.

One register says who owns the passing time: a phase, or nobody. Every transition reads the clock
once and books the time since the last one to the owner, so nested timers book an instant once, to
the innermost, and what the phases and the rest of a batch add up to is its wall time.

``HEADWAY_PURE_PYTHON=1`` chooses the twin. They differ in one thing: the compiled core counts a 65th
timer open at the same time as a fault and does not time it.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Final

from headway.record.twin import PythonCore

if TYPE_CHECKING:
    from headway.record._hot import Core as Core  # noqa: PLC0414 - exported
else:
    Core = PythonCore
    if os.environ.get("HEADWAY_PURE_PYTHON", "") in {"", "0"}:
        with contextlib.suppress(ImportError):  # not built here: the twin does the same, slower
            from headway.record._hot import Core

COMPILED: Final = Core.__name__ != PythonCore.__name__
"""Whether the compiled core was chosen."""
