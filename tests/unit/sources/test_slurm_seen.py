"""Lists of several moments: a job that runs counts up to the last that has it."""

import json
from datetime import UTC, datetime
from itertools import permutations

import pytest

from headway.ledger.pool import account_pool
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.slurm import columns as slurm_columns
from headway.sources.slurm import jobs as slurm_jobs
from headway.sources.slurm.source import Slurm

H = 3600
DAY = 1709251200  # 2024-03-01T00:00:00Z
SQUEUE = "JOBID|STATE|TIME|START_TIME|SUBMIT_TIME|TRES_ALLOC\n"
SACCT = "JobID|State|Submit|Start|End|Elapsed|AllocTRES\n"
MIDNIGHT = "2024-03-01T00:00:00"


def pool(folder, *texts):
    """Return the pool of files with these texts in them, in this order."""
    paths = []
    for number, text in enumerate(texts):
        paths.append(folder / f"{number}.txt")
        paths[-1].write_text(text if isinstance(text, str) else json.dumps(text))
        assert Slurm().recognise(paths[-1], files.head(paths[-1])) is None
    (found,) = Slurm().load_together(paths, Asked())
    return found


def held(found, until=None):
    """Return the device-seconds of a pool."""
    return account_pool(found, until and until * 10**9).held_ns / 10**9


