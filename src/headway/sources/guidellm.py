"""Reports of ``guidellm benchmark``: of each benchmark its requests, by how they ended."""

from __future__ import annotations

import io
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from headway.ledger.history import Served
from headway.ledger.serving import per_token
from headway.sources.asked import Asked
from headway.sources.jsonwalk import Walk, decode
from headway.sources.servedfile import count, no_object, number, results
from headway.sources.text import Complaints, clean

ENDS: Final = ("successful", "errored", "incomplete")
_EACH: Final = ("benchmarks", "*")
_REQUESTS: Final = (*_EACH, "requests")
_LISTS: Final = tuple((*_REQUESTS, end) for end in ENDS)
_OPENED: Final = ((), ("benchmarks",), _EACH, (*_EACH, "metrics"), _REQUESTS, *_LISTS)
_TOTALS: Final = ((*_EACH, "request_totals"), (*_EACH, "metrics", "request_totals"))
_SETTINGS: Final = ("config", "args", "scheduler")
_STATED: Final = frozenset({*_SETTINGS, "start_time", "end_time", "duration"})
_KEPT: Final = (*_TOTALS, *((*_EACH, name) for name in _SETTINGS), *((*path, "*") for path in _LISTS))
_MARK: Final = re.compile(
    rb'guidellm|"(?:generative|embeddings)_benchmark"|"request_totals"|"successful"', re.IGNORECASE
)
_LONGEST: Final = 1 << 20  # what is longer holds no name of a strategy
_LACKING: Final = (
    "there is no benchmark with requests in it",
    "Give the JSON that guidellm benchmark --output-path wrote, whole",
)
_AGAIN: Final = "run it again as `guidellm benchmark ... --output-path benchmarks.json`, without a limit of samples"


