import os
import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.clock import ManualClock
from headway.record.faults import Faults
from headway.record.identity import identify, log_root, moment_name, safe_name, whole_number


def who(environ=None, **arguments):
    faults = Faults()
    found = identify(faults=faults, environ=environ or {}, clock=ManualClock(), **arguments)
    return found, faults.counts


TORCHRUN = {
    "RANK": "3",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "TORCHELASTIC_RUN_ID": "job7",
    "TORCHELASTIC_RESTART_COUNT": "2",
}
SLURM = {
    "SLURM_PROCID": "5",
    "SLURM_NTASKS": "16",
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_RESTART_COUNT": "1",
}
OPENMPI = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "prterun-h-99@1"}


@pytest.mark.parametrize(
    ("environ", "attempt", "rank", "world_size"),
    [
        (TORCHRUN, "job7-0002", 3, 8),
        (SLURM, "slurm4711-0001-0000", 5, 16),
        (OPENMPI, "prterun-h-99@1", 2, 4),
        (SLURM | TORCHRUN, "job7-0001-0000-0002", 3, 8),
        (SLURM | TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}, "slurm4711-0001-0000-0002", 3, 8),
        (TORCHRUN | {"HEADWAY_ATTEMPT": "a1", "HEADWAY_RANK": "6", "HEADWAY_WORLD_SIZE": "7"}, "a1.0002", 6, 7),
        ({"HEADWAY_ATTEMPT": "a1"}, "a1", 0, 1),
        ({"HEADWAY_RANK": "2"} | TORCHRUN, "job7-0002", 2, 8),
    ],
)
def test_the_launcher_says_who_a_process_is(environ, attempt, rank, world_size):
    found, faults = who(environ, run="r")
    assert (found.attempt, found.rank, found.world_size) == (attempt, rank, world_size)
    assert not faults


def test_arguments_come_before_the_environment():
    found, faults = who(TORCHRUN | {"HEADWAY_RUN": "env"}, run="r", attempt="mine", rank=0, world_size=2)
    assert (found.run, found.attempt, found.rank, found.world_size) == ("r", "mine", 0, 2)
    assert not faults
    assert who({"HEADWAY_RUN": "env"})[0].run == "env"


def test_all_ranks_of_a_launch_share_its_attempt():
    names = {who(TORCHRUN | {"RANK": str(rank)}, run="r")[0].attempt for rank in range(8)}
    assert len(names) == 1


def test_a_batch_script_of_slurm_is_one_process_and_not_its_jobs_tasks():
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "4711"}
    found, faults = who(batch, run="r")
    assert (found.rank, found.world_size, found.attempt) == (0, 1, "slurm4711")
    assert not faults


def test_without_a_launcher_the_attempt_is_the_moment_and_the_pid():
    found, _ = who(run="r")
    assert found.attempt == f"20231114T221320.000000-{os.getpid()}"
    assert found.rank == 0
    assert found.world_size == 1
    assert found.host


def test_attempts_sort_by_time():
    moments = [0, 1_000, 999_999_999, 1_700_000_000_000_000_000, 1_700_000_000_000_001_000]
    assert [moment_name(ns, 1) for ns in moments] == sorted(moment_name(ns, 1) for ns in moments)


def test_two_launches_without_a_run_name_are_two_runs():
    first = identify(faults=Faults(), environ={}, clock=ManualClock(), script="train.py")
    second = identify(faults=Faults(), environ={}, clock=ManualClock(wall_ns=10**18), script="train.py")
    assert first.run != second.run
    assert first.run.startswith("train-2023")


def test_workers_of_one_torchrun_without_an_id_share_attempt_and_run():
    code = (
        "from headway.record.faults import Faults; from headway.record.identity import identify;"
        "me = identify(faults=Faults()); print(me.run, me.attempt)"
    )
    env = os.environ | TORCHRUN | {"TORCHELASTIC_RUN_ID": "none"}
    lines = {subprocess.check_output([sys.executable, "-c", code], env=env, text=True) for _ in range(2)}
    assert len(lines) == 1
    assert re.match(rf"python-\d+T\d+\.\d+-{os.getpid()} \d+T\d+\.\d+-{os.getpid()}-0002$", lines.pop())


@pytest.mark.parametrize(
    "environ",
    [
        {"RANK": "abc", "WORLD_SIZE": "8"},
        {"RANK": "-1", "WORLD_SIZE": "4"},
        {"RANK": "", "WORLD_SIZE": "4"},
        {"RANK": "0", "WORLD_SIZE": "0"},
        {"SLURM_PROCID": "x", "SLURM_NTASKS": "4"},
        {"RANK": "9", "WORLD_SIZE": "4"},
        {"HEADWAY_RANK": "1e3", "HEADWAY_WORLD_SIZE": "nan"},
    ],
)
def test_nonsense_in_the_environment_is_counted_and_passed_over(environ):
    found, faults = who(environ, run="r")
    assert found.rank < found.world_size
    assert faults["argument"] >= 1


def test_a_launcher_that_makes_no_sense_leaves_room_for_the_next():
    found, _ = who({"RANK": "abc", "WORLD_SIZE": "8"} | SLURM, run="r")
    assert (found.rank, found.world_size) == (5, 16)


class Hostile:
    def __str__(self):
        raise RuntimeError("no text")

    def __int__(self):
        raise RuntimeError("no number")


@pytest.mark.parametrize("value", ["x", -1, 1.5, float("nan"), float("inf"), [], Hostile(), b"1x"])
def test_an_argument_that_is_no_number_is_counted(value):
    faults = Faults()
    assert whole_number(value, 0, "rank", faults) is None
    assert faults.counts == {"argument": 1}
    who(run=value, attempt=value, rank=value, world_size=value)


@given(st.text())
def test_any_run_name_is_a_safe_folder_name(name):
    safe = safe_name(name)
    assert safe == safe_name(name)
    assert safe not in {"", ".", ".."}
    assert not safe.startswith(".")
    assert not re.search(r"[/\\\x00-\x1f\x7f]", safe)
    assert len(safe.encode()) <= 200


@given(st.text(), st.text())
def test_two_names_share_no_folder(first, second):
    assert first == second or safe_name(first) != safe_name(second)


def test_surrogates_in_a_name_are_kept_out_of_the_log():
    found, _ = who({"HEADWAY_RUN": "a\udc80"})
    found.run.encode()


def test_the_root_is_the_argument_else_the_environment_else_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert log_root(environ={}) == str(tmp_path / "headway-logs")
    assert log_root(environ={"HEADWAY_DIR": "/x"}) == "/x"
    assert log_root(tmp_path / "given", environ={"HEADWAY_DIR": "/x"}) == str(tmp_path / "given")


def test_the_root_is_found_also_where_the_working_folder_is_gone(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert log_root(environ={}) == "headway-logs"
