"""Training logs of torchtitan, MaxText, nanoGPT, the HF Trainer, Lightning and TensorBoard, and their traps."""

import gzip
import json
import random
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from data import real
from headway.errors import SourceError
from headway.ledger.account import account
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.hftrainer import document as hfdocument
from headway.sources.hftrainer import source as hftrainer
from headway.sources.hftrainer.source import MOST_STEPS, HFTrainer
from headway.sources.lightning import Lightning
from headway.sources.maxtext.source import MaxText
from headway.sources.nanogpt.source import NanoGPT
from headway.sources.steps import lines as steplines
from headway.sources.tensorboard import source as tensorboard
from headway.sources.tensorboard import tfrecord
from headway.sources.tensorboard.source import TRIED, TensorBoard
from headway.sources.tensorboard.tfrecord import checksum, checksums
from headway.sources.torchtitan import source as torchtitan
from headway.sources.torchtitan.source import TorchTitan

SAMPLES = Path(__file__).parents[2] / "contract" / "samples"


def load(source, path, **asked):
    assert source.recognise(path, files.head(path)) is None
    return source.load(path, Asked(**asked))


def of_text(source, tmp_path, text, name="log", **asked):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    (run,) = load(source, path, **asked)
    return run, account(run)


def lengths(run):
    return [(end - start) / 1e9 for p in run.processes for start, end in zip(p.rows.start, p.rows.end, strict=True)]


def said(run):
    return " | ".join((*run.warnings, *(text for process in run.processes for text in process.warnings)))


def told(source, path):
    """Return all that a source says of a file."""
    try:
        (run,) = source.load(path, Asked())
    except SourceError as error:
        return str(error)
    processes = []
    for process in run.processes:
        rows = process.rows
        columns = {"step": rows.step, "start": rows.start, "end": rows.end, **rows.waits}
        processes.append((process.open, process.events, {name: column.tolist() for name, column in columns.items()}))
    return processes, run.warnings, run.unknown


def damaged(lines, chance):
    """Return lines of which some are left out, told again, cut, put elsewhere or have another character."""
    lines = list(lines)
    for _ in range(chance.randrange(1, 6)):
        place, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        line = lines[place]
        at = chance.randrange(len(line))
        lines[place : place + 1] = chance.choice([
            [],
            [line, line],
            [line[:at] + line[at + 1 :]],
            [line[:at] + chance.choice([b"9", b"0", b".", b" ", b"x", b"-", b"\x1b[0m", b"\xff"]) + line[at + 1 :]],
            [line.rstrip(b"\n"), lines[other]],
            [lines[other]],
        ])  # fmt: skip
    return b"".join(lines)


# Hugging Face Trainer


def state(*entries, **top):
    return json.dumps({"global_step": 20, "log_history": [*entries], "max_steps": 20, **top}, indent=2)


LOSS = {"loss": 1.0, "epoch": 1.0, "step": 10}
EVAL = {"eval_loss": 1.0, "eval_runtime": 2.0, "step": 10}
END = {"train_runtime": 12.0, "train_loss": 1.0, "step": 20}


def test_hf_real_state():
    run, ledger = (found := load(HFTrainer(), real("logs", "hf_trainer_state.json"))[0]), account(found)
    assert ledger.steps.executed == 12030
    assert ledger.seconds == {"evaluation": pytest.approx(1131.061, abs=1e-3)}
    assert sum(len(process.events) - 1 for process in run.processes) == 186
    assert ledger.runtime is None
    assert "how long steps did" in ledger.unknown["R"]


def test_hf_with_a_runtime_has_a_window(tmp_path):
    run, ledger = of_text(HFTrainer(), tmp_path, state(LOSS, EVAL, END), devices=4)
    assert ledger.seconds == {"productive": 40.0, "evaluation": 8.0}
    assert ledger.runtime == pytest.approx(10 / 12)
    assert lengths(run) == [0.5] * 20
    (span, close) = run.processes[0].events
    assert (span.start, close.at) == (5 * 10**9, 12 * 10**9)


def test_hf_an_evaluation_after_the_end_is_beside_the_runtime(tmp_path):
    late = {"eval_runtime": 3.0, "step": 20}
    _, ledger = of_text(HFTrainer(), tmp_path, state(LOSS, EVAL, END, late))
    assert ledger.seconds == {"productive": 10.0, "evaluation": 5.0}


def test_hf_two_trainings_of_one_history_are_two_attempts(tmp_path):
    text = state(END, {"eval_runtime": 1.0, "step": 30}, {**END, "step": 40, "train_runtime": 11.0}, global_step=40)
    run, ledger = of_text(HFTrainer(), tmp_path, text)
    assert len(run.processes) == ledger.attempts == 2
    assert ledger.steps.retained == 40
    assert ledger.seconds == {"productive": 22.0, "evaluation": 1.0}


def test_hf_resumed_is_unknown(tmp_path):
    _, ledger = of_text(HFTrainer(), tmp_path, state({**EVAL, "eval_runtime": 13.0}, END))
    assert "resumed" in ledger.unknown["R"]
    assert ledger.seconds == {"evaluation": 13.0}


def trained(resumed=0, steps=1000, every=50, scale=1.0, **top):
    """Return a state whose losses fall, and are logged as the trainer does: since it was resumed, at most."""
    loss = [4 / (1 + step / 200) + step % 7 / 50 for step in range(1, steps + 1)]
    ends = [*range(every, steps + 1, every)]
    begins = [resumed if end - every < resumed < end else end - every for end in ends]
    entries = [
        {"loss": round(scale * sum(loss[begin:end]) / (end - begin), 4), "epoch": round(end / 125, 2), "step": end}
        for begin, end in zip(begins, ends, strict=True)
    ]
    end = {"train_runtime": 100.0, "train_loss": sum(loss[resumed:]) / steps, "epoch": 8.0, "step": steps}
    return json.dumps({"global_step": steps, "max_steps": steps, **top, "log_history": [*entries, end]})


