"""Windows leave L1 and L2 while others load, seal, write and read: the parts, without a socket."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import trio
import trio.testing

from daemon.erasing import erase, wipe
from daemon.memory import Memory
from glia.errors import NotFound, StoreFull
from glia.graph.ids import WindowId
from glia.graph.window import WindowRecord
from glia.local.messages import Seal
from glia.store.base import SealedWindow
from tests.builders import TINY, Chain, make_chain
from tests.node_parts import MIB, particles_of, payload_of
from tests.unit.test_writer import BINDING, MoodyStore, memory_of, seal

WINDOW = TINY.window_particle_bytes
Body = Callable[[Memory, MoodyStore], Awaitable[None]]


def silent(what: str, done: int, total: int) -> None:
    assert what
    assert 0 <= done <= total


def run_with(tmp_path: Path, body: Body, l1_bytes: int = MIB) -> None:
    async def main() -> None:
        with trio.fail_after(60):
            async with memory_of(tmp_path, l1_bytes) as (memory, store):
                await body(memory, store)
                memory.table.check()

    trio.run(main)


async def forget(memory: Memory, names: Sequence[WindowId]) -> None:
    memory.hidden.hide(names)
    await erase(memory, names, silent)
    memory.hidden.show(names)


def sentinels(chain: Chain, start: int = 0) -> list[bytes]:
    """32 bytes from the payload of every block from a window on."""
    return [p[200:232] for particles in chain.particles[start:] for p in particles]


def hits(memory: Memory, sentinels: Sequence[bytes]) -> int:
    arena = bytes(memory.arena.view)
    return sum(sentinel in arena for sentinel in sentinels)


def test_no_byte_stays_in_the_arena_and_others_are_untouched(tmp_path: Path) -> None:
    async def body(memory: Memory, store: MoodyStore) -> None:
        base = make_chain(4)
        gone, kept = make_chain(4, base=base, seed=1), make_chain(4, base=base, seed=2)
        for chain in (gone, kept):
            await seal(memory, chain)
            await memory.flush(chain.window_ids)
        assert hits(memory, sentinels(gone)) == 16
        await forget(memory, gone.window_ids[4:])
        assert hits(memory, sentinels(gone, 4)) == 0
        assert set(store.windows()) == set(kept.window_ids)
        pinned = await memory.loader.pin(BINDING, kept.window_ids)
        assert list(pinned.tiers) == [1] * 8
        arena = memory.arena.view
        starts = [int.from_bytes(pinned.offsets[at : at + 8], "little") for at in range(0, 128, 16)]
        assert [bytes(arena[at : at + WINDOW]) for at in starts] == particles_of(kept)
        assert await memory.match(BINDING, gone.tokens) == base.window_ids

    run_with(tmp_path, body)


def test_what_l1_evicted_long_ago_is_wiped_too(tmp_path: Path) -> None:
    async def body(memory: Memory, store: MoodyStore) -> None:
        gone = make_chain(8)
        await seal(memory, gone)
        await memory.evict()
        assert hits(memory, sentinels(gone)) == 16
        await forget(memory, gone.window_ids)
        assert hits(memory, sentinels(gone)) == 0
        assert not any(memory.arena.view)

    run_with(tmp_path, body)


def test_wiping_touches_nothing_that_was_never_used(tmp_path: Path) -> None:
    async def body(memory: Memory, store: MoodyStore) -> None:
        await seal(memory, make_chain(3))
        await memory.evict()
        assert memory.table.stale_ranges(0) == [(0, 3 * WINDOW)]
        assert memory.table.stale_ranges(WINDOW) == [(WINDOW, 3 * WINDOW)]
        await wipe(memory)

    run_with(tmp_path, body, 64 * MIB)


def test_wiping_goes_on_beside_those_who_fill(tmp_path: Path) -> None:
    """Sixteen steps of the wipe, and a seal between any two."""

    async def body(memory: Memory, store: MoodyStore) -> None:
        await seal(memory, make_chain(40))
        await memory.evict()
        memory.table._blocks._extents.peak_bytes = 64 * MIB
        memory.arena.view[40 * WINDOW :] = b"x" * (64 * MIB - 40 * WINDOW)
        chains = [make_chain(20, seed=seed) for seed in range(1, 9)]

        async def fill() -> None:
            for chain in chains:
                await seal(memory, chain)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fill)
            await wipe(memory)
        assert all(not any(memory.arena.view[a:b]) for a, b in memory.table.stale_ranges(0))
        for chain in chains:
            pinned = await memory.loader.pin(BINDING, chain.window_ids)
            assert list(pinned.tiers) == [1] * 20
        assert sum(hits(memory, sentinels(chain)) for chain in chains) == 8 * 40

    run_with(tmp_path, body, 64 * MIB)


def test_a_dirty_window_is_not_written_any_more(tmp_path: Path) -> None:
    async def body(memory: Memory, store: MoodyStore) -> None:
        store.mood = lambda _: StoreFull("full")
        gone = make_chain(4)
        await seal(memory, gone)
        await memory.writer.flush_all()
        assert memory.table.dirty_bytes == 4 * WINDOW
        store.mood = lambda _: None
        store.groups.clear()
        await forget(memory, gone.window_ids)
        assert memory.table.dirty_bytes == 0
        await memory.writer.flush_all()
        assert store.groups == []
        with pytest.raises(NotFound):
            await memory.flush(gone.window_ids)

    run_with(tmp_path, body)


def test_a_group_that_is_being_written_is_waited_for(tmp_path: Path) -> None:
    async def body(memory: Memory, store: MoodyStore) -> None:
        written = threading.Event()

        def slow(window: SealedWindow) -> None:
            assert written.wait(60)

        store.mood = slow
        gone, kept = make_chain(4), make_chain(4, seed=1)
        await seal(memory, gone)
        await seal(memory, kept)
        await trio.testing.wait_all_tasks_blocked(0.01)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(forget, memory, gone.window_ids)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert gone.tip in memory.table
            written.set()
        await memory.flush(kept.window_ids)
        assert set(store.windows()) == set(kept.window_ids)
        assert gone.tip not in memory.table

    run_with(tmp_path, body)


def test_whoever_waits_for_a_dirty_window_does_not_hang(tmp_path: Path) -> None:
    async def body(memory: Memory, store: MoodyStore) -> None:
        proceed = threading.Event()
        first = make_chain(1, seed=5)

        def slow(window: SealedWindow) -> None:
            if window.record.window_id == first.tip:
                assert proceed.wait(60)

        store.mood = slow
        gone = make_chain(4)
        await seal(memory, first)
        await trio.testing.wait_all_tasks_blocked(0.01)
        await seal(memory, gone)

        async def flush() -> None:
            with pytest.raises(NotFound), trio.fail_after(60):
                await memory.flush(gone.window_ids)
            proceed.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flush)
            await trio.testing.wait_all_tasks_blocked(0.01)
            memory.table.pin(gone.tip)
            nursery.start_soon(forget, memory, gone.window_ids)
            await trio.testing.wait_all_tasks_blocked(0.01)  # it is withdrawn, and still there
            memory.loader.unpin([gone.tip])

    run_with(tmp_path, body)


def test_flushing_does_not_write_again_what_is_being_forgotten(tmp_path: Path) -> None:
    async def body(memory: Memory, store: MoodyStore) -> None:
        gone = make_chain(4)
        await seal(memory, gone)
        await memory.flush(gone.window_ids)
        memory.hidden.hide(gone.window_ids)
        store.forget(gone.window_ids)
        store.groups.clear()
        with pytest.raises(NotFound):
            await memory.flush(gone.window_ids)
        assert store.groups == []

    run_with(tmp_path, body)


def test_a_pinned_window_is_waited_for(tmp_path: Path) -> None:
    async def body(memory: Memory, store: MoodyStore) -> None:
        gone = make_chain(4)
        await seal(memory, gone)
        await memory.loader.pin(BINDING, gone.window_ids[:2])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(forget, memory, gone.window_ids)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert gone.tip in memory.table
            assert list((await memory.loader.pin(BINDING, gone.window_ids)).tiers) == []
            memory.loader.unpin(gone.window_ids[:2])
        assert len(memory.table) == 0
        assert hits(memory, sentinels(gone)) == 0
        await seal(memory, gone)
        await memory.loader.pin(BINDING, gone.window_ids)
        with pytest.raises(ValueError, match="cannot be forgotten"):
            memory.table.forget(gone.window_ids)

    run_with(tmp_path, body)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_records_that_were_read_are_forgotten_too(tmp_path: Path, when: str) -> None:
    async def body(memory: Memory, store: MoodyStore) -> None:
        gone = make_chain(4)
        await seal(memory, gone)
        await memory.evict()
        real = store.get

        def get(name: WindowId) -> WindowRecord | None:
            record = real(name)
            if when == "meanwhile" and record is not None:
                trio.from_thread.run(forget, memory, gone.window_ids)
            return record

        store.get = get  # type: ignore[method-assign]
        assert await trio.to_thread.run_sync(memory.records.get, gone.tip) == gone.records[-1]
        store.get = real  # type: ignore[method-assign]
        if when == "before":
            await forget(memory, gone.window_ids)
        assert memory.records.get(gone.tip) is None

    run_with(tmp_path, body)


def test_a_record_is_not_kept_where_all_of_forgetting_came_between(tmp_path: Path) -> None:
    """After the look whether it is hidden, and before its record was read and kept."""

    async def body(memory: Memory, store: MoodyStore) -> None:
        gone = make_chain(4)
        await seal(memory, gone)
        await memory.evict()
        look, read = memory.table.record, store.get

        def record(name: WindowId) -> WindowRecord | None:
            memory.table.record = look  # type: ignore[method-assign]
            trio.from_thread.run_sync(memory.hidden.hide, gone.window_ids)
            return look(name)

        def get(name: WindowId) -> WindowRecord | None:
            store.get = read  # type: ignore[method-assign]
            found = read(name)
            trio.from_thread.run(erase, memory, gone.window_ids, silent)
            trio.from_thread.run_sync(memory.hidden.show, gone.window_ids)
            return found

        memory.table.record = record  # type: ignore[method-assign]
        store.get = get  # type: ignore[method-assign]
        assert await trio.to_thread.run_sync(memory.records.get, gone.tip) == gone.records[-1]
        assert memory.records.get(gone.tip) is None

    run_with(tmp_path, body)


class SlowReads(MoodyStore):
    """Reading waits until the test lets it go on."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reads = threading.Semaphore(1000)
        self.num_loads = 0

    def load(self, window_ids: Sequence[WindowId], into: Sequence[memoryview]) -> list[bool]:
        self.num_loads += 1
        answer = super().load(window_ids, into)
        assert self.reads.acquire(timeout=60)
        return answer


