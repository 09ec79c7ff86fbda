"""What members sent becomes windows of L1, found behind what is public, and ciphertext on disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from daemon.memory import Memory
from glia.errors import NotFound
from glia.graph.chain import prefix_keys
from glia.graph.domain import Domain
from glia.graph.ids import PrefixKey, WindowId
from glia.graph.window import WindowRecord
from glia.store.vault import Vault
from tests.builders import MODEL, TINY, make_tokens
from tests.domain_parts import BINDING, SIZE, TEAM, KnownGroups, group_memory, seal

START, NUM = 2, 6
TOKENS = make_tokens(NUM * SIZE + 1)
DOMAIN = Domain(TEAM.group_id, START * SIZE)


@dataclass(frozen=True)
class Sent:
    """What another member sealed, as a walk and a fetch give it."""

    names: list[WindowId]
    sealed: list[WindowId]
    records: list[WindowRecord]
    particles: list[list[memoryview]]
    keys: list[PrefixKey]


async def computed(memory: Memory, num: int) -> list[WindowId]:
    names = await seal(memory, TOKENS[: START * SIZE])
    if num > START:
        names += await seal(memory, TOKENS[: num * SIZE], DOMAIN, names[-1], START * SIZE)
    await memory.flush(names)
    return names


async def sent(path: Path) -> Sent:
    async with group_memory(path, KnownGroups(TEAM)) as memory:
        names = await computed(memory, NUM)
        pinned = await memory.loader.pin(BINDING, names)
        view = memory.arena.view
        particles = [
            [memoryview(bytes(view[at : at + size])) for at, size in memory.table.ranges(name)]
            for name in names
        ]
        memory.loader.unpin(pinned.windows)
        records = [record for name in names if (record := memory.records.get_now(name))]
        keys = prefix_keys(MODEL, TINY, TOKENS, memory.domains.salt(DOMAIN))
        return Sent(names, sealed_names(memory, names[START:]), records, particles, keys)


def sealed_names(memory: Memory, names: list[WindowId]) -> list[WindowId]:
    assert isinstance(memory.store, Vault)
    found = [memory.store.sealed(name) for name in names]
    return [each.name for each in found if each is not None]


def test_what_came_is_one_chain_with_what_is_public_here(tmp_path: Path) -> None:
    """And lies on disk as it does at the member's: one ciphertext, wherever it was made."""

    async def take(memory: Memory, came: Sent) -> None:
        seen = memory.hidden.num_changes
        base, key = came.records[START - 1], came.keys[START - 1]
        sink = memory.adopter.after(BINDING, base, key, seen, lambda: None)
        for at in range(START, NUM):
            await sink.take(came.records[at], came.particles[at])

    _both(tmp_path, take)


def test_what_was_sent_ahead_is_met_where_the_domain_begins(tmp_path: Path) -> None:
    async def meet(memory: Memory, came: Sent) -> None:
        shelf = memory.shelves.open(BINDING, lambda: None)
        for at in reversed(range(START, NUM)):
            await shelf.put(came.records[at], came.keys[at], came.particles[at])
        rest = TOKENS[START * SIZE : NUM * SIZE]
        found = await memory.shelves.adopt(BINDING, came.names[START - 1], rest)
        assert found == came.names[START:]
        shelf.close()

    _both(tmp_path, meet)


def _both(path: Path, take: Callable[[Memory, Sent], Awaitable[None]]) -> None:
    """One member computes, another takes."""

    async def main() -> None:
        came = await sent(path / "one")
        async with group_memory(path / "other", KnownGroups(TEAM)) as memory:
            assert await computed(memory, START) == came.names[:START]
            await take(memory, came)
            assert await memory.match(BINDING, TOKENS, domain=DOMAIN) == came.names
            await memory.flush(came.names)
            assert sealed_names(memory, came.names[START:]) == came.sealed
            for name in came.names[START:]:
                assert memory.records.get_now(name) == came.records[came.names.index(name)]

    for name in ("one", "other"):
        (path / name).mkdir()
    trio.run(main)


def test_of_a_group_that_was_left_nothing_is_taken(tmp_path: Path) -> None:
    async def main() -> None:
        came = await sent(tmp_path / "one")
        async with group_memory(tmp_path / "other", KnownGroups()) as memory:
            await computed(memory, START)
            sink = memory.adopter.after(
                BINDING,
                came.records[START - 1],
                came.keys[START - 1],
                memory.hidden.num_changes,
                lambda: None,
            )
            with pytest.raises(NotFound):
                await sink.take(came.records[START], came.particles[START])
            assert memory.table.names() == came.names[:START]

    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    trio.run(main)
