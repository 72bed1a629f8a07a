"""Logs of MaxText: what happens beside steps, and which of the time between lines is whose."""

import random
from datetime import UTC, datetime, timedelta

import pytest

from headway.events import Close
from headway.ledger.account import account
from headway.sources.asked import Asked
from headway.sources.maxtext import source as maxtext
from headway.sources.maxtext.source import MaxText

BEGIN = datetime(2025, 8, 11, 21, 54, tzinfo=UTC)


def line(second, text, front="", place="metric_logger.py:226"):
    return f"{front}{(BEGIN + timedelta(seconds=second)):I%m%d %H:%M:%S.%f} 1383 {place}] {text}\n"


def step(number, seconds=2.0):
    return f"completed step: {number}, seconds: {seconds:.3f}, TFLOP/s/device: 350.2, Tokens/s/device: 19222.5, loss: 9"


def of(tmp_path, lines, **asked):
    path = tmp_path / "log"
    path.write_text("".join(lines))
    assert MaxText().recognise(path, path.read_bytes()) is None
    (run,) = MaxText().load(path, Asked(**asked))
    return run, account(run)


def said(run):
    return " | ".join(run.warnings)


def all_of(tmp_path, lines):
    run, ledger = of(tmp_path, lines)
    rows = [[column.tolist() for column in (p.rows.step, p.rows.start, p.rows.end)] for p in run.processes]
    return rows, [process.events for process in run.processes], run.warnings, ledger.seconds


def newest(n=20, every=10, *, clock=True, inside=False):
    """Return a log whose steps of 2 s have evaluations of 3 x 1 s and saves of 2.5 s after a wait of 0.5 s.

    Args:
        n: How many steps.
        every: After so many each.
        clock: Whether its lines have times.
        inside: Whether a step's seconds go from the end of the step before, and not from what was done after that.
    """
    lines, second, beyond = (
        [(0, "System Information: Jax Version: 0.7"), (0, "Num_devices: 8, shape (1, 8)")],
        40.0,
        0.0,
    )
    for number in range(n):
        took = 32.0 if number == 0 else 2.0
        second, seconds, beyond = second + took, took + inside * beyond, 0.0
        if number % every == 0:
            lines.append((second, f"Waiting for step {number} to finish before checkpoint..."))
            lines.append(
                (second + 0.5, f"Waited 0.5 seconds for step {number} to finish before starting checkpointing.")
            )
            lines.append((second + 3.0, f"Started an asynchronous checkpoint save for step {number}"))
            beyond += 3.0
        if number % every == every // 2:
            lines.append((second, f"Starting eval after train step {number}"))
            lines += [(second + k, f"Completed eval step: {k}, seconds: 1.000, running loss=9.8") for k in (1, 2, 3)]
            lines.append((second + 3, f"Completed eval after train step {number}, loss=9.855, total_weights=75264.0"))
            beyond += 3.0
        second += beyond
        lines.append((second + 0.001, step(number, seconds)))
    return [line(*one) if clock else f"{one[1]}\n" for one in lines]


@pytest.mark.parametrize("inside", [False, True])
def test_what_is_said_to_begin_and_end_is_measured(inside, tmp_path):
    run, ledger = of(tmp_path, newest(inside=inside))
    assert ledger.steps.executed == 20
    assert ledger.devices == 8
    assert {name: seconds / 8 for name, seconds in ledger.seconds.items()} == pytest.approx(
        {"startup": 40, "compile": 30.5, "evaluation": 6, "checkpoint_save": 5, "productive": 40.5}, abs=0.01
    )
    assert ledger.inferred == {"compile"}
    assert [event.step for event in run.processes[0].events if type(event).__name__ == "Saved"] == [0, 10]
    assert "beyond the median" not in said(run)


def test_what_is_said_to_begin_and_end_is_measured_in_any_order(tmp_path):
    lines = newest()
    _, expected = of(tmp_path, lines)
    for seed in range(10):
        chance = random.Random(seed)
        mixed = lines + chance.choices(lines, k=8)
        chance.shuffle(mixed)
        _, ledger = of(tmp_path, mixed)
        assert ledger.seconds == expected.seconds


def test_without_a_clock_an_evaluation_takes_what_its_steps_do(tmp_path):
    _, ledger = of(tmp_path, newest(clock=False))
    assert {name: seconds / 8 for name, seconds in ledger.seconds.items()} == pytest.approx(
        {"compile": 30, "evaluation": 6, "productive": 40}
    )
    assert ledger.inferred == {"compile"}