@pytest.mark.parametrize("is_shown", [True, False])
def test_what_is_loaded_while_it_is_forgotten_does_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_shown: bool
) -> None:
    """Whether its bytes are read before the disk has forgotten them, too, or after."""
    monkeypatch.setattr("tests.unit.test_writer.MoodyStore", SlowReads)

    async def body(memory: Memory, store: MoodyStore) -> None:
        assert isinstance(store, SlowReads)
        base = make_chain(2)
        gone = make_chain(2, base=base, seed=1)
        await seal(memory, gone)
        await memory.evict()
        store.reads = threading.Semaphore(0)
        tiers: list[int] = []

        async def lease() -> None:
            tiers.extend((await memory.loader.pin(BINDING, gone.window_ids)).tiers)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lease)
            await trio.testing.wait_all_tasks_blocked(0.01)
            memory.hidden.hide(gone.window_ids[2:])
            await erase(memory, gone.window_ids[2:], silent)
            if is_shown:
                memory.hidden.show(gone.window_ids[2:])
            store.reads.release(1000)
        assert tiers == [2, 2]
        assert len(memory.table) == 2
        assert hits(memory, sentinels(gone, 2)) == 0
        assert store.num_loads > 1  # what was read meanwhile counted for nothing

    run_with(tmp_path, body)


