"""What an interrupt that the program survives leaves behind, wherever it comes."""

import gc
import logging
import sys
import threading
import time
from pathlib import Path

import pytest

import headway
from headway.events import Begin, End
from headway.record import lifecycle, recorder

from recorded import events

RECORD = str(Path(recorder.__file__).parent)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(logging.getLogger("headway"), "level", logging.CRITICAL)


class Interrupt(BaseException):
    """What the handler of a signal raises."""


def interrupted_at(n, action):
    """Run it; raise at its n-th event where Python looks for signals: a function begins, or one in C has returned."""
    left = n

    def look(frame, event, _):
        nonlocal left
        if event in {"call", "c_return"} and frame.f_code.co_filename.startswith(RECORD):
            left -= 1
            if left == 0:
                raise Interrupt

    sys.setprofile(look)
    try:
        action()
    except Interrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def step(rec):
    with rec.step():
        pass


def track(rec):
    for _ in rec.track(range(2), quiet=True):
        pass


def span(rec):
    with rec.span("evaluation"):
        pass


@pytest.mark.parametrize("action", [step, track, span])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_recording_goes_on_after_an_interrupt_anywhere(tmp_path, action):
    with headway.start("r", dir=tmp_path) as rec:
        step(rec)
        n = 1
        while interrupted_at(n, lambda: action(rec)):
            before = rec.tracker.summary().total_batches
            step(rec)
            track(rec)
            assert rec.tracker.summary().total_batches == before + 3, n
            assert not rec.outside_training(), n
            n += 1
        assert n > 5
        begun, ended = ({event.id for event in events(rec.path, kind)} for kind in (Begin, End))
        assert begun <= ended


@pytest.mark.parametrize("later", [step, track])
def test_a_step_that_an_interrupt_took_away_is_let_go_of_and_counted(tmp_path, later):
    with headway.start("r", dir=tmp_path) as rec:
        rec.step_thread = threading.get_ident()
        later(rec)
        assert rec.tracker.summary().total_batches == (1 if later is step else 2)
        assert rec.faults.counts == {"step-interrupted": 1}


def test_a_step_inside_one_that_is_open_stays_a_part_of_it(tmp_path):
    with headway.start("r", dir=tmp_path) as rec:
        with rec.step():
            gc.collect()
            step(rec)
            track(rec)
        assert rec.tracker.summary().total_batches == 1


class LateClock:
    """Interrupts the next reading."""

    armed = False

    def monotonic_ns(self):
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt
        return time.monotonic_ns()

    def wall_ns(self):
        return time.time_ns()


@pytest.mark.parametrize("kind", ["step", "span"])
def test_an_interrupt_while_the_clock_is_read(tmp_path, kind):
    clock = LateClock()
    with headway.start("r", dir=tmp_path, clock=clock) as rec:
        for inside in (False, True):
            clock.armed = not inside
            with pytest.raises(KeyboardInterrupt), rec.step() if kind == "step" else rec.span("evaluation"):
                clock.armed = True
            before = rec.tracker.summary().total_batches
            track(rec)
            assert rec.tracker.summary().total_batches == before + 2


@pytest.mark.parametrize("make", [lambda folder: headway.start("r", dir=folder), headway.GoodputTracker])
def test_a_log_is_whole_when_a_signal_ends_it_while_it_is_made(tmp_path, monkeypatch, make):
    watched = []
    monkeypatch.setattr(lifecycle, "watch", watched.append)
    n, closed = 0, True
    while closed:
        n, left, closed = n + 1, n, False

        def look(frame, event, _):
            nonlocal left, closed
            if watched and not closed and frame.f_code.co_filename.startswith(RECORD):
                left -= 1
                if left < 0:
                    closed = True
                    watched[-1].close("signal")

        sys.setprofile(look)
        try:
            made = make(tmp_path / "r")
        finally:
            sys.setprofile(None)
        watched.clear()
        assert "close" not in made.faults.counts
        made.close()
    assert n > 1


def test_a_signal_while_a_dropped_tracker_is_collected_is_no_fault(tmp_path, monkeypatch):
    watched, counts = [], []
    monkeypatch.setattr(lifecycle, "watch", watched.append)
    headway.GoodputTracker(tmp_path / "r")
    log, faults = watched[-1], watched[-1].faults

    def look(frame, event, _):
        if frame.f_code.co_name == "__del__" and event == "call" and not counts:
            log.close("signal")
            counts.append(dict(faults.counts))

    sys.setprofile(look)
    try:
        gc.collect()
    finally:
        sys.setprofile(None)
    assert counts == [{}]


def test_an_evaluation_in_another_thread_while_the_log_ends_is_no_fault(tmp_path):
    rec = headway.start("r", dir=tmp_path)
    inside, ending, done = threading.Event(), threading.Event(), threading.Event()

    def evaluate():
        with rec.span("evaluation"):
            inside.set()
            ending.wait(5)
            track(rec)
            done.set()

    thread = threading.Thread(target=evaluate)
    with rec.step():
        thread.start()
        inside.wait(5)
        rec._log.on_end += [ending.set, lambda: done.wait(5)]
        rec.close()
    thread.join()
    assert "step-thread" not in rec.faults.counts
