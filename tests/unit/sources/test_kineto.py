"""Traces of the PyTorch profiler and of JAX: the numbers of real ones, and of broken ones what is left."""

from pathlib import Path

import pytest

from data import real
from headway.errors import SourceError
from headway.ledger.account import account
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.kineto import Kineto, facts

SAMPLES = Path(__file__).parents[2] / "contract" / "samples"
REAL = {
    "h100_nanogpt_rank0": (303266.455, 0.98153, 280130.035, 23754.198, 15732.816, [62264, 59439, 61202, 59738]),
    "mi300x_resnet": (86567.708, 0.97036, 25739.351, 71516.523, 55625.186, [16799, 15951, 15887]),
    "a100_nccl": (660551.006, 0.23844, 115655.843, 46876.492, 39559.466, [222442, 219727, 224936]),
    "hta_rank0": (1222847, 0.44785, 210320, 396199, 336983, [607312, 622928]),
    "hta_rank1": (1231186, 0.47113, 271973, 379053, 303523, [607904, 630639]),
    "h100_bert_small": (3907.825, 0.07918, 307.198, 0, 0, [4426]),
}
FLOAT_US = 0.05
"""What floats lose of thousands of times of 4e12 us, in which those values were summed; here they are exact."""


def load(path, **asked):
    assert Kineto().recognise(path, files.head(path)) is None
    (run,) = Kineto().load(path, Asked(**asked))
    return run


@pytest.mark.parametrize("name", REAL)
def test_real_traces(name):
    path = real("traces", f"{name}.json.gz")
    span, busy, compute, comm, exposed, steps = REAL[name]
    found = facts(path)
    assert found.span_ns / 1e3 == pytest.approx(span, abs=0.0015)
    assert round(found.busy_ns / found.span_ns, 5) == busy
    assert found.compute_ns / 1e3 == pytest.approx(compute, abs=FLOAT_US)
    assert found.comm_ns / 1e3 == pytest.approx(comm, abs=FLOAT_US)
    assert found.exposed_ns / 1e3 == pytest.approx(exposed, abs=FLOAT_US)
    assert [round(step / 1e3) for step in found.steps_ns] == steps
    ledger = account(load(path))
    assert ledger.held_ns == found.span_ns
    assert ledger.amounts_ns.get("exposed_communication", 0) == found.exposed_ns
    assert ledger.amounts_ns["host_gap"] == found.host_gap_ns
    assert ledger.program == pytest.approx(1 - (found.exposed_ns + found.host_gap_ns) / found.span_ns)
    assert ledger.runtime is None


def test_a_real_trace_without_a_device():
    with pytest.raises(SourceError, match="30 events, and none is of a device") as caught:
        facts(real("traces", "cpu_only.json.gz"))
    assert caught.value.slug == "no-device-events"
