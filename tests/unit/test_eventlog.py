import errno
import os
import threading
from pathlib import Path

import pytest

from headway.events import Saved, decode, encode
from headway.record.eventlog import EventLog
from headway.record.faults import Faults


@pytest.fixture
def faults():
    return Faults()


@pytest.fixture
def log(tmp_path, faults):
    log = EventLog(str(tmp_path / "events.jsonl"), faults)
    yield log
    log.close()


def steps_in(path):
    """What a reader makes of the file: lines that are torn are dropped."""
    found = []
    for line in Path(path).read_bytes().split(b"\n"):
        try:
            found.append(decode(line).step)
        except ValueError:
            continue
    return found


def write(log, *steps):
    for step in steps:
        log.write(Saved(step=step, at=0))


def failing(monkeypatch, times, error=errno.ENOSPC, short=None):
    """Let os.write fail so many times, or write only `short` bytes."""
    real, left = os.write, [times]

    def stub(fd, data):
        if left[0] <= 0:
            return real(fd, data)
        left[0] -= 1
        if short is None:
            raise OSError(error, os.strerror(error))
        return real(fd, data[:short])

    monkeypatch.setattr("headway.record.eventlog.os.write", stub)


def test_one_call_writes_one_line(log, monkeypatch):
    calls = []
    real = os.write
    monkeypatch.setattr("headway.record.eventlog.os.write", lambda fd, data: calls.append(data) or real(fd, data))
    write(log, 1, 2)
    assert calls == [encode(Saved(step=1, at=0)), encode(Saved(step=2, at=0))]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_line_that_fails_is_kept_and_written_with_the_next(log, faults, monkeypatch, error):
    failing(monkeypatch, 2, error)
    write(log, 1, 2)
    assert log.waiting == 2
    write(log, 3)
    assert steps_in(log.path) == [1, 2, 3]
    assert faults.counts == {"event-write": 2}


def test_a_line_that_fails_is_written_at_the_close(log, monkeypatch):
    failing(monkeypatch, 1)
    write(log, 1)
    log.close()
    assert steps_in(log.path) == [1]


@pytest.mark.parametrize("short", range(len(encode(Saved(step=2, at=0)))))
def test_after_a_short_write_only_the_torn_line_is_lost_and_it_is_written_again(log, monkeypatch, short):
    write(log, 1)
    failing(monkeypatch, 1, short=short)
    write(log, 2)
    write(log, 3)
    assert steps_in(log.path) == [1, 2, 3]


def test_a_torn_line_that_ends_the_file_takes_no_other_with_it(log, monkeypatch):
    failing(monkeypatch, 3, short=1)
    write(log, 1, 2, 3, 4)
    assert steps_in(log.path) == [1, 2, 3, 4]


def test_the_queue_is_bounded_and_keeps_the_first_and_the_last(log, faults, monkeypatch):
    failing(monkeypatch, 10**9)
    write(log, *range(3000))
    assert log.waiting == 1000
    assert faults.counts["event-lost"] == 2000
    monkeypatch.undo()
    log.close()
    assert steps_in(log.path) == [0, *range(2001, 3000)]


def test_what_is_never_written_is_counted_as_lost(log, faults, monkeypatch):
    failing(monkeypatch, 10**9)
    write(log, 1)
    log.close()
    assert faults.counts["event-lost"] == 1


def test_a_folder_that_is_not_there_is_counted_and_tried_again(tmp_path, faults):
    log = EventLog(str(tmp_path / "later" / "events.jsonl"), faults)
    write(log, 1)
    assert faults.counts["event-write"] >= 1
    (tmp_path / "later").mkdir()
    write(log, 2)
    log.close()
    assert steps_in(log.path) == [1, 2]


def test_a_file_that_was_deleted_is_noticed_once(log, faults):
    Path(log.path).unlink()
    write(log, 1, 2)
    assert faults.counts == {"log-deleted": 1}


def test_after_the_close_a_line_is_dropped_and_counted(log, faults):
    log.close()
    log.close()
    write(log, 1)
    assert steps_in(log.path) == []
    assert faults.counts == {"event-after-close": 1}


def test_an_event_that_cannot_be_encoded_is_counted(log, faults):
    log.write(Saved(step=object(), at=0))
    log.write(Saved(step=1, at=1j))
    write(log, 1)
    assert steps_in(log.path) == [1]
    assert faults.counts == {"event-unwritable": 2}


def test_threads_write_whole_lines(log):
    threads = [threading.Thread(target=write, args=(log, *range(n * 1000, n * 1000 + 200))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(steps_in(log.path)) == sorted(n * 1000 + i for n in range(8) for i in range(200))


def test_a_write_in_the_middle_of_a_write_loses_nothing(log, monkeypatch):
    """As the handler of a signal does, in the same thread."""
    real, nested = os.write, [True]

    def stub(fd, data):
        if nested:
            nested.clear()
            write(log, 2)
        return real(fd, data)

    monkeypatch.setattr("headway.record.eventlog.os.write", stub)
    write(log, 1, 3)
    assert sorted(steps_in(log.path)) == [1, 2, 3]


def test_an_abandoned_log_is_not_written(log):
    write(log, 1)
    log.abandon()
    write(log, 2)
    assert steps_in(log.path) == [1]
