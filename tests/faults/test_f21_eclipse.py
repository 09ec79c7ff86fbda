"""F21: 45 of 200 nodes made ids to be the closest to a key, and drop its records.

They name each other to whoever asks for the closest. What is on the network is found all the
same: where nodes meet anyway, and because look-ups see that the closest are too close.
"""

from __future__ import annotations

import math
import os
import random

import pytest
import trio

from p2p import lookup, routing
from p2p.host import Limits, PeerId
from p2p.testing.host import SimHost
from p2p.testing.internet import Internet
from p2p.testing.kad import distance
from p2p.testing.names import peer_id_of
from p2p.testing.road import Link
from p2p.testing.simulate import simulate

KEY = bytes(range(32))
NUM_NODES = 200
NUM_ATTACKERS = 45
NUM_BOOTSTRAP = 3
IS_FULL = bool(os.environ.get("GLIA_FULL"))
NUM_LOOK_UPS = 40 if IS_FULL else 20
SEEDS = range(1, 11) if IS_FULL else [1]


def attackers(honest: list[str], seed: int) -> list[str]:
    """Names of nodes whose ids are closer to the key than any honest one."""
    nearest = min(distance(peer_id_of(seed, name), KEY) for name in honest)
    found: list[str] = []
    number = 0
    while len(found) < NUM_ATTACKERS:
        name = f"attacker {number}"
        if distance(peer_id_of(seed, name), KEY) < nearest:
            found.append(name)
        number += 1
    return found


async def grow(net: Internet, seed: int, *, use_rendezvous: bool) -> list[SimHost]:
    """All of them, connected and known to each other. Returns: the honest ones."""
    many = Limits(max_connections=1000)
    names = [f"node {number}" for number in range(NUM_NODES - NUM_ATTACKERS)]
    honest = [net.host(name, limits=many) for name in names]
    bad = [net.host(name, limits=many) for name in attackers(names, seed)]
    bootstrap = honest[:NUM_BOOTSTRAP]
    for host in random.Random(seed).sample([*honest[NUM_BOOTSTRAP:], *bad], NUM_NODES - 3):
        for other in bootstrap:
            await host.connect(other.addresses()[0])
    for host in bad:
        host.records.drops = True
        host.records.names = [other.peer_id for other in bad]
    if use_rendezvous:
        for host in honest:
            meeting = [each.peer_id for each in bootstrap if each is not host]
            host.directory.rendezvous = lambda meeting=meeting: meeting  # type: ignore[misc]
    await trio.sleep(10)
    for host in honest:
        net.start(host.directory.join)
    await trio.sleep(60)
    return honest


def share_found(seed: int, *, use_rendezvous: bool = True) -> float:
    """Of look-ups of honest nodes, each for what another one provides."""

    async def main() -> tuple[float, int]:
        async with trio.open_nursery() as nursery:
            net = Internet(nursery, seed, Link(latency_s=0.02))
            honest = await grow(net, seed, use_rendezvous=use_rendezvous)
            source = random.Random(seed)
            publisher, *getters = source.sample(honest[NUM_BOOTSTRAP:], NUM_LOOK_UPS + 1)
            await publisher.directory.provide(KEY)
            num_found = 0
            for getter in getters:
                found = await getter.directory.providers(KEY, 128)
                num_found += publisher.peer_id in [each.peer for each in found]
            num_alarms = sum(getter.directory.num_crowded for getter in getters)
            nursery.cancel_scope.cancel()
        return num_found / NUM_LOOK_UPS, num_alarms

    share, num_alarms = simulate(main, seed=seed)
    print(f"F21 seed {seed}: found {share:.3f} limit 0.95, alarms {num_alarms}/{NUM_LOOK_UPS}")
    return share


@pytest.mark.fault("F21")
@pytest.mark.parametrize("seed", SEEDS)
def test_f21_it_is_found_all_the_same(seed: int) -> None:
    assert share_found(seed) >= 0.95


@pytest.mark.fault("F21")
def test_f21_without_any_guard_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_NUM_PATHS", 1)
    monkeypatch.setattr(routing, "_NUM_WIDE", lookup.NUM_CLOSEST)
    bare = share_found(1, use_rendezvous=False)
    print(f"F21 one path, no rendezvous, never widened: found {bare:.3f}")
    assert bare < 0.5


@pytest.mark.fault("F21")
@pytest.mark.skipif(not IS_FULL, reason="a minute; GLIA_FULL=1")
def test_f21_what_each_guard_gives_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two paths alone end at the same nodes; where they are widened they find others."""
    with monkeypatch.context() as patched:
        patched.setattr(routing, "_NUM_WIDE", lookup.NUM_CLOSEST)
        paths = share_found(1, use_rendezvous=False)
        print(f"F21 two paths: found {paths:.3f}")
    wide = share_found(1, use_rendezvous=False)
    print(f"F21 two paths, widened where crowded: found {wide:.3f}")
    assert paths < 0.5 < 0.95 <= wide


def test_nobody_raises_an_alarm_where_nobody_attacks() -> None:
    async def main() -> int:
        async with trio.open_nursery() as nursery:
            net = Internet(nursery, 3, Link(latency_s=0.02))
            hosts = [net.host(f"n{n}", limits=Limits(max_connections=1000)) for n in range(60)]
            for host in hosts[1:]:
                await host.connect(hosts[0].addresses()[0])
            await trio.sleep(10)
            for host in hosts:
                net.start(host.directory.join)
            await trio.sleep(60)
            for number in range(60):
                await hosts[number].directory.providers(bytes([number]) * 32, 10)
            num = sum(host.directory.num_crowded for host in hosts)
            nursery.cancel_scope.cancel()
        return num

    assert not simulate(main, seed=3)


@pytest.mark.spec(42)
def test_the_look_up_grows_with_the_logarithm_of_peers() -> None:
    few, many = messages(50), messages(200)
    print(f"look-up among 50 nodes: {few:.1f} messages; among 200: {many:.1f}")
    assert many <= few + 6 * math.log2(200 / 50)


def messages(num: int) -> float:
    async def main() -> float:
        async with trio.open_nursery() as nursery:
            net = Internet(nursery, num, Link(latency_s=0.02))
            source = random.Random(num)
            hosts = [net.host(f"n{n}", limits=Limits(max_connections=1000)) for n in range(num)]
            for at, host in enumerate(hosts[1:], 1):
                known: PeerId = await host.connect(source.choice(hosts[:at]).addresses()[0])
                assert known
            await trio.sleep(60)
            before = sum(host.counters["directory_messages"] for host in hosts)
            for number in range(20):
                await source.choice(hosts).directory.routing.closest(bytes([number]) * 32)
            after = sum(host.counters["directory_messages"] for host in hosts)
            nursery.cancel_scope.cancel()
        return (after - before) / 20

    return simulate(main, seed=num)
