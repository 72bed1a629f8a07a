"""Console logs of NeMo 1 and 2."""

import random
from pathlib import Path

import pytest

from headway.errors import SourceError
from headway.events import Close, Restored, Saved, Span
from headway.ledger.account import account
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.nemo import source as nemo
from headway.sources.nemo.source import NeMo
from headway.sources.steps import lines as steplines

SAMPLES = Path(__file__).parents[2] / "contract" / "samples"
DATED = "[NeMo I 2025-06-18 10:{:02d}:{:02d} nemo_logging:393] {}\n"


def load(tmp_path, text, **asked):
    path = tmp_path / "log"
    path.write_bytes(text.encode())
    assert NeMo().recognise(path, files.head(path)) is None
    (run,) = NeMo().load(path, Asked(**asked))
    return run


def spans(run):
    found = [event for process in run.processes for event in process.events if isinstance(event, Span)]
    return [(event.category, (event.end - event.start) / 1e9) for event in found]


def events(run, kind):
    return [event for process in run.processes for event in process.events if isinstance(event, kind)]


def said(run):
    return " | ".join(run.warnings)


def step(n, took=2.0, before="", epoch=0, more=""):
    return (
        f"{before}Training epoch {epoch}, iteration {n}/99 | lr: 1.469e-05 | global_batch_size: 128 | "
        f"global_step: {n} | reduced_train_loss: 6.265 | train_step_timing in s: {took} | "
        f"consumed_samples: {128 * (n + 1)}{more}\n"
    )


def bar(n, took=2.0, clock="00:01", told=None, total=999):
    return (
        f"Epoch 0: :  10%|█         | {n + 1}/{total} [{clock}<07:13, v_num=, reduced_train_loss=2.6, "
        f"global_step={float(n) if told is None else told}, consumed_samples=8.0, train_step_timing in s={took}]"
    )


