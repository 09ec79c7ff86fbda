"""Index and stores agree after any sequence of operations: each store against dicts and sets."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from glia.errors import HashMismatch, NotFound
from glia.graph.ids import BlockId, WindowId
from glia.store.base import BlockStore, SealedWindow
from glia.store.disk import DiskStore
from glia.store.memory import MemoryStore
from tests.builders import make_chain
from tests.store_parts import (
    FULL,
    MIB,
    flip_bit,
    joined,
    killed,
    load,
    sealed,
    segment_files,
)


def _pool() -> list[SealedWindow]:
    """Two chains that fork, and windows of two more classes with the same blocks."""
    base = make_chain(3)
    one, other = make_chain(2, seed=1, base=base), make_chain(2, seed=2, base=base)
    windows = sealed(one) + sealed(other, range(3, 5))
    twins = [
        SealedWindow(
            replace(w.record, numerics_class=f"native:twin{number}"), w.prefix_key, w.particles
        )
        for w in windows[2:4]
        for number in range(2)
    ]
    return windows + twins


POOL = _pool()
WINDOWS = {window.record.window_id: window for window in POOL}
PARTICLES = {
    block_id: bytes(particle)
    for window in POOL
    for block_id, particle in zip(window.record.blocks, window.particles, strict=True)
}
BLOCKS = sorted(PARTICLES)
# Three windows each, which share all their blocks.
TWINS = [(2, len(POOL) - 4, len(POOL) - 3), (3, len(POOL) - 2, len(POOL) - 1)]
some_twins = st.sampled_from(TWINS).flatmap(st.permutations)
some_windows = st.lists(st.integers(0, len(POOL) - 1), min_size=1, max_size=4)
some_block = st.integers(0, len(BLOCKS) - 1)


class StoreMachine(RuleBasedStateMachine):
    """The model: windows that were put, blocks that the index names, those that are damaged.

    `groups` are what was written: for which window, and which blocks. A group goes with its
    window; what another window names of it is written again first, if it can be read.
    """

    store: BlockStore
    writes_groups = False

    @initialize()
    def begin(self) -> None:
        self.stored: set[WindowId] = set()
        self.named: set[BlockId] = set()
        self.damaged: set[BlockId] = set()
        self.num_quarantined = 0
        self.groups: list[tuple[WindowId, frozenset[BlockId]]] = []
        self.open()

    def open(self) -> None:
        raise NotImplementedError

    def flip(self, block_id: BlockId, bit: int) -> None:
        raise NotImplementedError

    def is_whole(self, window: SealedWindow) -> bool:
        return window.record.window_id in self.stored and self.named.issuperset(
            window.record.blocks
        )

    def found_bad(self, blocks: set[BlockId]) -> None:
        bad = blocks & self.damaged
        self.named -= bad
        self.damaged -= bad
        self.num_quarantined += len(bad)

    @rule(numbers=some_windows)
    def put(self, numbers: list[int]) -> None:
        windows = [POOL[number] for number in numbers]
        self.store.put(windows)
        for window in windows:
            self.wrote(window.record.window_id, set(window.record.blocks) - self.named)
            self.stored.add(window.record.window_id)
            self.named.update(window.record.blocks)

    def wrote(self, name: WindowId, blocks: set[BlockId]) -> None:
        if blocks:
            self.groups.append((name, frozenset(blocks)))

    def holder(self, block_id: BlockId) -> WindowId | None:
        """In whose group a block lies: the last that was written."""
        return next((n for n, blocks in reversed(self.groups) if block_id in blocks), None)

    @rule(numbers=some_windows)
    def forget(self, numbers: list[int]) -> None:
        gone = dict.fromkeys(POOL[number].record.window_id for number in numbers)
        here = [name for name in gone if name in self.stored]
        assert self.store.forget(list(gone)).num_windows == len(here)
        self.went(here)

    def went(self, names: list[WindowId]) -> None:
        self.stored.difference_update(names)
        for name in names:
            self.forget_one(WINDOWS[name])

    def forget_one(self, window: SealedWindow) -> None:
        name, blocks = window.record.window_id, set(window.record.blocks)
        for block_id in blocks & self.named:
            others = [n for n in self.stored if block_id in WINDOWS[n].record.blocks]
            moves = self.writes_groups and others and self.holder(block_id) == name
            self.num_quarantined += bool(moves) and block_id in self.damaged  # read to be moved
            if not others or (moves and block_id in self.damaged):
                self.named.discard(block_id)
                self.damaged.discard(block_id)
            elif moves:
                self.wrote(max(others), {block_id})
        self.groups = [group for group in self.groups if group[0] != name]

    @rule(twins=some_twins, ordinal=st.integers(0, 1), is_found=st.booleans())
    def damage_shared(self, twins: list[int], ordinal: int, is_found: bool) -> None:
        self.put(twins)
        self.damage(BLOCKS.index(POOL[twins[0]].record.blocks[ordinal]), 300)
        if is_found:
            self.load_one_by_one(twins[:1])

    def hurt(self) -> list[int]:
        """Stored ones of the twins with a bad block, found or not."""
        good = self.named - self.damaged
        twins = [(number, POOL[number].record) for some in TWINS for number in some]
        return [
            number
            for number, record in twins
            if record.window_id in self.stored and not good.issuperset(record.blocks)
        ]

    @precondition(lambda self: bool(self.hurt()))
    @rule(data=st.data())
    def forget_one_that_is_hurt(self, data: st.DataObject) -> None:
        self.forget([data.draw(st.sampled_from(self.hurt()))])

    @precondition(lambda self: bool(self.hurt()))
    @rule(data=st.data())
    def put_one_that_is_hurt(self, data: st.DataObject) -> None:
        self.put([data.draw(st.sampled_from(self.hurt()))])

    @rule(numbers=some_windows)
    def load_one_by_one(self, numbers: list[int]) -> None:
        for window in (POOL[number] for number in numbers):
            whole = self.is_whole(window)
            blocks = set(window.record.blocks)
            expected = joined(window) if whole and not blocks & self.damaged else None
            assert load(self.store, [window]) == [expected]
            if whole:
                self.found_bad(blocks)

    @rule(numbers=some_windows)
    def load_together(self, numbers: list[int]) -> None:
        windows = [POOL[number] for number in numbers]
        wholes = [window for window in windows if self.is_whole(window)]
        for window, answer in zip(windows, load(self.store, windows), strict=True):
            good = window in wholes and not self.damaged & set(window.record.blocks)
            assert answer == (joined(window) if good else None)
        for window in wholes:
            self.found_bad(set(window.record.blocks))

    @rule(number=some_block)
    def read_block(self, number: int) -> None:
        block_id = BLOCKS[number]
        if block_id not in self.named:
            with pytest.raises(NotFound):
                self.store.read_block(block_id)
        elif block_id in self.damaged:
            with pytest.raises(HashMismatch):
                self.store.read_block(block_id)
            self.found_bad({block_id})
        else:
            assert self.store.read_block(block_id) == PARTICLES[block_id]

    @rule(number=some_block, bit=st.integers(0, 10_000))
    def damage(self, number: int, bit: int) -> None:
        block_id = BLOCKS[number]
        if block_id in self.named and block_id not in self.damaged:
            self.flip(block_id, bit % (8 * len(PARTICLES[block_id])))
            self.damaged.add(block_id)

    @rule()
    def check(self) -> None:
        report = self.store.check()
        assert (report.checked, report.bad) == (len(self.named), len(self.damaged))
        self.found_bad(set(self.damaged))
        num_whole = sum(map(self.is_whole, POOL))
        assert (report.windows, report.bad_windows) == (
            len(self.stored),
            len(self.stored) - num_whole,
        )

    @rule(numbers=some_windows)
    def touch(self, numbers: list[int]) -> None:
        self.store.touch([POOL[number].record.window_id for number in numbers])

    @rule(numbers=some_windows)
    def spare(self, numbers: list[int]) -> None:
        self.store.spare([POOL[number].record.window_id for number in numbers])

    @invariant()
    def agree(self) -> None:
        stats = self.store.stats()
        assert (stats.num_windows, stats.num_blocks) == (len(self.stored), len(self.named))
        assert stats.num_quarantined == self.num_quarantined
        assert set(self.store.windows()) == self.stored
        for block_id in PARTICLES:
            assert self.store.has_block(block_id) == (block_id in self.named)
        for window in POOL:
            name = window.record.window_id
            assert (name in self.store.find(window.prefix_key)) == (name in self.stored)
            assert self.store.get(name) == (window.record if self.is_whole(window) else None)
        for before in {window.record.prev for window in POOL}:
            after = {n for n in self.stored if WINDOWS[n].record.prev == before}
            assert set(self.store.children(before)) == after

    def teardown(self) -> None:
        self.store.close()


class MemoryMachine(StoreMachine):
    def open(self) -> None:
        self.store = MemoryStore(64 * MIB)

    def flip(self, block_id: BlockId, bit: int) -> None:
        blocks: dict[BlockId, bytes] = self.store._blocks  # type: ignore[attr-defined]
        changed = bytearray(blocks[block_id])
        changed[bit // 8] ^= 1 << bit % 8
        blocks[block_id] = bytes(changed)


class DiskMachine(StoreMachine):
    """Also closed and opened, killed, and robbed of its index."""

    writes_groups = True

    def open(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="glia-store-model-"))
        self.path = self.root / "store"
        self.store = self.opened()

    def opened(self) -> DiskStore:
        return DiskStore(self.path, 64 * MIB, segment_bytes=20 * 1024)

    def flip(self, block_id: BlockId, bit: int) -> None:
        for file in segment_files(self.path):
            at = file.read_bytes().find(PARTICLES[block_id])
            if at >= 0:
                flip_bit(file, 8 * at + bit)
                return
        raise AssertionError(f"no intact copy of {block_id.hex()}")

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.opened()
        self.num_quarantined = 0

    @rule()
    def kill(self) -> None:
        assert isinstance(self.store, DiskStore)
        killed(self.store)
        self.store = self.opened()
        self.num_quarantined = 0

    @rule()
    def lose_index(self) -> None:
        """Rebuilt from the segments; what was quarantined is found out anew."""
        self.store.close()
        shutil.rmtree(self.path / "index")
        self.store = self.opened()
        self.num_quarantined = 0
        self.went(self.torn())
        for name in self.stored:
            for block_id in WINDOWS[name].record.blocks:
                if block_id not in self.named and self.holder(block_id) is not None:
                    self.damaged.add(block_id)
                    self.named.add(block_id)
        # The newest segment was hashed for it: bad blocks there have no row any more.
        known = set(filter(self.store.has_block, self.damaged))
        self.named -= self.damaged - known
        self.damaged = known

    def torn(self) -> list[WindowId]:
        """Windows with a bad block in the newest segment, where nobody else names one of theirs."""
        stored = set(self.store.windows())
        gone = [name for name in self.stored if name not in stored]
        for name in gone:
            blocks = WINDOWS[name].record.blocks
            assert any(b not in self.named or b in self.damaged for b in blocks)
            assert not any(set(blocks) & set(WINDOWS[other].record.blocks) for other in stored)
        return gone

    @precondition(lambda self: bool(self.hurt()))
    @rule(data=st.data())
    def evict_one_that_is_hurt(self, data: st.DataObject) -> None:
        assert isinstance(self.store, DiskStore)
        name = POOL[data.draw(st.sampled_from(self.hurt()))].record.window_id
        with self.store._catalog.lock:
            self.store._remover._carry_out(self.store._remover._take([name]))
        self.went([name])

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.root)


@pytest.mark.spec(25)
@pytest.mark.parametrize(("machine", "num_examples"), [(MemoryMachine, 60), (DiskMachine, 25)])
def test_index_and_stores_agree(machine: Any, num_examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=num_examples * (20 if FULL else 1), stateful_step_count=25),
    )