def test_what_was_leased_in_part_is_cut_where_forgetting_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.test_writer.MoodyStore", SlowReads)

    async def body(memory: Memory, store: MoodyStore) -> None:
        assert isinstance(store, SlowReads)
        chain = make_chain(4)
        await seal(memory, chain)
        await memory.evict()
        await memory.loader.pin(BINDING, chain.window_ids[:2])
        memory.loader.unpin(chain.window_ids[:2])
        store.reads = threading.Semaphore(0)
        tiers: list[int] = []

        async def lease() -> None:
            tiers.extend((await memory.loader.pin(BINDING, chain.window_ids)).tiers)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lease)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert memory.table.is_pinned(chain.window_ids[1])
            nursery.start_soon(forget, memory, chain.window_ids[1:])
            await trio.testing.wait_all_tasks_blocked(0.01)
            store.reads.release(1000)
        assert tiers == [1]
        assert memory.table.names() == chain.window_ids[:1]

    run_with(tmp_path, body)


def test_sealing_what_is_being_forgotten_makes_it_anew(tmp_path: Path) -> None:
    """A request that says the same has its windows, whenever it seals them."""

    async def body(memory: Memory, store: MoodyStore) -> None:
        chain = make_chain(4)
        await seal(memory, chain)
        await memory.flush(chain.window_ids)
        memory.hidden.hide(chain.window_ids)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(seal, memory, chain)
            await trio.testing.wait_all_tasks_blocked(0.01)
            await erase(memory, chain.window_ids, silent)
            assert len(memory.table) == 0
            memory.hidden.show(chain.window_ids)
        await memory.flush(chain.window_ids)
        assert await memory.match(BINDING, chain.tokens) == chain.window_ids
        assert set(store.windows()) == set(chain.window_ids)

    run_with(tmp_path, body)


