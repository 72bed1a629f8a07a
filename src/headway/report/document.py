"""The JSON form of a report, schema 1. Keys may be added; those that are there keep their meaning."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from headway.clock import NS_PER_S
from headway.ledger.history import Served
from headway.ledger.ledger import Ledger
from headway.report.advice import advise
from headway.report.endings import endings
from headway.report.entry import Entry, Options, groups, kind, shown_by, split, total
from headway.report.straggler import compare_ranks
from headway.units import Price

SCHEMA: Final = 1
_PLAIN: Final = Options()


def dump(
    entries: Sequence[Entry],
    options: Options = _PLAIN,
    served: Sequence[Served] = (),
    targets: Mapping[str, float] | None = None,
) -> str:
    """Return the report as one line of strict JSON, ASCII only.

    Args:
        entries: The runs, in the order they are shown.
        options: What is added to each.
        served: Requests that were served; theirs is the key ``serving``, where there are some.
        targets: What a request must keep, by name [s]; None: nothing was asked.

    Example:
        >>> text = dump([Entry("r1", "native", Ledger({"productive": 10**9}, held_ns=10**9))])
        >>> json.loads(text)["runs"][0]["categories_s"]
        {'productive': 1.0}
    """
    document = build(entries, options)
    if served:
        from headway.report.serving import serving_document

        document["serving"] = [serving_document(one, targets) for one in served]
    return json.dumps(document, allow_nan=False)


_TOTALS: Final = {"run": "total", "trace": "total_of_traces", "pool": "total_of_pools"}


def build(entries: Sequence[Entry], options: Options = _PLAIN) -> dict[str, Any]:
    """Return the report as plain dicts and lists; times are device-seconds, not rounded."""
    document: dict[str, Any] = {"schema": SCHEMA, "runs": [_run(entry, options) for entry in entries]}
    for group in groups(entries):
        if len(group) > 1:
            ledger = total(group)
            document[_TOTALS[kind(group[0])]] = {
                **_figures(ledger),
                "steps": _steps(ledger),
                "inferred": sorted(ledger.inferred),
                **_money(ledger, options.price),
            }
    return document


def _run(entry: Entry, options: Options) -> dict[str, Any]:
    ledger = entry.ledger
    run = {
        "run": _clean(entry.run),
        "source": entry.source,
        **_figures(ledger),
        "steps": _steps(ledger),
        "inferred": sorted(ledger.inferred),
        "warnings": [_clean(text) for text in entry.all_warnings],
        "path": _clean(entry.path),
        "window": _window(ledger),
        "waits_s": _seconds(ledger.waits_ns),
        "background_s": _seconds(ledger.background_ns),
        **_beside(ledger),
        "advice": [asdict(change) for change in advise(ledger, options.price, entry.history)],
        **_money(ledger, options.price),
    }
    comparison = compare_ranks(ledger)
    if comparison is not None:
        run["ranks_compared"] = asdict(comparison)
    if by := shown_by(ledger, options.by):
        run["by"] = {by: _pieces(ledger, by)}
    if options.windows:
        run["windows"] = [{**_window(window), **_figures(window), "steps": _steps(window)} for window in entry.windows]
    return run


def _beside(ledger: Ledger) -> dict[str, Any]:
    """Return what only some ledgers have: factors that their source cannot tell, a queue, energy."""
    there: dict[str, Any] = {"unknown": dict(ledger.unknown)} if ledger.unknown else {}
    if ledger.energy_j is not None:
        there["energy_j"] = ledger.energy_j
    return there | _jobs(ledger)


def _jobs(ledger: Ledger) -> dict[str, Any]:
    """Return what a pool has and a run has not: its jobs and their queue."""
    queue = {} if ledger.queue is None else {"queue": asdict(ledger.queue)}
    return {**queue, "jobs": ledger.jobs} if ledger.jobs else queue


def _pieces(ledger: Ledger, key: str) -> dict[str, Any]:
    """Each rank or attempt; of an attempt also why its ranks closed. Of a pool each label, with its jobs."""
    ended = endings(ledger) if key == "attempt" else {}
    return {
        _clean(name): {
            **_figures(part),
            "steps": _steps(part),
            **_jobs(part),
            **({"ended": ended[name]} if name in ended else {}),
        }
        for name, part in split(ledger, key).items()
    }


def _figures(ledger: Ledger) -> dict[str, Any]:
    offered = {} if ledger.offered_ns is None else {"offered_s": ledger.offered_ns / NS_PER_S}
    return {
        "attempts": ledger.attempts,
        "ranks": ledger.ranks,
        "devices": ledger.devices,
        "held_s": ledger.held_ns / NS_PER_S,
        "released_s": ledger.released_ns / NS_PER_S,
        **offered,
        "categories_s": {_clean(name): seconds for name, seconds in ledger.seconds.items()},
        "factors": {
            "scheduling": ledger.scheduling,
            "runtime": ledger.runtime,
            "program": ledger.program,
            "mpg": ledger.mpg,
        },
    }


def _steps(ledger: Ledger) -> dict[str, int]:
    steps = ledger.steps
    return {"executed": steps.executed, "retained": steps.retained, "uncommitted": steps.uncommitted}


def _window(ledger: Ledger) -> dict[str, float | None]:
    """The window on the wall clock [s since the Unix epoch]."""
    return {"start_s": _instant(ledger.start_ns), "end_s": _instant(ledger.end_ns)}


def _instant(ns: int | None) -> float | None:
    return None if ns is None else ns / NS_PER_S


def _seconds(amounts_ns: Mapping[str, int]) -> dict[str, float]:
    return {_clean(name): ns / NS_PER_S for name, ns in amounts_ns.items()}


def _money(ledger: Ledger, price: Price | None) -> dict[str, Any]:
    if price is None:
        return {}
    return {
        "cost": {
            "currency": price.currency,
            "per_device_hour": price.per_device_hour,
            "held": price.cost(ledger.held_ns / NS_PER_S),
            "categories": {_clean(name): price.cost(seconds) for name, seconds in ledger.seconds.items()},
        }
    }


def _clean(text: str) -> str:
    """Replace what strict JSON readers refuse: the halves of characters that undecodable names leave."""
    return text.encode("utf-8", "replace").decode()
