"""States of nodes as sinfo and scontrol tell them: which devices are there, and which are out of service."""

import json

import pytest

from headway.ledger.pool import account_pool
from headway.sources.asked import Asked
from headway.sources.slurm.nodes import is_leaving, is_out, node_state
from headway.sources.slurm.source import Slurm

H = 3600
JOBS = "JobID|State|Submit|Start|End|AllocTRES\n" + "".join(
    f"{n}|COMPLETED|2024-05-01T08:00:00Z|2024-05-01T08:00:00Z|2024-05-01T18:00:00Z|gres/gpu={devices}\n"
    for n, devices in ((1, 8), (2, 4))
)


def pool(tmp_path, **texts):
    """Return the pool of files of these names, with these texts in them."""
    for name, text in texts.items():
        (tmp_path / name).write_text(text if isinstance(text, str) else json.dumps(text))
    (found,) = Slurm().load_together([tmp_path / name for name in texts], Asked())
    return found


def said(found, words):
    return [line for line in found.warnings if words in line]


@pytest.mark.parametrize(
    ("text", "state", "out"),
    [
        ("plnd", "plnd", False), ("PLANNED", "planned", False), ("plnd*", "plnd", False), ("mixed-", "mixed", False),
        ("IDLE+DRAIN", "drained", True), ("DOWN+DRAIN+NOT_RESPONDING", "drained", True), ("DOWN+CLOUD", "down", True),
        ("ALLOCATED+DRAIN*", "draining", True), ("IDLE+COMPLETING+DRAIN", "draining", True),
        ("MIXED+FAIL", "failing", True), ("IDLE+FAIL", "fail", True), ("ALLOCATED+MAINTENANCE", "allocated", False),
        ("IDLE+MAINTENANCE+RESERVED", "maintenance", True), ("IDLE+INVALID_REG", "invalid_reg", True),
        ("IDLE+REBOOT_ISSUED", "reboot_issued", True), ("IDLE+REBOOT_REQUESTED", "idle", False),
        ("idle+cloud+powered_down", "idle", False), ("idle+no state", "", False), ("gpu+drain", "", False),
    ],
)  # fmt: skip
def test_states_of_nodes(text, state, out):
    assert node_state(text) == state
    assert is_out(state) is out


@pytest.mark.parametrize("state", ["draining", "drng", "failing", "failg"])
def test_states_of_nodes_on_which_jobs_still_run(state):
    assert is_out(state)
    assert is_leaving(state)


def test_planned_nodes_are_there(tmp_path):
    found = pool(tmp_path, sacct=JOBS, sinfo="HOSTNAMES GRES STATE\na1 gpu:8 plnd\na2 gpu:8 mix\n")
    assert found.devices == 16
    assert not said(found, "left out")


SINCE = "2024-05-01T08:00:00Z"


@pytest.mark.parametrize(
    ("state", "used", "drained"),
    [("drained", None, 40), ("draining", None, 0), ("draining", "gpu:8", 0), ("draining", "gpu:6", 20)],
)
def test_jobs_still_run_on_a_draining_node(tmp_path, state, used, drained):
    head, cells = ("|GRES_USED", f"|{used}") if used else ("", "")
    text = f"HOSTNAMES|STATE|GRES|TIMESTAMP{head}\na1|{state}|gpu:8|{SINCE}{cells}\n"
    text += "a2|mixed|gpu:8|Unknown" + ("|gpu:4" if used else "") + "\n"
    found = pool(tmp_path, sacct=JOBS, sinfo=text)
    seconds = account_pool(found).seconds
    assert seconds.get("drained", 0) == drained * H
    assert sum(seconds.values()) == 160 * H
    assert len(said(found, "1 nodes with 8 devices were draining")) == (state == "draining" and not used)


NODE = {"name": "a1", "gres": "gpu:8", "gres_used": "gpu:0", "reason_changed_at": 1714557600}


@pytest.mark.parametrize(
    "state",
    [
        {"state": "idle", "state_flags": ["DRAIN"]}, {"state": ["IDLE", "DRAIN"]}, {"state": "IDLE+DRAIN"},
        {"state": ["IDLE"], "state_flags": ["DRAIN", "NOT_RESPONDING"]}, {"state": ["IDLE", "INVALID_REG"]},
        {"state": "idle", "state_flags": ["REBOOT_ISSUED"]},
    ],
)  # fmt: skip
def test_flags_of_json_say_that_a_node_is_out(tmp_path, state):
    other = {**NODE, "name": "a2", "state": "mixed", "state_flags": [], "gres_used": "gpu:8", "reason_changed_at": 0}
    found = pool(tmp_path, sacct=JOBS, sinfo={"nodes": [{**NODE, **state}, other]})
    (outage,) = found.outages
    assert (found.devices, outage.devices, outage.begin_ns) == (16, 8, 1714557600 * 10**9)


def test_sinfo_json_by_groups_tells_since_when_and_what_is_in_use(tmp_path):
    def group(names, state, used, since):
        reason = {"description": "", "time": {"set": bool(since), "infinite": False, "number": since}}
        return {
            "node": {"state": state}, "nodes": {"nodes": names}, "gres": {"total": "gpu:8", "used": used},
            "reason": reason, "partition": {"name": "batch"},
        }  # fmt: skip

    groups = [group(["a1"], ["IDLE", "DRAIN"], "gpu:0", 1714557600), group(["a2", "a3"], ["MIXED"], "gpu:4", 0)]
    groups.append(group(["a4"], ["ALLOCATED", "DRAIN"], "gpu:6", 1714557600))
    found = pool(tmp_path, sacct=JOBS, sinfo={"sinfo": groups})
    (outage,) = found.outages
    assert (found.devices, outage.devices, outage.begin_ns) == (32, 10, 1714557600 * 10**9)
    assert said(found, "jobs had 14 of 32 devices")
    assert not said(found, "not told")
