"""What Slurm's commands print, as a pool: attempts once, GPUs from TRES, waits, snapshots said to be such."""

import gzip
import json
from collections import Counter
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data import real
from headway.errors import SourceError
from headway.ledger.pool import account_pool
from headway.sources import files, load
from headway.sources.asked import Asked
from headway.sources.slurm import attempts as slurm_attempts
from headway.sources.slurm import columns as slurm_columns
from headway.sources.slurm import fields as slurm_fields
from headway.sources.slurm import gpus as slurm_gpus
from headway.sources.slurm import jobs as slurm_jobs
from headway.sources.slurm import nodes as slurm_nodes
from headway.sources.slurm.source import Slurm
from headway.sources.slurm.table import header

H = 3600
SACCT = "JobID|JobName|User|Account|Partition|State|Submit|Eligible|Start|End|ElapsedRaw|AllocTRES|ReqTRES"
ROW = "7|train|ana|lm|gpu|COMPLETED|{0}T01:00:00|{0}T01:00:00|{0}T02:00:00|{0}T05:00:00|10800|gres/gpu=8|gres/gpu=8"
DAY = ROW.format("2024-03-05")
LONG_SINFO = """Tue Mar  5 12:00:00 2024
NODELIST NODES PARTITION STATE CPUS S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON
a1 1 gpu* idle 8 2:4:1 100 0 1 (null) none
a2 1 gpu* down* 8 2:4:1 100 0 1 (null) Not responding
"""


def pool(path, text=None, **asked):
    """Return the pool of a path, with this text in it where some is given."""
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    if path.is_dir():
        (found,) = load(path, **asked)
        return found
    assert Slurm().recognise(path, files.head(path)) is None
    (found,) = Slurm().load(path, Asked(**asked))
    account_pool(found)
    return found


def jobs(path, text=None, **asked):
    return {job.id: job for job in pool(path, text, **asked).jobs}


def device_s(found):
    """Return device-seconds by state of what ended [s]."""
    spent = Counter()
    for job in found.jobs:
        if job.start_ns is not None and job.end_ns is not None:
            spent[job.state] += (job.end_ns - job.start_ns) * job.milli // 10**12
    return dict(spent)


def said(found, words):
    return [line for line in found.warnings if words in line]


QUOTED = ",".join(f'"{cell}"' for cell in DAY.replace("gpu=8|", "gpu=8,cpu=9|", 1).split("|"))


# Real files


def test_midnight_counts_jobs_and_not_their_steps():
    found = pool(real("slurm", "sacct_midnight.txt"))
    assert len(found.jobs) == 306
    assert device_s(found) == {
        "completed": 463060, "failed": 219953, "cancelled": 2376660,
        "requeued": 505194, "timeout": 10812, "out_of_memory": 3178,
    }  # fmt: skip
    assert sum(account_pool(found).seconds.values()) == 3578857
    assert pytest.approx(0.12939, abs=5e-6) == 463060 / 3578857
    assert said(found, "each counts as one device")
    assert said(found, "read as UTC")


