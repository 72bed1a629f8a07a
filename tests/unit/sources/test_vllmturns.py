"""Requests of vLLM's benchmark of conversations: whole, odd and damaged."""

import json

import numpy as np
import pytest

from headway.errors import SourceError
from headway.ledger.serving import attain
from headway.sources.asked import Asked
from headway.sources.guidellm import GuideLLM
from headway.sources.registry import look
from headway.sources.vllmbench import VLLMBench
from headway.sources.vllmturns import VLLMTurns


def turn(ttft_ms, tpot_ms, latency_ms, start_time_ms, n_tokens):
    return {
        "ttft_ms": ttft_ms,
        "tpot_ms": tpot_ms,
        "latency_ms": latency_ms,
        "start_time_ms": start_time_ms,
        "input_num_turns": 1,
        "input_num_tokens": 40,
        "output_num_tokens": n_tokens,
        "output_num_chunks": n_tokens - 1,
        "output_num_first_chunk_tokens": 1,
        "approx_cached_percent": 0.0,
        "conversation_id": "a",
        "client_id": 0,
    }


TURNS = [
    turn(100.0, 20.0, 500.0, 5e6, 21),
    turn(50.0, 60.0, 650.0, 5000600.0, 11),
    turn(900.0, 0.0, 910.0, 5001500.0, 1),
]


def read(folder, *documents):
    path = folder / "turns.json"
    texts = [one if isinstance(one, str) else json.dumps(one, indent=2) for one in documents]
    path.write_text("\n".join(texts))
    assert VLLMTurns().recognise(path, look(path)) is None
    assert all(one.recognise(path, look(path)) for one in (VLLMBench(), GuideLLM()))
    return VLLMTurns().load(path, Asked(devices=8))


def judged(served, **slo):
    found = attain(served, slo)
    return found.good, found.bad, found.failed, found.undetermined


def test_what_a_file_says(tmp_path):
    (served,) = read(tmp_path, TURNS)
    assert (served.name, served.devices, served.duration_s) == ("turns.json", 8, pytest.approx(2.41))
    assert served.tokens.tolist() == [21, 11, 1]
    assert served.e2e_s.tolist() == [0.5, 0.65, 0.91]
    assert np.allclose(served.tpot_s, [0.02, 0.06, np.nan], equal_nan=True)
    assert judged(served, ttft=0.5) == (2, 1, 0, 0)
    assert judged(served, tpot=0.05) == (1, 1, 0, 1)
    (warning,) = served.warnings
    assert "only answered requests" in warning


def test_an_answer_that_was_not_streamed_has_its_whole_time_only(tmp_path):
    (served,) = read(tmp_path, [one | {"output_num_first_chunk_tokens": 0, "tpot_ms": 0.0} for one in TURNS])
    assert judged(served, ttft=5) == (0, 0, 0, 3)
    assert judged(served, e2e=0.6) == (1, 2, 0, 0)
    assert any("not streamed have only e2e: 3" in text for text in served.warnings)


def test_several_lists_in_one_file(tmp_path):
    found = read(tmp_path, TURNS, TURNS[:1])
    assert [(served.name, len(served.ok)) for served in found] == [("turns.json #1", 3), ("turns.json #2", 1)]


@pytest.mark.parametrize("value", [None, "x", -1.0, True, 1e999, [5]])
def test_times_that_cannot_be_are_unknown(tmp_path, value):
    odd = dict.fromkeys(["ttft_ms", "tpot_ms", "latency_ms", "start_time_ms", "output_num_tokens"], value)
    (served,) = read(tmp_path, [*TURNS, TURNS[0] | odd])
    assert judged(served, ttft=0.5, e2e=1) == (2, 1, 0, 1)
    assert np.isfinite(served.duration_s)


def test_damage(tmp_path):
    text = json.dumps(TURNS, indent=2)
    (served,) = read(tmp_path, text[:-40])
    assert len(served.ok) == 2
    assert any("ends after" in warning for warning in served.warnings)
    (served,) = read(tmp_path, [*TURNS, 5, "x", [1]])
    assert judged(served, e2e=1) == (3, 0, 0, 3)
    assert any("3 requests are no object" in warning for warning in served.warnings)
    path = tmp_path / "turns.json"
    path.write_text(text[:200])
    with pytest.raises(SourceError, match=r"\[no-runs\]"):
        VLLMTurns().load(path, Asked())
    for head in (b"", b"{}", b"[1]", b'[{"ttft_ms": 1}]', b'{"ttft_ms": 1}'):
        assert VLLMTurns().recognise(path, head)
