"""The ledger's rules once more, one nanosecond at a time: slow, obvious, and sharing no code with the package."""

from collections import Counter
from statistics import median_low

from headway.events import Begin, Close, End, Restored, Saved, Span


def innermost(intervals, at):
    """The interval that started last owns; of two that start together the shorter; then the later in the list."""
    best = None
    for place, (start, end) in enumerate(intervals):
        if start <= at < end and (best is None or (start, -end, place) >= best[0]):
            best = ((start, -end, place), place)
    return None if best is None else best[1]


def read(process):
    """Return open, close, foreground spans, marks, the end and the rows of a process."""
    close = max((e for e in process.events if isinstance(e, Close)), key=lambda e: (e.at, e.reason), default=None)
    rows = {
        (int(s), int(e), int(n), tuple((p, int(c[i])) for p, c in process.rows.waits.items()))
        for i, (n, s, e) in enumerate(zip(process.rows.step, process.rows.start, process.rows.end, strict=True))
    }  # fmt: skip
    times = [process.open.mono_ns, *(row[1] for row in rows)]
    for event in process.events:
        times += [event.start, event.end] if isinstance(event, Span) else [event.at]
    end = max(times) if close is None else close.at
    begin, end = process.open.mono_ns, max(end, process.open.mono_ns)
    rows = sorted(r for r in rows if (r[0] < end and r[1] > begin) or (r[0] == r[1] and begin <= r[0] <= end))
    ends = {e.id: e for e in process.events if isinstance(e, End)}
    spans = {(e.start, e.end, e.category, e.background) for e in process.events if isinstance(e, Span)}
    for begin in {e.id: e for e in process.events if isinstance(e, Begin)}.values():
        until = ends[begin.id].at if begin.id in ends else max(begin.at, end)
        if until >= begin.at:
            spans.add((begin.at, until, begin.category, begin.background))
    spans = sorted(spans, key=lambda s: (s[0], -s[1], s[2]))
    if process.open.rows == "batch":
        rows = [(s, max(e, rows[i + 1][0]) if i + 1 < len(rows) else e, n, w) for i, (s, e, n, w) in enumerate(rows)]
    return {
        "open": process.open,
        "close": close,
        "end": end,
        "rows": rows,
        "spans": [s for s in spans if not s[3]],
        "all_spans": spans,
        "saved": [e for e in process.events if isinstance(e, Saved)],
        "restored": sorted({e for e in process.events if isinstance(e, Restored)}, key=lambda e: (e.at, e.step)),
        "wall": lambda at: process.open.wall_ns + at - process.open.mono_ns,
    }


def fates(attempts, durable):  # noqa: C901 - one rule after the other
    """Return by attempt the fate of each row, by playing the run forward."""
    fate = [["productive"] * len(a["rows"]) for a in attempts]

    def discard(upto, after, name, before=None):
        for k in range(upto + 1):
            for i, row in enumerate(attempts[k]["rows"]):
                started = k < upto or (before is not None and row[0] < before)
                if started and row[2] > after and fate[k][i] == "productive":
                    fate[k][i] = name

    for k, attempt in enumerate(attempts):
        first = attempt["rows"][0] if attempt["rows"] else None
        initial = [m for m in attempt["restored"] if first is None or m.at <= first[0]]
        if not initial and first is not None:
            discard(k, first[2] - 1, "rework")
        for mark in attempt["restored"]:
            if mark in initial:
                if mark == initial[-1]:
                    discard(k, mark.step, "rework")
            else:
                discard(k, mark.step, "rollback", before=mark.at)
    last = attempts[-1]["close"]
    if durable is not None and last is not None and last.reason in {"failed", "signal"}:
        for k, attempt in enumerate(attempts):
            for i, row in enumerate(attempt["rows"]):
                if row[2] > durable and fate[k][i] == "productive":
                    fate[k][i] = "rework"
    return fate


