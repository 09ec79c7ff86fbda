"""F20: who announces a key first, under many names, keeps nobody from finding who has it."""

from __future__ import annotations

import os
import random
from typing import Literal

import pytest
import trio

from p2p.finding import Finder, Roads
from p2p.frames import Reader, encode_frame
from p2p.host import Found, Limits, PeerId, Stream
from p2p.messages import FIND, FoundChain, FoundChains, encode
from p2p.testing.host import SimHost
from p2p.testing.internet import Internet
from p2p.testing.names import address_of, peer_id_of
from tests.builders import make_chain
from tests.exchange_parts import ChainOffer, in_world, keys_of, meet, question_of, serve, take_any

CHAIN = make_chain(16)
KEY = CHAIN.keys[-1]
TIMEOUT_S = 3.0
NUM_LOOK_UPS = 200 if os.environ.get("GLIA_FULL") else 10
_A_WORLD = 10  # look-ups: of 200 getters that are gone everybody's table would be full
Kind = Literal["has nothing", "is silent", "says it has it", "is nowhere"]


def sybil(net: Internet, number: int, kind: Kind) -> SimHost:
    """It announces, and has nothing."""
    host = net.host(f"sybil {number}")

    async def answer(stream: Stream) -> None:
        await Reader(stream).frame()
        if kind == "is silent":
            await trio.sleep_forever()
        claimed = FoundChain(16, CHAIN.tip, CHAIN.records[-1].numerics_class, ())
        said = (claimed,) if kind == "says it has it" else ()
        await stream.send_all(encode_frame(encode(FoundChains(said))))
        await stream.finish()

    host.serve(FIND, answer)
    return host


def announce_nobody(keepers: list[SimHost], num: int) -> None:
    """Peers that were there to announce, and are gone."""
    for number in range(num):
        peer = peer_id_of(9, f"nobody {number}")
        for keeper in keepers:
            keeper.records.add_provider(KEY, peer, address_of(10_000 + number, peer))


async def look_up(host: SimHost, seed: int) -> PeerId | None:
    """Whose chain is taken."""

    async def meet_one(found: Found) -> bool:
        await host.connect(found.addresses[0])
        return True

    async def open_stream(peer: PeerId) -> Stream:
        return await host.open(peer, FIND)

    async with trio.open_nursery() as nursery:
        finder = Finder(
            question_of(CHAIN),
            keys_of(CHAIN),
            Roads(open_stream, host.directory, meet_one, host.disconnect),
            take_any,
            lambda _: None,
            nursery,
            source=random.Random(seed),
        )
        found = await finder.run([], TIMEOUT_S)
    return found.answer.peer if found.answer else None


@pytest.mark.fault("F20")
@pytest.mark.parametrize("kind", ["has nothing", "is silent", "says it has it", "is nowhere"])
@pytest.mark.parametrize("num_sybils", [20, 100])
def test_f20_the_honest_provider_is_used(num_sybils: int, kind: Kind) -> None:
    used: list[bool] = []

    async def main(net: Internet) -> None:
        bootstrap = net.host("bootstrap", limits=Limits(max_connections=1000))
        keepers = [net.host(f"keeper {number}") for number in range(30)]
        for host in keepers:
            await meet(host, bootstrap)
        if kind == "is nowhere":
            announce_nobody(keepers, num_sybils)
        else:
            for number in range(num_sybils):
                host = sybil(net, number, kind)
                await meet(host, bootstrap)
                await host.directory.provide(KEY)
        honest = net.host("honest")
        serve(honest, ChainOffer(CHAIN))
        await meet(honest, bootstrap)
        await honest.directory.provide(KEY)
        for number in range(_A_WORLD):
            getter = net.host(f"getter {number}")
            await meet(getter, bootstrap)
            used.append(await look_up(getter, len(used)) == honest.peer_id)
            net.kill(getter.name)

    for seed in range(NUM_LOOK_UPS // _A_WORLD):
        in_world(main, seed)
    share = sum(used) / len(used)
    print(f"F20 {num_sybils} sybils, {kind}: honest provider used {share:.3f} limit 0.95")
    assert share >= 0.95
