"""What a drive is asked for: every argument it cannot have is named, before anything is allocated."""

import numpy as np
import pytest

from headway.cluster.request import MOST_IDS, Request, as_ids, random_ids
from headway.errors import ArgumentError

IDS = np.zeros((4, 3), dtype="<i8")
HUGE = 10**5000


def kind(value):
    """Return a name of a case: that of a value may be too long."""
    return value if isinstance(value, str) else type(value).__name__


@pytest.mark.parametrize("batch", [10**12, HUGE, 0, -1, True, 1.0, "x", None, [], np.array([3])], ids=kind)
def test_a_batch_that_cannot_be_is_refused_before_it_is_drawn(batch):
    with pytest.raises(ArgumentError, match=r"Cannot drive: batch is .*\[bad-drive\]"):
        random_ids(batch, 8, 100, 0)


def test_the_largest_batch_is_told():
    with pytest.raises(ArgumentError, match=f"Give {MOST_IDS // 8} at most"):
        random_ids(MOST_IDS, 8, 100, 0)
    with pytest.raises(ArgumentError, match="Lower seq"):
        random_ids(1, 2**40, 100, 0)
    with pytest.raises(ArgumentError, match=f"input_ids are {10**12 * 3} token ids"):
        as_ids(np.broadcast_to(np.zeros(3, dtype=np.int64), (10**12, 3)), 100)


@pytest.mark.parametrize("mode", ["relay", "pipelined"])
@pytest.mark.parametrize(
    "micro_batches", [[], [1], "2", None, True, 0, -2, 3, 1.0, HUGE, np.array([]), np.array([2])], ids=kind
)
def test_micro_batches_that_cannot_be_are_named(mode, micro_batches):
    with pytest.raises(ArgumentError, match=r"Cannot drive: micro_batches is .*\[bad-drive\]"):
        Request(IDS, mode, micro_batches, 0, "all")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("mode", one) for one in ("x", [], None, np.array(["relay"]))],
        *[("steps", one) for one in (-1, 1.0, True, [], HUGE, 2**32, np.array([1]))],
        *[("logits", one) for one in ("x", [], None, np.array(["all"]))],
    ],
    ids=kind,
)
def test_an_argument_that_cannot_be_is_named(name, value):
    given = {"ids": IDS, "mode": "relay", "micro_batches": 1, "steps": 0, "logits": "all"}
    with pytest.raises(ArgumentError, match=rf"Cannot drive: {name} is .*\[bad-drive\]"):
        Request(**given | {name: value})
    assert Request(**given | {"micro_batches": np.int64(2), "mode": "pipelined"}).n_tokens == 3
