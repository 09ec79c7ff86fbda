"""Look-ups of the directory: over paths that share nobody, and where ids are too close."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
from trio.testing import MockClock

from p2p.choosing import in_drawn_order
from p2p.contacts import BUCKET_SIZE, Contacts
from p2p.density import Density
from p2p.host import Address, Found, PeerId
from p2p.looking import ENOUGH, PATIENCE_S, Start, ask_all, look_up
from p2p.lookup import NUM_CLOSEST, LookUp
from p2p.testing.kad import distance, place_of, target_of

KEY = bytes(range(32))


class Net:
    """Peers that know each other as in Kademlia, and answer at once."""

    def __init__(self, num: int) -> None:
        self.peers = [PeerId(f"peer {number}") for number in range(num)]
        self.tables = {peer: Contacts(peer, place_of) for peer in self.peers}
        source = random.Random(num)
        for table in self.tables.values():
            for peer in source.sample(self.peers, num):
                table.answered(peer, 0.0)
        self.bad: set[PeerId] = set()
        self.dead: set[PeerId] = set()
        self.asked: list[PeerId] = []

    def run(self, lookup: LookUp) -> list[PeerId]:
        while not lookup.is_over:
            for peer in lookup.next():
                self.asked.append(peer)
                if peer in self.dead:
                    lookup.failed(peer)
                elif peer in self.bad:
                    lookup.answered(peer, sorted(self.bad, key=self.distance)[:BUCKET_SIZE])
                else:
                    lookup.answered(peer, self.tables[peer].closest(target_of(KEY)))
        return lookup.closest()

    def look_up(self, neighbours: Sequence[PeerId], num: int = NUM_CLOSEST) -> list[PeerId]:
        return self.run(LookUp(neighbours, self.distance, num))

    def distance(self, peer: PeerId) -> int:
        return distance(peer, KEY)

    def closest(self, num: int) -> list[PeerId]:
        return sorted(self.peers, key=self.distance)[:num]


@pytest.mark.parametrize("num", [1, 2, 5, 30, 300])
def test_the_closest_are_found_and_nobody_is_asked_twice(num: int) -> None:
    net = Net(num)
    for start in net.peers[:5]:
        found = net.look_up([start])
        assert set(found) == set(net.closest(NUM_CLOSEST))
    found = net.look_up(net.tables[net.peers[0]].closest(target_of(KEY)))
    assert len(set(found) & set(net.closest(NUM_CLOSEST))) >= min(num - 1, 19)
    net.asked.clear()
    net.look_up(net.peers[:10])
    assert len(net.asked) == len(set(net.asked)) <= num


def test_paths_share_nobody() -> None:
    net = Net(300)
    lookup = LookUp(net.peers[:10], net.distance)
    net.run(lookup)
    one, two = lookup._paths
    assert not one.answered & two.answered
    assert len(one.answered) >= NUM_CLOSEST // 2 <= len(two.answered)


@pytest.mark.parametrize("num_dead", [10, 100])
def test_who_does_not_answer_is_not_among_them(num_dead: int) -> None:
    net = Net(300)
    net.dead = {*net.closest(num_dead)}
    neighbours = [peer for peer in net.peers if peer not in net.dead][:6]
    found = net.look_up(neighbours)
    assert len(found) == NUM_CLOSEST
    assert not net.dead & set(found)


def test_a_liar_leads_only_one_path_astray() -> None:
    """It names its friends alone; the other path does not ask it."""
    net = Net(300)
    net.bad = {*random.Random(1).sample(net.peers, 60)}
    liar = min(net.bad, key=net.distance)
    honest = [peer for peer in net.peers if peer not in net.bad]
    astray = net.look_up([liar])
    assert set(astray) <= net.bad
    found = net.look_up([liar, honest[0]])
    assert len(set(found) & set(net.closest(NUM_CLOSEST)) - net.bad) >= 5


def test_an_answer_without_end_is_cut_off() -> None:
    lookup = LookUp([PeerId("a")], lambda peer: int(peer[5:] or 0))
    lookup.next()
    lookup.answered(PeerId("a"), [PeerId(f"fake {n}") for n in range(10_000)])
    assert len(lookup._paths[0].known) <= 21


def test_a_look_up_that_is_widened_goes_on() -> None:
    net = Net(300)
    lookup = LookUp(net.peers[:4], net.distance)
    net.run(lookup)
    lookup.widen(60)
    found = net.run(lookup)
    assert len(set(found) & set(net.closest(60))) >= 50
    assert len(net.asked) == len(set(net.asked))


@pytest.mark.parametrize("num", [100, 1000])
def test_ids_that_are_made_for_a_key_are_too_close(num: int) -> None:
    density, source = Density(), random.Random(num)
    places = sorted(source.randrange(2**256) for _ in range(num))
    for number in range(200):
        key = number.to_bytes(32, "big")
        target = source.randrange(2**256)
        honest = sorted(place ^ target for place in places)[:NUM_CLOSEST]
        assert not density.is_crowded(key, honest)
    made = [distance // 20 for distance in honest]
    assert density.is_crowded(b"another", made)
    assert not density.is_crowded(b"one more", made[:5])
    assert not Density().is_crowded(b"another", made)
    assert len(density._said) <= 16


async def run_beside(body: Callable[[Start], Awaitable[None]]) -> float:
    """How long it took, where what it starts runs beside."""
    began_s = trio.current_time()
    async with trio.open_nursery() as nursery:
        await body(nursery.start_soon)
        took_s = trio.current_time() - began_s
        nursery.cancel_scope.cancel()
    return took_s


@pytest.mark.parametrize("num_deaf", [0, 30])
def test_who_lets_a_look_up_wait_holds_no_place(num_deaf: int) -> None:
    net = Net(300)
    net.dead = {*net.closest(num_deaf)}

    async def ask(peer: PeerId) -> Sequence[PeerId]:
        await trio.sleep(100 if peer in net.dead else 0.1)
        return net.tables[peer].closest(target_of(KEY))

    async def body(start: Start) -> None:
        lookup = LookUp(net.peers[:8], net.distance)
        await look_up(lookup, ask, start)
        assert len(lookup.closest()) == NUM_CLOSEST
        assert not net.dead & set(lookup.closest())

    took_s = trio.run(run_beside, body, clock=MockClock(autojump_threshold=0))
    assert took_s <= 1.5 + num_deaf / 6 * PATIENCE_S + 0.5


def test_a_far_neighbour_is_waited_for_while_nobody_has_answered() -> None:
    """Whoever knows one peer alone, by satellite, finds the others all the same."""
    net = Net(40)
    far = net.peers[0]

    async def ask(peer: PeerId) -> Sequence[PeerId]:
        await trio.sleep(3 * PATIENCE_S if peer == far else 0.1)
        return net.tables[peer].closest(target_of(KEY))

    async def body(start: Start) -> None:
        lookup = LookUp([far], net.distance)
        await look_up(lookup, ask, start)
        assert set(lookup.closest()) >= {*net.closest(NUM_CLOSEST)} - {far}

    assert trio.run(run_beside, body, clock=MockClock(autojump_threshold=0)) < 10


def test_enough_answers_are_not_kept_waiting_by_the_rest() -> None:
    heard: list[PeerId] = []
    peers = [PeerId(str(number)) for number in range(20)]

    async def ask(peer: PeerId) -> None:
        await trio.sleep(0.1 * int(peer) if int(peer) < 6 else 100)
        heard.append(peer)

    async def body(start: Start) -> None:
        assert await ask_all(peers, ask, start, 3.0, ENOUGH) == 6
        assert len(heard) == 6
        assert not await ask_all(peers[10:], ask, start, 3.0, ENOUGH)
        assert not await ask_all([], ask, start, 3.0)

    took_s = trio.run(run_beside, body, clock=MockClock(autojump_threshold=0))
    assert took_s == pytest.approx(0.4 + PATIENCE_S + 3.0)


def found_at(peer: str, ip: str) -> Found:
    return Found(PeerId(peer), (Address(f"/ip4/{ip}/tcp/1/p2p/x"),))


def test_strangers_are_drawn_and_each_household_has_its_turn() -> None:
    crowd = [found_at(f"sybil {n}", "10.0.0.1") for n in range(50)]
    others = [found_at(f"other {n}", f"10.0.1.{n}") for n in range(3)]
    nowhere = [Found(PeerId("nowhere"), ()), Found(PeerId("odd"), (Address("/ip6/x"),))]
    proven = found_at("proven", "10.0.0.1")
    orders = set()
    for seed in range(20):
        found = [*crowd, *others, *nowhere, proven]
        order = in_drawn_order(found, random.Random(seed), lambda peer: peer == "proven")
        assert sorted(each.peer for each in order) == sorted(each.peer for each in found)
        assert order[0] == proven
        assert set(others) <= set(order[1:7])
        orders.add(tuple(order[-40:]))
    assert len(orders) == 20
