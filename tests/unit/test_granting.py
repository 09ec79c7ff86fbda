"""Grants over the virtual network: who asks, who gets, and what is known when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from daemon import group_changes as changes
from daemon.group_egress import CHECK_AGAIN_S, GroupEgress
from daemon.group_file import MemberRow
from daemon.group_life import RENEW_S, GroupLife
from daemon.peering import Peering
from glia.errors import (
    BadRequest,
    MalformedParticle,
    NotPermitted,
    PeerLost,
    PeerUnreachable,
    RemoteProtocolError,
)
from glia.graph.group import GroupId
from glia.graph.ids import BlockId
from p2p.frames import Reader, encode_frame, send_body
from p2p.granting import GRANTS, MAX_GRANTS, ask_grants
from p2p.host import PeerId, Stream
from p2p.peer_key import key_of
from p2p.testing.internet import Internet
from p2p.testing.simulate import simulate
from simulations.virtual.ports import Joined, make_peering
from tests.group_parts import NOW_S, groups_of

T = TypeVar("T")


class Node:
    """One on the simulated internet, whose groups' clock is trio's."""

    def __init__(self, net: Internet, directory: Path, name: str) -> None:
        self.peering: Peering = make_peering(directory / name, Joined(net, name))
        peer = net.host(name).peer_id
        key = key_of(peer)
        assert key is not None
        began_s = trio.current_time()
        self.now = lambda: NOW_S + trio.current_time() - began_s
        self.peer, self.key = peer, key
        self.groups = groups_of(directory, name, self.now, key)
        self.life = GroupLife(self.groups, self.peering, at_once)

    @property
    def address(self) -> str:
        return str(self.peering.host.addresses()[0])

    def grant(self, group: GroupId, to: Node) -> None:
        self.groups.grant(group, MemberRow(1, int(self.now()), peer=to.key))

    def revoke(self, group: GroupId, who: Node) -> None:
        gone = [each for each in self.groups.row(group).members if each.peer == who.key]
        self.groups.change(group, lambda row, now_s: changes.revoked(row, gone, now_s))

    def serves(self, other: Node, group: GroupId, shown: bytes) -> bool:
        try:
            self.groups.check(group, shown, other.peer)
        except NotPermitted:
            return False
        return True


async def at_once(call: Callable[[], T], /) -> T:
    """Instead of in a thread, whose work virtual time would not wait for."""
    await trio.lowlevel.checkpoint()
    return call()


Main = Callable[[Node, Node, Node, trio.Nursery], Awaitable[None]]


def run(tmp_path: Path, main: Main) -> None:
    async def in_a_world() -> None:
        async with trio.open_nursery() as nursery:
            net = Internet(nursery)
            nodes = [Node(net, tmp_path, name) for name in ("ada", "bob", "cyd")]
            for node in nodes:
                nursery.start_soon(node.peering.run)
                await node.peering.settled.wait()
            await main(*nodes, nursery)  # type: ignore[call-arg]
            nursery.cancel_scope.cancel()

    simulate(in_a_world)


@pytest.mark.spec(49)
def test_who_was_granted_something_asks_for_it(tmp_path: Path) -> None:
    async def main(ada: Node, bob: Node, cyd: Node, nursery: trio.Nursery) -> None:
        group = ada.groups.create("friends").group_id
        ada.grant(group, bob)
        (joined,) = await bob.life.join([ada.address])
        assert joined.group_id == group
        assert list(joined.homes) == [ada.address]
        assert bob.groups.keys(group) == ada.groups.keys(group)
        assert ada.serves(bob, group, bob.groups.capability(group))
        assert bob.serves(ada, group, ada.groups.capability(group))
        assert await cyd.life.join([ada.address]) == []
        assert not ada.serves(cyd, group, bob.groups.capability(group))
        assert await bob.life.join([cyd.address]) == []
        assert await bob.life.join_peer(cyd.peer) == []

    run(tmp_path, main)


@pytest.mark.fault("F30")
@pytest.mark.spec(49)
def test_what_is_revoked_is_known_within_a_minute(tmp_path: Path) -> None:
    """By nodes that are online; and the next epoch's key comes to members alone."""

    async def main(ada: Node, bob: Node, cyd: Node, nursery: trio.Nursery) -> None:
        group = ada.groups.create("friends").group_id
        for node in (bob, cyd):
            ada.grant(group, node)
            await node.life.join([ada.address])
            nursery.start_soon(node.life.run)
        nursery.start_soon(ada.life.run)
        await trio.sleep(5 * RENEW_S)
        shown = bob.groups.capability(group)
        assert cyd.serves(bob, group, shown)
        ada.revoke(group, bob)
        assert not ada.serves(bob, group, shown)
        await trio.sleep(60)
        assert not cyd.serves(bob, group, shown)
        assert cyd.groups.keys(group) == ada.groups.keys(group)
        newest = ada.groups.row(group).keys.current
        assert newest not in bob.groups.row(group).keys.epochs
        assert cyd.serves(ada, group, ada.groups.capability(group))
        assert ada.serves(cyd, group, cyd.groups.capability(group))

    run(tmp_path, main)


class Everything:
    """An index, and L2, in which all is that is asked for."""

    def have_blocks(self, group: GroupId, block_ids: Sequence[BlockId]) -> list[bool]:
        return [True] * len(block_ids)

    def has_block(self, block_id: BlockId) -> bool:
        return True


