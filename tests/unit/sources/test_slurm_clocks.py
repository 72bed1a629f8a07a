"""Moments without a zone as clocks are put back: with the zone, the reading that makes sense."""

import json
from zoneinfo import ZoneInfo

import pytest

from headway.sources.asked import Asked
from headway.sources.slurm import columns as slurm_columns
from headway.sources.slurm.source import Slurm

HEAD = "JobID|State|Submit|Start|End|ElapsedRaw|AllocTRES"
H, MINUTE = 3600, 60
MIDNIGHT = 1_729_987_200
"""2024-10-27 00:00 UTC; clocks in Zurich go from 03:00 to 02:00 at 01:00 UTC."""


def row(submit, start, end, elapsed="", state="COMPLETED"):
    """Return a record of times such as 02:50, in the night in which clocks are put back."""
    at = [f"2024-10-27T{time}:00" if ":" in time else time for time in (submit, start, end)]
    return "|".join(["7", state, *at, str(elapsed), "gres/gpu=4"])


def read(path, *rows, zone="Europe/Zurich"):
    path.write_text("\n".join([HEAD, *rows, ""]))
    (found,) = Slurm().load(path, Asked(zone=ZoneInfo(zone)))
    return found


def minutes(job):
    """Return Submit, Start and End after midnight UTC [min]."""
    ends = (job.submit_ns, job.start_ns, job.end_ns)
    return [None if at is None else (at // 10**9 - MIDNIGHT) // MINUTE for at in ends]


@pytest.mark.parametrize("few", [1, 1 << 30])
@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (("02:50", "02:10", "05:00", 10200), [50, 70, 240]),
        (("02:10", "02:30", "04:00", 2 * H + 1800), [10, 30, 180]),
        (("02:10", "02:30", "04:00", H + 1800), [10, 90, 180]),
        (("01:30", "02:55", "02:05", 600), [-30, 55, 65]),
        (("01:30", "02:10", "02:20", 600), [-30, 10, 20]),
        (("01:30", "02:10", "02:20", 600 + H), [-30, 10, 80]),
        (("02:50", "02:10", "02:20", 600), [50, 70, 80]),
        (("02:50", "02:10", "02:20"), [50, 70, 80]),
        (("01:30", "02:50", "02:20"), [-30, 50, 80]),
        (("02:50", "02:10", "Unknown", 600, "RUNNING"), [50, 70, None]),
        (("02:05", "02:10", "Unknown", 600, "RUNNING"), [5, 10, None]),
        (("02:50", "02:10:00+0100", "03:10:00+0100", H), [50, 70, 130]),
    ],
)
def test_the_reading_that_makes_sense_counts(tmp_path, monkeypatch, few, cells, told):
    monkeypatch.setattr(slurm_columns, "_FEW", few)
    plain = [row("04:00", "05:00", "06:00", H).replace("7", str(number), 1) for number in range(20, 40)]
    text = row(*cells).replace("+0100:00", "+0100")
    found = read(tmp_path / "sacct", *plain, text)
    assert minutes(found.jobs[-1]) == told
    assert len(found.jobs) == 21
    assert not [line for line in found.warnings if "forward or back" in line]


@pytest.mark.parametrize("order", [1, -1])
def test_one_attempt_seen_running_and_ended_is_one(tmp_path, order):
    seen, ended = row("01:30", "02:10", "Unknown", 600, "RUNNING"), row("01:30", "02:10", "05:00", 10200)
    found = read(tmp_path / "sacct", *[seen, ended][::order])
    assert [minutes(job) for job in found.jobs] == [[-30, 70, 240]]


def test_elsewhere_nothing_is_shown_twice(tmp_path):
    found = read(tmp_path / "sacct", row("02:50", "03:10", "05:00", 6600), zone="UTC")
    assert minutes(found.jobs[0]) == [170, 190, 300]


def test_json_has_no_clocks(tmp_path):
    job = {
        "job_id": 7, "state": {"current": ["COMPLETED"]}, "association": {"user": "ana"}, "tres": {},
        "time": {"submission": MIDNIGHT, "start": MIDNIGHT + 600, "end": MIDNIGHT + 4200, "elapsed": 3600},
    }  # fmt: skip
    (tmp_path / "sacct").write_text(json.dumps({"jobs": [job]}))
    (found,) = Slurm().load(tmp_path / "sacct", Asked(zone=ZoneInfo("Europe/Zurich")))
    assert minutes(found.jobs[0]) == [0, 10, 70]
