"""What others say on the topics of models becomes hints, if it is what it must be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Self

import pytest
import trio

from daemon.hearing import Hearing
from glia.errors import StoreFull
from glia.graph.ids import ModelId
from glia.graph.link import Link, sign_link
from glia.graph.neuron import NeuronId, Signer
from glia.graph.spans import claims
from glia.store.heard import Heard
from p2p.announcing import topic_of
from p2p.hints import Hints
from p2p.host import PeerId
from tests.builders import MODEL, make_chain
from tests.network_parts import until

NOW_S = 1_900_000_000
THEM = PeerId("somebody")
OTHER_MODEL = ModelId(b"\7" * 32)
CHAIN = make_chain(3)


def link_of(number: int, time_s: int = NOW_S) -> Link:
    (claim,) = claims(CHAIN.records, 0)
    return sign_link(Signer(bytes([number]) * 32), claim, 1, time_s)


class Topics:
    """Gossip, and the rest that is needed of a node."""

    def __init__(self, heard: Heard) -> None:
        self.heard = heard
        self.hints = Hints(bytes(32), lambda peer: peer == "proven", lambda _: "")
        self.taken: set[NeuronId] = set()
        self.counters = Counter[str]()
        self.why_off = ""
        self.takers: dict[str, Callable[[PeerId, bytes], None]] = {}

    @property
    def gossip(self) -> Topics:
        return self

    @property
    def believing(self) -> Self:
        """All that is asked of it is here."""
        return self

    def takes(self) -> Callable[[NeuronId], bool]:
        return self.taken.__contains__

    def join(self, topic: str, take: Callable[[PeerId, bytes], None]) -> None:
        self.takers[topic] = take

    def leave(self, topic: str) -> None:
        del self.takers[topic]

    async def publish(self, topic: str, message: bytes) -> None:
        raise AssertionError("it only listens")

    def say(self, message: bytes, model_id: ModelId = MODEL, peer: PeerId = THEM) -> None:
        self.takers[topic_of(model_id)](peer, message)


@pytest.fixture
def topics(tmp_path: Path) -> Iterator[Topics]:
    heard = Heard(tmp_path / "heard")
    yield Topics(heard)
    heard.close()


def listening(topics: Topics, body: Callable[[Hearing], Awaitable[None]]) -> None:
    async def main() -> None:
        hearing = Hearing(topics, lambda: NOW_S)
        hearing.follow([MODEL, OTHER_MODEL])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hearing.run)
            await body(hearing)
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_links_are_kept_as_hints(topics: Topics) -> None:
    async def body(_: Hearing) -> None:
        for number in (1, 2, 1):
            topics.say(link_of(number).encoding)
        await until(lambda: topics.counters["links_heard"] == 2)
        assert set(topics.heard.find(CHAIN.keys[-1:])) == {link_of(1), link_of(2)}
        assert topics.counters["gossip_refused"] == 0

    listening(topics, body)


def test_who_said_so_is_asked_first_who_is_proven_before_others(topics: Topics) -> None:
    proven, other = PeerId("proven"), PeerId("other")
    short = make_chain(2, tokens=CHAIN.tokens[:32])
    (claim,) = claims(short.records, 0)
    link = sign_link(Signer(bytes(32)), claim, 1, NOW_S)

    async def body(_: Hearing) -> None:
        for peer in (other, THEM):
            topics.say(link_of(1).encoding, peer=peer)
        for peer in (PeerId("short"), proven):
            topics.say(link.encoding, peer=peer)
        topics.say(b"x", peer=PeerId("nobody"))
        topics.say(link_of(1).encoding, OTHER_MODEL, PeerId("nobody"))
        await until(lambda: topics.counters["gossip_refused"] == 2)
        await until(lambda: len(topics.hints.peers(CHAIN.keys)) == 4)
        assert topics.hints.peers(CHAIN.keys) == [proven, other, THEM, PeerId("short")]
        assert topics.hints.peers(CHAIN.keys[:1]) == []

    listening(topics, body)


def test_a_signer_that_is_taken_has_a_place_among_strangers(topics: Topics) -> None:
    mine = link_of(99)
    topics.taken.add(mine.signer)

    async def body(_: Hearing) -> None:
        for number in range(20):
            topics.say(link_of(number).encoding)
        topics.say(mine.encoding)
        await until(lambda: topics.counters["links_heard"] == 9)
        found = topics.heard.find(CHAIN.keys[-1:])
        assert mine in found
        assert len(found) == 8

    listening(topics, body)


def test_what_is_no_link_or_of_another_model_or_of_the_future_is_refused(topics: Topics) -> None:
    good = link_of(1).encoding
    flipped = good[:-1] + bytes([good[-1] ^ 1])

    async def body(_: Hearing) -> None:
        for bad in (b"", b"x" * 4096, flipped, link_of(2, NOW_S + 1000).encoding):
            topics.say(bad)
        topics.say(good, OTHER_MODEL)
        await until(lambda: topics.counters["gossip_refused"] == 5)
        assert topics.heard.stats().num_links == 0

    listening(topics, body)


def test_who_says_more_than_can_be_kept_waits_nowhere(topics: Topics) -> None:
    async def body(_: Hearing) -> None:
        for _number in range(1000):
            topics.say(b"x")
        assert topics.counters["gossip_dropped"] == 1000 - 256
        await until(lambda: topics.counters["gossip_refused"] == 256)
        topics.say(link_of(1).encoding)
        await until(lambda: topics.counters["links_heard"] == 1)

    listening(topics, body)


def test_a_full_disk_ends_nothing(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(link: Link, *, is_taken: bool) -> bool:
        raise StoreFull("no room")

    async def body(_: Hearing) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(topics.heard, "add", full)
            topics.say(link_of(1).encoding)
            await until(lambda: topics.counters["gossip_failed"] == 1)
        topics.say(link_of(1).encoding)
        await until(lambda: topics.counters["links_heard"] == 1)

    listening(topics, body)


def test_what_is_followed_while_the_network_is_off_is_joined_when_it_is_on(topics: Topics) -> None:
    hearing = Hearing(topics, lambda: NOW_S)
    topics.why_off = "a cable"
    hearing.follow([MODEL])
    assert not topics.takers
    topics.why_off = ""
    hearing.join_again()
    assert topic_of(MODEL) in topics.takers


def test_ports_that_just_ended_end_nothing_else(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(topic: str, take: object) -> None:
        raise RuntimeError("no nursery")

    monkeypatch.setattr(topics, "join", ended)
    Hearing(topics, lambda: NOW_S).follow([MODEL])


def test_new_ports_are_joined_again_and_no_more_topics_than_peers_take(topics: Topics) -> None:
    hearing = Hearing(topics, lambda: NOW_S)
    hearing.follow(ModelId(bytes([number]) * 32) for number in range(200))
    assert len(topics.takers) == 64
    before, topics.takers = topics.takers, {}
    hearing.join_again()
    assert topics.takers.keys() == before.keys()