@pytest.mark.fault("F30")
@pytest.mark.spec(49)
@pytest.mark.parametrize("phase_s", [0.0, 0.3, 0.9 * RENEW_S])
def test_an_old_token_is_served_by_nobody_after_a_minute(tmp_path: Path, phase_s: float) -> None:
    """Also on a stream that was open before, at whatever moment that was revoked."""

    async def main(ada: Node, bob: Node, cyd: Node, nursery: trio.Nursery) -> None:
        group = ada.groups.create("friends").group_id
        for node in (bob, cyd):
            ada.grant(group, node)
            await node.life.join([ada.address])
            nursery.start_soon(node.life.run)
        nursery.start_soon(ada.life.run)
        await trio.sleep(2 * RENEW_S + phase_s)
        shown, counters = bob.groups.capability(group), Counter[str]()
        every: Any = Everything()
        egress = GroupEgress(every, every, cyd.groups.check, counters, trio.current_time)
        offer = egress.offer_of(group, shown, bob.peer)
        assert offer.has_block(BlockId(bytes(32)))
        ada.revoke(group, bob)
        await trio.sleep(60 - CHECK_AGAIN_S)
        offer.has_block(BlockId(bytes(32)))  # looked at just before: then not for a while
        await trio.sleep(CHECK_AGAIN_S - 0.01)
        assert not offer.has_block(BlockId(bytes(32)))
        assert counters["group_streams_refused"] == 0
        assert not egress.offer_of(group, shown, bob.peer).has_block(BlockId(bytes(32)))
        assert counters["group_streams_refused"] == 1

    run(tmp_path, main)


def test_an_issuer_that_is_gone_stops_nothing_before_capabilities_end(tmp_path: Path) -> None:
    async def main(ada: Node, bob: Node, cyd: Node, nursery: trio.Nursery) -> None:
        group = ada.groups.create("friends").group_id
        for node in (bob, cyd):
            ada.grant(group, node)
            await node.life.join([ada.address])
            nursery.start_soon(node.life.run)
        ada.peering.host.ban(bob.peer, True)
        ada.peering.host.ban(cyd.peer, True)
        await trio.sleep(1700)
        shown = bob.groups.capability(group)
        assert cyd.serves(bob, group, shown)
        await trio.sleep(3600 + 120)
        assert not cyd.serves(bob, group, shown)
        ada.peering.host.ban(bob.peer, False)
        ada.peering.host.ban(cyd.peer, False)
        await trio.sleep(2 * RENEW_S)
        assert cyd.serves(bob, group, bob.groups.capability(group))

    run(tmp_path, main)


async def _say(stream: Stream, *frames: bytes) -> bytes | None:
    for frame in frames:
        await send_body(stream, frame)
    await stream.finish()
    return await Reader(stream).frame(10)


def test_only_a_nodes_own_card_is_answered(tmp_path: Path) -> None:
    """Nobody asks in another's name, nor learns more from bad cards than from none."""

    async def main(ada: Node, bob: Node, cyd: Node, nursery: trio.Nursery) -> None:
        group = ada.groups.create("friends").group_id
        ada.grant(group, bob)
        await cyd.peering.host.connect(ada.peering.host.addresses()[0])
        card = bob.groups.card()
        for said in (card, card[:-1] + b"\0", b"x" * 513, b"x"):
            stream = await cyd.peering.host.open(ada.peer, GRANTS)
            with pytest.raises(PeerLost):
                await _say(stream, encode_frame(said))
        stream = await cyd.peering.host.open(ada.peer, GRANTS)
        assert await _say(stream, encode_frame(cyd.groups.card())) is None
        stream = await cyd.peering.host.open(ada.peer, GRANTS)
        assert await _say(stream) is None
        assert (await bob.life.join([ada.address]))[0].group_id == group

    run(tmp_path, main)


def test_a_home_that_sends_too_much_is_not_heard(tmp_path: Path) -> None:
    async def main(ada: Node, bob: Node, cyd: Node, nursery: trio.Nursery) -> None:
        sent: list[bytes] = []

        async def flood(stream: Stream) -> None:
            for each in sent:
                await send_body(stream, encode_frame(each))
            await stream.finish()

        ada.peering.host.serve(GRANTS, flood)
        await bob.peering.host.connect(ada.peering.host.addresses()[0])
        for frames in ([b"x"] * (MAX_GRANTS + 1), [bytes(61 * 1024)]):
            sent[:] = frames
            stream = await bob.peering.host.open(ada.peer, GRANTS)
            with pytest.raises(RemoteProtocolError):
                await ask_grants(stream, bob.groups.card())
        sent[:] = [b"rubbish"]
        with pytest.raises(MalformedParticle):
            await bob.life.join([ada.address])
        assert bob.groups.all() == []

    run(tmp_path, main)


def test_addresses_that_are_none(tmp_path: Path) -> None:
    async def main(ada: Node, bob: Node, cyd: Node, nursery: trio.Nursery) -> None:
        for addresses in ([], ["nowhere"]):
            with pytest.raises(BadRequest) as refused:
                await bob.life.join(addresses)
            assert refused.value.hint
        gone = ada.address.replace("10.0.0.1", "10.0.9.9").replace(ada.peer, PeerId("1" * 46))
        with pytest.raises((PeerUnreachable, BadRequest)):
            await bob.life.join([gone])
        offline = GroupLife(bob.groups, None)
        with pytest.raises(NotPermitted):
            await offline.join([ada.address])

    run(tmp_path, main)
