"""How many served requests met their targets: the arithmetic, its laws, the page and the JSON."""

import io
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from headway.errors import ArgumentError
from headway.ledger.history import Served
from headway.ledger.serving import Attainment, attain, parse_slo, per_token, quantiles, wilson
from headway.report.serving import print_serving, serving_document

NAN = math.nan
COLUMNS = ("ttft", "tpot", "e2e", "tokens", "ok")


def served(*requests, **more):
    """Return requests given as (ttft, tpot, e2e, tokens, ok)."""
    columns = list(zip(*requests, strict=True)) or [()] * 5
    kinds = (np.float64, np.float64, np.float64, np.int64, np.bool_)
    arrays = [np.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    return Served("test", "vllm", *arrays, **more)


GOOD = (0.1, 0.02, 1.0, 40, True)
MIXED = (
    GOOD,
    GOOD,
    (0.9, 0.02, 1.8, 40, True),  # ttft
    (0.9, 0.2, 9.0, 40, True),  # both
    (0.1, NAN, 0.1, 1, True),  # one token
    (NAN, NAN, NAN, 0, True),  # none
    (0.1, 0.02, 1.0, 40, False),  # an error
)
SLO = {"ttft": 0.5, "tpot": 0.05}


class TestSlo:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("ttft:500ms tpot:50ms e2e:5s", {"ttft": 0.5, "tpot": 0.05, "e2e": 5.0}),
            ("ttft:500ms,tpot:50ms", {"ttft": 0.5, "tpot": 0.05}),
            (" TTFT = 0.5 s ;  itl: 50 ms, ", {"ttft": 0.5, "tpot": 0.05}),
            ("e2el:1m30s", {"e2e": 90.0}),
        ],
    )
    def test_what_can_be_read(self, text, expected):
        assert parse_slo(text) == expected

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "it is empty"),
            ("ttft", "'ttft' is no name with a time"),
            ("p99:5s", "there is no target 'p99'; known are ttft, tpot, e2e, itl, e2el"),
            ("tpot:5ms itl:6ms", "it has tpot twice"),
            ("ttft:500ms 50ms", "'ttft:500ms 50ms' is no name with a time"),
            ("ttft:500", "Cannot read the duration"),
            ("ttft:0s", "Cannot read the duration"),
            ("ttft:-5ms", "Cannot read the duration"),
            ("ttft:", "Cannot read the duration"),
        ],
    )
    def test_what_cannot(self, text, words):
        with pytest.raises(ArgumentError) as error:
            parse_slo(text)
        assert words in str(error.value)
        assert error.value.slug in {"bad-slo", "bad-duration"}


class TestAttain:
    def test_each_kind(self):
        found = attain(served(*MIXED, duration_s=4.0, devices=2), SLO)
        assert (found.total, found.good, found.bad, found.failed, found.undetermined) == (7, 2, 2, 2, 1)
        assert found.share == 2 / 7
        assert found.bounds == (2 / 7, 3 / 7)
        assert (found.goodput, found.goodput_per_device) == (0.5, 0.25)
        ttft, tpot = found.targets
        assert (ttft.name, ttft.limit_s, ttft.missed, ttft.missed_alone, ttft.undetermined) == ("ttft", 0.5, 2, 1, 0)
        assert (tpot.name, tpot.missed, tpot.missed_alone, tpot.undetermined) == ("tpot", 1, 0, 1)

    def test_at_the_target_is_good(self):
        assert attain(served((0.5, 0.05, 5.0, 9, True)), parse_slo("ttft:500ms tpot:50ms e2e:5s")).good == 1

    def test_a_single_token_has_no_time_between_whatever_is_written(self):
        found = attain(served((0.1, 0.0, 0.1, 1, True)), {"tpot": 1.0})
        assert (found.good, found.undetermined) == (0, 1)
        assert attain(served((9.0, 0.0, 9.0, 1, True)), SLO).bad == 1

    @pytest.mark.parametrize("time", [NAN, -0.1, math.inf, -math.inf])
    def test_times_that_cannot_be_are_undetermined(self, time):
        found = attain(served((time, 0.01, 1.0, 9, True)), {"ttft": 9.0})
        assert (found.undetermined, found.share) == (1, None)

    def test_no_request(self):
        found = attain(served(duration_s=1.0), SLO)
        assert (found.total, found.share, found.bounds, found.interval, found.goodput) == (0, None, None, None, None)

    def test_all_failed_is_a_share_of_nothing(self):
        found = attain(served((NAN, NAN, NAN, 0, True), duration_s=2.0), SLO)
        assert (found.share, found.goodput) == (0.0, 0.0)

    @pytest.mark.parametrize("length", [None, 0.0, -1.0, NAN, math.inf])
    def test_without_a_duration_no_goodput(self, length):
        assert attain(served(GOOD, duration_s=length), SLO).goodput is None

    def test_time_a_token(self):
        found = per_token(
            np.array([1.0, 1.0, 1.0, NAN, np.inf]), np.array([3.0, 1.0, 3.0, 3.0, np.inf]), np.array([5, 1, -1, 5, 5])
        )
        assert found[0] == 0.5
        assert np.isnan(found[1:]).all()


