"""Whom a node knows in the directory: who answered it, for as long as it does."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from p2p.contacts import BUCKET_SIZE, CHECK_S, LASTS_S, Contacts
from p2p.host import PeerId
from p2p.looking import ASK_S
from p2p.routing import Routing
from p2p.testing.internet import Internet
from p2p.testing.kad import distance, place_of, target_of
from tests.exchange_parts import in_world, meet

OWN = PeerId("own")
KEY = bytes(range(32))


def far(num: int) -> list[PeerId]:
    """Peers of one bucket: the half of all that is not this node's."""
    found: list[PeerId] = []
    number = 0
    while len(found) < num:
        peer = PeerId(f"peer {number}")
        if (place_of(peer) ^ place_of(OWN)).bit_length() == 256:
            found.append(peer)
        number += 1
    return found


def known(contacts: Contacts) -> set[PeerId]:
    return set(contacts.closest(target_of(KEY), num=1000))


def test_who_only_asks_or_is_heard_of_is_named_to_nobody() -> None:
    contacts = Contacts(OWN, place_of)
    peer, connected = far(2)
    contacts.asked(peer, 0.0)
    contacts.asked(peer, 5.0)
    assert known(contacts) == set()
    assert contacts.due(CHECK_S - 0.1, 8) == []
    assert contacts.due(CHECK_S, 8) == [peer]
    contacts.answered(peer, CHECK_S)
    assert known(contacts) == {peer}
    assert contacts.due(CHECK_S, 8) == []
    assert set(contacts.closest(target_of(KEY), [connected, OWN])) == {peer, connected}
    assert contacts.due(CHECK_S + LASTS_S, 8) == [peer]
    contacts.failed(peer)
    assert known(contacts) == set()
    contacts.answered(OWN, 0.0)
    contacts.asked(OWN, 0.0)
    assert (known(contacts), contacts.due(1e9, 8)) == (set(), [])


def test_who_was_there_first_stays_and_who_fails_gives_way_to_the_last_that_answered() -> None:
    contacts = Contacts(OWN, place_of)
    peers = far(BUCKET_SIZE + 12)
    for at, peer in enumerate(peers):
        contacts.answered(peer, float(at))
    first, late = peers[:BUCKET_SIZE], peers[BUCKET_SIZE:]
    assert known(contacts) == set(first)
    contacts.failed(first[3])
    assert known(contacts) == {*first, late[-1]} - {first[3]}
    contacts.failed(late[-2])  # it had no place
    contacts.failed(first[4])
    assert late[-3] in known(contacts)
    for peer in first:
        contacts.failed(peer)
    assert len(known(contacts)) == 7  # eight waited, the last to answer: one of them failed
    contacts.asked(late[-1], 0.0)  # is known already
    assert contacts.due(100.0, 99) == []


def test_those_that_ask_are_bounded() -> None:
    contacts = Contacts(OWN, place_of)
    for peer in far(1000):
        contacts.asked(peer, 0.0)
    assert len(contacts.due(CHECK_S, 10_000)) == 64
    assert len(contacts.due(CHECK_S, 8)) == 8


@pytest.mark.parametrize("way", ["silent", "raises"])
def test_who_fails_in_a_look_up_is_out_at_once_and_the_others_are_seen_to(way: str) -> None:
    contacts = Contacts(OWN, place_of)
    alive, gone, new = far(3)
    asked: list[PeerId] = []

    async def ask(peer: PeerId, key: bytes) -> list[PeerId]:
        asked.append(peer)
        if peer == gone:
            if way == "raises":
                raise RuntimeError
            await trio.sleep_forever()
        return []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            routing = Routing(
                contacts,
                lambda key: contacts.closest(target_of(key)),
                ask,
                distance,
                nursery.start_soon,
            )
            for peer in (alive, gone):
                contacts.answered(peer, 0.0)
            assert await routing.closest(KEY) == [alive]
            await trio.sleep(ASK_S)
            assert known(contacts) == {alive}
            nursery.start_soon(routing.tend, KEY)
            contacts.asked(new, trio.current_time())
            await trio.sleep(CHECK_S - 5)
            assert new not in asked
            await trio.sleep(20)
            assert known(contacts) == {alive, new}
            assert asked.count(alive) == 1
            await trio.sleep(LASTS_S + 20)
            assert asked.count(alive) == 2
            nursery.cancel_scope.cancel()

    trio.run(main, clock=MockClock(autojump_threshold=0))


@pytest.mark.fault("F20")
@pytest.mark.parametrize("is_told", [True, False])
def test_it_is_found_where_most_that_were_known_have_just_died(is_told: bool) -> None:
    """Of 80, 60 at once; who looks is one of those that were there, or has just come."""

    async def main(net: Internet) -> None:
        hosts = [net.host(f"n{number}") for number in range(81)]
        for host in hosts[1:]:
            await meet(host, hosts[0])
        await trio.sleep(60)
        for host in hosts:
            net.start(host.directory.join)
        await trio.sleep(120)
        publisher = hosts[1]
        await publisher.directory.provide(KEY)
        for host in hosts[21:]:
            (net.kill if is_told else net.vanish)(host.name)
        new = net.host("new")
        await meet(new, hosts[0])
        for asker in (*hosts[2:12], new):
            with trio.fail_after(3):
                found = await asker.directory.providers(KEY, 128)
            assert publisher.peer_id in [each.peer for each in found]

    in_world(main)
