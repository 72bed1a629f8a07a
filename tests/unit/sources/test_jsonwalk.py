"""JSON that is too large to hold: what is given of it, in blocks of any size."""

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.sources import jsonwalk

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text('a"\\[]{},:é\n')
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text('a"\\,{'), inner), max_leaves=20)


@settings(max_examples=200, deadline=None)
@given(
    a=st.lists(TREES),
    c=TREES,
    d=LEAVES,
    block=st.sampled_from([1, 2, 3, 7, 64, 1 << 20]),
    indent=st.sampled_from([None, 1]),
)
def test_what_it_gives_is_what_a_parser_gives(a, c, d, block, indent):
    document = {"a": a, "b": {"c": c}, "c": c, "d": d}
    data = json.dumps(document, indent=indent, ensure_ascii=False).encode()
    before, jsonwalk._BLOCK = jsonwalk._BLOCK, block
    try:
        walk = jsonwalk.Walk(io.BytesIO(data), [(), ("a",)], [("a", "*"), ("c",)])
        found = [(place, json.loads(raw)) for place, raw in walk if raw]
    finally:
        jsonwalk._BLOCK = before
    assert found == [*((("a", "*"), item) for item in a), (("c",), c), (("d",), d)]
    assert (walk.torn, walk.junk, walk.too_long) == ("", 0, 0)


def test_a_value_that_is_too_long_is_passed_over(monkeypatch):
    monkeypatch.setattr(jsonwalk, "LIMIT", 100)
    monkeypatch.setattr(jsonwalk, "_BLOCK", 16)
    data = json.dumps({"a": ["x" * 500, "y"], "b": [["z" * 500], [1]]}).encode()
    walk = jsonwalk.Walk(io.BytesIO(data), [(), ("a",), ("b",)], [("b", "*")])
    assert [raw for _, raw in walk if raw != b""] == [None, b'"y"', None, b"[1]"]
    assert walk.too_long == 2


@pytest.mark.parametrize("data", [b"]", b'{"a": 1]', b"{} }", b"[1}"])
def test_brackets_that_do_not_fit(data):
    walk = jsonwalk.Walk(io.BytesIO(data), [()])
    list(walk)
    assert "closes" in walk.torn
