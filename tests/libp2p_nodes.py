"""libp2p nodes for tests of the guards: with them, and of the library as it is.

Both are the library's own `BasicHost` to a scenario, so that one scenario asks both.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import trio
from libp2p import new_host
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.host.basic_host import BasicHost
from libp2p.kad_dht.kad_dht import DHTMode, KadDHT
from libp2p.network.config import ConnectionConfig
from libp2p.peer.peerinfo import info_from_p2p_addr
from libp2p.pubsub.gossipsub import PROTOCOL_ID_V11, GossipSub
from libp2p.pubsub.pubsub import Pubsub
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.stream_muxer.yamux.yamux import Yamux
from libp2p.tools.anyio_service import background_trio_service
from multiaddr import Multiaddr

from p2p.host import Address, Limits
from p2p.libp2p.network import Network

MAX_CONNECTIONS = 6
LIMITS = Limits(max_connections=MAX_CONNECTIONS, max_connections_per_address=MAX_CONNECTIONS)
LOOPBACK = "/ip4/127.0.0.1/tcp/0"


@dataclass(frozen=True)
class Node:
    """A node as the library sees it. `network` is None without guards."""

    host: BasicHost
    kad: KadDHT
    pubsub: Pubsub
    network: Network | None = None

    def address(self) -> Multiaddr:
        return self.host.get_addrs()[0]

    async def connect(self, other: Node) -> None:
        if self.network is not None:
            await self.network.host.connect(Address(str(other.address())))
        else:
            await self.host.connect(info_from_p2p_addr(other.address()))

    def muxer(self, other: Node) -> Yamux:
        """Of the connection to another node."""
        muxed = self.host.get_network().get_connections(other.host.get_id())[0].muxed_conn
        assert isinstance(muxed, Yamux)
        return muxed

    def is_connected(self, other: Node) -> bool:
        found = self.host.get_network().get_connections(other.host.get_id())
        return any(not each.is_closed for each in found)


NewNode = Callable[[], AbstractAsyncContextManager[Node]]


@asynccontextmanager
async def guarded_node(limits: Limits = LIMITS) -> AsyncIterator[Node]:
    """A node of ours."""
    network = Network(
        secrets.token_bytes(32),
        [Address(LOOPBACK)],
        limits=limits,
        validate=lambda key, value: value.startswith(b"valid"),
        agent="gliad/test",
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(network.run)
        yield Node(network._basic, network._kad, network._pubsub, network)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def bare_node() -> AsyncIterator[Node]:
    """The library's node with the same limits, as its documentation makes one."""
    keys, listen = create_new_key_pair(), Multiaddr(LOOPBACK)
    noise = NoiseTransport(keys, noise_privkey=create_noise_key_pair().private_key)
    config = ConnectionConfig(
        max_connections=MAX_CONNECTIONS,
        min_connections=0,
        low_watermark=0,
        high_watermark=MAX_CONNECTIONS,
    )
    host = new_host(
        key_pair=keys,
        listen_addrs=[listen],
        sec_opt={TProtocol(NOISE): noise},
        connection_config=config,
    )
    assert isinstance(host, BasicHost)
    async with host.run(listen_addrs=[listen]):
        kad = KadDHT(host, DHTMode.SERVER)
        router = GossipSub([PROTOCOL_ID_V11], 6, 4, 12, heartbeat_interval=1)
        pubsub = Pubsub(host, router)
        async with (
            background_trio_service(kad),
            background_trio_service(pubsub),
            background_trio_service(router),
        ):
            await pubsub.wait_until_ready()
            yield Node(host, kad, pubsub)
