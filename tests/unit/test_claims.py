"""Who says to have what: bounded, and by no order of coming."""

from __future__ import annotations

import random
import secrets

import pytest

from p2p.claims import MAX_KEYS_PER_PEER, Claims, Draw
from p2p.host import PeerId
from p2p.values import MAX_VALUES, MAX_VALUES_BYTES, VALUE_LIFE_S, KeptValues, kept_values

KEYS = [number.to_bytes(32, "big") for number in range(100)]
PEERS = [PeerId(f"peer {number}") for number in range(400)]


def claims_of(secret: int = 0, *proven: PeerId, **bounds: int) -> Claims[int]:
    return Claims(Draw(secret.to_bytes(32, "big")), proven.__contains__, **bounds)


def test_of_one_peer_the_oldest_keys_go() -> None:
    claims = claims_of(per_peer=3)
    for number in (0, 1, 2, 0, 3):
        claims.put(KEYS[number], PEERS[0], number)
    assert [claims.of(key) for key in KEYS[:4]] == [
        {PEERS[0]: 0}, {}, {PEERS[0]: 2}, {PEERS[0]: 3},
    ]  # fmt: skip
    assert len(claims) == 3


@pytest.mark.parametrize("honest_at", [0, 50, 99])
def test_under_a_key_neither_the_first_nor_the_last_have_a_better_chance(honest_at: int) -> None:
    num_kept = 0
    for secret in range(300):
        claims = claims_of(secret, per_key=20)
        for peer in PEERS[:100]:
            claims.put(KEYS[0], peer, 0)
        num_kept += PEERS[honest_at] in claims.of(KEYS[0])
        assert len(claims.of(KEYS[0])) == 20
    assert 40 <= num_kept <= 80


def test_who_is_proven_loses_its_place_to_no_stranger() -> None:
    claims = claims_of(0, PEERS[7], PEERS[8], per_key=2, most=5)
    for peer in PEERS[:100]:
        claims.put(KEYS[0], peer, 0)
    assert set(claims.of(KEYS[0])) == {PEERS[7], PEERS[8]}
    for key, peer in zip(KEYS[1:], PEERS[10:], strict=False):
        claims.put(key, peer, 0)
    assert set(claims.of(KEYS[0])) == {PEERS[7], PEERS[8]}
    assert len(claims) == 5
    assert not claims.of(KEYS[1])
    assert claims.of(KEYS[-1])


def test_where_all_are_proven_the_oldest_goes() -> None:
    claims = claims_of(0, *PEERS, most=2)
    for key, peer in zip(KEYS[:3], PEERS, strict=False):
        claims.put(key, peer, 0)
    assert claims.oldest() == (KEYS[1], PEERS[1], 0)
    claims.remove(KEYS[1], PEERS[1])
    claims.remove(KEYS[1], PEERS[1])
    claims.remove(KEYS[2], PEERS[2])
    assert claims.oldest() is None
    assert not claims._by_key
    assert not claims._by_peer


def test_it_is_bounded_whatever_comes() -> None:
    source, claims = random.Random(5), claims_of(per_peer=8, per_key=5, most=60)
    for _ in range(5_000):
        key, peer = source.choice(KEYS), source.choice(PEERS[:20])
        if source.random() < 0.1:
            claims.remove(key, peer)
        else:
            claims.put(key, peer, 0)
        assert len(claims) <= 60
    assert len(claims) == sum(len(claims.of(key)) for key in KEYS)
    assert max(len(claims.of(key)) for key in KEYS) <= 5
    assert max(map(len, claims._by_peer.values())) <= 8


def test_values_of_strangers_push_out_others_by_lot_alone() -> None:
    """Eight valid links of strangers, before or after it, once pushed out an honest one."""
    honest, others = b"honest", [f"stranger {n}".encode() for n in range(8)]
    for values in ([honest, *others], [*others, honest]):
        assert honest in kept_values(Draw(bytes(32)), KEYS[0], values)
    many = [f"stranger {n}".encode() for n in range(2 * MAX_VALUES - 1)]
    for values in ([honest, *many], [*many, honest]):
        num = sum(honest in kept_values(Draw(bytes([n] * 32)), KEYS[0], values) for n in range(200))
        assert 70 <= num <= 130
        assert len(kept_values(Draw(bytes(32)), KEYS[0], values)) == MAX_VALUES


def test_large_values_are_fewer() -> None:
    values = [bytes([n]) * 4096 for n in range(20)]
    assert sum(map(len, kept_values(Draw(bytes(32)), KEYS[0], values))) == MAX_VALUES_BYTES


def test_a_crowd_of_new_peers_pushes_out_its_own_claims_alone() -> None:
    """Ids cost nothing: as many as one likes come from one address, one after the other."""
    claims = claims_of(per_peer=4, most=40)
    for number, key in enumerate(KEYS[:4]):
        claims.put(key, PEERS[0], number, "honest")
    for peer in PEERS[1:]:
        for key in KEYS[10:14]:
            claims.put(key, peer, 0, "crowd")
    assert all(PEERS[0] in claims.of(key) for key in KEYS[:4])
    assert len(claims) == 40
    claims.remove(KEYS[0], PEERS[0])
    assert len(claims._by_crowd["honest"]) == 3


def kept(*proven: PeerId) -> KeptValues:
    return KeptValues(Draw(bytes(32)), proven.__contains__)


def test_one_peer_fills_no_directory() -> None:
    values = kept()
    values.put(KEYS[0], PEERS[0], [b"honest"], 0.0, "honest")
    for number in range(10_000):
        values.put(number.to_bytes(16, "big"), PEERS[1], [b"other"], 0.0, "crowd")
    assert len(values) == 1 + MAX_KEYS_PER_PEER
    for number in range(10_000):
        peer = PeerId(f"one of many {number % 300}")
        values.put(number.to_bytes(16, "big"), peer, [b"other"], 0.0, "crowd")
    assert values.of(KEYS[0], 0.0) == [b"honest"]
    assert len(values) <= 4096


def test_values_of_a_peer_under_a_key_are_few_and_the_last_it_sent() -> None:
    values = kept()
    for number in range(100):
        values.put(KEYS[0], PEERS[0], [b"%d" % number], 0.0)
    assert values.of(KEYS[0], 0.0) == [b"99", b"98", b"97", b"96"]
    values.put(KEYS[0], PEERS[1], [secrets.token_bytes(8) for _ in range(32)], 0.0)
    assert len(values.of(KEYS[0], 0.0)) == 8
    values.remove(KEYS[0])
    assert values.of(KEYS[0], 0.0) == []
    assert not len(values)


def test_values_expire_unless_they_are_sent_again() -> None:
    values = kept()
    values.put(KEYS[0], PEERS[0], [b"a", b"b"], 0.0)
    values.put(KEYS[0], PEERS[0], [b"b"], 10.0)
    values.put(KEYS[1], PEERS[1], [b"c"], 5.0)
    assert values.of(KEYS[0], VALUE_LIFE_S) == [b"b"]
    assert values.expire(VALUE_LIFE_S + 5.0) == 0
    assert values.expire(VALUE_LIFE_S + 10.0) == 2
    assert len(values) == 0
