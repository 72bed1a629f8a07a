"""Logs of Megatron-LM and its kin: what stands between the lines of iterations, and the forms of these lines."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from headway.events import Close, Saved, Span
from headway.ledger.account import account
from headway.sources.asked import Asked
from headway.sources.megatron.source import Megatron
from headway.sources.steps import lines as steplines


def load(path, lines, **asked):
    path.write_text("\n".join(lines) + "\n")
    (run,) = Megatron().load(path, Asked(**asked))
    return run


def clock(second):
    return f"2026-03-04 05:{int(second) // 60:02d}:{second % 60:09.6f}"


def iteration(n, second, took=2.0):
    return (
        f" [{clock(second)}] iteration {n:8d}/     300 | consumed samples: {n * 512:12d} | skipped samples:       0 "
        f"| elapsed time per iteration (ms): {1000 * took:.1f} | learning rate: 1.0E-04 | global batch size:   512 | "
        "number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def timer(name, took):
    return ["(min, max) time across ranks (ms):", f"    {name} {'.' * 30}: ({990 * took:.2f}, {1000 * took:.2f})"]


def evaluated(n, took):
    told = f" validation loss at iteration {n} on validation set | lm loss value: 2.0E+00 | lm loss PPL: 7.4E+00 |"
    return [*timer("evaluate", took), "-" * 30, told, "-" * 30]


def spans(run):
    every = [event for process in run.processes for event in process.events if isinstance(event, Span)]
    first = run.processes[0].rows.start[0]
    found = [(span.category, (span.start - first) / 1e9, (span.end - first) / 1e9) for span in every]
    return [
        (name, pytest.approx(start), pytest.approx(end)) for name, start, end in sorted(found, key=lambda it: it[1])
    ]


def saving(n, at, took, *, begun=True, ended=True, timed=True, what="checkpoint"):
    begin = [f"[{clock(at)}] saving checkpoint at iteration {n:7d} to /c in torch_dist format"] if begun else []
    front = f"[{clock(at + took)}] " if ended else ""
    end = [f"  {front}successfully saved {what} from iteration {n:7d} to /c [ t 1/4, p 1/4 ]"]
    return [*begin, *end, *(timer("save-checkpoint", took) if timed else [])]


@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("what", ["checkpoint", "local checkpoint"])
def test_a_save_lies_where_its_dates_and_its_timer_say(begun, ended, what, tmp_path):
    lines = [iteration(n, 2.0 * n) for n in range(1, 6)]
    lines += [*evaluated(5, 8.0), *saving(5, 18.0, 20.0, begun=begun, ended=ended, what=what)]
    run = load(tmp_path / "log", lines + [iteration(n, 28.0 + 2 * n) for n in range(6, 11)], devices=2)
    ledger = account(run)
    assert ledger.seconds["productive"] == 40
    assert (ledger.seconds["checkpoint_save"], ledger.seconds["evaluation"]) == (40, 16)
    assert sum(ledger.seconds.values()) == 2 * 48
    assert spans(run) == [("evaluation", 10, 18), ("checkpoint_save", 18, 38)]
    assert [event.step for event in run.processes[0].events if isinstance(event, Saved)] == [5]
    assert not any("length" in warning for warning in run.warnings)


def test_two_dates_of_a_save_stand_in_for_its_timer(tmp_path):
    lines = [iteration(1, 2.0), *evaluated(1, 8.0), *saving(1, 10.0, 20.0, timed=False), iteration(2, 32.0)]
    run = load(tmp_path / "log", lines)
    assert spans(run) == [("evaluation", 2, 10), ("checkpoint_save", 10, 30)]


@pytest.mark.parametrize("dated", [True, False])
@pytest.mark.parametrize("timed", [True, False])
def test_of_a_save_behind_the_steps_only_the_wait_counts(dated, timed, tmp_path):
    def front(second):
        return f"[{clock(second)}] " if dated else ""

    lines = [iteration(n, 2.0 * n) for n in range(1, 6)]
    lines += [f"{front(10)}saving checkpoint at iteration       5 to /c in torch_dist format"]
    lines += [f"  {front(13)}scheduled an async checkpoint save at iteration       5 to /c"]
    lines += timer("save-checkpoint", 3.0) if timed else []
    lines += [iteration(n, 3 + 2.0 * n) for n in range(6, 9)]
    lines += [f"  {front(20)}successfully saved checkpoint from iteration       5 to /c [ t 1/4, p 1/4 ]"]
    run = load(tmp_path / "log", lines + [iteration(n, 3 + 2.0 * n) for n in range(9, 12)])
    assert spans(run) == [("checkpoint_save", 10, 13)]
    assert account(run).seconds["productive"] == 22
    assert [event.step for event in run.processes[0].events if isinstance(event, Saved)] == [5]
    assert not any("length" in warning for warning in run.warnings)


def test_after_a_restart_saves_are_those_of_the_new_program(tmp_path):
    lines = ["using world size: 8, data-parallel size: 8", iteration(1, 2.0), iteration(2, 4.0)]
    lines += ["  scheduled an async checkpoint save at iteration      2 to /c", iteration(3, 6.0)]
    lines += ["using world size: 8, data-parallel size: 8", f"[after x] datetime: {clock(50)}", iteration(1, 60.0)]
    lines += saving(1, 60.0, 20.0, begun=False, ended=False, timed=False)
    run = load(tmp_path / "log", [*lines, iteration(2, 82.0)])
    assert account(run).seconds["checkpoint_save"] == 8 * 20


def test_a_load_ends_with_its_date(tmp_path):
    lines = [f"[after megatron is initialized] datetime: {clock(0)}"]
    lines += [f"  [{clock(15)}] successfully loaded checkpoint from /c [ t 1/4, p 1/4 ] at iteration 40"]
    lines += [*timer("load-checkpoint", 10.0), f"[before the start of training step] datetime: {clock(20)}"]
    run = load(tmp_path / "log", [*lines, iteration(41, 22.0), iteration(42, 24.0)])
    ledger = account(run)
    assert ledger.seconds["startup"] == 10
    assert ledger.seconds["checkpoint_restore"] == 10
    assert spans(run)[1:2] == [("checkpoint_restore", -15, -5)]


def test_the_loss_behind_the_timer_of_an_evaluation_is_no_other_evaluation(tmp_path):
    lines = [iteration(1, 2.0), iteration(2, 4.0), f"[after training is done] datetime: {clock(4)}"]
    run = load(tmp_path / "log", [*lines, *evaluated(2, 8.0), *evaluated(2, 6.0)])
    assert account(run).seconds["evaluation"] == 14
    assert not any("length" in warning for warning in run.warnings)


@pytest.mark.parametrize("ended", [True, False])
def test_many_at_once_and_one_by_one_say_the_same_of_saves(ended, tmp_path, monkeypatch):
    lines, second = [], 0.0
    for n in range(1, 200):
        second += 2
        lines.append(iteration(n, second))
        if n % 20 == 0:
            lines += saving(n, second, 5.0, begun=bool(n % 40), ended=ended)
            second += 5
    told = []
    for few in (8, 1 << 40):
        monkeypatch.setattr(steplines, "_FEW", few)
        run = load(tmp_path / "log", lines)
        (process,) = run.processes
        told.append((run.warnings, process.events, process.rows.start.tolist(), process.rows.end.tolist()))
    assert told[0] == told[1]
    assert np.diff(told[0][2]).max() == 7e9


def told(path, monkeypatch):
    """Return what is said of a log, many lines at once and, the same, one by one."""
    found = []
    for few in (8, 1 << 40):
        monkeypatch.setattr(steplines, "_FEW", few)
        (run,) = Megatron().load(path, Asked())
        rows = [(one.rows.step.tolist(), one.rows.start.tolist(), one.rows.end.tolist()) for one in run.processes]
        found.append((run.warnings, [(one.open, one.events) for one in run.processes], rows))
    monkeypatch.undo()
    assert found[0] == found[1]
    (run,) = Megatron().load(path, Asked())
    return run


def alcf(n, front="[2024-05-06 07:{:02d}:{:02d}][INFO][training:1251] - "):
    return (
        front.format(n // 60, n % 60) + f" iteration={n:8d}/  317892 | consumed_samples={n * 256:12d} | "
        f"consumed_tokens={n << 20:12d} | elapsed_time_per_iteration_ms=1000.0 | learning_rate=1.5e-06 | "
        f"global_batch_size=  256 | lm loss=11.208171 | number_of_skipped_iterations={n % 2:3d} | "
        "number_of_nan_iterations=  0 | samples_per_second=256.0 | TFLOPs=160.07 |"
    )


def primus(n, front="[202405{:02d} 07:{:02d}:{:02d}][rank-63/64][INFO ] [--------trainer.py:2382] : "):
    return (
        front.format(6, n // 60, n % 60) + f" iteration {n:8d}/   40000 | consumed samples: {n * 64:12d} | "
        f"elapsed time per iteration (ms): 1000.0/1011.5 | hip mem usage/free/total/usage_ratio: 2.5GB/2.6GB/5GB/9% | "
        f"global batch size:    64 | number of skipped iterations: {n % 2:3d} | number of nan iterations:   0 |"
    )


def infinite(n):
    return iteration(n, float(n), 1.0).replace("/     300 |", "/infinity |")


@pytest.mark.parametrize(("form", "devices"), [(alcf, None), (primus, 64), (infinite, None)])
def test_forms_of_an_iteration(form, devices, tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_text("".join(form(n) + "\n" for n in range(1, 301)))
    assert Megatron().recognise(path, path.read_bytes()[:1000]) is None
    run = told(path, monkeypatch)
    (process,) = run.processes
    assert process.open.devices == (devices or 1)
    assert process.rows.step.tolist() == list(range(1, 301))
    assert set(np.diff(process.rows.end).tolist()) == {10**9}
    ledger = account(run)
    assert ledger.runtime == pytest.approx(1)
    if form is not infinite:
        assert "150 iterations were skipped: they took time and changed nothing" in run.warnings


@pytest.mark.parametrize("form", [alcf, primus, infinite])
def test_forms_of_an_iteration_are_read_at_once(form, tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_text("".join(form(n) + "\n" for n in range(100, 301)))
    monkeypatch.setattr("headway.sources.megatron.source.iterations", None)
    (run,) = Megatron().load(path, Asked())
    assert account(run).steps.executed == 201


def test_lines_of_deepspeed_between_change_nothing(tmp_path, monkeypatch):
    path, lines = tmp_path / "log", []
    for n in range(1, 100):
        front = f"[2024-05-06 07:{n // 60:02d}:{n % 60:02d},250] [INFO] ["
        lines += [f"{front}logging.py:96:log_dist] [Rank 0] step={n}, skipped=0, lr=[1e-7], mom=[(0.9, 0.999)]"]
        lines += [f"{front}timer.py:260:stop] epoch=0/micro_step={n}/global_step={n}, RunningAvgSamplesPerSec=74.5"]
        lines += [alcf(n)]
    path.write_text("\n".join(lines) + "\n")
    run = told(path, monkeypatch)
    assert np.diff(run.processes[0].rows.end).min() == 10**9
    assert account(run).seconds["productive"] == 99


@pytest.mark.parametrize("place", range(0, 110, 3))
@pytest.mark.parametrize("letter", ["9", "0", "1", "x"])
@pytest.mark.parametrize("form", [alcf, primus])
def test_damaged_forms_say_the_same_at_once_and_one_by_one(form, place, letter, tmp_path, monkeypatch):
    lines = [form(n) for n in range(100, 150)]
    for n in (0, 20):
        lines[n] = lines[n][:place] + letter + lines[n][place + 1 :]
    path = tmp_path / "log"
    path.write_text("\n".join(lines) + "\n")
    told(path, monkeypatch)


def test_eight_digits_are_a_date_only_where_they_can_be_one(tmp_path, monkeypatch):
    path = tmp_path / "log"
    days = [20240506, 12345678, 20240506, 20241350, 20240230, 99990101]
    for some in (days, days[::-1]):
        fronts = [f"[{some[n % 6]:08d} 07:{n // 60:02d}:{n % 60:02d}] " for n in range(60)]
        path.write_text("".join(f"{primus(n, front)}\n" for n, front in enumerate(fronts)))
        run = told(path, monkeypatch)
        assert any("with a time of no sense" in warning for warning in run.warnings)


def test_a_clock_in_seconds_at_the_end_of_the_line(tmp_path, monkeypatch):
    path = tmp_path / "log"
    lines = [iteration(n, 0, 1.0).split("] ", 1)[1] + f" current time: {1706860208.5 + n:.2f} |" for n in range(1, 30)]
    path.write_text("\n".join(lines) + "\n")
    run = told(path, monkeypatch)
    assert run.processes[0].rows.end.tolist() == [1_706_860_208_500_000_000 + n * 10**9 for n in range(1, 30)]
    assert account(run).runtime == pytest.approx(1)
    assert not any("zone" in warning for warning in run.warnings)


@pytest.mark.parametrize("interval", ["log_interval: 10", "  log_interval ............. 10", "    log_interval: 10"])
def test_the_interval_of_a_single_line_is_in_the_configuration(interval, tmp_path):
    run = load(tmp_path / "log", [interval, iteration(10, 60.0)])
    assert run.processes[0].rows.step.tolist() == list(range(1, 11))
    assert account(run).seconds["productive"] == pytest.approx(20)


def below(n, second, late=2.0):
    def front(at):
        return f"[2024-05-06 07:{int(at) // 60:02d}:{at % 60:06.3f}] [INFO] [".replace(".", ",")

    return [
        f"{front(second)}logging.py:96:log_dist] [Rank 0] step={n}, skipped=0, lr=[1e-7], mom=[(0.9, 0.999)]",
        f"{front(second + late)}timer.py:260:stop] epoch=0/micro_step={n}/global_step={n}, RunningAvgSamplesPerSec=7.5",
        iteration(n, 0, 10.0).split("] ")[1],
    ]


def test_the_later_line_of_deepspeed_is_the_time_of_an_iteration(tmp_path, monkeypatch):
    path, lines = tmp_path / "log", []
    for n in range(1, 40):
        lines += below(n, 10.0 * n - (2 if n % 2 else 1), 2.0 if n % 2 else 1.0)
    path.write_text("\n".join(lines) + "\n")
    run = told(path, monkeypatch)
    assert set(np.diff(run.processes[0].rows.end).tolist()) == {10**10}
    assert not any("took longer" in warning for warning in run.warnings)


def test_a_timer_of_deepspeed_that_counts_from_zero_again_dates_no_other_iteration(tmp_path):
    lines = []
    for n in range(101, 109):
        one, two, three = below(n, 10.0 * n - 1000)
        lines += [one, two.replace(f"global_step={n}", f"global_step={n - 100}"), three]
    run = load(tmp_path / "log", lines)
    assert set(np.diff(run.processes[0].rows.end).tolist()) == {10**10}


def test_an_evaluation_that_ran_out_of_time_is_one(tmp_path):
    lines = [iteration(1, 2.0), iteration(2, 4.0), "Exiting during evaluation, timelimit reached", iteration(3, 14.0)]
    assert account(load(tmp_path / "log", lines)).seconds["evaluation"] == 8


@pytest.mark.parametrize(("before", "startup"), [(40, 40), (3600, 3600), (90_000, None)])
def test_a_run_begins_with_the_first_date_of_its_log(before, startup, tmp_path, monkeypatch):
    begin = datetime(2026, 3, 4, 5, 0, 50, tzinfo=UTC) - timedelta(seconds=before)
    first = f"[{begin:%Y-%m-%d %H:%M:%S},250] [INFO] [comm.py:637:init_distributed] cdb=None"
    again = [f"[{begin:%Y-%m-%d %H:%M:%S},250] [INFO] [comm.py:{n}:init] cdb=None" for n in range(600, 700)]
    lines = ["building", first, *again, *(iteration(n, 50.0 + 2 * n) for n in range(1, 30)), *again]
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    ledger = account(told(tmp_path / "log", monkeypatch))
    assert ledger.seconds.get("startup") == (None if startup is None else startup - 0.25)
    assert ledger.seconds["productive"] == 58


@pytest.mark.parametrize(
    "front",
    [
        "[default7]:", "[rank7]: ", "7: ", "\x1b[32m", "[pod/a-0/main] ", "   ", "worker-1  | ", "\ufeff",
        "(Actor pid=311, ip=10.0.0.2) ", "Building:  40%|####      | 4/10 [00:04<00:06,  1.00it/s]", "[1,7]<stderr>:",
    ],
)  # fmt: skip
def test_what_a_launcher_puts_in_front_hides_no_first_date(front, tmp_path, monkeypatch):
    first = f"{front}[2026-03-04 05:00:10,250] [INFO] [comm.py:637:init_distributed] cdb=None"
    lines = [first, *(iteration(n, 50.0 + 2 * n) for n in range(1, 30))]
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    assert account(told(tmp_path / "log", monkeypatch)).seconds["startup"] == 39.75


@pytest.mark.parametrize("year", ["2075", "1969"])
def test_a_run_begins_with_the_first_date_that_can_be(year, tmp_path, monkeypatch):
    lines = [f"[{year}-03-04 05:00:10,250] first", "[2026-03-04 05:00:20,250] [INFO] second"]
    lines += [f"[2026-03-04 05:00:{n},250] other" for n in range(30, 45)]
    (tmp_path / "log").write_text("\n".join([*lines, *(iteration(n, 50.0 + 2 * n) for n in range(1, 30))]) + "\n")
    assert account(told(tmp_path / "log", monkeypatch)).seconds["startup"] == 29.75


def test_what_is_dated_behind_iterations_begins_no_run(tmp_path, monkeypatch):
    first = "[2026-03-04 05:00:01,250] [INFO] [comm.py:637:init_distributed] cdb=None"
    lines = [iteration(1, 52.0), first, *(iteration(n, 50.0 + 2 * n) for n in range(2, 30))]
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    assert set(account(told(tmp_path / "log", monkeypatch)).seconds) == {"productive"}


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("[INFO] [launch.py:348:main] Process 4711 exits successfully.", "finished"),
        ("[ERROR] [launch.py:321:sigkill_handler] ['python', 'main.py'] exits with return code = -9", "failed"),
    ],
)
def test_the_launcher_of_deepspeed_tells_of_the_end(says, reason, tmp_path):
    lines = [*(iteration(n, 2.0 * n) for n in range(1, 6)), f"[2026-03-04 05:00:15,000] {says}"]
    run = load(tmp_path / "log", lines)
    assert [event.reason for event in run.processes[0].events if isinstance(event, Close)] == [reason]
    assert account(run).seconds["shutdown"] == pytest.approx(5)


@pytest.mark.parametrize("loads", [[], timer("load-checkpoint", 3.2)])
def test_a_program_that_begins_again_does_not_overlap_the_one_before(loads, tmp_path):
    def whole(n, second):  # its clock tells whole seconds
        return iteration(n, int(second), 0.3).replace(".000000]", "]")

    lines = ["using world size: 8", *(whole(n, 10 + 0.3 * n) for n in range(1, 10))]
    lines += ["using world size: 8", " loading checkpoint from /c at iteration 2", *loads]
    run = load(tmp_path / "log", [*lines, *(whole(n, 50 + 0.3 * n) for n in range(3, 20))])
    ledger = account(run)
    assert ledger.attempts == 2
    assert not any("overlap" in warning for warning in [*run.warnings, *ledger.warnings])
    assert ledger.seconds.get("checkpoint_restore", 0) == (8 * 3.2 if loads else 0)
