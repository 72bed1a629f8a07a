"""Time ml-goodput-measurement on the history; runs in that package's own environment.

usage: peer_goodput.py N_STEPS    prints one JSON object
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import sys
import tempfile
import time

from ml_goodput_measurement.src.goodput import GoodputCalculator

from history import goodput_entries


class MemoryLog:
    """A logger of the peer's that holds its entries in memory, found by time as the cloud's would be."""

    def __init__(self, entries: list[dict[str, object]]) -> None:
        self.times = [max(v for k, v in entry.items() if k.endswith("_time")) for entry in entries]
        self.entries = entries
        self.shown = len(entries)

    def read_cloud_logging_entries(self, start_time=None, end_time=None, last_entry_info=None):  # noqa: ARG002
        """Return the entries after the last one read, and which is the last now."""
        begin = int(last_entry_info[1]) + 1 if last_entry_info else 0
        last = self.shown - 1
        when = dt.datetime.fromtimestamp(self.times[last], tz=dt.timezone.utc)  # noqa: UP017
        return self.entries[begin : self.shown], (when, str(last))


def main() -> None:
    logging.disable(logging.CRITICAL)
    log = MemoryLog(list(goodput_entries(int(sys.argv[1]), "bench")))
    log.shown -= 101
    with tempfile.TemporaryDirectory() as cache:
        calculator = GoodputCalculator("bench", "log", cloud_logger=log, cache_dir=cache)
        begin = time.perf_counter()
        calculator.get_job_goodput(include_badput_breakdown=True)
        first = time.perf_counter()
        log.shown += 101
        share, breakdown, *_ = calculator.get_job_goodput(include_badput_breakdown=True)
        poll = time.perf_counter()
    names = {getattr(kind, "name", str(kind)): amount for kind, amount in breakdown.items()}
    print(json.dumps({"whole_s": first - begin, "poll_s": poll - first, "goodput": share, "badput": names}))


main()
