"""The two files of a native log: what counts, what is reported, what is never done."""

import json
import os

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.events import Notice, Unknown
from headway.record.steplog import field_names, header
from headway.sources.columns import Columns
from headway.sources.files import MAX_LINE
from headway.sources.native.jsonl import EventFile
from headway.sources.native.npy import StepFile

OPEN = b'{"kind":"open","run":"r","attempt":"a0","wall_ns":1700000000000000000,"mono_ns":0}\n'
PHASES = ("source", "transform", "transfer")


def table(n, phases=PHASES, n_room=None):
    rows = np.zeros(n_room or n, [(name, "<i8") for name in field_names(phases)])
    index = np.arange(n)
    rows["step"][:n], rows["start_ns"][:n], rows["end_ns"][:n] = index, index * 10, index * 10 + 9
    rows[phases[0]][:n], rows["seq"][:n] = 3, index + 1
    return rows


def save(path, rows, n_named=None):
    names = [name for name in rows.dtype.names if name not in {"step", "start_ns", "end_ns", "seq"}]
    path.write_bytes(header(names, len(rows) if n_named is None else n_named) + rows.tobytes())
    return path


def read_rows(path, *, through=True):
    columns = Columns()
    file = StepFile(path, "steps.npy", columns)
    file.poll(through=through)
    return columns.rows(), file.warnings(final=True)


def read_events(tmp_path, data):
    path = tmp_path / "events.jsonl"
    path.write_bytes(data)
    columns = Columns()
    file = EventFile(path, "events.jsonl", columns)
    file.poll()
    file.finish()
    return file, columns.rows(), file.warnings(final=True)


@pytest.mark.parametrize("n_named", [0, 3, 8])
def test_rows_beyond_the_whole_ones_are_only_unwritten(tmp_path, n_named):
    rows, warnings = read_rows(save(tmp_path / "steps.npy", table(5, n_room=8), n_named))
    assert rows.step.tolist() == [0, 1, 2, 3, 4]
    assert {name: wait.tolist() for name, wait in rows.waits.items()} == {
        "source": [3] * 5,
        "transform": [0] * 5,
        "transfer": [0] * 5,
    }
    assert warnings == []


def test_a_torn_row_in_the_middle_is_left_out_and_named(tmp_path):
    rows = table(42)
    rows["seq"][41 - 1] = 0
    found, warnings = read_rows(save(tmp_path / "steps.npy", rows))
    assert found.step.tolist() == [*range(40), 41]
    assert warnings == ["steps.npy: record 40 is torn (sequence 0); 41 whole records kept"]


def test_the_row_that_was_being_written_is_named(tmp_path):
    rows = table(41, n_room=64)
    rows["step"][41] = 41
    _, warnings = read_rows(save(tmp_path / "steps.npy", rows))
    assert warnings == ["steps.npy: record 41 is torn (sequence 0); 41 whole records kept"]


def test_a_hole_longer_than_a_block_is_read_past(tmp_path):
    rows = table(200_000)
    rows[10:150_000] = 0
    found, warnings = read_rows(save(tmp_path / "steps.npy", rows))
    assert found.step.tolist() == [*range(10), *range(150_000, 200_000)]
    assert len(warnings) == 1
    assert "149990 records are torn" in warnings[0]


def test_a_row_that_cannot_be_is_left_out(tmp_path):
    rows = table(5)
    rows["end_ns"][1] = rows["start_ns"][1] - 1
    rows["source"][2] = -1
    rows["end_ns"][3] = 2**62
    found, warnings = read_rows(save(tmp_path / "steps.npy", rows))
    assert found.step.tolist() == [0, 4]
    assert "3 records are left out: it ends before it starts" in warnings[0]


FOREIGN = {
    "numbers": np.arange(9),
    "big endian": np.zeros(3, [(name, ">i8") for name in field_names(PHASES)]),
    "floats": np.zeros(3, [(name, "<f8") for name in field_names(PHASES)]),
    "without seq": np.zeros(3, [("step", "<i8"), ("start_ns", "<i8"), ("end_ns", "<i8")]),
    "table": np.zeros((3, 3), [(name, "<i8") for name in field_names(PHASES)]),
    "objects": np.array([{"a": 1}, None], dtype=object),
    "nothing": np.zeros(0, "<i8"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_array_gives_a_warning_and_no_row(tmp_path, name):
    path = tmp_path / "steps.npy"
    np.save(path, FOREIGN[name], allow_pickle=True)
    rows, warnings = read_rows(path)
    assert len(rows) == 0
    assert len(warnings) == 1
    assert warnings[0].startswith("steps.npy: it cannot be read")


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("executed",))


def test_nothing_in_a_file_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "steps.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    read_rows(tmp_path / "steps.npy")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("data", [b"", b"\x93NUMPY", b"\x93NUMPY\x09\x00zz", b"PK\x03\x04", b"\0" * 5000])
def test_no_numpy_file_gives_a_warning(tmp_path, data):
    path = tmp_path / "steps.npy"
    path.write_bytes(data)
    rows, warnings = read_rows(path)
    assert (len(rows), len(warnings)) == (0, 1)


def test_files_of_numpy_itself_are_read(tmp_path):
    for version in ((1, 0), (2, 0)):
        with (tmp_path / "steps.npy").open("wb") as file:
            np.lib.format.write_array(file, table(3), version=version)
        found, warnings = read_rows(tmp_path / "steps.npy")
        assert found.step.tolist() == [0, 1, 2]
        assert warnings == []


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 600), st.integers(1, 255)), min_size=1, max_size=5))
def test_flipped_bytes_in_the_header_never_raise(tmp_path, flips):
    data = bytearray(save(tmp_path / "steps.npy", table(4)).read_bytes())
    for at, mask in flips:
        data[at] ^= mask
    (tmp_path / "steps.npy").write_bytes(data)
    rows, _ = read_rows(tmp_path / "steps.npy")
    assert len(rows) <= 4


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_flipped_bytes_in_events_never_raise(tmp_path, data):
    text = bytearray(OPEN + b'{"kind":"step","step":1,"start":3,"end":9,"phases":{"source":1}}\n' * 2)
    for at, mask in data.draw(st.lists(st.tuples(st.integers(0, len(text) - 1), st.integers(1, 255)), max_size=5)):
        text[at] ^= mask
    _, rows, _ = read_events(tmp_path, bytes(text))
    assert len(rows) <= 2


