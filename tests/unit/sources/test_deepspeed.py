"""Logs of DeepSpeed's throughput timer: what stands in front of its lines, and when it is not to be believed."""

import pytest

from headway.events import Saved, Span
from headway.ledger.account import account
from headway.sources.asked import Asked
from headway.sources.deepspeed import DeepSpeed

HEAD = "[2024-05-06 07:00:00,000] [INFO] [config.py:944:print]   train_batch_size ............. 32"
BAR = "\r  3%|██████▌      | 29/24128 [01:39<20:27:23,  3.33s/it]"


def load(path, lines, **asked):
    path.write_text("\n".join(lines) + "\n")
    assert DeepSpeed().recognise(path, path.read_bytes()) is None
    (run,) = DeepSpeed().load(path, Asked(**asked))
    return run


def front(second):
    return f"[2024-05-06 07:{second // 60:02d}:{second % 60:02d},250] [INFO] "


def scheduled(n, second):
    return f"{front(second)}[logging.py:69:log_dist] [Rank 0] step={n}, skipped=0, lr=[0.001], mom=[0.0]"


def timer(n, second, speed):
    return f"{front(second)}[timer.py:181:stop] 0/{n}, SamplesPerSec={speed}"


@pytest.mark.parametrize("bar", [BAR, BAR * 3, BAR + "{'loss': 0.5}" + BAR])
@pytest.mark.parametrize("with_timer", [True, False])
def test_a_bar_of_progress_stands_in_front_of_a_line(bar, with_timer, tmp_path):
    def lines(bar):
        found = [HEAD]
        for n in range(10, 70, 10):
            found += [bar + scheduled(n, 3 * n), "{'loss': 0.0, 'learning_rate': 0.001, 'epoch': 0.04}"]
            found += [bar + timer(n, 3 * n, 12.5)] if with_timer else []
        found += [f"{bar}{front(190)}[engine.py:33:commit] [Torch] Checkpoint global_step60 is ready now!"]
        return found

    plain, barred = (load(tmp_path / "log", lines(some), devices=1) for some in ("", bar))
    (one,), (other,) = plain.processes, barred.processes
    assert one.rows.step.tolist() == other.rows.step.tolist() == list(range(1, 61))
    assert one.rows.end.tolist() == other.rows.end.tolist()
    assert one.events == other.events
    assert plain.warnings == barred.warnings
    assert [event.step for event in other.events if isinstance(event, Saved)] == [60]
    assert [event.category for event in other.events if isinstance(event, Span)] == ["checkpoint_save"]


def test_a_line_behind_another_has_its_own_time(tmp_path):
    lines = [HEAD] + [f"x {scheduled(n, 10 * n)}, [] {timer(n, 10 * n + 1, 3.2)}" for n in range(1, 6)]
    run = load(tmp_path / "log", lines)
    assert run.processes[0].rows.end[-1] - run.processes[0].rows.end[0] == 40 * 10**9
    assert "unaccounted" not in account(run).seconds


@pytest.mark.parametrize(("speed", "said"), [(32 / 2.9, False), (32 / 1.6, False), (32 / 0.7, True)])
def test_a_timer_that_tells_of_little_of_a_step_is_named(speed, said, tmp_path):
    run = load(tmp_path / "log", [HEAD] + [timer(n, 3 * n, speed) for n in range(10, 70, 10)])
    found = [warning for warning in run.warnings if "its timer says" in warning]
    assert bool(found) == said
    if said:
        assert "a step took 700 ms, and its lines lie 3.0 s a step apart" in found[0]


def test_of_a_few_lines_the_timer_is_believed(tmp_path):
    run = load(tmp_path / "log", [HEAD] + [timer(n, 3 * n, 320.0) for n in (10, 20, 30)])
    assert not any("its timer says" in warning for warning in run.warnings)


@pytest.mark.parametrize(
    "says",
    [
        "Evaluating",
        "***** Running evaluation *****",
        f"{front(31)}[train.py:88:evaluate] Evaluating",
        f"{front(31)}[logging.py:96:log_dist] [Rank 0] Evaluating on the validation set",
        f"[rank0]:{front(31)}[train.py:88:main] Running Evaluation",
    ],
)
def test_a_line_that_says_evaluating_is_of_an_evaluation(says, tmp_path):
    lines = [HEAD, timer(10, 30, 32 / 3), says, timer(20, 70, 32 / 3), timer(30, 100, 32 / 3)]
    assert account(load(tmp_path / "log", lines, devices=1)).seconds["evaluation"] == 10


@pytest.mark.parametrize("says", ["  evaluation ................... steps", " evaluation_interval .......... 10"])
def test_a_setting_is_no_evaluation(says, tmp_path):
    lines = [HEAD, timer(10, 30, 32 / 3), f"{front(31)}[config.py:944:print] {says}", timer(20, 70, 32 / 3)]
    assert "evaluation" not in account(load(tmp_path / "log", lines, devices=1)).seconds
