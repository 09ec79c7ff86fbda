"""The adapter's decisions, without I/O: who comes in, who is heard, what is kept."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo
from multiaddr import Multiaddr

from glia.errors import BadRequest, RemoteProtocolError
from p2p.claims import MAX_KEYS_PER_PEER, MAX_PEERS_PER_KEY, Draw
from p2p.host import Address, Limits, PeerId
from p2p.libp2p import caps
from p2p.libp2p.banned import MAX_BANNED, Banned
from p2p.libp2p.doorman import Doorman
from p2p.libp2p.muting import Muting
from p2p.libp2p.names import address_text, dialable, parse_address
from p2p.libp2p.records import (
    GuardedProviders,
    RecordValidator,
    join_values,
    split_values,
    value_key,
)
from p2p.values import MAX_VALUES

LIMITS = Limits(max_pending=4, max_pending_per_address=2, max_connections=5,
                max_connections_per_address=3)  # fmt: skip
PEER = PeerId("12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5")


def test_the_oldest_handshake_of_a_crowded_address_gives_way() -> None:
    door, gone = Doorman(LIMITS), []
    tickets = [door.admit("a", 0.0, lambda n=n: gone.append(n)) for n in range(4)]
    assert gone == [0, 1]
    assert None not in tickets
    assert door.admit("b", 0.0, lambda: gone.append("b")) is not None
    assert gone == [0, 1]


def test_where_all_are_crowded_the_address_with_most_gives_way() -> None:
    door, gone = Doorman(LIMITS), []
    for address in ("a", "a", "b", "c"):
        door.admit(address, 0.0, lambda address=address: gone.append(address))
    door.admit("d", 0.0, lambda: gone.append("d"))
    assert gone == ["a"]


def test_an_address_has_so_many_connections_and_all_together_too() -> None:
    door = Doorman(LIMITS)
    for address in ("a", "a", "a", "b", "c"):
        ticket = door.admit(address, 0.0, lambda: None)
        assert ticket is not None
        door.made(ticket, 0.0)
    assert door.admit("a", 0.0, lambda: None) is None
    assert door.admit("d", 0.0, lambda: None) is None
    door.ended("b")
    assert door.admit("a", 0.0, lambda: None) is None
    assert door.admit("d", 0.0, lambda: None) is not None


def test_an_address_has_so_many_handshakes_a_second_however_they_end() -> None:
    door = Doorman(replace(LIMITS, max_handshakes_per_s=2.0))

    def num_admitted(now_s: float, how: str) -> int:
        num = 0
        for _ in range(200):
            ticket = door.admit("a", now_s, lambda: None)
            if ticket is None:
                return num
            if how == "made":
                door.made(ticket, now_s)
                door.ended("a")
            elif how == "failed":
                door.failed(ticket, now_s)
            door.forget(ticket)
            num += 1
        return num

    assert num_admitted(0.0, "failed") == 32
    assert num_admitted(1.0, "made") == 2
    assert door.admit("b", 1.0, lambda: None) is not None
    assert num_admitted(100.0, "silent") == 200  # whoever says nothing costs nothing
    assert num_admitted(100.0, "made") == 32


def test_a_peer_is_heard_twenty_times_a_second() -> None:
    muting = Muting()
    assert sum(muting.admits(PEER, "", 0.0) for _ in range(100)) == 20
    assert sum(muting.admits(PEER, "", 0.5) for _ in range(100)) == 10
    assert muting.admits(PeerId("another"), "", 0.5)


def test_those_behind_one_address_are_heard_a_few_times_as_often() -> None:
    muting = Muting()
    many = [PeerId(str(number)) for number in range(32)]
    assert sum(muting.admits(peer, "one", 0.0) for peer in many for _ in range(20)) == 160
    assert sum(muting.admits(PEER, "another", 0.0) for _ in range(100)) == 20


def test_a_peer_that_signs_nothing_is_muted_for_a_while() -> None:
    muting = Muting()
    verdicts = [muting.note_bad(PEER, 1.0) for _ in range(caps.MAX_BAD_MESSAGES)]
    assert verdicts == [False] * (caps.MAX_BAD_MESSAGES - 1) + [True]
    assert muting.is_muted(PEER, 1.0 + caps.MUTE_S / 2)
    assert not muting.admits(PEER, "", 1.0 + caps.MUTE_S / 2)
    assert muting.admits(PEER, "", 1.0 + caps.MUTE_S)


def test_muting_remembers_few_peers() -> None:
    muting = Muting()
    for number in range(5000):
        muting.admits(PeerId(str(number)), "", 0.0)
        for _ in range(caps.MAX_BAD_MESSAGES):
            muting.note_bad(PeerId(str(number)), 0.0)
    assert max(len(muting._bad), len(muting._muted)) <= 1024


def test_values_of_one_key_are_joined_and_split_again() -> None:
    values = [bytes([n]) * (n + 1) for n in range(MAX_VALUES)]
    assert split_values(join_values(values)) == values


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x00\x00",
        b"\x00\x02x",
        b"\x00\x01x\x00",
        b"\x00\x01x\x00\x01x",
        b"\x10\x01" + bytes(4097),
        join_values([bytes([n]) for n in range(MAX_VALUES + 1)]),
    ],
)
def test_a_record_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        split_values(data)


def test_each_value_of_a_record_must_be_valid_for_its_key() -> None:
    key = bytes(range(32))
    checker = RecordValidator(lambda name, value: name == key and value.startswith(b"valid"))
    name = value_key(key).decode()
    checker.validate(name, join_values([b"valid 1", b"valid 2"]))
    for wrong in (name.upper().replace("/GLIA/", "/glia/"), name + "00", "/glia/xyz"):
        with pytest.raises(ValueError, match=r"spelling|hex|not valid"):
            checker.validate(wrong, join_values([b"valid 1"]))
    with pytest.raises(ValueError, match="not valid"):
        checker.validate(name, join_values([b"valid 1", b"wrong"]))


class _Host:
    def get_id(self) -> ID:
        return ID(b"\x12\x20" + bytes(32))


def info(number: int, *addresses: str) -> PeerInfo:
    peer = ID(b"\x12\x20" + number.to_bytes(32, "big"))
    return PeerInfo(peer, [Multiaddr(each) for each in addresses])


def test_providers_are_kept_within_bounds_and_shown_a_few_at_a_time() -> None:
    store = GuardedProviders(_Host(), None, Draw(bytes(32)))  # type: ignore[arg-type]
    keys = [n.to_bytes(32, "big") for n in range(80)]
    for key in keys:
        store.add_provider(key, info(0))
    assert store.size() == MAX_KEYS_PER_PEER
    assert not store.get_providers(keys[0])
    assert store.get_providers(keys[-1]) == [info(0)]
    long = "/dns4/" + ".".join(["x" * 60] * 3) + "/tcp/1"
    for number in range(500):
        store.add_provider(bytes(32), info(number, long, *["/ip4/127.0.0.1/tcp/1"] * 20))
    assert len(store._claims.of(bytes(32))) == MAX_PEERS_PER_KEY
    shown = [store.get_providers(bytes(32)) for _ in range(40)]
    assert {len(each) for each in shown} == {32}
    assert all(len(one.addrs) == 8 for each in shown for one in each)
    assert len({one.peer_id for each in shown for one in each}) == MAX_PEERS_PER_KEY


def test_providers_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    store = GuardedProviders(_Host(), None, Draw(bytes(32)))  # type: ignore[arg-type]
    store.add_provider(bytes(32), info(0))
    now_s = time.time()
    monkeypatch.setattr(time, "time", lambda: now_s + 49 * 3600)
    store.add_provider(bytes(32), info(1))
    assert store.get_providers(bytes(32)) == [info(1)]
    store.cleanup_expired()
    assert store.size() == 1


def test_bans_are_remembered_within_bounds() -> None:
    banned = Banned()
    for number in range(MAX_BANNED + 1):
        banned.add(info(number).peer_id)
        banned.add(info(1).peer_id)
    assert len(banned) == MAX_BANNED
    assert info(0).peer_id not in banned
    assert info(1).peer_id in banned
    banned.discard(info(1).peer_id)
    banned.discard(info(0).peer_id)
    assert info(1).peer_id not in banned


def test_addresses_that_can_be_dialled() -> None:
    good = Address(f"/ip4/192.0.2.1/tcp/4001/p2p/{PEER}")
    assert parse_address(good)[1] == PEER
    assert address_text(Multiaddr("/ip6/::1/tcp/1"), PEER) == f"/ip6/::1/tcp/1/p2p/{PEER}"
    found = dialable(
        [Multiaddr("/ip4/192.0.2.1/tcp/4001"), Multiaddr("/ip4/192.0.2.1/udp/1/quic-v1")], PEER
    )
    assert found == (good,)
    for wrong in (
        "/ip4/192.0.2.1/tcp/4001",
        f"/ip4/192.0.2.1/tcp/4001/ws/p2p/{PEER}",
        f"/p2p/{PEER}",
    ):
        with pytest.raises(BadRequest):
            parse_address(wrong)