@pytest.mark.parametrize(
    ("resumed", "top"),
    [
        (600, {"save_steps": 200}),
        (950, {}),
        (50, {}),
        (375, {"save_steps": 500}),
        (500, {"steps": 1013, "save_steps": 500}),
    ],
)
def test_hf_losses_tell_that_it_was_resumed(tmp_path, resumed, top):
    _, ledger = of_text(HFTrainer(), tmp_path, trained(resumed, **top))
    assert "the training was resumed, and train_runtime is of its last part alone" in ledger.unknown["R"]
    about = int(ledger.unknown["R"].partition("from about ")[2].partition(" on")[0])
    assert abs(about - 1 - resumed) <= 20 * ("steps" in top)
    assert ledger.seconds == {}


@pytest.mark.parametrize("top", [{}, {"every": 7}, {"steps": 1013}, {"every": 300}, {"every": 1, "steps": 9}])
def test_hf_losses_of_a_training_that_was_not_resumed(tmp_path, top):
    run, ledger = of_text(HFTrainer(), tmp_path, trained(**top))
    assert (ledger.unknown.get("R"), ledger.seconds) == (None, {"productive": 100.0})
    assert "train_loss" not in said(run)


def test_hf_losses_that_are_logged_otherwise_are_a_warning(tmp_path):
    for text in (trained(scale=4.0, save_steps=500), trained(777, save_steps=500)):
        run, ledger = of_text(HFTrainer(), tmp_path, text)
        assert ledger.seconds == {"productive": 100.0}
        assert "if they are not logged otherwise, the training was resumed there" in said(run)


def test_hf_losses_that_do_not_say_all_tell_nothing(tmp_path):
    whole = json.loads(trained(600))
    entries = whole["log_history"]
    few, holes, none = entries[-3:], [*entries[:4], *entries[6:]], [{**entries[0], "loss": 0.0}, *entries[1:]]
    odd, back = [{**entries[0], "loss": float("nan")}, *entries[1:]], [entries[1], entries[0], *entries[2:]]
    for history in (few, holes, none, odd, back):
        run, ledger = of_text(HFTrainer(), tmp_path, json.dumps({**whole, "log_history": history}))
        assert ledger.seconds == {"productive": 100.0}
        assert "train_loss" not in said(run)


def test_hf_second_training_that_was_resumed(tmp_path):
    first, second = json.loads(trained())["log_history"], json.loads(trained(500))["log_history"]
    later = [{**entry, "step": entry["step"] + 1000} for entry in second]
    later[-1]["train_loss"] /= 2
    _, ledger = of_text(HFTrainer(), tmp_path, state(*first, *later, global_step=2000))
    assert "from about 1501 on" in ledger.unknown["R"]


def test_hf_speeds_tell_how_long_a_state_took(tmp_path):
    entries = [
        {"loss": 1.0, "train_speed(iter/s)": 2.0, "step": 10},
        {"loss": 1.0, "train_speed(iter/s)": 1.6, "step": 20},
    ]
    run, ledger = of_text(HFTrainer(), tmp_path, state(entries[0], EVAL, entries[1], max_steps=90))
    assert ledger.seconds == {"productive": 10.5, "evaluation": 2.0}
    assert "saved at step 20 of 90" in said(run)
    late = {"eval_runtime": 3.0, "step": 20}
    _, ledger = of_text(HFTrainer(), tmp_path, state(entries[0], EVAL, entries[1], late, max_steps=90))
    assert ledger.seconds == {"productive": 10.5, "evaluation": 5.0}
    late = {"eval_runtime": 3.0, "step": 20, "train_speed(iter/s)": 1.25}
    _, ledger = of_text(HFTrainer(), tmp_path, state(entries[0], EVAL, entries[1], late, max_steps=90))
    assert ledger.seconds == {"productive": 11.0, "evaluation": 5.0}
    entries[1]["train_speed(iter/s)"] = 5.0
    _, ledger = of_text(HFTrainer(), tmp_path, state(*entries, max_steps=90))
    assert "begins anew" in ledger.unknown["R"]


def test_hf_a_state_without_evaluations_claims_none(tmp_path):
    _, ledger = of_text(HFTrainer(), tmp_path, state(LOSS))
    assert ledger.unknown["R"].startswith("the file does not say how long steps took")


def test_hf_what_comes_after_the_object_is_said(tmp_path):
    run, ledger = of_text(HFTrainer(), tmp_path, state(LOSS, EVAL, END) + "\n\n{}")
    assert ledger.seconds == {"productive": 10.0, "evaluation": 2.0}
    assert "what comes after it is left out" in said(run)
    assert "left out" not in said(of_text(HFTrainer(), tmp_path, state(LOSS, EVAL, END) + " \n")[0])


@pytest.mark.parametrize("value", ['"x"', "NaN", "-1", "1e999", "true", "null", "9" * 400, "9223372036854775807"])
def test_hf_odd_runtimes_are_left_out_and_said(tmp_path, value):
    run, ledger = of_text(HFTrainer(), tmp_path, state(LOSS, EVAL).replace("2.0", value))
    assert ledger.seconds == {}
    assert "entry 2 is with a runtime that cannot be" in said(run)


def test_hf_cut_counts_up_to_there(tmp_path):
    text = state(LOSS, EVAL, END)
    run, ledger = of_text(HFTrainer(), tmp_path, text[: text.index("train_runtime")])
    assert "breaks off or is damaged in line" in said(run)
    assert ledger.seconds == {"evaluation": 2.0}
    assert ledger.steps.executed == 20


def test_hf_long_values_and_a_byte_order_mark(tmp_path):
    entries = [{"step": n, "note": "ü" * 999, "eval_runtime": 0.5} for n in range(1, 2000)]
    text = json.dumps({"log_history": entries, "global_step": 2000}, ensure_ascii=False)
    _, ledger = of_text(HFTrainer(), tmp_path, b"\xef\xbb\xbf" + text.encode())
    assert ledger.seconds == {"evaluation": 999.5}
    assert ledger.steps.executed == 2000


@pytest.mark.parametrize("text", [state(global_step=0), state(global_step=MOST_STEPS + 1), '{"log_history": ['])
def test_hf_without_a_step_is_an_error(tmp_path, text):
    (tmp_path / "log").write_text(text)
    with pytest.raises(SourceError) as caught:
        load(HFTrainer(), tmp_path / "log")
    assert caught.value.slug == "no-runs"


