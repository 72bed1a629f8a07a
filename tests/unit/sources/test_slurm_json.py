"""Lists of ``--json`` that are damaged: what is whole is read, in time that grows with the text."""

import json

import pytest

from headway.sources import again, files
from headway.sources.asked import Asked
from headway.sources.slurm import document
from headway.sources.slurm.source import Slurm


def job(number, **more):
    return {
        "job_id": number,
        "job_state": ["RUNNING"],
        "tres_alloc_str": "gres/gpu=8",
        "start_time": 1709251200,
        **more,
    }


def ids(path, text):
    path.write_text(text)
    assert Slurm().recognise(path, files.head(path)) is None
    (found,) = Slurm().load(path, Asked())
    return [one.id for one in found.jobs], found.warnings


@pytest.mark.parametrize("inside", ['{"job_id":[', '{"job_id":[{},', '{"job_id":[{"job_id":1},'])
def test_records_inside_each_other(tmp_path, monkeypatch, inside):
    monkeypatch.setattr(again, "_FREE", 1000)
    whole = [json.dumps(job(number)) for number in (7, 8)]
    read, said = ids(tmp_path / "squeue", '{"jobs": [' + ",".join([whole[0], inside * 5000 + "@", whole[1]]) + "]}")
    assert read == ["7", "8"]
    n_broken = [int(line.split()[1]) for line in said if "records are no record" in line]
    assert 0 < n_broken[0] < 1000
    assert [line for line in said if "left out with all that begins inside it" in line]


@pytest.mark.parametrize("broken", ['{"job_id": 9, @', '{"job_id": 9, "name": "a', '{"job_id": ' + "9" * 5000 + "}"])
def test_a_record_that_is_broken_in_a_long_list(tmp_path, monkeypatch, broken):
    monkeypatch.setattr(document, "_PIECE", 64)
    monkeypatch.setattr(document, "_MOST", 512)
    parts = [json.dumps(job(number)) for number in range(1, 40)]
    parts[20] = broken
    read, said = ids(tmp_path / "squeue", '{"jobs": [' + ",".join(parts) + "]}")
    assert [number for number in range(1, 40) if str(number) not in read] in ([21], [21, 22])
    assert [line for line in said if "no record, left out" in line]


def test_a_record_that_is_too_long_costs_only_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(document, "_PIECE", 64)
    monkeypatch.setattr(document, "_MOST", 512)
    read, said = ids(tmp_path / "squeue", json.dumps({"jobs": [job(7), job(8, name="a" * 5000), job(9)]}))
    assert read == ["7", "9"]
    assert [line for line in said if "no record, left out" in line]


def test_many_broken_records_after_one_that_is_not_closed(tmp_path):
    parts = [json.dumps(job(number)) for number in range(1, 100)]
    parts[0] = parts[0][:-1] + ', "x": ['
    parts[1::2] = [part[:-1] + "]" for part in parts[1::2]]
    read, _ = ids(tmp_path / "squeue", '{"jobs": [' + ",".join(parts) + "]}")
    assert read == [str(number) for number in range(3, 100, 2)]