class GuideLLM:
    """The source of reports of ``guidellm benchmark``."""

    name = "guidellm"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no report of it, or None when it is one."""
        if reason := no_object(head):
            return reason
        walk = Walk(io.BytesIO(head), [(), ("benchmarks",), _EACH])
        is_listed = any(place[:1] == ("benchmarks",) for place, _ in walk) or walk.inside[:1] == ("benchmarks",)
        if b'"guidellm_version"' in head or (is_listed and _MARK.search(head)):
            return None
        return "it has no benchmarks of guidellm"

    def load(self, path: Path, asked: Asked) -> list[Served]:
        """Return the requests of each benchmark of a report."""
        shown = clean(str(path), 4096)
        found, faults = results(path, _OPENED, _KEPT, lambda walk: _benchmarks(walk, shown), _LACKING)
        names = [benchmark.name or path.name for benchmark in found]
        uses = Counter(names)
        return [
            benchmark.served(
                name if uses[name] == 1 else f"{name} #{place}",
                path,
                asked.devices,
                faults if benchmark is found[-1] else [],
            )
            for place, (name, benchmark) in enumerate(zip(names, found, strict=True), 1)
        ]


_NOTHING: Final = msgspec.Raw(b"null")
_FIRST: Final = ("first_token_iteration", "first_iteration")
_LATER: Final = ("output", "output_metrics", "info")


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
    first_token_time: Any = None
    info: msgspec.Raw = _NOTHING


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
    return next((amount for amount in map(number, values) if not math.isnan(amount)), math.nan)


@dataclass
class _Benchmark:
    """One benchmark: what it states, and its requests as columns."""

    where: str
    stated: dict[str, Any] = field(default_factory=dict)
    totals: dict[tuple[str, ...], Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    ttft_s: array[float] = field(default_factory=lambda: array("d"))
    tpot_s: array[float] = field(default_factory=lambda: array("d"))
    e2e_s: array[float] = field(default_factory=lambda: array("d"))
    tokens: array[int] = field(default_factory=lambda: array("q"))
    ok: bytearray = field(default_factory=bytearray)
    unread: Complaints = field(init=False)

    def __post_init__(self) -> None:
        self.unread = Complaints(self.where, "request")

    @property
    def is_one(self) -> bool:
        return bool(self.counts or self.totals)

    @property
    def stated_counts(self) -> dict[str, int]:
        """How many requests of each end there were, as the file says."""
        found = (self.totals.get(path) for path in _TOTALS)
        totals: dict[str, Any] = next((said for said in found if isinstance(said, dict)), {})
        return {end: n for end in ENDS if (n := count(totals.get(end))) >= 0}

    @property
    def is_sample(self) -> bool:
        """Whether the requests are not those that the file counts."""
        return any(n != self.counts.get(end, 0) for end, n in self.stated_counts.items())

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
        self.counts[end] = self.counts.get(end, 0) + 1
        request = _request(raw)
        if request is None:
            self.unread.add("no object, so that nothing is known of it", len(self.ok) + 1)
        known = _Request() if request is None or end == "incomplete" else request
        ttft_s, e2e_s, tpot_s = _ms(known.time_to_first_token_ms), number(known.request_latency), math.nan
        tokens = _tokens(known)
        if tokens not in {0, 1}:
            tpot_s = _ms(known.inter_token_latency_ms)
        if math.isnan(ttft_s) or math.isnan(e2e_s):
            begin, first, finish = _moments(known)
            ttft_s = first - begin if math.isnan(ttft_s) else ttft_s
            e2e_s = finish - begin if math.isnan(e2e_s) else e2e_s
            if tokens < 0 and math.isnan(ttft_s) and bytes(known.output) == b'""':
                tokens = 0
        self.ttft_s.append(ttft_s)
        self.tpot_s.append(tpot_s)
        self.e2e_s.append(e2e_s)
        self.tokens.append(tokens)
        self.ok.append(end != "errored")

    def served(self, title: str, path: Path, devices: int | None, faults: list[str]) -> Served:
        ttft_s, e2e_s = np.array(self.ttft_s, np.float64), np.array(self.e2e_s, np.float64)
        tokens = np.array(self.tokens, np.int64)
        tpot_s = np.array(self.tpot_s, np.float64)
        begin, end = number(self.stated.get("start_time")), number(self.stated.get("end_time"))
        length_s = _first(self.stated.get("duration"), end - begin)
        return Served(
            title,
            "guidellm",
            ttft_s,
            np.where(np.isnan(tpot_s), per_token(ttft_s, e2e_s, tokens), tpot_s),
            e2e_s,
            tokens,
            np.frombuffer(bytes(self.ok), np.bool_),
            length_s if math.isfinite(length_s) and length_s > 0 and not self.is_sample else None,
            devices,
            clean(str(path), 4096),
            [*faults, *self.unread.sentences(), *self._doubts(title)],
            n_cut=self.counts.get("incomplete", 0),
        )

    def _doubts(self, title: str) -> Iterator[str]:
        """Yield what a reader must know of the numbers, a sentence each."""
        cut = self.counts.get("incomplete", 0)
        if cut:
            yield f"{title}: whether requests that the end of the test cut were good is unknown: {cut}"
        tokens, ok = np.array(self.tokens), np.frombuffer(bytes(self.ok), np.bool_)
        none = int(np.count_nonzero(ok & (tokens == 0))) if len(ok) else 0
        if none:
            whole = self.counts.get("successful", 0)
            yield f"{title} states {whole} successful; with a token: {whole - none}; without, so failed: {none}"
        stated = self.stated_counts
        if self.is_sample:
            listed = ", ".join(f"{n} {end}" for end, n in stated.items())
            here = ", ".join(f"{self.counts.get(end, 0)}" for end in stated)
            yield (
                f"{title} states {listed}, and holds {here} of them: the shares are those of a sample, "
                f"and no rate is known; {_AGAIN}"
            )


def _moments(request: _Request) -> tuple[float, float, float]:
    """Return when it was sent, its first token came, and it ended; NaN where it does not say."""
    timings = _within(decode(bytes(request.info)), "timings")
    return (
        _first(request.start_time, _within(timings, "request_start")),
        _first(request.first_token_time, *(_within(timings, name) for name in _FIRST)),
        _first(request.end_time, _within(timings, "request_end")),
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
