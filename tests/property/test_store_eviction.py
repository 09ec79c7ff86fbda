"""Who goes when room is needed, whatever came before: each store against sets and numbers."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from glia.errors import StoreFull
from glia.graph.ids import WindowId
from glia.store.base import BlockStore, SealedWindow
from glia.store.disk import DiskStore
from glia.store.memory import MemoryStore
from tests.builders import make_chain
from tests.store_parts import FULL, data_bytes, joined, killed, load, sealed, segment_files


def _pool() -> list[list[SealedWindow]]:
    """Conversations: three that fork from one, short ones, and twins in another class."""
    base = make_chain(4)
    forks = [sealed(make_chain(4, seed=seed, base=base)) for seed in range(3)]
    short = [sealed(make_chain(num, seed=100 + num)) for num in (1, 1, 2, 3)]
    twins = [
        SealedWindow(replace(w.record, numerics_class="native:twin"), w.prefix_key, w.particles)
        for w in forks[0][:5]
    ]
    return [*forks, *short, twins[:1], twins[2:3], twins[4:]]


CHAINS = _pool()
WINDOWS = {window.record.window_id: window for chain in CHAINS for window in chain}
Step = tuple[Callable[[], None], int]  # and how often, relative to others


def _names(windows: Iterable[SealedWindow]) -> list[WindowId]:
    return [window.record.window_id for window in windows]


class EvictionModel:
    """The model: what is stored, when each was last used (by itself or what continues it)."""

    store: BlockStore
    cap_bytes: int
    window_bytes: int  # at most, with rows

    def __init__(self, rng: random.Random) -> None:
        """Full from the start: what is put evicts."""
        self.rng = rng
        self.stored: set[WindowId] = set()
        self.spared: set[WindowId] = set()
        self.last_use: dict[WindowId, int] = {}
        self.now = self.num_refused = 0
        self.open()
        for chain in rng.sample(CHAINS, len(CHAINS)):
            for window in chain:
                self.put_windows([window])

    def open(self) -> None:
        raise NotImplementedError

    def steps(self) -> list[Step]:
        return [
            (self.put, 12),
            (self.load, 5),
            (self.touch, 3),
            (self.spare, 1),
            (self.spare_nothing, 1),
            (self.forget, 1),
        ]

    def part(self) -> list[SealedWindow]:
        chain = self.rng.choice(CHAINS)
        start = self.rng.randrange(len(chain))
        return chain[start : start + self.rng.randint(1, 5)]

    def used(self, names: Iterable[WindowId]) -> None:
        self.now += 1
        for name in names:
            here = name
            while here in self.stored:
                self.last_use[here] = self.now
                here = WINDOWS[here].record.prev

    def with_those_before(self, names: Iterable[WindowId]) -> set[WindowId]:
        found = set()
        for name in names:
            here = name
            while here in self.stored:
                found.add(here)
                here = WINDOWS[here].record.prev
        return found

    def put(self) -> None:
        self.put_windows(self.part())

    def put_windows(self, windows: list[SealedWindow]) -> None:
        before = set(self.stored)
        kept = set(_names(windows)) | {window.record.prev for window in windows}
        try:
            self.store.put(windows)
        except StoreFull:
            self.stored = set(self.store.windows())
            assert before & (kept | self.spared) <= self.stored <= before
            fixed = self.with_those_before(kept | self.spared) | set(_names(windows))
            assert (len(fixed) + 1) * self.window_bytes > self.cap_bytes
            self.num_refused += 1
            return
        self.stored = set(self.store.windows())
        assert self.stored >= set(_names(windows))
        assert load(self.store, windows) == [joined(window) for window in windows]
        evicted = before - self.stored
        assert not evicted & (kept | self.spared)
        stayed = before & self.stored
        for name in evicted:
            assert not any(WINDOWS[other].record.prev == name for other in stayed)
        leaves = stayed - {WINDOWS[other].record.prev for other in self.stored}
        for leaf in leaves - kept - self.spared:
            for name in evicted & self.last_use.keys():
                assert self.last_use[name] <= self.last_use.get(leaf, self.now)
        for name in evicted:
            self.last_use.pop(name, None)
        self.used(_names(windows))

    def load(self) -> None:
        windows = self.part()
        load(self.store, windows)
        self.used(_names(windows))

    def touch(self) -> None:
        names = _names(self.rng.choice(CHAINS))
        self.store.touch(names)
        self.used([name for name in names if name in self.stored][-1:])

    def spare(self) -> None:
        some = self.rng.sample(CHAINS, self.rng.randint(1, 4))
        self.spared = {name for chain in some for name in _names(chain)}
        self.store.spare(self.spared)

    def spare_nothing(self) -> None:
        self.spared = set()
        self.store.spare(())

    def forget(self) -> None:
        """And whatever continues them, as those who forget do."""
        gone = set(_names(self.part()))
        while more := {n for n in self.stored if WINDOWS[n].record.prev in gone} - gone:
            gone |= more
        before = self.with_those_before(gone)
        self.store.forget(gone)
        self.stored -= gone
        for name in gone | before:  # a use by what is forgotten counts or not
            self.last_use.pop(name, None)

    def check_agreement(self, when: str) -> None:
        stats = self.store.stats()
        assert stats.used_bytes <= self.cap_bytes, when
        assert set(self.store.windows()) == self.stored, when
        for name in self.stored:  # what it shared with those that went is still there
            assert self.store.get(name) == WINDOWS[name].record, when
        assert stats.num_quarantined == 0, when

    def end(self) -> None:
        everything = [WINDOWS[name] for name in self.stored]
        assert load(self.store, everything) == list(map(joined, everything))
        assert self.store.check().bad == 0
        self.store.close()


class MemoryModel(EvictionModel):
    window_bytes = 1200
    cap_bytes = 9 * window_bytes

    def open(self) -> None:
        self.store = MemoryStore(self.cap_bytes)


class DiskModel(EvictionModel):
    """Also closed and opened, killed, and robbed of its index."""

    segment_bytes = 3 * 4096  # a head, and two windows
    window_bytes = 2 * 4096 + 1200  # alone in a segment
    cap_bytes = 8 * segment_bytes

    def open(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="glia-store-eviction-"))
        self.path = self.root / "store"
        self.store = self.opened()

    def opened(self) -> DiskStore:
        return DiskStore(self.path, self.cap_bytes, self.segment_bytes)

    def reopen(self) -> None:
        self.store.close()
        self.store = self.opened()
        self.store.spare(self.spared)

    def kill(self) -> None:
        """Uses since the last put are forgotten."""
        assert isinstance(self.store, DiskStore)
        killed(self.store)
        self.store = self.opened()
        self.store.spare(self.spared)
        self.last_use.clear()

    def lose_index(self) -> None:
        """The order of use is lost with it, and nothing else."""
        self.store.close()
        shutil.rmtree(self.path / "index")
        self.store = self.opened()
        self.store.spare(self.spared)
        self.last_use.clear()

    def check_agreement(self, when: str) -> None:
        super().check_agreement(when)
        assert isinstance(self.store, DiskStore)
        in_segments = self.store.stats().used_bytes - self.store._catalog.state.index_bytes
        assert in_segments == sum(map(data_bytes, segment_files(self.path))), when

    def steps(self) -> list[Step]:
        return [*super().steps(), (self.reopen, 1), (self.kill, 1), (self.lose_index, 1)]

    def end(self) -> None:
        super().end()
        shutil.rmtree(self.root)


@pytest.mark.spec(30)
@pytest.mark.parametrize(("model", "num_walks"), [(MemoryModel, 30), (DiskModel, 8)])
def test_the_oldest_leaves_go(model: type[EvictionModel], num_walks: int) -> None:
    num_refused = 0
    for seed in range(num_walks * (20 if FULL else 1)):
        rng = random.Random(seed)
        walk = model(rng)
        steps = [step for step, weight in walk.steps() for _ in range(weight)]
        for number in range(80):
            step = rng.choice(steps)
            step()
            walk.check_agreement(f"seed {seed}, step {number}, {step.__name__}")
        num_refused += walk.num_refused
        walk.end()
    assert num_refused
