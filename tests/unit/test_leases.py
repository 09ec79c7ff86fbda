"""Who has leased what."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from daemon.leases import Held, Leases
from daemon.memory_calls import MemoryCalls
from daemon.staging import StagingAreas
from glia.local.messages import Lease, Leased, Release
from tests.builders import make_chain
from tests.node_parts import MIB
from tests.unit.test_sparing import attach_of
from tests.unit.test_writer import memory_of, seal

ONE, TWO, THREE = make_chain(3).window_ids


def test_leases_are_those_of_connections_that_last() -> None:
    leases = Leases()
    first: Held = {1: (ONE, TWO)}
    second: Held = {}
    leases.add("pid 1", first)
    leases.add("pid 2", second)
    second[1] = (TWO,)  # it goes on to change them itself
    assert leases.holders_of([TWO]) == ["pid 1", "pid 2"]
    assert leases.holders_of([ONE]) == ["pid 1"]
    assert leases.holders_of([THREE]) == []
    for _ in range(2):
        leases.discard(first)  # whatever it has still
        assert leases.holders_of([ONE, TWO]) == ["pid 2"]


@pytest.mark.spec(66)
def test_leases_die_with_their_connection_and_leave_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with memory_of(tmp_path, MIB) as (memory, _):
            chain = make_chain(3)
            await seal(memory, chain)
            mine, yours = (MemoryCalls(memory, StagingAreas(MIB), f"pid {n}") for n in (1, 2))
            for calls in (mine, yours):
                await calls.answer(attach_of())
            for windows in (chain.window_ids, chain.window_ids[:1]):
                leased, _ = await mine.answer(Lease(1, list(windows)))
            await yours.answer(Lease(1, list(chain.window_ids[:1])))
            assert isinstance(leased, Leased)
            await mine.answer(Release(1, leased.lease))
            assert memory.leases.holders_of(chain.window_ids[:1]) == ["pid 1", "pid 2"]
            mine.close()
            assert memory.leases.holders_of(chain.window_ids) == ["pid 2"]
            assert [memory.table.is_pinned(name) for name in chain.window_ids] == [
                True,
                *[False] * 2,
            ]
            yours.close()
            assert memory.leases._held == {}
            assert not any(map(memory.table.is_pinned, chain.window_ids))

    trio.run(main)