def dated(at, text="x"):
    return DATED.format(at // 60, at % 60, text)


def test_the_sample_of_nemo_2():
    (run,) = NeMo().load(SAMPLES / "nemo.log", Asked())
    ledger = account(run)
    assert run.processes[0].open.devices == 8
    assert ledger.steps.executed == 40
    assert {name: amount / 8 for name, amount in ledger.seconds.items()} == pytest.approx(
        {
            "startup": 25, "productive": 85.25, "compile": 11.75, "evaluation": 10, "checkpoint_save": 7.5,
            "unaccounted": 1.0, "shutdown": 0.5,
        },
        abs=1.0,
    )  # fmt: skip
    assert [event.step for event in events(run, Saved)] == [19]
    assert [event.reason for event in events(run, Close)] == ["finished"]
    assert "by its own length" in said(run)


def test_the_sample_of_nemo_1():
    (run,) = NeMo().load(SAMPLES / "nemo_bars.log", Asked())
    ledger = account(run)
    assert run.processes[0].open.devices == 4
    assert run.processes[0].rows.step.tolist() == list(range(30))
    assert {name: amount / 4 for name, amount in ledger.seconds.items()} == pytest.approx(
        {"productive": 98.0, "compile": 6.0, "evaluation": 12.0}, abs=0.5
    )
    assert [event.step for event in events(run, Saved)] == [14]
    assert [event.reason for event in events(run, Close)] == ["finished"]
    assert "R" in ledger.unknown


@pytest.mark.parametrize(
    "front",
    ["[2025-11-20T14:{0:02d}:{1:02d}+08:00] training/0 ", "2025-11-20T14:{0:02d}:{1:02d}.000Z stdout F ", "0: "],
)
def test_steps_with_a_time_of_their_own(tmp_path, front):
    text = "".join(step(n, 2.0, front.format(n * 3 // 60, n * 3 % 60)) for n in range(20))
    ledger = account(load(tmp_path, text))
    assert ledger.steps.executed == 20
    if "{0" in front:
        assert ledger.seconds == pytest.approx({"productive": 40.0, "unaccounted": 19.0})
    else:
        assert ledger.unknown["R"]


def test_steps_without_a_time_lie_between_lines_that_have_one(tmp_path):
    text = dated(0) + "".join(step(n) for n in range(5)) + dated(10) + dated(20) + "".join(step(n) for n in range(5, 9))
    run = load(tmp_path, text + dated(28))
    ledger = account(run)
    assert ledger.seconds == pytest.approx({"productive": 18.0, "unaccounted": 10.0})
    assert ledger.unknown == {}


def attempt(begin, first, n):
    """Return the lines of an attempt: it saves and evaluates after so many steps, and takes two more."""
    now, last = begin + 20 + 2 * n + 7, first + n - 1
    lines = [dated(begin), "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/1\n"]
    lines += [dated(begin + 20, f"Restored all states from the checkpoint at /r/step={first - 1}-")] * (first > 0)
    lines += [dated(begin + 20), *(step(k) for k in range(first, last + 1))]
    lines.append(dated(now, f"Global Checkpoint Save : Rank: 0 : Iteration: {last} : x : Save duration: 7.000s"))
    lines += [*(f"Validation: iteration {k}/3\n" for k in (1, 2, 3)), dated(now + 6)]
    return [*lines, step(last + 1), step(last + 2), dated(now + 10)]


@pytest.mark.parametrize(
    "told",
    [
        lambda line: "".join(f"[rank{n}]: {line}" for n in range(4)),
        lambda line: "".join(f"[default{n}]:{line}" for n in (3, 1)),
        lambda line: line * 4,
        lambda line: line.replace("in s: 2.0", "in s: 2.001") + line * 2,
    ],
)
def test_steps_without_a_time_that_several_ranks_tell_count_once(tmp_path, told):
    lines = [*attempt(0, 0, 6), *attempt(120, 6, 9)]
    wanted = account(load(tmp_path, "".join(lines)))
    assert (wanted.attempts, wanted.steps.executed, wanted.steps.reworked) == (2, 19, 2)
    ledger = account(load(tmp_path, "".join(told(line) for line in lines)))
    assert (ledger.attempts, ledger.steps) == (2, wanted.steps)
    assert ledger.seconds == pytest.approx(wanted.seconds, abs=0.1)


def test_a_step_that_a_program_tells_and_the_next_begins_with_is_done_again(tmp_path):
    text = dated(0) + step(0) + step(1) + "Traceback (most recent call last):\n" + step(1) + step(2) + dated(20)
    ledger = account(load(tmp_path, text))
    assert (ledger.attempts, ledger.steps.reworked) == (2, 1)
    text = dated(0) + step(0) + step(1) + dated(20) + dated(30) + step(1) + step(2) + dated(40)
    ledger = account(load(tmp_path, text))
    assert (ledger.attempts, ledger.steps.reworked) == (2, 1)


@pytest.mark.parametrize("before", [True, False])
def test_a_line_with_a_time_at_the_end_of_each_step(tmp_path, before):
    """Each step takes 12 s and the first 20 s more, a save of 3 s follows every fifth."""
    lines, now = [dated(0), dated(10)], 10
    for n in range(20):
        took = 12 + 20 * (n == 0)
        now += took
        both = [dated(now, "grad norm"), step(n, float(took))]
        lines += both if before else both[::-1]
        if n % 5 == 4:
            now += 3
            told = f"Global Checkpoint Save : Rank: 0 : Iteration: {n} : x : Save duration: 3.000s"
            lines.append(dated(now, told))
    run = load(tmp_path, "".join(lines))
    assert account(run).seconds == pytest.approx(
        {"startup": 10.0, "compile": 20.0, "productive": 240.0, "checkpoint_save": 12.0}, abs=0.01
    )
    assert "took longer than" not in said(run)


def test_steps_after_the_last_line_with_a_time_have_none(tmp_path):
    ledger = account(load(tmp_path, dated(0) + dated(9) + "".join(step(n) for n in range(9))))
    assert ledger.unknown["R"]
    assert ledger.seconds == pytest.approx({"productive": 18.0})


def test_steps_shorter_than_the_second_of_the_lines_between_keep_their_length(tmp_path):
    text = "".join(dated(n // 4) + step(n, 0.25) for n in range(40)) + dated(10)
    assert account(load(tmp_path, text)).seconds["productive"] == pytest.approx(10.0, abs=0.3)


def test_a_line_stands_for_those_since_the_line_before(tmp_path):
    run = load(tmp_path, dated(0) + "".join(step(n, 1.5) for n in range(9, 100, 10)) + dated(150))
    assert account(run).seconds["productive"] == pytest.approx(150.0)
    assert account(run).steps.executed == 100


FINAL = "Async finalization time took 10.692 s"
SAVE = "Global Checkpoint Save : Rank: 0 : Iteration: {} : Start time: 1750290740.432s : Save duration: 5.000s"


def test_a_save_that_is_not_asynchronous_is_durable_when_it_ends(tmp_path):
    text = dated(0) + "".join(map(step, range(4))) + dated(13, SAVE.format(3)) + step(4) + dated(15)
    run = load(tmp_path, text + "Traceback (most recent call last):\n")
    assert spans(run) == [("checkpoint_save", 5.0)]
    assert [event.step for event in events(run, Saved)] == [3]
    assert account(run).steps.reworked == 1


def test_a_save_that_several_ranks_tell_counts_once(tmp_path):
    ranks = [dated(13, SAVE.format(3).replace("Rank: 0", f"Rank: {rank}")) for rank in range(3)]
    run = load(tmp_path, dated(0) + "".join(map(step, range(4))) + "".join(ranks) + step(4) + dated(15))
    assert spans(run) == [("checkpoint_save", 5.0)]


def test_a_save_that_is_asynchronous_is_durable_when_it_was_finalized(tmp_path):
    text = (
        dated(0)
        + "".join(map(step, range(4)))
        + dated(13, SAVE.format(3))
        + dated(13, "Scheduled async checkpoint save")
    )
    assert events(load(tmp_path, text + step(4)), Saved) == []
    text += step(4) + dated(16, "Async checkpoint save for step 4 (/ckpt/step=3.ckpt) finalized successfully.")
    assert [event.step for event in events(load(tmp_path, text), Saved)] == [3]


def test_a_save_that_begins_is_not_yet_durable_where_its_end_is_told(tmp_path):
    begins = "Epoch 0, global step 3: 'val_loss' reached 1.2 (best 1.2), saving model to '/c/step=3.ckpt' as top 5\n"
    text = dated(0) + "".join(map(step, range(4))) + begins + dated(13, SAVE.format(3))
    run = load(tmp_path, text + dated(13, "Scheduled async checkpoint save") + step(4) + dated(15))
    assert events(run, Saved) == []
    assert [event.step for event in events(load(tmp_path, text + step(4) + dated(15)), Saved)] == [3]
    assert [event.step for event in events(load(tmp_path, step(2) + step(3) + begins + step(4)), Saved)] == [3]


def test_what_a_save_is_waited_for(tmp_path):
    text = dated(0) + "".join(map(step, range(4))) + dated(8, "Async finalization time took 0.059 s")
    run = load(tmp_path, text + "`Trainer.fit` stopped: `max_steps=4` reached.\n" + dated(19, FINAL))
    assert spans(run) == [("checkpoint_save", 10.692)]
    assert [event.reason for event in events(run, Close)] == ["finished"]


def test_an_attempt_that_continues_from_a_checkpoint(tmp_path):
    text = (
        "".join(map(step, range(6)))
        + "Restored all states from the checkpoint at /c/x--step=3-consumed_samples=4.ckpt\n"
    )
    run = load(tmp_path, text + "".join(map(step, range(4, 8))))
    assert [event.step for event in events(run, Restored)] == [3]
    assert account(run).steps.reworked == 2


def test_evaluation_between_times(tmp_path):
    validation = "".join(f"Validation: iteration {n}/3\n" for n in (1, 2, 3))
    text = dated(0) + step(0) + step(1) + dated(4) + validation + dated(11) + step(2) + step(3) + dated(15)
    assert spans(load(tmp_path, text)) == [("evaluation", 7.0)]
    kept = "".join(
        f"2025-11-20T14:00:{at:02d}Z {line}"
        for at, line in [(2, step(0)), (4, step(1)), (6, "Validation: iteration 1/2\n")]
    )
    kept += f"2025-11-20T14:00:08Z Validation: iteration 2/2\n2025-11-20T14:00:10Z {step(2)}"
    assert spans(load(tmp_path, kept)) == [("evaluation", 4.0)]


def test_an_evaluation_that_nothing_times_is_said(tmp_path):
    run = load(tmp_path, step(0) + step(1) + "Validation: iteration 1/1\n" + step(2))
    assert spans(run) == []
    assert "of evaluation without its length" in said(run)


def test_bars_tell_each_step_once(tmp_path):
    text = (
        "\r".join([bar(0), bar(1), bar(1, clock="00:05"), bar(2, 3.0)])
        + "[NeMo I 2024-06-17 08:36:41 a:480] Removing\n"
    )
    run = load(tmp_path, text)
    assert run.processes[0].rows.step.tolist() == [0, 1, 2]
    assert account(run).seconds == pytest.approx({"productive": 7.0})


def test_numbers_that_a_bar_shortens_are_counted_by_the_bar(tmp_path):
    bars = [bar(n, told="2e+3" if n == 2000 else "2e+3" if n == 2004 else None, total=9999) for n in range(1998, 2006)]
    run = load(tmp_path, "\n".join(bars) + "\n")
    assert run.processes[0].rows.step.tolist()[-8:] == list(range(1998, 2006))
    bars = [bar(n, told="1.23e+5") for n in range(5)]
    assert load(tmp_path, "\n".join(bars) + "\n").processes[0].rows.step.tolist() == list(range(5))


def test_bars_of_a_line_with_a_time_end_before_it(tmp_path):
    lines = [bar(n, 2.0, f"00:{2 * n:02d}") for n in range(1, 10)]
    text = f"2025-11-20T14:00:30Z {lines[0]}\n" + "2025-11-20T14:00:46Z " + "\r".join(lines[1:]) + "\n"
    ledger = account(load(tmp_path, text))
    assert ledger.unknown == {}
    assert ledger.seconds == pytest.approx({"productive": 18.0})


def test_an_overlong_line_of_bars_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE", 4096)
    run = load(tmp_path, "\r".join(bar(n) for n in range(60)) + "\n" + bar(60) + "\n")
    assert "longer than" in said(run)


@pytest.mark.parametrize("took", ["1e999", "-1", "nan", "9" * 39])
def test_a_step_of_no_time_is_said(tmp_path, took):
    run = load(tmp_path, step(0) + step(1) + step(2, took) + step(3))
    assert "no step, left out" in said(run)


def test_without_a_global_step_epochs_count_on(tmp_path):
    lines = [
        f"Training epoch {epoch}, iteration {n}/3 | lr: 1e-5 | train_step_timing in s: 1.0\n"
        for epoch in range(3)
        for n in range(4)
    ]
    assert load(tmp_path, "".join(lines)).processes[0].rows.step.tolist() == list(range(12))


def told(path):
    try:
        (run,) = NeMo().load(path, Asked())
    except SourceError as error:
        return str(error)
    rows = [[values.tolist() for values in (p.rows.step, p.rows.start, p.rows.end)] for p in run.processes]
    return run.warnings, run.unknown, [(p.open, p.events) for p in run.processes], rows


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("sample", ["nemo.log", "nemo_bars.log"])
def test_lines_read_at_once_say_what_one_by_one_they_say(sample, seed, tmp_path, monkeypatch):
    chance = random.Random(seed)
    data = bytearray((SAMPLES / sample).read_bytes() * chance.randrange(1, 3))
    for _ in range(chance.randrange(4)):
        place = chance.randrange(len(data))
        data[place : place + chance.randrange(3)] = chance.choice([b"\n", b"9", b"nan", b" ", b"\r", b""])
    path = tmp_path / "log"
    path.write_bytes(data[: chance.randrange(len(data) // 2, len(data))])
    at_once = told(path)
    monkeypatch.setattr(steplines, "_FEW", 1 << 40)
    assert at_once == told(path)


def test_ordinary_lines_are_read_at_once(tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_text(
        "".join(step(n, 2.0 + n % 3, f"[2025-11-20T14:{n // 60:02d}:{n % 60:02d}] a/0 ") for n in range(600))
    )
    expected = told(path)
    monkeypatch.setattr(steplines, "_FEW", 1)
    monkeypatch.setattr(nemo._Reader, "_step", None)
    assert told(path) == expected


@pytest.mark.parametrize("name", ["nemo.log", "nemo_bars.log"])
@pytest.mark.parametrize("colour", ["\x1b[32m", "\x1b[0;1m", "\x1b[m"])
def test_a_colour_right_before_a_line_changes_nothing(name, colour, tmp_path):
    text = (SAMPLES / name).read_text()
    wanted, found = (load(tmp_path, each) for each in (text, colour + text.replace("\n", "\n" + colour)))
    assert account(found).seconds == account(wanted).seconds
