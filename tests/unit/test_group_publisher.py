"""What is said to a group its members are shown: that, and nothing that is private or public."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from daemon.attachments import Layout
from daemon.group_part import shared_windows
from glia.errors import StoreBroken
from glia.graph.encrypted import alias_of
from glia.graph.ids import BlockId, PrefixKey, WindowId
from glia.graph.link import parse_link, sign_link
from glia.graph.neuron import Signer
from glia.graph.sealed_link import open_link
from glia.graph.tokens import pack_tokens
from p2p.offer import Offer
from tests.builders import MODEL, TINY, make_tokens
from tests.domain_parts import CLUB, SIZE, TEAM, KnownGroups
from tests.group_publish_parts import SIGNER, Node, node_of
from tests.vault_parts import GROUP as VAULT_GROUP
from tests.vault_parts import START, windows_of

TEAMS, CLUBS = "group:team", "group:club"
(EPOCH,) = TEAM.secrets.epochs
GROUP = TEAM.group_id


def run(
    path: Path, body: Callable[[Node], Awaitable[None]], groups: KnownGroups | None = None
) -> None:
    async def main() -> None:
        with trio.fail_after(60):
            async with node_of(path, groups or KnownGroups(TEAM, CLUB)) as node:
                await body(node)

    trio.run(main)


def shown(node: Node, names: list[WindowId]) -> list[int]:
    """Which of these windows the group is shown, by number from 1."""
    found = []
    for number, name in enumerate(names, 1):
        if node.shared.index.standing_for(GROUP, alias_of(EPOCH, name)):
            found.append(number)
    return found


@pytest.mark.spec(49, 50)
def test_the_group_s_span_is_shown_and_what_is_before_and_behind_is_not(tmp_path: Path) -> None:
    tokens = make_tokens(12 * SIZE)

    async def body(node: Node) -> None:
        labels = [(2 * SIZE + 5, "public"), (9 * SIZE + 3, TEAMS), (12 * SIZE - 1, "private")]
        names = await node.say("mixed", tokens, labels)
        await node.shown()
        assert shown(node, names) == [3, 4, 5, 6, 7, 8, 9]
        assert node.published.stats().num_windows == 2
        (part,) = node.parts
        assert (part.group, len(part.sealed), part.base.num_windows) == (GROUP, 7, 2)
        (found,) = node.team.match(MODEL, TINY.profile_id, keys_of(part))
        assert found.num_windows == 9
        (link,) = [parse_link(open_link([EPOCH], each)) for each in found.links]
        assert (link.signer, link.claim.tip) == (SIGNER.neuron, names[8])
        assert (link.claim.num_before, link.claim.num_windows) == (2, 9)

    run(tmp_path, body)


def keys_of(part) -> list[tuple[int, PrefixKey]]:  # type: ignore[no-untyped-def]
    first = part.base.num_windows + 1
    return [(num, alias_of(EPOCH, key)) for num, key in enumerate(part.keys, first)]


def test_what_grows_is_shown_and_signed_once(tmp_path: Path) -> None:
    tokens = make_tokens(40 * SIZE)

    async def body(node: Node) -> None:
        await node.say("talk", tokens[: 20 * SIZE], [(20 * SIZE - 1, TEAMS)])
        await node.shown()
        assert node.counters["group_links_signed"] == 2
        names = await node.say("talk", tokens, [(40 * SIZE - 1, TEAMS)], keep=20 * SIZE)
        await node.shown()
        assert shown(node, names) == list(range(1, 41))
        assert node.counters["group_windows_published"] == 40
        assert node.counters["group_links_signed"] == 4  # 16, 20, 32, 40
        await node.shown()
        assert node.counters["group_links_signed"] == 4

    async def again(node: Node) -> None:
        await node.shown()
        assert node.counters["group_windows_published"] == 0
        assert [len(each.sealed) for each in node.parts][:1] == [40]

    run(tmp_path, body)
    run(tmp_path, again)


def test_what_is_forgotten_or_taken_back_is_shown_no_longer(tmp_path: Path) -> None:
    tokens, others = make_tokens(6 * SIZE), make_tokens(6 * SIZE, seed=1)

    async def body(node: Node) -> None:
        one = await node.say("one", tokens, [(6 * SIZE - 1, TEAMS)])
        two = await node.say("two", others, [(6 * SIZE - 1, TEAMS)])
        await node.shown()
        assert shown(node, one) == shown(node, two) == [1, 2, 3, 4, 5, 6]
        turns = node.conversations.past(["one"]).turns("one")
        layouts = [Layout(TINY.profile_id, SIZE)]
        assert node.shared.take_back(MODEL, layouts, turns) == (6, 6)
        assert shown(node, one) == []
        node.shared.forget(two[3:])
        assert shown(node, two) == [1, 2, 3]
        await node.shown()
        assert shown(node, one) == [1, 2, 3, 4, 5, 6]  # it is said to the group yet

    run(tmp_path, body)


def test_nothing_is_shown_of_a_group_that_was_left(tmp_path: Path) -> None:
    groups = KnownGroups(TEAM, CLUB)

    async def body(node: Node) -> None:
        await node.say("talk", make_tokens(6 * SIZE), [(6 * SIZE - 1, TEAMS)])
        await node.say("other", make_tokens(6 * SIZE, seed=1), [(6 * SIZE - 1, CLUBS)])
        await node.shown()
        assert set(node.shared.index.groups()) == {GROUP, CLUB.group_id}
        groups.leave(TEAM)
        await node.shown()
        assert node.shared.index.groups() == [CLUB.group_id]

    run(tmp_path, body, groups)


def test_of_what_members_said_of_one_window_a_few_links_are_told_on(tmp_path: Path) -> None:
    tokens = make_tokens(6 * SIZE)

    async def body(node: Node) -> None:
        names = await node.say("talk", tokens, [(6 * SIZE - 1, TEAMS)])
        await node.shown()
        (own,) = node.shared.index.links(GROUP, node.parts[-1].sealed[-1].name)
        claim = parse_link(open_link([EPOCH], own.sealed)).claim
        node.shared.index.take_back(GROUP, [each.name for each in node.parts[-1].sealed])
        signers = [Signer(bytes([number]) * 32) for number in range(1, 101)]
        node.in_group.learn([sign_link(each, claim, 1, 5) for each in signers])
        await node.shown()
        assert shown(node, names) == [1, 2, 3, 4, 5, 6]
        for each in node.parts[-1].sealed:
            assert len(node.shared.index.links(GROUP, each.name)) == 1 + 4

    run(tmp_path, body)


@pytest.mark.spec(47, 50)
def test_no_window_goes_through_a_door_that_is_not_its_own(tmp_path: Path) -> None:
    """Whatever is labelled how: public windows through the public one, the group's through the
    group's, private ones and another group's through none; by no name, key, or block."""
    source = random.Random(7)

    async def body(node: Node) -> None:
        expected: dict[WindowId, str] = {}
        for number in range(24):
            name, tokens = f"talk{number}", make_tokens(8 * SIZE, seed=source.randrange(4))
            ends = sorted(source.sample(range(1, 8 * SIZE - 1), 2))
            cuts = [*ends, 8 * SIZE - 1]
            kinds = ["public", source.choice([TEAMS, CLUBS]), "private"]
            labels = [(end, kinds[source.randrange(3)]) for end in cuts]
            names = await node.say(name, tokens, labels)
            head = node.conversations.head(name)
            for at, window in enumerate(names, 1):
                label = "private"
                if at * SIZE <= head.num_public // SIZE * SIZE:
                    label = "public"
                elif at * SIZE <= head.num_shared and head.group == GROUP:
                    label = "team"
                looser = "public" if "public" in (label, expected.get(window)) else label
                if "team" in (label, expected.get(window)) and looser != "public":
                    looser = "team"
                expected[window] = looser
        await node.shown()
        assert len(set(expected.values())) == 3
        for window, label in expected.items():
            in_public, in_team = (
                _reachable(node, each, window) for each in (node.public, node.team)
            )
            assert (in_public, in_team) == (label == "public", label == "team"), label

    run(tmp_path, body)


def _reachable(node: Node, offer: Offer, window: WindowId) -> bool:
    """Whether anything of a window is to be had from an offer, by any name that it has."""
    record = node.memory.records.get_now(window)
    if record is None:
        raise StoreBroken("it is here")
    names: list[bytes] = [window, alias_of(EPOCH, window)]
    blocks: list[BlockId] = list(record.blocks)
    opened = node.shared.vault.sealed(window)
    if opened is not None:
        names += [opened.name, opened.window.alias]
        blocks += opened.window.blocks
    num = record.end // SIZE
    room = memoryview(bytearray(1 << 20))
    answers = [offer.records(WindowId(name), num, num - 1) for name in names]
    answers += [offer.record(WindowId(name)) for name in names]  # type: ignore[arg-type]
    answers += [offer.next_links(WindowId(name)) for name in names]
    read = offer.read_blocks(blocks, room)
    return any(answers) or any(map(offer.has_block, blocks)) or any(read)


def test_of_what_is_private_behind_it_it_does_not_matter_whose_it_is() -> None:
    """It may be nobody's, or of a key of this node alone; and a chain may have no domain."""
    windows = [window.record for window in windows_of(num=10)]
    tokens = b"".join(pack_tokens(record.tokens) for record in windows[:7])
    own = [replace(each, group=None) if at >= 7 else each for at, each in enumerate(windows)]
    here = {record.window_id: record for record in own}
    tip = own[-1].window_id
    assert shared_windows([tip], tokens, VAULT_GROUP, here.get) == windows[START:7]
    assert shared_windows([windows[1].window_id], tokens, VAULT_GROUP, here.get) == []
    assert shared_windows([tip], tokens, GROUP, here.get) == []
    del here[windows[8].window_id]
    assert (
        shared_windows([tip, windows[5].window_id], tokens, VAULT_GROUP, here.get)
        == (windows[START:6])
    )
