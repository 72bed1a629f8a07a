"""Served requests: results of vLLM's benchmark and reports of guidellm, whole, odd and damaged."""

import copy
import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.errors import HeadwayError
from headway.ledger.serving import attain
from headway.sources.asked import Asked
from headway.sources.guidellm import GuideLLM
from headway.sources.registry import look
from headway.sources.vllmbench import MAX_STATED, VLLMBench

SAMPLES = Path(__file__).parents[2] / "contract" / "samples"
VLLM = json.loads((SAMPLES / "vllmbench.json").read_text())
GUIDE = json.loads((SAMPLES / "guidellm.json").read_text())
OLD = json.loads((SAMPLES / "guidellm_0.2.json").read_text())
BOTH = [(VLLMBench(), VLLM), (GuideLLM(), GUIDE), (VLLMBench(), [VLLM, VLLM])]
LISTS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "generated_texts", "errors")


def write(folder, document):
    path = folder / "result.json"
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    path.write_bytes(data)
    return path


def load(folder, document, source=None):
    """Return what is read of a document; checked first that exactly its own source knows it."""
    path = write(folder, document)
    known = [one for one in (VLLMBench(), GuideLLM()) if one.recognise(path, look(path)) is None]
    assert len(known) == 1
    return known[0].load(path, Asked())


def load_or_slug(source, path):
    """Return what is read, or the slug of the error that says why nothing is."""
    try:
        return source.load(path, Asked())
    except HeadwayError as error:
        return error.slug


def vllm(folder, **changes):
    (served,) = load(folder, {name: value for name, value in (VLLM | changes).items() if value != "out"})
    return served


def warmed(t, is_flat=True):
    """Return a report with 10 s of warm-up and 5 s of cool-down: requests before, in, after the window, and over it."""

    def request(tokens, begin, end, ttft_s=0.1):
        timings = {"request_start": t + begin, "request_end": None, "resolve_end": t + end}
        flat = {"request_start_time": t + begin, "request_end_time": t + end} if is_flat else {}
        times = {"request_latency": end - begin, "time_to_first_token_ms": 1000 * ttft_s, "inter_token_latency_ms": 9}
        return {"output_tokens": tokens, "info": {"timings": timings}} | flat | times

    answered = [
        request(11, 1, 9, 5),
        request(12, 9, 11, 1),
        request(13, 12, 14),
        request(14, 19, 23),
        request(15, 21, 22),
    ]
    window = {"request_start_time": t, "measure_start_time": t + 10, "measure_end_time": t + 20, "end_time": t + 25}
    benchmark = {
        "type_": "generative_benchmark",
        "config": {"strategy": {"type_": "concurrent", "streams": 4}},
        "scheduler_metrics": window,
        "metrics": {"request_totals": {"successful": 3, "errored": 1, "incomplete": 0}},
        "requests": {
            "successful": answered,
            "errored": [request(20, 2, 3), request(21, 12, 13)],
            "incomplete": [request(30, 24, 25)],
        },
        "duration": 10.0,
    }
    return {"metadata": {"guidellm_version": "0.5.0"}, "benchmarks": [benchmark]}


def counts(served, **slo):
    found = attain(served, slo)
    assert found.total == found.good + found.bad + found.failed + found.undetermined
    return found.good, found.bad, found.failed, found.undetermined