class TestWilson:
    @pytest.mark.parametrize(
        ("good", "total", "low", "high"),
        # Newcombe (1998), Statistics in Medicine 17, 857-872, table I, method 3.
        [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
    )
    def test_published_values(self, good, total, low, high):
        assert wilson(good, total) == pytest.approx((low, high), abs=5e-5)

    @given(total=st.integers(1, 10**12), data=st.data())
    def test_holds_the_share(self, total, data):
        good = data.draw(st.integers(0, total))
        low, high = wilson(good, total)
        assert 0 <= low <= good / total <= high <= 1


TIMES = st.sampled_from([NAN, -1.0, math.inf, 0.0]) | st.floats(0, 10)
REQUESTS = st.lists(st.tuples(TIMES, TIMES, TIMES, st.integers(-1, 4), st.booleans()), max_size=30)
SLOS = st.dictionaries(st.sampled_from(["ttft", "tpot", "e2e"]), st.floats(0.001, 10))


class TestLaws:
    @given(requests=REQUESTS, slo=SLOS)
    def test_counts_add_up_and_the_interval_holds_the_share(self, requests, slo):
        found = attain(served(*requests), slo)
        assert found.total == len(requests) == found.good + found.bad + found.failed + found.undetermined
        if found.total:
            (low, high), (least, most) = found.interval, found.bounds
            assert 0 <= low <= least <= most <= high <= 1
        for target in found.targets:
            assert target.missed_alone <= target.missed <= found.bad
            assert target.undetermined <= found.bad + found.undetermined

    @given(requests=REQUESTS, slo=SLOS, looser=st.floats(1, 5))
    def test_a_looser_target_never_loses_a_good_request(self, requests, slo, looser):
        strict = attain(served(*requests), slo)
        loose = attain(served(*requests), {name: time * looser for name, time in slo.items()})
        assert loose.good >= strict.good
        assert loose.bad <= strict.bad
        assert loose.failed == strict.failed

    @given(requests=REQUESTS, slo=SLOS)
    def test_one_target_less_never_loses_a_good_request(self, requests, slo):
        found = attain(served(*requests), slo)
        for name in slo:
            fewer = {other: time for other, time in slo.items() if other != name}
            assert attain(served(*requests), fewer).good >= found.good

    @settings(max_examples=50)
    @given(requests=REQUESTS, slo=SLOS, seed=st.integers(0, 99))
    def test_order_says_nothing(self, requests, slo, seed):
        order = np.random.default_rng(seed).permutation(len(requests))
        mixed = [requests[place] for place in order]
        assert attain(served(*mixed), slo) == attain(served(*requests), slo)

    @given(requests=REQUESTS, slo=SLOS)
    def test_the_document_is_strict_json(self, requests, slo):
        json.dumps(serving_document(served(*requests, duration_s=1.0), slo), allow_nan=False)


def page(data, slo, width=80, encoding="utf-8"):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    print_serving(data, slo, Console(file=stream, width=width))
    stream.seek(0)
    return stream.read()


class TestPage:
    def test_with_targets(self):
        text = page(served(*MIXED, duration_s=4.0, devices=2, warnings=["a says 7 completed"]), SLO)
        assert "test\n7 requests in 4.0 s, 5 answered (1.25 requests/s), 2 devices\n" in text
        assert "SLO attainment 28.5 % at least, 42.8 % at most" in text or "28.6 % at least, 42.9 % at most" in text
        assert "request goodput at least 0.5 requests/s, 0.25 a device" in text
        lines = [" ".join(line.split()) for line in text.splitlines()]
        assert any(line.startswith("good 2 28.6 %") for line in lines)
        assert any(line.startswith("bad 2 28.6 %") and line.endswith("missed ttft 2, tpot 1") for line in lines)
        assert any(line.startswith("failed 2") for line in lines)
        assert "ttft 500 ms 2 1 0" in lines
        assert "tpot 50 ms 1 0 1" in lines
        assert "warning: a says 7 completed" in text
        assert "--slo" not in text
        assert all(len(line) <= 80 for line in text.splitlines())

    def test_without_targets_it_says_how_to_give_them(self):
        text = page(served(*MIXED), None)
        assert "no duration known" in text
        assert '--slo "ttft:500ms tpot:50ms"' in text
        assert "attainment" not in text
        assert "100 ms" in text

    def test_unknown_is_said(self):
        text = page(served((NAN, NAN, NAN, -1, True), duration_s=1.0), SLO)
        assert "SLO attainment unknown: no request has a time that its targets ask for" in text
        assert "goodput" not in text
        assert "request goodput unknown" in page(served(GOOD), SLO)
        assert "there is no request" in page(served(), SLO)

    def test_plain_terminals_and_hostile_names(self):
        data = served(*MIXED, duration_s=4.0)
        text = page(
            Served(
                "a\x1b[2Jb\u00fc",
                "vllm",
                *(getattr(data, name) for name in ("ttft_s", "tpot_s", "e2e_s", "tokens", "ok")),
            ),
            SLO,
            encoding="ascii",
        )
        assert "\x1b" not in text
        assert "##" in text


class TestDocument:
    def test_with_targets(self):
        document = serving_document(served(*MIXED, duration_s=4.0, devices=2, path="r.json", warnings=["w"]), SLO)
        assert document["requests"] == {
            "total": 7, "failed": 2, "answered": 5, "good": 2, "bad": 2, "undetermined": 1,
        }  # fmt: skip
        assert document["attainment"]["share"] == 2 / 7
        assert document["attainment"]["interval_95"] == list(attain(served(*MIXED), SLO).interval)
        assert document["goodput_per_s"] == 0.5
        assert document["goodput_per_device_s"] == 0.25
        assert document["slo_s"] == SLO
        assert document["targets"][0]["missed"] == 2
        assert document["times_s"]["ttft"] == {"count": 5, "p50": 0.1, "p90": 0.9, "p99": 0.9}
        assert (document["path"], document["warnings"]) == ("r.json", ["w"])

    def test_without(self):
        document = serving_document(served(GOOD), None)
        assert "attainment" not in document
        assert document["answered_per_s"] is None

    def test_quantiles_leave_failures_out(self):
        found = quantiles(served((0.1, 0.02, 1.0, 9, True), (0.3, 0.02, 1.0, 9, True), (9.0, 9.0, 9.0, 9, False)))
        assert found["ttft"].count == 2
        assert found["ttft"].values_s == pytest.approx((0.2, 0.28, 0.298))
        assert quantiles(served())["tpot"].values_s is None


def test_an_attainment_is_plain_numbers():
    assert Attainment(4, 3, 1, 0, 0, duration_s=2.0).goodput == 1.5
