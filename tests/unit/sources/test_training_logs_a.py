"""Logs of Megatron, DeepSpeed and DLLogger, and what their sources share."""

import gzip
import json

import numpy as np
import pytest

from data import real
from headway.clock import NS_PER_S
from headway.errors import SourceError
from headway.events import Close, Restored, Saved, Span
from headway.ledger.account import account
from headway.sources import deepspeed, dllogger
from headway.sources.asked import Asked
from headway.sources.megatron import source as megatron
from headway.sources.megatron.log import lost
from headway.sources.steps.lines import StepLines, bare, ending, seconds_ns, stamp

T = 1_740_000_000 * NS_PER_S
MEGATRON, DEEPSPEED, DLLOGGER = megatron.Megatron(), deepspeed.DeepSpeed(), dllogger.DLLogger()


def load(source, path, data=None, **asked):
    if data is not None:
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
    (run,) = source.load(path, Asked(**asked))
    return run


def lengths_ms(run):
    return np.concatenate([(process.rows.end - process.rows.start) / 1e6 for process in run.processes])


def spans(run, category):
    every = [event for process in run.processes for event in process.events]
    return [(span.end - span.start) / 1e9 for span in every if isinstance(span, Span) and span.category == category]


def said(run):
    """Return all that a run says."""
    processes = [
        (process.open, process.events, *(column.tolist() for column in (rows.step, rows.start, rows.end)))
        for process in run.processes
        for rows in (process.rows,)
    ]
    return processes, run.warnings, run.unknown


def iteration(n, took_ms, *, at="", skipped=0):
    return (
        f" {at}iteration {n:8d}/ 500 | consumed samples: {n * 4:12d} | elapsed time per iteration (ms): {took_ms} |"
        f" learning rate: 1.0E-04 | number of skipped iterations: {skipped:3d} | number of nan iterations:   0 |\n"
    )


def timer(n, at, speed, *, mean="1.0"):
    return (
        f"[{at}] [INFO] [timer.py:199:stop] epoch=0/micro_step={n}/global_step={n}, RunningAvgSamplesPerSec={mean}, "
        f"CurrSamplesPerSec={speed}, MemAllocated=1.0GB\n"
    )


def record(elapsed, step, data, kind="LOG"):
    stamps = {"timestamp": f"{1_740_000_000 + elapsed:.6f}", "elapsedtime": f"{elapsed:.6f}"}
    return "DLLL " + json.dumps({**stamps, "type": kind, "step": step, "data": data}) + "\n"


# Real files.


def test_megatron_deepspeed_of_64_devices():
    run = load(MEGATRON, real("logs", "megatron_deepspeed_64gpu.out"))
    took = lengths_ms(run)
    assert len(took) == 49
    assert took.sum() / 1e3 == pytest.approx(6710.394, abs=5e-4)
    assert took[0] == pytest.approx(159778.9)
    assert np.median(took[1:]) == pytest.approx(137103.55)
    assert run.processes[0].open.devices == 64
    assert run.processes[0].open.rows == "step"
    assert account(run).runtime is None


def test_megatron_of_64_devices_that_ends_in_a_traceback():
    path = real("logs", "megatron_64gpu_with_traceback.out")
    log = megatron.read(path)
    assert len(log.steps) == 9
    assert lost(log)[0] == 19
    took = np.array(log.steps.columns["took"]) / 1e6
    assert took[0] == 5837.9
    assert np.median(took[1:]) == pytest.approx(2740.05)
    run = load(MEGATRON, path)
    assert account(run).steps.executed == 90
    assert lengths_ms(run).sum() == pytest.approx(10 * took.sum())
    (process,) = run.processes
    assert process.open.rows == "block"
    assert [event.reason for event in process.events if isinstance(event, Close)] == ["failed"]


