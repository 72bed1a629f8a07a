"""The benchmark of the sources leaves none out, and what it writes is a log of the source it names."""

import runpy
from pathlib import Path

import pytest

from headway.ledger.history import Pool, Served
from headway.sources import SOURCES, load

LOGS = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "logs.py"))["LOGS"]


def rows(found):
    """Return how many steps, jobs or requests were read; of a cluster's nodes, and of power, that there are some."""
    if isinstance(found, Served):
        return len(found.ok)
    if isinstance(found, Pool):
        return len(found.jobs) or found.devices
    return sum(len(process.rows) for process in found.processes) or len(found.processes)


def test_every_source_has_a_writer():
    assert list(dict.fromkeys(name.partition("_")[0] for name in LOGS)) == [source.name for source in SOURCES]


@pytest.mark.parametrize("name", LOGS)
def test_what_is_written_is_read_as_that_source(name, tmp_path):
    n = LOGS[name](tmp_path / "log", 30_000)
    assert n > 5
    (found,) = load(tmp_path / "log")
    assert found.source == name.partition("_")[0]
    assert rows(found)
    assert not any("left out" in text for text in found.warnings)
