"""Results of MLPerf Storage (DLIO): how much of each epoch the accelerators worked, and how much they waited."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np

from headway.errors import SourceError
from headway.events import AnyEvent, Close, Open, Span
from headway.ledger.history import Process, Rows, Run
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.columns import BOUND
from headway.sources.intervals import Interval, clip
from headway.sources.mllog import whole
from headway.sources.text import clean

EPOCHS: Final = "per_epoch_stats.json"
EPOCHS_OF_RANK: Final = f"0_{EPOCHS}"
"""What rank 0 writes, where each rank writes its own, as from v2.0 of the benchmark on."""
_MOST: Final = 16 << 20
"""A larger file is none of these [bytes]."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AU: Final = "train_au_percentage"
_MEAN: Final = "train_au_mean_percentage"
_CHECKPOINTING: Final = ("save_checkpoint_", "load_checkpoint_")
_KINDS: Final = {
    "ckpt": "checkpoint_save",
    "save_ckpt": "checkpoint_save",
    "load_ckpt": "checkpoint_restore",
    "eval": "evaluation",
}
"""What parts of an epoch are, by their names without a number."""
_json: Final = json.JSONDecoder()


class MLPerfStorage:
    """The source of MLPerf Storage results: a run's ``summary.json``."""

    name = "mlperfstorage"
    beside = (EPOCHS, EPOCHS_OF_RANK)

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no result of MLPerf Storage, or None when it is one."""
        if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
            return "it is no JSON object"
        if b'"num_accelerators"' in head and (b'"train_au_' in head or b'"metric"' in head):
            return None
        return "it has no num_accelerators and no train_au_percentage"

    def load(self, path: Path, asked: Asked) -> list[Run]:
        """Return the run; the times of its epochs are looked for beside it, in ``per_epoch_stats.json`` or ``0_…``.

        Raises:
            SourceError: It cannot be read, or says nothing of a training, as one of a checkpointing workload.
        """
        warnings: list[str] = []
        summary = _document(path, warnings)
        metric = summary.get("metric")
        metric = metric if isinstance(metric, dict) else {}
        busy = _busy(metric, warnings)
        if not busy and any(key.startswith(_CHECKPOINTING) for key in metric):
            raise SourceError(
                f"Cannot read {clean(str(path), 4096)}: it is of a checkpointing workload, which trains nothing",
                "Give the summary.json of a training run; what its saves cost is written in it, as metric",
                "no-runs",
                path=str(path),
            )
        epochs, lacking = _epochs_beside(path, warnings)
        result = _Result(clean(str(path), 4096), summary, busy, epochs, lacking, warnings)
        return [result.run(_title(summary, path), asked)]


def _epochs_beside(path: Path, warnings: list[str]) -> tuple[dict[str, Any], str]:
    """Return the times of the epochs that lie beside a summary, or why there are none."""
    lacking: list[str] = []
    for name in MLPerfStorage.beside:
        beside = path.with_name(name)
        try:
            why = files.why_not(beside)
            found = {} if why else _document(beside, warnings)
        except FileNotFoundError:
            continue
        except SourceError as error:
            why = error.what.removeprefix(f"Cannot read {error.details['path']}: ")
        except OSError as error:
            why = files.reason(error)
        if not why:
            warnings += lacking
            return found, f"{name} beside it tells no time of a training"
        lacking.append(f"{name} beside it is left out: {why}")
    return {}, "; ".join(lacking) or f"neither {EPOCHS} nor {EPOCHS_OF_RANK} lies beside it"


def _document(path: Path, warnings: list[str]) -> dict[str, Any]:
    """Return the object a file holds; what follows it is said.

    Raises:
        SourceError: It is no JSON object, or cannot be unpacked.
    """
    data = b""
    try:
        with files.plain(path) as file:
            data = file.read(_MOST + 1)
    except files.TornError:
        data = b""
    if len(data) > _MOST:
        raise _unusable(path, f"it is larger than {_MOST >> 20} MiB")
    text = data.decode("utf-8-sig", "replace").lstrip()
    try:
        found, end = _json.raw_decode(text)
    except (ValueError, RecursionError):
        raise _unusable(path, "its JSON is malformed or cut") from None
    if not isinstance(found, dict):
        raise _unusable(path, "it is no JSON object")
    if text[end:].strip():
        warnings.append(f"{clean(path.name)}: what follows the first object is left out")
    return found


def _unusable(path: Path, why: str) -> SourceError:
    return SourceError(
        f"Cannot read {clean(str(path), 4096)}: {clean(why)}",
        "Give the summary.json that the benchmark wrote, whole",
        "no-runs",
        path=str(path),
    )


def _share(value: object) -> float | None:
    """Return a percentage as a fraction; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        return None
    return value / 100


