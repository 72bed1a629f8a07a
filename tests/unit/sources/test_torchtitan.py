"""Logs of torchtitan: what all ranks print, and what lies between the lines of steps."""

import random

import pytest

from headway.ledger.account import account
from headway.sources.asked import Asked
from headway.sources.torchtitan import source as torchtitan
from headway.sources.torchtitan.source import TorchTitan


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


@pytest.mark.parametrize("says", [True, False])
@pytest.mark.parametrize("front", ["[rank0]:[titan]", "[titan]"])
def test_processes_that_begin_again_and_log_the_step_they_logged_last_are_two_attempts(says, front, tmp_path):
    def by(ranks):
        told = [(10, 10), (20, 20), (21, "Starting job: x"), (22, "Training starts at step 11"), (32, 20), (42, 30)]
        for second, what in told:
            for late in (0.004 * rank for rank in range(ranks)):
                if isinstance(what, int):
                    yield step(second + late, what, front=front)
                elif says:
                    yield line(second + late, what, front)

    _, alone = of(tmp_path, list(by(1)))
    for ranks in (2, 4):
        _, ledger = of(tmp_path, list(by(ranks)))
        assert ledger.attempts == alone.attempts == 2
        assert ledger.steps == alone.steps
        for name, seconds in alone.seconds.items():
            assert ledger.seconds.get(name, 0) == pytest.approx(seconds, abs=0.05)


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


def evaluated(second, number, front="[titan]"):
    return line(second, f"validate step: {number:2}  loss: 12.4699  memory: 69.81GiB(88.17%)  tps: 74,599", front)


def test_an_evaluation_after_a_step_that_is_not_logged_is_what_the_steps_before_it_leave(tmp_path):
    lines = [line(0, "Training starts at step 1"), step(10, 10), evaluated(17, 15), step(22, 20), step(32, 30)]
    _, ledger = of(tmp_path, lines)
    assert ledger.seconds == pytest.approx({"evaluation": 2, "productive": 12, "below_peak": 18})
    assert ledger.steps.executed == 30
    assert ledger.inferred == {"evaluation"}


def test_steps_among_evaluations_and_saves_have_the_length_of_those_after_them(tmp_path):
    lines = [line(0, "Training starts at step 1"), step(10, 10), evaluated(14, 12)]  # 2 s of steps, 2 s
    lines += [line(20, "Finished saving the checkpoint in 3.00 seconds."), evaluated(21, 15)]  # 3 s of steps, 3 s, 1 s
    lines += [
        line(25, "Finished saving the checkpoint in 2.00 seconds."),
        step(28, 20),
        step(38, 30),
    ]  # 5 s of steps, 2 s
    run, ledger = of(tmp_path, lines)
    steps = ledger.seconds["productive"] + ledger.seconds["below_peak"]
    beside = {name: ledger.seconds[name] for name in ("evaluation", "checkpoint_save")}
    assert {**beside, "steps": steps} == pytest.approx({"evaluation": 3, "checkpoint_save": 5, "steps": 30})
    assert saved(run) == [15, 15]


def test_an_evaluation_before_any_step_is_logged_is_not_told_from_the_compilation(tmp_path):
    lines = [line(0, "Starting job: x"), line(5, "Training starts at step 1"), evaluated(58, 1), step(77, 20)]
    run, ledger = of(tmp_path, [*lines, step(97, 40), step(117, 60)])
    assert ledger.seconds == pytest.approx({"startup": 5, "unaccounted": 52, "productive": 24, "below_peak": 36})
    assert ledger.steps.executed == 60
    assert "together with the compilation" in said(run)


def test_a_last_evaluation_follows_steps_as_long_as_usual(tmp_path):
    lines = [line(0, "Training starts at step 1"), step(10, 10), step(20, 20), evaluated(28, 25)]
    _, ledger = of(tmp_path, lines)
    assert ledger.seconds == pytest.approx({"evaluation": 3, "productive": 10, "below_peak": 15})
    assert ledger.steps.executed == 25


