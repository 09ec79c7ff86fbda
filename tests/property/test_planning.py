"""Compute or fetch: what is chosen is never predicted to be slower than computing alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2p.planning import Pace, Plan, joint_speed, plan

PACES = st.builds(
    Pace,
    compute_s=st.floats(1e-4, 1.0),
    num_piece=st.integers(1, 64),
    fetch_s=st.floats(0.0, 2.0),
    rtt_s=st.floats(0.0, 1.0),
)
NUMS = st.integers(1, 2000)
MOSTS = st.integers(0, 2000)


def takes_s(chosen: Plan, pace: Pace, num: int, most: int) -> float:
    if chosen is Plan.WAIT:
        return pace.fetching_s(num)
    return pace.meeting(num, most)[0] if chosen is Plan.MEET else pace.computing_s(num)


@given(PACES, NUMS, MOSTS)
def test_never_slower_than_computing_alone_and_near_the_best(
    pace: Pace, num: int, most: int
) -> None:
    took_s = takes_s(plan(pace, num, most), pace, num, most)
    best_s = min(takes_s(each, pace, num, most) for each in Plan)
    assert took_s <= pace.computing_s(num) * (1 + 1e-9)
    assert took_s <= 1.1 * best_s + pace.compute_s * max(1.0, 0.02 * num) + 1e-9


@given(PACES, NUMS, MOSTS)
def test_at_the_meeting_all_is_there_that_was_not_computed(pace: Pace, num: int, most: int) -> None:
    now_s, computed = pace.meeting(num, most)
    assert now_s == pytest.approx(computed * pace.compute_s)
    fetched = num - computed
    assert 0 <= fetched <= most
    if fetched:
        assert pace.rtt_s + fetched * pace.fetch_s <= now_s * (1 + 1e-9) + 1e-9
    # and one piece before it was not yet so
    before = max(0, computed - pace.num_piece)
    if computed and num - before <= most:
        arrived_s = pace.rtt_s + (num - before) * pace.fetch_s
        assert arrived_s >= before * pace.compute_s * (1 - 1e-9) - 1e-9


@given(st.integers(40, 400), st.floats(0.001, 0.1), st.floats(0.1, 10.0))
def test_without_pieces_they_meet_where_both_took_as_long(
    num: int, compute_s: float, ratio: float
) -> None:
    pace = Pace(compute_s, 1, ratio * compute_s)
    _, computed = pace.meeting(num, num)
    assert computed == pytest.approx(num * ratio / (1 + ratio), abs=2)


@pytest.mark.parametrize(
    ("fetch_s", "chosen"),
    [
        (0.0, Plan.WAIT),
        (0.001, Plan.WAIT),  # all of it within the first piece
        (0.005, Plan.WAIT),  # 1.3 s, and meeting takes 1.6
        (0.0125, Plan.MEET),
        (0.025, Plan.MEET),  # as fast as computing: half and half
        (0.25, Plan.MEET),  # ten times slower: a twelfth
        (5.0, Plan.COMPUTE),
        (math.inf, Plan.COMPUTE),
    ],
)
def test_both_sides_of_break_even(fetch_s: float, chosen: Plan) -> None:
    """4,096 tokens at 640 tokens/s, 512 at once."""
    assert plan(Pace(0.025, 32, fetch_s, 0.001), 256, 256) is chosen


def test_where_nothing_may_wait_all_or_nothing_is_fetched() -> None:
    assert plan(Pace(0.025, 32, 0.02), 256, 0) is Plan.WAIT
    assert plan(Pace(0.025, 32, 0.03), 256, 0) is Plan.COMPUTE


def test_a_short_rest_is_waited_for() -> None:
    """What an engine would compute in one piece anyhow."""
    assert plan(Pace(0.025, 32, 0.02), 30, 256) is Plan.WAIT


@given(st.lists(st.none() | st.floats(1.0, 1e9), max_size=8))
def test_what_was_never_measured_is_not_known(speeds: list[float | None]) -> None:
    found = joint_speed(speeds)
    if None in speeds:
        assert found is None
    else:
        assert found == pytest.approx(sum(sorted(filter(None, speeds))[-4:]))
