"""Whom to dial, and when."""

from __future__ import annotations

from itertools import pairwise

from p2p.host import Address, PeerId
from p2p.redialling import LAST_PAUSE_S, MAX_ADDRESSES, MAX_KEPT, Redialling

ONE, OTHER = PeerId("one"), PeerId("other")


def tries(kept: Redialling, until_s: int, connected: range = range(0)) -> list[float]:
    """When a peer is dialled that is there in the seconds `connected`."""
    there = {now_s: [ONE] if now_s in connected else [] for now_s in range(until_s)}
    return [now_s for now_s in range(until_s) if kept.due(there[now_s], float(now_s))]


def test_pauses_grow_to_a_minute_and_no_further() -> None:
    kept = Redialling(seed=1)
    kept.keep(ONE, [Address("a")])
    dialled = tries(kept, 3600)
    pauses = [after - before for before, after in pairwise(dialled)]
    assert dialled[0] == 0
    assert pauses[0] <= 2
    assert all(LAST_PAUSE_S / 2 <= pause <= LAST_PAUSE_S + 1 for pause in pauses[8:])
    assert len(set(pauses[8:])) > 5  # not all nodes in step


def test_who_stayed_a_while_is_dialled_at_once() -> None:
    kept = Redialling(seed=1)
    kept.keep(ONE, [Address("a")])
    steady = tries(kept, 400, range(1, 300))
    assert steady[:4] == [0, 300, 301, 303]


def test_who_leaves_again_and_again_is_not() -> None:
    kept = Redialling(seed=1)
    kept.keep(ONE, [Address("a")])
    num = 0
    for now_s in range(600):
        connected = [ONE] if now_s % 2 else []
        num += len(kept.due(connected, float(now_s)))
    assert num < 25


def test_addresses_are_few_and_the_latest_go_first() -> None:
    kept = Redialling()
    for number in range(20):
        assert kept.keep(ONE, [Address(str(number))])
    assert kept.addresses(ONE) == tuple(str(number) for number in range(19, 19 - MAX_ADDRESSES, -1))
    (found,) = kept.due([], 0.0)
    assert (found.peer, found.addresses) == (ONE, kept.addresses(ONE))
    kept.leave(ONE)
    kept.leave(ONE)
    assert (kept.peers(), kept.addresses(ONE), kept.due([], 99.0)) == ([], (), [])


def test_so_many_are_kept_and_no_more() -> None:
    kept = Redialling()
    assert all(kept.keep(PeerId(str(number)), []) for number in range(MAX_KEPT))
    assert not kept.keep(OTHER, [])
    assert kept.keep(PeerId("0"), [Address("a")])
    assert len(kept.peers()) == MAX_KEPT
