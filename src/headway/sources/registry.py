"""The sources there are, and which of them knows a path: by its content, not by its name."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final, Protocol

from headway.errors import ArgumentError, SourceError
from headway.ledger.history import Run
from headway.sources import files
from headway.sources.asked import Asked, Loaded
from headway.sources.text import clean

_FEW_STEPS: Final = 10
_TAR: Final = slice(257, 262)
"""Where a tar file, packed or not, says that it is one."""
_MOST_NAMES: Final = 10_000
"""So many names beside a path that is not there are compared with its own."""


class Source(Protocol):
    """What reads one kind of log.

    A source may have two things more: `load_together(paths, asked)`, where several files of one folder say more
    together than each alone, and `beside`, the names of files that it looks for beside its own.

    Attributes:
        name: What its runs name as their source.
    """

    name: str

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is not of this kind, or None when it is.

        Args:
            path: A regular file.
            head: Its beginning, unpacked where it is gzip.
        """

    def load(self, path: Path, asked: Asked) -> Sequence[Loaded]:
        """Return the runs, pools or served requests at a path that it recognised.

        Args:
            path: A file.
            asked: What the reader says of it.
        """


HOMES: Final = (
    "native.source:Native",
    "mlperf:MLPerf",
    "kineto.source:Kineto",
    "slurm.source:Slurm",
    "table.source:Table",
    "megatron.source:Megatron",
    "deepspeed:DeepSpeed",
    "dllogger:DLLogger",
    "nemo.source:NeMo",
    "torchtitan.source:TorchTitan",
    "maxtext.source:MaxText",
    "nanogpt.source:NanoGPT",
    "trainerlog.source:TrainerLog",
    "hftrainer.source:HFTrainer",
    "lightning:Lightning",
    "tensorboard.source:TensorBoard",
    "mlperfstorage:MLPerfStorage",
    "mlperfpower.source:MLPerfPower",
    "googlegoodput.source:GoogleGoodput",
    "vllmbench:VLLMBench",
    "guidellm:GuideLLM",
    "vllmturns:VLLMTurns",
)
"""Where each source is, in the order they are asked; the first that recognises a path reads it."""


_OF_LINES: Final = ("megatron", "deepspeed", "dllogger", "nemo", "torchtitan", "maxtext", "nanogpt")
"""Sources that know a log by any line of it."""


class _Sources(Sequence[Source]):
    """The sources, each imported when it is asked."""

    def __len__(self) -> int:
        return len(HOMES)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(len(self)))]
        return _source(HOMES[place])


@cache
def _source(home: str) -> Source:
    module, _, name = home.partition(":")
    made: Source = getattr(import_module(f"headway.sources.{module}"), name)()
    return made


SOURCES: Final = _Sources()
"""The sources, in the order they are asked."""


def look(path: Path) -> bytes:
    """Return the beginning of the file at a path.

    Raises:
        SourceError: There is nothing, it cannot be read, or it is no file.
    """
    try:
        return files.head(path)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError | ValueError) -> SourceError:
    """Return the error that says why a path could not be read."""
    shown = clean(str(path), 4096)
    if isinstance(error, FileNotFoundError):
        near = _near(path)
        step = f"Check the path: there is {clean(str(path.with_name(near)), 4096)}" if near else "Check the path"
        return SourceError(f"Cannot read {shown}: there is nothing", step, "no-such-path", path=shown)
    if isinstance(error, files.NotAFileError):
        step = "Give a file, or the folder of a run"
        return SourceError(f"Cannot read {shown}: {error}", step, "not-a-file", path=shown)
    why = files.reason(error) if isinstance(error, OSError) else clean(str(error))
    return SourceError(f"Cannot read {shown}: {why}", files.next_step(error), "unreadable-path", path=shown)


def _near(path: Path) -> str:
    """Return the name beside a path that is most like its own; nothing where none is."""
    with suppress(OSError, ValueError):
        every = zip(os.scandir(path.parent), range(_MOST_NAMES), strict=False)
        names = [entry.name for entry, _ in every if entry.name != path.name]  # a link that leads nowhere
        return next(iter(difflib.get_close_matches(path.name, names, 1, 0.8)), "")
    return ""


def recognise(path: Path, source: str | None = None) -> Source:
    """Return the source that knows a path.

    Args:
        path: A file.
        source: The name of the source to use; None asks each.

    Raises:
        SourceError: There is nothing to read, or no source knows it.
        ArgumentError: There is no source of that name.
    """
    head = look(path)
    if head[_TAR] == b"ustar":
        shown = clean(str(path), 4096)
        what = f"Cannot read {shown}: it is an archive of files, and their names and ends would be read as lines"
        raise SourceError(what, "Unpack it first: tar xf", "archive", path=shown)
    reasons = {}
    for candidate in _candidates(source):
        reason = candidate.recognise(path, head)
        if reason is None:
            return candidate
        reasons[candidate.name] = reason
    raise _unknown(path, head, reasons)


