"""What DLLogger prints, beside what it writes as JSON."""

import json
from pathlib import Path

import pytest

from headway.events import Span
from headway.ledger.account import account
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.dllogger import DLLogger

SAMPLES = Path(__file__).parents[2] / "contract" / "samples"


def load(tmp_path, text, **asked):
    path = tmp_path / "log"
    path.write_text(text)
    assert DLLogger().recognise(path, files.head(path)) is None
    (run,) = DLLogger().load(path, Asked(**asked))
    return run


def printed(second, text):
    return f"DLL 2020-12-07 20:{second // 60:02d}:{second % 60:02d}.250000 - {text}\n"


def steps(run):
    return [number for process in run.processes for number in process.rows.step.tolist()]


def test_the_sample_of_what_is_printed():
    (run,) = DLLogger().load(SAMPLES / "dllogger_printed.log", Asked())
    ledger = account(run)
    assert run.processes[0].open.devices == 8
    assert steps(run) == list(range(1, 31))
    assert "left out" not in " ".join(run.warnings)
    assert {name: amount / 8 for name, amount in ledger.seconds.items()} == pytest.approx(
        {"startup": 20.0, "compile": 23.25, "productive": 37.5, "evaluation": 12.0}
    )


@pytest.mark.parametrize(
    "form",
    [
        "Iteration: {}  throughput_train : 145.221 seq/s mlm_loss : 10.4  learning_rate : 5.25e-06 step_time : 2.0 s",
        "Training Iteration: {}  loss : 10.4 step_time : 2.0 s",
        "Epoch: 0 Iteration: {}  train.loss : 6.9 step_time : 2000.0 ms train.ips : 12.5 img/s",
        "Training Epoch: 0 Training Iteration: {}  average_loss : 6.9 step_time : 2.0",
        "(0, {}) train_iter_time : 2.0",
        "[0, {}] train_iter_time : 2.0",
        "epoch    1 | iter   {}/19 | loss 36.99 |  142370.52 items/s | elapsed 2.00 s | lrate 1.00E-01 -> 3.16E-06",
        "epoch    1 | iter   {}/19 | loss 36.99 | lrate 3.16e-06 | took 2.00 s",
    ],
)
def test_forms_of_steps(tmp_path, form):
    run = load(tmp_path, "".join(printed(3 * n, form.format(n)) for n in range(5)))
    assert steps(run) == list(range(5))
    assert account(run).seconds == pytest.approx({"productive": 10.0, "unaccounted": 4.0})


def test_steps_without_a_length_reach_from_line_to_line(tmp_path):
    form = "Iteration: {}  throughput_train : 145.221 seq/s total_loss : 11.1 "
    run = load(tmp_path, "".join(printed(450 * n, form.format(16 + n)) for n in range(4)))
    assert account(run).seconds == pytest.approx({"productive": 1350.0})


def test_validation_that_is_printed_is_evaluation(tmp_path):
    text = "".join(
        printed(2 * n, f"Training Epoch: 0 Training Iteration: {n}  loss : 1 step_time : 2.0") for n in range(4)
    )
    text += printed(16, "Validation Epoch: 0 Validation Iteration: 3  loss : 1")
    text += printed(18, "Training Epoch: 0 Training Iteration: 4  loss : 1 step_time : 2.0")
    run = load(tmp_path, text)
    assert [event.category for event in run.processes[0].events if isinstance(event, Span)] == ["evaluation"]
    assert account(run).seconds == pytest.approx({"productive": 10.0, "evaluation": 10.0})


def test_where_both_are_there_the_records_count(tmp_path):
    lines = []
    for n in range(5):
        lines.append(printed(2 * n, f"Iteration: {n}  loss : 1 step_time : 9.0"))
        record = {"timestamp": str(1607371440.25 + 2 * n), "elapsedtime": str(n), "type": "LOG", "step": n}
        lines.append("DLLL " + json.dumps(record | {"data": {"train_loss": 1.0, "step_time": 2.0}}) + "\n")
    run = load(tmp_path, "".join(lines))
    assert steps(run) == list(range(5))
    assert account(run).seconds["productive"] == pytest.approx(10.0)