def test_hf_pieces_of_any_size_say_the_same(tmp_path, monkeypatch):
    path = tmp_path / "log"
    path.write_text(state(*({"eval_runtime": 0.1, "step": n} for n in range(0, 21, 3)), LOSS, END, EVAL))
    whole = told(HFTrainer(), path)
    monkeypatch.setattr(hftrainer, "_AT_ONCE", 3)
    monkeypatch.setattr(hfdocument, "_PIECE", 7)
    monkeypatch.setattr(hfdocument.Document._more, "__defaults__", (7,))
    assert told(HFTrainer(), path) == whole


def test_hf_rows_have_no_overlap(tmp_path):
    run, _ = of_text(HFTrainer(), tmp_path, state(*({"eval_runtime": 0.1, "step": n} for n in range(0, 21, 3)), END))
    rows = run.processes[0].rows
    assert np.all(rows.start[1:] >= rows.end[:-1])


# TensorBoard


def field(name, value):
    if isinstance(value, float):
        return bytes([name << 3 | 1]) + struct.pack("<d", value)
    if isinstance(value, int):
        return bytes([name << 3]) + varint(value)
    return bytes([name << 3 | 2]) + varint(len(value)) + value


def varint(number):
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def scalar(tag, value):
    return field(1, field(1, tag.encode()) + b"\x15" + struct.pack("<f", value))


def tensor(tag, value, *, shape=b"", kind=1):
    return field(
        1, field(1, tag.encode()) + field(8, field(1, kind) + field(2, shape) + field(4, struct.pack("<f", value)))
    )


def event(wall, step=None, summary=None, **other):
    body = field(1, float(wall)) + (b"" if step is None else field(2, step))
    if summary is not None:
        body += field(5, summary)
    for name, value in other.items():
        body += field({"version": 3, "session": 7}[name], value)
    return body


def record(data):
    size = struct.pack("<Q", len(data))
    return size + struct.pack("<I", checksum(size)) + data + struct.pack("<I", checksum(data))


T0 = 1_700_000_000.0
VERSION = event(T0, version=b"brain.Event:2")


def board(*events, begin=VERSION):
    return b"".join(record(one) for one in (begin, *events))


def points(first, last, every=10, start=T0, each=2.0, tag="train/loss"):
    return [event(start + each * k, step, scalar(tag, 1.0)) for k, step in enumerate(range(first, last + 1, every), 1)]


def test_tb_sample_is_what_is_made_here(tmp_path):
    data = board(*sample_events())
    assert (SAMPLES / "tensorboard.events").read_bytes() == data


def sample_events():
    for k in range(1, 9):
        yield event(T0 + 10 + 4 * k, 10 * k, scalar("train/lr", 0.1))
        yield event(T0 + 10 + 4 * k + 0.125, 10 * k, scalar("train/loss", 1 / k))
        if k == 4:
            yield event(T0 + 10 + 4 * k + 1.5, 10 * k, scalar("eval/loss", 0.5) + scalar("eval/runtime", 1.25))


def test_tb_sample(tmp_path):
    (run,) = load(TensorBoard(), SAMPLES / "tensorboard.events")
    ledger = account(run)
    assert ledger.steps.executed == 80
    assert ledger.seconds == {"startup": 14.125, "evaluation": 1.25, "productive": 26.75}
    assert "'train/loss'" in said(run)


def test_tb_checksums_of_long_and_short_records_fit():
    data = bytes(range(256)) * 20
    sizes = [0, 1, 3, 4, 64, 65, 511, 512, 513, 1024, 5000]
    got = checksums(np.frombuffer(data, np.uint8), np.full(len(sizes), 7), np.array(sizes))
    assert got.tolist() == [checksum(data[7 : 7 + size]) for size in sizes]


def test_tb_a_step_back_is_another_attempt(tmp_path):
    data = board(*points(10, 50), *points(30, 80, start=T0 + 100))
    _, ledger = of_text(TensorBoard(), tmp_path, data)
    assert ledger.attempts == 2
    assert ledger.steps.executed == 110
    assert ledger.steps.reworked == 30
    assert ledger.seconds["recovery"] == pytest.approx(92)


def test_tb_files_one_after_the_other_are_attempts(tmp_path):
    again = event(T0 + 100, version=b"brain.Event:2")
    _, ledger = of_text(TensorBoard(), tmp_path, board(*points(10, 50), again, *points(60, 80, start=T0 + 100)))
    assert ledger.attempts == 2
    assert ledger.steps.reworked == 0
    assert ledger.seconds["recovery"] == pytest.approx(90)


def test_tb_scalars_of_tensors_count_and_others_do_not(tmp_path):
    vector = [event(T0 + k, k, tensor("weights", 1.0, shape=field(2, field(1, 3)))) for k in range(1, 9)]
    scalars = [event(T0 + k, k, tensor("epoch_loss", 1.0)) for k in range(1, 9)]
    text = event(T0, 0, tensor("note", 1.0, kind=7))
    run, ledger = of_text(TensorBoard(), tmp_path, board(text, *vector, *scalars))
    assert ledger.steps.executed == 8
    assert lengths(run) == [0, *[1.0] * 7]


def test_tb_losses_of_the_training_go_before_others(tmp_path):
    other = points(1, 90, every=1, tag="epoch"), points(5, 90, every=5, tag="val/loss")
    run, ledger = of_text(TensorBoard(), tmp_path, board(*other[0], *other[1], *points(10, 90, tag="loss/total")))
    assert "'loss/total'" in said(run)
    assert ledger.steps.executed == 90


def test_tb_many_points_are_chosen_from_while_they_come(tmp_path):
    both = [event(T0 + k, k, scalar("lr", 1.0) + scalar("loss", 1.0)) for k in range(1, 3 * TRIED)]
    _, ledger = of_text(TensorBoard(), tmp_path, board(*both))
    assert ledger.steps.executed == 3 * TRIED - 1