def choose(path: Path, asked: Asked, source: str | None = None) -> Source:
    """Return the source of a path as `recognise` does; a table that the mapping fits which was given is a table.

    Raises:
        SourceError: As `recognise` does.
        ArgumentError: As `recognise` does.
    """
    if asked.mapping is not None and source in {None, "table"}:
        table = next(_candidates("table"))
        if table.fits(look(path), asked.mapping):  # type: ignore[attr-defined]  # it alone has mappings
            return table
    try:
        return recognise(path, source)
    except SourceError as error:
        if asked.mapping is None or error.slug != "unknown-source" or source not in {None, "table"}:
            raise
        return next(_candidates("table"))


def read(path: Path, chosen: Source, asked: Asked, source: str | None = None) -> Sequence[Loaded]:
    """Return what a source makes of a path that it recognised.

    A log may hold a line or two of another program, such as of a trial before the training. So where a source of lines
    finds few steps, those that know the file too are asked as well, and the one that finds most counts.

    Args:
        path: A file.
        chosen: The source.
        asked: What the reader says of it.
        source: The name of the source to use; None: that was for the content to say.

    Raises:
        SourceError: Nothing in it can be used.
        OSError: It cannot be read.
    """
    if source is not None or chosen.name not in _OF_LINES:
        return chosen.load(path, asked)
    told: dict[str, Sequence[Loaded]] = {}
    failed: list[SourceError] = []
    for one in chain([chosen], _others_that_know(path, chosen)):
        try:
            told[one.name] = one.load(path, asked)
        except SourceError as error:
            failed.append(error)
        if _n_steps(told.get(chosen.name, ())) >= _FEW_STEPS:
            break
    if not told:
        raise failed[0]
    first, *others = sorted(told, key=lambda name: -_n_steps(told[name]))
    found, *more = told[first]
    said = [f"it holds lines of {name} too, of {_n_steps(told[name])} steps: left out" for name in others]
    return [replace(found, warnings=(*found.warnings, *said)), *more] if said else told[first]


def _others_that_know(path: Path, chosen: Source) -> Iterator[Source]:
    """Yield the sources of lines beside the one that was chosen that recognise a path, each asked when its turn is."""
    head = look(path)
    others = (_source(home) for home in HOMES if _called(home) in _OF_LINES and _called(home) != chosen.name)
    yield from (other for other in others if other.recognise(path, head) is None)


def _n_steps(found: Sequence[Loaded]) -> int:
    return sum(len(process.rows) for one in found if isinstance(one, Run) for process in one.processes)


def _candidates(name: str | None) -> Iterator[Source]:
    """Return the sources of a name, or all for None; each is imported when its turn comes."""
    chosen = [home for home in HOMES if name in {None, _called(home)}]
    if not chosen:
        known = ", ".join(map(_called, HOMES))
        raise ArgumentError(
            f"Cannot read with the source {name!r}: there is none of that name; known are {known}",
            "Leave it out, and the content decides",
            "no-such-source",
            source=name,
        )
    return map(_source, chosen)


def _called(home: str) -> str:
    """Return the name of the source that is there.

    Example:
        >>> _called("slurm.source:Slurm")
        'slurm'
    """
    return home.partition(":")[0].partition(".")[0]


def _unknown(path: Path, head: bytes, reasons: dict[str, str]) -> SourceError:
    shown = clean(str(path), 4096)
    if not head:
        return SourceError(f"Cannot read {shown}: it is empty", "Give a file with content", "empty-file", path=shown)
    step = "See docs/sources.md for what can be read"
    if "begin one with" in reasons.get("table", ""):  # what helps most is said first
        reasons = {"table": reasons["table"], **reasons}
        step = "It may be a table: give --mapping FILE that says what its columns mean"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        step = "It looks like UTF-16: convert it with iconv -f UTF-16 -t UTF-8"
    elif head.startswith((b"\x1f\x8b", b"(\xb5/\xfd", b"PK\x03\x04", b"BZh", b"\xfd7zXZ")):
        step = "It is compressed: unpack it first"
    said = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    return SourceError(
        f"Cannot read {shown}: no source knows it; {said}", step, "unknown-source", path=shown, reasons=reasons
    )
