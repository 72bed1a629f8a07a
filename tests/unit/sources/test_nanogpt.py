"""Logs of the nanoGPT family: trainings one after the other, clocks, devices, and the forms of its relatives."""

import itertools
import random
import re
from pathlib import Path

import pytest

from headway.errors import SourceError
from headway.events import Close, Saved, Span
from headway.ledger.account import account
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.nanogpt.iterations import Iterations
from headway.sources.nanogpt.source import NanoGPT
from headway.sources.steps import lines as steplines

SAMPLES = Path(__file__).parents[2] / "contract" / "samples"
ZONED = "2024-05-01T10:{:02d}:{:06.3f}Z stdout F "


def load(tmp_path, text, **asked):
    path = tmp_path / "log"
    path.write_text(text)
    assert NanoGPT().recognise(path, files.head(path)) is None
    return NanoGPT().load(path, Asked(**asked))


def spans(run):
    return [(e.category, (e.end - e.start) / 1e9) for p in run.processes for e in p.events if isinstance(e, Span)]


def ends(run):
    return [[e.reason for e in process.events if isinstance(e, Close)] for process in run.processes]


def said(run):
    return " | ".join(run.warnings)


# Speedruns.


def step(number, ms, total=3, val="", more=""):
    return f"step:{number}/{total}{val} train_time:{ms}ms step_avg:1.00ms{more}\n"


def training(first=1, total=3, each=100):
    lines = [step(0, 0, total, " val_loss:10.8")] if first == 1 else []
    lines += [step(n, n * each, total) for n in range(first, total + 1)]
    return "".join([*lines, step(total, total * each + 4, total, " val_loss:3.2")])


def test_a_training_after_one_that_came_to_its_end_is_a_run_of_its_own(tmp_path):
    runs = load(tmp_path, "BEGIN 01\n" + training() + "BEGIN 02\nlogs/x.txt\n" + training(each=90) + training())
    assert [run.name for run in runs] == ["log", "log #2", "log #3"]
    assert [ends(run) for run in runs] == [[["finished"]]] * 3
    assert [account(run).steps.reworked for run in runs] == [0, 0, 0]
    assert [account(run).seconds["productive"] for run in runs] == pytest.approx([0.304, 0.274, 0.304])


def test_a_training_that_stops_at_its_cap_has_finished(tmp_path):
    text = step(1, 100, 20) + step(2, 200, 20) + "stopping_early: wallclock_cap train_time:200ms step:2/20\n"
    runs = load(tmp_path, text + text)
    assert [ends(run) for run in runs] == [[["finished"]]] * 2


def test_a_training_that_goes_back_from_its_end_to_a_later_step_than_its_first_does_work_again(tmp_path):
    (run,) = load(tmp_path, training() + step(3, 300))
    assert account(run).steps.executed == 3
    (run,) = load(tmp_path, training(total=9) + "".join(step(n, 100 * n, 9) for n in range(5, 10)))
    assert account(run).attempts == 2


def test_a_training_that_begins_and_tells_no_step_is_said(tmp_path):
    (run,) = load(tmp_path, training() + step(0, 0, 3, " val_loss:10.8"))
    assert "tells of no step" in said(run)


