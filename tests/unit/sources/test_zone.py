"""Times that name no zone, read as of one: the same as where each names it."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway import account, load
from headway.errors import ArgumentError
from headway.sources.zone import either, in_order, utc, utc_of, zone_of

ZURICH = ZoneInfo("Europe/Zurich")
FORWARD = datetime(2024, 3, 30, 22, tzinfo=UTC)
"""Three hours before clocks in Zurich are put forward."""
BACK = datetime(2024, 10, 26, 22, tzinfo=UTC)
S = 10**9


def shown(moment, form="%Y-%m-%dT%H:%M:%S", zone=ZURICH):
    return moment.astimezone(zone).strftime(form)


def sacct(begin, form):
    lines = ["JobID|User|State|Submit|Start|End|ElapsedRaw|AllocTRES"]
    for n in range(100):
        start = begin + timedelta(minutes=7 * n)
        end = start + timedelta(minutes=45)
        lines.append(
            "|".join(
                [f"{n}", "ana", "COMPLETED", *(shown(at, form) for at in (start, start, end)), "2700", "gres/gpu=8"]
            )
        )
    return "\n".join([*lines, ""])


def test_slurms_moments_when_clocks_are_put_forward(tmp_path):
    (tmp_path / "local").write_text(sacct(FORWARD, "%Y-%m-%dT%H:%M:%S"))
    (tmp_path / "zoned").write_text(sacct(FORWARD, "%Y-%m-%dT%H:%M:%S%z"))
    (local,), (zoned,) = load(tmp_path / "local", zone="Europe/Zurich"), load(tmp_path / "zoned")
    assert [*local.jobs] == [*zoned.jobs]
    assert not any("zone" in text for text in local.warnings)
    assert account(local).held_ns == 100 * 2700 * 8 * S


def test_a_table_and_its_mapping(tmp_path):
    rows = ["job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"]
    for n in range(50):
        start = FORWARD + timedelta(minutes=7 * n)
        at, end = (shown(one, "%Y-%m-%d %H:%M:%S") for one in (start, start + timedelta(minutes=45)))
        rows.append(f"{n},u,v,8,64,1,COMPLETED,{at},{at},{end},2700,0")
    (tmp_path / "jobs.csv").write_text("\n".join([*rows, ""]))
    (pool,) = load(tmp_path / "jobs.csv", zone="Europe/Zurich")
    assert pool.jobs[0].start_ns == round(FORWARD.timestamp()) * S
    assert {job.end_ns - job.start_ns for job in pool.jobs} == {2700 * S}


@pytest.mark.parametrize("begin", [FORWARD, BACK])
def test_a_training_log_over_a_change_of_the_clocks(tmp_path, begin):
    lines = [
        f"[titan] {shown(begin + timedelta(minutes=5 * n), '%Y-%m-%d %H:%M:%S')},000 - root - INFO - step: {n + 1}  "
        "loss: 2.0  memory: 1.00GiB(1.00%)  tps: 1,000  tflops: 100.00  mfu: 40.00%"
        for n in range(100)
    ]
    (tmp_path / "log").write_text("\n".join([*lines, ""]))
    (run,) = load(tmp_path / "log", zone="Europe/Zurich")
    rows = run.processes[0].rows
    assert set(np.diff(rows.end).tolist()) == {300 * S}
    assert rows.end[0] == round(begin.timestamp()) * S
    assert not any("zone" in text or "clock" in text for text in run.warnings)


def test_a_log_that_names_zones_here_and_there_is_left_as_it_is(tmp_path):
    lines = [
        f"2024-01-01 00:00:{n:02d}{'Z' * (n % 2)} iter {n}: loss 2.0, time 1000.00ms, mfu 40.00%" for n in range(9)
    ]
    (tmp_path / "log").write_text("\n".join([*lines, ""]))
    (run,) = load(tmp_path / "log", zone="+05:00")
    assert any("--zone is not used" in text for text in run.warnings)


@pytest.mark.parametrize("name", ["Europe/Atlantis", "+99:00", "../../etc/passwd", "", "x" * 5000, "\x1b[2J"])
def test_a_zone_that_is_none(tmp_path, name):
    (tmp_path / "log").write_text("iter 0: loss 2.0, time 1000.00ms, mfu 40.00%\n")
    with pytest.raises(ArgumentError, match=r"\[no-such-zone\]") as raised:
        load(tmp_path / "log", zone=name)
    assert "\x1b" not in str(raised.value)


@given(
    st.lists(st.integers(0, 1 << 32), min_size=1, max_size=20),
    st.sampled_from(["Europe/Zurich", "Asia/Kathmandu", "-03:30"]),
)
def test_moments_are_those_of_datetime(seconds, name):
    zone = zone_of(name)
    shown_there = [datetime.fromtimestamp(one, UTC).replace(tzinfo=zone) for one in seconds]
    assert utc(np.array(seconds) * S, zone).tolist() == [round(one.timestamp()) * S for one in shown_there]


def test_an_hour_that_is_shown_twice_is_told_apart_by_the_order():
    moments = [BACK + timedelta(minutes=n) for n in range(0, 400, 10)]
    local = [round(one.astimezone(ZURICH).replace(tzinfo=UTC).timestamp()) * S for one in moments]
    assert in_order(np.array(local), ZURICH).tolist() == [round(one.timestamp()) * S for one in moments]


@pytest.mark.parametrize(
    "name", ["Europe/Zurich", "America/New_York", "Australia/Lord_Howe", "Asia/Shanghai", "+05:45"]
)
@pytest.mark.parametrize("day", [datetime(2024, month, 1) for month in (3, 4, 10, 11)])  # noqa: DTZ001 - as shown there
def test_each_minute_of_a_month_is_read_as_datetime_does(name, day):
    zone = zone_of(name)
    there = [day + timedelta(minutes=7 * n) for n in range(31 * 24 * 60 // 7)]
    local = np.array([round(one.replace(tzinfo=UTC).timestamp()) * S for one in there])
    for moments, fold in zip(either(local, zone), (0, 1), strict=True):
        assert moments.tolist() == [round(one.replace(tzinfo=zone, fold=fold).timestamp()) * S for one in there]
    assert [utc_of(one, zone) for one in local[::100].tolist()] == utc(local[::100], zone).tolist()


def test_of_a_table_only_times_in_the_hour_of_a_change_are_told(tmp_path):
    times = [f"2024-10-27 {hour:02}:{minute:02}:30" for hour in range(24) for minute in range(0, 60, 5)]
    rows = [f"{n},u,v,8,64,1,COMPLETED,{at},{at},{at},0,0" for n, at in enumerate(times)]
    head = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
    (tmp_path / "jobs.csv").write_text("\n".join([head, *rows, ""]))
    (pool,) = load(tmp_path / "jobs.csv", zone="Europe/Zurich")
    shown_there = [datetime.fromisoformat(at).replace(tzinfo=ZURICH) for at in times]
    assert [job.start_ns for job in pool.jobs] == [round(one.timestamp()) * S for one in shown_there]
    assert [text.partition(":")[0] for text in pool.warnings] == [
        "12 local times are in an hour in which clocks were put forward or back"
    ]


def test_a_job_that_ends_after_clocks_were_put_back_counts(tmp_path):
    rows = [
        "1,u,v,8,64,1,COMPLETED,2024-10-27 01:50:00,2024-10-27 02:50:00,2024-10-27 02:10:00",
        "2,u,v,8,64,1,COMPLETED,2024-10-27 02:40:00,2024-10-27 02:20:00,2024-10-27 02:30:00",
        "3,u,v,8,64,1,COMPLETED,2024-10-27 03:40:00,2024-10-27 02:20:00,2024-10-27 02:30:00",
    ]
    head = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time"
    (tmp_path / "jobs.csv").write_text("\n".join([head, *rows, ""]))
    (pool,) = load(tmp_path / "jobs.csv", zone="Europe/Zurich")
    assert [job.end_ns - job.start_ns for job in pool.jobs] == [1200 * S, 600 * S]
    assert pool.jobs[1].start_ns - pool.jobs[1].submit_ns == 2400 * S
    assert "line 4 is no job, left out" in pool.warnings[0]
