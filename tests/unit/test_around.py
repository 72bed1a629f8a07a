"""Timers, batches and spans around every kind of function."""

import asyncio

import pytest

import headway
from headway.clock import ManualClock

from tracker_cores import CORES, tracker_class


@pytest.fixture
def clock():
    return ManualClock()


def drained(clock, kind, decorate):
    """Run a function of that kind, 1 s and, if it yields, 1 s more, with the decorator around it."""

    async def coroutine():
        await asyncio.sleep(0)
        clock.advance(1)

    def generator():
        clock.advance(1)
        yield 1
        clock.advance(1)

    async def async_generator():
        clock.advance(1)
        yield 1
        clock.advance(1)

    async def all_of(items):
        return [item async for item in items]

    if kind == "coroutine":
        asyncio.run(decorate(coroutine)())
        return 1.0
    if kind == "generator":
        assert list(decorate(generator)()) == [1]
    else:
        assert asyncio.run(all_of(decorate(async_generator)())) == [1]
    return 2.0


@pytest.mark.parametrize("kind", ["coroutine", "generator", "async generator"])
@pytest.mark.parametrize("core", CORES)
def test_a_timer_and_a_batch_time_what_runs_later(core, kind, clock):
    tracker = tracker_class(core)(clock=clock)
    with tracker.batch():
        took = drained(clock, kind, tracker.time_source())
    assert tracker.per_batch_source == [took]
    with tracker.batch():
        drained(clock, kind, tracker.time_transfer(wait_for=[1]))
    assert tracker.per_batch_transfer == [0.0, took]
    drained(clock, kind, tracker.batch())
    assert tracker.per_batch_wall == [took] * 3
    assert not tracker.faults.counts


@pytest.mark.parametrize("kind", ["span", "batch"])
def test_an_async_generator_gets_what_is_sent_and_thrown_into_it(tmp_path, kind):
    seen = []

    rec = headway.start("r", dir=tmp_path)

    @(rec.span("evaluation") if kind == "span" else rec.tracker.batch())
    async def echo():
        sent = None
        try:
            while True:
                try:
                    sent = yield sent
                except ValueError:
                    sent = "caught"
        finally:
            seen.append("closed")

    async def use():
        items = echo()
        answers = [await items.asend(None), await items.asend(5), await items.athrow(ValueError()), await anext(items)]
        with pytest.raises(KeyError):
            await items.athrow(KeyError())
        other = echo()
        await anext(other)
        await other.aclose()
        return answers

    assert asyncio.run(use()) == [None, 5, "caught", None]
    assert seen == ["closed", "closed"]
