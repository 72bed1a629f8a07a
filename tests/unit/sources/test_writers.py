"""Processes that wrote into one file, told apart."""

import random
from itertools import pairwise

import numpy as np
import pytest

from headway.sources.trainerlog.writers import apart


def parts(lines):
    step, elapsed = (np.array(column, np.int64) for column in zip(*lines, strict=True))
    found, others = apart(step, elapsed, np.ones(len(lines), bool))
    assert sorted([*(place for part in found for place in part.tolist()), *others.tolist()]) == list(range(len(lines)))
    return [[lines[place] for place in part.tolist()] for part in found]


def run(first, last, pace=3, late=0):
    return [(step, pace * (step - first) + late) for step in range(first, last)]


def test_one_process():
    assert parts(run(0, 9)) == [run(0, 9)]


@pytest.mark.parametrize("n", [1, 2, 3, 40])
def test_one_after_the_other(n):
    begun = [run(5 * k, 5 * k + 50) for k in range(n)]
    assert parts([line for lines in begun for line in lines]) == begun


@pytest.mark.parametrize("n", [2, 3, 9])
def test_at_the_same_time(n):
    begun = [run(0, 60 - k, late=k) for k in range(n)]
    together = sorted((time, k, step) for k, lines in enumerate(begun) for step, time in lines)
    assert parts([(step, time) for time, _, step in together]) == [begun[0]]


def test_no_line_is_lost_and_each_process_only_grows():
    for seed in range(200):
        chance = random.Random(seed)
        lines = [(chance.randrange(9), chance.randrange(9)) for _ in range(chance.randrange(1, 40))]
        for part in parts(lines):
            assert all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(part))