def _busy(metric: dict[str, Any], warnings: list[str]) -> list[float | None]:
    """Return by epoch which share of it accelerators worked; None where it is not known."""
    told = metric.get(_AU)
    shares = [_share(value) for value in told] if isinstance(told, list) else []
    odd = sum(share is None for share in shares)
    if odd:
        warnings.append(
            f"{odd} of {len(shares)} values of {_AU} are no percentage: what those epochs waited is unknown"
        )
    mean = _share(metric.get(_MEAN))
    known = [share for share in shares if share is not None]
    if (
        mean is not None
        and len(known) == len(shares) > 0
        and not math.isclose(mean, sum(known) / len(known), abs_tol=5e-4)
    ):
        warnings.append(
            f"{_MEAN} is {mean:.2%} and the mean of the epochs is {sum(known) / len(known):.2%}: the epochs count"
        )
    return shares or ([mean] if mean is not None else [])


def _title(summary: dict[str, Any], path: Path) -> str:
    """Return what was trained, as it or its folders say, and since when: a benchmark is run several times."""
    told = (summary.get(name) for name in ("workload", "model"))
    what = next((text for said in told if isinstance(said, str) and (text := clean(said, 60).strip())), "")
    since = _moment(summary.get("start"))
    shown = "" if since is None else f", {_EPOCH + timedelta(microseconds=since // 1000):%Y-%m-%d %H:%M:%S}"
    folder = path.resolve().parent
    if not what and folder.match("training/*/run/*"):
        what = clean(folder.parent.parent.name)
    return (what or clean(folder.name or path.stem)) + shown


def _moment(value: object) -> int | None:
    """Return a time of the file [ns since the Unix epoch]; without a zone it is read as UTC.

    Example:
        >>> _moment("2023-04-04T11:32:51.126317"), _moment("2026-07-01 10:15:00"), _moment("soon")
        (1680607971126317000, 1782900900000000000, None)
    """
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        moment = datetime.fromisoformat(value)
        since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    except (ValueError, OverflowError):
        return None
    at = since // timedelta(microseconds=1) * 1000
    return at if 0 <= at < BOUND else None


def _interval(value: object) -> Interval | None:
    """Return when something of an epoch began and ended; None where that cannot be."""
    if not isinstance(value, dict):
        return None
    start, end = _moment(value.get("start")), _moment(value.get("end"))
    return (start, end) if start is not None and end is not None and start <= end else None


