"""Per-request times of vLLM's benchmark of conversations: a list of requests that were answered."""

from __future__ import annotations

import io
import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from headway.ledger.history import Served
from headway.sources.asked import Asked
from headway.sources.jsonwalk import Walk, decode
from headway.sources.servedfile import count, is_list, number, numbered, results
from headway.sources.text import Complaints, clean

_EACH: Final = ("*",)
_LACKING: Final = (
    "no whole request is in it",
    "Give the file that benchmark_serving_multi_turn.py --stats-json-output wrote, whole",
)
_ANSWERED: Final = "only answered requests are in it: how many failed is unknown, and shares are of the answered"


class VLLMTurns:
    """The source of ``--stats-json-output`` of vLLM's ``benchmark_serving_multi_turn.py``."""

    name = "vllmturns"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is none of its files, or None when it is one."""
        if not is_list(head):
            return "it does not begin with a list of objects of JSON"
        names = {place[-1] for place, _ in Walk(io.BytesIO(head), [(), _EACH]) if place}
        if {"ttft_ms", "latency_ms", "start_time_ms", "output_num_tokens"} <= names:
            return None
        return "it has no ttft_ms, latency_ms, start_time_ms and output_num_tokens"

    def load(self, path: Path, asked: Asked) -> list[Served]:
        """Return the requests of each list in a file."""
        shown = clean(str(path), 4096)
        found, faults = results(path, [()], [_EACH], lambda walk: _lists(walk, shown), _LACKING)
        titles = numbered([clean(path.name)] * len(found))
        return [
            requests.served(title, shown, asked.devices, faults if requests is found[-1] else [])
            for title, requests in zip(titles, found, strict=True)
        ]


class _Request(msgspec.Struct, gc=False):
    ttft_ms: Any = None
    tpot_ms: Any = None
    latency_ms: Any = None
    start_time_ms: Any = None
    output_num_tokens: Any = None
    output_num_first_chunk_tokens: Any = None


_READ: Final = msgspec.json.Decoder(_Request).decode


def _request(raw: bytes | None) -> _Request | None:
    """Return a request; None where it is none."""
    try:
        return _READ(raw or b"")
    except (ValueError, RecursionError):
        said = decode(raw)
        if not isinstance(said, dict):
            return None
        return _Request(**{name: said.get(name) for name in _Request.__struct_fields__})


@dataclass
class _Requests:
    """The requests of one list, as columns: times in milliseconds, as they are written."""

    where: str
    ttft: array[float] = field(default_factory=lambda: array("d"))
    tpot: array[float] = field(default_factory=lambda: array("d"))
    e2e: array[float] = field(default_factory=lambda: array("d"))
    began: array[float] = field(default_factory=lambda: array("d"))
    tokens: array[int] = field(default_factory=lambda: array("q"))
    n_whole: int = 0
    unread: Complaints = field(init=False)

    def __post_init__(self) -> None:
        self.unread = Complaints(self.where, "request")

    @property
    def is_one(self) -> bool:
        return len(self.tokens) > 0

    def add(self, raw: bytes | None) -> None:
        """Take one request; of one that was not streamed, the time to its first token is not known."""
        request = _request(raw)
        if request is None:
            self.unread.add("no object, so that nothing is known of it", len(self.tokens) + 1)
            request = _Request()
        is_whole = count(request.output_num_first_chunk_tokens) == 0
        tpot = number(request.tpot_ms)
        self.n_whole += is_whole
        self.ttft.append(math.nan if is_whole else number(request.ttft_ms))
        self.tpot.append(tpot if tpot > 0 else math.nan)  # 0 is written where all came at once
        self.e2e.append(number(request.latency_ms))
        self.began.append(number(request.start_time_ms))
        self.tokens.append(count(request.output_num_tokens))

    def served(self, title: str, shown: str, devices: int | None, faults: list[str]) -> Served:
        """Return the requests."""
        ttft, tpot, e2e, began = (np.array(times) / 1000 for times in (self.ttft, self.tpot, self.e2e, self.began))
        with np.errstate(all="ignore"):
            ended = began + e2e
        known = np.isfinite(ended)
        length_s = float(ended[known].max() - began[known].min()) if known.any() else math.nan
        warnings = [*faults, *self.unread.sentences(), f"{shown}: {_ANSWERED}"]
        if self.n_whole:
            warnings.append(f"{shown}: requests whose answer was not streamed have only e2e: {self.n_whole}")
        return Served(
            title, VLLMTurns.name, ttft, tpot, e2e, np.array(self.tokens, np.int64), np.ones(len(ttft), np.bool_),
            length_s if 0 < length_s < math.inf else None, devices, shown, warnings,
        )  # fmt: skip


def _lists(walk: Walk, shown: str) -> Iterator[_Requests]:
    """Yield the requests of each list where it ends; of the last, too, where the file ends before."""
    requests = _Requests(shown)
    for place, raw in walk:
        if place == _EACH:
            requests.add(raw)
        elif not place and raw == b"":
            yield requests
            requests = _Requests(shown)
    yield requests
