"""Reports of ``guidellm benchmark``: of each benchmark its requests, by how they ended."""

from __future__ import annotations

import io
import math
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.ledger.history import Served
from headway.ledger.serving import per_token
from headway.sources.asked import Asked
from headway.sources.jsonwalk import Walk, decode
from headway.sources.servedfile import count, no_object, number, numbered, results
from headway.sources.text import Complaints, clean

ENDS: Final = ("successful", "errored", "incomplete")
_EACH: Final = ("benchmarks", "*")
_REQUESTS: Final = (*_EACH, "requests")
_LISTS: Final = tuple((*_REQUESTS, end) for end in ENDS)
_OPENED: Final = ((), ("benchmarks",), _EACH, (*_EACH, "metrics"), _REQUESTS, *_LISTS)
_TOTALS: Final = ((*_EACH, "request_totals"), (*_EACH, "metrics", "request_totals"))
_SETTINGS: Final = ("config", "args", "scheduler")
_WINDOW: Final = "scheduler_metrics"
_STATED: Final = frozenset({*_SETTINGS, _WINDOW, "start_time", "end_time", "duration"})
_KEPT: Final = (*_TOTALS, *((*_EACH, name) for name in (*_SETTINGS, _WINDOW)), *((*path, "*") for path in _LISTS))
_MARK: Final = re.compile(
    rb'guidellm|"(?:generative|embeddings)_benchmark"|"request_totals"|"successful"', re.IGNORECASE
)
_LONGEST: Final = 1 << 20  # what is longer holds no name of a strategy
_LACKING: Final = (
    "there is no benchmark with requests in it",
    "Give the JSON that guidellm benchmark --output-path wrote, whole",
)
_CSV: Final = "it is the CSV of a report of GuideLLM, which has no single requests: give its benchmarks.json"
_AGAIN: Final = "run it again as `guidellm benchmark ... --output-path benchmarks.json`, without a limit of samples"


class GuideLLM:
    """The source of reports of ``guidellm benchmark``."""

    name = "guidellm"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no report of it, or None when it is one."""
        if reason := no_object(head):
            return _CSV if head.lstrip(b"\xef\xbb\xbf").startswith(b"Run Info,") else reason
        walk = Walk(io.BytesIO(head), [(), ("benchmarks",), _EACH])
        is_listed = any(place[:1] == ("benchmarks",) for place, _ in walk) or walk.inside[:1] == ("benchmarks",)
        if b'"guidellm_version"' in head or (is_listed and _MARK.search(head)):
            return None
        if is_listed and b'"concurrencies"' in head:
            return "it is a report of GuideLLM 0.1: give one of 0.2 or later"
        return "it has no benchmarks of guidellm"

    def load(self, path: Path, asked: Asked) -> list[Served]:
        """Return the requests of each benchmark of a report."""
        shown = clean(str(path), 4096)
        found, faults = results(path, _OPENED, _KEPT, lambda walk: _benchmarks(walk, shown), _LACKING)
        titles = numbered([benchmark.name or clean(path.name) for benchmark in found])
        return [
            benchmark.served(title, path, asked.devices, faults if benchmark is found[-1] else [])
            for title, benchmark in zip(titles, found, strict=True)
        ]


_NOTHING: Final = msgspec.Raw(b"null")
_LATER: Final = ("output", "output_metrics")


class _Timings(msgspec.Struct, gc=False):
    request_start: Any = None
    first_token_iteration: Any = None
    first_iteration: Any = None
    request_end: Any = None
    resolve_end: Any = None


class _Info(msgspec.Struct, gc=False):
    timings: _Timings | None = None


class _Request(msgspec.Struct):
    """What one request says of itself, in the words of several versions; all else is passed over.

    What is large, or looked at only where something lacks, is left as it is written.
    """

    request_latency: Any = None
    time_to_first_token_ms: Any = None
    inter_token_latency_ms: Any = None
    output: msgspec.Raw = _NOTHING
    output_tokens: Any = None
    output_metrics: msgspec.Raw = _NOTHING
    start_time: Any = None
    end_time: Any = None
    request_start_time: Any = None
    request_end_time: Any = None
    first_token_time: Any = None
    info: _Info | None = None


_READ: Final = msgspec.json.Decoder(_Request)


def _request(raw: bytes | None) -> _Request | None:
    """Return a request; None where it is none."""
    try:
        return _READ.decode(raw or b"")
    except (ValueError, RecursionError):
        said = decode(raw)
        if not isinstance(said, dict):
            return None
        values: dict[str, Any] = {name: said.get(name) for name in _Request.__struct_fields__}
        timings = {name: _within(values["info"], "timings", name) for name in _Timings.__struct_fields__}
        values["info"] = _Info(_Timings(**timings))
        return _Request(**values | {name: msgspec.Raw(_encode(values[name])) for name in _LATER})


def _encode(value: Any) -> bytes:
    """Return a value as JSON again, what is no number of it as none."""
    try:
        return msgspec.json.encode(value)
    except (ValueError, RecursionError):
        return b"null"


def _within(value: Any, *names: str) -> Any:
    """Return what lies under these names; None where nothing does."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _first(*values: Any) -> float:
    """Return the first that is a number; NaN where none is."""
    for value in values:
        if not math.isnan(amount := number(value)):
            return amount
    return math.nan


