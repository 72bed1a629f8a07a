"""Results of ``vllm bench serve``, and of the tools that write the same: a list a quantity, an element a request."""

from __future__ import annotations

import io
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from headway.ledger.history import Served
from headway.ledger.serving import per_token
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.jsonwalk import Path as Place
from headway.sources.jsonwalk import Walk, decode
from headway.sources.servedfile import count, is_list, no_object, number, numbered, results
from headway.sources.text import clean
from headway.units import show_seconds

TIMES: Final = ("ttfts", "latencies", "queue_times")
COUNTS: Final = ("input_lens", "output_lens")
TEXTS: Final = ("errors", "generated_texts")
MAX_STATED: Final = 1_000_000
"""So many requests without times are counted at most: a number in a file costs no memory."""
_COLUMNS: Final = (*TIMES, *COUNTS, *TEXTS, "itls")
_JUDGED: Final = frozenset({"ttfts", "latencies", "itls", "output_lens"})
_TOTALS: Final = frozenset({"request_throughput", "total_input_tokens", "total_output_tokens", "burstiness", *_COLUMNS})
_NAMES: Final = ("model_id", "model", "tokenizer_id", "label", "backend")
_GOODPUTS: Final = ("request_goodput", "request_goodput:")  # some versions write the colon
_QUANTILES: Final = {
    f"{key}_{name}_ms": f"{title} {key}"
    for name, title in (("ttft", "ttft"), ("tpot", "tpot"), ("e2el", "e2e"), ("e2e_latency", "e2e"))
    for key in ("median", "p90", "p99")
}
_LOAD: Final = ("request_rate", "max_concurrency")
_SGLANG: Final = "total_output_tokens_retokenized"
"""A key of SGLang's results alone: their ``backend`` is the server's."""
_OUTPUT: Final = frozenset({"total_output_tokens", "output_throughput"})
_ALL_TOKENS: Final = "total_token_throughput"
"""What every result states; one of a pooling task does without `_OUTPUT`."""
_STATED: Final = frozenset(
    {
        _SGLANG,
        _ALL_TOKENS,
        *_OUTPUT,
        *_LOAD,
        "completed",
        "failed",
        "duration",
        "num_prompts",
        *_NAMES,
        *_GOODPUTS,
        *_QUANTILES,
    }
)
_OPENED: Final = ((), *((name,) for name in _COLUMNS))
_KEPT: Final = (("itls", "*"),)
_WITHOUT_SERVER: Final = {
    "latency": {"avg_latency", "latencies"},
    "throughput": {"elapsed_time", "num_requests", "requests_per_second"},
}
"""What the results of vLLM's other benchmarks have."""
_LACKING: Final = (
    "no whole value in it is of a result of vllm bench serve",
    "Give the file that --save-result wrote, whole",
)
_AGAIN: Final = "run it again as `vllm bench serve ... --save-result --save-detailed`"
_AGAIN_SGLANG: Final = "run it again as `python -m sglang.bench_serving ... --output-details`"


class VLLMBench:
    """The source of results of ``vllm bench serve``."""

    name = "vllmbench"

    def recognise(self, path: Path, head: bytes) -> str | None:
        """Return why the path is no result of it, or None when it is one."""
        root = _root(head)
        if (reason := no_object(head)) and not root:
            return reason
        walk = Walk(io.BytesIO(head), [(), *((*root, *place) for place in _OPENED)])
        names = {place[len(root)] for place, _ in walk if len(place) > len(root)}
        if ({"completed", "duration"} <= names and names & _TOTALS) or names & {"ttfts", "itls"}:
            return None
        for kind, keys in _WITHOUT_SERVER.items():
            if keys <= names:
                return f"it is a result of vllm bench {kind}, which asks no server: there are no requests to judge"
        return "it has no completed and duration beside a throughput, and no ttfts"

    def load(self, path: Path, asked: Asked) -> list[Served]:
        """Return the requests of each result in a file: several one after the other, or in a list."""
        root = _root(files.head(path))
        opened, kept = ([(*root, *place) for place in some] for some in (_OPENED, _KEPT))
        found, faults = results(path, [(), *opened], kept, lambda walk: _results(walk, root), _LACKING)
        names = [", ".join([result.name or clean(path.name), *result.load]) for result in found]
        return [
            _served(title, path, result, asked.devices, faults if result is found[-1] else ())
            for title, result in zip(numbered(names), found, strict=True)
        ]

    def load_together(self, paths: Sequence[Path], asked: Asked) -> list[Served]:
        """Return the requests of each result in files of one folder; one that a list of them has too counts once."""
        listed = {path for path in paths if _root(files.head(path))}
        found = [(path, served, _told(served)) for path in paths for served in self.load(path, asked)]
        own = {told: served.path for path, served, told in found if path not in listed}
        again = {own[told]: served.path for path, served, told in found if path in listed and told in own}
        kept = [served for path, served, told in found if path not in listed or told not in own]
        return [_and_said(served, again.get(served.path)) for served in kept]