@pytest.mark.parametrize("tried", [4, TRIED])
def test_tb_a_file_of_evaluations_alone_has_no_steps(tried, tmp_path, monkeypatch):
    monkeypatch.setattr(tensorboard, "TRIED", tried)
    tags = scalar("eval/loss", 0.5) + scalar("eval/runtime", 30.0) + scalar("train/epoch", 3.0)
    evaluated = event(T0 + 40, 1000, tags), event(T0 + 80, 1000, tags)
    run, ledger = of_text(TensorBoard(), tmp_path, board(*evaluated))
    assert (ledger.steps.executed, ledger.attempts) == (0, 1)
    assert ledger.seconds["evaluation"] == 60
    assert "it has no steps" in said(run)
    run, ledger = of_text(TensorBoard(), tmp_path, board(event(T0 + 40, 1000, scalar("val/loss", 1.0))))
    assert ledger.steps.executed == 1


def test_tb_what_is_told_of_a_place_is_of_a_record(tmp_path):
    run, _ = of_text(TensorBoard(), tmp_path, board(*points(10, 90)))
    assert "what the steps of record 2 took" in said(run)
    assert "line 2" not in said(run)


@pytest.mark.parametrize("seed", range(20))
def test_tb_plain_scalars_at_once_and_one_by_one_say_the_same(seed, tmp_path, monkeypatch):
    chance = random.Random(seed)
    events = [event(T0, version=b"brain.Event:2")]
    for k in range(1, 60):
        events.append(event(T0 + k, k, scalar("train/loss", 1.0)))
        if chance.random() < 0.3:
            events.append(event(T0 + k, k, scalar(chance.choice(["lr", "eval/runtime", "train/lost"]), 0.25)))
        if chance.random() < 0.1:
            events.append(event(T0 + k, k, chance.choice([tensor, scalar])("train/loss", 1.0) + scalar("lr", 1.0)))
        if chance.random() < 0.1:
            events.append(event(chance.choice([T0 + k, -1.0, float("nan")]), -k, scalar("train/loss", 1.0)))
    for _ in range(4):
        place = chance.randrange(20, len(events))
        data = bytearray(events[place])
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        events[place] = bytes(data)
    whole = bytearray(b"".join(record(one) for one in events))
    if seed % 2:
        whole[chance.randrange(len(whole))] ^= 1
    path = tmp_path / "log"
    path.write_bytes(whole)
    monkeypatch.setattr(tensorboard, "TRIED", 8)
    monkeypatch.setattr(tfrecord, "_CHUNK", 700)
    at_once = told(TensorBoard(), path)

    def with_care(some, *_others):
        return np.zeros(len(some), np.uint8), np.zeros(len(some), np.int64), np.zeros(len(some), np.int64)

    monkeypatch.setattr(tensorboard, "_plain", with_care)
    assert told(TensorBoard(), path) == at_once


def test_tb_damaged_data_is_left_out_and_said(tmp_path):
    data = bytearray(board(*points(1, 20, every=1)))
    data[-10] ^= 1
    run, ledger = of_text(TensorBoard(), tmp_path, bytes(data))
    assert ledger.steps.executed == 19
    assert "record 21 is of a checksum that does not fit, left out" in said(run)


def test_tb_a_damaged_length_ends_the_reading(tmp_path):
    whole = points(1, 20, every=1)
    at = len(board(*whole[:9]))
    data = bytearray(board(*whole))
    data[at] ^= 1
    run, ledger = of_text(TensorBoard(), tmp_path, bytes(data))
    assert ledger.steps.executed == 9
    assert "record 11 is of a length whose checksum does not fit; nothing after it is read" in said(run)


@pytest.mark.parametrize("cut", range(1, 60))
def test_tb_cut_anywhere_says_so(tmp_path, cut):
    data = board(*points(1, 20, every=1))
    run, ledger = of_text(TensorBoard(), tmp_path, data[:-cut])
    assert ledger.steps.executed == 19 or cut > len(record(points(1, 1, every=1)[0]))
    assert "cut off" in said(run) or ledger.steps.executed == 19


def test_tb_impossible_times_and_steps_are_left_out(tmp_path):
    odd = [event(wall, 99, scalar("train/loss", 1.0)) for wall in (float("nan"), -1.0, 1e300)]
    back = event(T0 + 50, -5, scalar("train/loss", 1.0))
    run, ledger = of_text(TensorBoard(), tmp_path, board(*points(1, 20, every=1), *odd, back))
    assert ledger.steps.executed == 20
    assert "3 records are no event, left out" in said(run)
    assert "record 25 is no step, left out" in said(run)


def test_tb_records_that_are_no_events_are_left_out(tmp_path):
    run, ledger = of_text(TensorBoard(), tmp_path, board(*points(1, 20, every=1), b"\xff" * 20, b"\x0a\x7f", b"\x0b"))
    assert ledger.steps.executed == 20
    assert "3 records are no event, left out" in said(run)


def test_tb_without_a_scalar_is_an_error(tmp_path):
    (tmp_path / "log").write_bytes(board())
    with pytest.raises(SourceError) as caught:
        load(TensorBoard(), tmp_path / "log")
    assert caught.value.slug == "no-runs"


# nanoGPT and its speedrun


def timed(*rows, kind="train", total=100):
    return "".join(f"step:{step}/{total} {kind}_loss:3.0 train_time:{ms}ms step_avg:1.00ms\n" for step, ms in rows)


def iters(*rows):
    return "".join(f"iter {step}: loss 2.0, time {ms:.2f}ms{mfu}\n" for step, ms, mfu in rows)


def test_nanogpt_real_speedrun():
    (run,) = load(NanoGPT(), real("logs", "nanogpt_speedrun.txt"))
    ledger = account(run)
    took = np.array(lengths(run))
    assert ledger.steps.executed == len(took) == 3200
    assert took.sum() == pytest.approx(462.573, abs=1e-6)
    assert np.median(took) == pytest.approx(0.143)
    assert np.median(took) * len(took) / took.sum() == pytest.approx(0.9892, abs=5e-5)
    assert ledger.seconds == {"productive": pytest.approx(8 * 462.573), "startup": pytest.approx(8 * 7.792)}
    assert ledger.runtime is None
    assert run.processes[0].open.devices == 8
    assert run.processes[0].open.accelerator == "NVIDIA H100 80GB HBM3"
    assert load(NanoGPT(), real("logs", "nanogpt_speedrun.txt"), devices=3)[0].processes[0].open.devices == 3


