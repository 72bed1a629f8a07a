"""Run folders on disk, put together as runs; and a run that is followed."""

import json

import numpy as np
import pytest

from headway.errors import SourceError
from headway.events import Close, Span
from headway.ledger.account import account
from headway.record.steplog import field_names, header
from headway.sources import load, load_all
from headway.sources.native.follow import Follower

PHASES = ("source",)
S = 10**9


def line(kind, **fields):
    return json.dumps({"kind": kind, **fields}) + "\n"


def opened(attempt="a0", rank=0, run="digits", **fields):
    wall = {"wall_ns": 1_700_000_000_000_000_000, "mono_ns": 0, **fields}
    return line("open", run=run, attempt=attempt, rank=rank, **wall)


def write(folder, *lines):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "events.jsonl").write_text("".join(lines))
    return folder


def step(number):
    return line("step", step=number, start=number * 10, end=number * 10 + 9)


def rows_of(first, n):
    rows = np.zeros(n, [(name, "<i8") for name in field_names(PHASES)])
    index = np.arange(first, first + n)
    rows["step"], rows["start_ns"], rows["end_ns"], rows["seq"] = index, index * 10, index * 10 + 9, index + 1
    return rows


def test_a_run_is_read_from_any_of_its_paths(tmp_path):
    folder = write(tmp_path / "root" / "digits" / "a0-r0", opened(), step(1))
    for path in (tmp_path / "root", tmp_path / "root" / "digits", folder, folder / "events.jsonl"):
        (run,) = load(path)
        assert (run.name, run.source, len(run.processes), len(run.processes[0].rows)) == ("digits", "native", 1, 1)


def test_runs_come_in_the_order_of_their_names(tmp_path):
    for name in ("b", "a", "c"):
        write(tmp_path / name / "a0-r0", opened(run=name))
    assert [run.name for run in load(str(tmp_path))] == ["a", "b", "c"]


def test_rows_and_step_events_are_both_used(tmp_path):
    folder = write(tmp_path / "r" / "a0-r0", opened(), line("step", step=9, start=1, end=5, phases={"x": 2}))
    (folder / "steps.npy").write_bytes(header(PHASES, 3) + rows_of(0, 3).tobytes())
    rows = load(tmp_path / "r")[0].processes[0].rows
    assert rows.step.tolist() == [0, 1, 2, 9]
    assert rows.waits["x"].tolist() == [0, 0, 0, 2]
    assert rows.waits["source"].tolist() == [0, 0, 0, 0]


def test_a_run_without_a_name_is_called_as_its_folder(tmp_path):
    write(tmp_path / "my\x1b[31mrun" / "a0-r0", opened(run=""))
    assert load(tmp_path)[0].name == "myrun"


def test_devices_override_what_the_log_says(tmp_path):
    write(tmp_path / "a0-r0", opened(devices=4))
    assert [load(tmp_path, devices=n)[0].processes[0].open.devices for n in (None, 8)] == [4, 8]


def test_a_launch_log_stands_in_only_where_nothing_was_recorded(tmp_path):
    ended = line("exit", code=-9, at=9), line("close", at=9, reason="signal")
    write(tmp_path / "a0-launch", opened("a0"), *ended)
    write(tmp_path / "a0-r0", opened("a0"))
    write(tmp_path / "a1-launch", opened("a1"), line("exit", code=3, at=9))
    (run,) = load(tmp_path)
    assert [(process.open.attempt, len(process.events)) for process in run.processes] == [("a0", 0), ("a1", 1)]
    assert run.warnings == (
        "attempt a0: the command was ended by SIGKILL",
        "attempt a1: the command ended with exit code 3",
    )


BOOT = {"wall_ns": 1_700_000_000 * S, "mono_ns": 0, "host": "h"}