def test_what_was_known_when_it_was_sealed_and_is_gone_is_written(tmp_path: Path) -> None:
    async def body(memory: Memory, store: MoodyStore) -> None:
        chain = make_chain(4)
        await seal(memory, chain)
        await memory.flush(chain.window_ids)
        real, fills = memory.sealer._fill, 0

        async def fill(*args: object) -> object:
            nonlocal fills
            fills += 1
            filled = await real(*args)  # type: ignore[arg-type]
            if fills == 1:
                await forget(memory, chain.window_ids)
            return filled

        memory.sealer._fill = fill  # type: ignore[method-assign,assignment]
        await seal(memory, chain)
        assert memory.table.dirty_bytes == 4 * WINDOW
        await memory.flush(chain.window_ids)
        assert set(store.windows()) == set(chain.window_ids)

    run_with(tmp_path, body)


def test_nothing_continues_what_is_being_forgotten(tmp_path: Path) -> None:
    async def body(memory: Memory, store: MoodyStore) -> None:
        base = make_chain(2)
        longer = make_chain(1, base=base, seed=1)
        await seal(memory, base)
        staging = memoryview(bytes(TINY.window_payload_bytes))
        call = Seal(1, base.tip, 32, list(longer.tokens[32:]), 0)
        memory.hidden.hide(base.window_ids)
        with pytest.raises(NotFound):
            await memory.sealer.seal(BINDING, staging, call)
        assert memory.table.used_bytes == 2 * WINDOW
        memory.hidden.show(base.window_ids)
        real = memory.sealer._room

        async def room(*args: object) -> list[int]:
            """Forgetting begins between the look at what is continued and its copy."""
            offsets = await real(*args)  # type: ignore[arg-type]
            memory.hidden.hide(base.window_ids)
            nursery.start_soon(forget, memory, base.window_ids)
            return offsets

        memory.sealer._room = room  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            with pytest.raises(NotFound):
                await memory.sealer.seal(BINDING, staging, call)
        assert len(memory.table) == 0
        assert not any(memory.arena.view)

    run_with(tmp_path, body)


@pytest.mark.parametrize("num_sealed", [0, 1])
def test_nothing_continues_what_was_forgotten_while_room_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_sealed: int
) -> None:
    """All of it: whoever waits for the disk may wait that long. Before a call's first group,
    and before its second, which continues the first."""
    monkeypatch.setattr("daemon.sealing._GROUP_BYTES", WINDOW)

    async def body(memory: Memory, store: MoodyStore) -> None:
        base = make_chain(2)
        longer = make_chain(2, base=base, seed=1)
        await seal(memory, base)
        gone = longer.window_ids[: 2 + num_sealed]
        real, num_calls = memory.sealer._room, 0

        async def room(*args: object) -> list[int]:
            nonlocal num_calls
            if num_calls == num_sealed:
                await forget(memory, gone)
            num_calls += 1
            return await real(*args)  # type: ignore[arg-type]

        memory.sealer._room = room  # type: ignore[method-assign]
        staging = memoryview(b"".join(payload_of(longer, number) for number in (2, 3)))
        call = Seal(1, base.tip, 32, list(longer.tokens[32:]), 0)
        with pytest.raises(NotFound):
            await memory.sealer.seal(BINDING, staging, call)
        assert len(memory.table) == 0
        assert not any(memory.arena.view)

    run_with(tmp_path, body)
