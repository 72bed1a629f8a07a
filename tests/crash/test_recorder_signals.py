"""How a program that records ends: by a signal, an exit, an exception, a kill; and what a fork does."""

import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest

import headway
from headway.events import Begin, End, Saved, Span

from recorded import events, log_folders, reason, rows, script

START = "import headway, os, signal, sys, threading\nrec = headway.start('r', attempt='a')\n"
KILL = "os.kill(os.getpid(), signal.SIGTERM)\n"


def run(text, root, **environ):
    """Run a program that records; return it and its only log."""
    ended = script(START + text, root, check=False, **environ)
    (folder,) = log_folders(root)
    return ended, folder


@pytest.mark.parametrize(
    ("text", "code", "expected"),
    [
        ("", 0, "finished"),
        ("sys.exit(0)", 0, "finished"),
        ("sys.exit(1)", 1, "finished"),  # as documented: the code cannot be seen from inside
        ("raise ValueError", 1, "failed"),
        ("raise KeyboardInterrupt", -signal.SIGINT, "signal"),
        (KILL, -signal.SIGTERM, "signal"),
        ("rec.notice('preemption')\n" + KILL, -signal.SIGTERM, "preempted"),
        ("with rec:\n  " + KILL, -signal.SIGTERM, "signal"),
        ("with rec:\n  sys.exit(3)", 3, "failed"),
        ("with rec:\n  os._exit(3)", 3, None),
        ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, None),
        ("rec.close('released')\n" + KILL, -signal.SIGTERM, "released"),
    ],
)
def test_the_end_has_its_reason_and_the_exit_code_stays(tmp_path, text, code, expected):
    ended, folder = run(text, tmp_path)
    assert (ended.returncode, reason(folder)) == (code, expected), ended.stderr