def test_without_a_clock_what_the_next_step_took_longer_is_of_what_was_done_before_it(tmp_path):
    _, ledger = of(tmp_path, newest(clock=False, inside=True))
    assert {name: seconds / 8 for name, seconds in ledger.seconds.items()} == pytest.approx(
        {"compile": 30, "evaluation": 6, "checkpoint_save": 6, "productive": 40}
    )
    assert ledger.inferred == {"compile", "evaluation", "checkpoint_save"}


def test_without_a_clock_an_evaluation_that_is_told_leaves_the_rest_to_the_save(tmp_path):
    lines = [f"{step(k)}\n" for k in range(5)]
    lines += ["Started an asynchronous checkpoint save for step 4\n", "Completed eval step: 0, seconds: 1.5, loss=9\n"]
    lines += ["Completed eval after train step 4, loss=9.8\n", f"{step(5, 5.0)}\n", f"{step(6)}\n"]
    _, ledger = of(tmp_path, lines)
    assert ledger.seconds == pytest.approx({"evaluation": 1.5, "checkpoint_save": 1.5, "productive": 14})
    assert ledger.inferred == {"checkpoint_save"}


def test_lines_at_once_and_one_by_one_say_the_same(tmp_path, monkeypatch):
    for clock in (True, False):
        lines = newest(200, 40, clock=clock)
        monkeypatch.undo()
        at_once = all_of(tmp_path, lines)
        monkeypatch.setattr(maxtext._Log, "learn", lambda *_: None)
        alone = all_of(tmp_path, lines)
        assert at_once == alone
        monkeypatch.undo()
        monkeypatch.setattr(maxtext._Log, "_step", None)  # ordinary lines don't come one by one
        assert all_of(tmp_path, lines) == alone


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize(
    ("why", "reason"),
    [
        ("Job is preempted.", "preempted"),
        ("Checkpointing failed. No space left", "failed"),
        ("Target loss config.target_eval_loss=2.7 is achieved.", "finished"),
    ],
)
def test_it_says_why_it_stopped(flushed, why, reason, tmp_path):
    lines = newest()
    lines.insert(
        len(lines) - flushed, line(122.5 - flushed, f"Training stopped: {why}")
    )  # the last step's line is held back
    run, ledger = of(tmp_path, lines)
    assert run.processes[0].events[-1].reason == reason
    assert ledger.steps.executed == 20


def test_a_stop_before_a_restart_is_that_of_the_first_attempt(tmp_path):
    lines = [*newest(), line(123, "Training stopped: Job is preempted.")]
    lines += [
        line(200, "System Information: Jax Version: 0.7"),
        line(210, "restoring from this run's directory step 10"),
    ]
    lines += [line(250, step(11, 30.0)), *(line(230 + 2 * k, step(k)) for k in range(12, 20))]
    run, ledger = of(tmp_path, lines)
    assert run.processes[0].events[-1].reason == "preempted"
    assert not any(isinstance(event, Close) for event in run.processes[1].events)
    assert ledger.attempts == 2
    assert ledger.steps.reworked == 9


def test_steps_whose_seconds_are_hidden_are_steps(tmp_path):
    hidden = "completed profiler activation/deactivation step: {}, total_weights: 1572864, loss: 12.979"
    lines = [step(k) if k not in {5, 6, 10} else hidden.format(k) for k in range(12)]
    run, ledger = of(tmp_path, [line(2 * k, text) for k, text in enumerate(lines)])
    assert ledger.steps.executed == 12
    assert ledger.seconds == {"productive": 24.0}
    run, ledger = of(tmp_path, [f"{text}\n" for text in lines])
    assert ledger.steps.executed == 12
    assert "3 lines tell of steps without time or length" in said(run)


@pytest.mark.parametrize("second", [20.5, 10.4])  # the program may have waited for the first step, or stay one ahead
def test_steps_handed_over_ahead_take_the_time_between_their_lines(second, tmp_path):
    seconds = [40.2, 0.3, second, 10.2, 10.4, 10.4, 10.4, 10.4]
    lines = [line(0, "System Information: Jax Version: 0.7")]
    lines += [line(60 + 10.4 * k, step(k, took)) for k, took in enumerate(seconds)]
    _, ledger = of(tmp_path, lines)
    assert ledger.seconds == pytest.approx({"startup": 19.8, "compile": 40.2 - 10.4, "productive": 8 * 10.4})


