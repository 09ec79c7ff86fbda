"""What a node behind a NAT would need of py-libp2p: A, reserved at a relay R, dialled by B.

`python -m tests.relay_trials` prints as JSON which trials the library, as it is, does not stand.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.host.autonat import AutoNATService
from libp2p.host.autonat.pb.autonat_pb2 import Message
from libp2p.host.basic_host import BasicHost
from libp2p.peer.id import ID
from libp2p.peer.peerinfo import PeerInfo, info_from_p2p_addr
from libp2p.relay.circuit_v2.config import RelayConfig
from libp2p.relay.circuit_v2.pb.circuit_pb2 import HopMessage, PeerId, Status
from libp2p.relay.circuit_v2.protocol import PROTOCOL_ID, CircuitV2Protocol
from libp2p.relay.circuit_v2.resources import RelayLimits
from libp2p.relay.circuit_v2.transport import CircuitV2Transport
from libp2p.relay.circuit_v2.utils import read_delimited_msg, write_delimited_msg
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

_MAX_ATTEMPTS = 5
LIMITS = RelayLimits(duration=3600, data=2**30, max_circuit_conns=8, max_reservations=4)


@dataclass(frozen=True)
class Node:
    """One that may be a relay, and may use one."""

    host: BasicHost
    transport: CircuitV2Transport

    @property
    def address(self) -> Multiaddr:
        return self.host.get_addrs()[0]

    async def reserve(self, relay: Node, nursery: trio.Nursery) -> None:
        await self.host.connect(info_from_p2p_addr(relay.address))
        stream = await self.host.new_stream(relay.host.get_id(), [PROTOCOL_ID])
        assert await self.transport.reserve(stream, relay.host.get_id(), nursery)


@asynccontextmanager
async def new_node(limits: RelayLimits = LIMITS) -> AsyncIterator[Node]:
    host = new_host(key_pair=create_new_key_pair(secrets.token_bytes(32)))
    assert isinstance(host, BasicHost)
    async with host.run(listen_addrs=[Multiaddr("/ip4/127.0.0.1/tcp/0")]):
        protocol = CircuitV2Protocol(host, limits, allow_hop=True)
        async with background_trio_service(protocol):
            await protocol.event_started.wait()
            yield Node(host, CircuitV2Transport(host, protocol, RelayConfig()))


async def autonat_says_what_it_dialled(nursery: trio.Nursery) -> bool:
    """Asked for a port at which nobody listens, it does not say that it can be reached."""
    async with new_node() as asker, new_node() as server:
        AutoNATService(server.host)
        service = AutoNATService(asker.host)
        await asker.host.connect(info_from_p2p_addr(server.address))
        nobody = Multiaddr("/ip4/127.0.0.1/tcp/1").to_bytes()
        status, _ = await service.query_server(server.host.get_id(), [nobody])
        return status != Message.OK


async def a_host_dials_through_a_relay(nursery: trio.Nursery) -> bool:
    async with new_node() as relay, new_node() as behind, new_node() as dialler:
        await behind.reserve(relay, nursery)
        circuit = Multiaddr(f"{relay.address}/p2p-circuit")
        try:
            await dialler.host.connect(PeerInfo(behind.host.get_id(), [circuit]))
        except Exception:
            return False
        return True


async def a_circuit_lasts_no_longer_than_it_may(nursery: trio.Nursery) -> bool:
    """Also one on which nothing is said."""
    limits = replace(LIMITS, duration=1)
    async with new_node(limits) as relay, new_node() as behind, new_node() as dialler:
        await behind.reserve(relay, nursery)
        circuit = Multiaddr(f"{relay.address}/p2p-circuit/p2p/{behind.host.get_id()}")
        await dialler.transport.dial(circuit)
        await trio.sleep(2.0)
        return not dialler.host.get_network().connections.get(behind.host.get_id())


async def a_peer_reserves_for_itself_alone(nursery: trio.Nursery) -> bool:
    """Else one peer takes all places in names that it made up."""
    async with new_node() as relay, new_node() as greedy, new_node() as honest:
        await greedy.host.connect(info_from_p2p_addr(relay.address))
        for _ in range(LIMITS.max_reservations):
            made_up = ID.from_pubkey(create_new_key_pair(secrets.token_bytes(32)).public_key)
            await _reserve_in_the_name_of(greedy, relay, made_up)
        await honest.host.connect(info_from_p2p_addr(relay.address))
        reply = await _reserve_in_the_name_of(honest, relay, honest.host.get_id())
        return bool(reply.status == Status.OK)


async def _reserve_in_the_name_of(node: Node, relay: Node, peer: ID) -> Any:
    stream = await node.host.new_stream(relay.host.get_id(), [PROTOCOL_ID])
    request = HopMessage(type=HopMessage.RESERVE, peer=PeerId(id=peer.to_bytes()))
    await write_delimited_msg(stream, request)
    return await read_delimited_msg(stream, HopMessage)


async def a_reservation_is_renewed_at_ease(nursery: trio.Nursery) -> bool:
    """In its last half minute not without a pause."""
    async with new_node(replace(LIMITS, reservation_ttl=10)) as relay, new_node() as behind:
        await behind.reserve(relay, nursery)
        opened: list[float] = []
        new_stream = behind.host.new_stream

        async def counted(*args: Any) -> Any:
            opened.append(trio.current_time())
            return await new_stream(*args)

        behind.host.new_stream = counted  # type: ignore[method-assign]
        await trio.sleep(1.5)
        return len(opened) <= 2


TRIALS: dict[str, Callable[[trio.Nursery], Awaitable[bool]]] = {
    each.__name__: each
    for each in (
        autonat_says_what_it_dialled,
        a_host_dials_through_a_relay,
        a_circuit_lasts_no_longer_than_it_may,
        a_peer_reserves_for_itself_alone,
        a_reservation_is_renewed_at_ease,
    )
}


async def _attempt(name: str) -> bool:
    """Whether the library stands it. Its own tasks may end in an exception where the machine is
    slow (a handler that is asked for before it is there): then it is asked again."""
    for left in range(_MAX_ATTEMPTS - 1, -1, -1):
        try:
            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    stands = await TRIALS[name](nursery)
                    nursery.cancel_scope.cancel()
                return stands
        except Exception:
            if not left:
                raise
    raise ValueError("no attempts")


async def _run(failed: list[str]) -> None:
    async def attempt(name: str) -> None:
        if not await _attempt(name):
            failed.append(name)

    async with trio.open_nursery() as all_at_once:
        for name in TRIALS:
            all_at_once.start_soon(attempt, name)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    found: list[str] = []
    trio.run(_run, found)
    print(json.dumps(sorted(found)))
