"""Tables of squeue and sinfo whose columns have a width: cells that touch, cells that are cut, names that are cut."""

import pytest

from headway.errors import SourceError
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.slurm import columns as slurm_columns
from headway.sources.slurm.source import Slurm

H = 3600


def pool(path, text):
    """Return the pool of a file with this text in it."""
    path.write_text(text)
    assert Slurm().recognise(path, files.head(path)) is None
    (found,) = Slurm().load(path, Asked())
    return found


def said(found, words):
    return [line for line in found.warnings if words in line]


def table(*rows, widths):
    """Return rows as -O prints them: each cell as wide as its column."""
    return "".join(
        "".join(f"{cell:<{width}.{width}}" for cell, width in zip(row, widths, strict=True)) + "\n" for row in rows
    )


QUEUE = ("JOBID", "STATE", "SUBMIT_TIME", "START_TIME", "TIME", "TRES_ALLOC")


def queued(ident, state="RUNNING", start="2024-03-05T02:00:00", time="1:00:00", tres="node=1,gres/gpu=2"):
    return ident, state, "2024-03-05T01:00:00", start, time, tres


@pytest.mark.parametrize("width", [20, 19, 40])
@pytest.mark.parametrize("few", [1, 1 << 30])
def test_cells_as_wide_as_their_column(tmp_path, monkeypatch, width, few):
    monkeypatch.setattr(slurm_columns, "_FEW", few)
    rows = [queued("7"), queued("8", tres="node=1"), queued("9", "PENDING", "N/A", "0:00", "gres/gpu=4,node=1,cpu=8")]
    found = pool(tmp_path / "squeue", table(QUEUE, *rows, widths=[width] * 6))
    assert {job.id: job.milli for job in found.jobs} == {"7": 2000, "8": 0} | ({"9": 4000} if width == 40 else {})
    assert [job.start_ns for job in found.jobs][:1] == [1709604000 * 10**9]
    assert len(said(found, "line 4 is cut to the width of a column, left out")) == (width < 40)


def test_names_of_columns_that_touch(tmp_path):
    text = (
        "    JOBID   PARTITSUBMIT_TIME         START_TIME          SCHEDNODESQOS         TRES_ALLOC             TIME\n"
        "    7       gpu   2024-03-05T01:00:00 N/A                 (null)    high        cpu=2,gres/gpu=1       0:00\n"
        "    8       cpu,gp2024-03-05T01:00:00 2024-03-05T02:00:00 (null)    high        cpu=2,gres/gpu=4       2:00\n"
    )
    found = pool(tmp_path / "squeue", text)
    assert [(job.id, job.milli, job.start_ns is None) for job in found.jobs] == [("7", 1000, True), ("8", 4000, False)]
    assert said(found, "1 of 2 jobs had 4 devices")


NODES = ("NODELIST", "STATE", "GRES", "GRES_USED")
PLAIN = ("a1", "mixed", "gpu:h100:8(S:0-1)", "gpu:h100:4(IDX:0-3)")


@pytest.mark.parametrize(
    "row",
    [
        ("a2", "mixed", "gpu:a_long_name_of_it:8", "gpu:0"), ("a2", "mixed", "gpu:h100:8(S:0-1),gpu:x:8", "gpu:0"),
        ("a2", "mixed", "gpu:8", "gpu:a_long_name_of_it:8"), ("a-name-longer-than-twenty", "mixed", "gpu:8", "gpu:0"),
        ("a2", "mixed", "gpu:name_of_nineteen:8", "gpu:0"),
    ],
)  # fmt: skip
def test_a_cut_cell_leaves_the_number_of_devices_unknown(tmp_path, row):
    found = pool(tmp_path / "sinfo", table(NODES, PLAIN, row, widths=[20] * 4))
    assert found.devices is None
    assert said(found, "line 3 is cut to the width of a column, so that the number of devices is not known")
    assert not said(found, "no column tells")


@pytest.mark.parametrize("widths", [(20,) * 4, (12, 9, 40, 40), (12, 9, 18, 19)])
def test_a_list_that_is_cut_after_its_number_tells_it(tmp_path, widths):
    rows = [PLAIN, ("a2", "idle", "gpu:h100:8(S:0-1,4)", "gpu:h100:7(IDX:0,2-7)"), ("a3", "down", "(null)", "")]
    found = pool(tmp_path / "sinfo", table(NODES, *rows, widths=widths))
    assert found.devices == 16
    assert said(found, "jobs had 11 of 16 devices")


