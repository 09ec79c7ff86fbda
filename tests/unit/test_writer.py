"""What is dirty goes down, and what the store refuses stays: the parts, without a socket."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
import trio.testing

from daemon.arena import SharedMemory, make_staging
from daemon.binding import Binding
from daemon.memory import Memory
from glia.errors import ArenaExhausted, BadRequest, GliaError, NotFound, StoreBroken, StoreFull
from glia.graph.ids import WindowId
from glia.local.messages import Seal
from glia.store.base import SealedWindow
from glia.store.disk import DiskStore
from tests.builders import CLASS, MODEL, TINY, Chain, make_chain
from tests.node_parts import MIB, particles_of, payload_of

WINDOW = TINY.window_particle_bytes
BINDING = Binding(MODEL, TINY, CLASS)


class MoodyStore(DiskStore):
    """The real store, which refuses what the test says it shall."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, 64 * MIB, MIB)
        self.mood: Callable[[SealedWindow], GliaError | OSError | None] = lambda _: None
        self.groups: list[int] = []

    def put(self, windows: Sequence[SealedWindow]) -> None:
        self.groups.append(len(windows))
        for window in windows:
            error = self.mood(window)
            if error is not None:
                raise error
        super().put(windows)


@asynccontextmanager
async def memory_of(tmp_path: Path, l1_bytes: int) -> AsyncIterator[tuple[Memory, MoodyStore]]:
    arena = SharedMemory("test-l1", l1_bytes, 0)
    store = MoodyStore(tmp_path / "store")
    memory = Memory(arena, store, hot_steps=4)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(memory.writer.run)
            yield memory, store
            nursery.cancel_scope.cancel()
    finally:
        store.close()
        arena.close()


async def seal(memory: Memory, chain: Chain) -> list[WindowId]:
    payloads = b"".join(payload_of(chain, n) for n in range(len(chain.records)))
    staging = make_staging(len(payloads))
    staging.view[:] = payloads
    try:
        call = Seal(1, None, 0, list(chain.tokens), 0)
        return (await memory.sealer.seal(BINDING, staging.view, call)).windows
    finally:
        staging.close()


def test_a_window_is_named_by_how_its_name_begins(tmp_path: Path) -> None:
    chain = make_chain(3)

    async def main() -> None:
        async with memory_of(tmp_path, MIB) as (memory, store):
            names = await seal(memory, chain)
            assert [await memory.named(name[:4]) for name in names] == names
            await memory.flush(names)
            memory.table.evict()
            assert not memory.table.names()
            assert [await memory.named(name[:4]) for name in names] == names
            with pytest.raises(NotFound):
                await memory.named(bytes(4))
            assert await memory.named(bytes(32)) == bytes(32)  # whether it is here is the walk's
            like = WindowId(names[0][:31] + bytes([names[0][31] ^ 1]))
            store.windows = lambda: iter([like, names[0]])  # type: ignore[method-assign]
            with pytest.raises(BadRequest, match="2 windows"):
                await memory.named(names[0][:31])

    trio.run(main)


def test_flush_waits_for_the_disk(tmp_path: Path) -> None:
    async def main() -> None:
        async with memory_of(tmp_path, MIB) as (memory, store):
            chain = make_chain(8)
            assert await seal(memory, chain) == chain.window_ids
            await memory.flush(chain.window_ids)
            assert memory.table.dirty_bytes == 0
            assert set(store.windows()) == set(chain.window_ids)
            assert store.get(chain.tip) == chain.records[-1]

    trio.run(main)


@pytest.mark.spec(29)
def test_what_the_store_refuses_stays_and_is_tried_again(tmp_path: Path) -> None:
    """One window of a group is refused: the others are written, it stays in L1 until it is, too."""

    async def main() -> None:
        async with memory_of(tmp_path, MIB) as (memory, store):
            chain = make_chain(8)
            refused = chain.window_ids[5]
            store.mood = lambda window: (
                StoreFull("full") if window.record.window_id == refused else None
            )
            await seal(memory, chain)
            with pytest.raises(StoreFull):
                await memory.flush(chain.window_ids)
            assert set(store.windows()) == set(chain.window_ids) - {refused}
            assert memory.table.dirty_bytes == WINDOW
            assert (await memory.evict())[1] == 7
            pinned = await memory.loader.pin(BINDING, chain.window_ids)
            assert list(pinned.tiers) == [2, 2, 2, 2, 2, 1, 2, 2]
            offset = int.from_bytes(pinned.offsets[80:88], "little")
            assert memory.arena.view[offset : offset + WINDOW] == particles_of(chain)[5]
            store.mood = lambda _: None
            await memory.flush(chain.window_ids)
            assert memory.table.dirty_bytes == 0
            assert set(store.windows()) == set(chain.window_ids)

    trio.run(main)


