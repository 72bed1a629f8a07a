"""Logs of runs that fail, made as a recorder writes them, and their ledgers as `account` makes them."""

import json
import random

from headway.ledger.account import account
from headway.sources import load_all

S = 10**9


def log(
    root, n_failures=4, *, mtbf=600.0, gap=20.0, startup=10.0, step=1.0, wait=0.25, save=4.0, every=25, last=30,
    seed=0, devices=1, ends="failed",
):  # fmt: skip
    """Write a run of one rank that fails so many times; times in seconds, `wait` is a share of each step."""
    rng, wall, durable = random.Random(seed), 1_700_000_000 * S, 0
    for attempt in range(n_failures + 1):
        final = attempt == n_failures
        life = 1e9 if final else rng.expovariate(1 / mtbf)
        rows, at, n, done = [], startup, durable, 0
        while at + step <= life and not (final and done >= last):
            phases = {"source": round(wait * step * S), "transform": 0, "transfer": 0}
            rows.append({"kind": "step", "step": n, "start": round(at * S), "end": round((at + step) * S),
                         "phases": phases})  # fmt: skip
            at, n, done = at + step, n + 1, done + 1
            if n % every == 0 and at + save <= life:
                if save:
                    rows.append({"kind": "span", "category": "checkpoint_save", "start": round(at * S),
                                 "end": round((at + save) * S)})  # fmt: skip
                at, durable = at + save, n
                rows.append({"kind": "saved", "step": n - 1, "at": round(at * S)})
        rows.append({"kind": "close", "at": round(at * S), "reason": "finished" if final else ends})
        first = {"kind": "open", "schema": 1, "run": "made", "attempt": f"a{attempt:03}", "wall_ns": wall,
                 "mono_ns": 0, "devices": devices}  # fmt: skip
        folder = root / "made" / f"a{attempt:03}-r0"
        folder.mkdir(parents=True)
        folder.joinpath("events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [first, *rows]))
        wall += round((at + gap) * S)
    return str(root / "made")


def accounted(root, *args, **options):
    """Return the ledger of such a run."""
    return account(load_all([log(root, *args, **options)])[0])