@dataclass
class _Benchmark:
    """One benchmark: what it states, and its requests as columns."""

    where: str
    stated: dict[str, Any] = field(default_factory=dict)
    totals: dict[tuple[str, ...], Any] = field(default_factory=dict)
    ttft_s: array[float] = field(default_factory=lambda: array("d"))
    tpot_s: array[float] = field(default_factory=lambda: array("d"))
    e2e_s: array[float] = field(default_factory=lambda: array("d"))
    tokens: array[int] = field(default_factory=lambda: array("q"))
    began: array[float] = field(default_factory=lambda: array("d"))
    ended: array[float] = field(default_factory=lambda: array("d"))
    ends: bytearray = field(default_factory=bytearray)
    unread: Complaints = field(init=False)

    def __post_init__(self) -> None:
        self.unread = Complaints(self.where, "request")

    @property
    def is_one(self) -> bool:
        return bool(self.ends or self.totals)

    @property
    def stated_counts(self) -> dict[str, int]:
        """How many requests of each end there were, as the file says."""
        found = (self.totals.get(path) for path in _TOTALS)
        totals: dict[str, Any] = next((said for said in found if isinstance(said, dict)), {})
        return {end: n for end in ENDS if (n := count(totals.get(end))) >= 0}

    @cached_property
    def inside(self) -> NDArray[np.bool_]:
        """Which requests are those that the benchmark measured, and not of its warm-up or cool-down alone.

        Measured is what ended after the window began, and began before it ended; what does not say when it was, too.
        """
        begin, end = (number(_within(self.stated.get(_WINDOW), f"measure_{side}_time")) for side in ("start", "end"))
        began, ended = np.array(self.began, np.float64), np.array(self.ended, np.float64)
        if not begin < end:
            return np.ones(len(began), np.bool_)
        return ~((ended < begin) | (np.where(np.isnan(began), ended, began) > end))

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many requests of each end are among the measured."""
        return _counts(np.frombuffer(bytes(self.ends), np.uint8)[self.inside])

    @property
    def is_other(self) -> bool:
        """Whether the requests are not those that the file counts: of the measured, or, as of embeddings, of all."""
        every = _counts(np.frombuffer(bytes(self.ends), np.uint8))
        return all(any(n != counts[end] for end, n in self.stated_counts.items()) for counts in (self.counts, every))

    @property
    def name(self) -> str:
        """The strategy, and its rate or streams."""
        found = (_within(self.stated.get(key), "strategy") for key in _SETTINGS)
        strategy = next((said for said in found if isinstance(said, dict | str)), {})
        if isinstance(strategy, str):
            return clean(strategy)
        kind = next((said for key in ("type_", "kind") if isinstance(said := strategy.get(key), str)), "")
        rate = _first(*(strategy.get(key) for key in ("rate", "streams", "max_concurrency")))
        return clean(kind + (f"@{rate:g}" if kind and math.isfinite(rate) else ""))

    def add(self, end: str, raw: bytes | None) -> None:
        """Take one request."""
        request = _request(raw)
        if request is None:
            self.unread.add("no object, so that nothing is known of it", len(self.ends) + 1)
        known = _Request() if request is None or end == "incomplete" else request
        ttft_s, e2e_s, tpot_s = _ms(known.time_to_first_token_ms), number(known.request_latency), math.nan
        tokens = _tokens(known)
        if tokens not in {0, 1}:
            tpot_s = _ms(known.inter_token_latency_ms)
        began, first, ended = _moments(request or known)
        if end != "incomplete":
            ttft_s = first - began if math.isnan(ttft_s) else ttft_s
            e2e_s = ended - began if math.isnan(e2e_s) else e2e_s
        if tokens < 0 and math.isnan(ttft_s) and bytes(known.output) == b'""':
            tokens = 0
        self.ttft_s.append(ttft_s)
        self.tpot_s.append(tpot_s)
        self.e2e_s.append(e2e_s)
        self.tokens.append(tokens)
        self.began.append(began)
        self.ended.append(ended)
        self.ends.append(ENDS.index(end))

    @property
    def ok(self) -> NDArray[np.bool_]:
        return np.asarray(np.frombuffer(bytes(self.ends), np.uint8) != ENDS.index("errored"), np.bool_)

    def served(self, title: str, path: Path, devices: int | None, faults: list[str]) -> Served:
        ttft_s, e2e_s, tpot_s = (np.array(times)[self.inside] for times in (self.ttft_s, self.e2e_s, self.tpot_s))
        tokens = np.array(self.tokens, np.int64)[self.inside]
        begin, end = number(self.stated.get("start_time")), number(self.stated.get("end_time"))
        length_s = _first(self.stated.get("duration"), end - begin)
        return Served(
            title,
            "guidellm",
            ttft_s,
            np.where(np.isnan(tpot_s), per_token(ttft_s, e2e_s, tokens), tpot_s),
            e2e_s,
            tokens,
            self.ok[self.inside],
            length_s if math.isfinite(length_s) and length_s > 0 and not self.is_other else None,
            devices,
            clean(str(path), 4096),
            [*faults, *self.unread.sentences(), *self._doubts(title)],
            n_cut=self.counts["incomplete"],
        )

    def _doubts(self, title: str) -> Iterator[str]:
        """Yield what a reader must know of the numbers, a sentence each."""
        if cut := self.counts["incomplete"]:
            yield f"{title}: whether requests that the end of the test cut were good is unknown: {cut}"
        if around := int(np.count_nonzero(~self.inside)):
            yield f"{title}: requests of the warm-up and cool-down, which its window leaves out, are left out: {around}"
        none = int(np.count_nonzero(self.ok & self.inside & (np.array(self.tokens, np.int64) == 0)))
        if none:
            whole = self.counts["successful"]
            yield f"{title} states {whole} successful; with a token: {whole - none}; without, so failed: {none}"
        if self.is_other:
            stated = self.stated_counts
            listed = ", ".join(f"{n} {end}" for end, n in stated.items())
            here = ", ".join(f"{self.counts[end]}" for end in stated)
            is_more = any(self.counts[end] > n for end, n in stated.items())
            what = "not the same requests, so that" if is_more else "the shares are those of a sample, and"
            yield f"{title} states {listed}, and holds {here} of them: {what} no rate is known; {_AGAIN}"


def _counts(ends: NDArray[np.uint8]) -> dict[str, int]:
    """Return how many requests of each end there are."""
    return dict(zip(ENDS, np.bincount(ends, minlength=len(ENDS)).tolist(), strict=True))


def _moments(request: _Request) -> tuple[float, float, float]:
    """Return when it was sent, its first token came, and it ended; NaN where it does not say."""
    timings = (request.info and request.info.timings) or _Timings()
    return (
        _first(request.start_time, request.request_start_time, timings.request_start),
        _first(request.first_token_time, timings.first_token_iteration, timings.first_iteration),
        _first(request.end_time, request.request_end_time, timings.request_end, timings.resolve_end),
    )


def _ms(value: Any) -> float:
    return number(value) / 1000


def _tokens(request: _Request) -> int:
    """Return how many tokens were put out; -1 where it does not say."""
    tokens = count(request.output_tokens)
    if tokens < 0:
        said = decode(bytes(request.output_metrics))
        found = (count(_within(said, name)) for name in ("total_tokens", "text_tokens"))
        tokens = next((n for n in found if n >= 0), -1)
    return tokens


def _benchmarks(walk: Walk, shown: str) -> Iterator[_Benchmark]:
    """Yield each benchmark where it ends; the last, too, where the file ends before."""
    benchmark = _Benchmark(shown)
    for place, raw in walk:
        if place == _EACH and raw == b"":
            yield benchmark
            benchmark = _Benchmark(shown)
        elif place[:-1] in _LISTS:
            benchmark.add(place[-2], raw)
        elif place in _TOTALS:
            benchmark.totals[place] = decode(raw)
        elif place[:-1] == _EACH and place[-1] in _STATED and raw and len(raw) < _LONGEST:
            benchmark.stated[place[-1]] = decode(raw)
    yield benchmark
