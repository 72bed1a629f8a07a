"""What holds for every source: damage gives a clear error or a warning, and never another exception."""

import json
import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.errors import HeadwayError
from headway.ledger.account import account
from headway.ledger.history import Served
from headway.sources import SOURCES, load

NATIVE = [
    {"kind": "open", "run": "r", "attempt": "a0", "rank": 0, "wall_ns": 1700000000000000000, "mono_ns": 0},
    {"kind": "span", "category": "evaluation", "start": 2000, "end": 3000},
    *({"kind": "step", "step": n, "start": 1000 * n, "end": 1000 * n + 900, "phases": {"source": 3}} for n in range(9)),
    {"kind": "saved", "step": 8, "at": 9000},
    {"kind": "close", "at": 9900},
]
MLPERF = [
    {"key": key, "time_ms": 1700000000000 + 1000 * n, "metadata": {"status": "success"}}
    for n, key in enumerate(
        [
            "init_start",
            "run_start",
            "block_start",
            "block_stop",
            "eval_start",
            "eval_stop",
            "block_start",
            "block_stop",
            "run_stop",
        ]
    )
]
GOOD = {
    "native": "".join(json.dumps(event) + "\n" for event in NATIVE).encode(),
    "mlperf": "".join(f":::MLLOG {json.dumps(record)}\n" for record in MLPERF).encode(),
}
SAMPLES = Path(__file__).parent / "samples"
for one in SOURCES:  # those whose good log is a file: the first by name of those called as the source is
    if files := sorted(SAMPLES.glob(f"{one.name}*")):
        GOOD.setdefault(one.name, files[0].read_bytes())
DOCS = Path(__file__).parents[2] / "docs"
ORDERED = {source.name for source in SOURCES} - {"native", "mlperf", "googlegoodput"}
"""Sources whose lines have an order of their own, or are one document: shuffled they are another log, or none."""


@pytest.fixture(params=SOURCES, ids=lambda source: source.name)
def source(request):
    return request.param


def read(path, data):
    """Return what load and account make of these bytes: seconds and steps, or an error's slug."""
    path.write_bytes(data)
    try:
        found = load(path)
        return [
            (len(one.ok), int(one.ok.sum())) if isinstance(one, Served) else (account(one).seconds, account(one).steps)
            for one in found
        ]
    except HeadwayError as error:
        return error.slug if str(error).startswith("Cannot ") else f"no good message: {error}"


def said(path, data):
    """Return the same as `read`, and all warnings."""
    found = read(path, data)
    if isinstance(found, str):
        return found, [found]
    every = []
    for one in load(path):
        every += [*one.warnings, *(text for process in getattr(one, "processes", ()) for text in process.warnings)]
    return found, every


def test_every_source_has_a_good_log_here_and_a_line_in_the_docs(source):
    assert f"| `{source.name}` |" in (DOCS / "sources.md").read_text()
    assert source.name in GOOD


def test_the_docs_list_no_other_source():
    text = (DOCS / "sources.md").read_text()
    listed = [line.split("`")[1] for line in text.split("\n## ")[0].splitlines() if line.startswith("| `")]
    assert listed == [source.name for source in SOURCES]


def test_a_page_of_its_own_says_how_the_file_is_made(source):
    page = DOCS / "sources" / f"{source.name}.md"
    if source.name not in {"native", "mlperf"}:
        assert page.read_text().startswith(f"# {source.name}\n")


def test_a_good_log_is_read_by_its_own_source_only(source, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(GOOD[source.name])
    head = GOOD[source.name][: 1 << 16]
    assert [other.name for other in SOURCES if other.recognise(path, head) is None] == [source.name]
    found = load(path)
    assert found
    for one in found:
        assert one.source == source.name
        assert one.path == str(path)


@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*")), ids=lambda path: path.name)
def test_every_sample_is_read_by_one_source(sample, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(sample.read_bytes())
    head = sample.read_bytes()[: 1 << 16]
    (found,) = [one.name for one in SOURCES if one.recognise(path, head) is None]
    assert sample.name.startswith(found)


def test_prose_is_nobodys(tmp_path):
    text = ("Steps were logged: step 5, loss 2.3. " * 40 + "\n") * 50
    assert read(tmp_path / "log", text.encode()) == "unknown-source"


def test_devices_count_as_given(source, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(GOOD[source.name])
    for one in load(path, devices=7):
        assert all(process.open.devices == 7 for process in getattr(one, "processes", ()))


def test_cut_anywhere(source, tmp_path):
    data = GOOD[source.name]
    for n in range(0, len(data), max(3, len(data) // 400)):
        read(tmp_path / "log", data[:n])


def test_shuffled_and_repeated_lines_say_the_same(source, tmp_path):
    lines = GOOD[source.name].splitlines(keepends=True)
    expected = read(tmp_path / "log", b"".join(lines))
    for seed in range(10):
        chance = random.Random(seed)
        mixed = lines + chance.choices(lines[1:] or lines, k=4)
        chance.shuffle(mixed)
        found = read(tmp_path / "log", b"".join(mixed))
        assert source.name in ORDERED or found == expected


@pytest.mark.parametrize(
    "number",
    ["1e999", "-1", "1" * 400, "1" * 5000, "NaN", "null", '"x"', "9223372036854775807", "[[]]", "-62135596800"],
)
def test_gigantic_and_odd_numbers(source, tmp_path, number):
    text = GOOD[source.name].decode("latin-1")
    places = [found.span() for found in re.finditer(r"-?\d+(?:\.\d+)?", text)]
    for begin, end in random.Random(1).sample(places, min(len(places), 40)):
        read(tmp_path / "log", (text[:begin] + number + text[end:]).encode("latin-1"))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "cp037"])
def test_other_encodings(source, tmp_path, encoding):
    read(tmp_path / "log", GOOD[source.name].decode("latin-1").encode(encoding, "replace"))


@pytest.mark.parametrize("ending", [b"\r\n", b"\n\n"])
def test_other_line_ends(source, tmp_path, ending):
    read(tmp_path / "log", GOOD[source.name].replace(b"\n", ending))


@pytest.mark.parametrize("data", [b"", b"\n\n", b"\0" * 4096, bytes(range(256)) * 99, b"{" * 9999, b"[" * 99999])
def test_garbage_after_a_good_log_and_alone(source, tmp_path, data):
    assert read(tmp_path / "log", data) in {"unknown-source", "empty-file"}
    good, _ = said(tmp_path / "log", GOOD[source.name])
    found, warnings = said(tmp_path / "log", GOOD[source.name] + data)
    assert found == good or warnings


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_bytes(source, tmp_path, data):
    text = bytearray(GOOD[source.name])
    for _ in range(data.draw(st.integers(1, 6))):
        text[data.draw(st.integers(0, len(text) - 1))] ^= data.draw(st.integers(1, 255))
    read(tmp_path / "log", bytes(text))


def test_escape_sequences_do_not_get_through(source, tmp_path):
    data = GOOD[source.name].decode("latin-1").replace('"r"', '"r\\u001b[31m"').replace("success", "\\u001b[2Jfailed")
    path = tmp_path / "log\x1b[1m"
    path.write_bytes(data.encode("latin-1"))
    for one in load(path):
        assert "\x1b" not in f"{one.name}{one.path}{[*one.warnings]}"
        assert "\\x1b" not in repr((one.name, one.path, one.warnings))
        for process in getattr(one, "processes", ()):
            assert "\\x1b" not in repr((process.open, process.warnings, process.events))
        for job in getattr(one, "jobs", ()):
            assert "\\x1b" not in repr(job)
