"""What is said for a group: its labels, where its domain begins, what goes when it is forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import trio

from daemon.attachments import Attachments
from daemon.config import ConversationsConfig
from daemon.conversation_files import ConversationFiles
from daemon.conversations import Conversations
from daemon.forking import fork
from daemon.looking import Looking
from daemon.memory import Memory
from daemon.turns import asked_head, open_turn
from glia.errors import BadRequest, NotFound
from glia.graph.domain import Domain
from glia.graph.ids import WindowId
from glia.local import messages as m
from glia.local import values
from tests.builders import make_tokens
from tests.conversation_parts import SAID, call_of, run, talk, turn_of
from tests.domain_parts import CLUB, SIZE, TEAM, KnownGroups, group_memory, seal
from tests.unit.test_sparing import attach_of

TEAMS, CLUBS = "group:team", f"group:{CLUB.group_id.hex()}"
PROMPT = list(make_tokens(3 * SIZE))


def opened(path: Path, *, anonymous_hours: float = 168.0) -> Conversations:
    settings = ConversationsConfig(anonymous_hours=anonymous_hours)
    groups = KnownGroups(TEAM, CLUB)
    return Conversations(ConversationFiles(path / "conversations"), settings, groups)


def said(*labels: tuple[int, str], start: int = 0) -> list[values.MessageValue]:
    """Messages one after the other: where each ends, and its label."""
    found = []
    for end, label in labels:
        found.append(SAID("user", None, start, end, label))
        start = end
    return found


def labels_of(talks: Conversations, name: str) -> list[str]:
    replay = run(talks.read, name)
    return [talks.word(each.visibility, replay.head.group) for each in replay.messages]


def test_a_public_beginning_goes_on_for_a_group_and_ends_in_private(tmp_path: Path) -> None:
    talks = opened(tmp_path)
    turn = turn_of("a", 0, *said((20, "public"), (48, TEAMS)))
    run(talk, talks, PROMPT, [7], turn)
    assert labels_of(talks, "a") == ["public", TEAMS, TEAMS]
    head = talks.head("a")
    assert (head.num_public, head.num_shared, head.group) == (20, 49, TEAM.group_id)
    assert talks.value("a").visibility == TEAMS
    more = [*PROMPT, 7, 1, 2]
    run(talk, talks, more, [8], turn_of("a", 49, *said((51, "public"), start=49)))
    assert labels_of(talks, "a")[3:] == [TEAMS, TEAMS]  # never looser
    run(talk, talks, [*more, 8, 3], [9], turn_of("a", 52, *said((53, CLUBS), start=52)))
    assert labels_of(talks, "a")[5:] == ["private", "private"]  # nobody may read both
    head = talks.head("a")
    assert (head.num_public, head.num_shared, head.group) == (20, 52, TEAM.group_id)
    assert opened(tmp_path).head("a") == head


@pytest.mark.parametrize(
    ("asked", "domain"),
    [
        (((20, "public"), (48, TEAMS)), Domain(TEAM.group_id, 16)),
        (((48, TEAMS),), Domain(TEAM.group_id, 0)),
        (((48, CLUBS),), Domain(CLUB.group_id, 0)),
        (((32, "public"), (48, TEAMS)), Domain(TEAM.group_id, 32)),
        (((48, "public"),), None),
        (((20, "public"), (48, "private")), None),
        (((20, "private"), (48, TEAMS)), None),
        (((20, "public"), (48, "aggregate")), None),  # nobody's
    ],
)
def test_its_domain_begins_with_the_window_that_is_not_wholly_public(
    tmp_path: Path, asked: tuple[tuple[int, str], ...], domain: Domain | None
) -> None:
    talks = opened(tmp_path)

    async def main() -> None:
        call = call_of(PROMPT, turn_of("", 0, *said(*asked)))
        async with open_turn(talks, call) as turn:
            assert turn.domain(SIZE) == domain
            assert turn.domain(8) == domain or turn.domain(8).start % 8 == 0  # type: ignore[union-attr]
            (running,) = talks._taken.running.values()
            assert (running.group, running.num_public) == (turn.group, turn.num_public)
        explained = m.Explain(1, "echo", None, list(PROMPT), turn=call.turn)
        head = await asked_head(talks, explained)
        assert (head.group, head.num_public) == (turn.group, turn.num_public)

    trio.run(main)


def test_a_group_that_is_not_known_and_two_in_one_turn_are_refused(tmp_path: Path) -> None:
    talks = opened(tmp_path)
    for error, labels in (
        (NotFound, ((48, "group:nobody"),)),
        (BadRequest, ((48, "group:"),)),
        (BadRequest, ((20, TEAMS), (48, CLUBS))),
    ):
        with pytest.raises(error) as caught:
            run(talk, talks, PROMPT, [7], turn_of("a", 0, *said(*labels)))
        assert caught.value.hint  # type: ignore[attr-defined]
    assert "a" not in talks


def test_a_fork_is_of_the_group_as_far_as_it_has_tokens_of_it(tmp_path: Path) -> None:
    talks = opened(tmp_path)
    turn = turn_of("a", 0, *said((20, "public"), (40, TEAMS), (48, "private")))
    run(talk, talks, PROMPT, [7], turn)

    async def main() -> None:
        async with group_memory(tmp_path, KnownGroups(TEAM)) as memory:
            for num in (10, 20, 30, 45):
                await fork(talks, memory, "a", f"f{num}", num)

    trio.run(main)
    assert [talks.value(f"f{num}").visibility for num in (10, 20, 30, 45)] == [
        "public", "public", TEAMS, "private",
    ]  # fmt: skip
    assert [talks.head(f"f{num}").group is not None for num in (10, 20, 30, 45)] == [
        False, False, True, True,
    ]  # fmt: skip


def silent(what: str, done: int, total: int) -> None:
    """Nobody listens."""


async def doomed(memory: Memory, talks: Conversations, path: Path, name: str) -> set[WindowId]:
    """What would go with a conversation."""
    attachments = Attachments(path / "attached.json")
    attachments.remember(attach_of(), None)
    looking = Looking(memory, talks, attachments, None)
    with talks.hold(name):
        return set((await looking.with_conversations([name], silent)).key_of)


async def say(
    memory: Memory, talks: Conversations, name: str, tokens: Sequence[int], *labels: tuple[int, str]
) -> list[WindowId]:
    """A turn whose windows are sealed as an engine would seal them."""
    call = call_of(tokens, turn_of(name, 0, *said(*labels)))
    async with open_turn(talks, call) as turn:
        turn.accept(attach_of())
        names = await seal(memory, tokens, turn.domain(SIZE))
        await memory.flush(names)
        usage = m.Generated(1, [7], "stop", names[-1], None, 1.0, {})  # type: ignore[arg-type]
        await turn.commit(usage)
    return names


def test_what_goes_is_the_groups_of_the_conversation_and_what_is_shared_stays(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        talks = opened(tmp_path)
        async with group_memory(tmp_path, KnownGroups(TEAM, CLUB)) as memory:
            start = (20, "public")
            ours = await say(memory, talks, "ours", PROMPT, start, (48, TEAMS))
            theirs = await say(memory, talks, "theirs", PROMPT, start, (48, CLUBS))
            own = await say(memory, talks, "own", PROMPT, start, (48, "private"))
            again = await say(memory, talks, "again", PROMPT[:40], start, (40, TEAMS))
            assert len({*ours, *theirs, *own}) == 1 + 3 * 2
            assert again == ours[:2]
            assert await doomed(memory, talks, tmp_path, "ours") == {ours[2]}
            assert await doomed(memory, talks, tmp_path, "theirs") == set(theirs[1:])
            assert await doomed(memory, talks, tmp_path, "own") == set(own[1:])
            prompt = call_of(PROMPT, turn_of("", 0, *said(start, (48, CLUBS))))
            async with open_turn(talks, prompt) as running:  # under way: what it has stays
                running.accept(attach_of())
                assert await doomed(memory, talks, tmp_path, "theirs") == set()

    trio.run(main)


@pytest.mark.spec(50)
def test_what_is_private_behind_the_group_s_is_sealed_for_nobody_else(tmp_path: Path) -> None:
    """Also a window that has some of both; and an answer is as private as what was asked last."""

    async def main() -> None:
        talks = opened(tmp_path)
        async with group_memory(tmp_path, KnownGroups(TEAM)) as memory:
            names = await say(
                memory, talks, "mixed", PROMPT, (20, "public"), (40, TEAMS), (48, "private")
            )
            ours = await say(memory, talks, "ours", PROMPT, (20, "public"), (48, TEAMS))
            assert names == ours
            records = [memory.store.get(name) for name in names]
            size = 48 // len(names)
            assert [record is not None and record.is_own for record in records] == [
                size * (n + 1) > 40 for n in range(len(names))
            ]

    trio.run(main)


def test_of_a_group_that_was_left_what_follows_is_named_as_what_is_private(tmp_path: Path) -> None:
    async def main() -> None:
        talks, groups = opened(tmp_path), KnownGroups(TEAM)
        talks.groups = groups
        async with group_memory(tmp_path, groups) as memory:
            labels = ((20, "public"), (48, TEAMS))
            salted = await say(memory, talks, "ours", PROMPT, *labels)
            head = talks.head("ours")
            groups.leave(TEAM)
            tokens = (*PROMPT, 7, *range(900, 900 + 15))
            call = call_of(
                tokens, turn_of("ours", head.num_tokens, *said((64, "private"), start=49))
            )
            async with open_turn(talks, call) as turn:
                turn.accept(attach_of())
                assert turn.group == head.group
                assert turn.domain(SIZE) is None
                plain = await seal(memory, tokens, turn.domain(SIZE))
                await memory.flush(plain)
                await turn.commit(m.Generated(1, [7], "stop", plain[-1], None, 1.0, {}))  # type: ignore[arg-type]
            assert plain[0] == salted[0]
            assert not set(plain[1:]) & set(salted)
            assert set(plain[1:]) <= await doomed(memory, talks, tmp_path, "ours")

    trio.run(main)


def test_what_nobody_keeps_goes_by_its_labels(tmp_path: Path) -> None:
    """Without anonymous conversations a turn's windows go at once: also a group's are found."""

    async def main() -> None:
        talks = opened(tmp_path, anonymous_hours=0)
        async with group_memory(tmp_path, KnownGroups(TEAM)) as memory:
            names = await say(memory, talks, "", PROMPT, (20, "public"), (48, TEAMS))
            (name,) = talks.marked()
            assert await doomed(memory, talks, tmp_path, name) == set(names)

    trio.run(main)