def test_what_is_printed_of_an_epoch_alone_is_no_step(tmp_path):
    text = printed(0, "(0, 1) train_iter_time : 2.0") + printed(2, "(0, 2) train_iter_time : 2.0")
    run = load(tmp_path, text + printed(3, "(0,) train_loss : 0.27") + printed(3, "PARAMETER x : nan "))
    assert steps(run) == [1, 2]


def told(second, since, epoch, step):
    record = {
        "timestamp": f"{1.74e9 + second:.6f}",
        "elapsedtime": f"{since:.6f}",
        "type": "LOG",
        "step": [epoch, step],
    }
    return "DLLL " + json.dumps(record | {"data": {"train_loss": 1.0, "step_time": 1.0}}) + "\n"


def attempt(begin, epoch, n, first=0):
    """Return the lines of an attempt with 10 steps an epoch, of 1 s each, after 5 s of startup."""
    return "".join(told(begin + 6 + i, 6 + i, epoch + i // 10, i % 10 + first) for i in range(n))


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    ("before", "again"), [((0, 20), (0, 30)), ((0, 25), (0, 30)), ((0, 35), (1, 30)), ((3, 12), (3, 20))]
)
def test_an_epoch_that_is_begun_again_counts_from_where_it_did(tmp_path, before, again, first):
    run = load(tmp_path, attempt(0, *before, first) + attempt(100, *again, first))
    done = [list(range(10 * epoch, 10 * epoch + n)) for epoch, n in (before, again)]
    assert [process.rows.step.tolist() for process in run.processes] == [
        [number + first - 10 * before[0] for number in numbers] for numbers in done
    ]
    assert account(run).steps.reworked == len(set(done[0]) & set(done[1]))


def test_lines_of_epochs_in_any_order_and_twice_say_the_same(tmp_path):
    lines = attempt(0, 0, 25).splitlines(keepends=True)
    wanted = account(load(tmp_path, "".join(lines)))
    for other in (lines[::-1], lines + lines, [line for line in lines for _ in range(2)]):
        found = account(load(tmp_path, "".join(other)))
        assert (found.seconds, found.steps) == (wanted.seconds, wanted.steps)


def test_epochs_of_which_few_steps_are_told(tmp_path):
    text = "".join(told(50 * e + n, 50 * e + n, e, n) for e in range(3) for n in (0, 20, 40))
    run = load(tmp_path, text)
    assert "one step in 20 has a line" in " ".join(run.warnings)
    form = "epoch    {} | iter   {}/50 | loss 36.99 | lrate 3.16e-06 | took 1.00 s"
    run = load(tmp_path, "".join(printed(50 * e + n, form.format(e, n)) for e in (1, 2, 3) for n in (20, 40)))
    assert steps(run)[-1] == 140
    assert "one step in" not in " ".join(run.warnings)


def test_an_epoch_of_no_sense_is_left_out_and_said(tmp_path):
    run = load(tmp_path, attempt(0, 0, 5) + told(20, 20, 1 << 70, 3) + told(21, 21, -1, 3) + attempt(20, 5, 1))
    assert sum(process.rows.step.size for process in run.processes) == 6
    assert "no step, left out" in " ".join(run.warnings)


@pytest.mark.parametrize("name", ["dllogger.json", "dllogger_printed.log"])
@pytest.mark.parametrize("colour", ["\x1b[32m", "\x1b[0;1m", "\x1b[m"])
def test_a_colour_right_before_a_line_changes_nothing(name, colour, tmp_path):
    text = (SAMPLES / name).read_text()
    wanted, found = (load(tmp_path, each) for each in (text, colour + text.replace("\n", "\n" + colour)))
    assert account(found).seconds == account(wanted).seconds
