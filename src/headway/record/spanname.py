"""A span's name that was probably meant otherwise: an alias or a misspelling of a category.

It is loaded with the first name that is no category, so that a program without one does not pay for it.
"""

from __future__ import annotations

from typing import Final

from headway.events import SPAN_CATEGORIES
from headway.ledger.categories import BY_NAME

_ALIASES: Final = {
    "eval": "evaluation",
    "evaluate": "evaluation",
    "val": "evaluation",
    "valid": "evaluation",
    "validate": "evaluation",
    "validation": "evaluation",
    "restore": "checkpoint_restore",
    "restore_checkpoint": "checkpoint_restore",
    "checkpoint_load": "checkpoint_restore",
    "load_checkpoint": "checkpoint_restore",
    "ckpt_restore": "checkpoint_restore",
    "ckpt_load": "checkpoint_restore",
    "save": "checkpoint_save",
    "save_checkpoint": "checkpoint_save",
    "checkpoint": "checkpoint_save",
    "checkpointing": "checkpoint_save",
    "ckpt": "checkpoint_save",
    "ckpt_save": "checkpoint_save",
    "compilation": "compile",
    "jit": "compile",
    "init_device": "device_init",
    "data": "input_wait",
    "data_wait": "input_wait",
    "data_loading": "input_wait",
    "dataloader": "input_wait",
}
_HOW_ALIKE: Final = 0.85  # of difflib's ratio: two letters changed in ten, or two swapped
_LONGEST: Final = 40


def hint(name: str) -> str:
    """Return what to say of a span's name that is no category; empty where nothing else seems meant.

    Example:
        >>> hint("eval")
        "span 'eval' is stored as custom:eval; for evaluation time use 'evaluation'"
        >>> hint("checkpiont_save").partition("; ")[2]
        "for checkpoint_save time use 'checkpoint_save'"
        >>> hint("rework").partition("; ")[2]
        'rework is booked by the ledger itself, from steps and marks, and by no span'
        >>> hint("sdc_check")
        ''
    """
    meant = _meant(name)
    if meant is None:
        return ""
    stored = f"span {name!r} is stored as custom:{name}"
    if meant in SPAN_CATEGORIES:
        return f"{stored}; for {meant} time use {meant!r}"
    if meant == "input_wait":
        return f"{stored}; for input_wait use track(loader) or the tracker's time_source(), and no span"
    return f"{stored}; {meant} is booked by the ledger itself, from steps and marks, and by no span"


def _meant(name: str) -> str | None:
    if len(name) > _LONGEST:
        return None
    plain = "_".join(name.lower().replace("-", " ").replace("_", " ").split())
    if plain in BY_NAME:
        return plain
    if plain in _ALIASES:
        return _ALIASES[plain]
    import difflib  # only here: a name seen for the first time that is neither

    close = difflib.get_close_matches(plain, BY_NAME, n=1, cutoff=_HOW_ALIKE)
    return close[0] if close else None
