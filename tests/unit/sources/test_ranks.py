"""Logs without a clock in which several ranks tell the same: it counts once."""

import pytest

from headway.ledger.account import account
from headway.sources.asked import Asked
from headway.sources.megatron.source import Megatron


def load(path, lines):
    path.write_text("\n".join(lines) + "\n")
    (run,) = Megatron().load(path, Asked())
    return run


def iteration(n, skipped=0, took=2.0):
    return (
        f" iteration {n:8d}/     300 | consumed samples: {n * 512:12d} | elapsed time per iteration (ms): "
        f"{1000 * took:.1f} | learning rate: 1.0E-04 | number of skipped iterations: {skipped:3d} | "
        "number of nan iterations:   0 |"
    )


def timer(name, took):
    return f"    {name} ................................: ({990 * took:.2f}, {1000 * took:.2f})"


def training():
    first = ["[after megatron is initialized] datetime: 2026-01-02 03:04:05", "time (ms) | load-checkpoint: 5000.00"]
    lines = [*first, "[before the start of training step] datetime: 2026-01-02 03:05:05"]
    for n in range(1, 31):
        lines += [iteration(n, int(n == 7)), "time (ms) | forward: 7.00 | batch-generator: 250.00"]
        if n % 10 == 0:
            lines += [f"  successfully saved checkpoint at iteration {n} to /c", timer("save-checkpoint", 3.0)]
    again = ["Traceback (most recent call last):", "using world size: 32, data-parallel-size: 4"]
    again += [" loading checkpoint from /c at iteration 30", timer("load-checkpoint", 4.0)]
    return [*lines, *again, *(iteration(n) for n in range(31, 41))]


@pytest.mark.parametrize("front", ["[default{}]:", "[rank{}]: ", " {}: "])
@pytest.mark.parametrize("turns", [1, 2])
def test_what_ranks_tell_counts_once(front, turns, tmp_path):
    alone = load(tmp_path / "log", training())
    lines = training()
    some = [lines[begin : begin + turns] for begin in range(0, len(lines), turns)]
    told = [front.format(rank) + line for few in some for rank in range(4) for line in few]
    run = load(tmp_path / "log", told)
    assert account(run).amounts_ns == account(alone).amounts_ns
    assert len(run.processes) == len(alone.processes) == 2
    assert [w for w in run.warnings if "ranks" not in w] == list(alone.warnings)
    assert any(w.startswith("1 iterations were skipped") for w in run.warnings)


def test_what_ranks_tell_that_do_not_say_who_they_are_counts_once(tmp_path):
    alone = account(load(tmp_path / "log", training()[3:])).amounts_ns
    run = load(tmp_path / "log", [line for line in training()[3:] for _ in range(4)])
    assert account(run).amounts_ns == alone
    assert any(w.startswith("1 iterations were skipped") for w in run.warnings)


def test_of_ranks_that_measure_otherwise_the_one_whose_steps_count_is_taken(tmp_path):
    told = [iteration(1), timer("evaluate", 4.0), timer("evaluate", 4.0), iteration(2)]
    lines = [f"[default{rank}]:" + line.replace("4000", f"400{rank}") for line in told for rank in range(4)]
    assert account(load(tmp_path / "log", lines)).seconds["evaluation"] == 8


def test_what_another_rank_alone_tells_is_taken_from_it(tmp_path):
    told = [f"[default7]:{iteration(n)}" for n in range(1, 5)]
    for rank, took in ((0, 3.0), (1, 5.0)):
        told.insert(2, f"[default{rank}]:{timer('save-checkpoint', took)}")
    told.insert(3, f"[default1]:{timer('save-checkpoint', 5.0)}")
    assert account(load(tmp_path / "log", told)).seconds["checkpoint_save"] == 10


def test_two_timers_alike_after_one_step_count_both(tmp_path):
    lines = [iteration(1), timer("evaluate", 4.0), timer("evaluate", 4.0), iteration(2)]
    assert account(load(tmp_path / "log", lines)).seconds["evaluation"] == 8
    twice = [line for line in lines for _ in range(2)]
    assert account(load(tmp_path / "log", twice)).seconds["evaluation"] == 8


def test_the_same_step_again_in_another_attempt_saves_again(tmp_path):
    saved = ["  successfully saved checkpoint at iteration 2 to /c", timer("save-checkpoint", 3.0)]
    again = ["using world size: 8", " loading checkpoint from /c at iteration 1"]
    lines = [iteration(1), iteration(2), *saved, *again, iteration(2), *saved]
    assert account(load(tmp_path / "log", lines)).seconds["checkpoint_save"] == 48


def test_a_save_that_another_rank_tells_behind_its_timer_is_the_same(tmp_path):
    saved = "  successfully saved checkpoint from iteration 2 to /c"
    lines = [f"[default7]:{iteration(n)}" for n in (1, 2)]
    lines += [f"[default0]:{saved}", f"[default0]:{timer('save-checkpoint', 3.0)}", f"[default1]:{saved}"]
    run = load(tmp_path / "log", [*lines, f"[default7]:{iteration(3)}"])
    assert account(run).seconds["checkpoint_save"] == 3
    assert not any("length" in warning for warning in run.warnings)
