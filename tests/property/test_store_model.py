"""Index and stores agree after any sequence of operations: each store against dicts and sets."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from glia.errors import HashMismatch, NotFound, StoreFull
from glia.graph.ids import BlockId, WindowId
from glia.store.base import BlockStore, SealedWindow
from glia.store.disk import DiskStore
from glia.store.memory import MemoryStore
from tests.builders import make_chain
from tests.store_parts import FULL, MIB, flip_bit, joined, load, sealed, segment_files


def _pool() -> list[SealedWindow]:
    """Two chains that fork, and windows of another class with the same blocks."""
    base = make_chain(3)
    one, other = make_chain(2, seed=1, base=base), make_chain(2, seed=2, base=base)
    windows = sealed(one) + sealed(other, range(3, 5))
    twins = [
        SealedWindow(replace(w.record, numerics_class="native:twin"), w.prefix_key, w.particles)
        for w in windows[1:4]
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
some_windows = st.lists(st.integers(0, len(POOL) - 1), min_size=1, max_size=4)
some_block = st.integers(0, len(BLOCKS) - 1)


class StoreMachine(RuleBasedStateMachine):
    """The model: windows that were put, blocks that the index names, those that are damaged."""

    store: BlockStore

    @initialize()
    def begin(self) -> None:
        self.stored: set[WindowId] = set()
        self.named: set[BlockId] = set()
        self.damaged: set[BlockId] = set()
        self.num_quarantined = 0
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
            self.stored.add(window.record.window_id)
            self.named.update(window.record.blocks)

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

    def open(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="glia-store-model-"))
        self.path = self.root / "store"
        self.store = self.opened()

    def opened(self) -> DiskStore:
        return DiskStore(self.path, 64 * MIB, segment_bytes=2048)

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
        """Let go of the files without writing anything, as a killed process does."""
        assert isinstance(self.store, DiskStore)
        self.store._catalog.index.close()
        self.store._lock.release()
        self.store = self.opened()
        self.num_quarantined = 0

    @rule()
    def lose_index(self) -> None:
        """Rebuilt from the segments; what was quarantined is found out anew."""
        self.store.close()
        shutil.rmtree(self.path / "index")
        self.store = self.opened()
        self.num_quarantined = 0
        for name in self.stored:
            for block_id in WINDOWS[name].record.blocks:
                if block_id not in self.named:
                    self.damaged.add(block_id)
                    self.named.add(block_id)

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.root)


@pytest.mark.spec(30)
@pytest.mark.parametrize("kind", [MemoryStore, DiskStore])
@given(puts=st.lists(some_windows, min_size=1, max_size=12))
@settings(max_examples=500 if FULL else 30)
def test_a_put_within_the_cap_is_whole_when_it_returns(kind: Any, puts: list[list[int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "store"
        store = DiskStore(path, 10_000) if kind is DiskStore else MemoryStore(6_000)
        for numbers in puts:
            windows = [POOL[number] for number in numbers]
            before = set(store.windows())
            try:
                store.put(windows)
            except StoreFull:  # what it continues fills the store
                prevs = {window.record.prev for window in windows}
                assert prevs & before
                assert prevs & before <= set(store.windows())
                continue
            stats = store.stats()
            assert stats.used_bytes <= stats.cap_bytes
            assert load(store, windows) == [joined(window) for window in windows]
            assert stats.num_windows == len(list(store.windows()))
        store.close()


@pytest.mark.spec(25)
@pytest.mark.parametrize(("machine", "num_examples"), [(MemoryMachine, 60), (DiskMachine, 25)])
def test_index_and_stores_agree(machine: Any, num_examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=num_examples * (20 if FULL else 1), stateful_step_count=25),
    )