@pytest.mark.parametrize(
    ("handler", "after", "code", "expected"),
    [
        ("lambda *_: sys.exit(7)", "", 7, "signal"),
        ("lambda *_: None", "rec.saved(5)", 0, "signal"),
        ("lambda *_: rec.notice('preemption')", "", 0, "preempted"),
        ("signal.SIG_IGN", "rec.saved(5)", 0, "finished"),
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_handler_of_the_users_is_honoured(tmp_path, handler, after, code, expected, when):
    install = f"signal.signal(signal.SIGTERM, {handler})\n"
    if when == "after":
        text = START + install + KILL + after
        expected = {"signal": "failed" if code else "finished", "preempted": "finished"}.get(expected, expected)
        if code:  # an exit code cannot be seen at the end of a program without its with-statement
            expected = "finished"
    else:
        text = "import headway, os, signal, sys\nrec = None\n" + install + START + KILL + after
    ended = script(text, tmp_path, check=False)
    (folder,) = log_folders(tmp_path)
    assert (ended.returncode, reason(folder)) == (code, expected), ended.stderr
    assert len(events(folder, Saved)) == (1 if after else 0)


def test_a_later_handler_may_call_the_one_it_replaced(tmp_path):
    text = "old = signal.getsignal(signal.SIGTERM)\nsignal.signal(signal.SIGTERM, lambda *a: old(*a))\n" + KILL
    ended, folder = run(text, tmp_path)
    assert (ended.returncode, reason(folder)) == (-signal.SIGTERM, "signal")


def test_handlers_that_call_each_other_do_not_go_round(tmp_path):
    text = (
        "old = signal.getsignal(signal.SIGTERM)\nsignal.signal(signal.SIGTERM, lambda *a: old(*a))\n"
        "rec.close()\nheadway.start('r', attempt='b')\n" + KILL
    )
    ended = script(START + text, tmp_path, check=False)
    assert ended.returncode == -signal.SIGTERM, ended.stderr
    assert [reason(folder) for folder in log_folders(tmp_path)] == ["finished", "signal"]


def test_the_handler_from_before_is_back_after_the_last_log(tmp_path):
    text = (
        "first = signal.getsignal(signal.SIGTERM)\nother = headway.start('r')\nrec.close()\n"
        "assert signal.getsignal(signal.SIGTERM) == first != signal.SIG_DFL\nother.close()\n"
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL"
    )
    script(START + text, tmp_path)


def test_a_handler_set_later_stays(tmp_path):
    text = "signal.signal(signal.SIGTERM, print)\nrec.close()\nassert signal.getsignal(signal.SIGTERM) is print"
    run_ended, _ = run(text, tmp_path)
    assert run_ended.returncode == 0, run_ended.stderr


def test_outside_the_main_thread_no_handler_is_installed(tmp_path):
    text = (
        "import headway, threading, signal\n"
        "thread = threading.Thread(target=lambda: headway.start('r'))\nthread.start(); thread.join()\n"
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL"
    )
    script(text, tmp_path)
    assert reason(log_folders(tmp_path)[0]) == "finished"


def test_a_signal_in_a_step_and_a_span_keeps_what_was_whole(tmp_path):
    text = "with rec.step(): pass\nwith rec.span('evaluation'), rec.step():\n  " + KILL
    _, folder = run(text, tmp_path)
    assert rows(folder)["step"].tolist() == [0]
    assert len(events(folder, Begin)) == 1
    assert events(folder, End) == []


@pytest.mark.parametrize("pure", ["0", "1"])
@pytest.mark.parametrize(
    "text",
    [
        "with rec.step():\n  time.sleep(0.2)\n  " + KILL,
        "for _ in rec.track([1]):\n  time.sleep(0.2)\n  " + KILL,
        "step = rec.step(); step.__enter__(); time.sleep(0.2)",
        "with rec.step():\n  time.sleep(0.2); rec.close()",
    ],
)
def test_the_time_of_an_open_step_is_named_and_is_no_shutdown(tmp_path, text, pure):
    _, folder = run("import time\n" + text, tmp_path, HEADWAY_PURE_PYTHON=pure)
    (span,) = events(folder, Span)
    assert (span.category, span.ok) == ("custom:unfinished_step", False)
    assert span.end - span.start >= 2 * 10**8
    seconds = headway.account(headway.load(tmp_path)[0]).seconds
    assert seconds["custom:unfinished_step"] >= 0.2
    assert seconds.get("shutdown", 0) < 0.2


def test_all_recorders_of_a_process_are_closed(tmp_path):
    text = "headway.start('r', attempt='b')\nlist(headway.track([1], run='c'))\n" + KILL
    script(START + text, tmp_path, check=False)
    assert [reason(folder) for folder in log_folders(tmp_path)] == ["signal"] * 3


# --- kill -9 --------------------------------------------------------------------------------

FOREVER = """
import headway, itertools
rec = headway.start('r', attempt='a')
print('ready', flush=True)
for n in rec.track(itertools.count()):
    with rec.tracker.time_transfer():
        pass
    if n % 50 == 49:
        rec.saved(n)
        print(n, flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_loses_nothing_that_was_whole(tmp_path, seed):
    after = random.Random(seed).randrange(1, 40)
    with subprocess.Popen(
        [sys.executable, "-c", FOREVER], env=os.environ | {"HEADWAY_DIR": str(tmp_path)}, stdout=subprocess.PIPE
    ) as process:
        told = [process.stdout.readline() for _ in range(1 + after)]
        process.kill()
    last = int(told[-1])
    (folder,) = log_folders(tmp_path)
    found = rows(folder)
    assert len(found) >= last  # the row of step `last` itself ends with the next turn of the loop
    assert np.array_equal(found["step"], np.arange(len(found)))
    assert (found["end_ns"] >= found["start_ns"]).all()
    assert (found["start_ns"][1:] >= found["end_ns"][:-1]).all()
    assert max(event.step for event in events(folder, Saved)) >= last
    assert reason(folder) is None


# --- fork -----------------------------------------------------------------------------------

FORK = START + "with rec.step(): pass\nrec.saved(0)\npid = os.fork()\nif pid == 0:\n{child}\nos.waitpid(pid, 0)\n"


def indent(text):
    return "".join(f"    {line}\n" for line in text.splitlines())


@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit(0)", "raise ValueError", KILL.strip()])
def test_a_child_never_writes_its_parents_log(tmp_path, leave):
    child = "with rec.step(): pass\nrec.saved(99)\nwith rec.span('x'): pass\nrec.close('failed')\n"
    child += "list(rec.track([1, 2]))\nassert rec.closed\n" + leave
    text = FORK.format(child=indent(child)) + "with rec.step(): pass\nrec.saved(1)"
    script(text, tmp_path)
    (folder,) = log_folders(tmp_path)
    assert [event.step for event in events(folder, Saved)] == [0, 1]
    assert rows(folder)["step"].tolist() == [0, 1]
    assert events(folder, Begin) == []
    assert reason(folder) == "finished"


def test_a_child_may_record_for_itself(tmp_path):
    child = (
        "assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL\n"
        "with headway.start('r', attempt='a') as own:\n  list(headway.track([1, 2, 3]))\nos._exit(0)"
    )
    script(FORK.format(child=indent(child)), tmp_path)
    parent, own = log_folders(tmp_path)
    assert (len(rows(parent)), len(rows(own))) == (1, 3)
    assert (reason(parent), reason(own)) == ("finished", "finished")


@pytest.mark.parametrize("begin", ["own = headway.start('r', attempt='a')", "own = headway"])
def test_a_fork_in_a_span_is_in_none_of_its_own(tmp_path, begin):
    child = begin + "\nlist(own.track([1, 2, 3]))\nwith rec.span('x'): pass\nsys.exit()"
    text = "span = rec.span('device_init')\nspan.__enter__()\n"
    script(FORK.format(child=indent(child)).replace("pid = os", text + "pid = os"), tmp_path)
    assert sorted(len(rows(folder)) for folder in log_folders(tmp_path)) == [1, 3]


def test_a_fork_while_another_thread_writes_does_not_hang_the_child(tmp_path):
    text = (
        "stop = threading.Event()\n"
        "def write():\n  while not stop.is_set():\n    rec.saved(1)\n"
        "threads = [threading.Thread(target=write) for _ in range(3)]\n"
        "for thread in threads: thread.start()\n"
        "for _ in range(30):\n"
        "  pid = os.fork()\n"
        "  if pid == 0:\n"
        "    rec.saved(2); rec.faults.note('x'); headway.start('r').close(); os._exit(0)\n"
        "  assert os.waitpid(pid, 0)[1] == 0\n"
        "stop.set()\n"
        "for thread in threads: thread.join()\n"
    )
    script(START + "import warnings; warnings.simplefilter('ignore')\n" + text, tmp_path)
    assert {event.step for event in events(tmp_path / "r" / "a-r0", Saved)} == {1}


def test_a_pool_of_forked_workers(tmp_path):
    text = (
        "import multiprocessing\n"
        "context = multiprocessing.get_context('fork')\n"
        "with context.Pool(2) as pool:\n  assert list(rec.track(pool.imap(abs, range(-4, 0)))) == [4, 3, 2, 1]\n"
    )
    ended, folder = run(text, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert len(rows(folder)) == 4
    assert reason(folder) == "finished"


def test_a_child_that_is_ended_at_once_does_end(tmp_path):
    """Its SIGTERM may come before it has let go of the parent's handler."""
    text = (
        "for _ in range(300):\n"
        "  pid = os.fork()\n"
        "  if pid == 0:\n    signal.pause(); os._exit(0)\n"
        "  os.kill(pid, signal.SIGTERM)\n"
        "  assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGTERM\n"
        "assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()\n"
    )
    ended, folder = run(text, tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert reason(folder) == "finished"
