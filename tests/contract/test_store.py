"""What every BlockStore must do, asked of each implementation."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glia.errors import HashMismatch, MalformedParticle, NotFound, StoreBroken, StoreFull
from glia.graph.chain import longest_chain, walk
from glia.graph.ids import BlockId, PrefixKey, WindowId
from glia.store.base import BlockStore, SealedWindow
from glia.store.disk import DiskStore
from glia.store.memory import MemoryStore
from tests.builders import CLASS, MODEL, TINY, WIDE, make_chain
from tests.store_parts import (
    MIB,
    assert_holds,
    flip_bit,
    load,
    names,
    sealed,
    segment_files,
    size_of,
)

KINDS = ("memory", "disk")


CAP = 8 * (2 * 65_728 + 8192)  # eight windows of WIDE with their rows


def _alone(seed: int) -> SealedWindow:
    """A window that continues nothing stored and that nothing continues."""
    return sealed(make_chain(1, profile=WIDE, seed=seed))[0]


class Made:
    """A store of one kind, and how to damage what it holds."""

    def __init__(self, kind: str, path: Path, cap_bytes: int = 64 * MIB) -> None:
        self.path = path
        self.store: BlockStore = (
            MemoryStore(cap_bytes) if kind == "memory" else DiskStore(path, cap_bytes)
        )

    def damage(self, particle: bytes, bit: int) -> None:
        """Turn over one bit of a stored particle."""
        if isinstance(self.store, MemoryStore):
            blocks: dict[BlockId, Any] = self.store._blocks
            for name, data in blocks.items():
                if data == particle:
                    changed = bytearray(data)
                    changed[bit // 8] ^= 1 << bit % 8
                    blocks[name] = bytes(changed)
                    return
        for file in segment_files(self.path):
            at = file.read_bytes().rfind(particle)
            if at >= 0:
                flip_bit(file, 8 * at + bit)
                return
        raise AssertionError("no such particle")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def made(kind: str, tmp_path: Path) -> Iterator[Made]:
    made = Made(kind, tmp_path / "store")
    yield made
    made.store.close()


@pytest.fixture
def store(made: Made) -> BlockStore:
    return made.store


def test_what_was_put_is_answered(store: BlockStore) -> None:
    windows = sealed(make_chain(5))
    store.put(windows)
    assert_holds(store, windows)
    assert set(store.windows()) == names(windows)
    stats = store.stats()
    assert (stats.num_windows, stats.num_blocks) == (5, 10)
    assert size_of(windows) <= stats.used_bytes <= stats.cap_bytes


def test_an_empty_store_answers_nothing(store: BlockStore) -> None:
    name = WindowId(b"n" * 32)
    assert store.find(PrefixKey(b"k" * 32)) == []
    assert store.get(name) is None
    assert store.load([name], [memoryview(bytearray(64))]) == [False]
    assert not store.has_block(BlockId(b"b" * 32))
    with pytest.raises(NotFound):
        store.read_block(BlockId(b"b" * 32))
    assert list(store.windows()) == []
    assert store.check().checked == 0
    assert store.stats().num_misses == 2


def test_putting_nothing_is_allowed(store: BlockStore) -> None:
    store.put([])
    assert store.stats().used_bytes == 0


@pytest.mark.spec(14)
def test_a_prompt_finds_its_longest_chain(store: BlockStore) -> None:
    chain = make_chain(6)
    store.put(sealed(chain))
    tokens = (*chain.tokens[: 4 * 16], 1, 2, 3)
    found = longest_chain(MODEL, TINY, tokens, store.find, store.get, [CLASS])
    assert [record.window_id for record in found] == chain.window_ids[:4]


@pytest.mark.spec(20)
def test_a_tip_leads_back_to_its_genesis(store: BlockStore) -> None:
    chain = make_chain(6)
    store.put(sealed(chain))
    assert walk(chain.tip, store.get) == list(chain.records)


@pytest.mark.spec(5)
def test_putting_again_writes_nothing(store: BlockStore) -> None:
    windows = sealed(make_chain(4))
    store.put(windows)
    before = store.stats()
    store.put(windows)
    store.put(windows[1:3] * 2)
    assert store.stats() == before


@pytest.mark.spec(5, 6)
def test_forks_share_their_prefix(store: BlockStore) -> None:
    base = make_chain(4)
    one, other = make_chain(2, seed=1, base=base), make_chain(2, seed=2, base=base)
    store.put(sealed(one))
    store.put(sealed(other))
    assert_holds(store, sealed(one))
    assert_holds(store, sealed(other))
    assert store.stats().num_blocks == (4 + 2 + 2) * 2


@pytest.mark.spec(5)
def test_windows_of_another_class_share_equal_blocks(store: BlockStore) -> None:
    windows = sealed(make_chain(3, profile=WIDE))
    store.put(windows)
    before = store.stats().used_bytes
    others = [_in_class(window, "native:other") for window in windows]
    store.put(others)
    assert_holds(store, windows)
    assert_holds(store, others)
    assert store.stats().num_blocks == 6
    assert store.stats().used_bytes - before < size_of(windows) // 8
    assert set(store.find(windows[0].prefix_key)) == names([windows[0], others[0]])


def _in_class(window: SealedWindow, numerics_class: str) -> SealedWindow:
    record = replace(window.record, numerics_class=numerics_class)
    return SealedWindow(record, window.prefix_key, window.particles)


def test_one_block_twice_in_a_put_is_kept_once(store: BlockStore) -> None:
    window = sealed(make_chain(1))[0]
    twin = _in_class(window, "native:twin")
    store.put([window, twin])
    assert_holds(store, [window, twin])
    assert store.stats().num_blocks == 2


def test_one_block_twice_in_a_window_is_kept_once(store: BlockStore) -> None:
    window = sealed(make_chain(1))[0]
    blocks = (window.record.blocks[0],) * 2 + window.record.blocks[1:]
    particles = [window.particles[0], *window.particles]
    double = SealedWindow(replace(window.record, blocks=blocks), window.prefix_key, particles)
    store.put([double])
    assert_holds(store, [double])
    assert store.stats().num_blocks == 2


def test_windows_load_in_any_order_and_more_than_once(store: BlockStore) -> None:
    windows = sealed(make_chain(7))
    store.put(windows)
    order = [windows[n] for n in (6, 0, 3, 3, 1)]
    assert load(store, order) == [b"".join(w.particles) for w in order]


def test_a_miss_does_not_spoil_its_neighbours(store: BlockStore) -> None:
    chain = make_chain(3)
    store.put(sealed(chain, [0, 2]))
    answers = load(store, sealed(chain))
    assert [answer is not None for answer in answers] == [True, False, True]
    assert (store.stats().num_hits, store.stats().num_misses) == (2, 1)


def test_a_buffer_of_another_length_is_the_callers_mistake(store: BlockStore) -> None:
    windows = sealed(make_chain(1))
    store.put(windows)
    with pytest.raises(ValueError, match="bytes"):
        store.load([windows[0].record.window_id], [memoryview(bytearray(10))])
    with pytest.raises(ValueError, match="buffers"):
        store.load([windows[0].record.window_id], [])


def test_the_seeds_shape_of_block_is_kept(store: BlockStore) -> None:
    windows = sealed(make_chain(2, profile=WIDE))
    store.put(windows)
    assert_holds(store, windows)


def test_particles_are_taken_from_any_buffer(store: BlockStore) -> None:
    window = sealed(make_chain(1))[0]
    arena = memoryview(bytearray(b"".join(map(bytes, window.particles))))
    half = len(window.particles[0])
    views = SealedWindow(window.record, window.prefix_key, [arena[:half], arena[half:]])
    store.put([views])
    arena[:] = bytes(len(arena))  # the arena is used for something else
    assert_holds(store, [window])


def test_sizes_that_fit_no_header_are_refused(store: BlockStore) -> None:
    window = sealed(make_chain(1))[0]
    short = [window.particles[0][:-1], *window.particles[1:]]
    for particles in (window.particles[:1], short, [b"", *window.particles[1:]]):
        with pytest.raises(MalformedParticle):
            store.put([SealedWindow(window.record, window.prefix_key, particles)])
    assert store.stats().num_windows == 0


@pytest.mark.spec(61)
@pytest.mark.parametrize("bit", [0, 8 * 100 + 3, -1])
def test_a_flipped_bit_is_a_miss_and_is_counted(made: Made, bit: int) -> None:
    windows = sealed(make_chain(3))
    made.store.put(windows)
    particle = bytes(windows[1].particles[1])
    made.damage(particle, bit % (8 * len(particle)))
    answers = load(made.store, windows)
    assert [answer is not None for answer in answers] == [True, False, True]
    assert made.store.stats().num_quarantined == 1
    assert made.store.get(windows[1].record.window_id) is None
    assert not made.store.has_block(windows[1].record.blocks[1])
    assert made.store.stats().num_blocks == 5


@pytest.mark.spec(61)
def test_read_block_names_the_damage_once(made: Made) -> None:
    window = sealed(make_chain(1))[0]
    made.store.put([window])
    made.damage(bytes(window.particles[0]), 77)
    with pytest.raises(HashMismatch):
        made.store.read_block(window.record.blocks[0])
    with pytest.raises(NotFound):
        made.store.read_block(window.record.blocks[0])
    assert made.store.read_block(window.record.blocks[1]) == window.particles[1]
    assert made.store.stats().num_quarantined == 1


@pytest.mark.spec(61)
def test_blocks_are_read_as_far_as_they_fit_and_verified(made: Made) -> None:
    windows = sealed(make_chain(3))
    made.store.put(windows)
    names = [name for window in windows for name in window.record.blocks]
    data = [bytes(particle) for window in windows for particle in window.particles]
    names.insert(2, BlockId(b"b" * 32))
    made.damage(data[3], 99)
    size = len(data[0])
    want = [data[0], data[1], None, data[2], None, data[4], data[5]]
    for room, num in ((6 * size, 7), (5 * size - 1, 6), (2 * size, 3), (size - 1, 0)):
        found = made.store.read_blocks(names, memoryview(bytearray(room)))
        assert [each and bytes(each) for each in found] == want[:num]
    assert made.store.read_blocks([], memoryview(bytearray(size))) == []
    assert made.store.stats().num_quarantined == 1
    assert made.store.stats().num_hits >= 9


@pytest.mark.spec(61)
def test_putting_again_heals_every_window_that_shares_the_block(made: Made) -> None:
    window = sealed(make_chain(1))[0]
    twin = _in_class(window, "native:twin")
    made.store.put([window, twin])
    made.damage(bytes(window.particles[1]), 5)
    assert load(made.store, [window, twin]) == [None, None]
    made.store.put([window])
    assert_holds(made.store, [window, twin])
    assert made.store.stats().num_blocks == 2
    assert made.store.check().bad == 0


@pytest.mark.spec(61)
@pytest.mark.parametrize("is_found_first", [True, False])
@pytest.mark.parametrize("num_twins", [1, 2])
def test_putting_heals_what_shared_a_bad_block_with_a_window_that_went(
    made: Made, num_twins: int, is_found_first: bool
) -> None:
    """The bad bytes lay in the group of the first: they go with it, found before that or not."""
    window = sealed(make_chain(1))[0]
    twins = [_in_class(window, f"native:twin{number}") for number in range(num_twins)]
    made.store.put([window, *twins])
    made.damage(bytes(window.particles[1]), 5)
    if is_found_first:
        assert load(made.store, [window]) == [None]
    made.store.forget([window.record.window_id])
    assert load(made.store, twins) == [None] * num_twins
    assert made.store.get(twins[0].record.window_id) is None
    made.store.put(twins[:1])
    assert_holds(made.store, twins)
    assert made.store.stats().num_quarantined == 1
    made.store.forget(names(twins))
    assert (made.store.stats().num_windows, made.store.stats().num_blocks) == (0, 0)


@pytest.mark.spec(61)
def test_check_finds_all_damage(made: Made) -> None:
    windows = sealed(make_chain(5))
    made.store.put(windows)
    calls: list[tuple[int, int]] = []
    report = made.store.check(lambda done, total: calls.append((done, total)))
    assert (report.checked, report.bad, report.windows, report.bad_windows) == (10, 0, 5, 0)
    assert calls[-1] == (15, 15)
    made.damage(bytes(windows[0].particles[0]), 9)
    made.damage(bytes(windows[3].particles[1]), 9)
    report = made.store.check()
    assert (report.checked, report.bad, report.windows, report.bad_windows) == (10, 2, 5, 2)
    report = made.store.check()
    assert (report.checked, report.bad, report.windows, report.bad_windows) == (8, 0, 5, 2)


@pytest.mark.spec(30)
def test_the_cap_holds_and_the_least_used_goes(kind: str, tmp_path: Path) -> None:
    windows = [_alone(seed) for seed in range(40)]
    made = Made(kind, tmp_path / "small", CAP)
    for window in windows:
        made.store.put([window])
        assert made.store.stats().used_bytes <= CAP
        load(made.store, windows[:1])  # the first is used all the time
    stats = made.store.stats()
    assert stats.num_evicted > 0
    there = [made.store.get(window.record.window_id) is not None for window in windows]
    assert there[0]
    assert there[-1]
    assert 4 <= sum(there) <= 8
    assert not any(there[1:20])
    assert stats.num_windows == sum(there)
    assert_holds(made.store, [w for w, here in zip(windows, there, strict=True) if here])
    made.store.close()


@pytest.mark.spec(30)
def test_what_can_never_fit_is_refused_and_nothing_is_lost(kind: str, tmp_path: Path) -> None:
    small, large = sealed(make_chain(2)), sealed(make_chain(1, profile=WIDE, seed=3))
    made = Made(kind, tmp_path / "small", 64 * 1024)
    made.store.put(small)
    with pytest.raises(StoreFull) as caught:
        made.store.put(large)
    assert caught.value.hint
    assert made.store.get(large[0].record.window_id) is None
    assert_holds(made.store, small)
    made.store.close()


def test_threads_put_and_read_together(store: BlockStore) -> None:
    chains = [make_chain(6, seed=seed) for seed in range(8)]
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait()
        for window in sealed(chains[number]):
            store.put([window])
            assert_holds(store, [window])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    for chain in chains:
        assert_holds(store, sealed(chain))
    assert store.stats().num_windows == 48
    assert store.check().bad == 0


def test_a_closed_store_says_so(store: BlockStore) -> None:
    windows = sealed(make_chain(1))
    store.put(windows)
    store.close()
    store.close()
    for question in (
        lambda: store.put(windows),
        lambda: store.get(windows[0].record.window_id),
        lambda: store.read_block(windows[0].record.blocks[0]),
        store.windows,
    ):
        with pytest.raises(StoreBroken, match="closed"):
            question()


def test_children_continue_a_window_or_a_genesis(store: BlockStore) -> None:
    base = make_chain(2)
    one, other = make_chain(1, seed=1, base=base), make_chain(1, seed=2, base=base)
    store.put(sealed(one))
    store.put(sealed(other, [2]))
    first, second = base.window_ids
    assert store.children(base.records[0].prev) == [first]
    assert store.children(first) == [second]
    assert set(store.children(second)) == {one.tip, other.tip}
    assert store.children(one.tip) == []


def test_a_window_has_children_before_it_is_stored(store: BlockStore) -> None:
    chain = make_chain(2)
    store.put(sealed(chain, [1]))
    assert store.children(chain.window_ids[0]) == [chain.tip]
    assert store.get(chain.window_ids[0]) is None


def _there(store: BlockStore, windows: list[SealedWindow]) -> list[bool]:
    return [store.get(window.record.window_id) is not None for window in windows]


@pytest.mark.spec(30)
def test_leaves_go_before_roots(kind: str, tmp_path: Path) -> None:
    """And a use of a window is one of those before it, also when the window is gone."""
    store = Made(kind, tmp_path / "small", CAP).store
    old = sealed(make_chain(3, profile=WIDE, seed=1))
    new = [_alone(seed) for seed in range(20, 36)]
    store.put(old)
    for window in new[:4]:
        store.put([window])
    load(store, old[2:])
    steps: list[int] = []
    for window in new[4:]:
        store.put([window])
        there = _there(store, old)
        assert there == sorted(there, reverse=True)
        assert all(there) or not any(_there(store, new[:4]))
        steps.append(sum(there))
    assert (steps[0], steps[-1]) == (3, 0)
    assert set(steps) & {1, 2}
    store.close()


@pytest.mark.spec(30)
def test_a_fork_keeps_its_root_as_long_as_a_leaf_is_used(kind: str, tmp_path: Path) -> None:
    store = Made(kind, tmp_path / "small", CAP).store
    base = make_chain(2, profile=WIDE)
    one = sealed(make_chain(1, profile=WIDE, seed=1, base=base))
    other = sealed(make_chain(1, profile=WIDE, seed=2, base=base))
    store.put(one)
    store.put(other)
    for seed in range(20, 40):
        store.put([_alone(seed)])
        store.touch([window.record.window_id for window in other])
        assert _there(store, other) == [True] * 3
        assert store.stats().used_bytes <= CAP
    assert _there(store, one) == [True, True, False]
    store.close()


@pytest.mark.spec(30)
def test_a_put_is_never_at_the_cost_of_what_it_continues(kind: str, tmp_path: Path) -> None:
    store = Made(kind, tmp_path / "small", CAP).store
    windows = sealed(make_chain(12, profile=WIDE))
    store.put(windows[:6])
    with pytest.raises(StoreFull) as caught:
        store.put(windows[6:])
    assert caught.value.hint
    assert _there(store, windows) == [True] * 6 + [False] * 6
    assert_holds(store, windows[:6])
    store.close()


@pytest.mark.spec(30)
def test_blocks_outlive_the_window_they_came_with(kind: str, tmp_path: Path) -> None:
    store = Made(kind, tmp_path / "small", CAP).store
    first = _alone(0)
    twin = _in_class(first, "native:twin")
    store.put([first])
    store.put([twin])
    for seed in range(1, 30):
        store.touch([twin.record.window_id])
        store.put([_alone(seed)])
        assert store.stats().used_bytes <= CAP
    assert _there(store, [first, twin]) == [False, True]
    assert_holds(store, [twin])
    assert store.check().bad == 0
    store.close()


@pytest.mark.spec(30)
def test_what_was_touched_goes_later(kind: str, tmp_path: Path) -> None:
    store = Made(kind, tmp_path / "small", CAP).store
    windows = [_alone(seed) for seed in range(9)]
    for window in windows[:7]:
        store.put([window])
    store.touch([windows[0].record.window_id])
    for window in windows[7:]:
        store.put([window])
    there = _there(store, windows)
    assert there[0]
    assert not there[1]
    store.close()


@pytest.mark.spec(30)
def test_what_is_spared_stays_and_a_put_is_refused_instead(kind: str, tmp_path: Path) -> None:
    store = Made(kind, tmp_path / "small", CAP).store
    windows = [_alone(seed) for seed in range(16)]
    for window in windows[:6]:
        store.put([window])
    store.spare(names(windows[:3]))
    for window in windows[6:12]:
        store.put([window])
    assert _there(store, windows[:6]) == [True] * 3 + [False] * 3
    store.spare(set(store.windows()))
    before = store.stats()
    with pytest.raises(StoreFull, match="spared") as caught:
        store.put(windows[12:])
    assert "forget" in (caught.value.hint or "")
    after = store.stats()
    assert (after.num_windows, after.used_bytes) == (before.num_windows, before.used_bytes)
    store.spare(None)
    store.forget(names(windows[:3]))
    store.put(windows[12:15])  # there is room
    with pytest.raises(StoreFull, match="spared"):
        store.put(windows[15:])
    assert_holds(store, windows[12:15])
    store.spare(())
    store.put(windows[12:])
    assert_holds(store, windows[12:])
    store.close()


@pytest.mark.spec(31)
def test_what_is_forgotten_is_gone_and_nothing_else(store: BlockStore) -> None:
    base = make_chain(3)
    one, other = make_chain(2, seed=1, base=base), make_chain(2, seed=2, base=base)
    store.put(sealed(one))
    store.put(sealed(other))
    before = store.stats()
    calls: list[tuple[int, int]] = []
    gone = sealed(one, [3, 4])
    unknown = WindowId(b"n" * 32)
    forgotten = store.forget(
        [*names(gone), unknown], lambda done, total: calls.append((done, total))
    )
    assert forgotten.num_windows == 2
    assert forgotten.freed_bytes > 0
    assert calls[-1][0] == calls[-1][1]
    assert load(store, gone) == [None, None]
    for window in gone:
        assert store.get(window.record.window_id) is None
        assert store.find(window.prefix_key) == []
        assert not any(map(store.has_block, window.record.blocks))
    assert_holds(store, sealed(other))
    assert set(store.windows()) == names(sealed(other))
    assert store.children(base.tip) == [other.window_ids[3]]
    after = store.stats()
    assert (after.num_windows, after.num_blocks) == (5, 10)
    assert after.used_bytes < before.used_bytes
    assert store.check().bad == 0
    store.put(gone)
    assert_holds(store, sealed(one))


@pytest.mark.spec(31)
def test_blocks_that_another_window_names_are_not_forgotten(store: BlockStore) -> None:
    window = sealed(make_chain(1))[0]
    twin = _in_class(window, "native:twin")
    store.put([window, twin])
    store.forget([window.record.window_id])
    assert_holds(store, [twin])
    assert store.stats().num_blocks == 2
    store.forget([twin.record.window_id])
    assert (store.stats().num_windows, store.stats().num_blocks) == (0, 0)


def test_what_is_spared_can_be_forgotten(store: BlockStore) -> None:
    windows = sealed(make_chain(2))
    store.put(windows)
    store.spare(names(windows))
    assert store.forget(names(windows)).num_windows == 2
    assert list(store.windows()) == []
