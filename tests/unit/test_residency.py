"""L0's slots: names, references, what is evicted, what follows what."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glia.engine.placement import FreeSlots
from glia.engine.residency import Residency
from glia.errors import PoolExhausted
from glia.graph.ids import WindowId, digest


def name(number: int) -> WindowId:
    return WindowId(digest(number.to_bytes(4, "little")))


def filled(num_slots: int, count: int) -> tuple[Residency, list[int]]:
    """A residency whose first windows are named and kept, oldest first."""
    residency = Residency(num_slots, 100)
    slots = residency.take(count)
    for number, slot in enumerate(slots):
        assert residency.adopt(name(number), slot) == slot
        residency.release([slot])
    return residency, slots


@pytest.mark.spec(5)
def test_a_known_name_frees_the_new_copy() -> None:
    residency = Residency(4, 100)
    first, second = residency.take(2)
    assert residency.adopt(name(1), first) == first
    assert residency.adopt(name(1), second) == first
    residency.check([[first], [first]])
    assert residency.stats().num_windows == 1
    assert residency.stats().used_bytes == 100
    residency.release([first])
    residency.check([[first]])


@pytest.mark.spec(26)
def test_what_is_referenced_is_never_evicted() -> None:
    residency, slots = filled(4, 4)
    held = [residency.share(name(2)), residency.share(name(0))]
    assert held == [slots[2], slots[0]]
    taken = residency.take(2)
    assert set(taken) == {slots[1], slots[3]}
    with pytest.raises(PoolExhausted) as caught:
        residency.take(1)
    assert caught.value.hint
    residency.check([[*taken, slots[2], slots[0]]])
    assert residency.share(name(2)) == slots[2]
    assert residency.share(name(1)) is None


@pytest.mark.spec(27)
def test_the_least_recently_used_goes_first_and_leaves_before_roots() -> None:
    residency, _ = filled(6, 6)
    chain = [residency.share(name(n)) for n in (0, 1, 2)]
    residency.release([slot for slot in chain if slot is not None])
    order = []
    for _ in range(6):
        before = {n for n in range(6) if residency._slots.get(name(n)) is not None}
        residency._evict_oldest()
        order += before - {n for n in range(6) if residency._slots.get(name(n)) is not None}
    assert order == [3, 4, 5, 2, 1, 0]
    assert residency.stats().num_evicted == 6


def test_evict_all_leaves_what_is_used() -> None:
    residency, slots = filled(6, 4)
    residency.share(name(1))
    own = residency.take(1)
    assert residency.evict_all() == (300, 3)
    assert residency.stats().used_bytes == 200
    residency.check([[slots[1]], own])


def test_slots_follow_each_other_where_they_can() -> None:
    residency = Residency(16, 100)
    first = residency.take(5)
    assert first == [0, 1, 2, 3, 4]
    other = residency.take(3)
    assert residency.take(4, after=first[-1]) == [8, 9, 10, 11]
    residency.release(other)
    assert residency.take(3, after=first[-1]) == [5, 6, 7]


def test_a_run_is_made_by_evicting_no_more_than_is_asked_for() -> None:
    residency, slots = filled(8, 8)
    pinned = [s for s in (residency.share(name(3)), residency.share(name(7))) if s is not None]
    taken = residency.take(3)
    assert taken == list(range(taken[0], taken[0] + 3))
    assert not set(taken) & set(pinned)
    assert residency.stats().num_evicted <= 6
    del slots


def test_scattered_slots_are_used_where_nothing_else_is_left() -> None:
    residency, slots = filled(8, 8)
    pinned = [slot for n in (1, 3, 5, 7) if (slot := residency.share(name(n))) is not None]
    assert sorted(residency.take(4)) == sorted(set(slots) - set(pinned))


def test_broken_promises_are_loud() -> None:
    residency = Residency(2, 100)
    (slot,) = residency.take(1)
    with pytest.raises(RuntimeError, match="sealed slot is shared"):
        residency.share_slots([slot])
    residency.release([slot])
    with pytest.raises(RuntimeError, match="given back once"):
        residency.release([slot])
    with pytest.raises(RuntimeError, match="own slot gets a name"):
        Residency(2, 100).adopt(name(1), 0)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.booleans(), st.integers(1, 12), st.integers(0, 40)), max_size=30),
)
def test_free_slots_are_those_not_taken(num: int, moves: list[tuple[bool, int, int]]) -> None:
    free, taken = FreeSlots(num), set[int]()
    for takes, count, at in moves:
        if takes and count <= len(free):
            after = at if at < num else None
            start = free.run(count, after)
            got = free.take(count, start)
            assert len(set(got)) == count
            assert not taken & set(got)
            if start is not None:
                assert got == list(range(start, start + count))
            taken |= set(got)
        elif not takes and taken:
            slot = sorted(taken)[at % len(taken)]
            free.give(slot)
            taken.remove(slot)
        assert set(free) == set(range(num)) - taken
        assert len(free) == num - len(taken)
        longest = max((len(run) for run in _runs(free)), default=0)
        assert (free.run(longest + 1, None)) is None
        assert longest == 0 or free.run(longest, None) is not None


def _runs(free: FreeSlots) -> list[str]:
    marks = set(free)
    top = max(marks, default=-1) + 1
    return "".join("x" if s in marks else " " for s in range(top)).split()


def test_what_nobody_uses_is_listed_and_can_be_dropped() -> None:
    residency, slots = filled(6, 4)
    held = residency.share(name(1))
    assert held == slots[1]
    assert residency.unused == [name(0), name(2), name(3)]
    assert residency.drop([name(3), name(0)]) == (200, 2)
    residency.check([[slots[1]]])
    assert residency.unused == [name(2)]
    assert set(residency.free_slots) == set(range(6)) - {slots[1], slots[2]}