class TestVLLM:
    def test_what_a_result_says(self, tmp_path):
        served = vllm(tmp_path)
        assert (served.name, served.source, served.duration_s) == ("small/model, 4 at once", "vllmbench", 2.5)
        assert served.ok.tolist() == [True] * 5 + [False]
        assert served.tokens.tolist() == [5, 5, 5, 1, 0, 0]
        assert served.ttft_s[:4].tolist() == [0.1, 0.25, 0.6, 0.1]
        assert np.isnan(served.ttft_s[4:]).all()
        assert served.e2e_s[:4] == pytest.approx([0.18, 0.65, 0.68, 0.1])
        assert served.tpot_s[:3] == pytest.approx([0.02, 0.1, 0.02])
        assert np.isnan(served.tpot_s[3:]).all()
        assert counts(served, ttft=0.5) == (3, 1, 2, 0)
        assert counts(served, ttft=0.5, tpot=0.05) == (1, 2, 2, 1)

    def test_stated_completed_against_what_is_counted(self, tmp_path):
        n, none = 1000, 379
        tokens = [9] * (n - none) + [0] * none
        served = vllm(
            tmp_path,
            completed=n,
            num_prompts=n,
            output_lens=tokens,
            input_lens=[1] * n,
            ttfts=[0.1 if count else 0.0 for count in tokens],
            itls=[[0.01] * 8 if count else [] for count in tokens],
            generated_texts=["a" if count else "" for count in tokens],
            errors=[""] * n,
        )
        (warning,) = served.warnings
        assert "states 1000 completed; 621 of its 1000 requests were answered" in warning
        assert "379" in warning
        assert counts(served, ttft=0.5) == (621, 0, 379, 0)

    def test_a_length_that_is_made_up_is_no_token(self, tmp_path):
        served = vllm(tmp_path, output_lens=[5, 5, 5, 1, 1, 1])
        assert served.tokens.tolist() == [5, 5, 5, 1, 0, 0]

    def test_latencies_are_taken_where_written(self, tmp_path):
        served = vllm(tmp_path, latencies=[0.5, 0.7, 0.8, 0.1, 0.2, 0.0])
        assert served.e2e_s[:4].tolist() == [0.5, 0.7, 0.8, 0.1]
        assert served.tpot_s[0] == pytest.approx(0.1)

    @pytest.mark.parametrize("gap", [math.nan, -0.1, "x", None, 1e400])
    def test_a_time_between_tokens_that_cannot_be(self, tmp_path, gap):
        itls = copy.deepcopy(VLLM["itls"])
        itls[0][1] = gap
        served = vllm(tmp_path, itls=itls)
        assert counts(served, e2e=9.0) == (3, 0, 2, 1)

    @pytest.mark.parametrize("ttft", [math.nan, -0.1, "x", None, math.inf, [1], {}, 10**400])
    def test_a_first_time_that_cannot_be(self, tmp_path, ttft):
        served = vllm(tmp_path, ttfts=[ttft, *VLLM["ttfts"][1:]])
        assert counts(served, ttft=9.0) == (3, 0, 2, 1)
        assert counts(served, ttft=9.0, e2e=9.0)[3] == 1

    def test_without_detail_attainment_is_unknown_and_the_command_is_named(self, tmp_path):
        served = vllm(tmp_path, **dict.fromkeys(LISTS, "out"), request_goodput=1.5)
        found = attain(served, {"ttft": 0.5})
        assert (found.share, found.goodput, found.failed, found.undetermined) == (None, None, 1, 5)
        (warning,) = served.warnings
        assert "--save-result --save-detailed" in warning
        assert "ttft median 100 ms" in warning
        assert "1.5 requests/s" in warning

    def test_without_detail_of_sglang_its_own_command_is_named(self, tmp_path):
        stated = {"median_e2e_latency_ms": 2200.0, "p90_e2e_latency_ms": 3000.0, "p99_e2e_latency_ms": 4100.0}
        stated |= {"total_output_tokens_retokenized": 15, "model_id": "out", "tokenizer_id": "out", "label": "out"}
        for backend in ("sglang", "vllm"):
            served = vllm(tmp_path, **dict.fromkeys(LISTS, "out"), **stated, backend=backend)
            (warning,) = [text for text in served.warnings if "run it again" in text]
            assert "e2e median 2.2 s, e2e p90 3.0 s, e2e p99 4.1 s" in warning
            assert "`python -m sglang.bench_serving ... --output-details`" in warning
            assert served.name == f"{backend}, 4 at once"

    @pytest.mark.parametrize("completed", [10**18, MAX_STATED + 1, -3, math.nan, "many", 1e300])
    def test_a_stated_number_costs_no_memory(self, tmp_path, completed):
        served = vllm(tmp_path, **dict.fromkeys(LISTS, "out"), completed=completed, failed=0)
        assert len(served.ok) == 0
        assert attain(served, {"ttft": 1}).share is None

    def test_only_latencies(self, tmp_path):
        served = vllm(tmp_path, **dict.fromkeys(LISTS, "out"), latencies=[0.5, 0.7, 0.8, 0.1, 0.2, 0.0])
        assert counts(served, e2e=0.6) == (3, 2, 0, 1)
        assert any("only the latency" in text for text in served.warnings)
        assert any("1 failed, and not which" in text for text in served.warnings)

    @pytest.mark.parametrize(
        ("lists", "said"),
        [
            ({}, "run it again with --save-detailed and a version of vLLM"),
            ({"input_lens": [5, 5], "errors": ["", ""]}, "run it again with --save-detailed and a version of vLLM"),
            ({"input_lens": [5, 5], "errors": ["", ""], "latencies": [0.5, 0.7]}, "only e2e can be a target"),
        ],
    )
    def test_a_pooling_task_has_no_tokens(self, tmp_path, lists, said):
        base = {"completed": 2, "duration": 2.0, "total_input_tokens": 10, "total_token_throughput": 5.0}
        (served,) = load(tmp_path, {**base, "median_e2el_ms": 600.0, **lists})
        (warning,) = served.warnings
        assert said in warning
        assert "pooling task" in warning
        assert ("e2e median 600 ms" in warning) == ("latencies" not in lists)
        assert counts(served, e2e=0.6)[0] == (1 if "latencies" in lists else 0)

    def test_a_wait_before_a_request_was_sent_is_said(self, tmp_path):
        said = "held back for --max-concurrency before it sent them: 2, up to 1.2 s"
        waits = [1.2, 0.4, 0.0, 0.0, 0.0, 0.0]
        assert any(said in text for text in vllm(tmp_path, request_rate=4.0, queue_times=waits).warnings)
        for rate, none in (("inf", waits), (4.0, [0.0] * 6)):
            assert not any("held" in text for text in vllm(tmp_path, request_rate=rate, queue_times=none).warnings)

    def test_lists_of_different_length(self, tmp_path):
        served = vllm(tmp_path, ttfts=VLLM["ttfts"][:2])
        assert counts(served, ttft=0.5) == (2, 0, 2, 2)
        assert any("differ in length" in text and "ttfts 2" in text for text in served.warnings)

    def test_not_streamed(self, tmp_path):
        served = vllm(tmp_path, ttfts=[0.0] * 6, itls=[[]] * 6)
        assert counts(served, ttft=0.5) == (0, 0, 2, 4)
        assert any("streamed" in text for text in served.warnings)

    def test_several_results_in_one_file(self, tmp_path):
        one = json.dumps(VLLM)
        found = load(tmp_path, f"{one}\n{json.dumps(VLLM | {'ttfts': [9.0] * 6})}\n".encode())
        assert [served.name for served in found] == ["small/model, 4 at once #1", "small/model, 4 at once #2"]
        assert [counts(served, ttft=0.5)[0] for served in found] == [3, 0]

    @pytest.mark.parametrize("indent", [None, 4])
    def test_a_list_of_results(self, tmp_path, indent):
        alone = vllm(tmp_path)
        (tmp_path / "result.json").unlink()
        first, second = load(tmp_path, json.dumps([VLLM, VLLM | {"duration": 3.5}], indent=indent).encode())
        assert [one.name.endswith(end) for one, end in ((first, " #1"), (second, " #2"))] == [True, True]
        assert (first.duration_s, second.duration_s) == (2.5, 3.5)
        for name in ("ttft_s", "e2e_s", "tokens", "ok"):
            assert np.array_equal(getattr(first, name), getattr(alone, name), equal_nan=name.endswith("_s"))

    @pytest.mark.parametrize("document", [[5, VLLM], [[VLLM]], [{"a": 1}, {"b": 2}], []])
    def test_other_lists_are_not_its_own(self, tmp_path, document):
        path = write(tmp_path, document)
        assert VLLMBench().recognise(path, look(path)) is not None

    def test_a_result_that_a_list_has_too_counts_once(self, tmp_path):
        results = [VLLM, VLLM | {"duration": 3.5}, VLLM | {"duration": 4.5}]
        for number in (0, 1):
            (tmp_path / f"run={number}.json").write_text(json.dumps(results[number]))
        (tmp_path / "summary.json").write_text(json.dumps(results))
        paths = sorted(tmp_path.iterdir())
        found = VLLMBench().load_together(paths, Asked())
        assert [(Path(one.path).name, one.duration_s) for one in found] == [
            ("run=0.json", 2.5),
            ("run=1.json", 3.5),
            ("summary.json", 4.5),
        ]
        assert [any("lists the same result" in text for text in one.warnings) for one in found] == [True, True, False]
        assert len(VLLMBench().load_together(paths[:2], Asked())) == 2

    def test_a_cut_one_after_a_whole_one(self, tmp_path):
        one = json.dumps(VLLM)
        first, second = load(tmp_path, f"{one}\n{one[: one.index('itls') + 20]}".encode())
        assert not any("ends after" in text for text in first.warnings)
        assert any("ends after" in text for text in second.warnings)
        assert counts(second, ttft=0.5, tpot=0.05) == (0, 1, 2, 3)

    def test_order_and_layout_change_nothing(self, tmp_path):
        expected = counts(vllm(tmp_path), ttft=0.5, tpot=0.05, e2e=0.6)
        (other,) = load(tmp_path, json.dumps(VLLM, indent=3, sort_keys=True).replace("\n", "\r\n").encode("utf-8-sig"))
        assert counts(other, ttft=0.5, tpot=0.05, e2e=0.6) == expected
        (packed,) = load(tmp_path, gzip.compress(json.dumps(VLLM).encode()))
        assert counts(packed, ttft=0.5, tpot=0.05, e2e=0.6) == expected

    def test_a_torn_gzip_says_so(self, tmp_path):
        texts = [f"{number * 7919 % 9973}" * 99 for number in range(3000)]
        data = gzip.compress(json.dumps(VLLM | {"generated_texts": texts}).encode())
        (served,) = load(tmp_path, data[: len(data) // 2])
        assert any("gzip" in text for text in served.warnings)

    def test_names_from_a_file_are_cleaned(self, tmp_path):
        assert vllm(tmp_path, model_id="a\x1b[31mb\n").name == "ab, 4 at once"


class TestGuideLLM:
    def test_what_a_report_says(self, tmp_path):
        first, second = load(tmp_path, GUIDE)
        assert (first.name, second.name, first.duration_s) == ("constant@1", "constant@2", 4.0)
        assert first.tokens.tolist() == [5, 2, 1, -1, 2]
        assert first.ok.tolist() == [True, True, True, True, False]
        assert first.ttft_s[:3].tolist() == [0.125, 0.5, 0.25]
        assert first.e2e_s[:3].tolist() == [1.25, 1.0, 0.5]
        assert first.tpot_s[:2].tolist() == [0.25, 0.5]
        assert counts(first, ttft=0.3) == (2, 1, 1, 1)
        assert counts(first, ttft=0.3, tpot=0.3) == (1, 1, 1, 2)
        assert any("end of the test cut" in text for text in first.warnings)
        assert second.warnings == []

    def test_a_sample_gives_no_rate(self, tmp_path):
        (served,) = load(tmp_path, OLD)
        assert served.name == "synchronous"
        assert np.isnan(served.tpot_s).tolist() == [False, True, False]
        assert served.duration_s is None
        (warning,) = served.warnings
        assert "states 5 successful" in warning
        assert "holds 3" in warning

    def test_times_from_moments_where_no_time_is_written(self, tmp_path):
        document = copy.deepcopy(GUIDE)
        for request in document["benchmarks"][0]["requests"]["successful"]:
            for name in ("time_to_first_token_ms", "request_latency", "inter_token_latency_ms", "output_tokens"):
                del request[name]
        first, _ = load(tmp_path, document)
        assert first.tokens[:3].tolist() == [5, 2, 1]
        assert first.ttft_s[:3].tolist() == [0.125, 0.5, 0.25]
        assert first.tpot_s[:2].tolist() == [(1.25 - 0.125) / 4, 0.5]

    def test_a_success_without_a_token_failed(self, tmp_path):
        document = copy.deepcopy(GUIDE)
        request = document["benchmarks"][1]["requests"]["successful"][0]
        request |= {"output_tokens": 0}
        _, served = load(tmp_path, document)
        assert counts(served, ttft=9) == (0, 0, 1, 0)
        assert any("states 1 successful; with a token: 0" in text for text in served.warnings)
        request |= {
            "output_tokens": None,
            "output": "",
            "output_metrics": {},
            "info": {},
            "time_to_first_token_ms": None,
        }
        _, served = load(tmp_path, document)
        assert counts(served, ttft=9) == (0, 0, 1, 0)

    @pytest.mark.parametrize("value", [math.nan, -1.0, "x", [], {"a": 1}, math.inf, 10**400, True])
    def test_a_time_that_cannot_be(self, tmp_path, value):
        document = copy.deepcopy(GUIDE)
        request = document["benchmarks"][1]["requests"]["successful"][0]
        request |= {"time_to_first_token_ms": value, "info": {}}
        _, served = load(tmp_path, document)
        assert counts(served, ttft=9) == (0, 0, 0, 1)

    def test_requests_that_are_none_are_named(self, tmp_path):
        document = copy.deepcopy(GUIDE)
        document["benchmarks"][1]["requests"]["successful"] += [5, None, [1]]
        _, served = load(tmp_path, document)
        assert counts(served, ttft=9) == (1, 0, 0, 3)
        assert any("3 requests are no object" in text for text in served.warnings)

    @pytest.mark.parametrize("is_flat", [True, False])
    @pytest.mark.parametrize("is_sorted", [True, False])
    def test_only_what_was_measured_counts(self, tmp_path, is_sorted, is_flat):
        t = 1767600000.0
        document = warmed(t, is_flat)
        path = write(tmp_path, json.dumps(document, sort_keys=is_sorted).encode())
        (served,) = GuideLLM().load(path, Asked())
        # in the window of 10 s to 20 s one ended, one began, one did both and one failed
        assert sorted(served.tokens.tolist()) == [12, 13, 14, 21]
        assert served.tokens[~served.ok].tolist() == [21]
        assert (served.duration_s, served.n_cut) == (10.0, 0)
        assert counts(served, ttft=0.3) == (2, 1, 1, 0)
        assert served.warnings == [
            "concurrent@4: requests of the warm-up and cool-down, which its window leaves out, are left out: 4"
        ]

    def test_totals_that_count_the_warm_up_too_are_of_no_sample(self, tmp_path):
        document = warmed(1767600000.0)
        document["benchmarks"][0]["metrics"]["request_totals"] = {"successful": 5, "errored": 2, "incomplete": 1}
        (served,) = load(tmp_path, document)
        assert (len(served.ok), served.duration_s) == (4, 10.0)
        assert not any("sample" in text for text in served.warnings)

    @pytest.mark.parametrize("window", [None, {}, "x", {"measure_start_time": -1.0, "measure_end_time": -1.0}])
    def test_without_a_window_all_count_and_more_than_stated_is_no_sample(self, tmp_path, window):
        document = warmed(1767600000.0)
        document["benchmarks"][0]["scheduler_metrics"] = window
        (served,) = load(tmp_path, document)
        assert len(served.ok) == 8
        assert served.duration_s is None
        assert any("holds 5, 2, 1 of them: not the same requests" in text for text in served.warnings)

    def test_other_benchmarks_are_not_its_own(self, tmp_path):
        path = write(tmp_path, {"context": {"host_name": "h"}, "benchmarks": [{"name": "f", "real_time": 3}]})
        assert GuideLLM().recognise(path, look(path)) is not None


@pytest.mark.parametrize(("source", "document"), BOTH)
class TestEither:
    def test_foreign_files_are_declined(self, tmp_path, source, document):
        samples = sorted(path for path in SAMPLES.iterdir() if path.is_file())
        for path in samples:
            is_own = path.name.startswith(source.name)
            assert (source.recognise(path, look(path)) is None) == is_own, path.name
        for text in (b"", b"It has completed in a duration.", b"{", b"[]", b"{}", b'{"kind": "open"}', b"\0" * 99):
            path = write(tmp_path, text)
            assert source.recognise(path, text) is not None

    def test_cut_anywhere(self, tmp_path, source, document):
        data = json.dumps(document).encode()
        for end in range(0, len(data), 7):
            path = write(tmp_path, data[:end])
            if source.recognise(path, data[:end]) is None:
                found = load_or_slug(source, path)
                assert found == "no-runs" or any("ends after" in text for text in found[-1].warnings)

    @pytest.mark.parametrize("data", [b"\n\n", b"\0" * 4096, bytes(range(256)) * 9, b"{" * 9999, b"[" * 99999, b"]"])
    def test_garbage_after_it(self, tmp_path, source, document, data):
        expected = [counts(served, ttft=0.5) for served in load(tmp_path, document)]
        found = load(tmp_path, json.dumps(document).encode() + data)
        assert [counts(served, ttft=0.5) for served in found] == expected
        assert bool(data.strip()) == any("result.json: " in text for text in found[-1].warnings[:1])

    @settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_flipped_bytes(self, tmp_path, source, document, data):
        text = bytearray(json.dumps(document).encode())
        for _ in range(data.draw(st.integers(1, 6))):
            text[data.draw(st.integers(0, len(text) - 1))] ^= data.draw(st.integers(1, 255))
        path = write(tmp_path, bytes(text))
        found = load_or_slug(source, path)
        assert found == "no-runs" or all(sum(counts(served, ttft=0.5, tpot=0.05)) for served in found if len(served.ok))

    def test_devices_as_given(self, tmp_path, source, document):
        path = write(tmp_path, document)
        assert {served.devices for served in source.load(path, Asked(devices=8))} == {8}
