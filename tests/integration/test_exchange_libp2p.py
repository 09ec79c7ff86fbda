"""Finding and fetching over real libp2p streams on loopback, and over the bulk path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import trio

from p2p.bulk.client import BulkDialer
from p2p.bulk.server import BulkServer
from p2p.fetching import Fetch
from p2p.finding import Finder, Roads
from p2p.getter import Close, Session
from p2p.host import PeerId, Stream
from p2p.messages import BLOCKS, FIND
from p2p.offer import Offer
from p2p.provider import InThreads, Provider
from p2p.search import Answer
from p2p.source import Provides, Verdict
from p2p.upload import UploadLimit
from tests.builders import make_chain, make_profile
from tests.exchange_parts import ChainOffer, Taken, fetch, keys_of, question_of, take_any
from tests.network_parts import Node, run_libp2p

CHAIN = make_chain(24, profile=make_profile(num_layers=8, kv_heads=8, head_dim=128))


def provide(node: Node, offer: Offer) -> Provider:
    provider = Provider(offer, lambda *_: None, UploadLimit(), InThreads())
    provider.serve_on(node.host)
    return provider


async def find(getter: Node, *peers: PeerId) -> Answer:
    async with trio.open_nursery() as nursery:
        finder = Finder(
            question_of(CHAIN),
            keys_of(CHAIN),
            Roads(lambda peer: getter.host.open(peer, FIND)),
            take_any,
            lambda _: None,
            nursery,
        )
        found = await finder.run(peers, 10.0)
    assert found.answer
    return found.answer


@pytest.mark.spec(41)
def test_a_chain_is_found_and_fetched_from_two_peers_of_which_one_lies() -> None:
    async def main(getter: Node, honest: Node, liar: Node) -> None:
        spoilt = ChainOffer(CHAIN)
        spoilt.spoil = lambda _, data: data[:-1] + bytes([data[-1] ^ 1])
        provide(honest, ChainOffer(CHAIN))
        provide(liar, spoilt)
        for node in (honest, liar):
            await getter.host.connect(node.host.addresses()[0])
        answer = await find(getter, liar.host.peer_id, honest.host.peer_id)
        assert answer.records == CHAIN.records
        got = await fetch(getter.host, CHAIN, [liar.host, honest.host])
        got.taken.assert_prefix_of(CHAIN, len(CHAIN.records))
        assert got.verdict(liar.host) is Verdict.LIED
        again = await fetch(getter.host, CHAIN, [honest.host])
        again.taken.assert_prefix_of(CHAIN, len(CHAIN.records))

    run_libp2p(3, main)


def test_a_provider_that_is_killed_in_mid_transfer() -> None:
    async def main(getter: Node, one: Node, two: Node) -> None:
        for node in (one, two):
            provide(node, ChainOffer(CHAIN))
            await getter.host.connect(node.host.addresses()[0])
        peers = [one.host.peer_id, two.host.peer_id]
        answer = replace(  # the search ends with the first that has it all
            await find(getter, *peers), providers=tuple(Provides(peer, 24) for peer in peers)
        )
        taken, ends = Taken(), one.end

        class Killing(Taken):
            async def take(self, record, particles):  # type: ignore[no-untyped-def]
                if len(taken.windows) == 3:
                    await ends()
                await taken.take(record, particles)

        counts_is_whole = await fetch_from(answer, lambda p: getter.host.open(p, BLOCKS), Killing())
        assert counts_is_whole
        taken.assert_prefix_of(CHAIN, len(CHAIN.records))

    run_libp2p(3, main)


async def fetch_from(
    answer: Answer, opens: Callable[[PeerId], Awaitable[Stream]], sink: Taken
) -> bool:
    closes: list[Close] = []
    session = Session(
        answer.records, None, CHAIN.profile, answer.providers, now_s=trio.current_time()
    )
    async with trio.open_nursery() as nursery:
        await Fetch(session, opens, sink, closes.append, nursery).run()
    return session.is_whole


def test_the_bulk_path_carries_the_same_protocol() -> None:
    async def main(getter: Node, host: Node) -> None:
        provider = provide(host, ChainOffer(CHAIN))
        server = BulkServer(host.host)
        server.serve(BLOCKS, provider.blocks)
        await server.listen("127.0.0.1")
        await getter.host.connect(host.host.addresses()[0])
        opened: list[str] = []

        async def opens(peer: PeerId) -> Stream:
            stream = await dialer.open(peer, BLOCKS)
            opened.append(type(stream).__name__)
            return stream

        async with trio.open_nursery() as nursery:
            dialer = BulkDialer(getter.host, nursery)
            nursery.start_soon(server.run)
            answer = await find(getter, host.host.peer_id)
            taken = Taken()
            assert await fetch_from(answer, opens, taken)
            taken.assert_prefix_of(CHAIN, len(CHAIN.records))
            assert opened == ["BulkStream"]
            nursery.cancel_scope.cancel()

    run_libp2p(2, main)