def test_nemo_of_a_gpt3():
    path = real("logs", "nemo_gpt3_175b_dllogger.json")
    log = dllogger.read(path)
    took = np.array(log.steps.columns["took"]) / 1e9
    assert len(took) == 50
    assert took[:2] == pytest.approx([107.355, 66.422], abs=5e-4)
    median = np.median(took[5:])
    assert median == pytest.approx(25.3015, abs=5e-5)
    assert log.elapsed_ns / 1e9 == pytest.approx(1957.570, abs=5e-4)
    assert 50 * median / (log.elapsed_ns / 1e9) == pytest.approx(0.6462, abs=5e-5)
    run = load(DLLOGGER, path)
    (process,) = run.processes
    assert (process.rows.end[0] - process.open.wall_ns) / 1e9 == pytest.approx(444.305, abs=5e-4)
    ledger = account(run)
    assert sum(ledger.seconds.values()) == pytest.approx(1957.570, abs=5e-4)
    assert ledger.steps.executed == 50


def test_deepspeed_chat():
    path = real("logs", "deepspeed_chat_step1.log")
    log = deepspeed.read(path)
    told = np.array(log.told).reshape(-1, 5)
    timed = told[:, 4] == 1
    step, at = told[timed, 1], told[timed, 2] / 1e9
    assert len(step) == 736
    assert at[-1] - at[0] == pytest.approx(5605.973, abs=1e-3)
    assert step[-1] - step[0] == 7350
    deepspeed.tell(log)
    assert deepspeed.batch_of(log) == 128
    assert 7350 * 128 / (at[-1] - at[0]) == pytest.approx(167.821, abs=5e-4)
    median = np.median(np.array(log.rates).reshape(-1, 2)[timed, 0])
    assert median == pytest.approx(171.632, abs=5e-4)
    assert 7350 * 128 / median / (at[-1] - at[0]) == pytest.approx(0.9778, abs=5e-5)
    run = load(DEEPSPEED, path)
    ledger = account(run)
    assert ledger.steps.executed == 7360
    assert lengths_ms(run)[10:].sum() / 1e3 / 5605.973 == pytest.approx(0.97718, abs=5e-5)
    assert len(spans(run, "evaluation")) == 15
    assert run.processes[0].open.devices == 16


# Megatron.


def test_lines_without_a_clock_lie_end_to_end_and_r_is_unknown(tmp_path):
    run = load(MEGATRON, tmp_path / "log", iteration(1, 500.0) + iteration(2, 250.5) + iteration(3, 250.5), devices=4)
    (process,) = run.processes
    assert process.rows.start.tolist() == [0, 500_000_000, 750_500_000]
    assert process.rows.step.tolist() == [1, 2, 3]
    assert "clock" in run.unknown["R"]
    assert account(run).runtime is None
    assert process.open.devices == 4


def test_a_line_stands_for_the_iterations_since_the_one_before(tmp_path):
    run = load(MEGATRON, tmp_path / "log", "".join(iteration(n, 100.0) for n in (10, 20, 30)))
    (process,) = run.processes
    assert process.rows.step.tolist() == list(range(1, 31))
    assert process.open.rows == "block"
    assert lengths_ms(run).sum() == pytest.approx(3000)


def test_a_log_that_begins_late_does_not_count_what_came_before_it(tmp_path):
    run = load(MEGATRON, tmp_path / "log", "".join(iteration(n, 100.0) for n in (110, 120, 130)))
    assert run.processes[0].rows.step.tolist() == list(range(101, 131))


def test_the_interval_of_a_single_line_is_in_its_arguments(tmp_path):
    data = "  log_interval .......................... 5\n" + iteration(100, 100.0)
    assert len(load(MEGATRON, tmp_path / "log", data).processes[0].rows) == 5


def test_missing_lines_are_left_out_and_named(tmp_path):
    run = load(MEGATRON, tmp_path / "log", "".join(iteration(n, 100.0) for n in (10, 20, 50, 60)))
    assert account(run).steps.executed == 40
    assert any("20 in all" in warning and "line 3" in warning for warning in run.warnings)


