"""Waiting for arrays of libraries that are never imported: fakes for devices, real tensors where torch is."""

import dataclasses
import importlib.util
import sys
import types
from typing import NamedTuple

import pytest

from headway.clock import ManualClock
from headway.record.faults import Faults
from headway.record.waiting import wait_for

from tracker_cores import CORES, tracker_class


class Array:
    """A JAX-like array that takes some time to be ready."""

    def __init__(self, clock=None, seconds=0.0):
        self.waits, self.clock, self.seconds = 0, clock, seconds

    def block_until_ready(self):
        self.waits += 1
        if self.clock is not None:
            self.clock.advance(self.seconds)
        return self


class Pair(NamedTuple):
    left: object
    right: object


@dataclasses.dataclass
class Box:
    inside: object


@dataclasses.dataclass(slots=True)
class Slots:
    inside: object


@pytest.fixture
def faults():
    return Faults()


@pytest.fixture(params=CORES)
def make(request):
    return tracker_class(request.param)


@pytest.fixture
def fake_torch(monkeypatch):
    """A torch of four kinds of device that notes what is synchronised."""
    synchronised = []

    class Tensor:
        def __init__(self, kind, index=0):
            self.device = Device(kind, index)

    class Device(NamedTuple):
        type: str
        index: int

    torch = types.SimpleNamespace(
        Tensor=Tensor,
        cuda=types.SimpleNamespace(synchronize=synchronised.append),
        xpu=types.SimpleNamespace(synchronize=synchronised.append),
        mps=types.SimpleNamespace(synchronize=lambda: synchronised.append("mps")),
        cpu=types.SimpleNamespace(synchronize=lambda: synchronised.append("cpu")),
        synchronised=synchronised,
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


@pytest.mark.parametrize(
    "wrap",
    [
        lambda a: a,
        lambda a: [a],
        lambda a: (1, a),
        lambda a: {"x": {"y": a}},
        lambda a: Pair(None, a),
        lambda a: Box(Slots([a])),
        lambda a: {a},
        lambda a: lambda: (a,),
    ],
)
def test_every_array_of_a_tree_is_waited_for(faults, wrap):
    array = Array()
    wait_for(wrap(array), faults)
    assert array.waits == 1
    assert faults.counts == {}


@pytest.mark.parametrize("leaf", [None, 1, 2.5, "text", b"bytes", object(), int, Array, Box])
def test_other_leaves_are_passed_over(faults, leaf):
    wait_for([leaf, {"x": leaf}], faults)
    assert faults.counts == {}


def test_a_tree_that_holds_itself_ends(faults):
    array = Array()
    tree = [array]
    tree.append(tree)
    wait_for(tree, faults)
    assert array.waits == 1


def test_an_event_or_a_stream_is_synchronised(faults):
    calls = []
    wait_for([types.SimpleNamespace(synchronize=lambda: calls.append(1))], faults)
    assert calls == [1]


def test_an_exception_is_counted_and_not_raised(faults):
    def fails():
        raise RuntimeError("device lost")

    wait_for(fails, faults)
    wait_for([types.SimpleNamespace(block_until_ready=fails)], faults)
    assert faults.counts == {"wait-for": 2}
    assert faults.errors == {"wait-for": "device lost"}


def test_each_device_of_torch_is_synchronised_once(faults, fake_torch):
    kinds = [("cuda", 0), ("cuda", 0), ("cuda", 1), ("xpu", 0), ("mps", 0), ("cpu", 0), ("meta", 0)]
    wait_for([fake_torch.Tensor(*kind) for kind in kinds], faults)
    assert sorted(map(str, fake_torch.synchronised)) == [
        "Device(type='cuda', index=0)",
        "Device(type='cuda', index=1)",
        "Device(type='xpu', index=0)",
        "mps",
    ]
    assert faults.counts == {}


def test_jax_waits_for_what_it_alone_knows(faults, monkeypatch):
    seen = []
    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(block_until_ready=seen.append))
    tree = {"x": object()}
    wait_for(tree, faults)
    assert seen == [tree]


def test_a_timer_waits_before_it_stops(make):
    clock = ManualClock()
    tracker = make(clock=clock)
    array = Array(clock, 0.5)
    with tracker.batch():
        with tracker.time_transfer(wait_for=array) as timer:
            clock.advance(0.25)
            assert timer.wait_for(array) is array
        with tracker.time_transfer() as timer:
            assert timer.wait_for([array]) == [array]
        with tracker.time("source", wait_for=lambda: array):
            pass
        with tracker.time_transform(array):
            pass
    assert tracker.per_batch_transfer == [0.25 + 0.5 + 0.5 + 0.5]
    assert tracker.per_batch_source == tracker.per_batch_transform == [0.5]


def test_a_body_that_raised_is_not_waited_for(make):
    clock = ManualClock()
    tracker = make(clock=clock)
    array = Array(clock, 0.5)
    with pytest.raises(KeyError), tracker.batch(), tracker.time_transfer(wait_for=array):  # noqa: PT012
        clock.advance(0.25)
        raise KeyError
    assert array.waits == 0
    assert tracker.per_batch_transfer == [0.25]


def test_a_device_that_fails_does_not_stop_training(make):
    tracker = make()
    with tracker.batch():
        with tracker.time_transfer(wait_for=lambda: 1 / 0) as timer:
            timer.wait_for(lambda: 1 / 0)
        with tracker.time_transfer() as timer:
            timer.wait_for(lambda: 1 / 0)
    assert tracker.faults.counts == {"wait-for": 3}


def test_interrupts_are_not_swallowed(make):
    def interrupt():
        raise KeyboardInterrupt

    tracker = make()
    with pytest.raises(KeyboardInterrupt), tracker.batch(), tracker.time_transfer(wait_for=interrupt):
        pass
    assert tracker.summary().total_batches == 1


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_real_tensors_on_the_cpu(faults):
    import torch

    wait_for({"x": torch.ones(3), "y": [torch.ones(1, requires_grad=True)]}, faults)
    wait_for(torch.nn.Linear(2, 2), faults)
    wait_for(lambda: torch.ones(2), faults)
    assert faults.counts == {}
