"""What peers sent becomes windows of L1, or leaves it as it was."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from daemon.adopting import Adopting
from daemon.arena import SharedMemory
from daemon.binding import Binding
from daemon.loading import FROM_PEER, IN_L1
from daemon.memory import Memory
from glia.errors import ArenaExhausted, MalformedParticle, NotFound, StoreFull
from glia.graph.profile import PositionMode
from glia.store.base import SealedWindow
from glia.store.disk import DiskStore
from tests.builders import CLASS, MODEL, TINY, Chain, make_chain, make_profile
from tests.store_parts import MIB, sealed

BINDING = Binding(MODEL, TINY, CLASS)
WINDOW = TINY.window_particle_bytes


class FullStore(DiskStore):
    """The real store, which takes nothing once it is full."""

    is_full = False

    def put(self, windows: Sequence[SealedWindow]) -> None:
        if self.is_full:
            raise StoreFull("full")
        super().put(windows)


@asynccontextmanager
async def memory_of(path: Path, l1_bytes: int = MIB) -> AsyncIterator[tuple[Memory, FullStore]]:
    arena, store = SharedMemory("test-l1", l1_bytes, 0), FullStore(path / "store", 64 * MIB, MIB)
    memory = Memory(arena, store, hot_steps=4)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(memory.writer.run)
            yield memory, store
            memory.table.check()
            assert not memory.table.num_reserved
            nursery.cancel_scope.cancel()
    finally:
        store.close()
        arena.close()


def sink(
    memory: Memory,
    chain: Chain,
    first: int = 0,
    binding: Binding = BINDING,
    expect: Callable[[], None] = lambda: None,
) -> Adopting:
    base = chain.records[first - 1] if first else None
    key = chain.keys[first - 1] if first else binding.root_key
    return memory.adopter.after(binding, base, key, memory.hidden.num_changes, expect)


async def bytes_of(memory: Memory, chain: Chain, binding: Binding = BINDING) -> list[bytes]:
    """What a lease of the chain shows of each window."""
    pinned = await memory.loader.pin(binding, chain.window_ids)
    view = memory.arena.view
    found = [
        b"".join(view[at : at + size] for at, size in memory.table.ranges(name))
        for name in pinned.windows
    ]
    memory.loader.unpin(pinned.windows)
    return found


def joined(chain: Chain) -> list[bytes]:
    return [b"".join(particles) for particles in chain.particles]


def test_windows_are_leased_as_a_peers_once_and_stored_behind_their_use(tmp_path: Path) -> None:
    async def main() -> None:
        chain = make_chain(6)
        async with memory_of(tmp_path) as (memory, store):
            adopting = sink(memory, chain)
            for record, particles in zip(chain.records, chain.particles, strict=True):
                await adopting.take(record, particles)
            assert adopting.records == list(chain.records)
            assert await memory.match(BINDING, chain.tokens) == chain.window_ids
            first = await memory.loader.pin(BINDING, chain.window_ids[:4])
            again = await memory.loader.pin(BINDING, chain.window_ids)
            assert list(first.tiers) == [FROM_PEER] * 4
            assert list(again.tiers) == [IN_L1] * 4 + [FROM_PEER] * 2
            memory.loader.unpin(first.windows)
            memory.loader.unpin(again.windows)
            assert (memory.loader.num_hits, memory.loader.num_misses) == (10, 0)
            await memory.flush(chain.window_ids)
            assert set(store.windows()) == set(chain.window_ids)
            await memory.evict()
            assert await bytes_of(memory, chain) == joined(chain)

    trio.run(main)


def test_that_windows_are_a_peers_is_written_before_one_can_be_found(tmp_path: Path) -> None:
    async def main() -> None:
        chain = make_chain(3)
        async with memory_of(tmp_path) as (memory, _):
            found: list[list[str]] = []

            def expect() -> None:
                found.append(
                    [name.hex() for key in chain.keys for name in memory.records.find(key)]
                )
                if len(found) == 1:
                    raise StoreFull("full")

            adopting = sink(memory, chain, expect=expect)
            with pytest.raises(StoreFull):
                await adopting.take(chain.records[0], chain.particles[0])
            assert not len(memory.table)
            assert not adopting.is_expected
            for record, particles in zip(chain.records, chain.particles, strict=True):
                await adopting.take(record, particles)
            assert adopting.is_expected
            assert found == [[], []]

    trio.run(main)


def test_a_window_that_left_l1_before_its_use_is_a_peers_still(tmp_path: Path) -> None:
    async def main() -> None:
        chain = make_chain(40)
        async with memory_of(tmp_path, 12 * WINDOW) as (memory, _):
            adopting = sink(memory, chain)
            for record, particles in zip(chain.records, chain.particles, strict=True):
                await adopting.take(record, particles)
            assert memory.table.num_evicted
            pinned = await memory.loader.pin(BINDING, chain.window_ids[:8])
            assert list(pinned.tiers) == [FROM_PEER] * 8
            memory.loader.unpin(pinned.windows)

    trio.run(main)


@pytest.mark.parametrize("mode", list(PositionMode))
def test_what_follows_windows_that_are_here(tmp_path: Path, mode: PositionMode) -> None:
    async def main() -> None:
        profile = make_profile(mode=mode)
        chain, binding = make_chain(6, profile=profile), Binding(MODEL, profile, CLASS)
        async with memory_of(tmp_path) as (memory, store):
            store.put(sealed(chain, range(3)))
            adopting = sink(memory, chain, 3, binding)
            for record, particles in zip(chain.records[3:], chain.particles[3:], strict=True):
                await adopting.take(record, particles)
            assert await bytes_of(memory, chain, binding) == joined(chain)
            assert memory.table.key_of(chain.tip) == chain.keys[-1]

    trio.run(main)


def test_blocks_that_are_here_are_taken_from_l2(tmp_path: Path) -> None:
    async def main() -> None:
        chain = make_chain(3)
        other = replace(chain.records[2], numerics_class="native:other")  # the same blocks
        async with memory_of(tmp_path) as (memory, store):
            store.put(sealed(chain))
            foreign = make_chain(1, seed=9).records[0]
            assert await memory.stored([other, foreign]) == set(other.blocks)
            await sink(memory, chain, 2).take(other, (chain.particles[2][0], None))
            assert memory.table.record(other.window_id) == other
            ranges = memory.table.ranges(other.window_id)
            found = [bytes(memory.arena.view[at : at + size]) for at, size in ranges]
            assert tuple(found) == chain.particles[2]

    trio.run(main)


def test_a_block_that_is_here_is_held_to_what_the_window_says(tmp_path: Path) -> None:
    async def main() -> None:
        chain, foreign = make_chain(2), make_chain(2, seed=1)
        blocks = (chain.records[1].blocks[0], foreign.records[1].blocks[1])
        forged = replace(chain.records[1], blocks=blocks)
        async with memory_of(tmp_path) as (memory, store):
            store.put(sealed(chain))
            store.put(sealed(foreign))
            with pytest.raises(MalformedParticle):
                await sink(memory, chain, 1).take(forged, (None, None))
            assert forged.window_id not in memory.table
            with pytest.raises(NotFound):
                await sink(memory, chain, 1).take(make_chain(2, seed=2).records[1], (None, None))

    trio.run(main)


def test_what_is_being_forgotten_or_follows_it_is_not_entered(tmp_path: Path) -> None:
    async def main() -> None:
        chain = make_chain(4)
        async with memory_of(tmp_path) as (memory, store):
            store.put(sealed(chain, [0]))
            adopting = sink(memory, chain, 1)
            memory.hidden.hide([chain.window_ids[1]])
            with pytest.raises(NotFound, match="being forgotten"):
                await adopting.take(chain.records[1], chain.particles[1])
            memory.hidden.show([chain.window_ids[1]])
            await adopting.take(chain.records[1], chain.particles[1])  # its base is still there
            memory.hidden.hide(chain.window_ids[:2])
            await memory.writer.withdraw(chain.window_ids[:2])
            memory.table.forget(chain.window_ids[:2])
            store.forget(chain.window_ids[:2])
            memory.records.forget(chain.window_ids[:2])
            memory.hidden.show(chain.window_ids[:2])
            with pytest.raises(NotFound, match="was forgotten"):
                await adopting.take(chain.records[2], chain.particles[2])
            assert not len(memory.table)

    trio.run(main)


def test_where_the_disk_takes_nothing_l1_does_not_fill(tmp_path: Path) -> None:
    async def main() -> None:
        chain = make_chain(12)
        async with memory_of(tmp_path, 10 * WINDOW) as (memory, store):
            store.is_full = True
            adopting = sink(memory, chain)

            async def take_all() -> None:
                for record, particles in zip(chain.records, chain.particles, strict=True):
                    await adopting.take(record, particles)

            with pytest.raises(ArenaExhausted):
                await take_all()
            assert len(adopting.records) == 5
            assert memory.table.dirty_bytes == 5 * WINDOW

    trio.run(main)


@pytest.mark.parametrize("num_steps", range(1, 4))
def test_a_cancel_leaves_l1_as_it_was(tmp_path: Path, num_steps: int) -> None:
    async def main() -> None:
        chain = make_chain(1)
        async with memory_of(tmp_path) as (memory, _):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(sink(memory, chain).take, chain.records[0], chain.particles[0])
                for _ in range(num_steps):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            assert len(memory.table) in (0, 1)
            assert memory.table.used_bytes == len(memory.table) * WINDOW

    trio.run(main)