def test_what_is_no_event_is_named_by_its_line(tmp_path):
    bad = b'{"kind":"saved","step":"x","at":1}\n[1]\nnoise\n{"kind":"saved"}\n'
    file, _, warnings = read_events(tmp_path, OPEN + bad + b'{"kind":"saved","step":1,"at":9}\n')
    assert [event.step for event in file.events] == [1]
    assert len(warnings) == 1
    assert warnings[0].startswith("events.jsonl: 4 lines are no event, left out: 2 (")
    assert ", 3 (" in warnings[0]
    assert warnings[0].endswith(", …")


def test_a_torn_last_line_is_dropped_and_reported(tmp_path):
    file, _, warnings = read_events(tmp_path, OPEN + b'{"kind":"saved","step":1')
    assert file.events == []
    assert warnings == ["events.jsonl: line 2 is torn: the last line, dropped (Input data was truncated)"]


def test_a_whole_last_line_counts_without_its_newline(tmp_path):
    file, _, warnings = read_events(tmp_path, OPEN + b'{"kind":"saved","step":1,"at":9}')
    assert (len(file.events), warnings) == (1, [])


@pytest.mark.parametrize("lead", [b"\xef\xbb\xbf", b"\n", b"\r\n \n"])
def test_marks_and_blank_lines_are_passed_over(tmp_path, lead):
    data = lead + OPEN.replace(b"\n", b"\r\n") + b"\n\n" + b'{"kind":"step","step":1,"start":3,"end":9}\r\n'
    file, rows, warnings = read_events(tmp_path, data)
    assert (len(file.opens), len(rows), warnings) == (1, 1, [])


def test_unknown_kinds_are_kept(tmp_path):
    file, _, warnings = read_events(tmp_path, OPEN + b'{"kind":"new","x":[1]}\n')
    assert file.events == [Unknown({"kind": "new", "x": [1]})]
    assert warnings == []


def test_a_hole_of_zero_bytes_is_reported_and_what_follows_counts(tmp_path):
    file, _, warnings = read_events(tmp_path, OPEN + b"\0" * 99 + b'{"kind":"saved","step":1,"at":9}\n' + b"\0" * 7)
    assert len(file.events) == 1
    assert "2 lines are a hole of zero bytes" in warnings[0]


def test_a_huge_line_is_passed_over(tmp_path):
    huge = b'{"kind":"notice","at":1,"name":"' + b"x" * (3 * MAX_LINE) + b'"}\n'
    file, _, warnings = read_events(tmp_path, OPEN + huge + b'{"kind":"notice","at":2,"name":"n"}\n')
    assert file.events == [Notice(name="n", at=2)]
    assert warnings == [f"events.jsonl: line 2 is longer than {MAX_LINE} bytes, left out"]


def test_many_lines_across_pieces_are_all_read(tmp_path):
    n = 30_000
    steps = b"".join(b'{"kind":"step","step":%d,"start":%d,"end":%d}\n' % (i, i, i + 1) for i in range(n))
    for bad in (b"", b"noise\n"):
        _, rows, _ = read_events(tmp_path, OPEN + bad + steps)
        assert rows.step.tolist() == list(range(n))


@pytest.mark.parametrize("number", [2**63, 10**30, -(2**62)])
def test_numbers_out_of_range_are_left_out(tmp_path, number):
    lines = [{"kind": "step", "step": 1, "start": 0, "end": number}, {"kind": "saved", "step": number, "at": 1}]
    lines += [
        {"kind": "step", "step": 2, "start": 0, "end": 5},
        {"kind": "clock", "wall_ns": number, "mono_ns": number},
    ]
    file, rows, warnings = read_events(tmp_path, OPEN + b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    assert rows.step.tolist() == [2]
    assert file.events == []
    assert "3 lines are impossible, left out" in warnings[0]


def test_deep_nesting_is_no_event(tmp_path):
    file, _, warnings = read_events(tmp_path, OPEN + b'{"kind":"x","a":' + b"[" * 100_000 + b"\n")
    assert (file.events, len(warnings)) == ([], 1)


def test_names_are_cleaned_and_spans_booked_by_category(tmp_path):
    lines = [
        {"kind": "span", "category": "sdc\x1b[31m", "start": 0, "end": 1},
        {"kind": "begin", "id": 1, "category": "productive", "at": 0},
        {"kind": "notice", "name": "\x1b]0;title\x07pre\u202eemption", "at": 0},
    ]
    file, _, _ = read_events(tmp_path, OPEN + "".join(json.dumps(line) + "\n" for line in lines).encode())
    assert [event.category for event in file.events[:2]] == ["custom:sdc", "custom:productive"]
    assert file.events[2].name == "preemption"
