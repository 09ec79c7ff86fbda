"""When boundaries are announced: pure, on a clock that is a number."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from glia.graph.ids import ModelId, PrefixKey, WindowId
from p2p.announcing import (
    AGAIN_S,
    AGAIN_SPREAD_S,
    LATE_SPREAD_S,
    Announcing,
    Boundary,
    held_until_s,
    topic_of,
)

NOW_S = 1_900_000_000.0
HOUR_S = 3600.0


def boundary(number: int, hold_until_s: float = NOW_S, announced_s: float = 0.0) -> Boundary:
    name = number.to_bytes(32, "big")
    return Boundary(
        WindowId(name), PrefixKey(name), ModelId(bytes(32)), 16, hold_until_s, announced_s
    )


def told(announcing: Announcing, start_s: float, end_s: float) -> Iterator[tuple[float, Boundary]]:
    """What is announced meanwhile, and when; all of it is heard."""
    now_s = start_s
    while (wait_s := announcing.wait_s(now_s)) <= end_s - now_s:
        now_s += wait_s
        each = announcing.next(now_s)
        assert each is not None
        announcing.done(each, now_s)
        yield now_s, each


@pytest.fixture
def announcing() -> Announcing:
    return Announcing(random.Random(1))


def test_nothing_is_announced_while_it_is_held(announcing: Announcing) -> None:
    announcing.add([boundary(1, NOW_S + 60)], NOW_S)
    assert announcing.next(NOW_S + 59.9) is None
    ((at_s, _),) = told(announcing, NOW_S, NOW_S + HOUR_S)
    assert NOW_S + 60 <= at_s <= NOW_S + 70


@pytest.mark.parametrize("now_s", [NOW_S, NOW_S + 0.01, NOW_S + 0.99])
def test_a_hold_in_whole_seconds_is_never_over_sooner(now_s: float) -> None:
    assert 60.0 <= held_until_s(now_s, 60.0) - now_s < 61.0


def test_one_a_second_each_once_and_soon(announcing: Announcing) -> None:
    announcing.add(map(boundary, range(11)), NOW_S)
    announcing.add(map(boundary, range(11)), NOW_S)
    assert announcing.backlog(NOW_S + 10) == 11
    found = list(told(announcing, NOW_S, NOW_S + 60))
    assert sorted(each.window_id for _, each in found) == [boundary(n).window_id for n in range(11)]
    times = [at_s for at_s, _ in found]
    assert all(after - before >= 1.0 for before, after in pairwise(times))
    assert announcing.backlog(NOW_S + 60) == 0


def test_again_before_it_is_forgotten_and_not_all_at_once(announcing: Announcing) -> None:
    announcing.add(map(boundary, range(50)), NOW_S)
    first = {each.window_id: at_s for at_s, each in told(announcing, NOW_S, NOW_S + 120)}
    again = dict.fromkeys(first, 0.0)
    gaps = []
    for at_s, each in told(announcing, NOW_S + 120, NOW_S + AGAIN_S + 120):
        assert not again[each.window_id]
        again[each.window_id] = at_s
        gaps.append(at_s - first[each.window_id])
    assert min(gaps) >= AGAIN_S - AGAIN_SPREAD_S
    assert max(gaps) < 22 * HOUR_S
    assert max(gaps) - min(gaps) > AGAIN_SPREAD_S / 2


def test_after_a_restart_what_is_fresh_waits_and_what_is_late_is_spread(
    announcing: Announcing,
) -> None:
    fresh = [boundary(n, announced_s=NOW_S - HOUR_S) for n in range(20)]
    late = [boundary(n, announced_s=NOW_S - 72 * HOUR_S) for n in range(100, 200)]
    announcing.add([*fresh, *late], NOW_S)
    found = list(told(announcing, NOW_S, NOW_S + 2 * LATE_SPREAD_S))
    assert {each.window_id for _, each in found} == {each.window_id for each in late}
    per_minute = [sum(at_s // 60 == m for at_s, _ in found) for m in {t // 60 for t, _ in found}]
    assert max(per_minute) < 30
    later = list(told(announcing, NOW_S + 2 * LATE_SPREAD_S, NOW_S + 19 * HOUR_S))
    assert {each.window_id for _, each in later} >= {each.window_id for each in fresh}


def test_what_failed_is_tried_again_and_what_is_gone_is_not(announcing: Announcing) -> None:
    announcing.add([boundary(1)], NOW_S)
    now_s = NOW_S + announcing.wait_s(NOW_S)
    each = announcing.next(now_s)
    assert each is not None
    assert announcing.wait_s(now_s) == float("inf")
    announcing.failed(each, now_s)
    assert 60 <= announcing.wait_s(now_s) <= 120
    now_s += announcing.wait_s(now_s)
    assert announcing.next(now_s) == each
    announcing.drop(each)
    assert announcing.wait_s(now_s) == float("inf")
    announcing.add([each], now_s)  # it is published anew
    assert announcing.wait_s(now_s) < 20


def test_what_is_not_here_takes_no_turn_and_is_looked_at_again(announcing: Announcing) -> None:
    announcing.add(map(boundary, range(100)), NOW_S)
    now_s = NOW_S + 10
    for _ in range(100):
        each = announcing.next(now_s)
        assert each is not None
        announcing.absent(each, now_s)
    assert announcing.backlog(now_s) == 0
    assert 600 <= announcing.wait_s(now_s) <= 1200
    now_s += 1200
    first, second = announcing.next(now_s), announcing.next(now_s + 1.0)
    assert first is not None
    assert second is not None
    announcing.absent(first, now_s + 1.2)  # another was given away since
    assert announcing.next(now_s + 1.9) is None


def test_a_clock_that_is_set_back_stops_nothing(announcing: Announcing) -> None:
    announcing.add([boundary(1, NOW_S - HOUR_S), boundary(2, NOW_S - HOUR_S)], NOW_S - 100)
    assert announcing.next(NOW_S)
    assert announcing.wait_s(NOW_S - 50) <= 1.0


def test_a_topic_is_a_model_s() -> None:
    assert topic_of(ModelId(b"\xab" * 32)) == "/glia/1/" + "ab" * 32
