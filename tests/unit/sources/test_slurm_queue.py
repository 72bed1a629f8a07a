"""Lists of squeue: without a header, of several clusters, with jobs that ended or only wait."""

import json
from dataclasses import dataclass

import pytest

from headway.errors import SourceError
from headway.ledger.pool import account_pool
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.slurm import columns as slurm_columns
from headway.sources.slurm import fields as slurm_fields
from headway.sources.slurm.source import Slurm

H = 3600


def pool(path, text):
    """Return the pool of a file with this text in it."""
    path.write_text(text if isinstance(text, str) else json.dumps(text))
    assert Slurm().recognise(path, files.head(path)) is None
    (found,) = Slurm().load(path, Asked())
    return found


def said(found, words):
    return [line for line in found.warnings if words in line]


# Without a header


@dataclass
class Line:
    ident: str
    state: str = "RUNNING"
    time: str = "0:11:00"
    limit: str = "4:00:00"
    n_nodes: int = 4
    nodes: str = "n[07-10]"
    gres: str = "gres/gpu:h100:8"

    def text(self, order):
        return "|".join(str(getattr(self, name)) if name in vars(self) else name for name in order) + "\n"


WAITS = Line("9_[1-2]", "PENDING", "0:00", n_nodes=2, nodes="", gres="gres/gpu:2")
ORDERS = [
    ["ident", "ana", "state", "time", "limit", "n_nodes", "nodes", "/home/ana", "gres", "2024-03-05T01:00:00"],
    ["limit", "ident", "gpu", "state", "gres", "n_nodes", "16", "nodes", "time", "2024-03-05T01:00:00"],
    ["ident", "state", "gres", "nodes", "n_nodes", "limit", "time"],
]


@pytest.mark.parametrize("order", ORDERS)
def test_how_long_and_on_how_many_nodes_is_told_without_a_header(tmp_path, order):
    lines = [Line("7"), Line("8", time="1-00:00:00", limit="2-00:00:00", n_nodes=1, nodes="n11"), WAITS]
    found = pool(tmp_path / "squeue", "".join(line.text(order) for line in lines))
    assert found.totals_ns == {"running": (32 * 660 + 8 * 24 * H) * 10**9}
    assert said(found, "2 of 3 jobs had 40 devices")
    assert said(found, "elapsed")


def test_where_none_waits_a_limit_of_whole_minutes_tells_it(tmp_path):
    order = ["ident", "R", "nodes", "gres", "time", "limit"]
    lines = [Line("7", time="0:10"), Line("8", time="1-00:00:10", limit="2-00:00:00", nodes="n[02-05]")]
    found = pool(tmp_path / "squeue", "".join(line.text(order) for line in lines))
    assert found.totals_ns == {"running": 32 * (10 + 24 * H + 10) * 10**9}


@pytest.mark.parametrize("order", ["ident R gres time 2024-03-05T01:00:00", "ident R gres limit 2024-03-05T01:00:00"])
def test_one_length_may_be_any(tmp_path, order):
    found = pool(tmp_path / "squeue", "".join(line.text(order.split()) for line in (Line("7"), Line("8"))))
    assert not said(found, "elapsed")
    assert said(found, "no column tells on how many nodes a job is")


@pytest.mark.parametrize("few", [1, 1 << 30])
@pytest.mark.parametrize("names", ["NODELIST", "NODES|NODELIST(REASON)", "NODELIST(REASON)"])
def test_names_of_nodes_tell_their_number(tmp_path, monkeypatch, few, names):
    monkeypatch.setattr(slurm_columns, "_FEW", few)
    count = "4|" if "|" in names else ""
    text = f"JOBID|ST|TIME|TRES_PER_NODE|{names}\n" + f"7|R|1:00:00|gres/gpu:2|{count}n[1-3],m4\n" * 2
    text += f"8|PD|0:00|gres/gpu:2|{count and '1|'}(Resources)\n"
    found = pool(tmp_path / "squeue", text)
    assert found.totals_ns == {"running": 8 * H * 10**9}
    assert not said(found, "how many nodes")