def _and_said(served: Served, listed: str | None) -> Served:
    if listed is None:
        return served
    return replace(served, warnings=(*served.warnings, f"left out, as it lists the same result: {listed}"))


_ROOTS: Final[dict[bool, Place]] = {False: (), True: ("*",)}


def _root(head: bytes) -> Place:
    """Return where the results of a file lie: each by itself, or as the elements of a list."""
    return _ROOTS[is_list(head)]


def _told(served: Served) -> bytes:
    """Return a digest of what a result says of its requests, to compare it with that of another file."""
    told = blake2b(repr(served.duration_s).encode())
    for column in (served.ttft_s, served.e2e_s, served.tokens, served.ok):
        told.update(np.ascontiguousarray(column).data)
    return told.digest()


@dataclass
class _Result:
    """One result: what it states, and its columns as far as they are there."""

    stated: dict[str, Any] = field(default_factory=dict)
    times: dict[str, array[float]] = field(default_factory=dict)
    counts: dict[str, array[int]] = field(default_factory=dict)
    texts: dict[str, bytearray] = field(default_factory=dict)
    between: array[float] = field(default_factory=lambda: array("d"))
    chunks: array[int] = field(default_factory=lambda: array("q"))

    @property
    def columns(self) -> dict[str, int]:
        """How many elements each list has, of those that have any."""
        sizes = {name: len(times) for name, times in self.times.items()}
        sizes |= {name: len(counts) for name, counts in self.counts.items()}
        sizes |= {name: len(texts) for name, texts in self.texts.items()}
        return sizes | ({"itls": len(self.between)} if self.between else {})

    @property
    def is_one(self) -> bool:
        return not _JUDGED.isdisjoint(self.columns) or {"completed", "duration"} <= self.stated.keys()

    @property
    def name(self) -> str:
        said = (self.stated.get(name) for name in _NAMES)
        return next((clean(text) for text in said if isinstance(text, str) and clean(text)), "")

    @property
    def load(self) -> list[str]:
        """At which rate requests came, and how many were under way at most, where either had a limit."""
        rate, most = (number(self.stated.get(name)) for name in _LOAD)
        return [f"{rate:g}/s"] * (0 < rate < math.inf) + [f"{most:g} at once"] * (0 < most < math.inf)

    def add(self, name: str, raw: bytes | None) -> None:
        """Take one element of a list."""
        if name == "itls":
            gaps_s = _gaps(raw)
            self.between.append(math.nan if gaps_s is None or (gaps_s and min(gaps_s) < 0) else sum(gaps_s))
            self.chunks.append(-1 if gaps_s is None else len(gaps_s))
        elif name in TIMES:
            self.times.setdefault(name, array("d")).append(number(decode(raw)))
        elif name in COUNTS:
            self.counts.setdefault(name, array("q")).append(count(decode(raw)))
        else:
            self.texts.setdefault(name, bytearray()).append(raw not in {b'""', b"null"})


def _gaps(raw: bytes | None) -> list[float] | None:
    """Return the times between the tokens of a request [s]; None where they are no list."""
    try:
        return msgspec.json.decode(raw or b"", type=list[float])
    except (ValueError, RecursionError):
        gaps = decode(raw)
        return [number(gap) for gap in gaps] if isinstance(gaps, list) else None


