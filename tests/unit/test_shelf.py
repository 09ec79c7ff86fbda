"""What peers sent ahead has no name until an engine stands where it begins, and leaves no trace."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from daemon.binding import Binding
from daemon.loading import FROM_PEER
from daemon.memory import Memory
from daemon.shelf import Shelf
from glia.errors import ArenaExhausted, NotFound
from glia.graph.ids import WindowId
from glia.graph.window import WindowRecord
from tests.builders import MODEL, TINY, Chain, make_chain
from tests.store_parts import sealed
from tests.unit.test_adopting import BINDING, WINDOW, bytes_of, joined, memory_of

SIZE = TINY.block_size


async def put(shelf: Shelf, chain: Chain, start: int, end: int) -> None:
    """From the back."""
    for at in reversed(range(start, end)):
        await shelf.put(chain.records[at], chain.keys[at], chain.particles[at])


def rest(chain: Chain, start: int) -> list[int]:
    return list(chain.tokens[start * SIZE :])


def open_shelf(memory: Memory, binding: Binding = BINDING) -> tuple[Shelf, list[bool]]:
    taken: list[bool] = []
    return memory.shelves.open(binding, lambda: taken.append(True)), taken


def test_it_has_names_once_an_engine_has_computed_what_leads_to_it(tmp_path: Path) -> None:
    async def main() -> None:
        chain = make_chain(8)
        async with memory_of(tmp_path) as (memory, store):
            store.put(sealed(chain, range(3)))
            shelf, taken = open_shelf(memory)
            await put(shelf, chain, 2, 8)
            assert await memory.match(BINDING, chain.tokens) == chain.window_ids[:3]
            await memory.flush(chain.window_ids[:3])
            assert set(store.windows()) == set(chain.window_ids[:3])
            found = await memory.shelves.adopt(BINDING, chain.window_ids[2], rest(chain, 3))
            assert found == chain.window_ids[3:]
            assert (shelf.num_taken, taken, shelf.is_of_another) == (5, [True], False)
            assert await memory.match(BINDING, chain.tokens) == chain.window_ids
            pinned = await memory.loader.pin(BINDING, chain.window_ids)
            assert list(pinned.tiers[3:]) == [FROM_PEER] * 5
            memory.loader.unpin(pinned.windows)
            assert await bytes_of(memory, chain) == joined(chain)
            await memory.flush(chain.window_ids)
            assert set(store.windows()) == set(chain.window_ids)
            shelf.close()
            assert memory.table.num_reserved == 0  # that before the meeting was given back
            assert memory.shelves.room_for(BINDING) == memory.table.total_bytes // 4 // WINDOW

    trio.run(main)


def test_given_up_it_leaves_no_trace(tmp_path: Path) -> None:
    async def main() -> None:
        chain = make_chain(8)
        async with memory_of(tmp_path) as (memory, store):
            shelf, _ = open_shelf(memory)
            await put(shelf, chain, 4, 8)
            assert memory.table.used_bytes == 4 * WINDOW
            shelf.close()
            shelf.close()
            await put(shelf, chain, 3, 4)  # one that was on its way
            assert not memory.table.used_bytes
            assert not any(memory.arena.view)
            assert not list(store.windows())
            assert memory.shelves.room_for(BINDING) == memory.table.total_bytes // 4 // WINDOW

    trio.run(main)


def test_a_window_without_a_block_takes_no_room(tmp_path: Path) -> None:
    async def main() -> None:
        chain = make_chain(2)
        async with memory_of(tmp_path) as (memory, _):
            shelf, _ = open_shelf(memory)
            particles = [None, *chain.particles[1][1:]]
            with pytest.raises(ValueError, match="all blocks"):
                await shelf.put(chain.records[1], chain.keys[1], particles)
            assert memory.table.num_reserved == 0
            assert memory.shelves.room_for(BINDING) == memory.table.total_bytes // 4 // WINDOW

    trio.run(main)


def test_what_is_forgotten_while_it_is_looked_up_leads_to_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        chain = make_chain(6)
        async with memory_of(tmp_path) as (memory, store):
            store.put(sealed(chain, range(4)))
            shelf, taken = open_shelf(memory)
            await put(shelf, chain, 4, 6)
            get = memory.records.get_now

            def found_just_before(name: WindowId) -> WindowRecord | None:
                record = get(name)
                trio.from_thread.run_sync(memory.hidden.hide, [name])
                return record

            memory.records.get_now = found_just_before  # type: ignore[method-assign]
            with pytest.raises(NotFound):
                await memory.shelves.adopt(BINDING, chain.window_ids[3], rest(chain, 4))
            assert (shelf.num_taken, taken) == (0, [])
            shelf.close()

    trio.run(main)


def test_all_shelves_together_have_a_share(tmp_path: Path) -> None:
    async def main() -> None:
        chain, other = make_chain(12), make_chain(12, seed=1)
        async with memory_of(tmp_path, 40 * WINDOW) as (memory, _):
            first, _ = open_shelf(memory)
            second, _ = open_shelf(memory)
            most = memory.shelves.room_for(BINDING)
            assert most in (10, 11)
            await put(first, chain, 6, 12)
            with pytest.raises(ArenaExhausted):
                await put(second, other, 0, 12)
            assert memory.table.used_bytes == most * WINDOW
            first.close()
            assert memory.shelves.room_for(BINDING) == 6
            second.close()
            assert memory.shelves.room_for(BINDING) == most

    trio.run(main)


def test_only_what_follows_that_very_window_is_taken(tmp_path: Path) -> None:
    async def main() -> None:
        chain, fork = make_chain(6), make_chain(2, base=make_chain(3), seed=5)
        async with memory_of(tmp_path) as (memory, store):
            store.put(sealed(chain, range(4)))
            store.put(sealed(make_chain(4, seed=7)))
            shelf, taken = open_shelf(memory)
            await put(shelf, chain, 4, 6)
            adopt = memory.shelves.adopt
            other = Binding(MODEL, TINY, "native:other")
            assert await adopt(other, chain.window_ids[3], rest(chain, 4)) == []
            assert await adopt(BINDING, chain.window_ids[3], rest(fork, 4)) == []
            assert await adopt(BINDING, chain.window_ids[3], rest(chain, 4)[:15]) == []
            assert await adopt(BINDING, chain.window_ids[2], rest(chain, 4)) == []
            assert (shelf.is_of_another, taken) == (False, [])
            foreign = make_chain(4, seed=7).window_ids[3]
            assert await adopt(BINDING, foreign, rest(chain, 4)) == []
            assert (shelf.is_of_another, taken) == (True, [True])
            with pytest.raises(NotFound):
                await adopt(BINDING, make_chain(4, seed=8).window_ids[3], rest(chain, 4))
            found = await adopt(BINDING, chain.window_ids[3], rest(chain, 4)[:17])
            assert found == chain.window_ids[4:5]
            shelf.close()

    trio.run(main)


def test_of_several_shelves_the_one_that_follows_is_asked(tmp_path: Path) -> None:
    async def main() -> None:
        chain, fork = make_chain(6), make_chain(3, base=make_chain(3), seed=5)
        async with memory_of(tmp_path) as (memory, store):
            store.put(sealed(chain, range(3)))
            first, first_taken = open_shelf(memory)
            second, second_taken = open_shelf(memory)
            await put(first, fork, 3, 6)
            await put(second, chain, 3, 6)
            found = await memory.shelves.adopt(BINDING, chain.window_ids[2], rest(chain, 3))
            assert found == chain.window_ids[3:]
            assert (first_taken, second_taken) == ([], [True])
            first.close()
            second.close()

    trio.run(main)


def test_two_runs_of_one_prompt_may_take_each_others(tmp_path: Path) -> None:
    """The bytes are the same: each is counted where it lay, none is kept twice."""

    async def main() -> None:
        chain = make_chain(6)
        async with memory_of(tmp_path) as (memory, store):
            store.put(sealed(chain, range(3)))
            shelves = [open_shelf(memory)[0] for _ in range(2)]
            for shelf in shelves:
                await put(shelf, chain, 3, 6)
            for shelf in shelves:
                found = await memory.shelves.adopt(BINDING, chain.window_ids[2], rest(chain, 3))
                assert found == chain.window_ids[3:]
                assert (shelf.num_taken, shelf.num_windows) == (3, 6)
            for shelf in shelves:
                shelf.close()
            assert memory.table.num_reserved == 0
            assert await bytes_of(memory, chain) == joined(chain)
            await memory.flush(chain.window_ids)
            assert store.stats().num_windows == 6

    trio.run(main)


def test_from_the_beginning_nothing_leads_to_it(tmp_path: Path) -> None:
    async def main() -> None:
        chain = make_chain(3)
        async with memory_of(tmp_path) as (memory, _):
            shelf, _ = open_shelf(memory)
            await put(shelf, chain, 0, 3)
            assert await memory.shelves.adopt(BINDING, None, chain.tokens) == chain.window_ids
            shelf.close()

    trio.run(main)


def test_what_is_here_meanwhile_is_not_kept_twice(tmp_path: Path) -> None:
    async def main() -> None:
        chain = make_chain(3)
        async with memory_of(tmp_path) as (memory, _):
            for_two = [open_shelf(memory)[0] for _ in range(2)]
            for shelf in for_two:
                await put(shelf, chain, 0, 3)
                assert await memory.shelves.adopt(BINDING, None, chain.tokens) == chain.window_ids
                shelf.close()
                assert memory.table.dirty_bytes == (3 * WINDOW if shelf is for_two[0] else 0)
                assert memory.writer.is_idle == (shelf is for_two[1])
                await memory.flush(chain.window_ids)
            assert memory.table.used_bytes == 3 * WINDOW

    trio.run(main)


def test_what_is_being_forgotten_is_not_entered(tmp_path: Path) -> None:
    async def main() -> None:
        chain = make_chain(6)
        async with memory_of(tmp_path) as (memory, store):
            store.put(sealed(chain, range(3)))
            shelf, _ = open_shelf(memory)
            await put(shelf, chain, 3, 6)
            memory.hidden.hide([chain.window_ids[2]])
            with pytest.raises(NotFound):
                await memory.shelves.adopt(BINDING, chain.window_ids[2], rest(chain, 3))
            memory.hidden.show([chain.window_ids[2]])
            memory.hidden.hide([chain.window_ids[4]])
            found = await memory.shelves.adopt(BINDING, chain.window_ids[2], rest(chain, 3))
            assert found == chain.window_ids[3:4]
            shelf.close()
            assert memory.table.num_reserved == 0

    trio.run(main)
