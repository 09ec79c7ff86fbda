"""F19, and T33 of the upload limit: it holds, and a greedy peer takes little from the others."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from glia.errors import NetworkError
from p2p.frames import encode_frame
from p2p.host import PeerId
from p2p.messages import BLOCKS, MAX_WANTS, GetBlocks, encode
from p2p.provider import Provider, Served
from p2p.testing.host import SimHost
from p2p.testing.internet import Internet
from p2p.upload import UploadLimit
from tests.builders import Chain, make_chain, make_profile
from tests.exchange_parts import ChainOffer, at_once, in_world, meet

CHAIN = make_chain(64, profile=make_profile(kv_heads=2, head_dim=64))
RATE = 1024 * 1024
SPAN_S = 30.0
NUM_STREAMS = 20


async def ask_on(getter: SimHost, host: SimHost, chain: Chain, *, resets: bool) -> None:
    """Want blocks for ever, as many at once as may be; reset what was begun, or read it."""
    ids = [block_id for block_id, _ in chain.blocks()]
    wants = encode_frame(encode(GetBlocks(tuple((ids * 99)[:MAX_WANTS]))))
    while True:
        try:
            stream = await getter.open(host.peer_id, BLOCKS)
            await stream.send_all(wants * 4)
            for _ in range(3 if resets else 10**9):
                await stream.receive_some(1 << 20)
            await stream.reset()
        except NetworkError:
            await trio.sleep(0.1)


async def rates(net: Internet, greedy: int, *, resets: bool) -> dict[str, float]:
    """Bytes a second that each of three peers is sent; the first one has so many streams."""
    host = net.host("host")
    getters = {name: net.host(name) for name in ("greedy", "one", "two")}
    names: dict[PeerId, str] = {each.peer_id: name for name, each in getters.items()}
    sent = Counter[str]()

    def tell(peer: PeerId, served: Served) -> None:
        sent[names[peer]] += served.num_bytes

    Provider(ChainOffer(CHAIN), tell, UploadLimit(RATE), at_once).serve_on(host)
    async with trio.open_nursery() as nursery:
        for name, getter in getters.items():
            await meet(getter, host)
            is_greedy = name == "greedy"
            for _ in range(greedy if is_greedy else 1):
                nursery.start_soon(
                    lambda g=getter, r=is_greedy and resets: ask_on(g, host, CHAIN, resets=r)
                )
        await trio.sleep(5.0)
        sent.clear()
        await trio.sleep(SPAN_S)
        nursery.cancel_scope.cancel()
    return {name: num / SPAN_S for name, num in sent.items()}


@pytest.mark.fault("F19")
@pytest.mark.parametrize("resets", [False, True])
def test_under_an_upload_limit_a_greedy_peer_takes_its_share(resets: bool) -> None:
    found: list[dict[str, float]] = []

    async def without(net: Internet) -> None:
        found.append(await rates(net, 0, resets=False))

    async def beside(net: Internet) -> None:
        found.append(await rates(net, NUM_STREAMS, resets=resets))

    in_world(without)
    in_world(beside)
    alone, shared = found
    for rate in alone, shared:
        assert sum(rate.values()) == pytest.approx(RATE, rel=0.1)
    for name in ("one", "two"):
        print("f19_upload", name, shared[name] / alone[name], 0.5)
        assert shared[name] >= 0.5 * alone[name]
    assert shared["one"] == pytest.approx(shared["two"], rel=0.1)


@pytest.mark.fault("F19")
def test_peers_that_want_much_and_go_hold_nobody_up() -> None:
    async def main(net: Internet) -> None:
        host, one = net.host("host"), net.host("one")
        sent = Counter[PeerId]()

        def tell(peer: PeerId, served: Served) -> None:
            sent[peer] += served.num_bytes

        Provider(ChainOffer(CHAIN), tell, UploadLimit(RATE), at_once).serve_on(host)
        await meet(one, host)
        ids = [block_id for block_id, _ in CHAIN.blocks()]
        wants = encode_frame(encode(GetBlocks(tuple((ids * 99)[:MAX_WANTS]))))

        async def come_and_go() -> None:
            for number in range(10 * int(SPAN_S)):
                passer = net.host(f"passer {number}")
                await passer.connect(host.addresses()[0])
                stream = await passer.open(host.peer_id, BLOCKS)
                await stream.send_all(wants)
                await trio.sleep(0.1)
                await passer.disconnect(host.peer_id)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ask_on(one, host, CHAIN, resets=False))
            nursery.start_soon(come_and_go)
            await trio.sleep(5.0)
            sent.clear()
            await trio.sleep(SPAN_S - 5.0)
            nursery.cancel_scope.cancel()
        rate = sent[one.peer_id] / (SPAN_S - 5.0)
        print("f19_upload", "those that go", rate / RATE, 0.3)
        assert rate >= 0.3 * RATE
        assert sum(sent.values()) <= 1.1 * RATE * (SPAN_S - 5.0)

    in_world(main)
