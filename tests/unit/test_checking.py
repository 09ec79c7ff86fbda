"""Check looks at the arena's bytes, too."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from daemon.checking import check_everything
from glia.errors import StoreFull
from tests.builders import TINY, make_chain
from tests.node_parts import MIB
from tests.unit.test_writer import BINDING, memory_of, seal


def test_what_rots_in_l1_is_found_and_comes_from_l2_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with memory_of(tmp_path, MIB) as (memory, _):
            chain = make_chain(40)
            await seal(memory, chain)
            told: list[tuple[str, int, int]] = []
            arena, disk = await check_everything(memory, lambda *what: told.append(what))
            assert [(tier.checked, tier.bad) for tier in (arena, disk)] == [(80, 0), (80, 0)]
            assert not caplog.messages
            assert [what for what in told if what[0] == "checking L1"] == [
                ("checking L1", 32, 40),
                ("checking L1", 40, 40),
            ]
            (offset, size), _ = memory.table.ranges(chain.window_ids[7])
            memory.arena.view[offset + size - 1] ^= 1
            arena, disk = await check_everything(memory, lambda *_: None)
            assert [(tier.bad, tier.bad_windows) for tier in (arena, disk)] == [(1, 1), (0, 0)]
            assert caplog.messages == ["check set bad blocks aside: 1 in L1, 0 in L2"]
            pinned = await memory.loader.pin(BINDING, chain.window_ids)
            assert list(pinned.tiers) == [1] * 7 + [2] + [1] * 32
            assert not any(tier.bad for tier in await check_everything(memory, lambda *_: None))
            assert memory.table.used_bytes == 40 * TINY.window_particle_bytes

    trio.run(main)


def test_what_rots_before_it_is_written_stays_in_l1(tmp_path: Path) -> None:
    """Nothing dirty is dropped, though it is bad: its other layers are nowhere else."""

    async def main() -> None:
        async with memory_of(tmp_path, MIB) as (memory, store):
            chain = make_chain(2)
            store.mood = lambda _: StoreFull("full")
            await seal(memory, chain)
            (offset, size), _ = memory.table.ranges(chain.window_ids[1])
            memory.arena.view[offset + size - 1] ^= 1
            for _ in range(2):
                arena, _ = await check_everything(memory, lambda *_: None)
                assert (arena.checked, arena.bad) == (4, 1)
            assert memory.table.is_dirty(chain.window_ids[1])

    trio.run(main)
