"""Line logs of LLaMA-Factory and ms-swift: their clock, their evaluations, and how they begin again."""

import json
import random
from pathlib import Path

import pytest

from headway.errors import SourceError
from headway.ledger.account import account
from headway.sources.asked import Asked
from headway.sources.hftrainer.source import HFTrainer
from headway.sources.trainerlog.source import TrainerLog, _Lines

SAMPLES = Path(__file__).parents[2] / "contract" / "samples"


def at(step, seconds, **more):
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600}:{rest // 60 % 60:02}:{rest % 60:02}"
    shown = f"{days} day{'s' * (days > 1)}, {clock}" if days else clock
    more = more or {"loss": 1.5 + step % 7}
    return json.dumps(
        {"current_steps": step, "total_steps": 900, **more, "elapsed_time": shown, "remaining_time": "0:00:09"}
    )


def swift(step, shown, speed=None, unit="iter/s", **more):
    said = {**(more or {"loss": 0.5}), "global_step/max_steps": f"{step}/900", "elapsed_time": shown}
    return json.dumps(said | ({f"train_speed({unit})": speed} if speed else {}))


def read(tmp_path, *lines):
    path = tmp_path / "trainer_log.jsonl"
    path.write_text("\n".join(lines) + "\n")
    assert TrainerLog().recognise(path, path.read_bytes()[:1000]) is None
    (run,) = TrainerLog().load(path, Asked(devices=1))
    return run


def rows(run):
    return [
        (process.rows.step.tolist(), [round(ns / 1e9, 6) for ns in (process.rows.end - process.rows.start).tolist()])
        for process in run.processes
    ]


def told(run):
    return [(p.rows.step.tolist(), p.rows.start.tolist(), p.rows.end.tolist(), p.events) for p in run.processes]


def test_samples():
    (run,) = TrainerLog().load(SAMPLES / "trainerlog.jsonl", Asked(devices=2))
    ledger = account(run)
    assert ledger.seconds == {"productive": 250.0, "evaluation": 24.0, "shutdown": 6.0}
    assert (ledger.steps.executed, run.clock, run.unknown) == (60, False, {})
    (run,) = TrainerLog().load(SAMPLES / "trainerlog_swift.jsonl", Asked(devices=1))
    ledger = account(run)
    assert ledger.seconds["evaluation"] == pytest.approx(30.2 + 30.5, abs=0.01)
    assert sum(ledger.seconds.values()) == pytest.approx(289.1, abs=0.01)
    assert ledger.steps.executed == 45


def test_a_line_stands_for_the_steps_since_the_one_before(tmp_path):
    run = read(tmp_path, at(1, 8), at(10, 26), at(20, 46), at(30, 66), at(40, 96))
    assert rows(run)[0] == (list(range(1, 41)), [8.0] + [2.0] * 29 + [3.0] * 10)
    assert account(run).held_ns == 96 * 10**9


def test_days(tmp_path):
    run = read(tmp_path, at(10, 86390), at(20, 86400 + 10), at(30, 2 * 86400 + 10))
    assert rows(run)[0][1][10:] == [2.0] * 10 + [8640.0] * 10


def test_evaluations_take_what_passed_since_the_line_before(tmp_path):
    run = read(
        tmp_path,
        at(10, 20),
        at(10, 25, eval_loss=2.0),
        at(10, 31, eval_other_loss=2.0),
        at(20, 51),
        at(20, 60, epoch=1.0),
    )
    assert account(run).seconds == {"productive": 40.0, "evaluation": 11.0, "shutdown": 9.0}


def test_older_lines_name_what_they_do_not_have(tmp_path):
    none = {"eval_loss": None, "predict_loss": None, "reward": None}
    lines = [at(10, 20, loss=2.0, **none), at(10, 26, **{**none, "loss": None, "eval_loss": 1.0})]
    run = read(tmp_path, *lines, at(20, 46, loss=1.0, **none))
    assert account(run).seconds == {"productive": 40.0, "evaluation": 6.0}


def test_a_training_that_is_begun_again_is_another_attempt(tmp_path):
    run = read(tmp_path, at(10, 20), at(20, 40), at(30, 60), at(30, 16), at(40, 36))
    assert rows(run) == [(list(range(1, 31)), [2.0] * 30), (list(range(21, 41)), [1.6] * 10 + [2.0] * 10)]
    assert [process.open.wall_ns for process in run.processes] == [0, 60 * 10**9]
    assert any("begins anew 1 times" in text for text in run.warnings)
    assert account(run).seconds["rework"] == 20.0


def test_one_line_of_a_training_that_is_begun_again_stands_for_as_many_as_usual(tmp_path):
    run = read(tmp_path, *(at(step, 2 * step) for step in range(10, 200, 10)), at(190, 17))
    assert rows(run)[1] == (list(range(181, 191)), [1.7] * 10)


@pytest.mark.parametrize("every", [1, 10])
def test_several_steps_of_one_second_in_a_training_that_is_begun_again(tmp_path, every):
    steps = [*range(every, 6 * every, every)]
    one = [at(step, (step // every - 1) // 2) for step in steps]  # the first two in less than a second
    run = read(tmp_path, *one, *one, *one, at(6 * every, 3))
    assert [sorted(set(numbers)) for numbers, _ in rows(run)] == [
        [*range(1, 5 * every + 1)],
        [*range(1, 5 * every + 1)],
        [*range(1, 6 * every + 1)],
    ]
    ledger = account(run)
    assert (ledger.attempts, ledger.steps.executed) == (3, 16 * every)
    assert ledger.held_ns == 7 * 10**9
    assert (ledger.seconds["productive"], ledger.seconds["rework"]) == pytest.approx((3.0, 4.0), abs=1e-6)
    assert not any("left out" in text or "is not known, nothing" in text for text in run.warnings)


def test_two_processes_that_write_into_one_file_count_once(tmp_path):
    one = [at(step, 15 * step) for step in range(10, 400, 10)]
    other = [at(step, 15 * step + 1 + step // 10) for step in range(10, 390, 10)]  # it falls behind
    both = [line for pair in zip(one, other, strict=False) for line in pair] + one[len(other) :]
    run = read(tmp_path, *both)
    assert rows(run) == rows(read(tmp_path, *one))
    run = read(tmp_path, *both)
    assert any("38 lines are told again, or by another process" in text for text in run.warnings)
    again = [line for pair in zip(one, other, strict=False) for line in pair]
    assert [len(steps) for steps, _ in rows(read(tmp_path, *both, *again))] == [390, 380]


def test_a_step_of_a_line_after_the_training_is_the_last(tmp_path):
    lines = [at(10, 20), at(20, 40), at(20, 41, epoch=1.0), at(0, 50, eval_loss=1.0), at(0, 50, predict_loss=1.0)]
    run = read(tmp_path, *lines)
    assert account(run).seconds == {"productive": 40.0, "evaluation": 9.0, "shutdown": 1.0}
    assert len(run.processes) == 1


def test_steps_that_no_line_tells_of_end_where_the_next_line_says(tmp_path):
    run = read(tmp_path, at(10, 20), at(20, 40), at(25, 51, epoch=1.0))
    assert rows(run)[0] == (list(range(1, 26)), [2.0] * 20 + [2.2] * 5)
    lines = [swift(10, "20s"), swift(20, "40s"), swift(25, "1m 0s", eval_loss=2.0, eval_runtime=10.0)]
    run = read(tmp_path, *lines)
    assert rows(run)[0] == (list(range(1, 26)), [2.0] * 25)
    assert account(run).seconds["evaluation"] == 10.0
    run = read(tmp_path, at(10, 20), at(20, 40), at(25, 60, eval_loss=2.0))
    assert "evaluation" not in account(run).seconds
    assert any("1 evaluations have no time of their own" in text for text in run.warnings)


@pytest.mark.parametrize(("unit", "speeds"), [("iter/s", (0.487805, 0.493827)), ("s/it", (2.05, 2.025))])
def test_a_speed_tells_the_time_to_a_fraction(tmp_path, unit, speeds):
    run = read(
        tmp_path, swift(10, "20s", speeds[0], unit), swift(20, "40s", speeds[1], unit), swift(30, "1h 1m 0s", 9.0)
    )
    assert rows(run)[0][1][:20] == pytest.approx([2.05] * 10 + [2.0] * 10, abs=1e-4)
    assert run.processes[0].rows.end[-1] == 3660 * 10**9


def test_iterations_of_megatron_swift(tmp_path):
    lines = [swift(10 * n, f"{20 * n}s").replace("global_step/max_steps", "iteration") for n in range(1, 20)]
    assert rows(read(tmp_path, *lines))[0] == (list(range(1, 191)), [2.0] * 190)


def long():
    lines, seconds = [], 0
    for step in range(5, 1500, 5):
        seconds += 3 + step % 4
        lines.append(at(step, seconds))
        if step % 100 == 0:
            seconds += 9
            lines.append(at(step, seconds, eval_loss=1.0))
    lines += [at(1495, seconds + 9, epoch=1.0), *(at(1000 + step, step) for step in range(10, 400, 10))]
    lines += [swift(1400 + n, f"{400 + n // 3}s", (1400 + n) / (400 + n / 3 + 0.1)) for n in range(90)]
    return lines


def test_many_lines_at_once_say_what_each_says(tmp_path, monkeypatch):
    lines = long()
    many = told(read(tmp_path, *lines))
    monkeypatch.setattr(_Lines, "extend", lambda *_: False)
    assert many == told(read(tmp_path, *lines))
    assert len(many) == 2


def spoilt(lines, chance):
    """Return lines of which some are left out, told again, put elsewhere or have another character."""
    lines = list(lines)
    for _ in range(chance.randrange(1, 9)):
        place, at = chance.randrange(len(lines)), chance.randrange(60)
        line = lines[place]
        one = line[:at] + chance.choice('90. x-"{}:') + line[at + 1 :]
        lines[place : place + 1] = chance.choice(
            [[], [line, line], [one], [one], [line[:at]], [line, chance.choice(lines)]]
        )
    return lines


def test_spoilt_lines_say_the_same_alone(tmp_path, monkeypatch):
    def every():
        runs = [read(tmp_path, *spoilt(long(), random.Random(seed))) for seed in range(60)]
        return [(told(run), run.warnings) for run in runs]

    many = every()
    monkeypatch.setattr(_Lines, "extend", lambda *_: False)
    assert many == every()


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ('{"current_steps": 15, "elapsed_time": ""}', "without a step and an elapsed time"),
        ('{"current_steps": -1, "elapsed_time": "0:00:25"}', "without a step and an elapsed time"),
        ('{"current_steps": 15, "loss": 1, "elapsed_time": "99999999999:00:25"}', "elapsed time that cannot be"),
        ('{"current_steps": 15, "loss": 1, "elapsed_time": "' + "9" * 5000 + ':00:25"}', "elapsed time that cannot be"),
        ('{"current_steps": 15, "loss": 1, "elapsed_t', "no JSON object"),
        ("[]", "no JSON object"),
    ],
)
def test_lines_that_make_no_sense_are_left_out_and_said(tmp_path, odd, said):
    run = read(tmp_path, at(10, 20), odd, at(20, 40))
    assert rows(run)[0] == (list(range(1, 21)), [2.0] * 20)
    assert any(said in text and "line 2" in text for text in run.warnings)


def test_a_log_without_steps_is_an_error(tmp_path):
    with pytest.raises(SourceError, match=r"\[no-runs\]"):
        read(tmp_path, at(0, 0, eval_loss=1.0))


def test_a_state_is_no_line_log_and_a_line_log_no_state(tmp_path):
    state = (SAMPLES / "hftrainer_state.json").read_bytes()
    assert TrainerLog().recognise(tmp_path, state) is not None
    assert TrainerLog().recognise(tmp_path, json.dumps(json.loads(state)).encode() + b"\n") is not None
    lines = (SAMPLES / "trainerlog_swift.jsonl").read_bytes()
    assert b'"log_history": [' in lines
    assert HFTrainer().recognise(tmp_path, lines) is not None
    assert HFTrainer().recognise(tmp_path, json.dumps(json.loads(state)).encode() + b"\n") is None
