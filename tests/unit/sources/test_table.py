"""Tables of clusters: what the public ones must yield, and what a row can hold that a job cannot."""

import csv
import gzip
import json
import random
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

import headway
from data import real
from headway import account
from headway.errors import ArgumentError, SourceError
from headway.model.mtbf import Mtbf
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.table import jobs as table_jobs
from headway.sources.table import records as table_records
from headway.sources.table.mapping import read, ready
from headway.sources.table.source import Table, _found

H = 3600 * 10**9
SAMPLES = Path(__file__).parents[2] / "contract" / "samples"
HEADER = "job_id,user,vc,gpu_num,state,submit_time,start_time,end_time,duration"
GENERIC = """
[columns]
id = "id"
start = "from"
end = "to"
devices = "n"
[optional]
submit = "asked"
state = "how"
"""


def load(path, **asked):
    return Table().load(path, Asked(**asked))


def written(tmp_path, text, name="jobs.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def helios(tmp_path, *rows):
    (pool,) = load(written(tmp_path, "\n".join([HEADER, *rows]) + "\n"))
    return pool


def mapped(tmp_path, toml, table, name="jobs.csv", **asked):
    path = tmp_path / "mine.toml"
    path.write_text(toml)
    return load(written(tmp_path, table, name), mapping=path, **asked)


def hours(ledger):
    return {state: round(part.held_ns / H, 2) for state, part in ledger.by("state").items()}


# The public tables


def test_alibaba_pods():
    (pool,) = load(real("cluster", "alibaba_gpu_v2023_pods.csv"))
    ledger = account(pool)
    jobs = pool.jobs
    assert (len(jobs), sum(job.milli > 0 for job in jobs), sum(job.start_ns is None for job in jobs)) == (
        8152, 7064, 897,
    )  # fmt: skip
    assert Counter(job.state for job in jobs) == {"running": 5193, "failed": 1870, "pending": 897, "succeeded": 192}
    waits = np.array([job.start_ns - job.submit_ns for job in jobs if job.start_ns is not None]) / 1e9
    assert (round(waits.mean(), 3), np.median(waits), np.percentile(waits, 99, method="higher"), waits.max()) == (
        61.302, 2, 908, 14330,
    )  # fmt: skip
    assert hours(ledger) == {"running": 46439.91, "succeeded": 4094.79, "failed": 935.97, "pending": 0.0}
    assert round(ledger.held_ns / H, 2) == 51470.67
    assert any("sample" in warning for warning in pool.warnings)


def test_alibaba_nodes():
    (pool,) = load(real("cluster", "alibaba_gpu_v2023_nodes.csv"))
    assert pool.devices == 6212
    assert "6212 devices of 1213 nodes" in pool.warnings[0]


def test_a_folder_gives_the_jobs_the_nodes_of_their_family():
    by_name = {pool.name: pool for pool in headway.load(real("cluster"))}
    assert list(by_name) == ["Helios", "Kalos", "Philly", "Seren", "alibaba_gpu_v2023_pods"]
    assert by_name["alibaba_gpu_v2023_pods"].devices == 6212
    assert len(by_name["alibaba_gpu_v2023_pods"].jobs) == 8152


@pytest.mark.parametrize(
    ("name", "shares", "gpu_hours"),
    [
        ("Seren", (0.2120, 0.6636, 0.1244), 5975173),
        ("Kalos", (0.3127, 0.6074, 0.0799), 1481439),
        ("Philly", (0.3206, 0.2938, 0.3857), 1915199),
        ("Helios", (0.5128, 0.3938, 0.0934), 21666039),
    ],
)
def test_acme_summary(name, shares, gpu_hours):
    (pool,) = [one for one in load(real("cluster", "acme_cluster_summary.csv")) if one.name == name]
    ledger = account(pool)
    by_state = {state: part.held_ns / ledger.held_ns for state, part in ledger.by("state").items()}
    assert tuple(round(by_state[state], 4) for state in ("completed", "cancelled", "failed")) == shares
    assert round(ledger.held_ns / H) == gpu_hours
    assert (ledger.scheduling, ledger.runtime) == (None, None)


def test_a_total_that_is_empty_is_left_out_and_said():
    pools = load(real("cluster", "acme_cluster_summary.csv"))
    assert "PAI" not in {pool.name for pool in pools}
    assert any("line 6 is no total, left out (PAI: complete_gpu_time is empty)" in one for one in pools[0].warnings)


def test_interruptions_are_counts_for_the_model():
    path = real("failures", "llama3_interruptions.csv")
    assert "counts causes" in Table().recognise(path, files.head(path))
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    unexpected = sum(int(row["count"]) for row in csv.DictReader(lines))
    held_s = 54 * 24 * 3600
    mtbf, every = Mtbf.of(unexpected, held_s), Mtbf.of(unexpected + 47, held_s)
    assert (unexpected, round(mtbf.value_s / 3600, 4), round(every.value_s / 3600, 4)) == (419, 3.0931, 2.7811)
    assert round(mtbf.value_s / 3600 * 16384, 0) == 50677
    assert mtbf.low_s < mtbf.value_s < mtbf.high_s


# Small tables in the same forms


def test_every_ready_mapping_has_a_sample():
    found = {_found(path.read_bytes(), ready())[0].name for path in SAMPLES.glob("table*")}
    assert found >= {mapping.name for mapping in ready()}


def test_a_pod_counts_the_thousandths_it_asked_for():
    (pool,) = load(SAMPLES / "table_alibaba_pods.csv")
    assert [job.milli for job in pool.jobs] == [250, 2000, 1000, 0]
    assert hours(account(pool)) == {"running": 0.5, "failed": 2.0, "pending": 0.0}
    assert account(pool).queue.n_never_ran == 1


def test_capacity_is_what_the_reader_says():
    (pool,) = load(SAMPLES / "table_alibaba_pods.csv", capacity=10)
    ledger = account(pool)
    assert pool.devices == 10
    assert ledger.scheduling == pytest.approx(ledger.held_ns / ledger.offered_ns)


def test_acme_times_have_their_zone():
    (pool,) = load(SAMPLES / "table.csv")
    assert list(pool.warnings) == []
    assert pool.jobs[0].submit_ns == 1677715200 * 10**9
    assert pool.jobs[0].name == "Pretrain"
    assert hours(account(pool)) == {"completed": 8.0, "failed": 8.0, "cancelled": 0.17}


def test_kalos_durations_begin_with_the_submission_and_the_times_count():
    (pool,) = load(SAMPLES / "table_kalos.csv")
    assert hours(account(pool))["failed"] == round(64 * 60 / 3600, 2)
    assert pool.jobs[1].start_ns is None
    assert "1 rows have a duration other than from start to end" in pool.warnings[0]


def test_helios_times_name_no_zone_and_that_is_said_once():
    (pool,) = load(SAMPLES / "table_helios.csv")
    assert [warning for warning in pool.warnings if "name no zone" in warning] == list(pool.warnings)
    assert hours(account(pool)) == {"completed": 2.0, "node_fail": 8.0}
    assert {job.partition for job in pool.jobs} == {"vcOne", "vcTwo"}


def test_philly_attempts_are_added_and_only_the_first_waited_since_the_submission():
    (pool,) = load(SAMPLES / "table_philly.json")
    jobs = pool.jobs
    assert [(job.id[-1], job.milli, job.state) for job in jobs] == [
        ("1", 4000, "completed"), ("1", 4000, "completed"), ("2", 1000, "cancelled"),
    ]  # fmt: skip
    assert [job.submit_ns is None for job in jobs] == [False, True, False]
    assert jobs[2].end_ns is None
    assert hours(account(pool))["completed"] == 12.0
    assert pool.warnings[0].endswith("job 3 is never tried, left out: how many GPUs it asked for is not told")


def test_a_folder_of_philly_knows_its_size(tmp_path):
    written(tmp_path, (SAMPLES / "table_philly.json").read_bytes(), "cluster_job_log")
    written(tmp_path, (SAMPLES / "table_machines.csv").read_bytes(), "cluster_machine_list")
    (pool,) = headway.load(tmp_path)
    assert (pool.name, pool.devices, len(pool.jobs)) == ("cluster_job_log", 10, 3)


def test_philly_attempts_without_their_times(tmp_path):
    data = json.loads((SAMPLES / "table_philly.json").read_text())
    data[0]["attempts"][0]["end_time"] = None
    data[1]["attempts"][0] |= {"start_time": None, "end_time": "2017-10-07 03:00:00"}
    data[2]["attempts"] = [7, {"start_time": "2017-10-07 03:00:00", "end_time": "2017-10-07 04:00:00", "detail": 3}]
    (pool,) = load(written(tmp_path, json.dumps(data)))
    assert [job.id[-1] for job in pool.jobs] == ["1"]
    assert "jobs are of an attempt without its times, which is left out: 1 (the end not told)" in pool.warnings[0]
    assert "job 3 is no job, left out (gpus is empty: how many devices is unknown)" in pool.warnings[1]


def test_a_philly_log_keeps_letters_that_two_pieces_share(tmp_path):
    (one,) = json.loads((SAMPLES / "table_philly.json").read_text())[:1]
    data = json.dumps([one | {"jobid": f"a_{n}", "user": "ü" * 150} for n in range(8000)], ensure_ascii=False)
    assert len(data.encode()) > 3 << 20
    assert {job.user for job in load(written(tmp_path, data))[0].jobs} == {"ü" * 150}


def test_a_philly_log_whose_gzip_is_torn_is_read_up_to_there(tmp_path):
    (one,) = json.loads((SAMPLES / "table_philly.json").read_text())[:1]
    chance = random.Random(1)
    jobs = [one | {"jobid": f"a_{n}", "user": f"{chance.random()}"} for n in range(2000)]
    torn = gzip.compress(json.dumps([*jobs, 7, {"jobid": "b", "attempts": 7, "status": "x"}]).encode(), 1)
    (pool,) = load(written(tmp_path, torn[: len(torn) // 2], "log.gz"))
    assert 100 < len(pool.jobs) < 4000
    assert any("the file is torn after" in warning for warning in pool.warnings)


def test_a_philly_log_larger_than_a_piece_and_one_that_is_cut(tmp_path):
    (one,) = json.loads((SAMPLES / "table_philly.json").read_text())[:1]
    data = json.dumps([one | {"jobid": f"application_{n}"} for n in range(4000)], indent=1)
    assert len(data) > 2 << 20
    assert len(load(written(tmp_path, data))[0].jobs) == 8000
    cut = load(written(tmp_path, data[: len(data) // 2]))[0]
    assert 3900 < len(cut.jobs) < 4100
    assert "is no job, left out (damaged or cut)" in cut.warnings[0]
    broken = data.replace('application_7"', 'application_7"}}')
    assert len(load(written(tmp_path, broken))[0].jobs) == 7998


# Rows that are no jobs


def test_bad_cells_are_named_by_line_and_column(tmp_path):
    good = "1,u,vc,2,COMPLETED,2020-06-10 08:00:00,2020-06-10 08:00:00,2020-06-10 09:00:00,3600"
    pool = helios(
        tmp_path, good,
        "2,u,vc,two,COMPLETED,2020-06-10 08:00:00,2020-06-10 08:00:00,2020-06-10 09:00:00,3600",
        "3,u,vc,1,COMPLETED,2020-06-10 08:00:00,2020-06-10 08:61:00,2020-06-10 09:00:00,3600",
        "4,u,vc,1",
    )  # fmt: skip
    assert len(pool.jobs) == 1
    assert pool.warnings[0] == (
        "jobs.csv: 3 lines are no job, left out: 3 (gpu_num: 'two' is no number), "
        "4 (start_time: '2020-06-10 08:61:00' is no time), 5 (4 fields, not 9)"
    )


@pytest.mark.parametrize(
    ("devices", "submit", "start", "end", "why"),
    [
        ("-1", "", "1", "2", "is negative"),
        ("", "", "1", "2", "is empty"),
        ("1e999", "", "1", "2", "is no number"),
        ("1e12", "", "1", "2", "more devices"),
        ("NaN", "", "1", "2", "is empty"),
        ("1", "", "2", "1", "is before the start"),
        ("1", "3", "2", "4", "is before the submission"),
        ("1", "", "1", "9" * 30, "is no number"),
        ("1", "", "1", "9" * 18, "146 years"),
        ("1", "", "1", "Infinity", "is no number"),
        ("1", "", "1_0", "20", "is no number"),
    ],
)
def test_numbers_that_no_job_has(tmp_path, devices, submit, start, end, why):
    table = f"id,n,asked,from,to\na,1,0,5,9\nb,{devices},{submit},{start},{end}\n"
    (pool,) = mapped(tmp_path, GENERIC + '[times]\nunit = "s"', table)
    assert [job.id for job in pool.jobs] == ["a"]
    assert why in pool.warnings[0]
    assert "line 3 is no job" in pool.warnings[0]


def test_times_before_1970_and_of_other_units(tmp_path):
    table = "id,n,from,to\na,1,-5000,5000\n"
    (pool,) = mapped(tmp_path, GENERIC + '[times]\nunit = "ms"', table)
    assert (pool.jobs[0].start_ns, pool.jobs[0].end_ns) == (-5 * 10**9, 5 * 10**9)
    (pool,) = mapped(tmp_path, GENERIC + '[times]\nunit = "s"\norigin = "2020-01-01 00:00:00Z"', table)
    assert pool.jobs[0].start_ns == (1577836800 - 5000) * 10**9


def test_a_format_and_a_zone(tmp_path):
    toml = GENERIC + '[times]\nunit = "%d.%m.%Y %H:%M"\nzone = "Europe/Berlin"'
    table = "id;n;from;to\na;1;24.10.2020 12:00;25.10.2020 02:30\n"
    (pool,) = mapped(tmp_path, toml, table)
    assert (pool.jobs[0].end_ns - pool.jobs[0].start_ns) / H == 14.5
    assert "1 local times are in an hour in which clocks were put forward or back" in pool.warnings[0]


def test_lengths_stand_in_for_times(tmp_path):
    toml = '[columns]\nid="id"\nsubmit="at"\nwait="wait"\nduration="took"\ndevices="n"\n[times]\nunit="s"\nlengths="h"'
    (pool,) = mapped(tmp_path, toml, "id,at,wait,took,n\na,3600,1,2.5,4\nb,3600,,,4\n")
    assert (pool.jobs[0].start_ns, pool.jobs[0].end_ns) == (2 * H, 2 * H + 5 * H // 2)
    assert (pool.jobs[1].start_ns, pool.jobs[1].end_ns) == (None, None)


def test_shares_of_a_device(tmp_path):
    toml = '[columns]\nstart="s"\nend="e"\npercent="gpu"\ninstances="n"\n[times]\nunit="s"'
    (pool,) = mapped(tmp_path, toml, "s,e,gpu,n\n0,3600,50,4\n0,3600,50,4\n")
    assert [job.milli for job in pool.jobs] == [2000, 2000]


def test_repeated_rows_and_headers_and_comments_in_any_order(tmp_path):
    rows = [f"{n},1,{n},{n + 10}" for n in range(5)]
    toml = GENERIC + '[times]\nunit = "s"'
    (pool,) = mapped(tmp_path, toml, "\n".join(["# facts", rows[0], "id,n,from,to", *rows, "id,n,from,to", ""]))
    assert sorted(job.id for job in pool.jobs) == ["0", "1", "2", "3", "4"]
    assert list(pool.warnings) == ["1 rows say the same as one before, and count once"]


def test_states_and_rows_to_skip(tmp_path):
    toml = GENERIC + '[times]\nunit="s"\n[states]\nCD="completed"\n[skip]\nhow=["TEST"]'
    (pool,) = mapped(tmp_path, toml, "id,n,from,to,how\na,1,0,1,CD\nb,1,0,1,TEST\nc,1,0,1,Odd\n")
    assert [job.state for job in pool.jobs] == ["completed", "odd"]
    assert list(pool.warnings) == ["1 rows are left out for their how, as the mapping mine says"]


def test_a_table_without_a_header(tmp_path):
    toml = 'header = ["id", "n", "from", "to"]\ndelimiter = "\\t"\n' + GENERIC + '[times]\nunit = "s"'
    (pool,) = mapped(tmp_path, toml, "a\t1\t0\t5\nb\t1\t0\t5\n", "jobs.tsv")
    assert [job.id for job in pool.jobs] == ["a", "b"]


def test_nodes_that_make_no_sense(tmp_path):
    rows = "n1,1,1,8,A\nn1,1,1,8,A\nn2,1,1,-8,A\nn3,1,1,1.5,A\nn4,1,1,x,A\nn5,1\n"
    (pool,) = load(written(tmp_path, "sn,cpu_milli,memory_mib,gpu,model\n" + rows))
    assert pool.devices == 8
    said = " ".join(pool.warnings[1:])
    assert "line 3 is a node named before, and counts once" in said
    assert "4 lines are no node, left out: 4 (gpu: '-8' is no number of devices), 5 (gpu: '1.5' is no number" in said
    assert "6 (gpu: 'x' is no number), …" in said


def test_totals_that_make_no_sense(tmp_path):
    head = "id,complete_gpu_time,cancel_gpu_time,fail_gpu_time\n"
    rows = "a,1,2,3\na,1,2,3\na,9,2,3\nb,-1,2,3\nc,x,2,3\n"
    (pool,) = load(written(tmp_path, head + rows))
    assert pool.totals_ns == {"completed": 10**9, "cancelled": 2 * 10**9, "failed": 3 * 10**9}
    assert "line 4 is another total of one name, left out (a)" in pool.warnings[1]
    assert "5 (b: complete_gpu_time: '-1' is no device-time)" in pool.warnings[2]
    assert slug(lambda: load(written(tmp_path, head + "a,,,\n"))) == "no-runs"
    assert slug(lambda: load(written(tmp_path, "sn,cpu_milli,memory_mib,gpu,model\nn,1,1,0,\n"))) == "no-runs"


# Text that is damaged


def test_quotes_line_breaks_bom_and_crlf(tmp_path):
    table = b'\xef\xbb\xbfid,n,from,to,how\r\n"a\r\nb",1,0,5,"x, ""y"""\r\nc,1,0,5,z\r\n'
    (pool,) = mapped(tmp_path, GENERIC + '[times]\nunit="s"', table)
    assert [(job.id, job.state) for job in pool.jobs] == [("ab", 'x, "y"'), ("c", "z")]
    assert list(pool.warnings) == []


def test_a_quote_that_never_closes_is_said_and_the_rest_is_read(tmp_path):
    rows = "".join(f"{n},1,0,5,{'x' * 100}\n" for n in range(3000))
    (pool,) = mapped(tmp_path, GENERIC + '[times]\nunit="s"', f'id,n,from,to,how\n"a,1,0,5,z\n{rows}')
    assert 1500 < len(pool.jobs) < 3000
    assert "field larger than field limit" in pool.warnings[0]
    left_out = int(pool.warnings[0].split()[1])
    assert left_out + len(pool.jobs) == 3001


def test_bad_bytes_nul_and_escapes(tmp_path):
    table = b"id,n,from,to,how\n\xff\x1b[31ma,1,0,5,\x00done\n"
    (pool,) = mapped(tmp_path, GENERIC + '[times]\nunit="s"', table)
    assert (pool.jobs[0].id, pool.jobs[0].state) == ("\N{REPLACEMENT CHARACTER}a", "done")
    assert "not all UTF-8" in pool.warnings[0]


def test_gzip_whole_and_torn(tmp_path):
    data = gzip.compress((SAMPLES / "table.csv").read_bytes())
    whole = written(tmp_path, data, "a.csv.gz")
    assert len(load(whole)[0].jobs) == 4
    assert Table().recognise(whole, files.head(whole)) is None
    rows = "".join(f"{n},1,{n * 7919 % 100003},{n * 7919 % 100003 + n},x\n" for n in range(40000))
    torn = gzip.compress(f"id,n,from,to,how\n{rows}".encode())
    (pool,) = mapped(tmp_path, GENERIC + '[times]\nunit="s"', torn[: len(torn) // 2], "b.csv.gz")
    assert 0 < len(pool.jobs) < 40000
    assert any("the file is torn after line" in warning for warning in pool.warnings)


def test_a_last_field_that_may_be_cut(tmp_path):
    (pool,) = mapped(tmp_path, GENERIC + '[times]\nunit="s"', "id,n,from,to\na,1,0,50")
    assert "the last line has no line end" in pool.warnings[0]


def test_lines_beyond_a_mebibyte_are_left_out(tmp_path):
    table = "id,n,from,to\na,1,0,50\n" + "x" * (files.MAX_LINE + 10) + "\nb,1,0,50\n"
    (pool,) = mapped(tmp_path, GENERIC + '[times]\nunit="s"', table)
    assert [job.id for job in pool.jobs] == ["a", "b"]
    assert "line 3 is too long and left out" in pool.warnings[0]


# Many rows at once


MOMENTS = {
    "s": lambda at: f"{at}",
    "ms": lambda at: f"{at}.0",
    "iso": lambda at: f"{START + timedelta(seconds=at)}",
    "iso, as T and Z": lambda at: f"{START + timedelta(seconds=at):%Y-%m-%dT%H:%M:%SZ}",
    "iso, with fractions": lambda at: f"{START + timedelta(seconds=at, milliseconds=at % 7)}.000"[:23],
    "%d.%m.%Y %H:%M:%S": lambda at: f"{START + timedelta(seconds=at):%d.%m.%Y %H:%M:%S}",
    "%d.%b.%Y %H:%M:%S": lambda at: f"{START + timedelta(seconds=at):%d.%b.%Y %H:%M:%S}",
}
START = datetime(2026, 3, 28, 20)  # noqa: DTZ001 - the table gives the zone
ODD = ["", "NULL", "x", "-5", "1e3", "9" * 30, "4611686018427387904", "2026-03-29 02:30:00", "2026-03-29T03:30:00",
       "2026-03-29 03:30:00", "2026-02-30 00:00:00", "2026-03-29 01:00:00+02:00", "2026-03-29 01:00:00.5"]  # fmt: skip


def odd_table(chance, unit, n_odd):
    rows = ["id;how;n;asked;from;to;took;waited;rest"]
    for n in range(300):
        asked, wait, took = 60 * n, chance.choice([0, 0, 9]), chance.choice([0, 3600, 9000])
        row = [f"j{n}", chance.choice(["ok", "Bad ", "skip"]), chance.choice("0148"),
               *map(MOMENTS[unit], (asked, asked + wait, asked + wait + took)),
               chance.choice(["", f"{took}", "60.0"]), chance.choice(["", f"{wait}"]), "z"]  # fmt: skip
        for _ in range(n_odd if chance.random() < 0.1 else 0):
            row[chance.randrange(8)] = chance.choice(ODD)
        if n_odd and chance.random() < 0.05:
            row[8] = chance.choice(['"a\nb"', "z;", "z;z", 'a"', "\xff", "\x00", "\r", '"' + "l\n" * 120 + '"'])
        rows.append(chance.choice(rows) if n_odd and chance.random() < 0.05 else ";".join(row))
        rows += chance.choices([[], [""], ["# note"]], [9, n_odd, n_odd])[0]
    return "\n".join([*rows, ""]).encode("latin-1")


@pytest.mark.parametrize("unit", MOMENTS)
@pytest.mark.parametrize("zone", ["", 'zone = "Europe/Berlin"', 'zone = "+05:30"'])
@pytest.mark.parametrize("n_odd", [0, 1, 3])
@pytest.mark.parametrize("begin", [START, START.replace(month=10, day=24)])
def test_rows_read_together_say_what_each_says_alone(tmp_path, monkeypatch, unit, zone, n_odd, begin):
    monkeypatch.setitem(globals(), "START", begin)
    toml = GENERIC + 'duration = "took"\nwait = "waited"\n[skip]\nhow = ["skip"]\n'
    toml += f'[times]\nunit = "{unit.partition(",")[0]}"\n{zone}'
    table = odd_table(random.Random(f"{unit}{zone}{n_odd}"), unit, n_odd)
    (together,) = mapped(tmp_path, toml, table)
    monkeypatch.setattr(table_records, "_BLOCK", 200)
    (apart,) = mapped(tmp_path, toml, table)
    monkeypatch.setattr(table_records, "_BLOCK", 1)
    monkeypatch.setattr(table_jobs, "_MOST_ODD", -1)
    (alone,) = mapped(tmp_path, toml, table)
    assert len(alone.jobs) > 100
    assert [*together.jobs] == [*apart.jobs] == [*alone.jobs]
    assert together.warnings == apart.warnings == alone.warnings


def test_no_time_in_the_first_row_is_none_and_not_1970(tmp_path):
    pool = helios(tmp_path, "1,u,vc,2,COMPLETED,,2020-06-10 08:00:00,2020-06-10 09:00:00,3600")
    assert pool.jobs[0].submit_ns is None


def test_a_length_that_leads_beyond_all_times_is_damage(tmp_path):
    table = f"id,n,from,took\na,1,0,5\nb,1,{1 << 62},{1 << 62}\n"
    toml = GENERIC.replace('end = "to"', 'duration = "took"') + '[times]\nunit = "ns"\nlengths = "ns"'
    (pool,) = mapped(tmp_path, toml, table)
    assert [job.id for job in pool.jobs] == ["a"]
    assert "line 3 is no job, left out (end would be more than 146 years from 1970)" in pool.warnings[0]


def test_the_mapping_for_alibabas_instances_that_the_page_gives(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "sources" / "table.md").read_text()
    toml = next(part[4:] for part in page.split("```") if part.startswith("toml") and "plan_gpu" in part)
    table = (
        "job_name,task_name,worker_name,status,start_time,end_time,plan_gpu\n"
        "j1,worker,w1,Terminated,100.0,3700.0,50.0\nj1,worker,w2,Failed,1900.0,3700.0,50.0\n"
        "j2,worker,w3,Waiting,,,200.0\n"
    )
    (pool,) = mapped(tmp_path, toml, table)
    assert hours(account(pool)) == {"terminated": 0.5, "failed": 0.25}


def test_states_of_any_language(tmp_path):
    toml = GENERIC + '[times]\nunit="s"\n[states]\n"SCHLIEßT"="completing"'
    (pool,) = mapped(tmp_path, toml, "id,n,from,to,how\na,1.0,0,1,Schließt\n")
    assert [(job.state, job.milli) for job in pool.jobs] == [("completing", 1000)]


def test_a_decimal_comma_is_named(tmp_path):
    (pool,) = mapped(tmp_path, GENERIC + '[times]\nunit="s"', "id;n;from;to\na;1;0;5\nb;1,5;0;5\n")
    assert "(n: '1,5' is no number: write its comma as a point)" in pool.warnings[0]


# What cannot be read at all


def test_a_table_of_no_ready_mapping_is_offered_a_beginning(tmp_path):
    table = "JobID,User,GPUs,Status,Queued At,Start Time,Finished\n1,a,4,ok,5,6,7\n"
    path = written(tmp_path, table)
    reason = Table().recognise(path, table.encode())
    line = reason[reason.index("columns =") : reason.index("}") + 1]
    assert line == (
        'columns = {id = "JobID", submit = "Queued At", start = "Start Time", end = "Finished", devices = "GPUs", '
        'state = "Status", user = "User"}'
    )
    (pool,) = mapped(tmp_path, f'{line}\ntimes = {{unit = "s"}}', table)
    assert (pool.jobs[0].milli, pool.jobs[0].end_ns) == (4000, 7 * 10**9)
    with pytest.raises(SourceError, match=r"begin one with the line columns = "):
        load(path)
    assert "begin one" not in Table().recognise(path, b"epoch,step,train_loss,val_loss\n1,2,3,4\n")


def test_the_column_that_a_table_lacks_is_named_with_one_like_it(tmp_path):
    with pytest.raises(SourceError, match=r"it has no column 'from', which the mapping mine names; it has 'form'"):
        mapped(tmp_path, GENERIC, "id,n,form,to\na,1,0,1\n")
    with pytest.raises(SourceError, match=r"no line near its beginning names the columns"):
        mapped(tmp_path, GENERIC, "a,b\n1,2\n")


def test_a_name_that_needs_quotes_is_said(tmp_path):
    with pytest.raises(ArgumentError, match="stands in quotes"):
        read(written(tmp_path, '[states]\nläuft = "running"', "mine.toml"))


def slug(call):
    with pytest.raises((SourceError, ArgumentError)) as caught:
        call()
    assert str(caught.value).startswith("Cannot ")
    return caught.value.slug


def test_tables_that_yield_nothing(tmp_path):
    assert slug(lambda: load(written(tmp_path, HEADER + "\n"))) == "no-runs"
    assert slug(lambda: load(written(tmp_path, "a,b\n1,2\n"))) == "unfit-mapping"
    assert slug(lambda: mapped(tmp_path, GENERIC, "id,n,from\na,1,0\n")) == "unfit-mapping"
    assert slug(lambda: mapped(tmp_path, GENERIC, "id,id,n,from,to\na,1,1,0,5\n")) == "unfit-mapping"


@pytest.mark.parametrize(
    ("toml", "says"),
    [
        ("x = ", "it is no TOML"),
        ('[columns]\nsubmited = "a"', "did you mean submit?"),
        ('kind = "job"', "kind is 'job'"),
        ('[columns]\nid = "a"', "columns.devices is missing"),
        ('[columns]\ndevices = "a"', "columns.start is missing"),
        ('[columns]\ndevices = "a"\nstart = "b"', "columns.end is missing"),
        ('[columns]\ndevices = 3\nstart = "b"', "columns.devices is 3"),
        (GENERIC + '[times]\nunit = "weeks"', "times.unit is 'weeks'"),
        (GENERIC + '[times]\nzone = "Mars/Olympus"', "there is no zone"),
        (GENERIC + '[times]\nzone = "../../etc/passwd"', "there is no zone"),
        (GENERIC + '[times]\norigin = "soon"', "is no time"),
        ("columns = 3", "columns is no table"),
        ('delimiter = "ab"\n' + GENERIC, "delimiter is 'ab'"),
        ('kind = "totals"', "totals names no column"),
    ],
)
def test_mappings_that_cannot_be_used(tmp_path, toml, says):
    path = written(tmp_path, toml, "mine.toml")
    with pytest.raises(ArgumentError, match="Cannot use the mapping") as caught:
        read(path)
    assert says in str(caught.value)
    assert caught.value.slug == "bad-table-mapping"


def test_no_mapping_at_the_path(tmp_path):
    assert slug(lambda: read(tmp_path / "none.toml")) == "bad-table-mapping"
    assert slug(lambda: read(tmp_path)) == "bad-table-mapping"


def test_prose_and_folders_are_no_tables(tmp_path):
    assert Table().recognise(tmp_path / "a", b"The gpu_num, state and submit_time of each job, by hand.\n") is not None
