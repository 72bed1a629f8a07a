"""Served requests as a page on a terminal, and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from headway.ledger.history import Served
from headway.ledger.serving import QUANTILES, TARGETS, Attainment, Quantiles, Slo, attain, quantiles
from headway.report.sheet import Sheet
from headway.units import show_percent, show_seconds

_GIVE: Final = 'Give the targets, such as --slo "ttft:500ms tpot:50ms", for how many requests met them.'
_STYLES: Final = {"good": "green", "bad": "magenta", "failed": "red", "undetermined": "yellow"}
_NOTES: Final = {
    "failed": "an error, or no token",
    "undetermined": "a time is not known",
}
_BAR: Final = 20


def serving_document(served: Served, slo: Slo | None) -> dict[str, Any]:
    """Return served requests as plain dicts and lists; what is not known is None.

    Args:
        served: The requests.
        slo: The targets, as `parse_slo` returns them; None for none.
    """
    found = attain(served, slo or {})
    answered = _answered(found)
    document: dict[str, Any] = {
        "name": _clean(served.name),
        "source": served.source,
        "path": _clean(served.path),
        "duration_s": found.duration_s,
        "devices": found.devices,
        "requests": {"total": found.total, "failed": found.failed, "answered": answered},
        "answered_per_s": _rate(answered, found.duration_s),
        "times_s": {name: _distribution(times) for name, times in quantiles(served).items()},
        "warnings": [_clean(text) for text in served.warnings],
    }
    if slo:
        document["requests"] |= {"good": found.good, "bad": found.bad, "undetermined": found.undetermined}
        document["slo_s"] = {target.name: target.limit_s for target in found.targets}
        document["attainment"] = {
            "share": found.share,
            "lowest": None if found.bounds is None else found.bounds[0],
            "highest": None if found.bounds is None else found.bounds[1],
            "interval_95": None if found.interval is None else list(found.interval),
        }
        document["goodput_per_s"] = found.goodput
        document["goodput_per_device_s"] = found.goodput_per_device
        document["targets"] = [asdict(target) for target in found.targets]
    return document


def print_serving(served: Served, slo: Slo | None, console: Console) -> None:
    """Print served requests as a page.

    Args:
        served: The requests.
        slo: The targets, as `parse_slo` returns them; None for none.
        console: Where to.
    """
    sheet = Sheet(console.file, console.width)
    found = attain(served, slo or {})
    sheet.title(served.name, _size(found))
    if slo:
        sheet.say(*_headline(found), style="bold")
        sheet.table((), list(_amounts(found, sheet)), left=(0, 3, 4), wraps=4)
        sheet.table(
            ("target", "", "missed", "missed alone", "not known"),
            [_target(target) for target in found.targets],
            left=(0, 1),
        )
    sheet.table(
        ("time of the answered", "requests", *(f"p{share * 100:g}" for share in QUANTILES)),
        [_row(name, times) for name, times in quantiles(served).items()],
    )
    sheet.say("" if slo else _GIVE)
    sheet.say(*(f"warning: {text}" for text in served.warnings), style="yellow")
    console.file.flush()


def _answered(found: Attainment) -> int:
    return found.total - found.failed - found.n_cut


def _rate(count: int, duration_s: float | None) -> float | None:
    return count / duration_s if duration_s else None


def _size(found: Attainment) -> str:
    took = ", no duration known" if found.duration_s is None else f" in {show_seconds(found.duration_s)}"
    rate = _rate(_answered(found), found.duration_s)
    answered = f"{_answered(found)} answered" + ("" if rate is None else f" ({_show_rate(rate)} requests/s)")
    devices = "" if found.devices is None else f", {found.devices} device{'s' * (found.devices != 1)}"
    return f"{found.total} request{'s' * (found.total != 1)}{took}, {answered}{devices}"


def _headline(found: Attainment) -> Iterator[str]:
    """Yield the share with its doubt, and the goodput with what it is of."""
    if found.share is None or found.bounds is None or found.interval is None:
        why = "there is no request" if not found.total else "no request has a time that its targets ask for"
        yield f"SLO attainment unknown: {why}"
        return
    low, high = (show_percent(bound) for bound in found.interval)
    share = show_percent(found.share)
    if found.undetermined:
        share = f"{share} at least, {show_percent(found.bounds[1])} at most"
    yield f"SLO attainment {share} (95 % interval {low} to {high})"
    if found.goodput is None:
        yield "request goodput unknown: the file does not say how long the test took"
        return
    least = "at least " if found.undetermined else ""
    per_device = found.goodput_per_device
    device = "" if per_device is None else f", {_show_rate(per_device)} a device"
    yield f"request goodput {least}{_show_rate(found.goodput)} requests/s{device}"


def _amounts(found: Attainment, sheet: Sheet) -> Iterator[list[str | Text]]:
    """Yield a line for each kind of request that there is."""
    for name, style in _STYLES.items():
        count = getattr(found, name)
        if count:
            share = count / found.total
            bar = Text(sheet.glyphs.bar(share, _BAR), style=style)
            yield [name, str(count), show_percent(share), bar, _note(name, found)]


def _note(name: str, found: Attainment) -> str:
    if name != "bad":
        return _NOTES.get(name, "")
    missed = [f"{target.name} {target.missed}" for target in found.targets if target.missed]
    return f"missed {', '.join(missed)}"


def _target(target: Any) -> list[str]:
    counts = (target.missed, target.missed_alone, target.undetermined)
    return [target.name, show_seconds(target.limit_s), *map(str, counts)]


def _row(name: str, times: Quantiles) -> Sequence[str]:
    values = ["-" for _ in QUANTILES] if times.values_s is None else map(show_seconds, times.values_s)
    return [f"{name}, {TARGETS[name]}", str(times.count), *values]


def _distribution(times: Quantiles) -> dict[str, Any]:
    values = times.values_s or (None,) * len(QUANTILES)
    return {
        "count": times.count,
        **{f"p{share * 100:g}": value for share, value in zip(QUANTILES, values, strict=True)},
    }


def _show_rate(rate: float) -> str:
    """Return a rate with three figures; from 100 on with none behind the point."""
    return f"{rate:,.0f}" if rate >= 100 or not math.isfinite(rate) else f"{rate:.3g}"


def _clean(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
