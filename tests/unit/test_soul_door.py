"""Windows of what moved away go to a proven Body of the Soul, where the user allows it; to nobody
else, whose answers do not tell why (glia/spec/18-checkpoint.md)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from daemon.arena import SharedMemory
from daemon.binding import Binding
from daemon.memory import Memory
from daemon.moves import Known, Moves, joined
from daemon.parting import Parting
from daemon.paths import Paths
from daemon.soul_door import SoulDoor
from daemon.soul_key import keep_secret
from daemon.soul_peers import SoulPeers
from daemon.soul_state import SoulState
from daemon.warming import Warming
from glia.errors import PeerRefused
from glia.graph.chain import prefix_keys
from glia.graph.claim import Claim
from glia.graph.conversation import Begin
from glia.graph.journal import id_of
from glia.graph.neuron import NeuronId
from glia.graph.soul import Soul
from glia.graph.tokens import pack_tokens
from glia.store.memory import MemoryStore
from p2p.asking import Asking
from p2p.bearing import SOUL_BLOCKS, SOUL_FIND, ask_bearer
from p2p.frames import Reader, encode_frame
from p2p.host import Host, Stream
from p2p.messages import Find, GetBlocks, GetRecords, decode_found, encode
from p2p.testing.internet import Internet
from p2p.walking import Question, Walk
from simulations.virtual.ports import Joined, make_peering
from tests.builders import CLASS, Chain
from tests.resolver_parts import MIB, Node, chain_of, run
from tests.store_parts import sealed

SECRET = b"\5" * 32
SOUL, OTHER = Soul(SECRET), Soul(b"\6" * 32)
ELSEWHERE, OWN = NeuronId(b"\7" * 32), NeuronId(b"\x08" * 32)
Run = Callable[..., None]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    return partial(run, monkeypatch, tmp_path)


def open_door(node: Node, path: Path, chain: Chain, *, gives: bool, holder: NeuronId) -> None:
    """Of a Body with one conversation, which `holder` claims."""
    begin = Begin(1, "story", "tiny", "float32", chain.model_id)
    paths = Paths(path)
    path.mkdir(mode=0o700, exist_ok=True)
    keep_secret(paths.soul_key, SECRET)
    claim = Claim(SOUL.name, 1, 1, 1, holder, (id_of(begin),))
    known = Known().after(joined(Moves(SOUL.name.hex()), claim))
    state = SoulState(paths.soul_state, known, lambda: OWN)
    talks: Any = SimpleNamespace(
        names=lambda: ["story"], head=lambda _: SimpleNamespace(begin=begin, tips=(chain.tip,))
    )
    souls = SoulPeers(node.peering, state, paths)
    door = SoulDoor(node.peering, souls, state, talks, node.memory, gives=gives)
    door._serve()


async def opened(host: Host, node: Node, protocol: str, soul: Soul | None) -> Stream:
    """A stream that has begun; of None, by one that proves nothing and goes on."""
    stream = await host.open(node.peering.host.peer_id, protocol)
    if soul is not None:
        await ask_bearer(stream, Reader(stream), host.peer_id, soul)
        return stream
    await stream.send_all(bytes(32))
    await Reader(stream).exactly(64)
    await stream.send_all(bytes(32))
    return stream


def keys_of(chain: Chain) -> list[tuple[int, Any]]:
    tokens = [token for record in chain.records for token in record.tokens]
    return list(enumerate(prefix_keys(chain.model_id, chain.profile, tokens), 1))


async def answers(host: Host, node: Node, chain: Chain, soul: Soul | None) -> list[bytes]:
    """To who has what, to records, and to a block."""
    profile = chain.profile.profile_id
    find = Find(chain.model_id, profile, tuple(keys_of(chain)), (), True)
    said: list[bytes] = []
    for protocol, request in (
        (SOUL_FIND, find),
        (SOUL_FIND, GetRecords(chain.tip, len(chain.records), 0)),
        (SOUL_BLOCKS, GetBlocks((chain.records[0].blocks[0],))),
    ):
        stream = await opened(host, node, protocol, soul)
        await stream.send_all(encode_frame(encode(request)))
        await stream.finish()
        data = b""
        while part := await stream.receive_some(65536):
            data += part
        said.append(data)
    return said


@pytest.mark.spec(59)
def test_a_proven_body_has_the_windows_of_what_moved(world: Run, tmp_path: Path) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(20)
        node.store.put(sealed(chain))
        open_door(node, tmp_path / "soul", chain, gives=True, holder=ELSEWHERE)
        bearer = net.host("bearer")
        await bearer.connect(node.peering.host.addresses()[0])
        stream = await opened(bearer, node, SOUL_FIND, SOUL)
        asking = Asking(stream)
        question = Question(chain.model_id, chain.profile)
        (found,) = [
            each
            for each in await asking.find(question, keys_of(chain), want_records=False)
            if each.num_windows == 20
        ]
        walk = Walk(question, chain.tip, 20)
        assert found.tip == chain.tip
        await asking.get_records(walk)
        assert walk.records == list(chain.records)
        *_, block = await answers(bearer, node, chain, SOUL)
        assert block[4:] == node.store.read_block(chain.records[0].blocks[0])
        assert node.peering.published.record(chain.tip) is None

    world(main)


@pytest.mark.spec(47)
def test_whoever_else_asks_learns_nothing(world: Run, tmp_path: Path) -> None:
    """Not allowed, not moved, not proven, and never there: the answers are the same bytes."""

    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(20)
        bearer = net.host("bearer")
        await bearer.connect(node.peering.host.addresses()[0])
        absent = None
        for number, (gives, holder, soul, is_here) in enumerate(
            (
                (True, ELSEWHERE, SOUL, False),
                (False, ELSEWHERE, SOUL, True),
                (True, OWN, SOUL, True),
                (True, ELSEWHERE, None, True),
                (False, OWN, None, True),
            )
        ):
            if is_here:
                node.store.put(sealed(chain))
            open_door(node, tmp_path / f"soul{number}", chain, gives=gives, holder=holder)
            said = await answers(bearer, node, chain, soul)
            absent = absent or said
            assert said == absent
            assert decode_found(said[0][4:]).candidates == ()
        with pytest.raises(PeerRefused):
            await opened(bearer, node, SOUL_FIND, OTHER)

    world(main)


@pytest.mark.spec(59)
def test_a_new_body_brings_them_and_shows_them_to_nobody(world: Run, tmp_path: Path) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(20)
        peering = make_peering(tmp_path / "old", Joined(net, "old"))
        store, arena = MemoryStore(64 * MIB), SharedMemory("old-l1", 4 * MIB, 0)
        store.put(sealed(chain))
        old: Any = SimpleNamespace(peering=peering, memory=Memory(arena, store, hot_steps=4))
        tokens = [token for record in chain.records for token in record.tokens]
        begin = Begin(1, "story", "tiny", "float32", chain.model_id)
        binding = Binding(chain.model_id, chain.profile, CLASS)

        async def read(_: str) -> Any:
            return SimpleNamespace(tokens=pack_tokens(tokens))

        talks: Any = SimpleNamespace(read=read)
        nobody: Any = None
        warming = Warming(node.peering, nobody, talks, nobody, node.memory)
        async with trio.open_nursery() as nursery:
            await nursery.start(peering.run)
            await node.peering.host.connect(peering.host.addresses()[0])
            peer = peering.host.peer_id
            open_door(old, tmp_path / "soul", chain, gives=False, holder=ELSEWHERE)
            assert not await warming._came(begin.name, binding, peer, SOUL)
            assert not await warming._came(begin.name, binding, peer, OTHER)
            assert await node.matched(chain) == 0
            open_door(old, tmp_path / "soul", chain, gives=True, holder=ELSEWHERE)
            assert await warming._came(begin.name, binding, peer, SOUL)
            assert await warming._came(begin.name, binding, peer, SOUL)  # there is no more
            nursery.cancel_scope.cancel()
        assert await node.matched(chain) == 20
        published = node.peering.published
        assert published.record(chain.tip) is None
        origins = published.foreign.origins(chain.window_ids)
        assert {origin.signer for origin in origins.values()} == {None}
        assert len(origins) == 20
        assert node.memory.arrivals.unchecked == {*chain.window_ids}
        arena.close()

    world(main)


def test_what_is_offered_is_those_chains_and_no_more(world: Run, tmp_path: Path) -> None:
    async def main(node: Node, net: Internet) -> None:
        chain = chain_of(20)
        node.store.put(sealed(chain))
        shown = chain.records[:12]
        offer = Parting([shown, shown[:3]], node.store)
        found = offer.match(chain.model_id, chain.profile.profile_id, keys_of(chain)[::-1])
        assert [each.num_windows for each in found] == list(range(12, 0, -1))
        assert offer.records(chain.tip, 20, 0) == []
        assert offer.records(shown[-1].window_id, 11, 0) == []
        assert offer.records(shown[-1].window_id, 12, 10) == [r.encoding for r in shown[10:]]
        assert offer.record(chain.tip) is None
        own, beyond = shown[0].blocks[0], chain.records[12].blocks[0]
        assert (offer.has_block(own), offer.has_block(beyond)) == (True, False)
        absent, there = offer.read_blocks([beyond, own], memoryview(bytearray(1 << 20)))
        assert absent is None
        assert there == node.store.read_block(own)
        nothing = Parting((), node.store)
        assert not nothing.match(chain.model_id, chain.profile.profile_id, keys_of(chain))
        assert nothing.read_blocks([own], memoryview(bytearray(1 << 20))) == [None]

    world(main)
