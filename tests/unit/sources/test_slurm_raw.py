"""Tasks of arrays and parts of jobs under raw numbers, as some lists have them, and under those that are shown."""

import json
from itertools import permutations

import pytest

from headway.sources import load
from headway.sources.slurm import aliases as slurm_aliases
from headway.sources.slurm import columns as slurm_columns

SACCT = "JobID|JobIDRaw|Cluster|State|Submit|Start|End|ElapsedRaw|AllocTRES"
DAY = "2024-03-01T0"
TASK = f"13_3|105|one|RUNNING|{DAY}0:00:00|{DAY}1:00:00|Unknown|3600|gres/gpu=8"
PART = f"9+1|10|one|RUNNING|{DAY}0:00:00|{DAY}1:30:00|Unknown|1800|gres/gpu=2"
DONE = f"12|12|one|COMPLETED|{DAY}0:00:00|{DAY}0:00:00|{DAY}1:00:00|3600|gres/gpu=1"
QUEUE = f"13_[4-6]|13|one|PENDING|{DAY}0:00:00|Unknown|Unknown|0|"
SQUEUE = "JOBID|CLUSTER|STATE|SUBMIT_TIME|START_TIME|TIME|TRES_ALLOC"
LISTED = (
    f"105|one|RUNNING|{DAY}0:00:00|{DAY}1:00:00|1:00:00|gres/gpu=8",
    f"10|one|RUNNING|{DAY}0:00:00|{DAY}1:30:00|30:00|gres/gpu=2",
    f"13|one|PENDING|{DAY}0:00:00|N/A|0:00|",
)


def pool(folder, **texts):
    """Return the pool of a folder of files of these names."""
    for name, text in texts.items():
        (folder / name).write_text("\n".join(text) + "\n" if isinstance(text, list | tuple) else text)
    (found,) = load(folder)
    return found


def said(found, words):
    return [line for line in found.warnings if words in line]


def held_h(found):
    """Return device-hours of what runs, up to the end of the window, and of what ended."""
    ends = [(job.end_ns or found.end_ns, job) for job in found.jobs if job.start_ns is not None]
    return sum((end - job.start_ns) * job.milli for end, job in ends) / 3600e12


@pytest.mark.parametrize("few", [1, 1 << 30])
@pytest.mark.parametrize("first", ["a", "c"])
def test_a_task_under_its_raw_number_beside_sacct_counts_once(tmp_path, monkeypatch, few, first):
    monkeypatch.setattr(slurm_columns, "_FEW", few)
    monkeypatch.setattr(slurm_aliases, "_FEW", 2)
    found = pool(tmp_path, **{first: [SACCT, DONE, TASK, PART, QUEUE, TASK], "b": [SQUEUE, *LISTED]})
    assert sorted(job.id for job in found.jobs) == ["12", "13_3", "13_[4-6]", "9+1"]
    assert held_h(found) == 1 + 8 + 1
    assert said(found, "counts once: 4")
    assert not said(found, "raw numbers")


def test_raw_numbers_of_another_cluster_are_other_jobs(tmp_path):
    found = pool(tmp_path, a=[SACCT, DONE, TASK], b=[SQUEUE, LISTED[0].replace("one", "two")])
    assert sorted(job.id for job in found.jobs) == ["12", "13_3", "two/105"]


def test_where_nothing_tells_raw_numbers_a_warning_says_that_tasks_may_count_twice(tmp_path):
    rows = [row.replace("|", "\0", 1).partition("\0")[0] + "|" + row.split("|", 2)[2] for row in (SACCT, DONE, TASK)]
    found = pool(tmp_path, a=rows, b=[SQUEUE, LISTED[0]])
    assert sorted(job.id for job in found.jobs) == ["105", "12", "13_3"]
    assert said(found, "part of a job: 1;")


def test_the_number_of_an_array_in_the_queue_is_no_other_job(tmp_path):
    rows = ["JobID|Cluster|" + SACCT.split("|", 3)[3]]
    rows += [row.split("|")[0] + "|" + row.split("|", 2)[2] for row in (DONE, TASK)]
    found = pool(tmp_path, a=rows, b=[SQUEUE, LISTED[2], LISTED[2].replace("00:00:00", "00:00:01").replace("13", "14")])
    assert sorted(job.id for job in found.jobs) == ["12", "13_3", "14"]


@pytest.mark.parametrize("few", [1, 1 << 30])
@pytest.mark.parametrize("number", ["JOBID|", ""])
def test_two_columns_tell_a_task(tmp_path, monkeypatch, few, number):
    monkeypatch.setattr(slurm_columns, "_FEW", few)
    head = f"{number}ARRAY_JOB_ID|ARRAY_TASK_ID|{SQUEUE.split('|', 1)[1]}"
    numbers = [("105", "13|3"), ("12", "12|N/A"), ("13", "13|4-6%2")]
    rows = [f"{raw}|{both}" if number else both for raw, both in numbers]
    told = [LISTED[0], LISTED[1], LISTED[2]]
    found = pool(tmp_path, a=[head, *(f"{row}|{line.split('|', 1)[1]}" for row, line in zip(rows, told, strict=True))])
    assert [job.id for job in found.jobs] == ["13_3", "12", "13_[4-6%2]"]
    assert not said(found, "number arrays")


def test_numbers_of_arrays_alone_do_not_tell_tasks(tmp_path):
    found = pool(tmp_path, a=[SQUEUE.replace("JOBID", "ARRAY_JOB_ID"), *LISTED])
    assert said(found, "number arrays and not their tasks")


def test_json_tells_raw_numbers(tmp_path):
    job = {
        "job_id": 105, "array": {"job_id": 13, "task_id": {"set": True, "number": 3}}, "cluster": "one",
        "state": {"current": ["RUNNING"]}, "association": {"user": "ana"}, "tres": {"requested": [], "allocated": []},
        "time": {"submission": 1709251200, "start": 1709254800, "end": 0, "elapsed": 3600},
    }  # fmt: skip
    found = pool(tmp_path, a=json.dumps({"jobs": [job]}), b=[SQUEUE, LISTED[0]])
    assert [(one.id, one.milli) for one in found.jobs] == [("13_3", 8000)]


def test_records_of_one_attempt_count_once_in_any_order(tmp_path):
    head = "JobID|State|Submit|Start|End|AllocTRES"
    ran = f"7|RUNNING|{DAY}0:00:00|{DAY}1:00:00|Unknown|gres/gpu=1"
    rows = [ran, ran.replace("=1", "=2").replace(f"{DAY}0:00:00", "None"), f"7|PENDING|{DAY}0:30:00|Unknown|Unknown|"]
    for order in permutations(rows):
        (job,) = pool(tmp_path, a=[head, *order]).jobs
        assert (job.state, job.milli) == ("running", 2000)
