"""Peers that come and go, and those without the network's key, leave nothing behind."""

from __future__ import annotations

import os
import secrets
from contextlib import AsyncExitStack

import pytest
import trio

from glia.errors import PeerUnreachable
from p2p.host import Address, Limits, PeerId
from p2p.libp2p.network import Network
from tests.libp2p_nodes import Node, guarded_node
from tests.libp2p_scenarios import pair

NUM_ROUNDS = 1000 if os.environ.get("GLIA_FULL") else 15


def test_peers_that_come_and_go_leave_no_task_behind() -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            one, victim = await pair(stack, guarded_node)
            await _part(one, victim)
            before = await _num_tasks()
            for _ in range(NUM_ROUNDS):
                await one.connect(victim)
                assert one.network is not None
                await one.network.host.ping(PeerId(str(victim.host.get_id())))
                await _part(one, victim)
            assert await _num_tasks() <= before
            assert victim.network is not None
            assert not victim.network.inbound._under_way
            assert not victim.network.host._seen
            assert not victim.network.host._basic.identities._agents
            assert not victim.network._swarm._doorman._made

    trio.run(main)


async def _part(one: Node, victim: Node) -> None:
    with trio.fail_after(60):
        while victim.is_connected(one):  # the directory may have dialled again
            await one.host.disconnect(victim.host.get_id())
            await trio.sleep(0.01)


async def _num_tasks() -> int:
    """What lives when all that ends has ended: some tasks come and go for ever."""
    found = []
    for _ in range(40):
        await trio.sleep(0.05)
        found.append(trio.lowlevel.current_statistics().tasks_living)
    return min(found[20:])


def keyed_network(psk: str | None) -> Network:
    return Network(
        secrets.token_bytes(32),
        [Address("/ip4/127.0.0.1/tcp/0")],
        limits=Limits(handshake_timeout_s=3.0, dial_timeout_s=6.0),
        validate=lambda key, value: False,
        agent="gliad/test",
        psk=psk,
    )


@pytest.mark.parametrize("psk", [None, "11" * 32])
def test_who_has_not_the_networks_key_is_not_let_in(psk: str | None) -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            one, other = keyed_network("00" * 32), keyed_network("00" * 32)
            stranger = keyed_network(psk)
            for each in (one, other, stranger):
                await nursery.start(each.run)
            address = one.host.addresses()[0]
            await other.host.connect(address)
            with pytest.raises(PeerUnreachable):
                await stranger.host.connect(address)
            assert [each.peer for each in one.host.connections()] == [other.host.peer_id]
            nursery.cancel_scope.cancel()

    trio.run(main)


def test_connections_that_come_and_go_are_told() -> None:
    told: list[tuple[PeerId, bool]] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            one, other = keyed_network(None), keyed_network(None)
            one.host._on_change = lambda peer, is_connected: told.append((peer, is_connected))
            for each in (one, other):
                await nursery.start(each.run)
            await other.host.connect(one.host.addresses()[0])
            await other.host.disconnect(one.host.peer_id)
            with trio.fail_after(60):
                while len(told) < 2:
                    await trio.sleep(0.01)
            assert told == [(other.host.peer_id, True), (other.host.peer_id, False)]
            nursery.cancel_scope.cancel()

    trio.run(main)