def test_nanogpt_sample(tmp_path):
    (run,) = load(NanoGPT(), SAMPLES / "nanogpt.log")
    ledger = account(run)
    assert ledger.steps.executed == 101
    assert ledger.seconds["compile"] == 18.25
    assert ledger.seconds["evaluation"] == 12.0
    assert ledger.program == pytest.approx(0.38, abs=0.01)
    assert ledger.unknown["R"]
    assert [event.step for event in run.processes[0].events if hasattr(event, "step")] == [49, 99]


def test_nanogpt_lines_of_validation_end_the_step_they_name(tmp_path):
    text = timed((1, 10), (2, 20)) + timed((2, 25), kind="val") + timed((3, 40))
    run, _ = of_text(NanoGPT(), tmp_path, text)
    assert lengths(run) == [0.010, 0.015, 0.015]


def test_nanogpt_validation_alone_tells_of_many_steps(tmp_path):
    text = timed((0, 0), (50, 5000), (100, 11000), kind="val")
    run, ledger = of_text(NanoGPT(), tmp_path, text)
    assert ledger.steps.executed == 100
    assert lengths(run) == [0.1] * 50 + [0.12] * 50
    assert run.processes[0].events[-1].reason == "finished"


def test_nanogpt_warm_up_is_no_training_time(tmp_path):
    run, ledger = of_text(NanoGPT(), tmp_path, timed((1, 6000), (2, 7000), (3, 100), (4, 200), total=9))
    assert ledger.seconds == {"productive": 0.2, "startup": 7.0}
    assert ledger.steps.executed == 4
    assert "begins anew after step 2 in line 3" in said(run)


def test_nanogpt_a_log_that_is_appended_has_attempts(tmp_path):
    one = timed((0, 0), kind="val") + timed((1, 100), (2, 200), (3, 300))
    _, ledger = of_text(NanoGPT(), tmp_path, one + one + timed((4, 400)))
    assert ledger.attempts == 2
    assert ledger.steps.reworked == 3
    assert ledger.seconds == {"productive": pytest.approx(0.4), "rework": pytest.approx(0.3)}


def test_nanogpt_iterations_resumed_are_another_attempt(tmp_path):
    rows = [(step, 100.0, "") for step in range(6)]
    text = iters(*rows) + "Traceback (most recent call last):\n" + iters(*((step, 100.0, "") for step in (4, 5, 6)))
    _, ledger = of_text(NanoGPT(), tmp_path, text)
    assert ledger.attempts == 2
    assert ledger.steps.reworked == 2
    assert ledger.program is None


def test_nanogpt_the_usual_iteration_with_an_evaluation_is_split(tmp_path):
    text = iters((0, 100.0, ""), (1, 100.0, "")) + "step 2: train loss 2.0, val loss 2.1\n"
    run, ledger = of_text(NanoGPT(), tmp_path, text + iters((2, 900.0, ""), (3, 100.0, "")))
    assert ledger.seconds == {"productive": pytest.approx(0.4), "evaluation": pytest.approx(0.8)}
    assert "beyond the median" in said(run)


def test_nanogpt_an_evaluation_nobody_times_is_said(tmp_path):
    text = iters((0, 100.0, ""), (10, 100.0, "")) + "step 15: train loss 2.0, val loss 2.1\n" + iters((20, 100.0, ""))
    text += "step 25: train loss 2.0, val loss 2.1\n" + iters((30, 100.0, ""))
    run, ledger = of_text(NanoGPT(), tmp_path, text)
    assert "evaluation" not in ledger.seconds
    assert "2 lines are of evaluation" in said(run)


@pytest.mark.parametrize("mfu", [", mfu 140.00%", ", mfu -100.00%", ", mfu nan%", ""])
def test_nanogpt_without_a_good_mfu_nothing_is_said_of_p(tmp_path, mfu):
    text = iters((0, 100.0, mfu), (1, 100.0, mfu), (2, 100.0, mfu))
    _, ledger = of_text(NanoGPT(), tmp_path, text)
    assert ledger.program is None


def test_nanogpt_what_a_first_iteration_took_beyond_the_others_is_no_loss_below_the_peak(tmp_path):
    """Also where each line stands for ten iterations but the first."""
    mfu = ", mfu 40.00%"
    text = iters((0, 60_000.0, mfu), *((10 * n, 1000.0, mfu) for n in range(1, 10)))
    _, ledger = of_text(NanoGPT(), tmp_path, text)
    assert ledger.seconds == pytest.approx({"productive": 91 * 0.4, "below_peak": 91 * 0.6, "compile": 59.0})
    assert (ledger.program, ledger.inferred) == (pytest.approx(0.4), {"compile"})


def test_nanogpt_what_is_worked_out_is_called_inferred(tmp_path):
    evaluated = "step {}: train loss 2.0, val loss 2.1\n"
    text = evaluated.format(0) + iters((0, 9000.0, "")) + iters(*((n, 1000.0, "") for n in range(1, 5)))
    text += evaluated.format(5) + iters((5, 3000.0, "")) + iters((6, 1000.0, ""))
    _, ledger = of_text(NanoGPT(), tmp_path, text)
    assert ledger.inferred == {"evaluation", "compile"}
    assert ledger.seconds == pytest.approx({"productive": 7.0, "evaluation": 4.0, "compile": 6.0})


def test_nanogpt_with_a_clock(tmp_path):
    text = "".join(
        f"[2024-05-01 10:00:{20 + k:02d},000][trainer][INFO] - [RANK 0] iter {k}: loss 3.0, time 0.75s\n"
        for k in range(8)
    )
    _, ledger = of_text(NanoGPT(), tmp_path, text)
    assert ledger.unknown == {}
    assert ledger.seconds["unaccounted"] == pytest.approx(0.25 * 7)