def test_after_an_evaluation_an_mfu_is_of_the_time_since(tmp_path):
    lines = [line(0, "Training starts at step 1"), step(10, 10), step(20, 20)]
    lines += [line(25, "Finished saving the checkpoint in 5.00 seconds."), evaluated(28, 20), step(38, 30)]
    _, ledger = of(tmp_path, lines)
    assert ledger.seconds == pytest.approx({"checkpoint_save": 5, "evaluation": 3, "productive": 12, "below_peak": 18})


def test_a_line_behind_another_that_has_no_end_has_its_own_time(tmp_path):
    begin = "2025-06-04 08:51:11.330 | WARNING | my.loader:maybe_log:215 - a sample of " + 100 * "words "
    lines = [line(0, "Training starts at step 1"), step(10, 10), begin + evaluated(17, 15), begin + step(22, 20)]
    _, ledger = of(tmp_path, lines)
    assert ledger.seconds == pytest.approx({"evaluation": 2, "productive": 8, "below_peak": 12})


@pytest.mark.parametrize("front", ["[titan]", "[rank0]:[titan]", "\x1b[31m[titan]"])
def test_lines_that_are_glued_together_are_each_read(front, tmp_path):
    lines = [line(0, "Training starts at step 1", front), *(step(10 * n, n, front=front) for n in range(1, 30))]
    expected, _ = of(tmp_path, lines)
    for place in range(len(lines) - 1):
        glued = [*lines[:place], lines[place].rstrip("\n") + lines[place + 1], *lines[place + 2 :]]
        run, ledger = of(tmp_path, glued)
        assert run.processes[0].rows.end.tolist() == expected.processes[0].rows.end.tolist()
        assert run.warnings == expected.warnings
        assert ledger.attempts == 1


def test_of_glued_lines_each_is_of_its_own_rank(tmp_path):
    lines = [line(0, "Training starts at step 1", "[rank0]:[titan]")]
    for n in range(1, 5):
        both = step(10 * n, n, front="[rank0]:[titan]").rstrip("\n") + step(10 * n, n, front="[rank1]:[titan]")
        lines += [both] if n == 2 else both.replace("%[rank1]", "%\n[rank1]").splitlines(keepends=True)
    run, ledger = of(tmp_path, lines)
    assert "steps are told by 2 ranks" in said(run)
    assert ledger.steps.executed == 4


def test_a_step_that_another_line_cuts_off_is_named(tmp_path):
    torn = step(20, 2)[:70] + step(30, 3)
    run, _ = of(tmp_path, [line(0, "Training starts at step 1"), step(10, 1), torn, step(40, 4)])
    assert "line 3 is no step, left out (it is torn)" in said(run)


def test_evaluations_of_ranks_that_do_not_say_who_they_are_are_one(tmp_path):
    lines = [line(0.001 * k, "Training starts at step 1") for k in range(4)]
    for text in (step, evaluated, step):
        second, number = {0: (10, 10)}.get(len(lines) - 4, (17, 15) if text is evaluated else (22, 20))
        lines += [text(second + 0.001 * k, number) for k in range(4)]
    _, ledger = of(tmp_path, lines)
    assert ledger.seconds["evaluation"] == pytest.approx(2, abs=0.01)
    assert ledger.steps.executed == 20