@pytest.mark.parametrize("few", [1, 1 << 30])
def test_states_cut_to_their_column_hold_their_devices(tmp_path, monkeypatch, few):
    monkeypatch.setattr(slurm_columns, "_FEW", few)
    states = ["COMPLETI", "SUSPENDE", "CONFIGUR", "RUNNI", "COMPLETIN", "PENDI"]
    rows = [f"{n} a {state} 2024-03-05T01:00:00 gres/gpu:4 1\n" for n, state in enumerate(states)]
    found = pool(tmp_path / "squeue", "JOBID USER STATE START_TIME TRES_PER_NODE NODES\n" + "".join(rows))
    told = ["completing", "suspended", "configuring", "running", "completing", "pending"]
    assert [job.state for job in found.jobs] == told
    assert said(found, "5 of 6 jobs had 20 devices")


@pytest.mark.parametrize("state", ["REQUEUE_", "COMP", "completi", "COMPLETI by", "Complet"])
def test_what_may_be_several_states_is_none(state):
    assert not slurm_fields.state(state)


# Several clusters


def of_clusters(head, rows, *names):
    """Return what a command prints that is asked for several clusters, each of which has these rows."""
    return "\n".join(f"CLUSTER: {name}\n{head}\n{rows}" for name in names)


@pytest.mark.parametrize("few", [1, 1 << 30])
@pytest.mark.parametrize("delimiter", [" ", "|"])
def test_clusters_one_after_another_number_their_jobs_alike(tmp_path, monkeypatch, few, delimiter):
    monkeypatch.setattr(slurm_columns, "_FEW", few)
    rows = "".join(f"{n} ana R 2024-03-05T01:00:00 1:00:00 2\n" for n in range(7, 10)).replace(" ", delimiter)
    head = "JOBID USER ST START_TIME TIME NODES".replace(" ", delimiter)
    found = pool(tmp_path / "squeue", of_clusters(head, rows, "alpha", "beta"))
    assert sorted(job.id for job in found.jobs) == ["7", "8", "9", "beta/7", "beta/8", "beta/9"]
    assert not said(found, "left out")
    assert not said(found, "counts once")


@pytest.mark.parametrize("head", ["HOSTNAMES STATE GRES", "NODELIST|STATE|GRES", "PARTITION NODES STATE GRES"])
def test_clusters_one_after_another_name_their_nodes_alike(tmp_path, head):
    rows = "a 1 idle gpu:8" if "NODES " in head else "a1 idle gpu:8"
    text = of_clusters(head, (rows + "\n").replace(" ", "|" if "|" in head else " "), "alpha", "beta", "alpha")
    found = pool(tmp_path / "sinfo", text)
    assert found.devices == (None if "NODES " in head else 16)
    assert not said(found, "left out")


# Only jobs that wait, and no job at all


@pytest.mark.parametrize(
    "text",
    [
        "JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)\n7 gpu a b PD 0:00 1 (Priority)\n",
        "JobID|State|Elapsed|Start|End\n7|PENDING|00:00:00|Unknown|Unknown\n",
        "JOBID ST START_TIME TIME\n7 PD N/A 0:00\n",
        "JobID|State|Submit|Start|End|AllocTRES\n7|PENDING|2024-03-05T01:00:00Z|Unknown|Unknown|gres/gpu=1\n",
    ],
)
def test_jobs_that_only_wait_are_a_queue(tmp_path, text):
    found = pool(tmp_path / "jobs", text)
    assert [(job.id, job.start_ns) for job in found.jobs] == [("7", None)]
    assert found.totals_ns is None
    assert not said(found, "only how long")
    assert [line for line in account_pool(found).warnings if "asked for 1 device" in line]


def test_where_each_record_is_cut_the_error_names_the_column(tmp_path):
    text = (
        "       JobID      User      State               Start                 End  AllocTRES\n"
        "------------ --------- ---------- ------------------- ------------------- ----------\n"
        "7            johann+    COMPLETED 2024-03-05T01:00:00 2024-03-05T02:00:00 billing=8+\n"
    )
    with pytest.raises(SourceError, match=r"-P .*AllocTRES billing=8\+"):
        pool(tmp_path / "sacct", text)


