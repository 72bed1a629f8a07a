"""Broken values inside each other: what is looked at grows with the text, and what comes after them is found."""

import json
import re

import pytest

from headway.sources import again
from headway.sources.again import Again, is_cut

BEGIN = re.compile(r'\{"a":')
DEEP = '{"a":[' * 3000 + "@"
CUT = '{"a":[{},' * 900 + "@"
WITH_VALUES = '{"a":[{"a":1},' * 900 + "@"
LONG_NUMBER = '{"a":[' * 900 + "1" * 5000


def walk(text):
    """Return the values that are found, how often values were broken, and how much was looked at for that."""
    where, at, found, n_broken, looked = Again(), 0, [], 0, 0
    while at < len(text):
        begin = BEGIN.search(text, at)
        if begin is None:
            break
        at = begin.start()
        try:
            value, at = json.JSONDecoder().raw_decode(text, at)
            found.append(value)
        except (ValueError, RecursionError) as error:
            n_broken += 1
            looked += min(getattr(error, "pos", at + 6000), len(text)) - at
            at = where.after(text, at, error)
    return found, n_broken, looked


@pytest.mark.parametrize("part", [DEEP, CUT, WITH_VALUES, LONG_NUMBER])
def test_what_is_looked_at_grows_with_the_text(monkeypatch, part):
    monkeypatch.setattr(again, "_FREE", 1000)
    found, n_broken, looked = walk(part * 4 + ' {"a": 7}')
    assert {"a": 7} in found
    assert n_broken < 1000
    assert looked < 100 * len(part) * 4


def test_a_broken_value_costs_only_itself():
    whole = '{"a": 7}'
    for n in range(3, len(whole)):
        found, n_broken, _ = walk(f"{whole[:n]},{whole},{whole}")
        assert found[-2:] == [{"a": 7}] * 2
        assert n_broken <= 1


@pytest.mark.parametrize(
    ("text", "cut"), [('{"a": "b' + " " * 99, True), ('{"a": [1', True), ("[" + "]]" * 50, False), ("@" * 99, False)]
)
def test_what_is_cut(text, cut):
    with pytest.raises(ValueError) as caught:
        json.loads(text)
    assert is_cut(text, caught.value) == cut


def test_many_that_are_broken_cost_only_themselves(monkeypatch):
    monkeypatch.setattr(again, "_FREE", 20_000)
    broken = '{"a": 1 ],{"a": [1},'
    found, n_broken, _ = walk('{"a": [' + f'{broken}{{"a": 7}},' * 300)
    assert (found, n_broken) == ([{"a": 7}] * 300, 601)
