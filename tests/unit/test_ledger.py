"""The ledger of peers: counts, ranks, bans, and a bound on it all."""

from __future__ import annotations

import json

import pytest

from p2p.host import PeerId
from p2p.ledger import RELIED_S, Ledger, PeerEntry

A, B, C, D = (PeerId(name) for name in "abcd")
MODEL, OTHER = bytes(32), bytes([1]) * 32


def entry(ledger: Ledger, peer: PeerId) -> PeerEntry:
    found = ledger.entry(peer)
    assert found is not None
    return found


def test_what_came_and_went_is_counted() -> None:
    ledger = Ledger()
    ledger.gave(A, MODEL, 3, 300, 1.0)
    ledger.gave(A, MODEL, 1, 100, 2.0)
    ledger.took(A, 2, 50, 3.0)
    found = entry(ledger, A)
    assert (found.blocks_in, found.bytes_in, found.blocks_out, found.bytes_out) == (4, 400, 2, 50)
    assert found.seen_s == 3.0
    assert found.models == [MODEL.hex()]
    for number in range(20):
        ledger.gave(A, bytes([number]) * 32, 1, 1, 4.0)
    assert len(entry(ledger, A).models) == 8


def test_measurements_are_smoothed() -> None:
    ledger = Ledger()
    ledger.measured(A, 0.0, speed=100.0)
    ledger.measured(A, 0.0, rtt_s=1.0)
    ledger.measured(A, 0.0, speed=200.0)
    assert entry(ledger, A).speed == pytest.approx(130.0)
    assert entry(ledger, A).rtt_s == 1.0


@pytest.mark.fault("F16")
def test_three_lies_ban_and_are_told_once() -> None:
    ledger = Ledger()
    assert [ledger.lied(A, 0.0) for _ in range(5)] == [False, False, True, False, False]
    assert ledger.is_banned(A)
    assert ledger.ranked([A, B]) == [B]
    ledger.ban(A, False, 1.0)
    assert not ledger.is_banned(A)
    assert entry(ledger, A).num_bad == 0
    ledger.ban(B, True, 1.0)
    assert ledger.ranked([A, B]) == [A]
    assert ledger.lied(B, 1.0) is False


def test_own_before_known_before_strangers_and_then_by_speed() -> None:
    ledger = Ledger()
    ledger.measured(A, 0.0, speed=9e9)
    ledger.trust(B, "known", 0.0)
    ledger.trust(C, "own", 0.0)
    ledger.measured(D, 0.0, speed=1e3)
    assert ledger.ranked([D, A, B, C, PeerId("new")]) == [C, B, A, D, "new"]
    ledger.lied(A, 0.0)
    assert ledger.ranked([D, A]) == [D, A]


def test_the_peers_of_a_model() -> None:
    ledger = Ledger()
    ledger.gave(A, MODEL, 1, 1, 0.0)
    ledger.gave(B, MODEL, 1, 1, 0.0)
    ledger.gave(C, OTHER, 1, 1, 0.0)
    ledger.measured(B, 0.0, speed=5.0)
    assert ledger.peers_of(MODEL) == [B, A]
    ledger.forget(B)
    assert ledger.peers_of(MODEL) == [A]


def test_strangers_that_were_not_seen_for_longest_are_forgotten_first() -> None:
    ledger = Ledger(max_peers=4)
    ledger.trust(A, "own", 0.0)
    ledger.ban(B, True, 0.0)
    ledger.seen(C, 0.0)
    ledger.seen(D, 1.0)
    ledger.seen(C, 2.0)
    ledger.seen(PeerId("e"), 3.0)
    assert [peer for peer, _ in ledger.entries()] == ["e", C, B, A]
    for number in range(100):
        ledger.seen(PeerId(f"new {number}"), 4.0)
        assert len(ledger.entries()) == 4
    assert ledger.is_banned(B)
    assert ledger.entry(A)


