import copy
import gc
import io
import logging
import pickle
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

import headway
from headway.clock import ManualClock
from headway.events import Fault, Open
from headway.record import track as track_module

from recorded import events, log_folders, reason, rows, script


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No recorder of another test, and no log outside the test's folder."""
    monkeypatch.setattr(logging.getLogger("headway"), "level", logging.ERROR)
    monkeypatch.setattr(track_module, "_implicit", {})
    monkeypatch.setenv("HEADWAY_DIR", str(tmp_path))
    yield
    for recorder in track_module._implicit.values():
        recorder.close()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def rec(tmp_path, clock):
    with headway.start("r", dir=tmp_path, attempt="a", clock=clock) as rec:
        yield rec


def slow(clock, n, seconds=1.0):
    for item in range(n):
        clock.advance(seconds)
        yield item


def steps(rec):
    rec.close()
    assert not rec.faults.counts
    return rows(rec.path)["step"].tolist()


# --- what is timed --------------------------------------------------------------------------


def test_only_next_is_source_and_the_step_lasts_until_the_loop_comes_back(rec, clock):
    for _ in rec.track(slow(clock, 3)):
        clock.advance(2)
    rec.close()
    found = rows(rec.path)
    assert found["source"].tolist() == [10**9] * 3
    assert (found["end_ns"] - found["start_ns"]).tolist() == [3 * 10**9] * 3
    assert found["start_ns"].tolist() == [0, 3 * 10**9, 6 * 10**9]
    assert not rec.faults.counts


def test_the_loops_own_phases_go_into_the_step(rec, clock):
    for _ in rec.track(slow(clock, 1)):
        with rec.tracker.time_transfer():
            clock.advance(0.5)
    rec.close()
    assert rows(rec.path)[["source", "transform", "transfer"]].tolist() == [(10**9, 0, 5 * 10**8)]


def test_the_end_of_the_loader_is_no_step(rec, clock):
    def late():
        yield 1
        clock.advance(7)

    for _ in range(3):
        assert list(rec.track(late())) == [1]
    assert steps(rec) == [0, 1, 2]


def test_an_empty_loader_has_no_step(rec):
    assert list(rec.track([])) == []
    assert steps(rec) == []


def test_epochs_go_on_counting(rec):
    loader = rec.track([1, 2], first_step=10)
    for _ in range(2):
        assert list(loader) == [1, 2]
    assert steps(rec) == [10, 11, 12, 13]


def test_numbering_goes_on_after_what_was_restored(rec):
    rec.restored(100)
    list(rec.track([1, 2]))
    assert steps(rec) == [101, 102]


def test_a_step_inside_the_loop_is_the_loops(rec):
    for _ in rec.track([1, 2]):
        with rec.step():
            pass
    assert steps(rec) == [0, 1]


def test_phases_without_a_source_are_left_alone(tmp_path):
    with headway.start("r", dir=tmp_path, phases=("pack",)) as rec:
        list(rec.track([1]))
    assert steps(rec) == [0]


# --- how a loop ends ------------------------------------------------------------------------


def test_a_break_ends_the_step_and_closes_the_generator(rec, clock):
    loader = slow(clock, 10)
    for item in rec.track(loader):
        clock.advance(1)
        if item == 1:
            break
    assert list(loader) == []
    rec.close()
    assert (rows(rec.path)["end_ns"] - rows(rec.path)["start_ns"]).tolist() == [2 * 10**9] * 2


def test_an_exception_in_the_loop_ends_the_step(rec, clock):
    def train(loader):
        for _ in rec.track(loader):
            clock.advance(1)
            raise RuntimeError("diverged")

    loader = slow(clock, 10)
    with pytest.raises(RuntimeError, match="diverged"):
        train(loader)
    assert list(loader) == []
    assert steps(rec) == [0]