def test_a_cell_that_is_longer_than_its_column_shifts_only_its_record(tmp_path):
    rows = table(("JOBID", "NODELIST", "TIME", "TRES_ALLOC"), ("7", "n1", "1:00", "gres/gpu=1"), widths=[8, 8, 8, 30])
    rows += table(("8", "n[1-4]", "1:00", "gres/gpu=4"), widths=[8, 9, 8, 30])
    rows += table(("9", "n[10-44]", "1:00", "gres/gpu=7"), widths=[8, 9, 8, 30])
    found = pool(tmp_path / "squeue", rows)
    assert said(found, "3 of 3 jobs had 12 devices")
    assert not said(found, "left out")


@pytest.mark.parametrize("few", [1, 1 << 30])
def test_columns_to_the_right_are_not_split_by_place(tmp_path, monkeypatch, few):
    monkeypatch.setattr(slurm_columns, "_FEW", few)
    names = ("JOBID", "USER", "ST", "TIME", "NODES", "TRES_PER_N")
    rows = [(str(1000 + n), "ana", "R", "1-00:00:00", "2", "gres/gpu:4") for n in range(40)]
    text = "".join(" ".join(f"{cell:>{10}.10}" for cell in row) + "\n" for row in [names, *rows])
    found = pool(tmp_path / "squeue", text)
    assert found.totals_ns == {"running": 40 * 8 * 24 * H * 10**9}


@pytest.mark.parametrize(("cell", "left"), [("gres/gpu:4", True), ("gres/gpu:l", False), ("gres/gpu:", False)])
def test_a_name_that_is_cut_tells_how_wide_its_column_is(tmp_path, cell, left):
    text = " JOBID ST    TIME NODES TRES_PER_N NODELIST(R\n"
    text += f"     7  R 1:00:00     2 {cell:>10} n[1-2]\n     8  R 1:00:00     1        N/A n3\n"
    found = pool(tmp_path / "squeue", text)
    assert found.totals_ns == ({"running": 8 * H * 10**9} if left else {"running": 0})
    assert len(said(found, "line 2 is cut")) == (cell == "gres/gpu:l")


def test_names_of_hosts_that_are_cut(tmp_path):
    text = "HOSTNAME STATE GRES\na1 idle gpu:2\nHOSTNAME STATE GRES\na2 idle gpu:2\n"
    found = pool(tmp_path / "sinfo", text)
    assert found.devices == 4
    assert not said(found, "left out")


@pytest.mark.parametrize("few", [1, 1 << 30])
@pytest.mark.parametrize("more", ["", " COMMENT"])
def test_a_blank_in_the_name_of_the_nodes(tmp_path, monkeypatch, more, few):
    monkeypatch.setattr(slurm_columns, "_FEW", few)
    cell = " (null)" * bool(more)
    text = (
        f"   JOBID     USER           NAME  ST START_TIME             TIME NODES TRES_PER_N NODELIST (REASON){more}\n"
        f"       7      ana         job.sh   R 2024-03-05T01:00       1:08     1        N/A cn-16 (None){cell}\n"
        f"       8      ana         job.sh   R 2024-03-05T01:00    1:00:00     1 gres/gpu:4 cn-17 (None){cell}\n"
        f"       9      ana         job.sh  PD N/A                    0:00     2 gres/gpu:4  (Priority){cell}\n"
    )
    found = pool(tmp_path / "squeue", text)
    assert [(job.id, job.milli, job.start_ns) for job in found.jobs] == [
        ("7", 0, 1709600400 * 10**9), ("8", 4000, 1709600400 * 10**9), ("9", 8000, None),
    ]  # fmt: skip
    with pytest.raises(SourceError, match=r"\[no-columns\]"):
        pool(tmp_path / "sq", "JOBID ST TIME_LEFT NODES NODELIST (REASON)\n7 R 41:31 1 kn141 (None)\n")


@pytest.mark.parametrize("line", ["JOB USER STATE", "NAME STATE NODES(A/B)", "HOST JOBS STATE", "STATE NODE"])
def test_headers_of_others(tmp_path, line):
    (tmp_path / "other").write_text(f"{line}\n7 8 9\n")
    assert Slurm().recognise(tmp_path / "other", files.head(tmp_path / "other"))
