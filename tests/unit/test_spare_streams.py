"""Streams that are open before they are needed."""

from __future__ import annotations

import pytest
import trio

from glia.errors import NetworkError
from p2p.finding import Finder, Roads
from p2p.messages import BLOCKS, FIND
from p2p.spare import MAX_SPARES, SpareStreams
from p2p.testing.host import SimHost
from p2p.testing.internet import Internet
from tests.builders import make_chain
from tests.exchange_parts import ChainOffer, in_world, keys_of, meet, question_of, serve, take_any

CHAIN = make_chain(40)
RTT_S = 0.2


async def find_s(getter: SimHost, host: SimHost, spares: SpareStreams) -> float:
    """How long a search for the chain takes."""
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        roads = Roads(spares.open)
        finder = Finder(
            question_of(CHAIN), keys_of(CHAIN), roads, take_any, lambda _: None, nursery
        )
        found = await finder.run([host.peer_id], 5.0)
        took_s = trio.current_time() - began_s
    assert found.answer
    assert found.answer.records == CHAIN.records
    return took_s


def in_pair(main: object) -> None:
    async def run(net: Internet) -> None:
        getter, host = net.host("getter"), net.host("host")
        net.link("getter", "host", latency_s=RTT_S / 2)
        serve(host, ChainOffer(CHAIN))
        await meet(getter, host)
        async with trio.open_nursery() as nursery:
            await main(
                net,
                getter,
                host,
                SpareStreams(getter, lambda peer: getter.open(peer, FIND), nursery),
            )  # type: ignore[operator]
            nursery.cancel_scope.cancel()

    in_world(run)


def test_a_question_to_a_known_peer_costs_one_round_trip() -> None:
    async def main(net: Internet, getter: SimHost, host: SimHost, spares: SpareStreams) -> None:
        assert await find_s(getter, host, spares) == pytest.approx(2 * RTT_S, abs=0.01)
        spares.prepare([host.peer_id])
        await trio.sleep(1.0)
        assert await find_s(getter, host, spares) == pytest.approx(RTT_S, abs=0.01)
        assert await find_s(getter, host, spares) == pytest.approx(2 * RTT_S, abs=0.01)

    in_pair(main)


@pytest.mark.parametrize("how", ["stale", "reconnected"])
def test_a_spare_that_may_be_dead_is_not_used(how: str) -> None:
    async def main(net: Internet, getter: SimHost, host: SimHost, spares: SpareStreams) -> None:
        spares.prepare([host.peer_id])
        await trio.sleep(1.0)
        if how == "stale":
            await trio.sleep(70.0)
        else:
            await getter.disconnect(host.peer_id)
            await meet(getter, host)
        assert await find_s(getter, host, spares) == pytest.approx(2 * RTT_S, abs=0.01)

    in_pair(main)


def test_a_stale_one_is_replaced() -> None:
    async def main(net: Internet, getter: SimHost, host: SimHost, spares: SpareStreams) -> None:
        spares.prepare([host.peer_id])
        await trio.sleep(50.0)
        spares.prepare([host.peer_id])
        await trio.sleep(1.0)
        assert host._under_way.total() == 1
        assert await find_s(getter, host, spares) == pytest.approx(RTT_S, abs=0.01)

    in_pair(main)


def test_those_that_cannot_be_had_are_no_matter() -> None:
    async def main(net: Internet) -> None:
        getter, host, gone = net.host("getter"), net.host("host"), net.host("gone")
        await meet(getter, host)
        async with trio.open_nursery() as nursery:
            spares = SpareStreams(getter, lambda peer: getter.open(peer, BLOCKS), nursery)
            spares.prepare([host.peer_id, gone.peer_id])
            await trio.sleep(1.0)
            for peer in (host, gone):
                with pytest.raises(NetworkError):
                    await spares.open(peer.peer_id)

    in_world(main)


def test_only_so_many() -> None:
    async def main(net: Internet) -> None:
        getter = net.host("getter")
        hosts = [net.host(str(number)) for number in range(MAX_SPARES + 4)]
        for host in hosts:
            serve(host, ChainOffer(CHAIN))
        await meet(getter, *hosts)
        async with trio.open_nursery() as nursery:
            spares = SpareStreams(getter, lambda peer: getter.open(peer, FIND), nursery)
            for _ in range(3):
                spares.prepare([host.peer_id for host in hosts])
                await trio.sleep(1.0)
            assert sum(host._under_way.total() for host in hosts) == MAX_SPARES

    in_world(main)
