"""What was shown is shown no longer, and stays so; what others show, too, is theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from daemon.attachments import Attachments
from daemon.withdrawing import Withdrawing, Withdrawn
from glia.errors import ConversationBusy, UnknownConversation
from glia.graph.privacy import Visibility
from glia.local.messages import Attach
from glia.local.values import ProfileValue, ShapeValue
from tests.builders import CLASS, MODEL, TINY, make_chain
from tests.conversation_parts import opened
from tests.forget_parts import name_sentinels, token_sentinels
from tests.publish_parts import Rig, run_rig, settled

SIZE = TINY.block_size


class SharedNothing:
    """What groups are shown of a node that is in none."""

    def take_back(self, *_: object) -> tuple[int, int]:
        return 0, 0


@dataclass
class World:
    rig: Rig
    withdrawing: Withdrawing

    async def withdraw(self, name: str) -> Withdrawn:
        gone = await self.withdrawing.withdraw(name)
        self.rig.publisher.look_anew()
        await settled()
        return gone


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    rig = Rig(tmp_path)
    attachments = Attachments(tmp_path / "attachments")
    layers = [ShapeValue(each.layer, each.kv_heads, each.head_dim) for each in TINY.layers]
    profile = ProfileValue(SIZE, TINY.scheme, TINY.mode, layers)
    attachments.remember(Attach(1, MODEL, profile, CLASS, serves="echo", dtype="float32"), None)
    assert attachments.all()[0].binding.profile == TINY
    yield World(
        rig,
        Withdrawing(
            rig.conversations,
            attachments,
            rig.published,
            rig.still,
            SharedNothing(),  # type: ignore[arg-type]
            lambda: rig.now_s,
        ),
    )
    rig.published.close()


@pytest.mark.spec(48)
def test_a_public_conversation_becomes_private_and_stays_so(world: World) -> None:
    rig, chain = world.rig, make_chain(20)
    longer = make_chain(4, base=chain, seed=2)

    async def body() -> None:
        await rig.say("story", chain, 20 * SIZE)
        await settled(lambda: rig.visible(chain) == 20)
        before = await rig.conversations.read("story")
        rig.now_s += 1
        assert await world.withdraw("story") == Withdrawn(20, 0)
        assert rig.visible(chain) == 0
        after = await rig.conversations.read("story")
        assert (after.tokens, after.head.tip) == (before.tokens, chain.tip)
        assert {said.visibility for said in after.messages} == {Visibility.PRIVATE}
        assert [said.content for said in after.messages] == [s.content for s in before.messages]
        assert after.head.used_us == int(rig.now_s * 1e6)
        assert await world.withdraw("story") == Withdrawn(0, 0)
        await rig.say("story", longer, 0, keep=20 * SIZE)
        await settled()
        assert rig.visible(longer) == 0

    run_rig(rig, body)
    rig.conversations = opened(rig.path / "conversations")
    rig.publisher = rig.new_publisher()

    async def again() -> None:
        await settled()
        assert rig.visible(longer) == 0

    run_rig(rig, again)
    rig.published.close()
    data = b"".join(p.read_bytes() for p in (rig.path / "published").rglob("*") if p.is_file())
    sentinels = [*name_sentinels(chain.window_ids), *token_sentinels(chain.tokens)]
    assert not any(each in data for each in sentinels)


@pytest.mark.spec(48)
def test_what_the_publisher_read_before_is_not_published_behind_it(world: World) -> None:
    rig, chain = world.rig, make_chain(5)

    async def waiting(num: int) -> None:
        while rig.still.statistics().tasks_waiting < num:
            await trio.sleep(0.001)

    async def body() -> None:
        await settled()
        rig.conversations.on_change = lambda: None
        await rig.say("story", chain, 5 * SIZE)
        async with trio.open_nursery() as nursery, rig.still:
            nursery.start_soon(world.withdrawing.withdraw, "story")
            await waiting(1)
            rig.publisher.wake()
            await waiting(2)
        await settled()
        assert rig.visible(chain) == 0

    run_rig(rig, body)


def test_what_was_published_by_hand_is_withdrawn_and_labels_stay(world: World) -> None:
    rig, chain = world.rig, make_chain(5)

    async def body() -> None:
        await rig.say("story", chain, 0)
        await rig.publisher.publish("story", None, dry=False)
        assert rig.visible(chain) == 5
        num_turns = rig.conversations.head("story").num_turns
        assert await world.withdraw("story") == Withdrawn(5, 0)
        assert rig.visible(chain) == 0
        assert rig.conversations.head("story").num_turns == num_turns

    run_rig(rig, body)


def test_what_other_conversations_show_is_shown_still(world: World) -> None:
    rig = world.rig
    system = make_chain(3)
    one = make_chain(4, base=system, seed=1)
    other = make_chain(4, base=system, seed=2)

    async def body() -> None:
        await rig.say("one", one, 7 * SIZE)
        await rig.say("other", other, 3 * SIZE)
        await settled(lambda: rig.visible(one) == 7)
        assert await world.withdraw("one") == Withdrawn(7, 0)
        await settled(lambda: rig.visible(system) == 3)  # published again
        assert rig.visible(one) == rig.visible(other) == 3
        await rig.say("more", one, 7 * SIZE)
        await settled(lambda: rig.visible(one) == 7)
        assert await world.withdraw("other") == Withdrawn(0, 3)
        assert rig.visible(one) == 7

    run_rig(rig, body)


def test_what_came_from_peers_is_not_signed_when_it_is_shown_again(world: World) -> None:
    rig, chain = world.rig, make_chain(6)

    async def body() -> None:
        rig.published.foreign.expect(chain.window_ids[:4])
        rig.published.foreign.settle(chain.window_ids[:4], chain.window_ids[:4])
        await rig.say("story", chain, 6 * SIZE)
        await settled(lambda: rig.visible(chain) == 6)
        assert await world.withdraw("story") == Withdrawn(6, 0)
        await rig.say("more", chain, 6 * SIZE)
        await settled(lambda: rig.visible(chain) == 6)
        assert rig.spans(chain) == [(4, 6)]

    run_rig(rig, body)


def test_what_was_dropped_of_it_goes_too(world: World) -> None:
    rig, chain = world.rig, make_chain(6)
    other = make_chain(3, base=make_chain(3, tokens=chain.tokens[: 3 * SIZE]), seed=4)

    async def body() -> None:
        await rig.say("story", chain, 6 * SIZE)
        await settled(lambda: rig.visible(chain) == 6)
        await rig.say("story", other, 6 * SIZE, keep=3 * SIZE)
        await settled(lambda: rig.visible(other) == 6)
        assert await world.withdraw("story") == Withdrawn(9, 0)
        assert rig.visible(chain) == rig.visible(other) == 0

    run_rig(rig, body)


def test_who_is_busy_is_left(world: World) -> None:
    rig, chain = world.rig, make_chain(2)

    async def body() -> None:
        await rig.say("story", chain, 2 * SIZE)
        await settled(lambda: rig.visible(chain) == 2)
        with rig.conversations.hold("story"), pytest.raises(ConversationBusy):
            await world.withdrawing.withdraw("story")
        with pytest.raises(UnknownConversation):
            await world.withdrawing.withdraw("nobody")
        assert rig.visible(chain) == 2

    run_rig(rig, body)