def _results(walk: Walk, root: Place) -> Iterator[_Result]:
    result = _Result()
    depth = len(root)
    for place, raw in walk:
        if raw == b"":
            if place == root:
                yield result
                result = _Result()
        elif len(place) == depth + 2:
            result.add(place[depth], raw)
        elif len(place) == depth + 1 and place[depth] in _STATED and raw is not None and len(raw) < 4096:
            result.stated[place[depth]] = decode(raw)
    yield result


def _served(title: str, path: Path, result: _Result, devices: int | None, faults: Any) -> Served:
    shown = clean(str(path), 4096)
    columns = _Columns(result)
    if not result.columns:
        columns = _Columns(_stated(result))
    length_s = number(result.stated.get("duration"))
    warnings = [*faults, *_doubts(result, columns, shown)]
    ttft_s, e2e_s = columns.ttft_s(), columns.e2e_s()
    tokens = columns.tokens()
    return Served(
        title,
        "vllmbench",
        ttft_s,
        per_token(ttft_s, e2e_s, tokens),
        e2e_s,
        tokens,
        columns.ok(),
        length_s if math.isfinite(length_s) and length_s > 0 else None,
        devices,
        shown,
        warnings,
    )


def _stated(result: _Result) -> _Result:
    """Return a result of the requests that one without lists says there were: of each only whether it failed."""
    completed, failed = (max(count(result.stated.get(name)), 0) for name in ("completed", "failed"))
    if completed + failed > MAX_STATED:
        return _Result()
    return _Result(texts={"errors": bytearray(completed) + bytearray(b"\1") * failed})


class _Columns:
    """The columns of a result, each as long as the longest."""

    def __init__(self, result: _Result) -> None:
        self.n = max(result.columns.values(), default=0)
        self._result = result

    def _times(self, values: array[float] | None) -> NDArray[np.float64]:
        column = np.full(self.n, np.nan)
        column[: len(values or ())] = values or ()
        return column

    def _whole(self, values: array[int] | None) -> NDArray[np.int64]:
        column = np.full(self.n, -1, np.int64)
        column[: len(values or ())] = values or ()
        return column

    def _said(self, name: str) -> NDArray[np.bool_]:
        """Whether a text is there that is not empty; where the list has no element, neither this nor its opposite."""
        column = np.zeros(self.n, np.bool_)
        texts = self._result.texts.get(name, b"")
        column[: len(texts)] = np.frombuffer(bytes(texts), np.bool_)
        return column

    def ok(self) -> NDArray[np.bool_]:
        return ~self._said("errors")

    def ttft_s(self) -> NDArray[np.float64]:
        """The time to the first token; 0 is written where none came."""
        column = self._times(self._result.times.get("ttfts"))
        return np.where(column == 0, np.nan, column)

    def e2e_s(self) -> NDArray[np.float64]:
        """The latency where it is written, else the first token's time and all between the tokens."""
        latency = self._times(self._result.times.get("latencies"))
        with np.errstate(all="ignore"):
            added = self.ttft_s() + self._times(self._result.between)
        return np.where(latency > 0, latency, added)

    def tokens(self) -> NDArray[np.int64]:
        """Output tokens: 0, too, where nothing came, not even a text, whatever length is written.

        A tool that has no tokenizer writes 1 for every request, and one that trusts the server what that says.
        """
        tokens = self._whole(self._result.counts.get("output_lens"))
        texts = self._result.texts.get("generated_texts", b"")
        empty = ~self._said("generated_texts")
        empty[len(texts) :] = False
        return np.where(empty & self.is_untimed(), 0, tokens)

    def is_untimed(self) -> NDArray[np.bool_]:
        """Whether a request has neither a time to its first token nor one between tokens."""
        untimed = self._times(self._result.times.get("ttfts")) == 0
        return np.asarray(untimed & (self._whole(self._result.chunks) == 0), np.bool_)


