"""One made-up training history, told twice: as a Headway log and as entries of ml-goodput-measurement.

It runs in either environment, so it imports neither package. Twenty attempts; each restarts
fifty steps back; every hundred steps an evaluation or a save.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

ATTEMPTS = 20
STEP_NS, STOP_NS, GAP_NS = 10_000_000, 50_000_000, 1_000_000_000
WALL_NS = 1_700_000_000_000_000_000
PHASES = ("source", "transform", "transfer")


def attempts(n_steps: int) -> Iterator[tuple[int, int, list[tuple[int, int, int]], list[tuple[str, int, int]]]]:
    """Yield (wall time of its start, step restored, steps, spans) of each attempt, times in ns since its start."""
    wall, first = WALL_NS, 0
    for _ in range(ATTEMPTS):
        at, steps, spans = 2_000_000_000, [], [("device_init", 0, 1_500_000_000)]
        for number in range(first, first + n_steps // ATTEMPTS):
            if number % 100 == 0:
                name = "checkpoint_save" if number % 200 else "evaluation"
                spans.append((name, at, at + STOP_NS))
                at += STOP_NS
            length = STEP_NS + (number * 7919) % 500_000
            steps.append((number, at, at + length))
            at += length
        yield wall, first - 1, steps, spans
        wall += at + GAP_NS
        first = steps[-1][0] - 50


def write_headway_log(folder: Path, n_steps: int) -> None:
    """Write the history as a run's folder."""
    for place, (wall, restored, steps, spans) in enumerate(attempts(n_steps)):
        attempt = folder / f"a{place:02}-r0"
        attempt.mkdir(parents=True)
        lines = [{"kind": "open", "schema": 1, "run": folder.name, "attempt": f"a{place:02}", "rank": 0,
                  "world_size": 1, "devices": 1, "wall_ns": wall, "mono_ns": 0, "phases": PHASES},
                 {"kind": "restored", "step": restored, "at": 1_900_000_000}]  # fmt: skip
        for name, start, end in spans:
            lines.append({"kind": "span", "category": name, "start": start, "end": end})
            if name == "checkpoint_save":
                lines.append({"kind": "saved", "step": restored + (end - 2_000_000_000) // STEP_NS, "at": end})
        lines.append({"kind": "close", "at": steps[-1][2], "reason": "failed"})
        (attempt / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        write_rows(attempt / "steps.npy", steps)


def write_rows(path: Path, steps: list[tuple[int, int, int]]) -> None:
    """Write a ``steps.npy`` of steps that waited a tenth of their time."""
    fields = ["step", "start_ns", "end_ns", *PHASES, "seq"]
    head = f"{{'descr': {[(name, '<i8') for name in fields]}, 'fortran_order': False, 'shape': ({len(steps)},), }}"
    head = head.ljust(4096 - 11) + "\n"
    pack = struct.Struct(f"<{len(fields)}q").pack
    with path.open("wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        for place, (number, start, end) in enumerate(steps, 1):
            out.write(pack(number, start, end, (end - start) // 10, 0, 0, place))


def goodput_entries(n_steps: int, job: str) -> Iterator[dict[str, object]]:
    """Yield the history as log entries of ml-goodput-measurement."""
    for wall, _, steps, spans in attempts(n_steps):

        def at(ns: int, wall: int = wall) -> float:
            return (wall + ns) / 1e9

        yield {"job_name": job, "job_start_time": at(0)}
        yield {"job_name": job, "tpu_init_start_time": at(0)}
        yield {"job_name": job, "tpu_init_end_time": at(1_500_000_000)}
        waiting = [span for span in spans if span[0] != "device_init"]
        for number, start, _ in steps:
            while waiting and waiting[0][1] <= start:
                name, begin, end = waiting.pop(0)
                yield {"job_name": job, "custom_badput_event_type": name, "custom_badput_event_start_time": at(begin)}
                yield {"job_name": job, "custom_badput_event_type": name, "custom_badput_event_end_time": at(end)}
            yield {"job_name": job, "step_count": number, "step_start_time": at(start)}
        yield {"job_name": job, "job_end_time": at(steps[-1][2])}
