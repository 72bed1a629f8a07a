"""Logs of torchtitan: what all ranks print, and what lies between the lines of steps."""

import random

import pytest

from headway.ledger.account import account
from headway.sources import torchtitan
from headway.sources.asked import Asked
from headway.sources.torchtitan import TorchTitan


def line(second, text, front="[titan]"):
    moment = f"2025-06-04 08:{51 + int(second) // 60:02d}:{int(second) % 60:02d},{round(second % 1 * 1000):03d}"
    return f"{front} {moment} - root - INFO - {text}\n"


def step(second, number, mfu=40.0, front="[titan]"):
    text = f"step: {number:2}  loss: 10.7069  memory: 30.99GiB(32.62%)  tps: 7,034  tflops: 407.35  mfu: {mfu:.2f}%"
    return line(second, text, front)


def of(tmp_path, lines, **asked):
    path = tmp_path / "log"
    path.write_text("".join(lines))
    assert TorchTitan().recognise(path, path.read_bytes()) is None
    (run,) = TorchTitan().load(path, Asked(**asked))
    return run, account(run)


def said(run):
    return " | ".join(run.warnings)


def saved(run):
    return [event.step for p in run.processes for event in p.events if type(event).__name__ == "Saved"]


def all_of(tmp_path, lines):
    run, ledger = of(tmp_path, lines)
    rows = [
        [c.tolist() for c in (p.rows.step, p.rows.start, p.rows.end, *p.rows.waits.values())] for p in run.processes
    ]
    return rows, [process.events for process in run.processes], run.warnings, ledger.seconds


def by_all(ranks, late=0.001):
    """Return what ranks print together: 39 steps of 2 s, after 10 a save of 3 s, after 20 an evaluation of 3 s."""
    lines = [line(late * k, "Training starts at step 1") for k in range(ranks)]
    for number in range(1, 40):
        second = 2 * number + 3 * (number > 10) + 3 * (number > 20)
        lines += [step(second + late * k, number) for k in range(ranks)]
        if number == 10:
            lines += [
                line(second + 3 + late * k, "Finished saving the checkpoint in 3.00 seconds.") for k in range(ranks)
            ]
        if number == 20:
            lines += [line(second + 3 + late * k, "validate step: 20  loss:  8.1  tps: 9") for k in range(ranks)]
    return lines


def test_ranks_that_do_not_say_who_they_are_tell_of_the_same_steps(tmp_path):
    _, expected = of(tmp_path, by_all(1))
    run, ledger = of(tmp_path, by_all(4))
    assert ledger.attempts == 1
    assert ledger.steps.executed == 39
    for name, seconds in ledger.seconds.items():
        assert seconds == pytest.approx(expected.seconds.get(name, 0), abs=0.05)
    assert "attempts" not in said(run)


def test_the_same_step_after_another_start_is_another_attempt(tmp_path):
    lines = [line(0, "Training starts at step 1"), step(10, 10), step(20, 20)]
    lines += [line(21, "Starting job: x"), line(22, "Training starts at step 11"), step(24, 20), step(34, 30)]
    _, ledger = of(tmp_path, lines)
    assert ledger.attempts == 2
    assert ledger.steps.executed == 40


def test_the_same_step_long_after_is_another_attempt(tmp_path):
    _, ledger = of(tmp_path, [step(10, 10), step(20, 20), step(90, 20), step(100, 30)])
    assert ledger.attempts == 2


@pytest.mark.parametrize("seed", range(10))
def test_lines_of_ranks_at_once_and_one_by_one_say_the_same(seed, tmp_path, monkeypatch):
    chance = random.Random(seed)
    lines = by_all(1 + seed % 4)
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(lines))
        text = lines[place]
        at = chance.randrange(len(text))
        lines[place : place + 1] = chance.choice(
            [[], [text, text], [text[:at] + chance.choice("90. x") + text[at + 1 :]]]
        )
    monkeypatch.setattr(torchtitan, "_AT_ONCE", 16)
    at_once = all_of(tmp_path, lines)
    monkeypatch.setattr(torchtitan, "_learn", lambda _line: None)
    assert all_of(tmp_path, lines) == at_once


def saving(phase="saving", *, writes=False):
    """Return a log of 20 steps of 2 s, that are saved in 3 s after 5 and 10, and in 4 s after the last one."""
    lines = [line(0, "Starting job: x"), line(8, "Training starts at step 1")]
    for number in range(1, 21):
        second = 8 + 2 * number + 3 * (number > 5) + 3 * (number > 10)
        lines.append(step(second, number))
        if number in {5, 10}:
            lines.append(line(second, f"{phase.capitalize()} the checkpoint."))
            lines.append(line(second + 3, f"Finished {phase} the checkpoint in 3.00 seconds."))
        if writes and number in {8, 14}:
            of_step = {8: 5, 14: 10}[number]
            lines.append(
                line(second, f"Finished writing the checkpoint for step {of_step} in 9.00 seconds (async total).")
            )
    lines.append(line(54, f"{phase.capitalize()} the checkpoint."))
    lines.append(line(54, "Saving a model only checkpoint in torch.bfloat16 at last step, step 20."))
    return [*lines, line(58, "Last step checkpoint completed in 4.00s"), line(59, "Training completed")]


@pytest.mark.parametrize("phase", ["saving", "staging"])
def test_saves_are_read_whether_written_or_staged(phase, tmp_path):
    run, ledger = of(tmp_path, saving(phase))
    steps = ledger.seconds["productive"] + ledger.seconds["below_peak"]
    beside = {name: ledger.seconds[name] for name in ("startup", "checkpoint_save", "shutdown")}
    assert {**beside, "steps": steps} == pytest.approx(
        {"startup": 8, "checkpoint_save": 10, "shutdown": 1, "steps": 40}
    )
    assert saved(run) == [5, 10, 20]


def test_a_staged_save_is_durable_when_it_is_written(tmp_path):
    run, ledger = of(tmp_path, saving("staging", writes=True))
    assert ledger.seconds["checkpoint_save"] == pytest.approx(10)
    assert saved(run) == [5, 10, 20]
    at = [event.at / 1e9 for event in run.processes[0].events if type(event).__name__ == "Saved"]
    assert [round(moment - at[0]) for moment in at] == [0, 15, 31]
