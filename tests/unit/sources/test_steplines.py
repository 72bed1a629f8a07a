"""What the sources of training logs share: how lines are kept, and how many of them are put together."""

import numpy as np
import pytest

from headway.clock import NS_PER_S
from headway.ledger.account import account
from headway.sources import deepspeed
from headway.sources.asked import Asked
from headway.sources.maxtext import source as maxtext
from headway.sources.megatron import source as megatron
from headway.sources.nanogpt import source as nanogpt
from headway.sources.steps import lines as steplines
from headway.sources.steps.line import bare, kept
from headway.sources.steps.lines import StepLines
from headway.sources.torchtitan import source as torchtitan

T = 1_740_000_000 * NS_PER_S
KEPT = {
    "containerd": "{at}.123456789Z stdout F ",
    "containerd, stderr, of a long line": "{at}.123456789Z stderr P ",
    "docker logs -t": "{at}.123456789Z ",
    "kubectl --prefix --timestamps": "[pod/train-0/main] {at}.123456789Z ",
    "journald, short-iso": "{at}+00:00 node-7 python3[4711]: ",
    "journald, short-iso-precise": "{at}.123456+0000 node-7 python3[4711]: ",
}


def iso(second):
    return str(np.datetime64(T // NS_PER_S + second, "s"))


def wrapped(prefix, lines):
    """Return lines as something kept them, the n-th at the second that it names."""
    return "".join(prefix.format(at=iso(second)) + line + "\n" for second, line in lines)


def load(source, path, text):
    path.write_text(text)
    assert source.recognise(path, text.encode()[: 1 << 16]) is None
    (run,) = source.load(path, Asked())
    return run


def ends_s(run):
    return [round(float(end - T) / NS_PER_S, 1) for process in run.processes for end in process.rows.end.tolist()]


MEGATRON = [
    (0, "using world size: 8, data-parallel size: 8"),
    *(
        (10 * n, f" iteration {n:8d}/ 500 | consumed samples: {n * 4:12d} | elapsed time per iteration (ms): 9000.0 |")
        for n in range(1, 6)
    ),
]
NANOGPT = [
    (0, "tokens per iteration will be: 491,520"),
    *((10 * n, f"iter {n - 1}: loss 2.5, time 9000.00ms, mfu 40.00%") for n in range(1, 6)),
]
MAXTEXT = [
    (0, "System Information: Jax Version: 0.8.1"),
    *((10 * n, f"completed step: {n - 1}, seconds: 9.000, TFLOP/s/device: 1.0") for n in range(1, 6)),
]


@pytest.mark.parametrize("prefix", KEPT.values(), ids=list(KEPT))
@pytest.mark.parametrize(
    ("source", "lines"),
    [(megatron.Megatron(), MEGATRON), (nanogpt.NanoGPT(), NANOGPT), (maxtext.MaxText(), MAXTEXT)],
    ids=["megatron", "nanogpt", "maxtext"],
)
def test_the_time_in_front_of_a_line_is_its_time(source, lines, prefix, tmp_path):
    run = load(source, tmp_path / "log", wrapped(prefix, lines))
    fraction = 0.1 if "." in prefix else 0.0
    assert ends_s(run) == [10 * n + fraction for n in range(1, 6)]
    assert run.unknown == {}
    assert account(run).runtime == pytest.approx(45 / 50)
    assert not [text for text in run.warnings if "zone" in text or "year" in text]


@pytest.mark.parametrize("lines", [MEGATRON, NANOGPT, MAXTEXT], ids=["megatron", "nanogpt", "maxtext"])
def test_the_name_of_a_pod_in_front_changes_nothing(lines, tmp_path):
    source = {id(MEGATRON): megatron.Megatron(), id(NANOGPT): nanogpt.NanoGPT()}.get(id(lines), maxtext.MaxText())
    plain = load(source, tmp_path / "log", wrapped("", lines))
    named = load(source, tmp_path / "log", wrapped("[pod/train-0/main] ", lines))
    assert (named.unknown, named.warnings) == (plain.unknown, plain.warnings)
    assert [row.rows.end.tolist() for row in named.processes] == [row.rows.end.tolist() for row in plain.processes]


def test_what_a_line_says_of_itself_comes_first_and_what_kept_it_tells_the_zone(tmp_path):
    path = tmp_path / "log"
    path.write_text(
        "2025-02-19T21:20:05.900000000Z stderr F [2025-02-20 02:50:04,500] a\n"
        "2025-02-19T21:20:06.900000000Z stderr F [2025-02-19 21:20:05+00:00] b\n"
        "2025-02-19T21:20:07.900000000Z stderr F c\n"
        "d\n"
    )
    log = StepLines("nanogpt", path)
    found = [log.stamp(bare(line).text, number) for number, line in log.lines()]
    assert [None if at is None else at - T for at in found] == [4_500_000_000, 5_000_000_000, 7_900_000_000, None]
    assert (log.n_zoned, log.n_local) == (3, 0)


def test_a_run_begins_and_ends_with_the_first_and_the_last_line_that_were_kept(tmp_path):
    lines = [(0, "starting"), *((second + 20, line) for second, line in NANOGPT[1:]), (100, "bye")]
    run = load(nanogpt.NanoGPT(), tmp_path / "log", wrapped(KEPT["containerd"], lines))
    assert account(run).runtime == pytest.approx(45 / 100)


def test_a_time_of_no_sense_in_front_is_said_once_a_line(tmp_path):
    path = tmp_path / "log"
    path.write_text("2025-13-45T21:20:05.9Z stderr F a\n")
    log = StepLines("nanogpt", path)
    assert [log.stamp(bare(line).text, number) for number, line in log.lines()] == [None]
    assert len(log.bad) == 1


def test_what_only_looks_like_it_stays():
    for line in (b"2024-01-02T03:04:05 step 1", b"2024 was a year", b"[pods] x", b"20: iteration 7", b"[pod/"):
        assert kept(line) is None
    assert bare(b"2024-01-02T03:04:05.1Z completed step: 5").text == "completed step: 5"
    assert bare(b"2024-01-02T03:04:05 step 1").text == "2024-01-02T03:04:05 step 1"
    assert bare(b"2024-01-02T03:04:05.1Z stdout F [rank3]: step 1") == ("step 1", 3)


def test_what_comes_before_the_first_iteration_is_not_at_the_end(tmp_path):
    lines = [
        "starting",
        "tokens per iteration will be: 491,520",
        *(f"2025-02-19 21:20:{n:02d},000 iter {n}: loss 2.5, time 1000.00ms" for n in range(9)),
    ]
    run = load(nanogpt.NanoGPT(), tmp_path / "log", "\n".join(lines))
    assert [len(process.rows) for process in run.processes] == [9]


def test_a_log_that_was_copied_later_has_the_times_that_it_says_itself(tmp_path):
    lines = [(n, f"2024-01-01 00:00:{n:02d},000 " + line) for n, line in NANOGPT]
    run = load(nanogpt.NanoGPT(), tmp_path / "log", wrapped(KEPT["containerd"], [(0, "starting"), *lines, (99, "bye")]))
    assert account(run).runtime == pytest.approx(45 / 50)
    assert [text for text in run.warnings if text.startswith("line 2 says another time than that in front of it")]


def test_a_line_kept_days_later_is_not_the_end(tmp_path):
    run = load(nanogpt.NanoGPT(), tmp_path / "log", wrapped(KEPT["containerd"], [*NANOGPT, (200_000, "bye")]))
    assert account(run).runtime == pytest.approx(45 / 50)


@pytest.mark.parametrize(
    "ending", ["Traceback (most recent call last):", "srun: error: n7: task 3: Exited", "slurmstepd: DUE TO TIME LIMIT"]
)
def test_an_ending_without_a_time_follows_the_step_whose_end_has_a_fraction_of_its_second(tmp_path, ending):
    took = [1430 + n % 7 for n in range(40)]

    def at(n):
        return sum(took[: n + 1]) // 1000

    lines = [
        f" [2024-01-02 03:04:{at(n):02d}] iteration {n + 1:8d}/ 99 | consumed samples: 8 | "
        f"elapsed time per iteration (ms): {took[n]}.0 | lm loss: 2.0E+00 |"
        for n in range(40)
    ]
    (tmp_path / "log").write_text("\n".join([*lines, ending, ""]))
    (run,) = megatron.Megatron().load(tmp_path / "log", Asked())
    assert run.processes[0].events[-1].reason in {"failed", "preempted"}
    assert run.processes[0].events[-1].at == run.processes[0].rows.end[-1]


def saving(*, kept=False, timed=True, own=True, at_start=False):
    """Return a log of Megatron that saves for a minute after every tenth of 100 iterations of 10 s."""
    second, lines = 0, []

    def put(text):
        lines.append((f"{iso(second)}.050000000Z stdout F " if kept else "") + text + "\n")

    def clock():
        return iso(second).replace("T", " ")

    put(f"[after model, optimizer, and learning rate scheduler are built] datetime: {clock()} ")
    if at_start:
        second += 40
        put("    load-checkpoint ................................: (30000.00, 30000.00)")
        second += 5
        put(f"[after dataloaders are built] datetime: {clock()} ")
    for n in range(1, 101):
        second += 10
        time = f" [{clock()}]" if own else ""
        put(f"{time} iteration {n:8d}/ 500 | consumed samples: {n:12d} | elapsed time per iteration (ms): 10000.0 |")
        if n % 10 == 0:
            second += 60
            put(f"  successfully saved checkpoint at iteration {n} to out")
            if timed:
                put("    save-checkpoint ................................: (60000.00, 60000.00)")
    return "".join(lines)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("at_start", [False, True])
def test_a_timer_whose_line_was_kept_at_a_time_ended_then(own, at_start, tmp_path):
    plain = account(load(megatron.Megatron(), tmp_path / "log", saving(at_start=at_start)))
    kept = account(load(megatron.Megatron(), tmp_path / "log", saving(kept=True, own=own, at_start=at_start)))
    assert plain.amounts_ns["checkpoint_save"] == 600 * NS_PER_S
    for category in plain.amounts_ns.keys() | kept.amounts_ns.keys():
        amounts = (ledger.amounts_ns.get(category, 0) / NS_PER_S for ledger in (plain, kept))
        assert next(amounts) == pytest.approx(next(amounts), abs=2)
    if at_start:
        assert kept.amounts_ns["checkpoint_restore"] == 30 * NS_PER_S
        assert kept.amounts_ns["startup"] == pytest.approx(15 * NS_PER_S, abs=NS_PER_S)


@pytest.mark.parametrize("many", [True, False])
def test_a_save_without_its_length_lies_where_it_is_told(many, tmp_path, monkeypatch):
    if not many:
        monkeypatch.setattr(steplines, "_FEW", 1 << 40)
    ledger = account(load(megatron.Megatron(), tmp_path / "log", saving(timed=False)))
    assert ledger.amounts_ns["checkpoint_save"] == 540 * NS_PER_S
    assert ledger.amounts_ns.get("unaccounted", 0) == 0


def test_what_is_saved_after_the_training_is_no_startup(tmp_path):
    text = saving(kept=True) + (
        f"{iso(1700)}.050000000Z stdout F [after training is done] datetime: {iso(1700).replace('T', ' ')} \n"
        f"{iso(1800)}.050000000Z stdout F     save-checkpoint ....: (60000.00, 60000.00)\n"
    )
    ledger = account(load(megatron.Megatron(), tmp_path / "log", text))
    assert ledger.amounts_ns["checkpoint_save"] == 660 * NS_PER_S
    assert ledger.amounts_ns.get("startup", 0) == 0


def test_timers_of_one_line_come_one_after_the_other(tmp_path):
    text = saving(kept=True, timed=False) + (
        f"{iso(1800)}.050000000Z stdout F time (ms) | evaluate: 20000.00 | save-checkpoint: 30000.00\n"
    )
    ledger = account(load(megatron.Megatron(), tmp_path / "log", text))
    assert ledger.amounts_ns["evaluation"] == 20 * NS_PER_S


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_a_log_that_repeats_itself_counts_its_saves_once(kept, timed, tmp_path):
    text = "using world size: 8, data-parallel size: 8\n" + saving(kept=kept, timed=timed)
    once = load(megatron.Megatron(), tmp_path / "log", text)
    for again in (text + text, text + "".join(text.splitlines(keepends=True)[50:])):
        twice = load(megatron.Megatron(), tmp_path / "log", again)
        assert account(twice).amounts_ns == account(once).amounts_ns
        assert [process.events for process in twice.processes] == [process.events for process in once.processes]


def test_two_timers_alike_after_one_step_count_both(tmp_path):
    timer = "    evaluate .......................................: (5000.00, 5000.00)\n"
    text = saving() + timer + timer
    ledger = account(load(megatron.Megatron(), tmp_path / "log", text))
    assert ledger.amounts_ns["evaluation"] == 10 * NS_PER_S


def test_a_program_whose_beginning_was_kept_within_the_second_of_its_first_step_began_before_it(tmp_path):
    text = f"{iso(0)}.950000000Z stdout F using world size: 8, data-parallel size: 8\n" + "".join(
        f"{iso(n)}.990000000Z stdout F  [{iso(n).replace('T', ' ')}] iteration {n + 1:8d}/ 500 | "
        "elapsed time per iteration (ms): 900.0 |\n"
        for n in range(20)
    )
    assert len(load(megatron.Megatron(), tmp_path / "log", text).processes) == 1


TITAN = [
    f"[titan] 2025-02-19 21:20:{n:02d},000 - root - INFO - step: {n:2d}  loss:  7.1234  memory: 20.00GiB(25.00%)  "
    f"tps: 1,234  tflops: 9.00  mfu: 41.{n}0%"
    for n in range(1, 9)
]
DEEPSPEED = [
    f"[2025-02-19 21:20:{n:02d},000] [INFO] [timer.py:199:stop] epoch=0/micro_step={n}/global_step={n}, "
    "RunningAvgSamplesPerSec=64.25, CurrSamplesPerSec=64.75, MemAllocated=4.0GB"
    for n in range(1, 9)
]
CUT = {
    "megatron": (megatron.Megatron(), [line for _, line in MEGATRON[1:]], "elapsed time per iteration ("),
    "nanogpt": (nanogpt.NanoGPT(), [line for _, line in NANOGPT], "iter "),
    "maxtext": (maxtext.MaxText(), [line for _, line in MAXTEXT], "completed step:"),
    "torchtitan": (torchtitan.TorchTitan(), TITAN, "step:"),
    "deepspeed": (deepspeed.DeepSpeed(), ["train_batch_size ............. 64", *DEEPSPEED], "global_step="),
}


@pytest.mark.parametrize("name", CUT)
def test_a_last_line_that_is_cut_never_counts_as_shorter(name, tmp_path):
    source, lines, mark = CUT[name]
    path = tmp_path / "log"

    def told(text):
        path.write_text(text)
        (run,) = source.load(path, Asked())
        return run, run.processes[0].rows

    ahead, last = "\n".join(lines[:-1]) + "\n", lines[-1]
    _, before = told(ahead)
    _, whole = told(ahead + last + "\n")
    for cut in range(last.index(mark) + len(mark), len(last)):
        run, rows = told(ahead + last[:cut])
        assert any("the last and has no end: it may be cut" in text for text in run.warnings)
        assert rows.waits.keys() == whole.waits.keys()
        assert len(rows) in {len(before), len(whole)}
        took = (rows.end - rows.start).tolist()
        assert took[: len(before)] == (before.end - before.start).tolist()
        assert took == pytest.approx((whole.end - whole.start)[: len(rows)], rel=0.01)
