"""Intervals from starts and stops, beside a plain walk over their times."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headway.sources.intervals import clip, outside, pair, pair_numbered

TIMES = st.lists(st.integers(0, 12), max_size=8)


def walked(starts, stops, first):
    """Return intervals, the start that is left open and the number of stops without one, one time after the other."""
    opened = first if stops and (not starts or min(stops) <= min(starts)) else None
    found, unmatched = [], 0
    for time in sorted({*starts, *stops}):
        if time in stops and opened is not None:
            found.append([opened, time])
            opened = time if time in starts else None
        elif time in stops and time in starts:
            found.append([time, time])
        elif time in stops:
            unmatched += 1
        elif opened is None:
            opened = time
    return found, opened, unmatched


@given(starts=TIMES, stops=TIMES, first=st.sampled_from([None, 0, 3]))
def test_pairs_are_those_of_a_plain_walk(starts, stops, first):
    found = pair(starts, stops, first)
    assert (found.intervals.tolist(), found.left_open, found.n_unmatched) == walked(starts, stops, first)


@given(starts=TIMES, stops=TIMES, begin=st.integers(0, 12), end=st.integers(0, 12))
def test_what_is_inside_and_outside_is_all(starts, stops, begin, end):
    found = pair(starts, stops).intervals
    inside = clip(found, begin, end)
    assert ((begin <= inside) & (inside <= end)).all()
    assert (inside[:, 0] < inside[:, 1]).all()
    assert outside(found, begin, end) + (inside[:, 1] - inside[:, 0]).sum() == (found[:, 1] - found[:, 0]).sum()


LENGTHS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=8)


@given(lengths=LENGTHS, seed=st.randoms(use_true_random=False))
def test_numbered_intervals_cover_what_they_cover_and_do_not_overlap(lengths, seed):
    rows = [(begin, begin + length, number) for number, (begin, length) in enumerate(lengths)]
    starts, stops = rows.copy(), rows * 2
    seed.shuffle(starts)
    seed.shuffle(stops)
    columns = (
        [row[0] for row in starts],
        [row[1] for row in stops],
        [row[2] for row in starts],
        [row[2] for row in stops],
    )
    found = pair_numbered(*map(np.array, columns))
    assert len(found.intervals) == len(rows)
    assert (found.intervals[1:, 0] >= found.intervals[:-1, 1]).all()
    covered = {moment for begin, end in found.intervals.tolist() for moment in range(begin, end)}
    assert covered == {moment for begin, end, _ in rows for moment in range(begin, end)}
