"""Who says to have what: one household cannot crowd out the others, whatever ids it makes."""

from __future__ import annotations

import pytest

from glia.graph.ids import PrefixKey, digest
from p2p.claims import MAX_PEERS_PER_KEY, Claims, Draw
from p2p.crowds import crowd_among
from p2p.hints import Hints
from p2p.host import Address, Connection, PeerId

KEYS = [PrefixKey(digest(b"%d" % number)) for number in range(3)]


def new_hints() -> Hints:
    """Peers are named proven or stranger, with where they are."""
    return Hints(
        bytes(32),
        lambda peer: peer.startswith("proven"),
        lambda peer: peer.partition(" at ")[2].partition(" ")[0],
    )


@pytest.mark.fault("F20")
@pytest.mark.parametrize("is_first", [True, False])
def test_of_one_address_no_number_of_ids_keeps_others_from_being_asked(is_first: bool) -> None:
    hints, honest = new_hints(), [PeerId(f"honest at h{number}") for number in range(8)]
    many = [PeerId(f"sybil at s {number}") for number in range(1000)]
    for peer in (*honest, *many) if is_first else (*many, *honest):
        hints.said(peer, KEYS[2])
    found = hints.peers(KEYS)
    assert len(found) == 16
    assert set(honest) <= set(found)
    assert found.index(honest[-1]) <= 8
    assert len(hints._claims.of(KEYS[2])) == MAX_PEERS_PER_KEY


def test_who_is_proven_comes_first_then_one_of_each_crowd_the_longest_first() -> None:
    hints = new_hints()
    for name, key in (
        ("short at a 1", 0),
        ("long at a 2", 2),
        ("long at a 3", 2),
        ("middle at b", 1),
        ("proven at a", 0),
    ):
        hints.said(PeerId(name), KEYS[key])
    assert hints.peers(KEYS) == [
        *("proven at a", "long at a 2", "middle at b", "long at a 3", "short at a 1")
    ]


def test_under_a_key_the_largest_crowd_loses_and_the_proven_do_not() -> None:
    claims = Claims[None](Draw(bytes(32)), lambda peer: peer == "proven", per_key=4)
    claims.put(b"key", PeerId("proven"), None, "s")
    claims.put(b"key", PeerId("alone"), None, "a")
    for number in range(100):
        claims.put(b"key", PeerId(f"many {number}"), None, "s")
    found = claims.of(b"key")
    assert len(found) == 4
    assert {"proven", "alone"} <= set(found)


def test_a_crowd_is_that_of_the_connection() -> None:
    def connection(peer: str, ip: str) -> Connection:
        return Connection(PeerId(peer), Address(""), "in", 0.0, remote_ip=ip)

    some = [connection("four", "192.0.2.7"), connection("six", "2001:db8:1:2:3::4")]
    some.append(connection("nowhere", ""))
    assert crowd_among(some, PeerId("four")) == "192.0.2.7"
    assert crowd_among(some, PeerId("six")) == "2001:db8:1:2::/64"
    assert crowd_among(some, PeerId("nowhere")) == crowd_among(some, PeerId("other")) == ""
