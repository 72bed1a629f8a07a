"""Checkpoints that the tests of the cluster share, each made once."""

import pytest

from unit.cluster.small_models import CASES, make


@pytest.fixture(scope="session")
def checkpoint_of(tmp_path_factory):
    """Return a function from the name of a case to the folder of its checkpoint."""
    made = {}

    def folder(case):
        if case not in made:
            architecture, config = CASES[case]
            made[case] = make(tmp_path_factory.mktemp("model"), architecture, **config)
        return made[case]

    return folder
