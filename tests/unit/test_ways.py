"""Who is asked in a group, as what, and under which names the directory is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from daemon.group_file import MemberRow
from daemon.groups import Groups
from daemon.ways import InGroup, in_group, members_of
from glia.errors import NotFound, PeerUnreachable
from glia.graph.domain import Domain
from glia.graph.encrypted import alias_of
from glia.graph.group import GroupId
from glia.graph.ids import PrefixKey
from glia.graph.member import parse_card
from glia.graph.scope import Op
from p2p.frames import Reader
from p2p.host import PeerId, Stream
from p2p.showing import GROUP_BLOCKS, GROUP_FIND, decode_show
from p2p.testing.internet import Internet
from simulations.virtual.ports import Joined, make_peering
from tests.exchange_parts import in_world
from tests.group_parts import Clock, groups_of, peer_named

KEYS = [(16, PrefixKey(b"k" * 32)), (20, PrefixKey(b"l" * 32))]


class Friends:
    """Ada's group, in which Bob is."""

    def __init__(self, directory: Path) -> None:
        clock = Clock()
        self.ada, self.bob = (groups_of(directory, name, clock) for name in ("ada", "bob"))
        self.group = self.ada.create("friends").group_id
        self.ada.homes = lambda: [f"/ip4/127.0.0.1/tcp/4001/p2p/{peer_named('ada')}"]
        self.renew()

    def renew(self) -> None:
        card = parse_card(self.bob.card())
        self.ada.grant(self.group, MemberRow(int(Op.FETCH), 0, neuron=card.neuron))
        (grant,) = self.ada.grants_for(card)
        self.bob.take(grant)


def test_members_are_whom_one_has_it_from_and_whom_one_gave_it_to(tmp_path: Path) -> None:
    friends = Friends(tmp_path)
    assert members_of(friends.ada.row(friends.group)) == [peer_named("bob")]
    assert members_of(friends.bob.row(friends.group))[:1] == [peer_named("ada")]


def as_bob(
    path: Path, body: Callable[[Friends, InGroup, Internet], object], start: int = 16
) -> None:
    async def main(net: Internet) -> None:
        friends = Friends(path)
        peering = make_peering(path / "me", Joined(net, "me"))
        async with trio.open_nursery() as nursery:
            await nursery.start(peering.run)
            way = in_group(peering, friends.bob, Domain(friends.group, start))
            assert way is not None
            await body(friends, way, net)  # type: ignore[misc]
            nursery.cancel_scope.cancel()

    in_world(main)


def test_nobody_is_asked_but_members_and_who_was_named(tmp_path: Path) -> None:
    async def body(friends: Friends, way: InGroup, net: Internet) -> None:
        stranger = net.host("stranger")
        await way.peering.host.connect(stranger.addresses()[0])
        asked = way.peers_of(None, ())  # type: ignore[arg-type]
        assert peer_named("ada") in asked
        assert stranger.peer_id not in asked
        assert way.peering.peers_of(bytes(32)) == [stranger.peer_id]  # type: ignore[arg-type]

    as_bob(tmp_path, body)


def test_the_directory_is_asked_for_aliases_of_the_newest_epoch(tmp_path: Path) -> None:
    async def body(friends: Friends, way: InGroup, net: Internet) -> None:
        keys = friends.bob.keys(friends.group)
        assert keys is not None
        newest = keys.epochs[-1]
        assert way.names(KEYS) == [(num, alias_of(newest, key)) for num, key in KEYS]

    as_bob(tmp_path, body)


def test_a_stream_begins_with_the_right_to_it(tmp_path: Path) -> None:
    shown = []

    async def see(stream: Stream) -> None:
        said = await Reader(stream).frame(5.0)
        assert said is not None
        shown.append((stream.peer, decode_show(said)))
        await stream.finish()

    async def body(friends: Friends, way: InGroup, net: Internet) -> None:
        member = net.host("member")
        for protocol in (GROUP_FIND, GROUP_BLOCKS):
            member.serve(protocol, see)
        await way.peering.host.connect(member.addresses()[0])
        for opens in (way.open_find, way.open_blocks):
            stream = await opens(member.peer_id)
            assert await stream.receive_some(1) == b""
        capability = friends.bob.capability(friends.group)
        assert [(each.group, each.capability) for _, each in shown] == [
            (friends.group, capability)
        ] * 2
        with pytest.raises(PeerUnreachable):
            await way.open_find(PeerId("nobody"))

    as_bob(tmp_path, body)


def test_who_is_in_no_such_group_has_no_way(tmp_path: Path) -> None:
    nobody: Groups = groups_of(tmp_path, "cyd", Clock())

    async def main(net: Internet) -> None:
        peering = make_peering(tmp_path / "me", Joined(net, "me"))
        domain = Domain(GroupId(bytes(32)), 0)
        assert in_group(peering, nobody, domain) is None
        with pytest.raises(NotFound):
            nobody.capability(domain.group)

    in_world(main)
