"""Windows of groups in L1 and L2: named, found again after a restart, shared, and forgotten."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from daemon.survey import survey
from glia.errors import BadRequest, NotFound
from glia.graph.domain import Domain
from glia.graph.window import DomainRoot
from tests.builders import make_tokens
from tests.domain_parts import (
    BINDING,
    CLUB,
    SIZE,
    TEAM,
    KnownGroups,
    group_memory,
    seal,
)

TOKENS = make_tokens(6 * SIZE)
START = 2 * SIZE
OURS, THEIRS = Domain(TEAM.group_id, START), Domain(CLUB.group_id, START)


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def in_time() -> None:
        with trio.fail_after(20):
            await main()

    trio.run(in_time)


def silent(done: int, total: int) -> None:
    """Nobody listens."""


@pytest.mark.spec(49)
def test_same_tokens_are_other_windows_to_each_group_and_the_public_ones_are_shared(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with group_memory(tmp_path, KnownGroups(TEAM, CLUB)) as memory:
            plain = await seal(memory, TOKENS)
            ours = await seal(memory, TOKENS, OURS)
            theirs = await seal(memory, TOKENS, THEIRS)
            assert ours[:2] == plain[:2] == theirs[:2]
            assert len({*plain, *ours, *theirs}) == 2 + 3 * 4
            for domain, names in ((None, plain), (OURS, ours), (THEIRS, theirs)):
                assert await memory.match(BINDING, TOKENS, domain=domain) == names
            assert await seal(memory, TOKENS, OURS) == ours
            other = Domain(TEAM.group_id, SIZE)  # a log that is public for one window only
            assert await memory.match(BINDING, TOKENS, domain=other) == plain[:1]

    run(main)


def test_a_domain_that_begins_in_the_middle_of_a_call_or_of_a_log_is_the_same(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with group_memory(tmp_path, KnownGroups(TEAM)) as memory:
            once = await seal(memory, TOKENS, OURS)
        async with group_memory(tmp_path / "other", KnownGroups(TEAM)) as memory:
            names = await seal(memory, TOKENS[:START], OURS)
            for at in range(START, len(TOKENS), SIZE):
                names += await seal(memory, TOKENS[: at + SIZE], OURS, names[-1], at)
            assert names == once
            genesis = Domain(TEAM.group_id, 0)
            first = await seal(memory, TOKENS[:SIZE], genesis)
            assert await memory.match(BINDING, TOKENS, domain=genesis) == first != names[:1]
            assert [r.window_id for r in await memory.chain(first[0])] == first

    run(main)


@pytest.mark.spec(20)
def test_after_a_restart_they_are_found_leased_walked_and_continued(tmp_path: Path) -> None:
    async def main() -> None:
        groups = KnownGroups(TEAM)
        async with group_memory(tmp_path, groups) as memory:
            names = await seal(memory, TOKENS[: 4 * SIZE], OURS)
            await memory.flush(names)
        async with group_memory(tmp_path, groups) as memory:
            assert await memory.match(BINDING, TOKENS, domain=OURS) == names
            pinned = await memory.loader.pin(BINDING, names)
            assert list(pinned.tiers) == [2] * 4
            memory.loader.unpin(pinned.windows)
            chain = await memory.chain(names[-1])
            assert [record.window_id for record in chain] == names
            assert [record.root for record in chain] == [
                None, None, DomainRoot(TEAM.group_id, names[1]), None,
            ]  # fmt: skip
            assert await memory.is_exact(BINDING, names[-1])
            more = await seal(memory, TOKENS, OURS, names[-1], 4 * SIZE)
            assert await memory.match(BINDING, TOKENS, domain=OURS) == [*names, *more]
            assert memory.store.children(names[1]) == [names[2]]
            found = survey({*names, *more}, memory.records.get_now, silent, memory.domains)
            assert not found.behind_holes
            assert found.parents[names[2]] == names[1]
            assert found.key_of == {n: memory.table.key_of(n) for n in [*names, *more]}

    run(main)


def test_of_a_group_that_was_left_nothing_is_found_and_nothing_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        groups = KnownGroups(TEAM)
        async with group_memory(tmp_path, groups) as memory:
            names = await seal(memory, TOKENS, OURS)
            await memory.flush(names)
        groups.leave(TEAM)
        async with group_memory(tmp_path, groups) as memory:
            assert await memory.match(BINDING, TOKENS) == names[:2]
            for ask in (
                lambda: memory.match(BINDING, TOKENS, domain=OURS),
                lambda: seal(memory, TOKENS, OURS),
            ):
                with pytest.raises(NotFound) as caught:
                    await ask()
                assert caught.value.hint
            assert (await memory.loader.pin(BINDING, names)).windows == tuple(names[:2])
            memory.loader.unpin(names[:2])
            found = survey(names, memory.records.get_now, silent, memory.domains)
            assert (set(found.key_of), found.behind_holes) == (set(names[:2]), set())
            assert set(memory.store.windows()) & set(names) == set(names[:2])

    run(main)


def test_a_domain_begins_with_a_window(tmp_path: Path) -> None:
    async def main() -> None:
        async with group_memory(tmp_path, KnownGroups(TEAM)) as memory:
            with pytest.raises(BadRequest, match="no domain begins"):
                await seal(memory, TOKENS, Domain(TEAM.group_id, 7))

    run(main)