@pytest.mark.parametrize("ms", ["1e999", "-1", "nan", "9" * 39, "1.2.3"])
def test_nanogpt_odd_times_are_left_out_and_said(tmp_path, ms):
    text = timed((1, 10), (2, 20)) + timed((3, ms)) + timed((4, 40))
    run, ledger = of_text(NanoGPT(), tmp_path, text)
    assert ledger.steps.executed == 4
    assert "line 3 is no step, left out" in said(run)


# torchtitan


def titan(second, text, rank=0):
    moment = f"2025-06-04 08:{51 + int(second) // 60:02d}:{int(second) % 60:02d},{round(second % 1 * 1000):03d}"
    return f"[rank{rank}]:[titan] {moment} - root - INFO - {text}\n"


def titan_step(second, step, mfu="40.00%", rank=0):
    text = f"step: {step:2}  loss: 10.7069  memory: 30.99GiB(32.62%)  tps: 7,034  tflops: 407.35  mfu: {mfu}"
    return titan(second, text, rank)


def test_titan_sample():
    (run,) = load(TorchTitan(), SAMPLES / "torchtitan.log")
    ledger = account(run)
    assert ledger.steps.executed == 40
    assert {name: seconds / 8 for name, seconds in ledger.seconds.items()} == pytest.approx(
        {
            "startup": 9.0,
            "checkpoint_restore": 2.0,
            "evaluation": 3.0,
            "checkpoint_save": 3.99,
            "shutdown": 2.006,
            "unaccounted": 0.01,
            "compile": 11.0,
            "below_peak": 0.6 + 9 * 0.6 + 10 * 0.6 + (10 - 0.32 * 12) + 10 * 0.6,
            "productive": 0.4 + 9 * 0.4 + 10 * 0.4 + 0.32 * 12 + 10 * 0.4,
        },
        abs=1e-6,
    )
    opened = run.processes[0].open
    assert (opened.devices, opened.accelerator, opened.rows) == (8, "NVIDIA H100", "step")
    assert [event.step for event in run.processes[0].events if type(event).__name__ == "Saved"] == [20, 40]
    assert run.processes[0].events[-1].reason == "finished"


def test_titan_order_and_repeats_change_nothing(tmp_path):
    lines = (SAMPLES / "torchtitan.log").read_text().splitlines(keepends=True)
    _, expected = of_text(TorchTitan(), tmp_path, "".join(lines))
    for seed in range(10):
        mixed = lines + random.Random(seed).choices(lines, k=5)
        random.Random(seed).shuffle(mixed)
        _, ledger = of_text(TorchTitan(), tmp_path, "".join(mixed))
        assert ledger.seconds == expected.seconds


@pytest.mark.parametrize("seed", range(20))
def test_titan_lines_at_once_and_one_by_one_say_the_same(seed, tmp_path, monkeypatch):
    chance, text = random.Random(seed), titan(0, "Starting job: x") + titan(1, "Training starts at step 1")
    for k in range(1, 60):
        text += "".join(titan_step(3 * k, k, f"{30 + k % 9}.{k:02}%", rank=rank) for rank in range(1 + seed % 2))
        if k % 20 == 0:
            text += titan(3 * k + 1, f"validate step: {k}  loss:  8.1  tps: 9")
            text += titan(3 * k + 2, "Finished saving the checkpoint in 0.50 seconds.")
    path = tmp_path / "log"
    path.write_bytes(damaged(text.encode().splitlines(keepends=True), chance))
    monkeypatch.setattr(torchtitan, "_AT_ONCE", 16)
    at_once = told(TorchTitan(), path)
    monkeypatch.setattr(torchtitan, "_learn", lambda _line: None)
    assert told(TorchTitan(), path) == at_once


def test_titan_a_restart_continues_where_it_says(tmp_path):
    one = titan(0, "Training starts at step 1") + "".join(titan_step(10 * k, 10 * k) for k in range(1, 6))
    two = titan(100, "Starting job: x") + titan(110, "Training starts at step 31")
    _run, ledger = of_text(
        TorchTitan(), tmp_path, one + two + "".join(titan_step(110 + 10 * k, 30 + 10 * k) for k in (1, 2, 3))
    )
    assert ledger.attempts == 2
    assert ledger.steps.reworked == 20
    assert ledger.seconds["rework"] == pytest.approx(20)
    assert ledger.seconds["recovery"] == pytest.approx(50)
    assert ledger.seconds["startup"] == pytest.approx(10)


def test_titan_a_restart_of_which_nothing_is_said_but_its_steps(tmp_path):
    one = titan(0, "Training starts at step 1") + "".join(titan_step(10 * k, 10 * k) for k in range(1, 6))
    two = titan(60, "Starting job: x") + "".join(titan_step(60 + 10 * k, 20 + 10 * k) for k in (1, 2, 3))
    run, ledger = of_text(TorchTitan(), tmp_path, one + two)
    assert ledger.attempts == 2
    assert ledger.seconds["rework"] == pytest.approx(30)
    assert ledger.seconds["recovery"] + ledger.seconds["startup"] == pytest.approx(20)
    assert "is not known" in said(run)


def test_titan_without_its_beginning_the_first_line_is_startup(tmp_path):
    run, ledger = of_text(TorchTitan(), tmp_path, "".join(titan_step(10 * k, 10 * k) for k in range(1, 6)))
    assert ledger.steps.executed == 50
    assert ledger.seconds == pytest.approx({"productive": 16, "below_peak": 24})
    assert "is not known" in said(run)


def test_titan_one_of_several_ranks_counts(tmp_path):
    text = "".join(titan_step(10 * k, k, rank=rank) for k in range(1, 6) for rank in (0, 1, 2))
    run, ledger = of_text(TorchTitan(), tmp_path, text)
    assert ledger.steps.executed == 5
    assert "3 ranks" in said(run)


def test_titan_a_save_among_the_steps_takes_its_own_time(tmp_path):
    text = (
        titan(0, "Training starts at step 1")
        + titan_step(10, 10)
        + titan(17, "Finished saving the checkpoint in 2.00 seconds.")
    )
    _, ledger = of_text(TorchTitan(), tmp_path, text + titan_step(22, 20) + titan_step(32, 30))
    assert ledger.seconds["checkpoint_save"] == 2
    assert "unaccounted" not in ledger.seconds
    assert sum(ledger.seconds.values()) == pytest.approx(32)


