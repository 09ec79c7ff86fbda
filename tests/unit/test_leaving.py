"""A node leaves a group: what is here of it goes from every tier, and only then its keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from daemon.conversations import Conversations
from daemon.group_file import GroupRow
from daemon.groups import Groups
from daemon.leaving import Leaving
from daemon.memory import Memory
from daemon.taken import Running
from glia.errors import ConversationBusy, NotFound, StoreBroken
from glia.graph.domain import Domain
from glia.graph.encrypted import EncryptedWindow
from glia.graph.ids import WindowId
from glia.store.vault import Vault
from tests.builders import MODEL, make_tokens
from tests.conversation_parts import opened
from tests.domain_parts import SIZE, group_memory, seal
from tests.group_parts import NOW_S, groups_of

TOKENS = make_tokens(4 * SIZE)


def silent(what: str, done: int, total: int) -> None:
    """Nobody listens."""


@dataclass
class World:
    """A node that is in two groups, and has windows of both, and of none."""

    memory: Memory
    groups: Groups
    talks: Conversations
    leaving: Leaving
    team: GroupRow
    ours: Sequence[WindowId]
    theirs: Sequence[WindowId]
    own: Sequence[WindowId]

    def encrypted(self) -> int:
        raw = self.memory.store._store  # type: ignore[attr-defined]
        return sum(isinstance(raw.get_record(name), EncryptedWindow) for name in raw.windows())

    def are_here(self, names: Sequence[WindowId]) -> list[bool]:
        return [self.memory.records.has(name) for name in names]


def run(tmp_path: Path, body: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        groups = groups_of(tmp_path, "ada", lambda: NOW_S)
        team, club = groups.create("team"), groups.create("club")
        async with group_memory(tmp_path, groups) as memory:
            # one window public, two the group's, and one behind them is this node's alone
            ours = await seal(memory, TOKENS, Domain(team.group_id, SIZE, 3 * SIZE))
            theirs = await seal(memory, TOKENS, Domain(club.group_id, SIZE))
            own = await seal(memory, TOKENS)
            await memory.flush([*ours, *theirs, *own])
            talks, engines = opened(tmp_path / "talks"), SimpleNamespace(links=list)
            vault = memory.store
            assert isinstance(vault, Vault)
            still: Any = trio.Lock()
            leaving = Leaving(memory, vault, groups, talks, engines, still)  # type: ignore[arg-type]
            await body(World(memory, groups, talks, leaving, team, ours, theirs, own))

    trio.run(main)


@pytest.mark.spec(49)
def test_what_is_here_of_it_goes_and_nothing_else(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        assert world.encrypted() == 3 + 3
        world.groups.change(world.team.group_id, lambda row, now_s: row)
        gone = await world.leaving.leave(world.team.group_id, silent)
        assert gone.num_windows == 3
        assert gone.freed_bytes > 0
        assert world.encrypted() == 3
        assert world.are_here(world.ours) == [True, False, False, False]
        assert all(world.are_here([*world.theirs, *world.own]))
        assert world.groups.keys(world.team.group_id) is None
        assert [row.name for row in world.groups.all()] == ["club"]
        with pytest.raises(NotFound):
            await world.leaving.leave(world.team.group_id, silent)

    run(tmp_path, body)


def test_what_is_not_on_disk_yet_goes_too(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        put = world.memory.store.put

        def fail(windows: object) -> None:
            raise StoreBroken("the disk is gone", hint="")

        world.memory.store.put = fail  # type: ignore[method-assign]
        more = await seal(world.memory, make_tokens(2 * SIZE, 9), Domain(world.team.group_id, 0))
        await world.memory.writer.flush_all()
        assert all(map(world.memory.table.is_dirty, more))
        world.memory.store.put = put  # type: ignore[method-assign]
        await world.leaving.leave(world.team.group_id, silent)
        assert world.are_here(more) == [False, False]
        assert world.memory.table.dirty_bytes == 0
        await world.memory.writer.flush_all()
        assert world.encrypted() == 3

    run(tmp_path, body)


def test_a_window_that_comes_after_all_is_written_and_found_by_nobody(tmp_path: Path) -> None:
    """As one that was under way from a member: it is encrypted, and goes in its turn."""

    async def body(world: World) -> None:
        more = await seal(world.memory, make_tokens(2 * SIZE, 9), Domain(world.team.group_id, 0))
        world.groups.leave(world.team.group_id)
        await world.memory.flush([])
        await world.memory.writer.flush_all()
        assert world.memory.writer.failure is None
        assert not any(map(world.memory.table.is_dirty, more))
        assert [world.memory.store.get(name) for name in more] == [None, None]

    run(tmp_path, body)


def test_nothing_is_lost_while_it_is_used_or_the_disk_fails(tmp_path: Path) -> None:
    async def body(world: World) -> None:
        group = world.team.group_id
        running = Running([1], MODEL, group=group)
        with (
            world.talks.answering("a", running),
            pytest.raises(ConversationBusy, match="answered in group team"),
        ):
            await world.leaving.leave(group, silent)
        forget = world.memory.store.forget

        def fail(*_: object) -> None:
            assert not world.groups.is_in(group), "nothing is said to it any more"
            raise StoreBroken("the disk is gone", hint="")

        world.memory.store.forget = fail  # type: ignore[method-assign, assignment]
        with pytest.raises(StoreBroken):
            await world.leaving.leave(group, silent)
        assert world.groups.is_in(group)
        assert world.groups.keys(group) is not None
        world.memory.store.forget = forget  # type: ignore[method-assign]
        await world.leaving.leave(group, silent)
        assert world.encrypted() == 3

    run(tmp_path, body)
