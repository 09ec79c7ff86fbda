"""L2 is told of each chain that was used, and nobody waits for that."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from daemon.arena import SharedMemory
from daemon.memory import Memory
from daemon.uses import Uses
from glia.graph.ids import WindowId
from glia.store.memory import MemoryStore
from tests.builders import make_chain
from tests.conversation_parts import run, tip_of
from tests.node_parts import MIB
from tests.store_parts import sealed

CHAINS = [make_chain(3, seed=seed) for seed in range(3)]


class ToldStore(MemoryStore):
    """The real one; remembers what it was told."""

    def __init__(self, cap_bytes: int) -> None:
        super().__init__(cap_bytes)
        self.told: list[list[WindowId]] = []

    def touch(self, chain: Sequence[WindowId]) -> None:
        super().touch(chain)
        self.told.append(list(chain))


def filled(cap_bytes: int) -> ToldStore:
    store = ToldStore(cap_bytes)
    for chain in CHAINS:
        store.put(sealed(chain))
    return store


@asynccontextmanager
async def telling(cap_bytes: int = MIB) -> AsyncIterator[tuple[Uses, ToldStore]]:
    arena, store = SharedMemory("test-l1", MIB, 0), filled(cap_bytes)
    uses = Uses(Memory(arena, store, hot_steps=4))
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(uses.run)
            yield uses, store
            nursery.cancel_scope.cancel()
    finally:
        arena.close()


async def until_told(store: ToldStore, num: int) -> None:
    with trio.fail_after(60):
        while len(store.told) < num:
            await trio.sleep(0.001)


def test_a_store_that_fails_oddly_ends_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with telling() as (uses, store):
            with monkeypatch.context() as broken:
                broken.setattr(MemoryStore, "touch", odd)
                uses.add(CHAINS[0].tip)
                await trio.testing.wait_all_tasks_blocked(0.01)
                while trio.to_thread.current_default_thread_limiter().borrowed_tokens:
                    await trio.testing.wait_all_tasks_blocked(0.01)
            uses.add(CHAINS[1].tip)
            await until_told(store, 1)
            assert store.told == [CHAINS[1].window_ids]

    def odd(_store: MemoryStore, _chain: Sequence[WindowId]) -> None:
        raise RuntimeError("unforeseen")

    run(main)


def test_a_chain_is_told_from_root_to_tip() -> None:
    async def main() -> None:
        async with telling() as (uses, store):
            uses.add(CHAINS[0].tip)
            await until_told(store, 1)
            uses.add(CHAINS[1].window_ids[1])
            await until_told(store, 2)
            assert store.told == [CHAINS[0].window_ids, CHAINS[1].window_ids[:2]]

    run(main)


def test_a_chain_that_is_gone_is_no_matter() -> None:
    async def main() -> None:
        async with telling() as (uses, store):
            uses.add(tip_of(1))
            uses.add(CHAINS[2].tip)
            await until_told(store, 1)
            assert store.told == [CHAINS[2].window_ids]

    run(main)


def test_only_so_many_wait_and_none_twice() -> None:
    async def main() -> None:
        async with telling() as (uses, store):
            for _ in range(3):
                uses.add(CHAINS[0].tip)
            for number in range(1023):
                uses.add(WindowId(number.to_bytes(32, "little")))
            uses.add(CHAINS[1].tip)  # one too many: the first is not told
            await until_told(store, 1)
            await trio.testing.wait_all_tasks_blocked()
            assert store.told == [CHAINS[1].window_ids]

    run(main)


def test_what_was_used_goes_last() -> None:
    """The oldest of three chains is used again; a store that has to evict takes another."""
    room = filled(MIB).stats().used_bytes

    async def main() -> None:
        async with telling(room) as (uses, store):
            uses.add(CHAINS[0].tip)
            await until_told(store, 1)
            store.put(sealed(make_chain(3, seed=9)))
            assert all(store.get(name) for name in CHAINS[0].window_ids)
            assert not any(store.get(name) for name in CHAINS[1].window_ids)

    run(main)