@pytest.mark.parametrize("mfu", ["nan%", "140.00%", "-3%", "x%"])
def test_titan_without_a_good_mfu_p_is_unknown(tmp_path, mfu):
    run, ledger = of_text(TorchTitan(), tmp_path, titan_step(10, 1) + titan_step(20, 2, mfu) + titan_step(30, 3))
    assert ledger.program is None
    assert "below the peak is not known" in said(run)


def test_titan_of_older_versions(tmp_path):
    text = (
        "2024-10-03 16:44:00,481 - root - INFO - Building 2-D device mesh with ['dp', 'tp'], [4, 2]\r\n"
        "2024-10-03 16:44:28,481 - root - INFO - step:  1  loss: 10.8  memory: 26GiB(60%)  wps: 1,176  mfu: 16.15%\r\n"
        "2024-10-03 16:44:32,481 - root - INFO - step:  2  loss: 10.6  memory: 33GiB(74%)  wps: 1,962  mfu: 26.95%\r\n"
        "2024-10-03 16:44:36,481 - root - INFO - step: 3/9 = 33%  loss: 1.6  memory: 3GiB(4%)  tps: 1,962\r\n"
    )
    _run, ledger = of_text(TorchTitan(), tmp_path, text)
    assert ledger.steps.executed == 3
    assert ledger.devices == 8
    assert ledger.program is None  # the last line has no mfu


# MaxText


def completed(*rows, before=""):
    line = "{}completed step: {}, seconds: {}, TFLOP/s/device: 134.9, Tokens/s/device: 8672.1, loss: 10.5\n"
    return "".join(line.format(before, step, seconds) for step, seconds in rows)


def test_maxtext_sample():
    (run,) = load(MaxText(), SAMPLES / "maxtext.log")
    ledger = account(run)
    assert ledger.steps.executed == 8
    assert {name: seconds / 4 for name, seconds in ledger.seconds.items()} == {
        "startup": 10.0,
        "compile": 30.0,
        "evaluation": 3.0,
        "checkpoint_save": 2.0,
        "productive": 8.0,
    }
    assert ledger.inferred == {"compile", "evaluation", "checkpoint_save"}
    assert ledger.unknown == {}
    assert ledger.program is None
    assert "no year" in said(run)
    assert run.processes[0].events[-1].reason == "finished"


def test_maxtext_order_and_repeats_change_nothing_where_there_is_a_clock(tmp_path):
    lines = (SAMPLES / "maxtext.log").read_text().splitlines(keepends=True)
    _, expected = of_text(MaxText(), tmp_path, "".join(lines))
    for seed in range(10):
        mixed = lines + random.Random(seed).choices(lines, k=5)
        random.Random(seed).shuffle(mixed)
        _, ledger = of_text(MaxText(), tmp_path, "".join(mixed))
        assert ledger.seconds == expected.seconds


def test_maxtext_without_a_clock(tmp_path):
    text = "Num_devices: 4, shape (1, 4)\n" + completed((0, "44.923"), *((step, "5.668") for step in range(1, 10)))
    run, ledger = of_text(MaxText(), tmp_path, text)
    assert ledger.steps.executed == 10
    assert ledger.devices == 4
    assert sum(lengths(run)) == pytest.approx(44.923 + 9 * 5.668)
    assert ledger.seconds["compile"] == pytest.approx(4 * (44.923 - 5.668))
    assert "no clock" in ledger.unknown["R"]


def test_maxtext_over_new_year(tmp_path):
    stamps = (
        "I1231 23:59:58.000000 1 a.py:1] ",
        "I1231 23:59:59.000000 1 a.py:1] ",
        "I0101 00:00:00.000000 1 a.py:1] ",
    )
    text = "".join(completed((step, "1.0"), before=before) for step, before in enumerate(stamps))
    _, ledger = of_text(MaxText(), tmp_path, text)
    assert ledger.seconds == {"productive": 3.0}


def test_maxtext_a_restart_continues_from_its_checkpoint(tmp_path):
    one = completed(*((step, "1.0") for step in range(10))) + "Saved a checkpoint at step 5.\n"
    two = "System Information: Jax Version: 0.8\nrestoring from this run's directory step 5\n"
    _, ledger = of_text(MaxText(), tmp_path, one + two + completed(*((step, "1.0") for step in range(6, 12))))
    assert ledger.attempts == 2
    assert ledger.steps.reworked == 4
    assert ledger.seconds == {"productive": 12.0, "rework": 4.0}


def test_maxtext_evaluation_and_save_before_one_step_are_unaccounted(tmp_path):
    text = completed((0, "1.0"), (1, "1.0"), (2, "1.0")) + "eval metrics after step: 2, loss=9.8\n"
    text += "Started an asynchronous checkpoint save for step 2\n" + completed((3, "6.0"), (4, "1.0"))
    run, ledger = of_text(MaxText(), tmp_path, text)
    assert ledger.seconds == {"productive": 5.0, "unaccounted": 5.0}
    assert [event.step for event in run.processes[0].events if type(event).__name__ == "Saved"] == [2]


@pytest.mark.parametrize("seconds", ["nan", "-1", "1e999", "x", "9" * 40])
def test_maxtext_odd_seconds_are_left_out_and_said(tmp_path, seconds):
    run, ledger = of_text(MaxText(), tmp_path, completed((0, "1.0"), (1, seconds), (2, "1.0")))
    assert "line 2 is no step, left out" in said(run)
    assert ledger.seconds == {"productive": 2.0}


# Lightning


def test_lightning_sample():
    (run,) = load(Lightning(), SAMPLES / "lightning_metrics.csv")
    ledger = account(run)
    assert ledger.steps.executed == 236
    assert ledger.seconds == {}
    assert ledger.runtime is None
    assert "no clock" in ledger.unknown["R"]
    assert "no length" in said(run)


def test_lightning_steps_that_go_back_are_another_attempt(tmp_path):
    text = "epoch,step,loss\n" + "".join(f"0,{step},0.5\n" for step in (9, 19, 29, 19, 29, 39))
    _, ledger = of_text(Lightning(), tmp_path, text)
    assert ledger.attempts == 2


