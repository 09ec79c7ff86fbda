"""F21: 45 of 200 nodes made ids to be the closest to a key, and drop its records."""

from __future__ import annotations

import os

import pytest

from p2p import lookup, routing
from p2p.testing.internet import Internet
from simulations.scenarios.eclipse import Eclipse, eclipse
from simulations.scenarios.scale import among
from simulations.virtual.crowd import MANY, all_join, in_crowd

NUM_NODES = 200
IS_FULL = bool(os.environ.get("GLIA_FULL"))
NUM_LOOK_UPS = 40 if IS_FULL else 20
SEEDS = range(1, 11) if IS_FULL else [1]


def found_in(seed: int, *, use_rendezvous: bool = True) -> Eclipse:
    found = eclipse(NUM_NODES, seed, NUM_LOOK_UPS, use_rendezvous=use_rendezvous)
    print(f"F21 seed {seed}: found {found.share:.3f} limit 0.95, alarms {found.num_alarms}")
    return found


@pytest.mark.fault("F21")
@pytest.mark.parametrize("seed", SEEDS)
def test_f21_it_is_found_all_the_same(seed: int) -> None:
    assert found_in(seed).share >= 0.95


@pytest.mark.fault("F21")
def test_f21_without_any_guard_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_NUM_PATHS", 1)
    monkeypatch.setattr(routing, "_NUM_WIDE", lookup.NUM_CLOSEST)
    bare = found_in(1, use_rendezvous=False).share
    print(f"F21 one path, no rendezvous, never widened: found {bare:.3f}")
    assert bare < 0.5


@pytest.mark.fault("F21")
@pytest.mark.skipif(not IS_FULL, reason="a minute; GLIA_FULL=1")
def test_f21_what_each_guard_gives_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two paths alone end at the same nodes; where they are widened they find others."""
    with monkeypatch.context() as patched:
        patched.setattr(routing, "_NUM_WIDE", lookup.NUM_CLOSEST)
        paths = found_in(1, use_rendezvous=False).share
        print(f"F21 two paths: found {paths:.3f}")
    wide = found_in(1, use_rendezvous=False).share
    print(f"F21 two paths, widened where crowded: found {wide:.3f}")
    assert paths < 0.5 < 0.95 <= wide


def test_nobody_raises_an_alarm_where_nobody_attacks() -> None:
    async def main(net: Internet) -> int:
        hosts = [net.host(f"n{n}", limits=MANY) for n in range(60)]
        for host in hosts[1:]:
            await host.connect(hosts[0].addresses()[0])
        await all_join(net, hosts)
        for number in range(60):
            await hosts[number].directory.providers(bytes([number]) * 32, 10)
        return sum(host.directory.num_crowded for host in hosts)

    assert not in_crowd(3, main)


@pytest.mark.spec(42)
def test_the_look_up_grows_with_the_logarithm_of_peers() -> None:
    few, many = (among(num, num).num_messages for num in (50, 200))
    print(f"look-up among 50 nodes: {few:.1f} messages; among 200: {many:.1f}")
    assert many <= few + 2 * 6
