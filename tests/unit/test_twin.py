"""Two nodes with one peer id: a data dir was copied, and its keys with it."""

from __future__ import annotations

import logging
import secrets

import pytest
import trio

from p2p.host import Address, Found, Limits
from p2p.libp2p.network import Network


def test_a_neighbour_with_this_nodes_id_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        loopback = Address("/ip4/127.0.0.1/tcp/0")
        network = Network(
            secrets.token_bytes(32), [loopback], limits=Limits(), validate=bool, agent="gliad/test"
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(network.run)
            own = tuple(network.host.addresses())
            network._meet(Found(network.host.peer_id, own))
            assert network.twin == ""
            other = Address(f"/ip4/192.0.2.9/tcp/4001/p2p/{network.host.peer_id}")
            for _ in range(3):
                network._meet(Found(network.host.peer_id, (*own, other)))
            assert network.twin == other
            nursery.cancel_scope.cancel()

    with caplog.at_level(logging.ERROR):
        trio.run(main)
    assert [each.message.count("peer.key") for each in caplog.records] == [1]