@pytest.mark.parametrize("seed", range(30))
def test_evaluations_and_saves_anywhere_leave_no_time_out(seed, tmp_path, monkeypatch):
    chance, second = random.Random(seed), 5.0
    lines = [line(0, "Starting job: x"), line(second, "Training starts at step 1")]
    every = chance.choice([1, 5, 10])
    spent = {"checkpoint_save": 0.0, "evaluation": 0.0}
    for number in range(1, 101):
        second += 1
        if number % every == 0:
            lines.append(step(second, number))
        if chance.random() < 0.05:
            spent["checkpoint_save"] += 3
            lines.append(line(second := second + 3, "Finished saving the checkpoint in 3.00 seconds."))
        if number > 10 and chance.random() < 0.05:
            spent["evaluation"] += 2
            lines.append(evaluated(second := second + 2, number))
    monkeypatch.setattr(torchtitan, "_AT_ONCE", 16)
    _, ledger = of(tmp_path, lines)
    at_once = all_of(tmp_path, lines)
    assert ledger.seconds.get("evaluation", 0) == pytest.approx(spent["evaluation"], abs=0.5)
    assert ledger.seconds.get("checkpoint_save", 0) == pytest.approx(spent["checkpoint_save"], abs=0.01)
    assert sum(ledger.seconds.values()) == pytest.approx(second, abs=10)
    chance.shuffle(lines)
    assert of(tmp_path, lines)[1].seconds == pytest.approx(ledger.seconds)
    monkeypatch.setattr(torchtitan, "_learn", lambda _line: None)
    assert all_of(tmp_path, sorted(lines, key=lambda text: text[8:31])) == at_once


def launched(second, text):
    return f"W0604 08:{51 + int(second) // 60:02d}:{int(second) % 60:02d}.500000 846088 torch/distributed/{text}\n"


@pytest.mark.parametrize("which", ["2", "Signals.SIGTERM"])
def test_the_launcher_tells_when_it_began_and_which_signal_it_got(which, tmp_path):
    lines = [
        launched(0, "run.py:851] "),
        launched(1, "run.py:851] Setting OMP_NUM_THREADS"),
        line(5, "Starting job: x"),
    ]
    lines += [line(8, "Training starts at step 1"), step(18, 10), step(28, 20)]
    lines += [
        "^C" + launched(40, f"elastic/agent/server/api.py:739] Received {which} death signal, shutting down workers")
    ]
    lines += [launched(41, f"elastic/multiprocessing/api.py:10] Sending process 846210 closing signal {which}")]
    lines += ["[rank0]: Traceback (most recent call last):\n"]
    run, ledger = of(tmp_path, lines)
    assert run.processes[0].events[-1].reason == "signal"
    steps = ledger.seconds["productive"] + ledger.seconds["below_peak"]
    assert {**ledger.seconds, "productive": steps, "below_peak": 0} == pytest.approx(
        {"startup": 7.5, "productive": 20, "shutdown": 13.5, "below_peak": 0}
    )


def test_the_launchers_time_is_that_of_the_year_nearest(tmp_path):
    lines = ["W1231 23:59:50.000000 8 torch/distributed/run.py:851] \n"]
    lines += [step(k, k).replace("2025-06-04 08:51:", "2026-01-01 00:00:") for k in range(1, 4)]
    _, ledger = of(tmp_path, lines)
    assert sum(ledger.seconds.values()) == pytest.approx(13)


def test_the_launchers_time_far_from_all_others_is_not_used(tmp_path):
    _, ledger = of(tmp_path, ["W0231 08:00:00.0 8 torch/distributed/run.py:851] \n", step(1, 1), step(2, 2)])
    assert sum(ledger.seconds.values()) == pytest.approx(1)
    _, ledger = of(tmp_path, ["W0601 08:00:00.0 8 torch/distributed/run.py:851] \n", step(1, 1), step(2, 2)])
    assert sum(ledger.seconds.values()) == pytest.approx(1)


def test_a_step_that_torchft_threw_away_is_said(tmp_path):
    thrown = (
        "[titan] 2025-06-04 08:51:15,462 - torchft.manager - INFO - [ft_0:6cc4/0 - step 12] should_commit=False x\n"
    )
    run, ledger = of(tmp_path, [line(0, "Training starts at step 1"), step(10, 10), thrown, step(20, 20)])
    assert "line 3 is of a step that was thrown away, counted as done" in said(run)
    assert ledger.steps.executed == 20