# Taken from a terminal


@pytest.mark.parametrize("line", ["[ana@login1 ~]$ squeue", "ana@h: d e$ sq", "$ squeue --me", "squeue -u ana", "% sq"])
@pytest.mark.parametrize("delimiter", [" ", "|"])
def test_the_command_before_a_table_is_none_of_it(tmp_path, line, delimiter):
    table = "JOBID USER ST TIME\n7 ana R 1:00:00\n8 ana R 1:00:00\n".replace(" ", delimiter)
    found = pool(tmp_path / "squeue", f"{line}\n{table}")
    assert found.totals_ns == {"running": 2 * H * 10**9}
    assert not said(found, "left out")
    assert len(said(pool(tmp_path / "more", f"{line}\n{table}a b\n"), "left out")) == 1


@pytest.mark.parametrize("line", ["$ sinfo", "(x)-[root@gpu048 ~]$ sinfo -N", "sinfo"])
def test_the_command_before_nodes_is_none_of_them(tmp_path, line):
    found = pool(tmp_path / "sinfo", f"{line}\nHOSTNAMES STATE GRES\na1 drain$ gpu:2\n")
    assert found.devices == 2
    assert not said(found, "left out")


@pytest.mark.parametrize("head", ["PARTITION AVAIL NODES(A/I/O/T)", "PARTITION       CPUS(A/I/O/T)   NODES(A/I)"])
def test_sinfo_without_nodes_says_how_to_write_it(tmp_path, head):
    with pytest.raises(SourceError, match=r"name no nodes, left out; write it again with sinfo -N"):
        pool(tmp_path / "sinfo", f"{head}\ngpu up 1/2/3/4\n")


# JSON


@pytest.mark.parametrize(
    ("state", "ended"),
    [("COMPLETED", True), (["FAILED"], True), ("RUNNING", False), ("PENDING", False), (["COMPLETING"], False)],
)
def test_only_of_a_job_that_is_over_end_time_is_its_end(tmp_path, state, ended):
    at = {"start_time": 1709604000, "end_time": {"set": True, "infinite": False, "number": 1709607600}}
    job = {"job_id": 7, "job_state": state, "submit_time": 1709600400, "tres_alloc_str": "gres/gpu=4", **at}
    found = pool(tmp_path / "squeue.json", {"jobs": [job], "last_update": 1709608000})
    assert [job.end_ns for job in found.jobs] == [1709607600 * 10**9 if ended else None]
    assert bool(said(found, "0 of 1 jobs had 0 devices")) == (ended or state == "PENDING")
    assert not said(found, "left out")


# Resources that are no GPUs


@pytest.mark.parametrize("few", [1, 1 << 30])
def test_jobs_with_other_accelerators_are_said_to_have_no_devices(tmp_path, monkeypatch, few):
    monkeypatch.setattr(slurm_columns, "_FEW", few)
    tres = ["gres/gpu=2,gres/nic=4", "gres/npu:910b=8", "gres/dcu=4,gres/nvme=1", "gres/shard=2", "cpu=1,gres/npu=0"]
    rows = [f"{n}|FAILED|2024-03-05T01:00:00Z|2024-03-05T02:00:00Z|{text}\n" for n, text in enumerate(tres)]
    found = pool(tmp_path / "sacct", "JobID|State|Start|End|AllocTRES\n" + "".join(rows))
    assert [job.milli for job in found.jobs] == [2000, 0, 0, 0, 0]
    assert said(found, "no GPU but other resources (dcu, npu, shard), which count as no devices: 3")


def test_nodes_with_other_accelerators_are_said_to_have_no_devices(tmp_path):
    found = pool(tmp_path / "sinfo", "HOSTNAMES STATE GRES\na1 idle gpu:8\na2 idle npu:8(S:0)\na3 idle lscratch:9\n")
    assert found.devices == 8
    assert said(found, "which count as no devices: npu")
