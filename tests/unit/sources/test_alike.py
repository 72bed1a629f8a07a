"""Lines that are alike but for their digits: read at once they say what they say one by one."""

import gzip
import random
from pathlib import Path

import numpy as np
import pytest

from headway.errors import SourceError
from headway.sources import deepspeed, files, lightning
from headway.sources.asked import Asked
from headway.sources.maxtext import source as maxtext
from headway.sources.megatron import source as megatron
from headway.sources.nanogpt import source as nanogpt
from headway.sources.steps import lines as steplines
from headway.sources.steps.alike import Alike
from headway.sources.steps.column import Column, Table
from headway.sources.steps.columns import UNKNOWN
from headway.sources.steps.lines import StepLines
from headway.sources.torchtitan import source as torchtitan


def nano(chance):
    every = chance.randrange(5, 60)
    step, lines = 0, ["tokens per iteration will be: 491,520"] * chance.randrange(2)
    front = chance.choice(
        ["", "", "[rank0]: ", "3: ", "2024-01-15T03:01:{:02d}.5Z stdout F ", "[2024-01-15 03:01:{:02d},25] "]
    )
    for n in range(chance.choice([5, 60, 400])):
        took = chance.choice([99.5, 143.25, 1000.0]) + round(chance.random(), 2)
        if n % every == 0 and chance.random() < 0.7:
            lines += [f"step {step}: train loss 4.2101, val loss 4.2099", "saving checkpoint to out"]
            took += 4000
        mfu = chance.choice([", mfu -100.00%", ""]) if n < 3 else f", mfu {40 + chance.random():.2f}%"
        unit = chance.choice(["ms"] * 40 + ["s"])
        lines.append(front.format(n % 60) + f"iter {step}: loss {2 + chance.random():.4f}, time {took:.2f}{unit}{mfu}")
        if chance.random() < 0.02:
            lines.append(
                chance.choice(
                    ["Traceback (most recent call last):", "a word of 7 letters", "iter", "| 0 NVIDIA H1 On |"]
                )
            )
        step += 10 if chance.random() < 0.99 else -40
        step = max(step, 0)
    return lines


