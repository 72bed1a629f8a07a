"""Files of the same tools that hold no requests: each is declined in words that say what it is."""

import json

import pytest

from headway.sources.guidellm import GuideLLM
from headway.sources.vllmbench import VLLMBench

LATENCY = {"avg_latency": 1.5, "latencies": [1.4, 1.6], "percentiles": {"50": 1.5}}
THROUGHPUT = {"elapsed_time": 9.0, "num_requests": 50, "total_num_tokens": 700, "requests_per_second": 5.6}
CSV = "Run Info,Run Info,Benchmark,Timings\nRun ID,Model,Strategy,Start Time\nx,m,constant,5.0\n"
FIRST = {"benchmarks": [{"mode": "synchronous", "rate": None, "results": [], "errors": [], "concurrencies": []}]}


@pytest.mark.parametrize(
    ("source", "document", "said"),
    [
        (VLLMBench(), LATENCY, "it is a result of vllm bench latency, which asks no server"),
        (VLLMBench(), THROUGHPUT, "it is a result of vllm bench throughput, which asks no server"),
        (VLLMBench(), {"latencies": [1.0]}, "it has no completed and duration"),
        (GuideLLM(), CSV, "it is the CSV of a report of GuideLLM"),
        (GuideLLM(), FIRST, "it is a report of GuideLLM 0.1"),
        (GuideLLM(), "a,b\n1,2\n", "it does not begin with an object of JSON"),
    ],
)
def test_what_it_is_that_holds_no_requests(tmp_path, source, document, said):
    text = document if isinstance(document, str) else json.dumps(document, indent=4)
    assert source.recognise(tmp_path / "r", text.encode()).startswith(said)