def test_an_exception_of_the_loader_passes_through_and_is_no_step(rec):
    error = OSError("bad shard")

    def items():
        yield 1
        raise error

    with pytest.raises(OSError, match="bad shard") as caught:
        list(rec.track(items()))
    assert caught.value is error
    assert caught.value.__context__ is None
    assert steps(rec) == [0]


def test_an_iterator_that_is_no_generator_is_not_closed(rec):
    stream = io.StringIO("a\nb\nc\n")
    for line in rec.track(stream):
        assert line == "a\n"
        break
    assert stream.readline() == "b\n"


@pytest.mark.parametrize("quiet", [True, False])
def test_a_generator_that_the_loader_made_for_the_loop_is_closed_with_it(rec, monkeypatch, quiet):
    monkeypatch.setattr("sys.stderr", io.StringIO())
    closed = []

    class Loader:
        def __iter__(self):
            try:
                yield from range(10)
            finally:
                closed.append(True)

    for _ in rec.track(Loader(), quiet=quiet):
        break
    assert closed == [True]


def test_what_fails_as_it_is_closed_does_not_reach_the_loop(rec, monkeypatch):
    told = []
    monkeypatch.setattr("sys.unraisablehook", lambda args: told.append(str(args.exc_value)))

    class Loader:
        def __iter__(self):
            try:
                yield from range(10)
            finally:
                raise RuntimeError("close failed")

    for loader in (Loader(), rec.track(Loader())):
        for _ in loader:
            break
    assert told == ["close failed"] * 2


@pytest.mark.parametrize("where", ["alone", "in a step", "in an evaluation"])
def test_a_file_that_the_loader_kept_is_there_in_the_next_epoch(rec, tmp_path, where):
    (tmp_path / "lines").write_text("a\nb\n")

    class Lines:
        def __init__(self):
            self.file = (tmp_path / "lines").open(encoding="utf-8")

        def __iter__(self):
            self.file.seek(0)
            return self.file

    loader = Lines()
    around = {"alone": nullcontext, "in a step": rec.step, "in an evaluation": lambda: rec.span("evaluation")}[where]
    with loader.file, around():
        for _ in rec.track(loader):
            break
        assert [list(rec.track(loader)) for _ in range(2)] == [["a\n", "b\n"]] * 2


def test_no_iterable_raises_as_it_does_without(rec):
    with pytest.raises(TypeError, match="'int' object is not iterable"):
        iter(rec.track(7))
    with pytest.raises(TypeError):
        len(rec.track(iter([])))


# --- loops in loops -------------------------------------------------------------------------


def test_a_loop_inside_a_step_is_part_of_it_and_its_waits_are_the_steps(rec, clock):
    for _ in rec.track(slow(clock, 2)):
        assert len(list(rec.track(slow(clock, 3, 0.5)))) == 3
    rec.close()
    assert rows(rec.path)["source"].tolist() == [2_500_000_000] * 2
    assert not rec.faults.counts


@pytest.mark.parametrize("inside", [True, False])
def test_a_loop_in_an_evaluation_is_no_training(rec, clock, inside):
    for _ in rec.track(slow(clock, 2)):
        if inside:
            with rec.span("evaluation"):
                list(rec.track(slow(clock, 3)))
    if not inside:
        with rec.span("evaluation"):
            list(rec.track(slow(clock, 3)))
    rec.close()
    assert rows(rec.path)["source"].tolist() == [10**9] * 2


def test_a_loop_in_a_span_of_ones_own_is_training(rec):
    with rec.span("phase one"):
        list(rec.track([1, 2]))
    assert steps(rec) == [0, 1]


def test_a_half_used_iterator_that_is_kept_does_not_swallow_a_loop_unsaid(rec):
    kept = iter(rec.track([1, 2, 3]))
    next(kept)
    assert len(list(rec.track(range(100)))) == 100
    for _ in range(20):
        with rec.step():
            pass
    rec.close()
    assert rec.faults.counts == {"nested-loop": 120}
    assert [(fault.what, fault.count) for fault in events(rec.path, Fault)] == [("nested-loop", 120)]
    kept.close()
    assert rec.faults.counts == {"nested-loop": 120}


