"""Intervals from starts and stops, beside a plain walk over their times."""

from hypothesis import given
from hypothesis import strategies as st

from headway.sources.intervals import clip, outside, pair

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