def amounts(attempt, fate):
    """Return the categories of one attempt, one nanosecond at a time."""
    begin, end, rows = attempt["open"].mono_ns, attempt["end"], attempt["rows"]
    spans = [(s[0], s[1]) for s in attempt["spans"]]
    edges = [(r[0], r[1]) for r in rows]
    total, own = Counter(), [0] * len(rows)
    first = min((r[0] for r in rows), default=end)
    last = max((r[1] for r in rows), default=end)
    for at in range(begin, end):
        span = innermost(spans, at)
        row = innermost(edges, at)
        if span is not None:
            total[attempt["spans"][span][2]] += 1
        elif row is not None:
            own[row] += 1
        elif at < first:
            total["startup"] += 1
        elif at >= last:
            total["shutdown"] += 1
        else:
            total["unaccounted"] += 1
    net, waits = [], []
    for i, row in enumerate(rows):
        left, taken = own[i], Counter()
        for phase, wait in row[3]:
            part = min(wait, left)
            left -= part
            taken[phase if phase == "bubble" else "input_wait"] += part
        net.append(left)
        waits.append(taken)
    compiled = infer_compile(attempt, net)
    for i in range(len(rows)):
        total["compile"] += compiled[i]
        if fate[i] == "productive":
            total += waits[i]
            total["productive"] += net[i] - compiled[i]
        else:
            total[fate[i]] += own[i] - compiled[i]
    return total


def era(attempt, row):
    return sum(mark.at <= row[0] for mark in attempt["restored"])


def infer_compile(attempt, net):
    """Return by row what is inferred to be compile time."""
    rows, compiled = attempt["rows"], [0] * len(net)
    if not rows or attempt["open"].rows == "block" or any(s[2] == "compile" for s in attempt["all_spans"]):
        return compiled
    steps = Counter()
    for row, ns in zip(rows, net, strict=True):
        steps[era(attempt, row), row[2]] += ns
    lead = (era(attempt, rows[0]), rows[0][2])
    others = sorted(ns for key, ns in steps.items() if key != lead)
    if len(others) < 3:
        return compiled
    half = len(others) // 2
    middle = median_low(others) if len(others) % 2 else (others[half - 1] + others[half]) // 2
    excess = max(0, steps[lead] - middle)
    for i, row in enumerate(rows):
        if (era(attempt, row), row[2]) == lead:
            compiled[i] = min(excess, net[i])
            excess -= compiled[i]
    return compiled


def slow_account(processes, until=None):  # noqa: C901 - one rule after the other
    """Return (categories, held, released, executed, retained) over all ranks, devices counted."""
    every = [read(p) for p in processes]

    def durable(attempts):
        marks = [(a["wall"](m.at), a["open"].wall_ns, m.step) for a in attempts for m in a["saved"]]
        return max(marks)[-1] if marks else None

    total, released, executed, retained = Counter(), 0, 0, 0
    ranks = {}
    for attempt in every:
        ranks.setdefault(attempt["open"].rank, []).append(attempt)
    for attempts in ranks.values():
        attempts.sort(key=lambda a: (a["open"].wall_ns, a["open"].attempt))
    horizon = until if until is not None else max(a["wall"](a["end"]) for a in every)
    for attempts in ranks.values():
        own = durable(attempts)
        fate = fates(attempts, durable(every) if own is None else own)
        latest = None
        for attempt, states in zip(attempts, fate, strict=True):
            devices = attempt["open"].devices
            for name, ns in amounts(attempt, states).items():
                total[name] += ns * devices
            if latest is not None:
                gap = max(0, attempt["open"].wall_ns - latest["wall"](latest["end"]))
                if latest["close"] is not None and latest["close"].reason in {"preempted", "released"}:
                    released += gap * devices
                else:
                    total["recovery"] += gap * devices
            if latest is None or attempt["wall"](attempt["end"]) >= latest["wall"](latest["end"]):
                latest = attempt
            keys = {(era(attempt, row), row[2]): state for row, state in zip(attempt["rows"], states, strict=True)}
            executed += len(keys)
            retained += sum(state == "productive" for state in keys.values())
        if attempts[-1]["close"] is None:
            total["silent"] += max(0, horizon - latest["wall"](latest["end"])) * attempts[-1]["open"].devices
    return {k: v for k, v in total.items() if v}, sum(total.values()), released, executed, retained