def maxes(chance):
    every = chance.randrange(5, 60)
    lines, second = ["System Information: Jax Version: 0.8.1", "Config param steps: 60", "Num_devices: 4"], 0.0
    front = chance.choice(
        [
            "",
            "I1231 23:{:02d}:{:09.6f} 7 a.py:1] ",
            "I0131 10:{:02d}:{:09.6f} 7 a.py:1] ",
            "0: ",
            "2024-01-15 03:{:02d}:{:09.6f} ",
        ]
    )
    for step in range(chance.choice([5, 60, 400])):
        took = chance.choice([1.0, 9.875]) + round(chance.random(), 3)
        second += took
        begin = front.format(int(second // 60) % 60, second % 60)
        if step % every == every - 1:
            lines.append(begin + f"eval metrics after step: {step}, loss=11")
        lines.append(begin + f"completed step: {step}, seconds: {took:.3f}, TFLOP/s/device: {99 + chance.random():.3f}")
        if chance.random() < 0.02:
            lines.append(begin + chance.choice([f"Saved a checkpoint at step {step}.", "7 words", "srun: error: x"]))
    return lines


def metrics(chance):
    lines, step = ["epoch,step,train_loss,val_loss"], 49
    for n in range(chance.choice([5, 60, 400])):
        cell = chance.choice([f"{step}"] * 40 + [f"{step}.0", f"{step}.5", "", "x", "1e3"])
        lines.append(f"{n // 100},{cell},{chance.choice([repr(chance.random()), ''])},")
        if chance.random() < 0.02:
            lines.append(chance.choice(["", "1,2", "a,b,c,d", ",,,"]))
        step = step + 50 if chance.random() < 0.99 else 0
    return lines


def iterations(chance):
    every, has_time = chance.randrange(5, 50), chance.random() < 0.7
    lines, second = ["using world size: 8, data-parallel size: 8"] * chance.randrange(2), 0.0
    kept = chance.choice(["", "", "2024-01-15T03:{:02d}:{:09.6f}Z stdout F ", "[rank0]: "])
    local = chance.choice(["2024-01-15 03", "2024-01-15 04"])

    def time():
        return f"{local}:{int(second // 60) % 60:02d}:{int(second % 60):02d}"

    def put(text):
        lines.append(kept.format(int(second // 60) % 60, second % 60) + text)

    for n in range(1, chance.choice([5, 60, 400])):
        took = chance.choice([1000.0, 250.5]) + chance.randrange(100) / 10
        second += took / 1000
        own = f" [{time()}]" if has_time else ""
        put(f"{own} iteration {n:8d}/ 500 | consumed samples: {8 * n:12d} | elapsed time per iteration (ms): {took} |")
        if n % every == 0 or chance.random() < 0.01:
            second += 3
            if chance.random() < 0.5:
                put(f" validation loss at iteration {n} | lm loss value: 1.0E+00 | lm loss PPL: 1.0E+00 |")
            if chance.random() < 0.5:
                put(f"  successfully saved checkpoint at iteration {n:7d} to out")
            if chance.random() < 0.4:
                put("    save-checkpoint ................................: (3000.00, 3000.00)")
            if chance.random() < 0.2:
                put(f"[after dataloaders are built] datetime: {time()}")
    return lines


def titans(chance):
    every, second, lines = chance.randrange(5, 50), 0.0, []
    rank = chance.choice(["", "[rank0]: ", "[rank{}]: "])

    def put(text):
        time = f"2024-01-15 03:{int(second // 60) % 60:02d}:{second % 60:06.3f}".replace(".", ",")
        lines.append(f"{rank.format(len(lines) % 2)}[titan] {time} - root - INFO - {text}")

    put("Training starts at step 1.")
    for n in range(1, chance.choice([5, 60, 400])):
        second += 1 + chance.random()
        mfu = 40 + chance.random()
        put(f"step: {n:2d}  loss:  7.1234  memory: 20.00GiB(25.00%)  tps: 1,234  tflops: 9.00  mfu: {mfu:.2f}%")
        if n % every == 0 or chance.random() < 0.01:
            second += 3
            if chance.random() < 0.5:
                put(f"validate step: {n:2d}  loss:  7.1234  memory: 20.00GiB(25.00%)  tps: 1,234")
            if chance.random() < 0.5:
                put("Finished saving the checkpoint (synchronously) in 3.00 seconds.")
    return lines


def timers(chance):
    every, second, lines = chance.randrange(5, 50), 0.0, ["  train_batch_size ............. 64"]

    def put(text):
        time = f"2024-01-15 03:{int(second // 60) % 60:02d}:{second % 60:06.3f}".replace(".", ",")
        lines.append(f"[{time}] [INFO] {text}")

    for n in range(10, 10 * chance.choice([5, 60, 400]), 10):
        second += 5 + chance.random()
        put(
            f"[timer.py:199:stop] epoch=0/micro_step={n}/global_step={n}, "
            f"RunningAvgSamplesPerSec={99 + chance.random()}, CurrSamplesPerSec={99 + chance.random()}, "
            "MemAllocated=4.0GB, MaxMemAllocated=10GB"
        )
        if (n // 10) % every == 0:
            put(f"[logging.py:96:log_dist] [Rank 0] [Torch] Checkpoint global_step{n} is about to be saved!")
            second += 3
            put(f"[torch_checkpoint_engine.py:33:commit] [Torch] Checkpoint global_step{n} is ready now!")
    return lines


def damaged(data, chance):
    kind = chance.randrange(8)
    if kind == 0:
        return data[: chance.randrange(len(data))]
    if kind == 1:
        flipped = bytearray(data)
        for _ in range(chance.choice([1, 30])):
            flipped[chance.randrange(len(flipped))] ^= chance.randrange(1, 256)
        return bytes(flipped)
    if kind == 2:
        digits = bytearray(data)
        for place in chance.sample([n for n, byte in enumerate(digits) if 48 <= byte < 58], 5):
            digits[place] = chance.choice(b"0123456789")
        return bytes(digits)
    if kind == 3:
        return data.replace(b"\n", b"\r\n")
    if kind == 4:
        whole = gzip.compress(data, 1)
        return whole[: chance.randrange(len(whole) // 2, len(whole) + 1)]
    lines = data.splitlines(keepends=True)
    if kind == 5:
        chance.shuffle(lines)
    if kind == 6:
        lines.insert(chance.randrange(len(lines)), chance.choice([b"iter " + b"7" * (3 << 20) + b"\n", b"\n" * 5000]))
    return b"".join(lines)


def told(source, path):
    try:
        (run,) = source.load(path, Asked())
    except SourceError as error:
        return error.slug
    processes = [
        (one.open, one.events, *(column.tolist() for column in (one.rows.step, one.rows.start, one.rows.end)))
        for one in run.processes
    ]
    waits = [{name: values.tolist() for name, values in one.rows.waits.items()} for one in run.processes]
    return run.name, run.warnings, run.unknown, processes, waits


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize(
    ("source", "make"),
    [
        (nanogpt.NanoGPT(), nano),
        (maxtext.MaxText(), maxes),
        (lightning.Lightning(), metrics),
        (megatron.Megatron(), iterations),
        (torchtitan.TorchTitan(), titans),
        (deepspeed.DeepSpeed(), timers),
    ],
    ids=["nanogpt", "maxtext", "lightning", "megatron", "torchtitan", "deepspeed"],
)
def test_at_once_says_what_one_by_one_says(source, make, seed, tmp_path, monkeypatch):
    chance = random.Random(seed)
    data = "\n".join(make(chance)).encode() + b"\n" * chance.randrange(2)
    if seed % 3:
        data = damaged(data, chance)
    path = tmp_path / "log"
    path.write_bytes(data)
    at_once = told(source, path)
    monkeypatch.setattr(steplines, "_FEW", 1 << 40)
    assert at_once == told(source, path)


FRONTS = [
    "", "[rank{0}]: ", " {0}: ", "[default{0}]:", "2024-01-15 03:{1}:{2},250 ", "[2024-01-15 03:{1}:{2}] INFO ",
    "2024-01-15T03:{1}:{2}.123456789Z stdout F ", "[pod/a/b] 2024-01-15T03:{1}:{2}.5Z [rank{0}]: ", "[pod/a/b] ",
    "2024/01/15 03:{1}:{2} UTC ",
]  # fmt: skip


def fronts(front, says):
    return "".join(front.format(n % 2, f"{n // 60:02d}", f"{n % 60:02d}") + says.format(n) + "\n" for n in range(600))


@pytest.mark.parametrize("front", FRONTS)
def test_ordinary_lines_are_read_at_once(front, tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_text(fronts(front, "iter {}: loss 2.5, time 143.25ms, mfu 40.00%"))
    each = [told(nanogpt.NanoGPT(), path)]
    monkeypatch.setattr(steplines, "_FEW", 1 << 40)
    each.append(told(nanogpt.NanoGPT(), path))
    monkeypatch.undo()
    monkeypatch.setattr("headway.sources.nanogpt.iterations.Iterations.take", None)
    each.append(told(nanogpt.NanoGPT(), path))
    assert each[0] == each[1] == each[2]


@pytest.mark.parametrize("front", [*FRONTS, "I0115 03:{1}:{2}.250000 7 a.py:1] "])
def test_ordinary_steps_of_maxtext_are_read_at_once(front, tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_text(fronts(front, "completed step: {}, seconds: 1.125, TFLOP/s/device: 99.5"))
    each = [told(maxtext.MaxText(), path)]
    monkeypatch.setattr(steplines, "_FEW", 1 << 40)
    each.append(told(maxtext.MaxText(), path))
    monkeypatch.undo()
    monkeypatch.setattr(maxtext._Log, "_step", None)
    each.append(told(maxtext.MaxText(), path))
    assert each[0] == each[1] == each[2]


@pytest.mark.parametrize(
    "lines",
    [
        [
            "1999-01-15T03:00:00.5Z stdout F iter 1: loss 2, time 1.5ms",
            "2024-01-15T03:00:01.5Z stdout F iter 2: loss 2, time 1.5ms",
        ],
        ["[2,0]<stdout>: iter 1: loss 2, time 1.5ms", "[1,0]<stdout>: iter 2: loss 2, time 1.5ms"],
        ["2024-02-29 03:00:00 iter 1: loss 2, time 1.5ms", "2024-02-30 03:00:00 iter 2: loss 2, time 1.5ms"],
        ["2024-01-01 23:59:59 iter 1: loss 2, time 1.5ms", "2024-01-01 23:59:60 iter 2: loss 2, time 1.5ms"],
        ["2042-01-01 23:59:59 iter 1: loss 2, time 1.5ms", "2943-01-01 23:59:60 iter 2: loss 2, time 1.5ms"],
        ["step 1 iter 1: loss 2, time 1.5ms", "iter 1: loss 2, time 1.5ms 2024-01-15 03:00:00"],
        ["iter 1: loss 2, time 31622400000.5ms", "iter 2: loss 2, time 91622400000.5ms"],
        [
            "2024-01-01 10:00:00+01:00 iter 1: loss 2, time 1.5ms",
            "2024-01-01 10:00:00+02:00 iter 1: loss 2, time 1.5ms",
        ],
    ],
)
def test_where_digits_count_lines_are_read_one_by_one(lines, tmp_path, monkeypatch):
    path = tmp_path / "log"
    for some in (lines, lines[::-1]):
        path.write_text("\n".join(some * 50))
        at_once = told(nanogpt.NanoGPT(), path)
        monkeypatch.setattr(steplines, "_FEW", 1 << 40)
        assert at_once == told(nanogpt.NanoGPT(), path)
        monkeypatch.undo()


@pytest.mark.parametrize("seed", range(5))
def test_among_lines_that_say_nothing(seed, tmp_path, monkeypatch):
    chance = random.Random(seed)
    words = ["iter ", "step", "4", "Traceback (most recent call last):", "saving checkpoint to", "x" * 900, "val loss "]
    words += ["".join(chance.choices("abcdefgh", k=chance.randrange(2, 9))) for _ in range(500)]
    lines = []
    for n in range(300):
        lines.append(f"iter {n}: loss 2.5, time 143.25ms, mfu 40.00%")
        lines += [" ".join(chance.choices(words, k=6)) for _ in range(chance.randrange(9))]
    path = tmp_path / "log"
    path.write_text("\n".join(lines))
    at_once = told(nanogpt.NanoGPT(), path)
    monkeypatch.setattr(steplines, "_FEW", 1 << 40)
    monkeypatch.setattr("headway.sources.steps.alike._MANY", 1 << 40)
    assert at_once == told(nanogpt.NanoGPT(), path)


def numbers(line):
    begin = line.index(b"=") + 1
    return None if b"!" in line else () if b"?" in line else ((begin, len(line.rstrip(b"\n"))), (0, 0))


def test_numbers_are_those_that_python_reads():
    chance = random.Random(1)
    texts = [f"{chance.random() * 10 ** chance.randrange(-3, 9):.{chance.randrange(7)}f}" for _ in range(3000)]
    texts += ["0", "7.", "000", "999999999999999", "0.00000000000001", "123456.123456789"]
    found = Alike(numbers).split(1, "".join(f"x={text}\n" for text in texts).encode())
    assert found.numbers.tolist() == list(range(1, len(texts) + 1))
    assert found.values[0].tolist() == [float(text) for text in texts]
    assert np.isnan(found.values[1]).all()


def test_what_is_no_plain_number_is_read_alone_and_what_says_nothing_not_at_all():
    lines = [
        b"x=1\n",
        b"x=-1\n",
        b"x=1e5\n",
        b"x=?\n",
        b"!=1\n",
        b"x=" + b"1" * 16 + b"\n",
        b"x=1.2.3\n",
        b"x=" + b" " * 900,
    ]
    found = Alike(numbers).split(11, b"".join(line.rstrip(b"\n") + b"\n" for line in lines))
    assert found.numbers.tolist() == [11]
    assert [number for _, number in found.alone()] == [12, 13, 15, 16, 17, 18]
    assert found.line(16) == lines[5]


def test_more_shapes_than_are_remembered(monkeypatch):
    monkeypatch.setattr("headway.sources.steps.alike._MOST", 2)
    alike = Alike(numbers)
    for first in range(5):
        found = alike.split(first, b"".join(b"y" * (n + first) + b"=%d\n" % n for n in range(9)))
        assert found.values[0].tolist() == list(range(9))


@pytest.mark.parametrize("size", [1, 3, 1 << 20, (1 << 20) - 1, (1 << 20) + 1, 5 << 19])
@pytest.mark.parametrize("end", [b"", b"\n", b"\nlast"])
def test_blocks_hold_the_lines(size, end, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"a\n\n" + b"b" * size + b"\nc\r\n" + b"d" * size + b"\n" + b"e\n" * 60_000 + b"f" * size + end)
    found = []
    for first, block in files.blocks(path):
        lines = block.split(b"\n")
        if not lines[-1]:
            lines.pop()
        found += [(first + place, line) for place, line in enumerate(lines)]
    assert found == [(number, line.removesuffix(b"\n")) for number, line in files.lines(path)]


def test_columns_hold_what_was_given():
    chance = random.Random(2)
    table, rows = Table("a", "b", "c"), []
    for _ in range(300):
        some = [
            (7, chance.choice([1, 2]), chance.choice([3, -(1 << 31), 1 << 31, UNKNOWN]))
            for _ in range(chance.randrange(1, 200))
        ]
        rows += some
        if chance.random() < 0.5:
            table.extend(*np.array(some).T)
        else:
            for row in some:
                table.append(row)
    assert len(table) == len(rows)
    for name, values in zip("abc", zip(*rows, strict=True), strict=True):
        assert np.array(table.columns[name]).tolist() == list(values)
    assert table.columns["a"].values().strides == (0,)
    assert table.columns["b"].values().dtype == np.int32


def test_a_column_can_be_changed():
    column = Column()
    column.extend(np.array([5, 5, 5]))
    column[1:] = 1 << 40
    column[0] = -1
    assert (np.array(column).tolist(), column[-1], column[0]) == ([-1, 1 << 40, 1 << 40], 1 << 40, -1)
    with pytest.raises(IndexError):
        column[3]


@pytest.mark.parametrize("bad", [None, "step", "at", "took"])
def test_many_steps_are_those_of_one_after_the_other(bad):
    rng = np.random.default_rng(3)
    given = {
        "step": np.arange(100), "line": np.arange(100) + 7, "at": rng.integers(10**9, 10**12, 100),
        "took": rng.integers(0, 10**9, 100), "rank": np.repeat([0, 1], 50),
    }  # fmt: skip
    given["at"][::7] = given["took"][::5] = UNKNOWN
    if bad:
        given[bad][50] = 1 << 62
    many, each = StepLines("x", Path("x")), StepLines("x", Path("x"))
    for log in (many, each):
        log.step(1, line=1)
    many.steps(**given, waits={"source": np.arange(100)})
    for n in range(100):
        values = {name: None if column[n] == UNKNOWN else int(column[n]) for name, column in given.items()}
        waits = {"source": n}
        each.step(
            values["step"],
            line=values["line"],
            at_ns=values["at"],
            took_ns=values["took"],
            rank=values["rank"],
            waits=waits,
        )
    assert len(many) == len(each)
    for name in many.columns:
        assert np.array(many.columns[name]).tolist() == np.array(each.columns[name]).tolist()
    assert (many.waits, many.bad.sentences()) == (each.waits, each.bad.sentences())
    for name in ("earliest", "latest", "opening", "last_at"):
        assert getattr(many, name) == getattr(each, name)
