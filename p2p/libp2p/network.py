"""A node on the network: the ports of p2p/host.py, put together on libp2p."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import trio
from libp2p.crypto.ed25519 import create_new_key_pair
from libp2p.crypto.x25519 import create_new_key_pair as create_noise_key_pair
from libp2p.custom_types import TProtocol
from libp2p.peer.id import ID
from libp2p.security.noise.transport import PROTOCOL_ID as NOISE_PROTOCOL
from libp2p.security.noise.transport import Transport as NoiseTransport
from libp2p.tools.anyio_service import background_trio_service
from libp2p.transport.upgrader import TransportUpgrader
from multiaddr import Multiaddr

from glia.errors import GliaError, NetworkError
from p2p.host import Address, Found, Limits, PeerId
from p2p.libp2p import guards
from p2p.libp2p.basic import GuardedHost
from p2p.libp2p.book import AddressBook
from p2p.libp2p.directory import LibP2PDirectory
from p2p.libp2p.gossip import LibP2PGossip
from p2p.libp2p.host import LibP2PHost, OnChange
from p2p.libp2p.identify import Identities
from p2p.libp2p.kad import GuardedKad
from p2p.libp2p.mdns import Neighbours
from p2p.libp2p.names import peer_object
from p2p.libp2p.peerstore import GuardedPeerStore
from p2p.libp2p.pubsub import GuardedPubsub, new_router
from p2p.libp2p.records import Validate
from p2p.libp2p.streams import InboundStreams
from p2p.libp2p.swarm import GuardedSwarm
from p2p.libp2p.yamux import GuardedMuxer

_log = logging.getLogger("gliad.p2p.libp2p")
_STARTED = trio.TASK_STATUS_IGNORED


class Network:
    """A libp2p node. `run` it in a nursery; what the ports do before raises PeerUnreachable.

    Args:
        seed: of the node's Ed25519 key, 32 bytes.
        listen: where to listen, as /ip4/127.0.0.1/tcp/0.
        validate: which values of the directory are taken, by key and value.
        agent: what identify says this is, as gliad/0.1.0.
        psk: 64 hex digits: only peers that have the same can connect.
        mdns: tell the LAN of this node, and connect to those that are heard of.
        on_change: see LibP2PHost.

    Attributes:
        host, directory, gossip: the ports.
        neighbours: those on the LAN are found by it; None where they are not looked for.
        twin: where another node of the LAN is that has this one's peer id; "" for nowhere.

    Raises: NetworkError where libp2p is another version.
    """

    def __init__(
        self,
        seed: bytes,
        listen: Sequence[Address],
        *,
        limits: Limits,
        validate: Validate,
        agent: str,
        psk: str | None = None,
        mdns: bool = False,
        on_change: OnChange = lambda peer, is_connected: None,
    ) -> None:
        guards.apply(agent)
        self._limits = limits
        self._listen = [Multiaddr(address) for address in listen]
        keys = create_new_key_pair(seed)
        own = ID.from_pubkey(keys.public_key)
        store = GuardedPeerStore(own)
        store.add_key_pair(own, keys)
        noise = NoiseTransport(keys, noise_privkey=create_noise_key_pair().private_key)
        upgrader = TransportUpgrader(
            {TProtocol(NOISE_PROTOCOL): noise},
            {},
        )
        upgrader.muxer_multistream = GuardedMuxer(
            limits.max_unread_bytes, math.ceil(limits.handshake_timeout_s)
        )
        self._swarm = GuardedSwarm(own, store, upgrader, limits, psk)
        self.inbound = InboundStreams()
        self._basic = GuardedHost(
            self._swarm, self.inbound, Identities(store, self._note_identified)
        )
        self._book = AddressBook(store)
        self._kad = GuardedKad(self._basic, validate)
        self._router = new_router()
        self._pubsub = GuardedPubsub(self._basic, self._router)
        self.host = LibP2PHost(self._basic, self._swarm, self._book, limits, on_change)
        self.directory = LibP2PDirectory(self._kad, self._start, self._book.learn)
        self.gossip = LibP2PGossip(self._pubsub, self._start)
        self.neighbours = Neighbours(self.host.addresses, self._meet) if mdns else None
        self.twin = Address("")

    async def run(self, *, task_status: trio.TaskStatus[None] = _STARTED) -> None:
        """Be on the network until cancelled.

        Raises: NetworkError where no address can be listened on.
        """
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(background_trio_service(self._swarm))
            stack.push_async_callback(self._swarm.shut)
            if not await self._swarm.listen(*self._listen) and self._listen:
                raise NetworkError(
                    f"cannot listen on {', '.join(map(str, self._listen))}",
                    hint="another program has that port, or it is no address of this machine",
                )
            for service in (self._kad, self._pubsub, self._router):
                await stack.enter_async_context(background_trio_service(service))
            await self._pubsub.wait_until_ready()
            self._start(self.directory.tend)
            if self.neighbours is not None:
                self._start(self.neighbours.run)
            task_status.started()
            await trio.sleep_forever()

    def _start(self, work: Callable[[], Awaitable[Any]]) -> None:
        self._swarm.manager.run_task(work)

    def _note_identified(self, peer: PeerId) -> None:
        found = peer_object(peer)
        self._start(lambda: self._kad.add_peer(found))

    def _meet(self, found: Found) -> None:
        """A neighbour: connect, while there is room for others too."""
        if found.peer == self.host.peer_id:
            self._note_twin(found)
            return
        self._book.learn(found)
        if len(self.host.connections()) < self._limits.max_connections // 2:
            self._start(lambda: self._greet(found))

    def _note_twin(self, found: Found) -> None:
        """Who tells the LAN that it has this node's id, and is not this node."""
        elsewhere = [each for each in found.addresses if each not in self.host.addresses()]
        if elsewhere and elsewhere[0] != self.twin:
            self.twin = elsewhere[0]
            _log.error(
                "another node has this node's peer id: %s. Who looks for one may find the other; "
                "of two with a copied data dir, one needs a peer.key of its own",
                self.twin,
            )

    async def _greet(self, found: Found) -> None:
        for address in found.addresses:
            try:
                await self.host.connect(address)
                return
            except GliaError as error:
                _log.debug("a neighbour is not reached: %s", error.message)
