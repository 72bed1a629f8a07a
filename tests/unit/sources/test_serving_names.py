"""What tests of a server are called, so that they can be told apart."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headway import load
from headway.sources.apart import told_apart
from headway.sources.asked import Asked
from headway.sources.vllmbench import VLLMBench

SAMPLES = Path(__file__).parents[2] / "contract" / "samples"
VLLM = json.loads((SAMPLES / "vllmbench.json").read_text())


def names(folder, *results):
    path = folder / "r.json"
    path.write_text("\n".join(json.dumps(VLLM | changes) for changes in results))
    return [served.name for served in VLLMBench().load(path, Asked())]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"request_rate": 4, "max_concurrency": 16}, "small/model, 4/s, 16 at once"),
        ({"request_rate": 0.25, "max_concurrency": None}, "small/model, 0.25/s"),
        ({"request_rate": "inf", "max_concurrency": None}, "small/model"),
        ({"request_rate": -1, "max_concurrency": "x"}, "small/model"),
        ({"request_rate": True, "max_concurrency": [2]}, "small/model"),
        (
            {"model_id": None, "tokenizer_id": "", "label": 3, "backend": None, "request_rate": 2},
            "r.json, 2/s, 4 at once",
        ),
    ],
)
def test_a_result_is_called_after_its_model_and_load(tmp_path, changes, name):
    assert names(tmp_path, changes) == [name]


def test_results_of_one_file_are_numbered_where_their_names_are_the_same(tmp_path):
    given = [{"max_concurrency": 2}, {"max_concurrency": 8}, {"max_concurrency": 2}]
    assert names(tmp_path, *given) == [
        "small/model, 2 at once #1",
        "small/model, 8 at once",
        "small/model, 2 at once #3",
    ]


def test_tests_of_one_name_in_several_files_are_called_after_them_too(tmp_path):
    for place in ("a/run=0.json", "a/run=1.json", "b/run=0.json"):
        path = tmp_path / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(VLLM | {"date": place}))
    made = load(tmp_path)
    assert [one.name for one in made] == [
        "small/model, 4 at once (a/run=0.json)",
        "small/model, 4 at once (a/run=1.json)",
        "small/model, 4 at once (b/run=0.json)",
    ]
    mixed = told_apart([replace(made[0], name="m", path="/x/a.json"), replace(made[0], name="m", path="b.json")])
    assert [one.name for one in mixed] == ["m (/x/a.json)", "m (b.json)"]
