"""The L1 table against a model of a few lines: a list in order of use, pins, dirt and heat."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from daemon.l1 import L1Table
from glia.graph.ids import WindowId
from tests.builders import TINY, Chain, make_chain

ROOM = 5  # windows
HOT_STEPS = 3
SIZE = TINY.window_particle_bytes
CHAINS: list[Chain] = [make_chain(4, seed=seed) for seed in range(4)]
WINDOWS = [(chain, index) for chain in CHAINS for index in range(4)]
NAME = {chain.records[i].window_id: (chain, i) for chain, i in WINDOWS}


class Model:
    """What the table should do."""

    def __init__(self) -> None:
        self.order: list[WindowId] = []
        self.pins: dict[WindowId, int] = {}
        self.dirty: set[WindowId] = set()
        self.hot: dict[WindowId, int] = {}
        self.step = 0

    def use(self, name: WindowId) -> None:
        self.order.remove(name)
        self.order.append(name)

    def is_hot(self, name: WindowId) -> bool:
        return name in self.hot and self.step - self.hot[name] < HOT_STEPS

    def victims(self) -> list[WindowId]:
        may_go = [w for w in self.order if w not in self.dirty and not self.pins.get(w)]
        return sorted(may_go, key=self.is_hot)  # stable: cold ones first, each in order of use

    def drop(self, name: WindowId) -> None:
        self.order.remove(name)
        self.hot.pop(name, None)
        self.pins.pop(name, None)


class L1Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = L1Table(ROOM * SIZE, HOT_STEPS)
        self.model = Model()

    @rule(window=st.sampled_from(WINDOWS), dirty=st.booleans())
    def enter(self, window: tuple[Chain, int], dirty: bool) -> None:
        chain, index = window
        record, key = chain.records[index], chain.keys[index]
        if len(self.model.order) == ROOM:
            victims = self.model.victims()
            offsets = self.table.reserve(SIZE, 1)
            assert bool(offsets) is bool(victims)
            if not offsets:
                return
            self.model.drop(victims[0])
            assert victims[0] not in self.table
        else:
            offsets = self.table.reserve(SIZE, 1)
        is_new = self.table.enter(offsets[0], record, key, TINY.particle_sizes, dirty=dirty)
        assert is_new is (record.window_id not in self.model.order)
        if is_new:
            self.model.order.append(record.window_id)
            if dirty:
                self.model.dirty.add(record.window_id)
        else:
            self.model.use(record.window_id)

    @precondition(lambda self: self.model.order)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.model.order))
        self.table.pin(name)
        self.model.pins[name] = self.model.pins.get(name, 0) + 1

    @rule(window=st.sampled_from(WINDOWS))
    def touch(self, window: tuple[Chain, int]) -> None:
        chain, index = window
        name = chain.records[index].window_id
        self.table.touch(name)
        if name in self.model.order:
            self.model.use(name)

    @precondition(lambda self: any(self.model.pins.values()))
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([w for w, pins in self.model.pins.items() if pins]))
        self.table.unpin(name)
        self.model.pins[name] -= 1

    @precondition(lambda self: self.model.dirty)
    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.dirty)))
        self.table.mark_clean(name)
        self.model.dirty.discard(name)

    @rule(window=st.sampled_from(WINDOWS), num_steps=st.integers(0, HOT_STEPS))
    def decode(self, window: tuple[Chain, int], num_steps: int) -> None:
        chain, index = window
        self.table.heat(chain.records[index].window_id, num_steps)
        self.model.step += num_steps
        if not num_steps:
            return
        for record in reversed(chain.records[: index + 1]):
            if record.window_id not in self.model.order:
                break
            self.model.hot[record.window_id] = self.model.step

    @rule(window=st.sampled_from(WINDOWS))
    def look(self, window: tuple[Chain, int]) -> None:
        """Looking tells the truth; that it changes nothing shows in the next eviction."""
        chain, index = window
        name = chain.records[index].window_id
        known = name in self.model.order
        assert (name in self.table) is known
        assert (self.table.record(name) == chain.records[index]) is known
        assert (name in self.table.find(chain.keys[index])) is known
        assert self.table.is_dirty(name) is (name in self.model.dirty)

    @rule()
    def evict(self) -> None:
        victims = self.model.victims()
        freed_bytes, freed_windows = self.table.evict()
        assert (freed_bytes, freed_windows) == (len(victims) * SIZE, len(victims))
        for name in victims:
            self.model.drop(name)

    @rule()
    def reserve_in_vain(self) -> None:
        kept = {w for w in self.model.order if w not in self.model.victims()}
        offsets = self.table.reserve(SIZE, ROOM + 1)
        assert len(offsets) == ROOM - len(kept)
        for offset in offsets:
            self.table.cancel(offset)
        for name in set(self.model.order) - kept:
            self.model.drop(name)

    @invariant()
    def agrees(self) -> None:
        self.table.check()
        assert len(self.table) == len(self.model.order)
        assert self.table.used_bytes == len(self.model.order) * SIZE <= ROOM * SIZE
        assert self.table.dirty_bytes == len(self.model.dirty) * SIZE
        assert self.model.dirty <= set(self.model.order)


TestL1Model = pytest.mark.spec(25, 28, 29)(L1Machine.TestCase)


@pytest.mark.spec(5)
def test_equal_blocks_of_different_windows_are_kept_once() -> None:
    one, other = make_chain(1), make_chain(1, numerics_class="native:other")
    blocks = (one.records[0].blocks[0], other.records[0].blocks[1])
    mixed = dataclasses.replace(other.records[0], blocks=blocks)
    table = L1Table(4 * SIZE, HOT_STEPS)
    for record in (one.records[0], mixed):
        (offset,) = table.reserve(SIZE, 1)
        assert table.enter(offset, record, one.keys[0], TINY.particle_sizes, dirty=False)
        table.check()
    assert table.used_bytes == SIZE + TINY.particle_sizes[1]
    first, second = table.ranges(one.records[0].window_id), table.ranges(mixed.window_id)
    assert first[0] == second[0]
    assert first[1] != second[1]
    assert set(table.find(one.keys[0])) == {one.records[0].window_id, mixed.window_id}
    table.pin(one.records[0].window_id)
    assert table.evict() == (TINY.particle_sizes[1], 1)
    table.check()
    assert table.ranges(one.records[0].window_id) == first


def test_unpinning_more_than_pinning_is_refused() -> None:
    chain = make_chain(1)
    table = L1Table(SIZE, HOT_STEPS)
    (offset,) = table.reserve(SIZE, 1)
    table.enter(offset, chain.records[0], chain.keys[0], TINY.particle_sizes, dirty=False)
    with pytest.raises(ValueError, match="unpinned"):
        table.unpin(chain.tip)
