"""What of conversations becomes visible to peers, and who signs it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from daemon.publisher import Visible
from glia.errors import BadRequest, StoreFull, UnknownConversation
from glia.graph.ids import WindowId
from glia.graph.link import sign_link
from glia.graph.spans import claims
from glia.graph.window import WindowRecord
from glia.store.index import IndexDamaged
from glia.store.published import Published
from tests.builders import TINY, make_chain
from tests.publish_parts import HOLD_S, NOW_S, OTHER, Rig, run_rig, sequences, settled

SIZE = TINY.block_size


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.published.close()


def test_only_full_windows_of_the_public_part_become_visible(rig: Rig) -> None:
    chain, private = make_chain(5), make_chain(3, seed=1)

    async def body() -> None:
        await rig.say("private", private, 0)
        await rig.say("story", chain, 3 * SIZE - 1)
        await settled(lambda: rig.visible(chain) == 2)
        assert rig.visible(private) == 0
        assert rig.spans(chain) == [(0, 2)]
        tip = rig.published.windows_at(chain.window_ids[1], [2])[0]
        assert tip.hold_until_s == NOW_S + HOLD_S
        assert rig.num_told == 1
        assert rig.counters == {"windows_published": 2, "links_signed": 1}

    run_rig(rig, body)


def test_a_public_conversation_is_published_as_it_grows_and_signed_once(rig: Rig) -> None:
    chain = make_chain(40)
    longer = make_chain(10, base=chain, seed=2)

    async def body() -> None:
        await rig.say("story", chain, 40 * SIZE)
        await settled(lambda: rig.visible(chain) == 40)
        assert rig.spans(chain) == [(0, 16), (16, 32), (32, 40)]
        rig.now_s += 7
        # what a turn drops of the log was its answer
        await rig.say("story", longer, 50 * SIZE, keep=40 * SIZE)
        await settled(lambda: rig.visible(longer) == 50)
        assert rig.spans(longer) == [(0, 16), (16, 32), (32, 40), (32, 48), (48, 50)]
        first = int(NOW_S)
        assert sequences(rig.links(longer)) == [*range(first, first + 3), first + 7, first + 8]

    run_rig(rig, body)


def test_sequences_grow_whatever_the_clock_says(rig: Rig) -> None:
    one, other = make_chain(17), make_chain(17, seed=1)

    async def body() -> None:
        await rig.say("one", one, 17 * SIZE)
        await settled(lambda: rig.visible(one) == 17)
        rig.now_s -= 1000
        await rig.say("other", other, 17 * SIZE)
        await settled(lambda: rig.visible(other) == 17)
        first = int(NOW_S)
        assert sequences([*rig.links(one), *rig.links(other)]) == list(range(first, first + 4))

    run_rig(rig, body)


def test_what_is_shown_of_another_class_is_not_taken_for_ours(rig: Rig) -> None:
    other, own = make_chain(4, numerics_class="native:other"), make_chain(4)
    assert other.tokens == own.tokens

    async def body() -> None:
        rig.published.put(other.records)
        await rig.say("story", own, 4 * SIZE)
        await settled(lambda: rig.visible(own) == 4)

    run_rig(rig, body)


def test_private_turns_behind_a_public_part_publish_nothing_more(rig: Rig) -> None:
    chain = make_chain(4)
    longer = make_chain(6, base=chain, seed=2)

    async def body() -> None:
        await rig.say("story", chain, 2 * SIZE)
        await settled(lambda: rig.visible(chain) == 2)
        await rig.say("story", longer, 10 * SIZE, keep=4 * SIZE)
        await settled()
        assert rig.visible(longer) == 2
        assert rig.num_told == 1

    run_rig(rig, body)


@pytest.mark.parametrize("is_named", [True, False])
def test_a_tip_that_is_another_log_s_publishes_nothing_of_it(rig: Rig, is_named: bool) -> None:
    """An engine may say what it likes; and a rewritten conversation has tips of what it was."""
    secret = make_chain(4)
    said = make_chain(2, base=make_chain(2, tokens=secret.tokens[: 2 * SIZE]), seed=5)

    async def body() -> None:
        if is_named:  # the engine's word
            await rig.say("other", secret, 0)
            await rig.say("story", said, 4 * SIZE, tip=secret.tip)
        else:  # what it was before
            await rig.say("story", secret, 0)
            rig.conversations.on_change = lambda: None
            await rig.say("story", said, 4 * SIZE, tip=secret.tip)
            rig.publisher.wake()
        await settled(lambda: rig.visible(secret) == 2)
        assert rig.visible(said) == 2  # what both begin with is public

    run_rig(rig, body)


def test_where_the_tip_is_lost_what_earlier_tips_have_is_published(rig: Rig) -> None:
    chain = make_chain(4)
    longer = make_chain(2, base=chain, seed=2)

    async def body() -> None:
        rig.conversations.on_change = lambda: None
        await rig.say("story", chain, 4 * SIZE)
        await rig.say("story", longer, 6 * SIZE, keep=4 * SIZE)
        rig.store.forget(longer.window_ids[5:])
        rig.publisher.wake()
        await settled(lambda: rig.visible(longer) == 4)

    run_rig(rig, body)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_is_published_is_not_walked_again(rig: Rig, is_restarted: bool) -> None:
    chain = make_chain(200)
    longer = make_chain(3, base=chain, seed=2)
    private = make_chain(30, base=longer, seed=3)
    asked: list[WindowId] = []

    async def first() -> None:
        await rig.say("story", chain, 200 * SIZE)
        await settled(lambda: rig.visible(chain) == 200)

    async def then() -> None:
        rig.conversations.on_change = lambda: None
        await rig.say("story", longer, 203 * SIZE, keep=200 * SIZE)
        get = rig.store.get
        records = rig.publisher._memory.records
        records.get_now = lambda name: asked.append(name) or get(name)  # type: ignore[method-assign,func-returns-value]
        rig.publisher.wake()
        await settled(lambda: rig.visible(longer) == 203)
        assert set(asked) == set(longer.window_ids[200:])
        assert rig.spans(longer)[-2:] == [(192, 200), (192, 203)]
        await rig.say("story", private, 203 * SIZE, keep=203 * SIZE)
        rig.publisher.wake()
        await settled()
        assert len(asked) == 3
        assert rig.visible(private) == 203

    async def last() -> None:
        get = rig.store.get
        records = rig.publisher._memory.records
        records.get_now = lambda name: asked.append(name) or get(name)  # type: ignore[method-assign,func-returns-value]
        rig.conversations.on_change()
        await settled()
        assert asked[3:] == [private.tip]  # not all that is private behind what is published

    run_rig(rig, first)
    if is_restarted:
        rig.publisher = rig.new_publisher()
    run_rig(rig, then)
    rig.publisher = rig.new_publisher()
    run_rig(rig, last)


def test_a_log_that_was_rewritten_is_published_as_it_is_now(rig: Rig) -> None:
    chain = make_chain(40)
    other = make_chain(20, base=make_chain(20, tokens=chain.tokens[: 20 * SIZE]), seed=4)

    async def body() -> None:
        await rig.say("story", chain, 40 * SIZE)
        await settled(lambda: rig.visible(chain) == 40)
        await rig.say("story", other, 40 * SIZE, keep=20 * SIZE)
        await settled(lambda: rig.visible(other) == 40)
        assert rig.visible(chain) == 40  # that was said, too
        assert rig.spans(other) == [(0, 16), (16, 32), (16, 32), (32, 40)]

    run_rig(rig, body)


@pytest.mark.parametrize("num_foreign", [1, 15, 16, 20])
def test_of_a_span_that_is_partly_a_peer_s_the_rest_is_signed(rig: Rig, num_foreign: int) -> None:
    """Also where the conversation was published in between, and where gliad was restarted."""
    chain = make_chain(22)
    longer = make_chain(14, base=chain, seed=2)

    async def body() -> None:
        theirs = chain.window_ids[:num_foreign]
        rig.published.foreign.expect(theirs)
        rig.published.foreign.settle(theirs, theirs)
        await rig.say("story", chain, 22 * SIZE)
        await settled(lambda: rig.visible(chain) == 22)
        await rig.say("story", longer, 36 * SIZE, keep=22 * SIZE)
        await settled(lambda: rig.visible(longer) == 36)
        signed = {num for start, end in rig.spans(longer) for num in range(start, end)}
        assert signed == set(range(num_foreign, 36))

    run_rig(rig, body)


@pytest.mark.parametrize("how", ["while it runs", "files", "directory"])
def test_after_a_damage_nothing_that_is_here_is_signed(rig: Rig, how: str) -> None:
    """Nothing says any more what of it had come from peers."""
    chain = make_chain(20)
    longer = make_chain(4, base=chain, seed=2)

    async def first() -> None:
        await rig.say("story", chain, 20 * SIZE)
        await settled(lambda: rig.visible(chain) == 20)
        assert rig.spans(chain) == [(0, 16), (16, 20)]
        if how == "while it runs":
            index = rig.published._index
            index._begin_anew(index._index, IndexDamaged("a test"))
            rig.publisher.look_anew()
            await settled(lambda: rig.visible(chain) == 20)
            assert rig.spans(chain) == []

    async def then() -> None:
        await settled(lambda: rig.visible(chain) == 20)
        assert rig.spans(chain) == []
        await rig.say("story", longer, 24 * SIZE, keep=20 * SIZE)
        await settled(lambda: rig.visible(longer) == 24)
        assert rig.spans(longer) == [(20, 24)]

    run_rig(rig, first)
    rig.published.close()
    if how == "files":
        for path in (rig.path / "published" / "index").glob("*"):
            path.write_bytes(b"")
    if how == "directory":
        shutil.rmtree(rig.path / "published")
    rig.published = Published(rig.path / "published", is_lost=how == "directory")
    rig.publisher = rig.new_publisher()
    run_rig(rig, then)


@pytest.mark.spec(19)
def test_a_restart_signs_nothing_again(rig: Rig) -> None:
    chain = make_chain(20)
    longer = make_chain(3, base=chain, seed=2)

    async def first() -> None:
        await rig.say("story", chain, 20 * SIZE)
        await settled(lambda: rig.visible(chain) == 20)

    async def again() -> None:
        before = rig.links(chain)
        await settled()
        assert rig.links(chain) == before
        await rig.say("story", longer, 23 * SIZE, keep=20 * SIZE)
        await settled(lambda: rig.visible(longer) == 23)
        assert rig.links(longer)[: len(before)] == before
        assert rig.spans(longer) == [(0, 16), (16, 20), (16, 23)]

    run_rig(rig, first)
    rig.publisher = rig.new_publisher()
    run_rig(rig, again)


def test_what_came_from_peers_is_not_signed_here(rig: Rig) -> None:
    theirs = make_chain(20)
    chain = make_chain(4, base=theirs, seed=2)
    said = claims(theirs.records, 0)
    links = [sign_link(OTHER, claim, 1 + n, int(NOW_S)) for n, claim in enumerate(said)]

    async def body() -> None:
        rig.published.foreign.expect(theirs.window_ids)
        rig.published.foreign.settle(theirs.window_ids, theirs.window_ids)
        rig.published.put(theirs.records, links)
        await rig.say("story", chain, 24 * SIZE)
        await settled(lambda: rig.visible(chain) == 24)
        assert rig.spans(chain) == [(20, 24)]
        assert rig.spans(chain, OTHER) == [(0, 16), (16, 20)]

    run_rig(rig, body)


def test_what_others_attest_too_stays_our_own(rig: Rig) -> None:
    chain = make_chain(10)
    longer = make_chain(2, base=chain, seed=2)

    async def body() -> None:
        await rig.say("story", chain, 10 * SIZE)
        await settled(lambda: rig.visible(chain) == 10)
        (claim,) = claims(chain.records, 0)
        rig.published.put((), [sign_link(OTHER, claim, 1, int(NOW_S))])
        await rig.say("story", longer, 12 * SIZE, keep=10 * SIZE)
        await settled(lambda: rig.visible(longer) == 12)
        assert rig.spans(longer) == [(0, 10), (0, 12)]

    run_rig(rig, body)


class Full(Published):
    """No room, for the first conversation that begins like this."""

    bad: WindowRecord

    def put(self, records, links=(), hold_until_s=0):  # type: ignore[no-untyped-def]
        if records[0] == self.bad:
            raise StoreFull("no room")
        super().put(records, links, hold_until_s)


def test_a_failure_is_counted_and_tried_again_and_holds_up_nobody(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.published.close()
    rig.published = full = Full(tmp_path / "published")
    rig.publisher = rig.new_publisher()
    bad, good = make_chain(2), make_chain(2, seed=1)
    full.bad = bad.records[0]

    async def body() -> None:
        await rig.say("bad", bad, 2 * SIZE)
        await rig.say("good", good, 2 * SIZE)
        await settled(lambda: rig.visible(good) == 2)
        assert rig.counters["publish_failed"] >= 1
        full.bad = good.records[0]
        rig.publisher.wake()
        await settled(lambda: rig.visible(bad) == 2)

    run_rig(rig, body)
    full.close()


def test_nothing_is_published_while_windows_are_being_forgotten(rig: Rig) -> None:
    chain = make_chain(2)

    async def body() -> None:
        async with rig.still:
            await rig.say("story", chain, 2 * SIZE)
            await settled()
            assert rig.visible(chain) == 0
            with rig.conversations.hold("story"):
                await rig.conversations.mark("story")
                await rig.conversations.remove("story")
        await settled()
        assert rig.visible(chain) == 0
        assert rig.counters == {}

    run_rig(rig, body)


def test_what_is_private_is_published_only_when_it_is_told_to_be(rig: Rig) -> None:
    chain = make_chain(5)
    longer = make_chain(3, base=chain, seed=2)

    async def body() -> None:
        await rig.say("story", chain, 0)
        await settled()
        dry = await rig.publisher.publish("story", None, dry=True)
        assert dry == Visible(5 * SIZE + 1, SIZE, 5, 5)
        assert rig.visible(chain) == rig.num_told == 0
        some = await rig.publisher.publish("story", 3 * SIZE - 1, dry=False)
        assert some == Visible(3 * SIZE - 1, SIZE, 2, 2)
        assert rig.visible(chain) == 2
        assert rig.spans(chain) == [(0, 2)]
        again = await rig.publisher.publish("story", 3 * SIZE, dry=False)
        assert (again.num_windows, again.num_new) == (3, 1)
        assert rig.num_told == 2
        await rig.say("story", longer, 0, keep=5 * SIZE)  # what follows stays private
        await settled()
        assert rig.visible(longer) == 3
        with pytest.raises(BadRequest, match="has 129 tokens"):
            await rig.publisher.publish("story", 130, dry=True)
        with pytest.raises(UnknownConversation):
            await rig.publisher.publish("nobody", None, dry=True)

    run_rig(rig, body)


def test_what_is_not_here_is_not_published(rig: Rig) -> None:
    chain = make_chain(3)

    async def body() -> None:
        await rig.say("story", chain, 0)
        rig.store.forget(chain.window_ids)
        gone = await rig.publisher.publish("story", None, dry=False)
        assert gone == Visible(3 * SIZE + 1, 0, 0, 0)
        assert rig.num_told == 0

    run_rig(rig, body)