def test_110_columns_with_newlines_in_a_field():
    found = pool(real("slurm", "sacct_110_columns_multiline.txt"))
    by_id = {job.id: job for job in found.jobs}
    assert sorted(by_id) == ["200131", "201729", "201844"]
    failed = by_id["201729"]
    assert (failed.milli, failed.state, (failed.end_ns - failed.start_ns) // 10**9) == (1024000, "failed", 79396)
    assert (failed.start_ns - failed.submit_ns) // 10**9 == 16356
    assert pytest.approx(22583.751, abs=5e-4) == 1024 * 79396 / H
    step = by_id["200131"]
    assert (step.milli, (step.end_ns - step.start_ns) // 10**9) == (2048000, 35317)
    assert device_s(found)["requeued"] / H == pytest.approx(6211.982, abs=5e-4)
    assert by_id["201844"].user == "test_user"
    assert said(found, "counts once: 2")
    assert said(found, "200131")


def test_a_bad_byte_and_a_job_without_its_record():
    found = pool(real("slurm", "sacct_invalid_utf8.txt"))
    assert {job.id: job.milli // 1000 for job in found.jobs} == {"3557891": 8, "3557892": 1, "3557893": 128}
    assert [job.state for job in found.jobs] == ["failed", "timeout", "failed"]
    assert len(said(found, "line 12 is not all UTF-8")) == 1
    assert said(found, "told by their steps: 1 (3557893)")


def test_squeue_without_a_header():
    found = pool(real("slurm", "squeue.txt"))
    running = [job for job in found.jobs if job.state == "running"]
    assert sorted(job.milli // 1000 for job in running) == [1, 2, 256]
    assert all(job.submit_ns < job.start_ns for job in running)
    assert [job.start_ns for job in found.jobs if job.state == "pending"] == [None, None]
    assert said(found, "3 of 5 jobs had 259 devices")
    assert not said(found, "up to the last Start")
    assert said(found, "no header line")


def test_sinfo_without_a_header():
    found = pool(real("slurm", "sinfo.txt"))
    assert (found.devices, list(found.jobs), list(found.outages)) == (80, [], [])
    assert said(found, "10 nodes then, by state: allocated 1 (8 devices), drained 1 (8 devices), idle 2")
    assert said(found, "since when is not told")


# sacct


@pytest.mark.parametrize("delimiter", ["|", "|#", ";", "\t", ",", "^", "::"])
@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_delimiters_and_line_ends(tmp_path, delimiter, closed, end):
    lines = [line.replace("|", delimiter) + delimiter * closed for line in (SACCT, DAY)]
    (job,) = jobs(tmp_path / "sacct", "\ufeff" + end.join([*lines, ""])).values()
    assert (job.id, job.name, job.user, job.account, job.partition) == ("7", "train", "ana", "lm", "gpu")
    assert (job.milli, job.state) == (8000, "completed")
    assert [(at - job.submit_ns) // 10**9 // H for at in (job.start_ns, job.end_ns)] == [1, 4]


@pytest.mark.parametrize(
    "text",
    [
        f"{SACCT.lower()}\n{DAY}\n{SACCT.lower()}\n",
        f"{SACCT.upper()}\n{DAY}\n",
        f"#{SACCT}\n{DAY}\n#{SACCT}\n",
        f"# {SACCT.lower()}\n{DAY}\n",
        f"{SACCT.replace('JobID', 'JobID%20').replace('State', 'State%-12')}\n{DAY}\n",
        f"{SACCT.replace('ElapsedRaw', 'ElapsedRaw(s)').replace('Start', 'Start[UTC]')}\n{DAY}\n",
        ",".join(f'"{name}"' for name in SACCT.split("|")) + f"\n{QUOTED}\n",
        SACCT.replace("|", ",").lower() + f"\n{QUOTED}\n",
        ",".join(f'"{name}"' for name in SACCT.split("|")) + "\n" + QUOTED.replace("train", 'tr\n""ai"",n') + "\n",
    ],
)
def test_headers_that_were_changed(tmp_path, text):
    found = pool(tmp_path / "sacct", text)
    (job,) = found.jobs
    assert (job.id, job.user, job.partition, job.milli, job.state) == ("7", "ana", "gpu", 8000, "completed")
    assert job.name in {"train", 'tr"ai",n'}
    assert not said(found, "left out")


@pytest.mark.parametrize(
    "line",
    [
        "jobid and state", "jobid,user,state,start,end", "jobid,user,vc,gpu_num,state,submit_time,start_time,duration",
        "jobid\tuser\tgpu_num\tstate\tstart_time", "node,state,gres", "#jobid", "JobID%20", '"JobID"', "jobid|x|y|z",
    ],
)  # fmt: skip
def test_headers_of_others(line):
    assert header(line.encode()) is None


def test_resources_that_fell_apart_at_the_delimiter(tmp_path):
    head = "JobID,State,Start,End,AllocTRES,ReqTRES,NNodes,Comment\n"
    row = ",COMPLETED,2024-03-05T02:00:00,2024-03-05T03:00:00,"
    rows = [
        f"7{row}billing=8,cpu=4,gres/gpu=2,cpu=4,gres/gpu=1,1,\n",
        f"8{row},cpu=4,gres/gpu=3,1,\n",
        f"9{row}cpu=1,gres/gpu=5,,1,lr\n",
        f"10{row}cpu=1,mem=7,gres/gpu=5,billing=3,1,\n",
        f"11{row}cpu=1,cpu=1,1,lr=1,bs=2\n",
    ]
    found = pool(tmp_path / "sacct", head + "".join(rows))
    assert {job.id: job.milli for job in found.jobs} == {"7": 2000, "8": 3000, "9": 5000, "11": 0}
    assert said(found, "line 5 is no record, left out: the delimiter is inside a cell")
    assert said(found, "--delimiter='|'")
    with pytest.raises(SourceError, match="inside a cell"):
        pool(tmp_path / "one", "JobID,Start,End,AllocTRES,ReqTRES\n7,None,None,cpu=1,gres/gpu=1,mem=1\n")


def test_columns_of_fixed_width(tmp_path):
    text = (
        "JobID           JobName      State               Start                 End  AllocTRES \n"
        "------------ ---------- ---------- ------------------- ------------------- ---------- \n"
        "7               my job  CANCELLED+ 2024-03-05T02:00:00 2024-03-05T03:00:00 gres/gpu=2 \n"
        "7.bat+           batch  CANCELLED  2024-03-05T02:00:00 2024-03-05T03:00:00 gres/gpu=2 \n"
    )
    (job,) = jobs(tmp_path / "sacct", text).values()
    assert (job.id, job.name, job.state, job.milli) == ("7", "my job", "cancelled", 2000)


FIXED = """JobID           User      State               Start                 End  AllocTRES   NNodes
------------ ------- ---------- ------------------- ------------------- ---------- --------
"""


def fixed(ident="7", user="ana", tres="gres/gpu=2", n_nodes="1"):
    at = "2024-03-05T02:00:00 2024-03-05T03:00:00"
    return f"{ident:<12} {user:>7}  COMPLETED {at} {tres:>10} {n_nodes:>8}\n"


@pytest.mark.parametrize(
    "changes",
    [
        {"ident": "12345678901+"},
        {"tres": "gres/gpu=1+"[1:]},
        {"tres": "cpu,gres/+"},
        {"tres": "billing=1+"},
        {"n_nodes": "1234567+"},
    ],
)
def test_a_cut_number_or_resource_leaves_its_record_out(tmp_path, changes):
    cut = fixed(**{"ident": "8", **changes})
    found = pool(tmp_path / "sacct", FIXED + fixed() + cut + cut + fixed("8.batch"))
    assert [job.id for job in found.jobs if job.id != "8"] == ["7"]
    assert "ident" in changes or len(found.jobs) == 1  # its steps do not stand for it
    (told,) = said(found, "2 lines are cut to the width of a column, left out")
    assert ": 4 (" in told
    assert "-P (parsable)" in told


def test_cut_names_are_kept_and_said_to_fall_together(tmp_path):
    found = pool(tmp_path / "sacct", FIXED + fixed(user="johann+") + fixed("8", user="johann+"))
    assert [job.user for job in found.jobs] == ["johann+", "johann+"]
    assert len(said(found, "names may fall together")) == 1
    assert not said(found, "left out")


def test_a_cut_cell_between_blanks_or_delimiters(tmp_path):
    text = "JOBID USER ST TIME NODES TRES_PER_NODE\n7 ana R 1:00:00 1 gres/gpu:2\n8 bo R 1:00:00 1 gres/g+\n"
    assert said(pool(tmp_path / "squeue", text), "line 3 is cut")
    text = f"{SACCT}\n{DAY}\n{DAY.replace('7|', '8|').replace('gpu=8', 'gpu=1+')}\n"
    assert said(pool(tmp_path / "sacct", text), "line 3 is cut")


def test_newlines_and_delimiters_inside_a_name(tmp_path):
    text = "\n".join([SACCT, DAY.replace("train", "two\nlines\n"), DAY.replace("7|train", "8|a|b"), ""])
    found = jobs(tmp_path / "sacct", text)
    assert {job.id: job.name for job in found.values()} == {"7": "twolines", "8": "a|b"}


def test_two_records_on_one_line_are_not_one(tmp_path):
    glued = DAY + DAY.replace("7|", "8|")
    found = pool(
        tmp_path / "sacct", "\n".join([SACCT, DAY.replace("7|", "6|"), glued, DAY.replace("7|tr", "9|t|r"), ""])
    )
    assert [job.id for job in found.jobs] == ["6", "9"]
    assert said(found, "line 3 is no record, left out (25 cells")
    assert said(found, "line 4 is longer by the delimiter inside a text, and put together so that it makes sense")


def test_a_torn_record_costs_only_itself(tmp_path):
    text = "\n".join([SACCT, "5|torn|x", DAY, DAY.replace("7|", "8|"), "9|cut"])
    found = pool(tmp_path / "sacct", text)
    assert [job.id for job in found.jobs] == ["7", "8"]
    assert said(found, "2 lines are no record, left out: 2 (3 cells where the header has 13), 5")


def in_quotes(name, n_jobs=40):
    """Return lines of a table in quotes; a name is asked for by the number of the job."""
    at = '"COMPLETED","2024-03-05T02:00:00","2024-03-05T03:00:00","gres/gpu=1"'
    rows = [f'"{n}",{at},"{name(n)}"' for n in range(1, n_jobs + 1)]
    return "\n".join(['"JobID","State","Start","End","AllocTRES","JobName"', *rows, ""]).split("\n")


@pytest.mark.parametrize("which", [{3}, {1}, {40}, range(50)])
def test_newlines_inside_quotes_in_the_last_column(tmp_path, which):
    found = pool(tmp_path / "sacct.csv", "\n".join(in_quotes(lambda n: "two\nlines" if n in which else "train")))
    assert [job.id for job in found.jobs] == [str(n) for n in range(1, 41)]
    assert {job.name for job in found.jobs if int(job.id) in which} == {"twolines"}
    assert not said(found, "left out")


@pytest.mark.parametrize("name", ['a,"b', 'a\n"b'])
def test_a_quote_that_is_not_closed_costs_only_its_record(tmp_path, name):
    found = pool(tmp_path / "sacct.csv", "\n".join(in_quotes(lambda n: name if n == 3 else "train")))
    assert [int(job.id) for job in found.jobs] == [*range(1, 41)]
    assert said(found, "line 4 is one with a quote that is not closed, read by itself")
    lines = in_quotes(lambda n: name if n == 40 else "train")
    lines[3] = lines[3].replace('COMPLETED"', "COMPLETED")
    found = pool(tmp_path / "sacct.csv", "\n".join(lines))
    assert [int(job.id) for job in found.jobs] == [1, 2, *range(4, 41)]
    assert said(found, "line 4 is no record, left out (a quote in it is not closed)")


@pytest.mark.parametrize("lost", [4, 5, 6])
@pytest.mark.parametrize("quotes", [False, True])
def test_a_lost_line_does_not_shift_the_records_after_it(tmp_path, lost, quotes):
    lines = in_quotes(lambda n: "two\nlines")
    if not quotes:
        rows = (f"{n}|tr\nain" + DAY.removeprefix("7|train") for n in range(1, 41))
        lines = "\n".join([SACCT, *rows, ""]).split("\n")
    del lines[lost]
    found = pool(tmp_path / "sacct", "\n".join(lines))
    assert len(found.jobs) in {38, 39, 40}
    assert [int(job.id) for job in found.jobs][-36:] == [*range(5, 41)]
    assert said(found, "no record, left out") or said(found, "a quote that is not closed")


@pytest.mark.parametrize("end", ["|", ""])
def test_a_delimiter_in_a_name_where_one_closes_the_line(tmp_path, end):
    lines = [SACCT, DAY.replace("train", "a|b"), DAY.replace("7|", "8|")]
    found = jobs(tmp_path / "sacct", "".join(f"{line}{end}\n" for line in lines))
    assert {job.id: job.name for job in found.values()} == {"7": "a|b", "8": "train"}


def test_without_a_header_it_says_to_add_it(tmp_path):
    with pytest.raises(SourceError, match=r"--noheader.*\[no-header\]"):
        pool(tmp_path / "sacct", f"{DAY}\n{DAY.replace('7|', '7.batch|')}\n")


def test_without_times_it_says_which_columns(tmp_path):
    with pytest.raises(SourceError, match=r"Start,End.*\[no-columns\]"):
        pool(tmp_path / "sacct", "JobID|JobName|State|ExitCode\n7|a|COMPLETED|0:0\n")
    with pytest.raises(SourceError, match="no-runs"):
        pool(tmp_path / "sacct", SACCT + "\n")


def test_only_lengths_are_totals_by_state(tmp_path):
    text = "JobID|State|Elapsed|AllocTRES\n7|COMPLETED|1-00:00:00|gres/gpu=4\n8|FAILED|00:30:00|gres/gpu=2\n"
    found = pool(tmp_path / "sacct", text)
    assert found.totals_ns == {"completed": 4 * 86400 * 10**9, "failed": H * 10**9}
    assert said(found, "only how long")


def test_an_attempt_counts_once_and_each_requeue_for_itself(tmp_path):
    again = (
        DAY.replace("T05:00", "T04:00").replace("T02:00", "T03:30").replace("T01:00", "T03:10").replace("10800", "1800")
    )
    text = [SACCT, DAY.replace("COMPLETED", "NODE_FAIL"), DAY.replace("COMPLETED", "NODE_FAIL"), again]
    found = pool(tmp_path / "sacct", "\n".join([*text, ""]))
    assert [(job.id, job.state) for job in found.jobs] == [("7", "node_fail"), ("7", "completed")]
    assert device_s(found) == {"node_fail": 8 * 3 * H, "completed": 8 * 1800}


def test_a_job_seen_running_and_ended_is_one(tmp_path):
    before = DAY.replace("COMPLETED", "RUNNING").replace("2024-03-05T05:00:00|10800", "Unknown|3600")
    waiting = DAY.replace("COMPLETED", "PENDING").replace(
        "2024-03-05T02:00:00|2024-03-05T05:00:00|10800", "Unknown|Unknown|0"
    )
    for lines in ([waiting, before, DAY], [DAY, before, waiting]):
        assert device_s(pool(tmp_path / "sacct", "\n".join([SACCT, *lines, ""]))) == {"completed": 8 * 3 * H}


def test_a_running_job_counts_up_to_when_sacct_ran(tmp_path):
    row = DAY.replace("COMPLETED", "RUNNING").replace("2024-03-05T05:00:00|10800", "Unknown|3600")
    found = pool(tmp_path / "sacct", f"{SACCT}\n{row}\n")
    assert sum(account_pool(found).seconds.values()) == 8 * H


@pytest.mark.parametrize(
    ("alloc", "req", "gpus"),
    [
        ("billing=99,cpu=1,gres/gpu=8,gres/gpu:h100=8,gres/gpumem=0,gres/gpuutil=0", "", 8),
        ("cpu=1,gres/gpu:a100=2,gres/gpu:h100=4", "gres/gpu=1", 6),
        ("", "cpu=1,gres/gpu=3", 3),
        ("cpu=4,mem=1G", "cpu=4,mem=1G", 0),
    ],
)
def test_gpus_of_tres(tmp_path, alloc, req, gpus):
    row = DAY.rsplit("|", 2)[0] + f"|{alloc}|{req}"
    assert jobs(tmp_path / "sacct", f"{SACCT}\n{row}\n")["7"].milli == 1000 * gpus


@pytest.mark.parametrize("gres", ["gpu:4", "gpu:a100:4(S:0-1)", "gres:gpu:4", "gpu:a100:3,gpu:v100:1"])
def test_gpus_of_gres_are_a_nodes(tmp_path, gres):
    text = f"JobID|State|Start|End|NNodes|AllocGRES\n7|FAILED|2024-03-05T02:00:00|2024-03-05T03:00:00|3|{gres}\n"
    assert jobs(tmp_path / "sacct", text)["7"].milli == 12000


@pytest.mark.parametrize(
    ("gres", "devices"),
    [
        ("PER_NODE:gpu:4", 12), ("PER_JOB:gpu:8", 8), ("PER_NODE:gpu:a100:4", 12), ("gres:gpu:a100:4", 12),
        ("gres/gpu:4", 12), ("gpu:a100:no_consume:4", 12), ("gpu:(null):4(IDX:0-3)", 12), ("gres/gpumem:80G", 0),
        ("license/x-gpu=3", 0), ("vgpu:2", 0), ("PER_TASK:cpu:2", 0), ("PER_NODE:gpu:a100:2,gpu:h100:1", 9),
    ],
)  # fmt: skip
def test_requested_gres(tmp_path, gres, devices):
    text = f"JobID|State|Start|End|NNodes|ReqGRES\n7|FAILED|2024-03-05T02:00:00|2024-03-05T03:00:00|3|{gres}\n"
    assert jobs(tmp_path / "sacct", text)["7"].milli == 1000 * devices


@pytest.mark.parametrize("gres", ["PER_TASK:gpu:1", "PER_SOCKET:gpu:2", "gpu:a100:x", "gres/gpu=", "4 gpus"])
def test_gpus_that_cannot_be_counted_are_said(tmp_path, gres):
    head = "JobID|State|Start|End|NNodes|AllocTRES|ReqGRES"
    row = "|FAILED|2024-03-05T02:00:00|2024-03-05T03:00:00|3|"
    found = pool(tmp_path / "sacct", f"{head}\n6{row}gres/gpu=2|{gres}\n7{row}|{gres}\n")
    assert [(job.id, job.milli) for job in found.jobs] == [("6", 2000)]
    assert said(found, "line 3 is no job that can be counted, left out (" + gres)


@pytest.mark.parametrize(
    ("alloc", "milli"),
    [
        ("cpu=1,gres/gpu:a100_1g.5gb=1", 142), ("gres/gpu:1g.10gb=7", 1000), ("gres/gpu:h100_3g.40gb=2", 857),
        ("gres/gpu=1,gres/gpu:a100_1g.5gb=1", 142), ("gres/gpu=3,gres/gpu:a100=2,gres/gpu:nvidia_a100_2g.10gb=1", 2285),
        ("gres/gpu:2g.12gb=1", 500), ("gres/gpu:a30_1g.6gb=3", 750), ("gres/gpu:h100_1g.10gb+me=2", 285),
        ("gres/gpu:nvidia_rtx_pro_6000_blackwell_server_edition_4g.96gb=1,gres/gpu=1", 1000),
        ("gres/gpu:2g.48gb=1", 500), ("gres/gpu:rtx-pro-6000_1g.24gb=3", 750), ("gres/gpu:1g.24gb=7", 1000),
        ("gres/gpu:rtx_pro_5000_2g.48gb=1", 1000), ("gres/gpu:2g.32gb=2", 2000), ("gres/gpu:pro4500_1g.16gb=1", 500),
        ("gres/gpu=2", 2000), ("gres/shard=4,gres/mps=100", 0), ("gres/gpu=1,gres/shard=0", 1000),
    ],
)  # fmt: skip
def test_slices_of_devices_are_shares(tmp_path, alloc, milli):
    found = pool(tmp_path / "sacct", f"{SACCT}\n{DAY.rsplit('|', 2)[0]}|{alloc}|\n")
    assert [job.milli for job in found.jobs] == [milli]
    assert len(said(found, "slices of devices (MIG)")) == ("g." in alloc)


@pytest.mark.parametrize("one", ["a100_1g.5gb=1", "a100_2g.10gb=1", "a100_3g.20gb=1"])
def test_slices_of_a_node_are_no_more_than_it_has(tmp_path, one):
    n = {"1": 7, "2": 3, "3": 2}[one[5]]
    rows = [DAY.replace("7|", f"{at}|", 1).replace("gres/gpu=8", f"gres/gpu:{one}") for at in range(8 * n)]
    found = account_pool(pool(tmp_path / "sacct", "\n".join([SACCT, *rows, ""]), capacity=8))
    assert not said(found, "more than the 8")


def test_slices_of_nodes_are_shares(tmp_path):
    text = "HOSTNAMES|STATE|GRES|GRES_USED\na1|mixed|gpu:1g.5gb:7(S:0)|gpu:1g.5gb:3(IDX:0-2)\n"
    text += "a2|idle|gpu:a100:2,gpu:3g.20gb:2|\n"
    found = pool(tmp_path / "sinfo", text)
    assert found.devices == 4
    assert said(found, "jobs had 0.428 of 4 devices")
    assert said(found, "idle 1 (2.857 devices), mixed 1 (1 devices)")
    assert said(found, "slices of devices (MIG)")


def test_arrays_and_parts_are_jobs(tmp_path):
    pending = DAY.replace("COMPLETED", "PENDING").replace(
        "2024-03-05T02:00:00|2024-03-05T05:00:00|10800", "Unknown|Unknown|0"
    )
    rows = [DAY.replace("7|", ident) for ident in ("7_1|", "7_2|", "9+0|", "9+1|", "9+0.batch|", "9.0|")]
    found = pool(tmp_path / "sacct", "\n".join([SACCT, *rows, pending.replace("7|", "7_[5-9%2]|"), ""]))
    assert sorted(job.id for job in found.jobs) == ["7_1", "7_2", "7_[5-9%2]", "9+0", "9+1"]
    assert found.jobs[-1].milli == 16000
    assert said(account_pool(found), "asked for 16 devices in all and never ran")


QUEUED = "JOBID|STATE|TIME|SUBMIT_TIME|START_TIME|TRES_ALLOC\n"


def queued(*tasks, submit="2024-03-05T01:00:00"):
    """Return what squeue says of tasks of an array that wait."""
    row = f"5|RUNNING|1:00|{submit}|{submit}|\n"
    return QUEUED + row + "".join(f"13_{part}|PENDING|0:00|{submit}|N/A|gres/gpu=8\n" for part in tasks)


@pytest.mark.parametrize("numbers", [(1, 2, 3, 4), (4, 2), (3,), (), (9,)])
@pytest.mark.parametrize("names", ["aq", "qa"])
def test_tasks_of_an_array_that_ran_do_not_wait_in_a_list_of_before(tmp_path, numbers, names):
    (tmp_path / names[0]).write_text("\n".join([SACCT, DAY, *[DAY.replace("7|", f"13_{n}|", 1) for n in numbers], ""]))
    (tmp_path / names[1]).write_text(queued("[1-4]"))
    found = pool(tmp_path)
    left = [job.milli // 8000 for job in found.jobs if "[" in job.id]
    n_left = 4 - len({1, 2, 3, 4} & {*numbers})
    assert left == [n_left] * (n_left > 0)
    assert len(found.jobs) == 2 + len(numbers) + (n_left > 0)
    assert bool(said(found, "that have a record of their own and count there")) == (0 < n_left < 4)


@pytest.mark.parametrize(
    ("tasks", "devices"),
    [
        (("[1-4%2]", "[3-4%2]"), 16), (("[1-4]", "[2,4]", "[1-4]"), 16), (("[0-8:2]", "3", "4"), 32 + 8 + 8),
        (("[1,3,5-9%3]", "[6-9%3]", "6", "7", "8"), 8 + 24), (("[1-4]", "[1-4]"), 32), (("[7]", "7"), 8),
    ],
)  # fmt: skip
@pytest.mark.parametrize("order", [1, -1])
def test_the_latest_list_of_an_array_counts(tmp_path, tasks, devices, order):
    found = pool(tmp_path / "squeue", queued(*tasks[::order]))
    assert sum(job.milli for job in found.jobs) == 1000 * devices


def test_an_array_that_was_cancelled_or_submitted_again(tmp_path):
    ended = (
        DAY.replace("7|", "13_[3-4]|", 1).replace("COMPLETED", "CANCELLED").replace("2024-03-05T02:00:00", "Unknown")
    )
    (tmp_path / "a").write_text(f"{SACCT}\n{ended}\n")
    (tmp_path / "q").write_text(queued("[1-4]"))
    assert [(job.id, job.state) for job in pool(tmp_path).jobs[:-1]] == [("13_[3-4]", "cancelled")]
    (tmp_path / "q").write_text(queued("[1-4]", submit="2024-03-06T01:00:00"))
    assert [job.id for job in pool(tmp_path).jobs] == ["13_[3-4]", "5", "13_[1-4]"]


def test_a_list_of_tasks_that_is_very_long(tmp_path):
    parts = ",".join(str(n) for n in range(1, 9999, 2))
    found = pool(tmp_path / "squeue", queued(f"[{parts}%7]", "1"))
    assert sorted(job.milli for job in found.jobs) == [0, 8000, 56000]


@pytest.mark.parametrize(
    "words", ["CANCELLED by 1234|{0}|{0}|None|{1}|0||gres/gpu=8", "CANCELLED|{0}|{0}|{1}|{1}|0||gres/gpu=8"]
)
def test_cancelled_in_the_queue_never_ran(tmp_path, words):
    row = "7|train|ana|lm|gpu|" + words.format("2024-03-05T01:00:00", "2024-03-05T02:00:00")
    job = jobs(tmp_path / "sacct", f"{SACCT}\n{row}\n")["7"]
    assert (job.state, job.start_ns, job.milli) == ("cancelled", None, 8000)


def test_waits_are_from_submit_and_say_what_was_not_eligible(tmp_path):
    found = pool(
        tmp_path / "sacct",
        f"{SACCT}\n{DAY.replace('|2024-03-05T01:00:00|2024-03-05T02', '|2024-03-05T01:30:00|2024-03-05T02')}\n",
    )
    assert account_pool(found).queue.mean_s == H
    assert said(found, "not eligible at first")


@pytest.mark.parametrize(("day", "elapsed"), [("2024-03-31", 3 * H - H), ("2024-10-27", 3 * H + H)])
def test_elapsed_counts_where_clocks_were_changed(tmp_path, day, elapsed):
    found = pool(tmp_path / "sacct", f"{SACCT}\n{ROW.format(day).replace('10800', str(elapsed))}\n")
    assert device_s(found) == {"completed": 8 * elapsed}
    assert said(found, "forward or back")


@pytest.mark.parametrize("zone", [None, ZoneInfo("Europe/Berlin")])
@pytest.mark.parametrize(("end", "elapsed", "left"), [("02:10", 1200, 1), ("02:10", 1500, 0), ("02:50", 3600, 1)])
def test_a_job_that_ends_before_it_starts_by_clocks_that_were_put_back(tmp_path, zone, end, elapsed, left):
    row = "7|COMPLETED|2024-10-27T00:00:00|2024-10-27T02:50:00|{}|{}|00:00:00|gres/gpu=1"
    text = "JobID|State|Submit|Start|End|ElapsedRaw|Suspended|AllocTRES\n"
    other = row.format(f"2024-10-27T{end}:00", elapsed).replace("7", "8", 1)
    found = pool(tmp_path / "sacct", f"{text}{row.format('2024-10-27T02:59:00', 540)}\n{other}\n", zone=zone)
    assert [(job.end_ns - job.start_ns) // 10**9 for job in found.jobs] == [540, elapsed][: 1 + left]
    assert len(said(found, "forward or back")) == (left if zone is None else 0)
    assert len(said(found, "ends before it starts")) == 1 - left


def test_moments_with_their_zone_or_as_seconds_need_no_word(tmp_path):
    text = "JobID|State|Start|End|AllocTRES\n7|FAILED|2024-03-05T03:00:00+0100|1709607600|gres/gpu=1\n"
    found = pool(tmp_path / "sacct", text)
    assert device_s(found) == {"failed": H}
    assert found.warnings == []


@pytest.mark.parametrize(
    "row",
    [
        DAY.replace("T05:00:00", "T01:59:00"),
        DAY.replace("2024-03-05T05", "1969-12-31T05"),
        DAY.replace("2024-03-05T05", "9999-12-31T05"),
        DAY.replace("2024-03-05T05:00:00|10800", "Unknown|"),
        DAY.replace("2024-03-05T05:00:00|10800", f"Unknown|{'9' * 19}"),
        DAY.replace("gres/gpu=8", "gres/gpu=" + "9" * 400),
        DAY.replace("7|", "x|"),
        DAY.replace("T05:00:00", "T25:00:00"),
    ],
)
def test_a_record_that_makes_no_sense_is_left_out_and_named(tmp_path, row):
    found = pool(tmp_path / "sacct", "\n".join([SACCT, DAY.replace("7|", "6|"), row, ""]))
    assert [job.id for job in found.jobs] == ["6"]
    assert said(found, "line 3 is no job that can be counted, left out (")


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (0, 2, 1), (2, 1, 0)])
@pytest.mark.parametrize("n_before", [0, 40])
def test_steps_do_not_stand_for_a_record_that_was_left_out(tmp_path, order, n_before):
    rows = [DAY.replace("T05:00:00", "T25:00:00"), DAY.replace("7|", "7.batch|", 1), DAY.replace("7|", "8|", 1)]
    before = [DAY.replace("7|", f"{n}|", 1) for n in range(100, 100 + n_before)]
    found = pool(tmp_path / "sacct", "\n".join([SACCT, *before, *[rows[at] for at in order], ""]))
    assert [job.id for job in found.jobs][n_before:] == ["8"]
    assert said(found, "is no job that can be counted, left out")


def test_gzip_and_a_gzip_that_breaks(tmp_path):
    packed = gzip.compress("\n".join([SACCT, *[DAY.replace("7|", f"{n}|") for n in range(900)], ""]).encode())
    assert len(pool(tmp_path / "sacct.gz", packed).jobs) == 900
    found = pool(tmp_path / "torn.gz", packed[: len(packed) // 2])
    assert 0 < len(found.jobs) < 900
    assert said(found, "gzip breaks")


def test_control_characters_do_not_get_through(tmp_path):
    job = jobs(tmp_path / "sacct", f"{SACCT}\n{DAY.replace('train', chr(27) + '[31mred' + chr(7))}\n")["7"]
    assert job.name == "red"


def test_clusters_number_their_jobs_alike(tmp_path):
    text = "Cluster|" + SACCT + "\na|" + DAY + "\nb|" + DAY + "\n"
    assert sorted(jobs(tmp_path / "sacct", text)) == ["7", "b/7"]


# JSON


def listed(**changes):
    job = {
        "account": "lm", "array": {"job_id": 0, "task_id": {"set": False, "number": 0}, "task": ""},
        "association": {"user": "ana"}, "het": {"job_id": 0}, "job_id": 7, "name": "train", "partition": "gpu",
        "state": {"current": ["CANCELLED"], "reason": "None"}, "steps": [{"tres": {}}], "user": "ana",
        "time": {"elapsed": 60, "eligible": 10**9, "end": 10**9 + 70, "start": 10**9 + 10, "submission": 10**9,
                 "suspended": 0},
        "tres": {"allocated": [{"type": "cpu", "name": "", "count": 9}, {"type": "gres", "name": "gpu", "count": 4}],
                 "requested": []},
    }  # fmt: skip
    return {**job, **changes}


@pytest.mark.parametrize("indent", [None, 2])
def test_sacct_json(tmp_path, indent):
    array = {"job_id": 5, "task_id": {"set": True, "number": 3}, "task": ""}
    data = {"jobs": [listed(), listed(job_id=8, array=array, state={"current": "FAILED"})], "meta": {}}
    found = pool(tmp_path / "sacct.json", json.dumps(data, indent=indent))
    assert device_s(found) == {"cancelled": 240, "failed": 240}
    assert sorted((job.id, job.user) for job in found.jobs) == [("5_3", "ana"), ("7", "ana")]
    assert found.warnings == []


def test_a_damaged_record_of_json_costs_only_itself(tmp_path):
    text = json.dumps({"jobs": [listed(job_id=n) for n in range(1, 5)]}).replace('"job_id": 2,', '"job_id" 2,')
    found = pool(tmp_path / "sacct.json", text)
    assert [job.id for job in found.jobs] == ["1", "3", "4"]
    assert said(found, "record 2 is no record")
    found = pool(tmp_path / "cut.json", text[:-300])
    assert [job.id for job in found.jobs] == ["1", "3"]


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("update", [10**9 + 3610, {"set": True, "infinite": False, "number": 10**9 + 3610}])
def test_running_jobs_count_up_to_the_update_of_json(tmp_path, first, update):
    job = {"job_id": 7, "job_state": ["RUNNING"], "start_time": 10**9 + 10, "submit_time": 10**9,
           "tres_alloc_str": "gres/gpu=2"}  # fmt: skip
    beside = {"last_backfill": {"set": False, "number": 0}, "last_update": update}
    data = {**beside, "jobs": [job]} if first else {"jobs": [job], **beside, "errors": []}
    found = pool(tmp_path / "squeue.json", json.dumps(data))
    assert sum(account_pool(found).seconds.values()) == 2 * H
    assert not said(found, "no TIME")
    going = listed(state={"current": ["RUNNING"]}, time={"start": 10**9 + 10, "end": 0})
    found = pool(tmp_path / "sacct.json", json.dumps({"jobs": [going], "last_update": update}))
    assert sum(account_pool(found).seconds.values()) == 4 * H


@pytest.mark.parametrize("update", [0, None, {"set": False, "number": 5}, 10**11 - 1])
def test_an_update_that_says_nothing(tmp_path, update):
    job = {"job_id": 7, "job_state": ["RUNNING"], "start_time": 10**9, "tres_alloc_str": "gres/gpu=2"}
    found = pool(tmp_path / "squeue.json", json.dumps({"jobs": [job], "last_update": update}))
    assert said(found, "no TIME")
    assert len(said(found, "is no moment")) == (update == 10**11 - 1)


# squeue and sinfo


def test_squeue_as_it_is_by_default(tmp_path):
    text = (
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
        "                 7       gpu  my job      ana  R    1:00:00      2 gpu[01-02]\n"
        "        8_[1-4%2]       gpu    sweep       bo PD       0:00      1 (Nodes required are DOWN)\n"
    )
    found = pool(tmp_path / "squeue", text)
    assert found.totals_ns == {"running": H * 10**9}
    assert said(found, "1 of 2 jobs")


def test_squeue_with_columns(tmp_path):
    text = (
        "JOBID|STATE|SUBMIT_TIME|START_TIME|TIME|NODES|TRES_PER_NODE\n"
        "7|RUNNING|2024-03-05T01:00:00|2024-03-05T02:00:00|1:00:00|2|gres/gpu:8\n"
        "8|PENDING|2024-03-05T01:00:00|2024-03-09T02:00:00|0:00|1|gres/gpu:8\n"
    )
    found = pool(tmp_path / "squeue", text, capacity=64)
    assert [(job.milli, job.start_ns is None) for job in found.jobs] == [(16000, False), (8000, True)]
    assert sum(account_pool(found).seconds.values()) == 16 * H
    assert found.devices is None
    assert said(found, "16 of 64 devices then")


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("HOSTNAMES|STATE|GRES\na1|idle|gpu:8\na2|mixed-|gpu:8(S:0)\na2|mixed-|gpu:8(S:0)\n", 16),
        ("PARTITION AVAIL TIMELIMIT NODES STATE NODELIST GRES\ngpu* up infinite 3 alloc a[1-2,4] gpu:h100:4\n", 12),
        ("NODES STATE GRES\n3 alloc gpu:4\n2 down* gpu:4\n1 idle (null)\n", 20),
        ("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\ngpu* up infinite 2 idle a[1-2]\n", None),
        ("PARTITION NODES STATE GRES\na 3 alloc gpu:4\nb 3 alloc gpu:4\n", None),
        (
            LONG_SINFO,
            None,
        ),
    ],
)
def test_sinfo(tmp_path, text, devices):
    found = pool(tmp_path / "sinfo", text)
    assert found.devices == devices
    assert not said(found, "left out")
    assert said(found, "one moment")


def test_sacct_and_sinfo_in_one_folder(tmp_path):
    (tmp_path / "sacct").write_text(f"{SACCT}\n{DAY}\n")
    (tmp_path / "sinfo").write_text(
        "HOSTNAMES|STATE|GRES|TIMESTAMP\na1|alloc|gpu:8|Unknown\na2|drain|gpu:8|2024-03-05T04:00:00\n"
    )
    (tmp_path / "notes.md").write_text("nothing of it")
    found = pool(tmp_path)
    ledger = account_pool(found)
    assert (found.devices, ledger.offered_ns) == (16, 16 * 4 * H * 10**9)
    assert ledger.seconds == {"allocated": 24 * H, "queued": 8 * H, "unallocated": 24 * H, "drained": 8 * H}
    assert said(found, "notes.md (no source knows it)")


@pytest.mark.parametrize(
    "text", ["a note about JobID and State", "job_id,state\n1,ok\n", '{"jobs": []}', "a|b|c\n1|2|3\n", "1|F|x\n2|S|y\n"]
)
def test_what_is_not_of_slurm(tmp_path, text):
    path = tmp_path / "other"
    path.write_text(text)
    assert Slurm().recognise(path, files.head(path))


# Many at once, and one by one


ODD = {
    "JobID": ["8", "9_1", "9_[1-4%2]", "7.batch", "8.0", "5+0", "x", "123+", "", " 7 ", "7"],
    "JobName": ["é", "a b", "\x1b[1mred", "n" * 300, ""],
    "User": ["bo", "", " ana ", "us+"],
    "State": ["RUNNING", "PENDING", "CANCELLED by 7", "Tuesday", "", "OUT_OF_ME+"],
    "Submit": ["Unknown", "2024-02-30T00:00:00", "1709600400", "2024-03-05T01:00:00+0100", "1970-01-01T00:00:00", "0"],
    "Eligible": ["None", "2024-03-05T01:30:00", "2024-03-05T01:30:00Z"],
    "Start": [
        "Unknown",
        "",
        "2024-03-05T05:00:00",
        "2024-03-05T25:00:00",
        "2024-03-05T00:30:00.5",
        "2024-03-05T01:00:00",
    ],
    "End": ["Unknown", "2024-03-05T01:00:00", "2101-01-01T00:00:00", "2024-03-05T06:00:00-0000", "N/A"],
    "ElapsedRaw": ["", "3600", "7200", "x", "9" * 19, "9" * 25, "1-00:00:00"],
    "AllocTRES": ["", "gres/npu=4", "gres/gpu=1+", "cpu=2", "gres/gpu:a100_1g.5gb=2", "4 gpus", "gres/gpu=" + "9" * 30],
    "ReqTRES": ["", "gres/gpu=3", "N/A"],
}


@st.composite
def sacct_rows(draw):
    names = SACCT.split("|")
    lines = []
    for n in range(draw(st.integers(1, 9))):
        cells = dict(zip(names, DAY.replace("7|", f"{draw(st.integers(6, 8))}|", 1).split("|"), strict=True))
        for name in draw(st.lists(st.sampled_from(sorted(ODD)), max_size=2)) if n % 2 else ():
            cells[name] = draw(st.sampled_from(ODD[name]))
        lines.append("|".join(cells.values()))
    return "\n".join([SACCT, *lines, ""])


def read(path, text, monkeypatch, **limits):
    """Return what is read where the limits on what is looked at together are these."""
    with monkeypatch.context() as patched:
        for name, value in limits.items():
            patched.setattr(f"headway.sources.slurm.{name.replace('__', '._')}", value)
        path.write_text(text)
        try:
            (found,) = Slurm().load(path, Asked())
        except SourceError as error:
            return str(error)
    return sorted(map(repr, found.jobs)), found.begin_ns, found.end_ns, found.totals_ns, list(found.warnings)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=sacct_rows())
def test_columns_say_what_single_records_say(tmp_path, monkeypatch, text):
    single = read(tmp_path / "sacct", text, monkeypatch, columns__FEW=1 << 30)
    for limits in ({"columns__ODD": 1}, {"columns__ODD": 1, "rows__BLOCK": 99, "jobs__FEW": 2}):
        assert read(tmp_path / "sacct", text, monkeypatch, columns__FEW=1, **limits) == single


def test_jobs_that_are_told_again_and_again_are_kept_once(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm_jobs, "_FEW", 8)
    monkeypatch.setattr(slurm_columns, "_FEW", 2)
    sizes = []
    once = slurm_attempts.once
    monkeypatch.setattr(slurm_attempts, "once", lambda jobs: sizes.append(len(jobs)) or once(jobs))
    rows = [DAY.replace("7|", f"{n}|", 1) for n in range(5)]
    (tmp_path / "sacct").write_text("\n".join([SACCT, *[line for _ in range(40) for line in [*rows, SACCT]], ""]))
    (found,) = Slurm().load(tmp_path / "sacct", Asked())
    assert len(found.jobs) == 5
    assert said(found, "counts once: 195")
    assert max(sizes) < 20


def test_many_attempts_of_one_job(tmp_path):
    starts = [f"2024-03-05T{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}" for n in range(5000)]
    rows = [DAY.replace("2024-03-05T02:00:00", start).replace("10800", "") for start in starts]
    waiting = DAY.replace("COMPLETED", "PENDING").replace(
        "2024-03-05T02:00:00|2024-03-05T05:00:00|10800", "Unknown|Unknown|0"
    )
    found = pool(tmp_path / "sacct", "\n".join([SACCT, waiting, *rows, waiting, *rows, ""]))
    assert len(found.jobs) == 5000


def test_long_texts_are_not_kept(tmp_path):
    rows = [DAY.replace("7|", f"{n}|", 1).replace("gres/gpu=8", f"gres/gpu=8,x{n}{'y' * 5000}=1", 1) for n in range(99)]
    assert {job.milli for job in pool(tmp_path / "sacct", "\n".join([SACCT, *rows, ""])).jobs} == {8000}
    assert max(map(len, slurm_gpus._MILLI)) < 1000


@pytest.mark.parametrize("nodes", ["a" * 99999 + "[0-199999]", f"a[{'0' * 4000}-199999]", "[1]" * 99999])
def test_names_of_nodes_that_would_fill_the_memory(nodes):
    with pytest.raises(ValueError, match=r"node|numbers"):
        slurm_fields.nodes(nodes)


@pytest.mark.parametrize("nodes", ["[0-199999]" + "a" * 99999, "a[0-99999][0-99999]"])
def test_names_of_nodes_are_counted_before_they_are_made(nodes):
    with pytest.raises(ValueError, match=r"node"):
        slurm_fields.nodes(nodes)


def test_lists_of_nodes_that_are_told_again_and_again(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(slurm_nodes, "_MOST_NAMED", 9999)
    nodes = slurm_fields.nodes
    monkeypatch.setattr(slurm_fields, "nodes", lambda text: made.append(text) or nodes(text))
    text = "NODELIST|STATE|GRES\n" + "a[1-999]|idle|gpu:8\n" * 40
    found = pool(tmp_path / "sinfo", text + "a[1-999]|down|gpu:8\n" * 40)
    assert (found.devices, len(made)) == (8 * 999, 2)
    assert said(found, "by state: down 999")
    made.clear()
    text = "NODELIST|STATE|GRES\n" + "".join(f"a[1-999]|idle|gpu:{n}\n" for n in range(40))
    found = pool(tmp_path / "sinfo", text + "b7|idle|gpu:1\n")
    assert len(made) == 12
    assert found.devices == 10 * 999 + 1
    assert said(found, "29 lines are no node that can be counted, left out")


def test_a_state_of_a_node_that_is_no_word(tmp_path):
    text = f"HOSTNAMES|STATE|GRES\na1|idle|gpu:8\na2|down{'x' * 5000}|gpu:8\n"
    assert said(pool(tmp_path / "sinfo", text), "line 3 is no node that can be counted")


def test_moments_as_seconds_with_zones_and_none_side_by_side(tmp_path):
    at = [
        "1709600400",
        "2024-03-05T02:00:00+0100",
        "2024-03-05T01:00:00",
        "2024-03-04T23:30:00-0130",
        "2024-03-05T01:00:00Z",
    ]
    rows = [DAY.replace("7|", f"{n}|", 1).replace("2024-03-05T02:00:00", at[n % len(at)]) for n in range(99)]
    found = pool(tmp_path / "sacct", "\n".join([SACCT, *rows, ""]).replace("|10800|", "||"))
    assert {job.start_ns for job in found.jobs} == {1709600400 * 10**9}
    assert len(found.jobs) == 99