def test_one_that_is_dropped_lets_the_next_loop_record_and_says_what_it_swallowed(rec):
    kept = iter(rec.track([1, 2, 3]))
    next(kept)
    list(rec.track(range(5)))
    del kept
    gc.collect()
    assert rec.faults.counts == {"nested-loop": 5}
    list(rec.track(range(7)))
    assert rec.tracker.summary().total_batches == 8


def test_a_first_item_taken_for_a_look_is_one_step(rec):
    loader = rec.track([1, 2, 3])
    assert next(iter(loader)) == 1
    list(loader)
    assert steps(rec) == [0, 1, 2, 3]


def test_a_loop_in_a_loop_that_goes_on_is_no_fault(rec):
    for n in rec.track(range(4)):
        list(rec.track(range(3)))
        with rec.step():
            pass
        if n == 2:
            with rec.span("evaluation"):
                list(rec.track(range(9)))
            continue
    for pair in zip(rec.track(range(4)), rec.track(range(4)), strict=True):
        if pair == (2, 2):
            break
    for _ in rec.track(rec.track(range(3))):
        break
    assert steps(rec) == list(range(8))


def test_a_loop_while_another_threads_step_is_open_is_counted(rec):
    thread = threading.Thread(target=lambda: list(rec.track(range(5))))
    with rec.step():
        thread.start()
        thread.join()
    rec.close()
    assert rec.faults.counts == {"step-thread": 5}
    assert len(rows(rec.path)) == 1


def test_a_step_that_another_thread_begins_during_a_loop_is_counted(rec):
    step = rec.step()
    for n in rec.track(range(4)):
        if n == 1:
            items = iter(rec.track(range(3)))
    with rec.step():
        thread = threading.Thread(target=lambda: list(items))
        thread.start()
        thread.join()
    del step
    rec.close()
    assert rec.faults.counts == {"step-thread": 3}


# --- the loader shows through ---------------------------------------------------------------