def test_strangers_that_only_connect_push_out_none_that_gave_blocks() -> None:
    ledger = Ledger(max_peers=4)
    ledger.gave(A, MODEL, 1, 2, 0.0)
    ledger.ban(B, True, 0.0)
    for number in range(100):
        ledger.seen(PeerId(f"new {number}"), 1.0)
    assert ledger.is_proven(A)
    assert ledger.is_banned(B)
    for number in range(4):
        ledger.gave(PeerId(f"gives {number}"), MODEL, 1, 2, 2.0)
    assert [peer for peer, _ in ledger.entries()] == [f"gives {at}" for at in (3, 2, 1, 0)]


def test_with_nobody_to_spare_the_oldest_goes() -> None:
    ledger = Ledger(max_peers=2)
    for peer in (A, B, C):
        ledger.trust(peer, "known", 0.0)
    assert [peer for peer, _ in ledger.entries()] == [C, B]


def test_a_snapshot_comes_back_as_it_was() -> None:
    ledger = Ledger()
    ledger.gave(A, MODEL, 1, 2, 3.0)
    ledger.trust(B, "own", 4.0)
    ledger.lied(C, 5.0)
    plain = json.loads(json.dumps(ledger.snapshot()))
    again = Ledger()
    again.restore(plain)
    assert again.snapshot() == ledger.snapshot()
    small = Ledger(max_peers=1)
    small.restore(plain)
    assert [peer for peer, _ in small.entries()] == [B]


@pytest.mark.parametrize(
    "change",
    [{"trust": "friend"}, {"more": 1}, {"trust": None}],
)
def test_a_snapshot_of_another_shape(change: dict[str, object]) -> None:
    ledger = Ledger()
    ledger.seen(A, 0.0)
    plain = ledger.snapshot()
    plain[A] |= change
    with pytest.raises(ValueError, match="not an entry"):
        ledger.restore(plain)
    assert ledger.entry(A)


def test_peers_that_get_themselves_banned_push_out_none_whom_the_user_named() -> None:
    ledger = Ledger(max_peers=4)
    ledger.trust(A, "own", 0.0)
    ledger.trust(B, "known", 0.0)
    for number in range(10):
        stranger = PeerId(f"s{number}")
        for _ in range(3):
            ledger.lied(stranger, float(number))
        assert ledger.is_banned(stranger)
    assert {peer for peer, _ in ledger.entries()} == {A, B, "s8", "s9"}
    assert entry(ledger, A).trust == "own"


def test_who_gave_blocks_or_was_named_is_proven_until_it_is_banned() -> None:
    ledger = Ledger()
    gave, named, seen, banned = (PeerId(name) for name in ("gave", "named", "seen", "banned"))
    ledger.gave(gave, b"model", 1, 10, 0.0)
    ledger.trust(named, "known", 0.0)
    ledger.seen(seen, 0.0)
    ledger.gave(banned, b"model", 1, 10, 0.0)
    ledger.ban(banned, True, 0.0)
    assert [ledger.is_proven(peer) for peer in (gave, named, seen, banned, PeerId("?"))] == [
        True, True, False, False, False,
    ]  # fmt: skip


def test_a_speed_is_relied_on_for_a_while_and_then_measured_anew() -> None:
    ledger = Ledger()
    assert ledger.speed_of(A, 0.0) is None
    ledger.measured(A, 5000.0, speed=100.0)
    ledger.measured(A, 5000.0 + RELIED_S, rtt_s=1.0)
    assert ledger.speed_of(A, 5000.0 + RELIED_S) == 100.0
    assert ledger.speed_of(A, 5001.0 + RELIED_S) is None
    assert ledger.speed_of(A, 4999.0 - RELIED_S) is None  # the clock was set back
    ledger.measured(A, 5001.0 + RELIED_S, speed=900.0)
    assert ledger.speed_of(A, 5001.0 + RELIED_S) == 900.0