def test_a_refused_window_that_is_asked_for_while_its_group_is_written(tmp_path: Path) -> None:
    """It is tried again once the rest of the group is done; whoever waits for it does not hang."""

    async def main() -> None:
        async with memory_of(tmp_path, MIB) as (memory, store):
            chain = make_chain(3)
            refused, *_, last = chain.window_ids
            last_is_written, asked_again = threading.Event(), threading.Event()

            def refuse_one(window: SealedWindow) -> StoreFull | None:
                if window.record.window_id == last:
                    last_is_written.set()
                    asked_again.wait(60)
                return StoreFull("full") if window.record.window_id == refused else None

            async def ask_again() -> None:
                await trio.to_thread.run_sync(last_is_written.wait, 10)
                store.mood = lambda _: None
                nursery.start_soon(memory.flush, [refused])
                await trio.testing.wait_all_tasks_blocked()
                asked_again.set()

            store.mood = refuse_one
            with trio.fail_after(10):
                async with trio.open_nursery() as nursery:
                    await seal(memory, chain)
                    nursery.start_soon(ask_again)
            assert store.groups[0] == 3
            assert memory.table.dirty_bytes == 0
            assert store.get(refused) == chain.records[0]

    trio.run(main)


@pytest.mark.spec(29)
def test_when_nothing_can_be_written_sealing_ends_before_l1_is_full(tmp_path: Path) -> None:
    async def main() -> None:
        async with memory_of(tmp_path, 4096 * 4) as (memory, store):
            room = memory.arena.size_bytes // WINDOW
            store.mood = lambda _: StoreFull("the disk is full", hint="make room")
            sealed: list[Chain] = []
            for seed in range(room // 2):
                sealed.append(make_chain(1, seed=seed))
                await seal(memory, sealed[-1])
            with pytest.raises(ArenaExhausted, match="the disk is full") as exhausted:
                await seal(memory, make_chain(1, seed=98))
            assert exhausted.value.hint == "make room"
            assert memory.table.dirty_bytes == len(sealed) * WINDOW
            for chain in sealed:  # nothing dirty was dropped
                pinned = await memory.loader.pin(BINDING, chain.window_ids)
                offset = int.from_bytes(pinned.offsets[:8], "little")
                assert memory.arena.view[offset : offset + WINDOW] == particles_of(chain)[0]
                memory.loader.unpin(pinned.windows)
            store.mood = lambda _: None
            last = make_chain(1, seed=99)
            await seal(memory, last)  # nobody flushed: needing the room tries the disk again
            await memory.flush(last.window_ids)
            assert set(store.windows()) == {chain.tip for chain in (*sealed, last)}

    trio.run(main)


def test_flushing_all_ends_though_others_go_on_sealing(tmp_path: Path) -> None:
    """Before a window is written there is another one that waits."""

    async def main() -> None:
        async with memory_of(tmp_path, MIB) as (memory, store):
            numbers = itertools.count(1)

            def seal_another(_: SealedWindow) -> None:
                trio.from_thread.run(seal, memory, make_chain(1, seed=next(numbers)))

            store.mood = seal_another
            await seal(memory, make_chain(1))
            with trio.fail_after(5):
                await memory.writer.flush_all()
            assert store.get(make_chain(1).tip) is not None
            assert not memory.writer.is_idle
            store.mood = lambda _: None

    trio.run(main)


def test_a_window_that_never_fits_empties_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with memory_of(tmp_path, 4096) as (memory, _):
            chain = make_chain(2)
            await seal(memory, chain)
            await memory.flush(chain.window_ids)
            assert memory.table.reserve(8192, 1) == []
            assert len(memory.table) == 2

    trio.run(main)


def test_sealing_more_than_l1_holds_waits_for_the_disk(tmp_path: Path) -> None:
    async def main() -> None:
        async with memory_of(tmp_path, 4096 * 2) as (memory, store):
            chain = make_chain(100)
            assert await seal(memory, chain) == chain.window_ids
            await memory.flush(chain.window_ids)
            assert set(store.windows()) == set(chain.window_ids)
            memory.table.check()
            assert max(store.groups) > 1

    trio.run(main)


def test_an_operating_system_error_is_a_broken_store(tmp_path: Path) -> None:
    async def main() -> None:
        async with memory_of(tmp_path, MIB) as (memory, store):
            chain = make_chain(1)
            store.mood = lambda _: OSError(5, "Input/output error")
            await seal(memory, chain)
            with pytest.raises(StoreBroken, match="Input/output error"):
                await memory.flush(chain.window_ids)
            store.mood = lambda _: None
            await memory.flush(chain.window_ids)

    trio.run(main)


def test_a_seal_that_is_cancelled_or_fails_gives_its_room_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled when room for its windows is reserved; failed when they stand there."""

    async def main() -> None:
        async with memory_of(tmp_path, MIB) as (memory, store):
            reserve, reserved = memory.table.reserve, []

            def tell(size_bytes: int, count: int) -> list[int]:
                reserved.append(count)
                return reserve(size_bytes, count)

            monkeypatch.setattr(memory.table, "reserve", tell)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(cancel, nursery.cancel_scope)
                await seal(memory, make_chain(4))
            assert reserved == [4]
            assert nursery.cancel_scope.cancelled_caught
            assert memory.table.used_bytes == 0
            memory.table.check()
            store.close()
            with pytest.raises(StoreBroken):
                await seal(memory, make_chain(4))
            assert memory.table.used_bytes == 0
            memory.table.check()

    async def cancel(scope: trio.CancelScope) -> None:
        scope.cancel()

    trio.run(main)


def test_a_lease_that_fails_gives_room_and_pins_back(tmp_path: Path) -> None:
    """Two windows are in L1 and pinned, room for the others is reserved, the store fails."""

    async def main() -> None:
        async with memory_of(tmp_path, MIB) as (memory, store):
            chain = make_chain(4)
            await seal(memory, chain)
            await memory.flush(chain.window_ids)
            held = await memory.loader.pin(BINDING, chain.window_ids[:2])
            await memory.evict()
            memory.loader.unpin(held.windows)
            assert all(map(memory.records.get, chain.window_ids))  # known without the store
            store.close()
            with pytest.raises(StoreBroken):
                await memory.loader.pin(BINDING, chain.window_ids)
            assert memory.table.used_bytes == 2 * WINDOW
            assert memory.table.evict() == (2 * WINDOW, 2)
            memory.table.check()

    trio.run(main)


def test_what_l2_has_lost_is_written_again_when_it_is_sealed_again(tmp_path: Path) -> None:
    """Its records are remembered still: they are no proof that it is stored."""

    async def main() -> None:
        async with memory_of(tmp_path, MIB) as (memory, store):
            chain = make_chain(3)
            await seal(memory, chain)
            await memory.flush(chain.window_ids)
            await memory.evict()
            assert all(map(memory.records.get, chain.window_ids))
            store.forget(chain.window_ids)
            await seal(memory, chain)
            await memory.flush(chain.window_ids)
            assert set(store.windows()) == set(chain.window_ids)

    trio.run(main)


def test_flush_writes_again_what_l2_has_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with memory_of(tmp_path, MIB) as (memory, store):
            chain = make_chain(8)
            await seal(memory, chain)
            await memory.flush(chain.window_ids)
            for segment in (tmp_path / "store" / "segments").iterdir():
                segment.unlink()
            room = memoryview(bytearray(TINY.window_particle_bytes))
            assert store.load([chain.tip], [room]) == [False]
            assert store.get(chain.tip) is None
            await memory.flush(chain.window_ids)
            assert all(store.get(name) is not None for name in chain.window_ids)
            assert store.load([chain.tip], [room]) == [True]
            assert not memory.table.dirty_bytes
            memory.table.check()

    trio.run(main)


async def until(is_true: Callable[[], bool]) -> None:
    """What a worker thread does comes true, on a clock that stands still."""
    while not is_true():
        await trio.to_thread.run_sync(time.sleep, 0.001)


def later(memory: Memory, chain: Chain, number: int) -> None:
    """A window of a peer's is in L1 now."""
    (offset,) = memory.table.reserve(WINDOW, 1)
    record, key = chain.records[number], chain.keys[number]
    memory.table.enter(offset, record, key, TINY.particle_sizes, dirty=True)
    memory.arena.view[offset : offset + WINDOW] = b"".join(chain.particles[number])
    memory.writer.add_later(record.window_id)


@pytest.mark.parametrize("how", ["quiet", "late", "waited for", "followed"])
def test_what_can_be_written_later_waits_until_no_more_come(tmp_path: Path, how: str) -> None:
    clock = trio.testing.MockClock()

    async def main() -> None:
        async with memory_of(tmp_path, MIB) as (memory, store):
            chain = make_chain(11)
            for number in range(10):
                later(memory, chain, number)
                clock.jump(0.2)
                await trio.testing.wait_all_tasks_blocked()
                assert not store.groups
            if how == "quiet":
                clock.jump(0.06)
            elif how == "late":
                later(memory, chain, 10)
                clock.jump(0.2)
            elif how == "followed":
                memory.writer.add(chain.window_ids[3])
            else:
                await memory.flush(chain.window_ids[:1])
            await until(lambda: bool(store.groups))
            assert store.groups[0] in (10, 11)
            await memory.flush(chain.window_ids[:10])
            await until(lambda: memory.writer.is_idle)
            later(memory, make_chain(1, seed=5), 0)
            await trio.testing.wait_all_tasks_blocked()
            assert len(store.groups) == 1

    trio.run(main, clock=clock)