class Loader:
    batch_size = 4

    def __init__(self):
        self.epoch = 0
        self.position = 0

    def __len__(self):
        return 2

    def __iter__(self):
        return iter([self.epoch, self.epoch])

    def set_epoch(self, epoch):
        self.epoch = epoch

    def state_dict(self):
        return {"position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


def test_all_attributes_are_the_loaders(rec):
    loader = Loader()
    tracked = rec.track(loader)
    tracked.set_epoch(5)
    tracked.load_state_dict({"position": 9})
    tracked.batch_size = 8
    assert (len(tracked), list(tracked), tracked.state_dict(), loader.batch_size) == (2, [5, 5], {"position": 9}, 8)
    del tracked.batch_size
    assert loader.batch_size == 4
    assert bool(rec.track([])) is False
    assert bool(rec.track(iter([]))) is True
    assert not hasattr(rec.track([1]), "state_dict")
    with pytest.raises(AttributeError, match="'list' object has no attribute 'set_epoch'"):
        rec.track([1]).set_epoch(1)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize(
    "line", [lambda rec, loader: rec.track(loader, first_step=5), lambda _, loader: headway.track(loader)]
)
def test_a_copy_wraps_a_copy_of_the_loader_and_records_here(rec, again, line):
    loader = Loader()
    tracked = line(rec, loader)
    other = again(tracked)
    other.set_epoch(7)
    assert (loader.epoch, list(other), list(tracked)) == (0, [7, 7], [0, 0])
    assert len(steps(rec)) == 4


def test_what_the_loader_holds_is_shared_by_a_copy_and_not_by_a_deep_one(rec):
    tracked = rec.track([[1], [2]])
    assert copy.copy(tracked).__iter__().__next__() is tracked.__iter__().__next__()
    assert copy.deepcopy(tracked).__iter__().__next__() is not tracked.__iter__().__next__()


def test_a_loader_that_cannot_be_pickled_says_so_itself(rec):
    with pytest.raises(TypeError, match="generator"):
        pickle.dumps(rec.track(n for n in range(3)))


def test_in_another_process_it_records_there(rec, tmp_path):
    (tmp_path / "loader").write_bytes(pickle.dumps([rec.track([1, 2, 3]), headway.track([4], run="r")]))
    load = f"import headway, pickle\nloaders = pickle.load(open({str(tmp_path / 'loader')!r}, 'rb'))\n"
    script(load + "for one in loaders: list(one)", tmp_path / "implicit")
    assert [len(rows(folder)) for folder in log_folders(tmp_path / "implicit")] == [3, 1]
    script(load + "with headway.start('r'):\n  for one in loaders: list(one)", tmp_path / "started")
    assert [len(rows(folder)) for folder in log_folders(tmp_path / "started")] == [4]
    assert steps(rec) == []


@pytest.mark.parametrize("make", [list, iter, tuple, lambda x: (i for i in x), dict.fromkeys])
def test_any_iterable_works(rec, make):
    assert list(rec.track(make([1, 2, 3]))) == [1, 2, 3]
    assert steps(rec) == [0, 1, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_torch_loader_with_workers(tmp_path, workers):
    data = pytest.importorskip("torch.utils.data")
    loader = data.DataLoader(list(range(8)), batch_size=2, num_workers=workers)
    with headway.start("r", dir=tmp_path) as rec:
        tracked = rec.track(loader)
        assert len(tracked) == 4
        for _ in range(2):
            assert sorted(int(n) for batch in tracked for n in batch) == list(range(8))
        assert tracked.dataset is loader.dataset
    assert steps(rec) == list(range(8))
    assert len(log_folders(tmp_path)) == 1


# --- whose log ------------------------------------------------------------------------------


def test_the_started_recorder_is_used(rec):
    list(headway.track([1, 2]))
    list(headway.track([1], run="r"))
    assert steps(rec) == [0, 1, 2]


def test_a_recorder_can_be_given(tmp_path, rec):
    with headway.start("other", dir=tmp_path) as other:
        list(headway.track([1, 2], recorder=rec))
    assert steps(other) == []
    assert steps(rec) == [0, 1]


def test_without_one_all_epochs_are_one_attempt(tmp_path):
    for _ in range(3):
        list(headway.track([1, 2], run="mine"))
    (folder,) = log_folders(tmp_path)
    assert rows(folder)["step"].tolist() == list(range(6))
    assert reason(folder) is None


def test_two_runs_in_one_process_are_two_logs(tmp_path):
    for run in ("a", "b", "a"):
        list(headway.track([1], run=run))
    assert [(f.parent.name, len(rows(f))) for f in log_folders(tmp_path)] == [("a", 2), ("b", 1)]


LOOP = "import headway\nfor x in headway.track([1, 2, 3]):\n    pass\n"


def test_the_implicit_recorder_is_closed_when_the_program_ends(tmp_path):
    script(LOOP, tmp_path)
    (folder,) = log_folders(tmp_path)
    assert reason(folder) == "finished"
    assert len(rows(folder)) == 3


def test_an_uncaught_exception_ends_it_as_failed(tmp_path):
    ended = script(LOOP + "    raise ValueError('diverged')", tmp_path, check=False)
    assert ended.returncode == 1
    assert "diverged" in ended.stderr
    assert reason(log_folders(tmp_path)[0]) == "failed"


def test_two_launches_without_a_name_are_two_runs(tmp_path):
    for _ in range(2):
        script(LOOP, tmp_path)
    assert len({events(folder, Open)[0].run for folder in log_folders(tmp_path)}) == 2


def test_nothing_is_printed_where_there_is_no_terminal(tmp_path):
    ended = script(LOOP, tmp_path)
    assert (ended.stdout, ended.stderr) == ("", "")


def test_a_disk_fault_is_told_once_and_never_reaches_the_loop(tmp_path):
    (tmp_path / "file").write_text("")
    ended = script(LOOP + "    print(x)", tmp_path / "file")
    assert ended.stdout.split() == ["1", "2", "3"]
    assert ended.stderr.count("\n") == 1
    assert "[folder]" in ended.stderr


def test_the_bar_is_drawn_when_asked(rec, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    list(rec.track([1, 2], quiet=False, description="train"))
    assert stream.getvalue().splitlines()[-1].startswith("train")
    assert "2/2" in stream.getvalue()


def bar_counts(stream):
    return [part.split("/")[0].split()[-1] + "/" + part.split("/")[1].split()[0] for part in drawn(stream)]


def drawn(stream):
    return [part for part in stream.getvalue().replace("\n", "\r").split("\r") if "/" in part]


def test_desc_is_another_name_of_description(rec, monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    list(headway.track([1], quiet=False, desc="tqdm's"))
    list(rec.track([1], quiet=False, desc="ours"))
    list(rec.track([1], quiet=False, description="long", desc="short"))
    assert [line.split("\r")[-1].split("  ")[0] for line in stream.getvalue().split("\n")[:-1]] == [
        "tqdm's",
        "ours",
        "long",
    ]


@pytest.mark.parametrize(
    ("restored", "n", "given", "first", "last"),
    [
        (19, 80, {"total": 100}, "20/100", "100/100"),  # the total counts all steps
        (19, 80, {}, "0/80", "80/80"),
        (19, 80, {"total": 80}, "0/80", "80/80"),
        (19, 80, {"total": 90}, "0/90", "80/90"),
        (None, 80, {"total": 100, "first_step": 20}, "20/100", "100/100"),
        (None, 80, {"initial": 20}, "20/100", "100/100"),
        (19, 80, {"total": 100, "initial": 0}, "0/100", "80/100"),
        (None, 3, {"initial": "x", "total": 3}, "0/3", "3/3"),
    ],
)
def test_a_resumed_loop_begins_where_it_goes_on(rec, monkeypatch, restored, n, given, first, last):
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    if restored is not None:
        rec.restored(restored)
    list(rec.track(list(range(n)), quiet=False, **given))
    counts = bar_counts(stream)
    assert (counts[0], counts[-1]) == (first, last)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("list(headway.track([1], run='my run', quiet=False))", 1),
        ("for _ in range(3): list(headway.track([1], run='my run', quiet=False))", 1),
        ("list(headway.track([1], run='my run'))", 0),
        ("rec = headway.start('my run'); list(headway.track([1], quiet=False))", 0),
        ("list(headway.track([1], run='my run', quiet=False)); import os; os.fork()", 1),
    ],
)
def test_who_saw_a_bar_and_asked_for_no_log_learns_where_it_is(tmp_path, text, said):
    ended = script(f"import os; os.chdir({str(tmp_path)!r})\nimport headway\n{text}", tmp_path / "logs", check=False)
    line = "headway: recorded in logs/my_run-"
    assert ended.stderr.count(line) == said, ended.stderr
    if said:
        assert " · headway report logs/my_run-" in ended.stderr.splitlines()[-1]


def test_a_length_that_raises_costs_the_bar_its_total_only(rec, monkeypatch):
    class Odd(list):
        def __len__(self):
            raise RuntimeError("unknown yet")

    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert [n for n in rec.track(Odd([1, 2]), quiet=False)] == [1, 2]  # noqa: C416 - list() would ask for the length


def test_the_log_of_a_run_is_where_it_was_asked_for(tmp_path):
    list(headway.track([1], run="r", dir=tmp_path / "elsewhere"))
    assert Path(log_folders(tmp_path / "elsewhere")[0]).parent.name == "r"