def test_time_that_no_seconds_tell_of_is_no_step(tmp_path):
    lines = [line(2 * k + (600 if k > 9 else 0), step(k)) for k in range(20)]
    _, ledger = of(tmp_path, lines)
    assert ledger.seconds == pytest.approx({"productive": 40, "unaccounted": 600})


@pytest.mark.parametrize("apart", [2.5, 3.0, 6.0])
def test_time_that_each_step_leaves_between_the_lines_is_no_step(apart, tmp_path):
    lines = [line(60, step(0, 30.0)), *(line(60 + apart * k, step(k)) for k in range(1, 20))]
    _, ledger = of(tmp_path, lines)
    assert ledger.seconds["unaccounted"] == pytest.approx(19 * (apart - 2.0))


@pytest.mark.parametrize("after", range(1, 6))
@pytest.mark.parametrize("beside", [True, False])
def test_time_round_a_save_that_no_seconds_tell_of_is_no_step(after, beside, tmp_path):
    lines, second = [], 0.0
    for number in range(40):
        second += 3.0 + 4.5 * (number > 4 and number % 5 == after - 1)
        lines.append(line(second, step(number, 3.0)))
        if number % 5 == 4:
            waited = f"Waited 0.001 seconds for step {number} to finish before starting checkpointing."
            lines += [line(second, waited)] if beside else []
            second += 2.0
            lines.append(line(second, f"Saved a checkpoint at step {number}."))
    _, ledger = of(tmp_path, lines)
    last = 0 if beside else 2  # nothing tells when the last save began
    expected = {"productive": 120, "checkpoint_save": 16 - last, "unaccounted": 7 * 4.5}
    assert {name: ledger.seconds[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("every", [9, 10, 12])
def test_steps_that_are_handed_over_ahead_of_a_save_are_whole(every, tmp_path):
    _, ledger = of(tmp_path, ahead(41, every))
    assert ledger.seconds["productive"] == pytest.approx(82, abs=0.2)
    assert "unaccounted" not in ledger.seconds


def test_a_save_of_the_first_step_is_told_before_its_line(tmp_path):
    saved = line(42, "Saved a checkpoint at step 0.")
    lines = [line(0, "System Information: Jax Version: 0.7"), saved, line(42, step(0, 30.0)), line(44, step(1, 12.0))]
    _, ledger = of(tmp_path, [*lines, *(line(42 + 2 * k, step(k)) for k in range(2, 9))])
    assert ledger.seconds == pytest.approx({"startup": 2, "compile": 28, "checkpoint_save": 10, "productive": 18})


def test_a_save_before_a_restart_is_not_in_the_first_step_after_it(tmp_path):
    lines = [f"{step(k)}\n" for k in range(6)] + ["Saved a checkpoint at step 5.\n"]
    lines += ["System Information: Jax Version: 0.8\n", "restoring from this run's directory step 5\n"]
    _, ledger = of(tmp_path, [*lines, *(f"{step(k, 30.0 if k == 6 else 2.0)}\n" for k in range(6, 12))])
    assert ledger.seconds == pytest.approx({"compile": 28, "productive": 24})


@pytest.mark.parametrize("colour", [False, True])
def test_behind_what_ray_puts_in_front_the_clock_is_read(colour, tmp_path):
    front = "(MaxTextWorker pid=3311, ip=10.1.2.3)"
    front = f"\x1b[36m{front}\x1b[0m " if colour else f"{front} "
    lines = [line(0, "System Information: Jax Version: 0.7", front)]
    lines += [line(42 + 2 * k, step(k, 2.0 if k else 30.0), front) for k in range(9)]
    _, ledger = of(tmp_path, lines)
    assert ledger.seconds == pytest.approx({"startup": 12, "compile": 28, "productive": 18})
    assert ledger.unknown == {}


def test_workers_that_tell_the_same_are_one(tmp_path):
    fronts = [f"(MaxTextWorker pid=33{k}, ip=10.1.2.{k}) " for k in range(2)]
    lines = [
        line(2 * int(number) + 0.01 * k, text, front)
        for number, text in enumerate(
            [
                *(step(k) for k in range(5)),
                "Starting eval after train step 5",
                "Completed eval after train step 5, loss=9",
            ]
        )
        for k, front in enumerate(fronts)
    ]
    _, ledger = of(tmp_path, [*lines, *(line(12 + 2 * k, step(5 + k)) for k in range(4))])
    assert ledger.steps.executed == 9
    assert ledger.seconds["evaluation"] == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("seed", range(30))
def test_damaged_lines_at_once_and_one_by_one_say_the_same(seed, tmp_path, monkeypatch):
    chance = random.Random(seed)
    lines = newest(chance.choice([30, 120]), chance.choice([7, 25]), clock=chance.random() < 0.7, inside=seed % 2 == 0)
    front = chance.choice(["", "(MaxTextWorker pid=3311, ip=10.1.2.3) "])
    lines = [front + text for text in lines]
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(lines))
        text = lines[place]
        at = chance.randrange(len(text))
        lines[place : place + 1] = chance.choice(
            [[], [text, text], [text[:at] + text[at + 1 :]], [text[:at] + chance.choice("90. x-") + text[at + 1 :]]]
        )
    at_once = all_of(tmp_path, lines)
    monkeypatch.setattr(maxtext._Log, "learn", lambda *_: None)
    assert all_of(tmp_path, lines) == at_once


def ahead(n=40, every=8, *, compiles=30.0, takes=2.0, inside=False, clock=True):
    """Return the log of a program that hands steps over ahead of the devices, as MaxText does.

    The line of a step is written when it has ended, after the next one was handed over; evaluations of 3 s and saves of
    2.5 s wait for the step before them.
    """
    lines, now, ended = [(0.0, "System Information: Jax Version: 0.7")], 10.0, 0.0
    since, held = now, None
    for number in range(n):
        now += compiles if number == 0 else 0.01
        seconds, since = now - since, now
        before, ended = ended, max(ended, now) + takes
        if number % every == 0:
            lines.append((now, f"Waiting for step {number} to finish before checkpoint..."))
            now = max(now, ended) + 0.0001
            lines.append((now, f"Waited 1.9 seconds for step {number} to finish before starting checkpointing."))
            lines.append((now := now + 2.5, f"Started an asynchronous checkpoint save for step {number}"))
        if number % every == every // 2:
            now = max(now, ended)
            lines.append((now, f"Starting eval after train step {number}"))
            lines.append((now := now + 3.0, f"Completed eval after train step {number}, loss=9.855"))
        since = since if inside else now
        if held is not None:
            lines.append((now := max(now, before) + 0.0001, held))
        held = step(number, seconds)
    lines.append((max(now, ended), held))
    return [line(*one) if clock else f"{one[1]}\n" for one in lines]


@pytest.mark.parametrize("inside", [False, True])
def test_of_steps_handed_over_ahead_what_is_between_is_measured(inside, tmp_path):
    _, ledger = of(tmp_path, ahead(inside=inside))
    beside = {name: ledger.seconds[name] for name in ("startup", "evaluation", "checkpoint_save")}
    assert beside == pytest.approx({"startup": 10, "evaluation": 15, "checkpoint_save": 12.5}, abs=0.1)
    assert ledger.seconds["productive"] == pytest.approx(80, abs=0.2)
    assert "unaccounted" not in ledger.seconds
    assert sum(ledger.seconds.values()) == pytest.approx(10 + 30 + 80 + 27.5, abs=1)


@pytest.mark.parametrize("clock", [False, True])
def test_of_steps_handed_over_ahead_what_is_beyond_is_told_from_the_steps_it_waited_for(clock, tmp_path):
    lines = [text for text in ahead(inside=True, clock=clock) if "Wait" not in text and "Starting eval" not in text]
    _, ledger = of(tmp_path, lines)
    assert ledger.seconds["productive"] == pytest.approx(80, abs=0.1)
    assert ledger.seconds["evaluation"] == pytest.approx(15, abs=0.1)
    assert ledger.seconds["checkpoint_save"] == pytest.approx(12.5, abs=2.1)  # the first waits for the first step, too


def test_an_evaluation_of_which_nothing_tells_how_long_it_took_is_said(tmp_path):
    lines = [step(k) for k in range(9)]
    lines.insert(5, "Completed eval after train step 4, loss=9.8")
    run, ledger = of(tmp_path, [f"{text}\n" for text in lines])
    assert ledger.seconds == {"productive": 18.0}
    assert "line 6 is of evaluation without its length" in said(run)
    run, ledger = of(tmp_path, [*(line(2 * k, step(k)) for k in range(9)), line(21, lines[5].replace("4", "9"))])
    assert ledger.seconds == {"productive": 18.0, "evaluation": 5.0}