def launched(root, *, attempt="a0", begin=0, end=100, code=-9, rank=0, **fields):
    """A launcher's log, its times in seconds."""
    at = {**BOOT, "wall_ns": BOOT["wall_ns"] + begin * S, "mono_ns": begin * S, **fields}
    ended = line("exit", code=code, at=end * S), line("close", at=end * S, reason="signal" if code else "finished")
    name = f"{attempt}.r{rank}-launch" if rank else f"{attempt}-launch"
    return write(root / name, opened(attempt, rank, **at), *ended)


def recorded(root, begin, *lines, attempt="a0", rank=0, **fields):
    at = {**BOOT, "wall_ns": BOOT["wall_ns"] + begin * S, "mono_ns": begin * S, **fields}
    return write(root / f"{attempt}-r{rank}", opened(attempt, rank, **at), *lines)


def spans(process):
    """Where it begins, its start-up and its end [s]."""
    startup = [(event.start // S, event.end // S) for event in process.events if isinstance(event, Span)]
    ends = [event.at // S for event in process.events if isinstance(event, Close)]
    return process.open.mono_ns // S, startup, ends


def test_a_process_begins_and_ends_with_its_launch(tmp_path):
    launched(tmp_path, begin=10)
    recorded(tmp_path, 30, line("step", step=0, start=40 * S, end=50 * S), age_ns=20 * S)
    (run,) = load(tmp_path)
    (process,) = run.processes
    assert spans(process) == (10, [(10, 30)], [100])
    assert process.open.wall_ns == BOOT["wall_ns"] + 10 * S
    ledger = account(run)
    assert ledger.held_ns == 90 * S
    assert ledger.seconds["startup"] == 30
    assert not any("recording began" in text for text in ledger.warnings)


def test_a_process_that_closed_ends_where_it_closed(tmp_path):
    launched(tmp_path, begin=10, code=0)
    recorded(tmp_path, 30, line("close", at=60 * S))
    assert spans(load(tmp_path)[0].processes[0]) == (10, [(10, 30)], [60])


def test_a_process_that_closed_in_good_faith_and_failed_ends_as_its_launch_says(tmp_path):
    launched(tmp_path, begin=10, code=3)
    recorded(tmp_path, 30, line("saved", step=0, at=40 * S), line("close", at=60 * S))
    assert spans(load(tmp_path)[0].processes[0]) == (10, [(10, 30)], [60, 100])
    assert account(load(tmp_path)).by("attempt")["a0"].parts[0].ended == "signal"


def test_ranks_of_a_launch_begin_and_end_with_it(tmp_path):
    launched(tmp_path, begin=10)
    for rank in range(2):
        recorded(tmp_path, 30 + rank, rank=rank, world_size=2)
    assert [spans(process) for process in load(tmp_path)[0].processes] == [
        (10, [(10, 30)], [100]),
        (10, [(10, 31)], [100]),
    ]


def test_ranks_with_a_launcher_each_have_their_own(tmp_path):
    for rank in range(2):
        launched(tmp_path, begin=10 + rank, end=100 + rank, rank=rank)
        recorded(tmp_path, 30, rank=rank, world_size=2)
    first, second = (spans(process) for process in load(tmp_path)[0].processes)
    assert (first, second) == ((10, [(10, 30)], [100]), (11, [(11, 30)], [101]))


@pytest.mark.parametrize(
    "fields", [{"host": "other"}, {"host": ""}, {"wall_ns": BOOT["wall_ns"] + 32 * S}, {"mono_ns": 28 * S}]
)
def test_a_launch_on_another_host_or_boot_gives_no_time(tmp_path, fields):
    launched(tmp_path, begin=10)
    recorded(tmp_path, 30, **fields)
    assert spans(load(tmp_path)[0].processes[0])[1:] == ([], [])


def test_clocks_may_differ_by_a_second(tmp_path):
    launched(tmp_path, begin=10)
    recorded(tmp_path, 30, wall_ns=BOOT["wall_ns"] + 31 * S)
    assert spans(load(tmp_path)[0].processes[0]) == (10, [(10, 30)], [100])


def test_a_restart_inside_a_launch_begins_by_itself_and_the_last_ends_with_it(tmp_path):
    launched(tmp_path, begin=10)
    recorded(tmp_path, 30)
    recorded(tmp_path, 60, attempt="a0.0001")
    assert [spans(process) for process in load(tmp_path)[0].processes] == [(10, [(10, 30)], []), (60, [], [100])]


def note(folder, path, name="recorded-7.json"):
    """What a process leaves with its launch."""
    (folder / name).write_text(json.dumps({"path": str(path)}))


@pytest.mark.parametrize("moved", [False, True])
def test_a_launch_whose_command_recorded_another_run_stands_for_nothing(tmp_path, moved):
    folder = launched(tmp_path / "train", begin=10)
    recorded(tmp_path / "digits", 30)
    note(folder, "/before/the/move/digits/a0-r0" if moved else tmp_path / "digits" / "a0-r0")
    (run,) = load(tmp_path)
    assert (run.path, run.warnings) == (str(tmp_path / "digits"), ())
    assert len(Follower(tmp_path).poll()) == 1
    with pytest.raises(SourceError, match=rf"lies elsewhere, in {tmp_path}/digits\. Give that path"):
        load(tmp_path / "train")


def test_a_later_log_of_a_process_does_not_begin_with_the_launch(tmp_path):
    """The time before it is in the first one."""
    folder = launched(tmp_path / "y", begin=10)
    note(folder, tmp_path / "x" / "a0-r0")
    note(folder, recorded(tmp_path / "y", 60), "recorded-7-2.json")
    assert [spans(process) for process in load(tmp_path / "y")[0].processes] == [(60, [], [100])]


def test_a_launch_stands_in_where_what_it_points_to_is_gone(tmp_path):
    folder = launched(tmp_path / "train", begin=10)
    note(folder, tmp_path / "gone" / "t" / "a0-r0")
    (tmp_path / "kept" / "a0-r0").mkdir(parents=True)
    note(folder, tmp_path / "kept" / "a0-r0", "recorded-8.json")
    (run,) = load(tmp_path / "train")
    assert [process.open.attempt for process in run.processes] == ["a0"]


def test_a_process_of_an_attempt_of_its_own_is_counted_once(tmp_path):
    folder = launched(tmp_path, begin=10, code=3)
    note(folder, recorded(tmp_path, 30, attempt="mine"))
    (run,) = load(tmp_path)
    assert [process.open.attempt for process in run.processes] == ["mine"]
    assert run.warnings == ("attempt a0: the command ended with exit code 3",)


def test_a_restart_within_is_counted_once_where_the_first_recorded_nothing(tmp_path):
    folder = launched(tmp_path, begin=10)
    note(folder, recorded(tmp_path, 60, attempt="a0.0001"))
    (run,) = load(tmp_path)
    assert [(process.open.attempt, *spans(process)) for process in run.processes] == [("a0.0001", 60, [], [100])]


@pytest.mark.parametrize("records", [True, False])
def test_a_launcher_in_a_launcher_is_counted_once(tmp_path, records):
    outer, inner = launched(tmp_path, begin=10), launched(tmp_path, attempt="a0.002", begin=11)
    note(outer, inner)
    if records:
        note(inner, recorded(tmp_path, 30, attempt="a0.002"))
    (run,) = load(tmp_path)
    assert [spans(process)[0] for process in run.processes] == [11]


def test_launches_that_point_to_each_other_end(tmp_path):
    one, other = launched(tmp_path), launched(tmp_path, attempt="a1")
    note(one, other)
    note(other, one)
    note(one, one, "recorded-8.json")
    load_all([tmp_path])


def test_a_process_belongs_to_the_latest_launch_that_it_began_in(tmp_path):
    launched(tmp_path, begin=10, end=50)
    recorded(tmp_path, 30)
    launched(tmp_path, attempt="a0.002", begin=60, end=100)
    recorded(tmp_path, 70, attempt="a0.002")
    assert [spans(process) for process in load(tmp_path)[0].processes] == [
        (10, [(10, 30)], [50]),
        (60, [(60, 70)], [100]),
    ]


def test_a_process_that_began_after_the_launch_does_not_take_its_end(tmp_path):
    launched(tmp_path, begin=10, end=50)
    recorded(tmp_path, 30)
    recorded(tmp_path, 70, attempt="a0.002")
    assert [spans(process) for process in load(tmp_path)[0].processes] == [(10, [(10, 30)], [50]), (70, [], [])]


def test_a_launch_under_a_name_of_another_on_that_host_comes_first(tmp_path):
    launched(tmp_path, begin=10)
    launched(tmp_path, attempt="a0.002", begin=10, end=90)
    recorded(tmp_path, 30, attempt="a0.002")
    (one,) = [process for process in load(tmp_path)[0].processes if process.open.attempt == "a0.002"]
    assert spans(one) == (10, [(10, 30)], [90])


def test_attempts_given_one_by_one_are_their_run(tmp_path):
    for attempt in ("a0", "a1"):
        write(tmp_path / "digits" / f"{attempt}-r0", opened(attempt), step(1))
        write(tmp_path / "other" / f"{attempt}-r0", opened(attempt, run="other"))
    one, two = (tmp_path / "digits" / name for name in ("a0-r0", "a1-r0"))
    for paths in ([one, two], [one / "events.jsonl", two], [two, tmp_path / "digits", one], [one, one, two]):
        (run,) = load_all(paths)
        assert (run.name, run.path) == ("digits", str(tmp_path / "digits"))
        assert [process.open.attempt for process in run.processes] == ["a0", "a1"]
    assert [len(run.processes) for run in load_all([two, tmp_path / "other", one])] == [2, 2]
    assert [run.name for run in load_all([tmp_path / "other", tmp_path])] == ["other", "digits"]


def test_logs_of_other_names_or_folders_stay_apart(tmp_path):
    write(tmp_path / "x", opened(run="one"))
    write(tmp_path / "y", opened(run="two"))
    write(tmp_path / "deeper" / "x", opened(run="one"))
    assert len(load_all([tmp_path / "x", tmp_path / "y", tmp_path / "deeper" / "x"])) == 3
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(opened(run="one"))
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl", tmp_path / "a.jsonl"]
    assert [len(run.processes) for run in load_all(files)] == [1, 1]


def test_a_path_one_level_too_high_names_the_one_below(tmp_path):
    write(tmp_path / "digits" / "logs" / "digits" / "a0-r0", opened())
    (tmp_path / "digits" / "empty").mkdir()
    with pytest.raises(SourceError, match=r"There is one in .*digits/logs: give that path\. \[no-runs\]"):
        load(tmp_path / "digits")


def test_without_open_line_a_pair_of_clocks_tells_when_it_began(tmp_path):
    write(tmp_path / "a7-r3", line("clock", wall_ns=1_000_500, mono_ns=700), line("saved", step=1, at=200))
    process = load(tmp_path)[0].processes[0]
    assert (process.open.attempt, process.open.rank) == ("a7", 3)
    assert (process.open.wall_ns, process.open.mono_ns) == (1_000_000, 200)
    assert "open line is missing" in process.warnings[-1]


def test_without_any_clock_a_process_is_left_out_and_named(tmp_path):
    write(tmp_path / "a0-r0", opened())
    write(tmp_path / "a0-r1", step(1), line("saved", step=1, at=200))
    (tmp_path / "a0-r2").mkdir()
    (run,) = load(tmp_path)
    assert len(run.processes) == 1
    assert "a0-r1: no open line, so that its time is not known; 1 events and 1 rows left out" in run.warnings
    assert any(text.startswith("a0-r2: no open line") for text in run.warnings)


def test_two_logs_of_one_process_are_told_apart_by_their_folders(tmp_path):
    for name in ("a0-r0", "a0-r1", "a1-r0"):
        write(tmp_path / name, opened("a0", 0))
    (run,) = load(tmp_path)
    assert sorted((p.open.attempt, p.open.rank) for p in run.processes) == [("a0", 0), ("a0", 1), ("a1", 0)]


@pytest.mark.parametrize(
    ("fields", "word"),
    [({"schema": 2}, "newer"), ({"devices": 0}, "devices"), ({"rank": -1}, "rank"), ({"rows": "x"}, "rows")],
)
def test_an_odd_open_line_is_a_warning(tmp_path, fields, word):
    write(
        tmp_path / "a0-r0",
        opened().replace("}", ", " + json.dumps(fields)[1:]) if "rank" not in fields else opened(**fields),
    )
    process = load(tmp_path)[0].processes[0]
    assert word in process.warnings[0]
    assert process.open.devices == 1
    assert process.open.rank == 0


def test_a_second_open_line_is_a_warning(tmp_path):
    write(tmp_path / "a0-r0", opened(host="one"), opened(host="two"))
    process = load(tmp_path)[0].processes[0]
    assert process.open.host == "one"
    assert process.warnings == ["a0-r0/events.jsonl: line 2 is a second open line; the first counts"]


def test_a_folder_named_as_the_events_file_is_a_warning(tmp_path):
    (tmp_path / "r" / "a0-r0" / "events.jsonl").mkdir(parents=True)
    (run,) = load(tmp_path / "r")
    assert run.processes == ()
    assert any("it is a folder, not a file" in text for text in run.warnings)


def test_loops_of_links_end(tmp_path):
    write(tmp_path / "r" / "a0-r0", opened())
    (tmp_path / "r" / "again").symlink_to(tmp_path / "r")
    (tmp_path / "r" / "self").symlink_to("self")
    assert len(load(tmp_path / "r")[0].processes) == 1


def test_links_to_logs_elsewhere_are_not_followed_and_named(tmp_path):
    root, run = tmp_path / "root", tmp_path / "root" / "r"
    write(run / "a0-r0", opened(), step(1))
    write(tmp_path / "elsewhere" / "a1-r0", opened("a1"), step(2))
    (run / "a1-r0").symlink_to(tmp_path / "elsewhere" / "a1-r0")
    (run / "a2-r0").symlink_to(tmp_path / "gone")
    (root / "other").symlink_to(tmp_path / "elsewhere")
    (root / "latest").symlink_to("r")
    (found,) = load(root)
    assert [process.open.attempt for process in found.processes] == ["a0"]
    assert found.warnings == tuple(
        f"{link} is a link, which is not followed" for link in (run / "a1-r0", run / "a2-r0", root / "other")
    )
    (followed,) = Follower(root).poll()
    assert (len(followed.processes), followed.warnings) == (1, found.warnings)
    assert len(load(root / "other")[0].processes) == len(load(run / "a1-r0")[0].processes) == 1
    assert len(load_all([run, run / "a1-r0"])[0].processes) == 2


def test_a_folder_of_nothing_but_links_is_an_error_that_names_them(tmp_path):
    write(tmp_path / "elsewhere" / "r" / "a0-r0", opened())
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "r").symlink_to(tmp_path / "elsewhere" / "r")
    with pytest.raises(SourceError, match=r"r \(a link, which is not followed\)"):
        load(tmp_path / "root")


@pytest.mark.parametrize("name", ["events.jsonl", "steps.npy"])
def test_a_file_of_a_log_that_is_a_link_is_not_followed_unless_it_was_given(tmp_path, name):
    folder = write(tmp_path / "root" / "r" / "a0-r0", opened(), step(1))
    (folder / "steps.npy").write_bytes(header(PHASES, 3) + rows_of(0, 3).tobytes())
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    other = {"events.jsonl": "steps.npy", "steps.npy": "events.jsonl"}[name]
    for path in (tmp_path / "root", tmp_path / "root" / "r", folder, folder / other):
        (run,) = load(path)
        assert sum(len(process.rows) for process in run.processes) == (0 if name == "events.jsonl" else 1)
        said = [*run.warnings, *(text for process in run.processes for text in process.warnings)]
        assert any(f"a0-r0/{name}: " in text and "it is a link, which is not followed" in text for text in said)
    live = [text for run in Follower(tmp_path / "root").poll() for text in run.processes[0].warnings]
    assert any("it is a link" in text for text in live) == (name == "steps.npy")  # without an open line there is no run
    (run,) = load(folder / name)
    assert len(run.processes[0].rows) == 4
    assert not run.processes[0].warnings


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


def test_a_poll_reads_only_what_is_new(tmp_path):
    folder = write(tmp_path / "digits" / "a0-r0", opened())
    n = 50_000
    rows = np.concatenate([rows_of(0, n), np.zeros(100_000, rows_of(0, 1).dtype)])
    (folder / "steps.npy").write_bytes(header(PHASES, len(rows)) + rows.tobytes())
    follower = Follower(tmp_path)
    assert len(follower.poll()[0].processes[0].rows) == n
    idle = follower.bytes_read
    follower.poll()
    assert follower.bytes_read - idle <= 64 * rows.itemsize
    with (folder / "steps.npy").open("r+b") as file:
        file.seek(4096 + n * rows.itemsize)
        file.write(rows_of(n, 10).tobytes())
    append(folder / "events.jsonl", line("saved", step=5, at=9).encode() + b'{"kind":"sav')
    before = follower.bytes_read, follower.rows_read
    process = follower.poll()[0].processes[0]
    assert process.rows.step.tolist() == list(range(n + 10))
    assert (len(process.events), list(process.warnings)) == (1, [])
    assert follower.rows_read - before[1] == 10
    assert follower.bytes_read - before[0] < 200 * rows.itemsize
    append(folder / "events.jsonl", b'ed","step":6,"at":10}\n')
    assert [event.step for event in follower.poll()[0].processes[0].events] == [5, 6]


def test_what_a_poll_returned_does_not_change(tmp_path):
    folder = write(tmp_path / "a0-r0", opened(), step(0))
    follower = Follower(tmp_path)
    first = follower.poll()[0].processes[0]
    append(folder / "events.jsonl", "".join(step(n) for n in range(1, 300)).encode())
    assert len(follower.poll()[0].processes[0].rows) == 300
    assert first.rows.step.tolist() == [0]


def test_a_follower_finds_new_attempts_and_a_replaced_file(tmp_path):
    follower = Follower(tmp_path / "digits")
    assert follower.poll() == []
    write(tmp_path / "digits" / "a0-r0", opened(), step(1), step(2))
    assert len(follower.poll()[0].processes) == 1
    write(tmp_path / "digits" / "a1-r0", opened("a1"))
    assert [process.open.attempt for process in follower.poll()[0].processes] == ["a0", "a1"]
    write(tmp_path / "digits" / "a0-r0", opened(), step(7))
    assert follower.poll()[0].processes[0].rows.step.tolist() == [7]


def test_a_follower_sees_what_load_sees(tmp_path):
    write(tmp_path / "a0-r0", opened(), *(step(n) for n in range(9)), line("close", at=99))
    followed, loaded = Follower(tmp_path).poll()[0].processes[0], load(tmp_path)[0].processes[0]
    assert followed.open == loaded.open
    assert followed.events == loaded.events
    assert followed.rows.step.tolist() == loaded.rows.step.tolist()


def test_a_followed_file_of_another_source_is_read_when_it_changes(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text(':::MLLOG {"key": "init_start", "time_ms": 1000, "metadata": {}}\n')
    follower = Follower(path)
    assert follower.poll() is follower.poll()
    append(path, b':::MLLOG {"key": "run_start", "time_ms": 2000, "metadata": {}}\n')
    assert follower.poll()[0].processes[0].open.mono_ns == 10**9
