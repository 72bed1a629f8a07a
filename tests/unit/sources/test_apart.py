"""Pools of one name are told apart by where they lie."""

import pytest

from headway.ledger.history import Pool, Run
from headway.sources.apart import told_apart


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["data/Earth/jobs.csv", "data/Venus/jobs.csv"], ["jobs (Earth)", "jobs (Venus)"]),
        (["data/jobs.2023.csv", "data/jobs.2024.csv"], ["jobs (jobs.2023.csv)", "jobs (jobs.2024.csv)"]),
        (["a/x/jobs.csv", "a/y/jobs.csv", "b/x/jobs.csv"], ["jobs (a/x)", "jobs (a/y)", "jobs (b/x)"]),
        (["jobs.csv", "old/jobs.csv"], ["jobs", "jobs (old)"]),
        (["/one/jobs.csv", "/one/jobs.csv"], ["jobs", "jobs"]),
        (["a/jobs.csv"], ["jobs"]),
        (["a\x1b[2J/jobs.csv", "b/jobs.csv"], ["jobs (a)", "jobs (b)"]),
    ],
)
def test_pools_of_one_name(paths, names):
    found = told_apart([Pool("jobs", "table", path=path) for path in paths])
    assert [pool.name for pool in found] == names
    assert told_apart(found) == found


def test_others_keep_their_names():
    others = [Run("jobs", "native", ()), Pool("jobs", "table", path="a"), Pool("other", "table", path="b")]
    assert told_apart(others) == others