def ends(found):
    return {job.id: job.end_ns and job.end_ns // 10**9 - DAY for job in found.jobs}


def said(found, words):
    return [line for line in found.warnings if words in line]


def clock(seconds):
    return datetime.fromtimestamp(DAY + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def queued(at, *jobs, state="RUNNING", gpus=8, start=0):
    """Return what squeue prints at a moment of jobs that began at another [s since that day began]."""
    time = f"{(at - start) // 86400}-{(at - start) // H % 24:02}:{(at - start) // 60 % 60:02}:{(at - start) % 60:02}"
    return "".join(f"{job}|{state}|{time}|{clock(start)}|{MIDNIGHT}|gres/gpu={gpus}\n" for job in jobs)


def listed(at, job, gpus):
    one = {
        "job_id": job,
        "job_state": ["RUNNING"],
        "start_time": {"set": True, "number": DAY},
        "submit_time": {"set": True, "number": DAY},
        "tres_alloc_str": f"gres/gpu={gpus}",
    }
    return {"jobs": [one], "last_update": {"set": True, "number": DAY + at}}


@pytest.fixture(params=["columns", "single"])
def few(request, monkeypatch):
    """Read records many at once, or one by one."""
    monkeypatch.setattr(slurm_columns, "_FEW", 1 if request.param == "columns" else 1 << 30)


@pytest.mark.parametrize("order", [1, -1])
def test_a_job_that_a_later_list_lacks_counts_up_to_its_own(tmp_path, order):
    found = pool(tmp_path, *[listed(1200, 7, 8), listed(24 * H, 8, 1)][::order])
    assert ends(found) == {"7": 1200, "8": None}
    assert held(found) == 8 * 1200 + 24 * H
    assert held(found, DAY + 25 * H) == 8 * 1200 + 25 * H
    assert said(found, "squeue shows several moments: 1 of 2 jobs had 1 devices at the latest")
    assert said(found, "no later record tells of: 1;")
    assert not said(found, "one moment")


@pytest.mark.parametrize("between", [SQUEUE, "\n" + SQUEUE, "Fri Mar 01 10:00:00 2024\n" + SQUEUE])
def test_a_header_again_begins_a_list(tmp_path, few, between):
    found = pool(tmp_path, SQUEUE + queued(600, 7, 8) + between + queued(24 * H + 600, 8, gpus=1))
    assert ends(found) == {"7": 600, "8": None}
    assert held(found) == 8 * 600 + 24 * H + 600
    assert said(found, "several moments: 1 of 2")


@pytest.mark.parametrize("order", [*permutations(range(3))])
def test_files_of_several_moments_tell_the_same_in_any_order(tmp_path, few, order):
    texts = [queued(600, 7, 8, 9), queued(2 * H, 8, 9), queued(5 * H, 9)]
    found = pool(tmp_path, *(SQUEUE + texts[place] for place in order))
    assert ends(found) == {"7": 600, "8": 2 * H, "9": None}
    assert held(found) == 8 * (600 + 7 * H)


def test_a_job_that_sacct_shows_running_counts_as_long_as_it_was_seen(tmp_path, few):
    runs = f"7|RUNNING|{MIDNIGHT}|{MIDNIGHT}|Unknown|10:00:00|gres/gpu=8\n"
    over = f"8|COMPLETED|{clock(9 * 24 * H)}|{clock(9 * 24 * H)}|{clock(9 * 24 * H + H)}|01:00:00|gres/gpu=1\n"
    found = pool(tmp_path, SACCT + runs, SACCT + over)
    assert held(found) == 8 * 10 * H + H
    assert said(found, "no later record tells of: 1;")
    assert held(pool(tmp_path, SACCT + runs + over)) == 8 * (9 * 24 * H + H) + H  # of one list it still runs


def test_a_later_record_tells_more(tmp_path, few):
    over = f"7|COMPLETED|{MIDNIGHT}|{MIDNIGHT}|{clock(3 * H)}|03:00:00|gres/gpu=8\n"
    found = pool(tmp_path, SQUEUE + queued(600, 7), SACCT + over, SQUEUE + queued(5 * H, 8))
    assert ends(found) == {"7": 3 * H, "8": None}
    assert not said(found, "no later record tells of")


def test_jobs_of_one_list_go_on_whatever_their_time_says(tmp_path, few):
    text = SQUEUE + queued(600, 7, state="SUSPENDED") + queued(24 * H, 8) + queued(H, 9)
    found = pool(tmp_path, text)
    assert ends(found) == dict.fromkeys("789")
    assert held(found) == 3 * 8 * 24 * H
    assert said(found, "squeue shows one moment: 3 of 3 jobs had 24 devices then")
    found = pool(tmp_path, text, SQUEUE + queued(24 * H + 30, 10))  # within a minute
    assert ends(found) == {**dict.fromkeys("789"), "10": None}
    found = pool(tmp_path, text, SQUEUE + queued(48 * H, 10))
    assert ends(found) == {**dict.fromkeys("789", 24 * H), "10": None}


def test_lists_of_clusters_asked_for_at_once_are_one(tmp_path, few):
    text = "CLUSTER: a\n" + SQUEUE + queued(600, 7, state="SUSPENDED") + "CLUSTER: b\n" + SQUEUE + queued(24 * H, 8)
    assert ends(pool(tmp_path, text)) == {"7": None, "b/8": None}
    later = text.replace("SUSPENDED|0-00:10:00", "SUSPENDED|2-00:00:00")
    assert ends(pool(tmp_path, text + later.replace("\n8|", "\n9|"))) == {"7": None, "b/8": 24 * H, "b/9": None}


def test_lists_without_headers_between_them_are_known_by_a_job_in_both(tmp_path, few):
    found = pool(tmp_path, SQUEUE + queued(600, 7, 8) + queued(24 * H, 8))
    assert ends(found) == {"7": 600, "8": None}
    assert said(found, "several moments")
    assert not said(found, "put one before each")


def test_a_job_that_lags_behind_its_list_is_said(tmp_path, few):
    found = pool(tmp_path, SQUEUE + queued(600, 6, state="SUSPENDED") + queued(600, 7) + queued(24 * H, 8))
    assert ends(found) == dict.fromkeys("678")
    assert said(found, "than those of others in their list: 1;")
    assert not said(pool(tmp_path, SQUEUE + queued(600, 7), SQUEUE + queued(24 * H, 8)), "others in their list")


def test_a_list_that_tells_no_moment_is_of_its_last_start_or_submit(tmp_path, few):
    header = "JOBID|STATE|START_TIME|SUBMIT_TIME|TRES_ALLOC\n"
    line = "{}|RUNNING|{}|2024-03-01T00:00:00|gres/gpu=8\n".format
    first = header + line(7, clock(0)) + line(8, clock(H))
    assert ends(pool(tmp_path, first)) == {"7": None, "8": None}
    found = pool(tmp_path, first + header + line(8, clock(H)) + line(9, clock(4 * H)))
    assert ends(found) == {"7": H, "8": None, "9": None}
    assert said(found, "when one of these moments was is not told (no TIME)")


def test_steps_alone_count_up_to_their_own_list(tmp_path, few):
    line = "{}|RUNNING|2024-03-01T00:00:00|2024-03-01T00:00:00|Unknown|{}|gres/gpu=8\n".format
    first = SACCT + line("7.0", "01:00:00") + line("8.0", "01:00:00")
    assert ends(pool(tmp_path, first)) == {"7": None, "8": None}
    assert ends(pool(tmp_path, first, SACCT + line("8.0", "05:00:00"))) == {"7": H, "8": None}


def test_lists_that_tell_no_clock_at_all_are_not_one_moment(tmp_path, few):
    header = "JOBID|STATE|TIME|TRES_ALLOC\n"
    found = pool(tmp_path, header + "7|RUNNING|10:00|gres/gpu=8\n" + header + "8|RUNNING|1:00:00|gres/gpu=1\n")
    assert found.totals_ns == {"running": (8 * 600 + H) * 10**9}
    assert said(found, "several moments: 2 of 2 jobs had 9 devices at one of them, and no column tells when")


@pytest.mark.parametrize("header", [SQUEUE, ""])
def test_folding_records_while_they_are_read_changes_nothing(tmp_path, few, header, monkeypatch):
    texts = [queued(600 * at, *range(at, at + 20)) for at in range(1, 30)]
    whole = ends(pool(tmp_path, SQUEUE + header.join(texts)))
    assert whole == {str(job): None if job > 28 else 600 * job for job in range(1, 49)}
    monkeypatch.setattr(slurm_jobs, "_FEW", 8)
    assert ends(pool(tmp_path, SQUEUE + header.join(texts))) == whole
    assert ends(pool(tmp_path, *(SQUEUE + text for text in reversed(texts)))) == whole