def stamped(*rows):
    return "".join(ZONED.format(int(at // 60), at % 60) + text for at, text in rows)


def test_a_speedrun_has_the_clock_of_what_kept_its_log(tmp_path):
    rows = [(0, "hello\n"), (60, step(0, 0, 4, " val_loss:10.8")), (61, step(1, 1000, 4)), (62, step(2, 2000, 4))]
    rows += [(67, step(2, 2500, 4, " val_loss:4.0")), (68, step(3, 3500, 4)), (69, step(4, 4500, 4))]
    (run,) = load(tmp_path, stamped(*rows, (72, step(4, 4500, 4, " val_loss:3.0")), (75, "bye\n")))
    ledger = account(run)
    assert ledger.unknown == {}
    assert ledger.seconds == pytest.approx(
        {"startup": 60.0, "productive": 4.5, "evaluation": 4.5 + 3.0, "shutdown": 3.0}
    )


def test_a_speedrun_that_prints_evaluations_alone_has_its_steps_before_them(tmp_path):
    rows = [(0, step(0, 0, 20, " val_loss:10.8")), (15, step(10, 10_000, 20, " val_loss:4"))]
    (run,) = load(tmp_path, stamped(*rows, (28, step(20, 20_000, 20, " val_loss:4"))))
    ledger = account(run)
    assert ledger.seconds == pytest.approx({"productive": 20.0, "evaluation": 8.0})
    assert ledger.steps.executed == 20


def test_with_a_clock_each_training_has_its_own_part_of_it(tmp_path):
    one = [(10, step(0, 0, 2, " val_loss:9")), (11, step(1, 1000, 2)), (12, step(2, 2000, 2))]
    two = [(at + 20, text) for at, text in one]
    first, second = load(tmp_path, stamped((0, "hello\n"), *one, *two, (40, "bye\n")))
    assert account(first).seconds == pytest.approx({"startup": 10.0, "productive": 2.0})
    assert account(second).seconds == pytest.approx({"startup": 18.0, "productive": 2.0, "shutdown": 8.0})


def test_warm_up_lies_where_the_clock_says(tmp_path):
    rows = [(0, step(0, 0, 9, " val_loss:9")), (6, step(1, 6000, 9)), (7, step(2, 7000, 9))]
    (run,) = load(tmp_path, stamped(*rows, (8, step(3, 1000, 9)), (9, step(4, 2000, 9))))
    assert account(run).seconds == pytest.approx({"startup": 7.0, "productive": 2.0})


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("[Gloo] Rank 3 is connected to 7 peer ranks. Expected number of connected peer ranks is : 7\n", 8),
        ("[Gloo] Rank [Gloo] Rank 01 is connected to  is connected to 77 peer ranks.  peer ranks. x : 77\n", 1),
        ("world_size:16 grad_accum_steps:1\n", 16),
        ("world_size:{world_size} grad_accum_steps:{grad_accum_steps}\n", 1),
    ],
)
def test_devices_of_a_speedrun(tmp_path, text, devices):
    (run,) = load(tmp_path, text + training())
    assert run.processes[0].open.devices == devices


def test_the_share_of_the_peak_that_each_step_of_a_speedrun_tells(tmp_path):
    rows = [step(n, 1000 * n, 9, "", f" step_time:1000.0ms mfu:{40 + n % 2}.00%") for n in range(1, 10)]
    text = step(0, 0, 9, " val_loss:9", " mfu:0.00%") + "".join(rows) + step(9, 9100, 9, " val_loss:3", " mfu:39.00%")
    (run,) = load(tmp_path, text)
    assert account(run).program == pytest.approx(0.405, abs=0.002)
    (run,) = load(tmp_path, text.replace("mfu:41.00%", "mfu:0.00%"))
    assert account(run).program is None
    assert "below the peak is not known" in said(run)


def test_what_a_speedrun_evaluates_at_its_end(tmp_path):
    text = training() + "final_int8_zlib_roundtrip val_loss:2.06 val_bpb:1.22 eval_time:1396ms\n"
    (run,) = load(tmp_path, text + "final_exact val_loss:2.06065190 val_bpb:1.22043480\n")
    assert spans(run) == [("evaluation", 1.396)]
    assert ends(run) == [["finished"]]


# The relatives of nanoGPT.


@pytest.mark.parametrize(
    ("form", "devices", "kind", "seconds", "saved", "end", "program"),
    [
        (
            "llmc", 4, "NVIDIA A100-SXM4-80GB",
            {"productive": 4.82, "below_peak": 7.192, "compile": 0.0}, [12], "finished", 0.401,
        ),
        (
            "nanochat", 8, "NVIDIA H100 80GB HBM3",
            {"compile": 8.75, "productive": 2.004, "below_peak": 3.006}, [9], "finished", 0.4,
        ),
        ("litgpt", 2, None, {"productive": 6.024, "evaluation": 4.0}, [12], "finished", None),
        ("build", 1, None, {"productive": 6.012, "evaluation": 12.0, "compile": 30.0}, [], None, None),
    ],
)  # fmt: skip
def test_forms(form, devices, kind, seconds, saved, end, program):
    (run,) = NanoGPT().load(SAMPLES / f"nanogpt_{form}.log", Asked())
    ledger, (process,) = account(run), run.processes
    assert (process.open.devices, process.open.accelerator) == (devices, kind)
    assert {name: amount / devices for name, amount in ledger.seconds.items()} == pytest.approx(seconds, abs=0.02)
    assert [event.step for event in process.events if isinstance(event, Saved)] == saved
    assert ends(run) == [[end] if end else []]
    assert ledger.program == (None if program is None else pytest.approx(program, abs=0.001))
    assert "R" in ledger.unknown


@pytest.mark.parametrize(
    "front", ["trainer-1  | ", "(RayTrainWorker pid=4242) ", "(Worker pid=42, ip=10.0.0.3) ", "   "]
)
@pytest.mark.parametrize("form", ["llmc", "nanochat", "litgpt", "build"])
def test_what_a_program_that_ran_it_puts_in_front_changes_nothing(form, front, tmp_path):
    text = (SAMPLES / f"nanogpt_{form}.log").read_text()
    (alone,) = load(tmp_path, text)
    (run,) = load(tmp_path, "".join(front + line for line in text.splitlines(keepends=True)))
    for one, other in zip(alone.processes, run.processes, strict=True):
        assert (one.open, one.events, columns(one.rows)) == (other.open, other.events, columns(other.rows))


@pytest.mark.parametrize(
    "line",
    [
        "step {0:4d}/900: train loss 4.367631 ({1}.25 ms)",
        "step {0}: train loss 4.677779 (took {1}.250000 ms)",
        "step {0:4d}/900 | train loss 10.9 | norm 15.3 | lr 3.00e-04 | ({1}.25 ms | 3407 tok/s)",
        "step {0:5d} ({0:.2f}%) | loss: 2.5 | lrm: 1.00 | dt: {1}.25ms | tok/sec: 13,435 | mfu: 40.00 | epoch: 1",
        "iter {0}: loss 2.5, time: {1}.25ms",
        "iter {0} step {0}: loss 2.5, iter time: {1}.25ms (optimizer.step)",
    ],
)
def test_older_and_other_spellings(tmp_path, line):
    (run,) = load(tmp_path, "".join(line.format(n, 100 + n) + "\n" for n in range(1, 5)))
    assert run.processes[0].rows.step.tolist() == [1, 2, 3, 4]
    assert account(run).held_ns == (100 + 1 + 100 + 2 + 100 + 3 + 100 + 4 + 1) * 10**6


def log_of(form, chance):
    lines = (SAMPLES / f"nanogpt_{form}.log").read_text().splitlines(keepends=True)
    text = "".join(lines * chance.randrange(1, 4))
    if chance.random() < 0.5:
        kept = (ZONED.format(n // 600, n / 10 % 60) + line for n, line in enumerate(text.splitlines(keepends=True)))
        text = "".join(kept)
    if chance.random() < 0.5:
        place = chance.randrange(len(text))
        text = (
            text[:place] + chance.choice(["\n", "9", "nan", " ", "Traceback (most recent call last):\n"]) + text[place:]
        )
    return text[: chance.randrange(len(text) // 2, len(text))]


def told(path):
    try:
        runs = NanoGPT().load(path, Asked())
    except SourceError as error:
        return str(error)
    return [
        (run.name, run.warnings, run.unknown, [(p.open, p.events, *columns(p.rows)) for p in run.processes])
        for run in runs
    ]


def columns(rows):
    return [values.tolist() for values in (rows.step, rows.start, rows.end, *rows.waits.values())]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("form", ["llmc", "nanochat", "litgpt", "build"])
def test_lines_read_at_once_say_what_one_by_one_they_say(form, seed, tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_text(log_of(form, random.Random(seed)))
    at_once = told(path)
    monkeypatch.setattr(steplines, "_FEW", 1 << 40)
    assert at_once == told(path)


@pytest.mark.parametrize("form", ["llmc", "nanochat", "litgpt", "build"])
def test_ordinary_lines_of_each_form_are_read_at_once(form, tmp_path, monkeypatch):
    path = tmp_path / "log"
    lines = (SAMPLES / f"nanogpt_{form}.log").read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "iter " in line or " | loss" in line))
    expected = told(path)
    monkeypatch.setattr(steplines, "_FEW", 1)
    monkeypatch.setattr(Iterations, "take", None)
    assert told(path) == expected


@pytest.mark.parametrize("form", ["llmc", "nanochat", "litgpt"])
def test_trainings_of_each_form_one_after_the_other_are_runs(form, tmp_path):
    text = (SAMPLES / f"nanogpt_{form}.log").read_text()
    runs = load(tmp_path, text * 3)
    assert [run.name for run in runs] == ["log", "log #2", "log #3"]
    assert [ends(run) for run in runs] == [[["finished"]]] * 3
    assert len({tuple(account(run).seconds.items()) for run in runs}) == 1


def test_what_begins_a_training_is_none_of_the_one_before(tmp_path):
    lines = (SAMPLES / "nanogpt_llmc.log").read_text().splitlines(keepends=True) * 2
    first, second = load(tmp_path, "".join(ZONED.format(n // 60, n % 60) + line for n, line in enumerate(lines)))
    assert account(first).attempts == account(second).attempts == 1
    assert account(first).held_ns + account(second).held_ns == 4 * (len(lines) - 1) * 10**9
    assert account(first).held_ns == 4 * (len(lines) // 2 - 1) * 10**9


def test_a_training_that_was_stopped_and_begins_again_does_work_again(tmp_path):
    lines = (SAMPLES / "nanogpt_llmc.log").read_text().splitlines(keepends=True)
    (run,) = load(tmp_path, "".join(lines[:-3] + lines))
    assert account(run).attempts == 2


def test_what_lies_between_the_steps_of_a_log_with_a_clock_is_evaluation(tmp_path):
    lines = (SAMPLES / "nanogpt_llmc.log").read_text().splitlines(keepends=True)
    at, kept = 0.0, []
    for line in lines:
        at += 10 if line.startswith("val loss") else 0.6 if line.startswith("step") else 0
        kept.append(ZONED.format(int(at // 60), at % 60) + line)
    (run,) = load(tmp_path, "".join(kept))
    ledger = account(run)
    assert "R" not in ledger.unknown
    assert ledger.seconds["evaluation"] / 4 == pytest.approx(20, abs=0.2)


@pytest.mark.parametrize(
    ("evaluated", "iteration"),
    [
        ("step {}: train loss 2.0, val loss 2.1", "iter {}: loss 2.0, time {:.2f}ms, mfu -100.00%"),
        ("validation loss: 2.1", "step {} | loss: 2.0 | lr 1e-4 | norm: 1.0 | dt: {:.2f}ms | tok/sec: 1.0"),
    ],
)
def test_compile_and_evaluation_of_a_first_iteration_lie_one_after_the_other(tmp_path, evaluated, iteration):
    def attempt(first, now):
        """Return the lines of an attempt: 20 s of startup, 12 s of compile, evaluations of 8 s, iterations of 1 s."""
        lines, now = [ZONED.format(now // 60, now % 60) + "tokens per iteration will be: 1"], now + 20
        for n in range(first, first + 21):
            took = 1 + 8 * (n % 10 == 0) + 12 * (n == first)
            if n % 10 == 0:
                lines.append(ZONED.format((now + 8) // 60, (now + 8) % 60) + evaluated.format(n))
            now += took
            lines.append(ZONED.format(now // 60, now % 60) + iteration.format(n, 1000 * took))
        return "\n".join(lines) + "\n", now

    one, now = attempt(0, 0)
    other, end = attempt(20, now)
    (run,) = load(tmp_path, one + other)
    ledger = account(run)
    assert (len(run.processes), ledger.held_ns) == (2, end * 10**9)
    assert sum(took for name, took in spans(run) if name == "evaluation") == 48
    assert [took for name, took in spans(run) if name == "compile"] == [12, 12]
    assert ledger.seconds["productive"] + ledger.seconds["rework"] == pytest.approx(42)
    for process in run.processes:
        found = sorted((e.start, e.end) for e in process.events if isinstance(e, Span))
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(found))
        assert found[0][0] - process.open.wall_ns == 20 * 10**9


@pytest.mark.parametrize("clock", [True, False])
def test_a_first_iteration_that_goes_back_has_its_compile_in_its_own_attempt(tmp_path, clock):
    lines, now = [], 0
    for begin, last in ((0, 15), (30, 24)):
        now += begin
        for n in range(last):
            took = 1 + 8 * (n % 10 == 0) + 12 * (n == 0)
            now += took
            front = ZONED.format(now // 60, now % 60) if clock else ""
            lines += [f"{front}validation loss: 2.1\n"] * (n % 10 == 0)
            lines.append(
                f"{front}step {n} | loss: 2.0 | lr 1e-4 | norm: 1.0 | dt: {1000 * took:.2f}ms | tok/sec: 1.0\n"
            )
    (run,) = load(tmp_path, "".join(lines))
    found = [[e.category for e in p.events if isinstance(e, Span)] for p in run.processes]
    assert [sorted(names) for names in found] == [["compile", *["evaluation"] * n] for n in (2, 3)]
    seconds = account(run).seconds
    assert (seconds.get("recovery", 0), seconds.get("shutdown", 0)) == (30 * clock, 0)
    assert "from which step an attempt continued" in said(run)


@pytest.mark.parametrize("turns", [1, 5, 10**6])
@pytest.mark.parametrize("form", ["nanogpt", "nanogpt_llmc", "nanogpt_nanochat", "nanogpt_litgpt", "nanogpt_build"])
def test_what_several_ranks_tell_counts_once(form, turns, tmp_path):
    lines = (SAMPLES / f"{form}.log").read_text().splitlines(keepends=True)
    (alone,) = load(tmp_path, "".join(lines))
    some = [lines[begin : begin + turns] for begin in range(0, len(lines), turns)]
    told = "".join(f"[rank{rank}]: {line}" for few in some for rank in (1, 0, 2) for line in few)
    (run,) = load(tmp_path, told)
    assert account(run).amounts_ns == account(alone).amounts_ns
    assert len(run.processes) == 1
    of_one, of_several = ([re.sub(r"\d+", "N", text) for text in each.warnings] for each in (alone, run))
    assert [text for text in of_several if "ranks" not in text] == of_one


def test_a_step_of_no_time_is_said(tmp_path):
    text = (SAMPLES / "nanogpt_nanochat.log").read_text().replace("dt: 251.00ms", "dt: -1ms", 1)
    (run,) = load(tmp_path, text)
    assert "no step, left out" in said(run)


@pytest.mark.parametrize("name", ["nanogpt.log", "nanogpt_build.log", "nanogpt_llmc.log", "nanogpt_nanochat.log"])
@pytest.mark.parametrize("colour", ["\x1b[32m", "\x1b[0;1m", "\x1b[m"])
def test_a_colour_right_before_a_line_changes_nothing(name, colour, tmp_path):
    text = (SAMPLES / name).read_text()
    wanted, found = (load(tmp_path, each) for each in (text, colour + text.replace("\n", "\n" + colour)))
    assert [account(run).seconds for run in found] == [account(run).seconds for run in wanted]
