"""The fetch session against peers that are honest, slow, silent, gone or lying, by seed."""

from __future__ import annotations

import os
import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from p2p.frontier import Window
from p2p.getter import Ask, Close, Open, Session
from p2p.host import PeerId
from p2p.source import TICK_S, Provides, Verdict
from tests.builders import WIDE, Chain, make_chain

ROUNDS = 2_000 if os.environ.get("GLIA_FULL") else 120
CHAIN = make_chain(24)
BLOCKS = dict(CHAIN.blocks())
SIZE = CHAIN.profile.particle_sizes[0]
STEP_S = 0.05
END_S = 120.0

HONEST, LIAR, STALLER, DRIBBLER, LOSER, LACKER, SHORT = range(7)


@dataclass
class Peer:
    kind: int
    speed: float
    rng: random.Random
    owed: deque[tuple[float, bytes]] = field(default_factory=deque)
    sent: float = 0.0
    num_answers: int = 0
    was_asked: list[bytes] = field(default_factory=list)

    def fails_now(self) -> bool:
        return self.num_answers >= 3

    def covers(self) -> int:
        return 7 if self.kind == SHORT else 24


class World:
    """Peers on a clock of steps."""

    def __init__(self, session: Session, peers: dict[PeerId, Peer]) -> None:
        self.session, self.peers = session, peers
        self.now_s = 0.0
        self.open: set[PeerId] = set()
        self.windows: list[Window] = []
        self.closed: dict[PeerId, Close] = {}

    def run(self, until_s: float = END_S) -> None:
        while self.now_s < until_s:
            self._step()
            if self.session.is_over:
                break
            self.now_s += STEP_S
            for name in sorted(self.open):
                self._move(name)
        self._step()

    def _step(self) -> None:
        for action in self.session.step(self.now_s):
            if isinstance(action, Open):
                assert action.peer not in self.open
                assert action.peer not in self.closed
                self.open.add(action.peer)
                self.session.opened(action.peer, self.now_s)
            elif isinstance(action, Ask):
                assert action.peer in self.open
                peer = self.peers[action.peer]
                peer.owed.extend((self.now_s, each) for each in action.ids)
                peer.was_asked += action.ids
                for block_id in action.ids:
                    owing = [name for name in self.open if self.owes(name, block_id)]
                    assert len(owing) <= 2
            else:
                self.open.discard(action.peer)
                assert action.peer not in self.closed
                self.closed[action.peer] = action
        while (window := self.session.ready()) is not None:
            self.windows.append(
                Window(
                    window.record,
                    tuple(each and memoryview(bytes(each)) for each in window.particles),
                )
            )
            self.session.delivered()

    def owes(self, name: PeerId, block_id: bytes) -> bool:
        return any(block_id == owed for _, owed in self.peers[name].owed)

    def _move(self, name: PeerId) -> None:
        peer = self.peers[name]
        if not peer.owed or (peer.kind == STALLER and peer.fails_now()):
            return
        if peer.kind == LOSER and peer.fails_now():
            self.session.ended(name, Verdict.LOST)
            return
        slow = peer.kind == DRIBBLER and peer.fails_now()
        num = 1 if slow else int(peer.speed * STEP_S)
        self.session.heard(name, num, self.now_s)
        peer.sent += num
        while peer.owed and peer.sent >= SIZE and name in self.open:
            peer.sent -= SIZE
            self._answer(name, peer, peer.owed.popleft()[1])

    def _answer(self, name: PeerId, peer: Peer, block_id: bytes) -> None:
        peer.num_answers += 1
        data = BLOCKS[block_id]  # type: ignore[index]
        if peer.kind == LACKER and peer.rng.random() < 0.5:
            self.session.arrived(name, b"")
        elif peer.kind == LIAR and peer.fails_now():
            bit = peer.rng.randrange(8 * len(data))
            spoiled = bytearray(data)
            spoiled[bit // 8] ^= 1 << bit % 8
            self.session.arrived(name, bytes(spoiled))
        else:
            self.session.arrived(name, data)


def make_world(rng: random.Random, kinds: list[int], **changes: object) -> World:
    peers = {
        PeerId(f"{at}"): Peer(kind, rng.choice([1, 4, 40]) * SIZE / STEP_S, rng)
        for at, kind in enumerate(kinds)
    }
    provides = [Provides(name, peer.covers()) for name, peer in peers.items()]
    session = Session(
        CHAIN.records,
        None,
        CHAIN.profile,
        provides,
        now_s=0.0,
        **changes,  # type: ignore[arg-type]
    )
    return World(session, peers)


def assert_delivered(
    windows: list[Window], chain: Chain, from_back: bool, held: set[bytes]
) -> None:
    order = list(zip(chain.records, chain.particles, strict=True))
    for window, (record, particles) in zip(
        windows, order[::-1] if from_back else order, strict=False
    ):
        assert window.record == record
        for block_id, got, right in zip(record.blocks, window.particles, particles, strict=True):
            assert got == (None if block_id in held else right)


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_what_is_delivered_is_right_and_whole(seed: int) -> None:
    rng = random.Random(seed)
    kinds = [rng.randrange(7) for _ in range(rng.randrange(1, 8))]
    held = {each for each in BLOCKS if rng.random() < rng.choice([0.0, 0.3])}
    from_back = rng.random() < 0.5
    budget = rng.choice([1, 5, 100]) * CHAIN.profile.window_particle_bytes
    world = make_world(rng, kinds, held=held, from_back=from_back, budget_bytes=budget)
    world.run()
    session = world.session
    assert session.is_over
    assert session.num_windows == len(world.windows)
    assert_delivered(world.windows, CHAIN, from_back, held)
    if HONEST in kinds:
        assert session.is_whole
    for name, peer in world.peers.items():
        assert not held.intersection(peer.was_asked)
        close = world.closed.get(name)
        if close and peer.kind in (HONEST, SHORT):
            assert close.verdict in (Verdict.DONE, Verdict.LACKING)
        assert close is None or close.verdict is not Verdict.LIED or peer.kind == LIAR
        if peer.kind == LIAR and peer.fails_now() and close:
            assert peer.num_answers <= 3 or close.verdict in (Verdict.LIED, Verdict.DONE)
    assert world.open == set()


@pytest.mark.parametrize("seed", range(30))
def test_cancelled_at_any_time(seed: int) -> None:
    rng = random.Random(seed)
    world = make_world(rng, [HONEST, STALLER, HONEST])
    world.run(until_s=rng.random())
    world.session.cancel()
    world.run()
    assert world.session.is_over
    assert world.open == set()
    assert world.session.ready() is None
    assert_delivered(world.windows, CHAIN, False, set())


@pytest.mark.parametrize("from_back", [False, True])
def test_without_peers_that_have_all_what_there_is_is_delivered(from_back: bool) -> None:
    world = make_world(random.Random(0), [SHORT, SHORT], from_back=from_back)
    world.run()
    assert len(world.windows) == (0 if from_back else 7)
    assert not world.session.is_whole


def test_a_budget_bounds_what_is_asked_for() -> None:
    budget = 3 * CHAIN.profile.window_particle_bytes
    world = make_world(random.Random(0), [HONEST, HONEST], budget_bytes=budget)
    asked: set[bytes] = set()
    session = world.session
    for action in session.step(0.0):
        if isinstance(action, Open):
            session.opened(action.peer, 0.0)
    for action in session.step(0.0):
        assert isinstance(action, Ask)
        asked.update(action.ids)
    assert asked == {each for record in CHAIN.records[:3] for each in record.blocks}


def test_a_stalled_peer_is_asked_elsewhere_in_less_than_three_seconds() -> None:
    world = make_world(random.Random(0), [STALLER, HONEST])
    world.peers[PeerId("0")].num_answers = 3
    world.peers[PeerId("0")].speed = 1e9
    world.run()
    assert world.session.is_whole
    assert world.now_s < 3.0


def test_time_in_which_this_node_did_not_run_is_not_the_peers() -> None:
    world = make_world(random.Random(0), [HONEST])
    session = world.session
    world._step()
    world._step()
    assert session.step(60.0) == []
    assert session.step(60.0 + TICK_S) == []
    closes = session.step(60.0 + 12 * TICK_S) + session.step(60.0 + 13 * TICK_S)
    for tick in range(14, 30):
        closes += session.step(60.0 + tick * TICK_S)
    assert any(isinstance(each, Close) for each in closes)


def test_a_peer_that_sends_when_it_owes_nothing_is_dropped() -> None:
    world = make_world(random.Random(0), [HONEST])
    world.session.step(0.0)
    world.session.opened(PeerId("0"), 0.0)
    world.session.heard(PeerId("0"), 1, 0.0)
    closes = [each for each in world.session.step(0.0) if isinstance(each, Close)]
    assert [each.verdict for each in closes] == [Verdict.LIED]


def test_those_who_cannot_go_on_make_room_for_others() -> None:
    world = make_world(random.Random(0), [SHORT] * 4 + [HONEST])
    world.run()
    assert world.session.is_whole


def test_a_peer_is_opened_once_and_never_again_after_it_was_closed() -> None:
    world = make_world(random.Random(0), [LIAR, HONEST])
    liar = world.peers[PeerId("0")]
    liar.num_answers = 3
    for name in ("0", "1"):
        world.session.join(Provides(PeerId(name), 24))
    while PeerId("0") not in world.closed:
        world.run(until_s=world.now_s + STEP_S)
    world.session.join(Provides(PeerId("0"), 24))
    world.run()
    assert world.session.is_whole
    assert world.closed[PeerId("0")].verdict is Verdict.LIED


def test_where_windows_wait_for_room_a_second_peer_is_asked_for_what_lags_only() -> None:
    budget = CHAIN.profile.window_particle_bytes
    world = make_world(random.Random(0), [STALLER, HONEST], budget_bytes=budget)
    session, asks = world.session, []
    for now_s in (0.0, 0.01, 0.25, 0.5, 0.75, 1.0, 1.25):
        for action in session.step(now_s):
            if isinstance(action, Open):
                session.opened(action.peer, now_s)
            elif isinstance(action, Ask):
                asks.append((now_s, action.peer, len(action.ids)))
    assert asks == [(0.01, PeerId("0"), 2), (1.25, PeerId("1"), 2)]


def test_what_is_ready_is_not_handed_on_after_a_cancel() -> None:
    session = make_world(random.Random(0), [HONEST], held=set(BLOCKS)).session
    session.step(0.0)
    assert session.ready()
    session.cancel()
    assert session.ready() is None
    assert session.is_over


def test_what_a_lost_peer_owed_is_asked_for_before_what_comes_later() -> None:
    chain = make_chain(16, profile=WIDE)  # twice what a new peer may owe
    one, two = PeerId("0"), PeerId("1")
    provides = [Provides(one, 16), Provides(two, 16)]
    session = Session(chain.records, None, chain.profile, provides, now_s=0.0)
    session.step(0.0)
    session.opened(one, 0.0)
    (first,) = session.step(0.0)
    assert isinstance(first, Ask)
    session.ended(one, Verdict.LOST)
    session.opened(two, 0.0)
    (second,) = [each for each in session.step(0.0) if isinstance(each, Ask)]
    assert second.ids == first.ids
    assert second.ids[0] == chain.records[0].blocks[0]