def test_times_in_brackets_give_a_clock(tmp_path):
    data = "".join(iteration(n, 900.0, at=f"[2025-02-19 21:20:0{n}.500] ") for n in range(1, 7))
    run = load(MEGATRON, tmp_path / "log", data)
    assert run.unknown == {}
    assert run.processes[0].rows.end.tolist() == [T + n * NS_PER_S + NS_PER_S // 2 for n in range(1, 7)]
    assert account(run).seconds["unaccounted"] == pytest.approx(0.5)
    assert any("no zone" in warning for warning in run.warnings)


def test_times_in_whole_seconds_do_not_cut_short_steps(tmp_path):
    data = "".join(iteration(n, 400.0, at=f"[2025-02-19 21:20:{int(n * 0.4):02d}] ") for n in range(1, 101))
    run = load(MEGATRON, tmp_path / "log", data)
    assert lengths_ms(run).sum() == pytest.approx(40_000, abs=1000)
    assert sum(account(run).seconds.values()) == pytest.approx(40, abs=1)


def test_lines_of_deepspeed_give_iterations_their_time(tmp_path):
    data = "".join(
        f"[2025-02-19 21:20:{n:02d},500] [INFO] [logging.py:60:log_dist] [Rank 0] step={n}, skipped=0, lr=[1]\n"
        + iteration(n, 800.0)
        for n in range(1, 6)
    )
    run = load(MEGATRON, tmp_path / "log", data)
    assert run.unknown == {}
    assert account(run).seconds["unaccounted"] == pytest.approx(0.8)


def test_a_few_times_make_no_clock(tmp_path):
    lines = [iteration(n, 800.0) for n in range(1, 9)]
    lines.insert(3, "[2025-02-19 21:20:00,500] [INFO] [logging.py:60:log_dist] [Rank 0] step=4, skipped=0, lr=[1]\n")
    run = load(MEGATRON, tmp_path / "log", "".join(lines))
    assert "R" in run.unknown
    assert any("only 1 of 8" in warning for warning in run.warnings)


def test_each_attempt_has_its_own_interval(tmp_path):
    first = "using world size: 4 \n  log_interval ..... 100\n" + "".join(iteration(100 * n, 5.0) for n in range(1, 6))
    second = "using world size: 4 \n  log_interval ..... 10\n" + "".join(
        iteration(500 + 10 * n, 5.0) for n in range(1, 6)
    )
    run = load(MEGATRON, tmp_path / "log", first + second)
    assert [len(process.rows) for process in run.processes] == [500, 50]


def test_what_lies_between_lines_is_the_evaluation_that_is_said_to_be_there(tmp_path):
    data = (
        iteration(1, 900.0, at="[2025-02-19 21:20:01] ")
        + " validation loss at iteration 1 | lm loss value: 2.0E+00 | lm loss PPL: 7.4E+00 | \n"
        + iteration(2, 900.0, at="[2025-02-19 21:20:07] ")
    )
    assert spans(load(MEGATRON, tmp_path / "log", data), "evaluation") == [pytest.approx(5.1)]


def test_a_save_and_an_evaluation_between_two_lines_are_not_told_apart(tmp_path):
    data = (
        iteration(1, 900.0, at="[2025-02-19 21:20:01] ")
        + " validation loss at iteration 1 | lm loss value: 2.0E+00 |\n"
        + "  successfully saved checkpoint at iteration 1 to /c\n"
        + iteration(2, 900.0, at="[2025-02-19 21:20:07] ")
    )
    run = load(MEGATRON, tmp_path / "log", data)
    assert spans(run, "unaccounted") == [pytest.approx(5.1)]
    assert any("together" in warning for warning in run.warnings)


@pytest.mark.parametrize(
    "line",
    [
        "time (ms) | save-checkpoint: 2500.00\n",
        "    save-checkpoint ................................: (2400.11, 2500.00)\n",
    ],
)
def test_the_timer_of_a_save_says_how_long_it_was(tmp_path, line):
    data = (
        iteration(1, 900.0) + "  successfully saved checkpoint from iteration       1 to /c [ t 1/2, p 1/1 ]\n" + line
    )
    run = load(MEGATRON, tmp_path / "log", data + iteration(2, 900.0))
    assert spans(run, "checkpoint_save") == [2.5]
    assert [event.step for event in run.processes[0].events if isinstance(event, Saved)] == [1]
    assert account(run).seconds["productive"] == pytest.approx(1.8)


def test_a_restart_in_one_log_is_another_attempt(tmp_path):
    first = "using world size: 16, data-parallel-size: 2 \n" + "".join(iteration(n, 1000.0) for n in range(1, 6))
    second = (
        "Traceback (most recent call last):\nusing world size: 16, data-parallel-size: 2 \n"
        "  successfully loaded checkpoint from /c at iteration 3\n"
    )
    run = load(MEGATRON, tmp_path / "log", first + second + "".join(iteration(n, 1000.0) for n in range(4, 8)))
    assert [process.open.attempt for process in run.processes] == ["a000", "a001"]
    assert [event.step for event in run.processes[1].events if isinstance(event, Restored)] == [3]
    ledger = account(run)
    assert (ledger.steps.reworked, ledger.steps.retained) == (2, 7)
    assert ledger.seconds["rework"] == 2 * 16
    assert [event.reason for event in run.processes[0].events if isinstance(event, Close)] == ["failed"]


def test_a_restart_without_a_word_is_told_by_its_step_numbers(tmp_path):
    data = "".join(iteration(n, 1000.0) for n in [1, 2, 3, 4, 3, 4, 5])
    run = load(MEGATRON, tmp_path / "log", data)
    assert account(run).steps.reworked == 2
    assert any("2 attempts" in warning for warning in run.warnings)


def test_the_same_line_of_two_ranks_counts_once(tmp_path):
    data = "".join(f"[default{rank}]:{iteration(n, 1000.0)}" for n in range(1, 5) for rank in (7, 3))
    run = load(MEGATRON, tmp_path / "log", data)
    assert account(run).steps.executed == 4
    assert any("2 ranks" in warning and "rank 3" in warning for warning in run.warnings)


def test_prefixes_colours_and_mean_times(tmp_path):
    line = "\x1b[32m[rank0]: [2025-05-27 15:23:07] iteration 1/9 | "
    line += "elapsed time per iteration (ms): 2716.0/3000.0 |\x1b[m\r\n"
    run = load(MEGATRON, tmp_path / "log", line)
    assert lengths_ms(run).tolist() == [2716.0]


def test_old_logs_without_samples_and_the_wait_for_batches(tmp_path):
    line = " iteration 1/ 9 | elapsed time per iteration (ms): 200.0 | learning rate: 1E-4 |\n"
    run = load(MEGATRON, tmp_path / "log", line + "time (ms) | forward: 90.0 | batch-generator: 12.50\n")
    assert run.processes[0].rows.waits["batch-generator"].tolist() == [12_500_000]
    assert account(run).seconds["input_wait"] == pytest.approx(0.0125)


@pytest.mark.parametrize("took", ["nan", "-1.0", "1e999", "inf", "1" * 39])
def test_an_impossible_time_is_left_out_and_named(tmp_path, took):
    run = load(
        MEGATRON, tmp_path / "log", iteration(1, 10.0) + iteration(2, 10.0) + iteration(3, took) + iteration(4, 9.0)
    )
    assert len(run.processes[0].rows) == 3
    assert any("line 3" in warning for warning in run.warnings)


@pytest.mark.parametrize("digit", range(0, 160, 7))
@pytest.mark.parametrize("letter", ["9", "0", "x", "."])
def test_iterations_at_once_and_one_by_one_say_the_same(digit, letter, tmp_path, monkeypatch):
    lines = [iteration(n, 1000.0 + n, at=f"[2025-02-19 21:20:{n:02}.500] ", skipped=n % 3 == 0) for n in range(1, 50)]
    lines[20] = lines[20][:digit] + letter + lines[20][digit + 1 :]
    path = tmp_path / "log"
    at_once = said(load(MEGATRON, path, "".join(lines)))
    monkeypatch.setattr("headway.sources.megatron.source._learn", lambda _line: None)
    assert said(load(MEGATRON, path)) == at_once


@pytest.mark.parametrize("digit", range(0, 160, 7))
@pytest.mark.parametrize("letter", ["9", "0", "x", "."])
def test_plain_lines_of_the_timer_say_what_others_would(digit, letter, tmp_path, monkeypatch):
    text = "[2025-02-19 21:19:00,000] [INFO] train_batch_size ..... 128\n"
    lines = [timer(10 * n, f"2025-02-19 21:20:{n:02},250", 128.5, mean=f"127.00000000{n}") for n in range(1, 50)]
    lines[20] = lines[20][:digit] + letter + lines[20][digit + 1 :]
    path = tmp_path / "log"
    plain = said(load(DEEPSPEED, path, text + "".join(lines)))
    monkeypatch.setattr(deepspeed, "_plain", lambda *_args: False)
    assert said(load(DEEPSPEED, path)) == plain


def test_only_torn_lines_are_an_error(tmp_path):
    with pytest.raises(SourceError) as caught:
        load(MEGATRON, tmp_path / "log", " iteration | elapsed time per iteration (ms): \n")
    assert caught.value.slug == "no-runs"


def test_a_gzip_that_breaks_is_read_up_to_there(tmp_path):
    data = gzip.compress("".join(iteration(n, 10.0 + n * 0.37) for n in range(1, 4000)).encode())
    run = load(MEGATRON, tmp_path / "log", data[: len(data) // 2])
    assert 0 < len(run.processes[0].rows) < 4000
    assert any("gzip breaks" in warning for warning in run.warnings)


# DeepSpeed.


def deepspeed_log(n=4, batch="  train_batch_size ............. 64"):
    lines = [f"[2025-02-19 21:20:00,000] [INFO] [config.py:1:print] {batch}\n"]
    lines += [timer(10 * k, f"2025-02-19 21:20:{k * 6:02d},500", 128) for k in range(1, n)]
    return "".join(lines)


def test_a_step_takes_its_samples_over_its_speed(tmp_path):
    run = load(DEEPSPEED, tmp_path / "log", deepspeed_log())
    assert lengths_ms(run).tolist() == [500.0] * 30
    ledger = account(run)
    assert ledger.seconds["unaccounted"] == pytest.approx(2.0)
    assert ledger.seconds["startup"] == pytest.approx(1.5)


def test_without_the_samples_of_a_step_steps_reach_from_line_to_line(tmp_path):
    run = load(DEEPSPEED, tmp_path / "log", deepspeed_log(batch="  amp_enabled .................. False"))
    assert lengths_ms(run)[10:].tolist() == [600.0] * 20
    assert any("samples a step" in warning for warning in run.warnings)


def test_the_mean_rate_tells_of_all_steps_since_the_line_before(tmp_path):
    sums = [8 * 0.5, 8 * 0.5 + 10 * 0.55]  # of the steps but the first two [s]
    means = [f"{64 * (n - 2) / total:.12f}" for n, total in zip((10, 20), sums, strict=True)]
    data = "[2025-02-19 21:20:00,000] [INFO] [config.py:1:print]   train_batch_size ... 64\n" + "".join(
        timer(n, f"2025-02-19 21:20:{6 * k:02d},000", 128, mean=mean)
        for k, (n, mean) in enumerate(zip((10, 20), means, strict=True), 1)
    )
    took = lengths_ms(load(DEEPSPEED, tmp_path / "log", data))
    assert took[:10] == pytest.approx(500)
    assert took[10:] == pytest.approx(550)


def test_a_timer_that_counts_from_zero_after_a_restart_is_numbered_by_the_schedule(tmp_path):
    lines = ["[2025-02-19 21:20:00,000] [INFO] [config.py:1:print]   train_batch_size ... 64\n"]
    for minute, first in ((20, 0), (40, 1000)):
        for k in range(1, 4):
            at = f"2025-02-19 21:{minute}:{6 * k:02d}"
            lines.append(f"[{at},000] [INFO] [logging.py:96:log_dist] [Rank 0] step={first + 10 * k}, skipped=0\n")
            lines.append(timer(10 * k, f"{at},020", 128))
    run = load(DEEPSPEED, tmp_path / "log", "".join(lines))
    assert account(run).steps.reworked == 0
    assert run.processes[-1].rows.step[-1] == 1030


def test_the_schedule_stands_in_for_the_timer(tmp_path):
    data = "".join(
        f"[2025-02-19 21:20:{k:02d},000] [INFO] [logging.py:96:log_dist] [Rank 0] step={k}, skipped={k // 3}, lr=[]\n"
        for k in range(1, 6)
    )
    run = load(DEEPSPEED, tmp_path / "log", data)
    assert account(run).steps.executed == 5
    assert any("1 steps were skipped" in warning for warning in run.warnings)


def test_checkpoints_and_a_restart_of_deepspeed(tmp_path):
    ready = "[2025-02-19 21:20:20,000] [INFO] [engine.py:33:commit] [Torch] Checkpoint global_step30 is ready now!\n"
    died = "[2025-02-19 21:20:40,000] [ERROR] [launch.py:321:sigkill_handler] ['x'] exits with return code = 1\n"
    again = (
        "[2025-02-19 21:21:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed info: version=0.9.1\n"
        "[2025-02-19 21:21:05,000] [INFO] [torch_checkpoint_engine.py:23:load] [Torch] Loading checkpoint from "
        "/c/global_step30/mp_rank_00_model_states.pt...\n"
    )
    data = deepspeed_log() + ready + timer(40, "2025-02-19 21:20:30,000", 128) + died + again
    run = load(DEEPSPEED, tmp_path / "log", data + timer(40, "2025-02-19 21:21:20,000", 128))
    ledger = account(run)
    assert (ledger.steps.reworked, ledger.steps.retained) == (10, 40)
    assert ledger.seconds["recovery"] == pytest.approx(20.0)
    assert len(spans(run, "checkpoint_save")) == 1


def test_a_megatron_log_with_lines_of_deepspeed_is_megatrons(tmp_path):
    path = tmp_path / "log"
    path.write_text(deepspeed_log() + iteration(1, 3.0))
    assert MEGATRON.recognise(path, path.read_bytes()) is None
    assert "Megatron" in DEEPSPEED.recognise(path, path.read_bytes())


# DLLogger.


def test_dllogger_begins_when_its_program_did(tmp_path):
    data = "".join(record(30 + n, n, {"train_step_timing in s": 0.75}) for n in range(5))
    run = load(DLLOGGER, tmp_path / "log", data)
    assert run.processes[0].open.wall_ns == T
    assert run.processes[0].rows.step.tolist() == list(range(5))
    assert account(run).seconds["unaccounted"] == pytest.approx(1.0)


def test_times_that_are_means_give_way_to_the_clock(tmp_path):
    data = "".join(record(100 + n, n, {"train_step_timing in s": took}) for n, took in enumerate([50, 25.5, 17.3]))
    run = load(DLLOGGER, tmp_path / "log", data)
    assert lengths_ms(run).tolist() == [50_000, 1000, 1000]
    assert any("means over earlier steps" in warning for warning in run.warnings)


def test_steps_of_epochs_are_counted_on(tmp_path):
    data = "".join(record(4 * epoch + n, [epoch, n], {"train_loss": 1}) for epoch in range(2) for n in range(3))
    assert load(DLLOGGER, tmp_path / "log", data).processes[0].rows.step.tolist() == list(range(6))


def test_an_elapsed_time_that_goes_back_is_a_restart(tmp_path):
    first = "".join(record(10 + n, n, {"train_step_timing in s": 1.0}) for n in range(5))
    shifted = (json.loads(record(5 + n, n + 3, {"train_step_timing in s": 1.0})[5:]) for n in range(4))
    second = "".join(
        "DLLL " + json.dumps({**line, "timestamp": f"{float(line['timestamp']) + 100:.6f}"}) + "\n" for line in shifted
    )
    run = load(DLLOGGER, tmp_path / "log", first + second)
    assert len(run.processes) == 2
    ledger = account(run)
    assert ledger.steps.reworked == 2
    assert ledger.seconds["recovery"] == pytest.approx(86.0)


# What they share.


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("[2025-02-19 21:20:00,123] x", T + 123_000_000),
        ("2025-02-19T21:20:00Z x", T),
        ("2025-02-19T22:20:00.5+01:00 x", T + NS_PER_S // 2),
        ("2025-02-19T16:20:00-0500", T),
        ("02/19/2025 21:20:00 - INFO - x", T),
        ("[titan] 2025-02-19 21:20:00,000 - root", T),
        ("I 2025/02/19 21:20:00 x", T),
        ("ip-26-0-161-78: [2025-02-19 21:20:00,000] x", T),
        ("10.0.0.12: node0001 2025-02-19 21:20:00 x", T),
    ],
)
def test_stamps(text, ns):
    assert stamp(text).ns == ns


@pytest.mark.parametrize("text", ["2025-13-01 00:00:00 x", "1969-12-31 23:59:59 x", "[2999-01-01 00:00:00] x"])
def test_stamps_of_no_sense_are_complained_of(text, tmp_path):
    with pytest.raises(ValueError, match=r"."):
        stamp(text)
    log = StepLines("x", tmp_path / "log")
    assert log.stamp(text, 3) is None
    assert "line 3" in log.bad.sentences()[0]


def test_the_end_of_summer_time_does_not_turn_steps_round(tmp_path):
    log = StepLines("x", tmp_path / "log")
    for n in range(60):
        minute = 118 + n // 10 - (60 if n >= 25 else 0)
        text = f"[2025-10-26 {minute // 60 + 1:02d}:{minute % 60:02d}:{n % 10 * 6:02d}] step"
        log.step(n + 1, line=n + 1, at_ns=log.stamp(text, n + 1), took_ns=5 * NS_PER_S)
    run = log.run("x", Asked(devices=1))
    assert len(run.processes) == 1
    assert account(run).steps.executed == 60
    assert sum(account(run).seconds.values()) < 3600
    assert any("set back" in warning for warning in run.warnings)


def test_the_beginning_of_summer_time_is_named(tmp_path):
    log = StepLines("x", tmp_path / "log")
    for n, text in enumerate(["01:59:58", "01:59:59", "03:00:00", "03:00:01"], 1):
        log.step(n, line=n, at_ns=log.stamp(f"[2025-03-30 {text}]", n), took_ns=NS_PER_S)
    assert any("set forward" in warning for warning in log.run("x", Asked()).warnings)


def test_zones_that_are_mixed_are_named(tmp_path):
    log = StepLines("x", tmp_path / "log")
    for n, text in enumerate(["2025-03-20T01:00:00Z", "2025-03-20 01:00:01"], 1):
        log.step(n, line=n, at_ns=log.stamp(text, n))
    assert "some times in the log name no zone and are read as UTC" in log.run("x", Asked()).warnings


def test_too_many_steps_of_a_line_stay_one_row(tmp_path):
    log = StepLines("x", tmp_path / "log")
    log.step(1 << 50, line=1, at_ns=T, took_ns=1, count=1 << 50)
    log.step((1 << 50) + 1, line=2, at_ns=T + 5, took_ns=1, count=1)
    run = log.run("x", Asked(devices=1))
    assert len(run.processes[0].rows) == 2
    assert any("each line is counted as one step" in warning for warning in run.warnings)


def test_what_no_column_can_hold_is_left_out(tmp_path):
    log = StepLines("x", tmp_path / "log")
    assert not log.step(1 << 70, line=1)
    assert not log.step(1, line=2, at_ns=1 << 70)
    assert not log.step(1, line=3, took_ns=-5)
    assert not log.step(1, line=4, count=1 << 70)
    log.span("evaluation", line=5, took_ns=1 << 70)
    assert len(log.bad) == 5


def test_small_things():
    assert bare(b"\xef\xbb\xbf[1,5]<stdout>:x\0\r\n") == ("x", 5)
    assert ending(b"slurmstepd: error: *** JOB 7 CANCELLED AT x DUE TO TIME LIMIT ***") == "preempted"
    assert [seconds_ns(text) for text in ("1e400", "x", "-0.5", "0")] == [None, None, None, 0]


@pytest.mark.parametrize("source", [MEGATRON, DEEPSPEED, DLLOGGER])
def test_prose_and_folders_are_not_recognised(source, tmp_path):
    path = tmp_path / "log"
    text = "The line says elapsed time per iteration (ms) and SamplesPerSec= or DLLL {...}, see the docs.\n" * 50
    path.write_text(text)
    assert source.recognise(path, text.encode())


def test_a_long_beginning_is_looked_through(tmp_path):
    path = tmp_path / "log"
    path.write_text("nothing of note\n" * 20_000 + iteration(1, 2.0))
    assert MEGATRON.recognise(path, path.read_bytes()[: 1 << 16]) is None
