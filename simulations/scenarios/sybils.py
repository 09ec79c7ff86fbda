"""Who announces a key first, under many names, and has nothing (SECURITY F20)."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

import blake3
import trio

from glia.graph.boundaries import asked, pairs
from p2p.finding import Finder, Roads
from p2p.frames import Reader, encode_frame
from p2p.host import Found, PeerId, Stream
from p2p.messages import FIND, FoundChain, FoundChains, encode
from p2p.provider import Provider
from p2p.testing.host import SimHost
from p2p.testing.internet import Internet
from p2p.testing.names import address_of, peer_id_of
from p2p.testing.road import Link
from p2p.upload import UploadLimit
from p2p.walking import Question
from simulations.scenario import Check, Outcome, Scenario, Setting
from simulations.virtual.chains import CLASS, MODEL, SMALL, Chain, public_chain
from simulations.virtual.crowd import MANY, in_crowd
from simulations.virtual.library import Library

Kind = Literal["has nothing", "is silent", "says it has it", "is nowhere"]
KINDS: tuple[Kind, ...] = get_args(Kind)
NUM_WINDOWS = 16
A_WORLD = 10  # look-ups
_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Crowded:
    """Look-ups of a world, and in how many the honest provider was used."""

    num_look_ups: int
    num_used: int
    trace: str


def wanted() -> Chain:
    return public_chain(0, NUM_WINDOWS, 1)


async def _answer(kind: Kind, chain: Chain, stream: Stream) -> None:
    await Reader(stream).frame()
    if kind == "is silent":
        await trio.sleep_forever()
    claimed = FoundChain(NUM_WINDOWS, chain.tip, CLASS, ())
    said = (claimed,) if kind == "says it has it" else ()
    await stream.send_all(encode_frame(encode(FoundChains(said))))
    await stream.finish()


def announce_nobody(keepers: list[SimHost], key: bytes, num: int) -> None:
    """Peers that were there to announce, and are gone."""
    for number in range(num):
        peer = peer_id_of(9, f"nobody {number}")
        for keeper in keepers:
            keeper.records.add_provider(key, peer, address_of(10_000 + number, peer))


async def look_up(host: SimHost, chain: Chain, seed: int, timeout_s: float) -> PeerId | None:
    """Whose chain is taken."""

    async def meet(found: Found) -> bool:
        await host.connect(found.addresses[0])
        return True

    async def take_any(*_: object) -> bool:
        return True

    open_find: Callable[[PeerId], Awaitable[Stream]] = partial(host.open, protocol=FIND)
    keys = pairs(chain.keys, asked(NUM_WINDOWS))
    async with trio.open_nursery() as nursery:
        finder = Finder(
            Question(MODEL, SMALL, tokens=chain.tokens),
            keys,
            Roads(open_find, host.directory, meet, host.disconnect),
            take_any,
            lambda _: None,
            nursery,
            source=random.Random(seed),
        )
        found = await finder.run([], timeout_s)
    return found.answer.peer if found.answer else None


def crowded(
    kind: Kind,
    num_sybils: int,
    num_keepers: int,
    seed: int,
    num_look_ups: int = A_WORLD,
    timeout_s: float = _TIMEOUT_S,
    road: Callable[[str, str], Link] | None = None,
) -> Crowded:
    """Getters that know nobody but where others meet, one after another; each is gone then.

    Args: timeout_s: of a look-up. road: as in_crowd has it.
    """
    chain = wanted()
    key = chain.keys[-1]

    async def main(net: Internet) -> Crowded:
        meeting = net.host("meeting", limits=MANY)
        keepers = [net.host(f"keeper {number}") for number in range(num_keepers)]
        for host in keepers:
            await host.connect(meeting.addresses()[0])
        if kind == "is nowhere":
            announce_nobody(keepers, key, num_sybils)
        else:
            for number in range(num_sybils):
                host = net.host(f"sybil {number}")
                host.serve(FIND, partial(_answer, kind, chain))
                await host.connect(meeting.addresses()[0])
                await host.directory.provide(key)
        honest, library = net.host("honest"), Library()
        library.add(chain)
        Provider(library, lambda *_: None, UploadLimit(), library.answer).serve_on(honest)
        await honest.connect(meeting.addresses()[0])
        await honest.directory.provide(key)
        num_used = 0
        for number in range(num_look_ups):
            getter = net.host(f"getter {number}")
            await getter.connect(meeting.addresses()[0])
            number_of_all = num_look_ups * seed + number
            used = await look_up(getter, chain, number_of_all, timeout_s)
            num_used += used == honest.peer_id
            net.kill(getter.name)
        return Crowded(num_look_ups, num_used, net.trace.digest())

    return in_crowd(seed, main, road)


def run(setting: Setting) -> Outcome:
    num_sybils = max(20, setting.nodes // 2)
    num_keepers = setting.nodes - num_sybils
    found = {kind: crowded(kind, num_sybils, num_keepers, setting.seed) for kind in KINDS}
    num = sum(each.num_look_ups for each in found.values())
    num_used = sum(each.num_used for each in found.values())
    return Outcome(
        table=[
            {
                "sybils": num_sybils,
                "each": kind,
                "look-ups": each.num_look_ups,
                "honest provider used": each.num_used,
            }
            for kind, each in found.items()
        ],
        checks=(Check("share of look-ups that used it", num_used / num, ">=", 0.95),),
        trace=blake3.blake3("".join(each.trace for each in found.values()).encode()).hexdigest(),
    )


SCENARIO = Scenario(
    name="sybils",
    claim="Who announces a key first under many names keeps nobody from finding who has it.",
    rows=(41,),
    faults=("F20",),
    world="virtual",
    usual=Setting(130),
    quick=Setting(50),
    least=40,
    run=run,
)