@pytest.mark.parametrize("n", [1, 30])
def test_lightning_rows_of_a_test_are_no_steps(tmp_path, n):
    rows = [f"{step // 50},{step},0.5,,,\n" for step in range(9, 10 * n, 10)]
    text = "epoch,step,train_loss,test_acc,val_loss,Test/f1\n" + "".join(rows)
    expected = steps_of(of_text(Lightning(), tmp_path, text)[0])
    assert steps_of(of_text(Lightning(), tmp_path, text + f"{n},{10 * n},,0.9,,\n{n},{10 * n},,,,0.8\n")[0]) == expected
    assert max(steps_of(of_text(Lightning(), tmp_path, text + f"{n},{10 * n},,0.9,0.5,\n")[0])) == 10 * n
    assert max(steps_of(of_text(Lightning(), tmp_path, text.replace("test_acc", "latest") + "9,999,,1,,\n")[0])) == 999


@pytest.mark.parametrize("rows", [1, 20])
def test_lightning_first_row_of_the_first_epoch_stands_for_all_from_0(tmp_path, rows):
    later = "".join(f"0,{49 + 10 * n},0.5\n" for n in range(1, rows))
    run, _ = of_text(Lightning(), tmp_path, "epoch,step,loss\n0,49,0.5\n" + later)
    assert steps_of(run) == list(range(40 + 10 * rows))
    run, _ = of_text(Lightning(), tmp_path, "epoch,step,loss\n3,149,0.5\n3,159,0.4\n" + later.replace("0,", "3,1", 1))
    assert steps_of(run)[0] == 140


@pytest.mark.parametrize("first", [49, 0])
def test_lightning_rows_at_once_and_one_by_one_say_the_same(first, tmp_path, monkeypatch):
    rows = "epoch,step,loss\n" + "".join(f"{n // 9},{first + 50 * (n // 2)},0.5\n" for n in range(60))
    text = rows + rows + "0,x,1\n" + rows.replace("0.5", "0.25")
    at_once = of_text(Lightning(), tmp_path, text)
    monkeypatch.setattr(steplines, "_FEW", 1 << 40)
    one_by_one = of_text(Lightning(), tmp_path, text)
    assert steps_of(at_once[0]) == steps_of(one_by_one[0])
    assert said(at_once[0]) == said(one_by_one[0])
    assert at_once[1].attempts == 3


def steps_of(run):
    return [step for process in run.processes for step in process.rows.step.tolist()]


def test_lightning_rows_that_make_no_sense_are_left_out_and_said(tmp_path):
    text = "\ufeffepoch,step,loss\r\n0,9,1\r\n0,x,1\r\n0,19.0,nan\r\n0,2,\r\n1,29,0.5,7\r\n1,-4,0\r\n1,3"
    run, ledger = of_text(Lightning(), tmp_path, text.replace("0,x,", "0,1e999,").replace("0,2,", "0,,"))
    assert ledger.steps.executed == 20
    assert "2 lines are without a step that can be" in said(run)
    assert "2 lines are no row" in said(run)


@pytest.mark.parametrize(
    "text",
    [
        "job,step,state\n1,2,3\n",
        "epoch,step\n1,2\n",
        "epoch,step,when\n1,2,2024-01-01\n",
        "epoch,step,loss\n",
        "epoch,step,loss\n" + "1" * 60000 + "x,1,2\n",
        '"epoch,step,loss\n1,2,3\n',
    ],
)
def test_lightning_declines_other_tables(tmp_path, text):
    (tmp_path / "log").write_text(text)
    assert Lightning().recognise(tmp_path / "log", files.head(tmp_path / "log"))


# All of them

SOURCES = [HFTrainer(), TensorBoard(), NanoGPT(), TorchTitan(), MaxText(), Lightning()]


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_only_its_own_samples_are_recognised(source):
    for path in SAMPLES.iterdir():
        own = path.name.startswith(source.name)
        assert (source.recognise(path, files.head(path)) is None) == own, path.name


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_damage_is_an_error_or_said(source, tmp_path):
    sample, *_ = sorted(SAMPLES.glob(f"{source.name}*"))
    data = sample.read_bytes()
    path = tmp_path / "log"
    for seed in range(150):
        chance = random.Random(seed)
        text = bytearray(data)
        for _ in range(chance.randint(1, 9)):
            text[chance.randrange(len(text))] = chance.randrange(256)
        path.write_bytes(bytes(text[: chance.randrange(1, len(text) + 1)]))
        if source.recognise(path, files.head(path)) is None:
            with suppress(SourceError):
                account(source.load(path, Asked()))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_gzip_says_the_same_and_torn_says_so(source, tmp_path):
    sample, *_ = sorted(SAMPLES.glob(f"{source.name}*"))
    plain = account(load(source, sample))
    packed = gzip.compress(sample.read_bytes())
    (tmp_path / "log.gz").write_bytes(packed)
    assert account(load(source, tmp_path / "log.gz")).seconds == plain.seconds
    (tmp_path / "torn.gz").write_bytes(packed[:-12])
    if source.recognise(tmp_path / "torn.gz", files.head(tmp_path / "torn.gz")) is None:
        (run,) = source.load(tmp_path / "torn.gz", Asked())
        assert "break" in said(run)


def test_a_file_is_called_as_its_folder_where_its_own_name_says_nothing(tmp_path):
    for source, name, data in (
        (HFTrainer(), "trainer_state.json", state(LOSS, EVAL, END)),
        (Lightning(), "metrics.csv", "epoch,step,loss\n0,9,1\n"),
    ):
        folder = tmp_path / f"of-{source.name}"
        folder.mkdir()
        (folder / name).write_text(data)
        (run,) = load(source, folder / name)
        assert run.name == folder.name


def test_a_first_line_of_metrics_that_runs_into_a_row_is_no_column_of_steps(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"epoch,loss,step\x0b0,2.0,1\n0,2.0,2\n")
    with pytest.raises(SourceError, match=r"\[no-runs\]"):
        load(Lightning(), path)