def _doubts(result: _Result, columns: _Columns, shown: str) -> Iterator[str]:
    """Yield what a reader must know of the numbers, a sentence each."""
    stated, sizes = result.stated, result.columns
    is_detailed = not {"ttfts", "itls", "output_lens"}.isdisjoint(sizes)
    if not is_detailed and _ALL_TOKENS in stated and _OUTPUT.isdisjoint(stated):
        yield from _pooling(result, shown)
    elif not is_detailed:
        said = ", ".join(_percentiles(stated))
        only = "no times of single requests, so that attainment is unknown"
        if "latencies" in sizes:
            only = "of single requests only the latency, so that ttft and tpot are unknown"
        again = _AGAIN_SGLANG if _SGLANG in stated else _AGAIN
        yield f"{shown} has {only}: {again}{f'; it states {said}' if said else ''}"
    waits = [wait for wait in result.times.get("queue_times", ()) if 0 < wait < math.inf]
    if waits and math.isfinite(number(stated.get("request_rate"))):  # else no request came at a time of its own
        yield (
            f"{shown}: requests that the benchmark held back for --max-concurrency before it sent them: {len(waits)}, "
            f"up to {show_seconds(max(waits))}; ttft and e2e are without it"
        )
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} {size}" for name, size in sorted(sizes.items()))
        yield f"{shown}: its lists differ in length ({listed}); what a request lacks is unknown"
    if is_detailed:
        yield from _answers(stated, columns, shown)
    elif not columns.n and count(stated.get("completed")) > MAX_STATED:
        yield f"{shown} states {_shown(stated['completed'])} completed; without their times they are not counted here"
    prompts = count(stated.get("num_prompts"))
    if sizes and prompts not in {-1, columns.n}:
        yield f"{shown} states {prompts} prompts, and has {columns.n} requests"
    if sizes and "errors" not in sizes and count(stated.get("failed")) > 0:
        yield f"{shown} states {_shown(stated['failed'])} failed, and not which: it has no errors"


def _pooling(result: _Result, shown: str) -> Iterator[str]:
    """Yield what a result of a model that puts out no tokens can tell."""
    what = f"{shown} is of a pooling task, such as embeddings or rerank, which puts out no tokens"
    if "latencies" in result.times:
        yield f"{what}: only e2e can be a target"
        return
    said = ", ".join(_percentiles(result.stated))
    yield (
        f"{what}, and has no times of single requests, so that attainment is unknown: run it again with "
        f"--save-detailed and a version of vLLM that then writes latencies{f'; it states {said}' if said else ''}"
    )


def _answers(stated: Mapping[str, Any], columns: _Columns, shown: str) -> Iterator[str]:
    """Yield how many requests were answered, where that is another number than the stated one."""
    tokens, ok = columns.tokens(), columns.ok()
    answered, none = (int(np.count_nonzero(ok & mask)) for mask in (tokens != 0, tokens == 0))
    if "completed" in stated and count(stated["completed"]) != answered:
        why = f"; without an error and without a token, so failed: {none}" if none else ""
        said = f"{shown} states {_shown(stated['completed'])} completed"
        yield f"{said}; {answered} of its {columns.n} requests were answered{why}"
    untimed = int(np.count_nonzero(ok & (tokens > 0) & columns.is_untimed()))
    if untimed:
        yield f"{shown}: requests with tokens and no time to the first: {untimed}; was the answer streamed?"


def _shown(value: object) -> str:
    return clean(str(value), 40) if isinstance(value, int | float | str) else "no number"


def _percentiles(stated: Mapping[str, Any]) -> Iterator[str]:
    """Yield the percentiles that a result states of each time."""
    for name, words in _QUANTILES.items():
        time_s = number(stated.get(name)) / 1000
        if math.isfinite(time_s) and time_s >= 0:
            yield f"{words} {show_seconds(time_s)}"
    goodput = next((rate for name in _GOODPUTS if math.isfinite(rate := number(stated.get(name)))), None)
    if goodput is not None:
        yield f"a request goodput of {goodput:.3g} requests/s for targets it does not name"
