"""Headway: where your accelerator time went, what each loss costs, and what would get it back.

Names are loaded on first use, so that ``import headway`` costs a training process nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.ledger.account import account
    from headway.ledger.ledger import Ledger
    from headway.record.metrics import GoodputMetrics
    from headway.record.recorder import Recorder, start
    from headway.record.track import track
    from headway.record.tracker import GoodputTracker
    from headway.sources import load

__version__ = "0.1.0"
__all__ = ["GoodputMetrics", "GoodputTracker", "Ledger", "Recorder", "account", "load", "start", "track"]

_HOME = {
    "GoodputMetrics": "headway.record.metrics",
    "GoodputTracker": "headway.record.tracker",
    "Ledger": "headway.ledger.ledger",
    "Recorder": "headway.record.recorder",
    "account": "headway.ledger.account",
    "load": "headway.sources",
    "start": "headway.record.recorder",
    "track": "headway.record.track",
}


def __getattr__(name: str) -> Any:
    if name in {"cluster", "model"}:
        return importlib.import_module(f"headway.{name}")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'headway' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
