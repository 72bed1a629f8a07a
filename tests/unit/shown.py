"""Ledgers made by hand, for the tests of what is shown."""

import dataclasses

from headway.ledger.ledger import Ledger, Part, Saving, Steps
from headway.report.entry import Entry

S = 10**9
NASTY = "[red]x[/red]\x1b[31m\r\n\x07\u202e\udc80:boom:"


def ledger(seconds, **fields):
    amounts = {name: round(value * S) for name, value in seconds.items()}
    return Ledger(amounts, held_ns=sum(amounts.values()), **fields)


def digits(**fields):
    return ledger(
        {"productive": 25.3, "recovery": 6.1, "input_wait": 4.9, "rework": 2.2, "startup": 1.9, "compile": 0.8},
        **{
            "waits_ns": {"source": 41 * S // 10, "transform": 8 * S // 10},
            "steps": Steps(522, 500, 3, 22, 0),
            "attempts": 2,
            "ranks": 1,
            "devices": 1,
            "inferred": frozenset({"compile"}),
            "background_ns": {"checkpoint_save": 4 * S},
            "saving": Saving(10, 1, 50, 5 * S // 1000, S // 20),
            **fields,
        },
    )


def ranks(waits=(4, 4.1, 0.2, 3.9), phase=None):
    def rank(wait):
        spent = {"productive": 10, "input_wait": wait, "unaccounted": 1}
        return ledger(spent, waits_ns={phase: round(wait * S)} if phase else {})

    parts = [Part(number, "a0", rank(wait), "finished") for number, wait in enumerate(waits)]
    whole = sum(part.ledger for part in parts)
    return dataclasses.replace(whole, attempts=1, ranks=4, devices=8, parts=tuple(parts))


def attempts():
    """Killed, failed, failed, ended by a signal, and finished."""
    ends = (None, "failed", "failed", "signal", "finished")
    one = {"productive": 8, "checkpoint_restore": 2}
    names = [f"20231114T22132{place}.123456-4242" for place in range(len(ends))]
    parts = tuple(Part(0, name, ledger(one, attempts=1), end) for name, end in zip(names, ends, strict=True))
    whole = sum(part.ledger for part in parts)
    return dataclasses.replace(whole, ranks=1, devices=1, parts=parts)


def pool():
    amounts = {"productive": 60 * S, "recovery": 10 * S, "queued": 20 * S, "below_peak": 10 * S}
    return Ledger(amounts, held_ns=80 * S, offered_ns=100 * S, attempts=1, ranks=3, devices=4)


def windows():
    return [
        ledger({"productive": 8, "recovery": 2}, start_ns=1_700_000_000 * S, end_ns=1_700_000_010 * S),
        ledger({"silent": 10}, start_ns=1_700_000_010 * S, end_ns=1_700_000_020 * S),
        Ledger(start_ns=1_700_000_020 * S, end_ns=1_700_000_030 * S),
    ]


def entry(shown=None, **fields):
    return Entry(fields.pop("run", "digits"), "native", shown or digits(), **fields)
