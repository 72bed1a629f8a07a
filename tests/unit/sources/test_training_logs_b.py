"""Training logs of torchtitan, MaxText, nanoGPT, the HF Trainer, Lightning and TensorBoard, and their traps."""

import json
from pathlib import Path

import numpy as np
import pytest

from data import real
from headway.errors import SourceError
from headway.ledger.account import account
from headway.sources import files
from headway.sources.asked import Asked
from headway.sources.hftrainer import MOST_STEPS, HFTrainer

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


def test_hf_rows_have_no_overlap(tmp_path):
    run, _ = of_text(HFTrainer(), tmp_path, state(*({"eval_runtime": 0.1, "step": n} for n in range(0, 21, 3)), END))
    rows = run.processes[0].rows
    assert np.all(rows.start[1:] >= rows.end[:-1])