@dataclass
class _Result:
    """One result, made a run."""

    path: str
    summary: dict[str, Any]
    busy: Sequence[float | None]
    epochs: dict[str, Any]
    lacking: str
    warnings: list[str]
    rows: list[tuple[int, int, int]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)

    def run(self, title: str, asked: Asked) -> Run:
        """Return the run.

        Raises:
            SourceError: It says nothing of a training, or not when it was.
        """
        begin, end = _moment(self.summary.get("start")), _moment(self.summary.get("end"))
        for number, epoch in sorted(self.epochs.items(), key=_order):
            self._epoch(number, epoch)
        if begin is None and self.rows:
            begin = min(row[1] for row in self.rows)
            self.warnings.append("the summary has no start: it is counted from the first epoch")
        if end is None and self.rows:
            end = max([row[2] for row in self.rows] + [span.end for span in self.spans])
            self.warnings.append("the summary has no end: it is counted to the end of the last epoch")
        if begin is None or end is None or end <= begin:
            raise _unusable(Path(self.path), "it does not say when the run began and ended")
        if not self.busy and not self.rows:
            raise _unusable(Path(self.path), "it says nothing of a training")
        unknown = self._without_epochs(begin, end) if not self.rows else self._unknown()
        count = asked.devices or whole(self.summary.get("num_accelerators"))
        if count is None:
            self.warnings.append("num_accelerators is no number: 1 is counted; give it with --devices")
        opened = Open(
            wall_ns=begin, mono_ns=begin, run=title, attempt="a000", devices=count or 1,
            phases=("source",), rows="block",
        )  # fmt: skip
        self.warnings.append("the accelerators are simulated: their work is time slept, and only the data is real")
        if all(isinstance(value, str) and datetime.fromisoformat(value).tzinfo is None for value in self._written()):
            self.warnings.append("its times name no zone; they are read as UTC")
        cut = [(span.category, clip([(span.start, span.end)], begin, end)) for span in self.spans]
        events: list[AnyEvent] = [Span(category=name, start=a, end=b) for name, pairs in cut for a, b in pairs]
        events.append(Close(at=end, reason="finished"))
        process = Process(opened, tuple(events), self._columns(begin, end))
        return Run(title, MLPerfStorage.name, (process,), self.path, tuple(self.warnings), unknown)

    def _written(self) -> list[object]:
        return [value for value in (self.summary.get("start"), self.summary.get("end")) if _moment(value) is not None]

    def _columns(self, begin: int, end: int) -> Rows:
        columns = np.array(self.rows, np.int64).reshape(-1, 3)
        inside = (columns[:, 1] >= begin) & (columns[:, 2] <= end)
        if not inside.all():
            self.warnings.append(f"{int((~inside).sum())} blocks lie outside the run's start and end and are left out")
        step, start, stop = (columns[inside, place].copy() for place in range(3))
        return Rows(step, start, stop, {"source": np.array(self.waits, np.int64)[inside]})

    def _epoch(self, number: str, epoch: object) -> None:
        """Keep the blocks of an epoch, or it as a whole where it has none; and what is no training in it."""
        if not isinstance(epoch, dict) or not (number.isascii() and number.isdecimal() and 0 < len(number) < 10):
            self.warnings.append(f"{EPOCHS}: {clean(number, 40)} is no epoch, left out")
            return
        place = int(number) - 1
        busy = self.busy[place] if 0 <= place < len(self.busy) else None
        parts = {name: _interval(part) for name, part in epoch.items() if isinstance(part, dict)}
        for name, part in parts.items():
            if part is None:
                self.warnings.append(f"{EPOCHS}: {clean(name, 40)} of epoch {place + 1} has no start and end, left out")
        blocks = [part for name, part in parts.items() if name.startswith("block") and part is not None]
        kinds = {name: category for name in parts if (category := _KINDS.get(name.rstrip("0123456789")))}
        if not blocks and (busy is not None or not kinds) and (inside := _interval(epoch)) is not None:
            blocks = [inside]
        for start, end in blocks:
            self.rows.append((len(self.rows), start, end))
            self.waits.append(0 if busy is None else round((1 - busy) * (end - start)))
        for name, category in kinds.items():
            if (part := parts[name]) is not None:
                self.spans.append(Span(category=category, start=part[0], end=part[1]))

    def _without_epochs(self, begin: int, end: int) -> dict[str, str]:
        known = [share for share in self.busy if share is not None]
        mean = sum(known) / len(known) if known else None
        self.rows = [(0, begin, end)]
        self.waits = [0 if mean is None else round((1 - mean) * (end - begin))]
        why = f"{self.lacking}: utilisation was measured in the loops only, and when they ran is not known"
        self.warnings.append(f"{why}; the run counts as one step that waited its mean share")
        return {"R": why}

    def _unknown(self) -> dict[str, str]:
        if len(self.busy) < 1 or any(share is None for share in self.busy):
            why = f"{_AU} is not known for every epoch, and so is what they waited for data"
            self.warnings.append(why)
            return {"R": why}
        n_epochs = sum(number.isascii() and number.isdecimal() for number in self.epochs)
        if len(self.busy) != n_epochs:
            why = f"{_AU} is of {len(self.busy)} epochs and {EPOCHS} of {n_epochs}: which waited how long is not known"
            self.warnings.append(why)
            return {"R": why}
        self.warnings.append(
            "utilisation leaves out the first and last steps of each block: what those waited counts as work"
        )
        return {}


def _order(item: tuple[str, Any]) -> tuple[int, str]:
    return len(item[0]), item[0]
