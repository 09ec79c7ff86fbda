"""The library's DHT, so that one peer can neither fill nor stall it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import trio
from libp2p.abc import IHost, INetStream
from libp2p.kad_dht.kad_dht import DHTMode, KadDHT
from libp2p.kad_dht.peer_routing import PeerRouting
from libp2p.records.validator import NamespacedValidator

from glia.errors import PeerUnreachable
from p2p.claims import MAX_KEYS_PER_PEER, Draw
from p2p.host import PeerId
from p2p.libp2p import caps
from p2p.libp2p.metering import MeteredStream, crowd_behind, kad_rates
from p2p.libp2p.names import peer_object, peer_text
from p2p.libp2p.records import (
    NAMESPACE,
    SENDER,
    GuardedProviders,
    GuardedValues,
    RecordValidator,
    Sender,
    Validate,
)
from p2p.libp2p.table import GuardedTable, place_of, target_of
from p2p.lookup import NUM_CLOSEST

_RATE_WINDOW_S = 10.0
_FEW = 5  # known peers, so that those which were only heard of are asked, too


class GuardedKad(KadDHT):
    """A server under an id of our own, with our namespace alone, nothing on disk.

    Its streams are bounded as all are (`streams.py`), so its own 12 places for all are not.

    Attributes:
        num_refused: messages of peers that ask too often.
        refresh: called when this node begins, and every 10 minutes.
    """

    routing_table: GuardedTable
    provider_store: GuardedProviders
    value_store: GuardedValues

    def __init__(self, host: IHost, validate: Validate) -> None:
        super().__init__(
            host,
            DHTMode.SERVER,
            validator=NamespacedValidator({NAMESPACE: RecordValidator(validate)}, True),
            validator_changed=True,
            strict_validation=True,
        )
        self.routing_table = GuardedTable(self.local_peer_id, host)
        self.peer_routing = PeerRouting(host, self.routing_table)
        self.draw = Draw(secrets.token_bytes(32))
        self.provider_store = GuardedProviders(host, self.peer_routing, self.draw)
        self.value_store = GuardedValues(
            host, self.local_peer_id, self.draw, lambda peer: self.provider_store.is_proven(peer)
        )
        self.num_refused = 0
        self.refresh: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
        self._rates = kad_rates()
        self._provider_rate_max = MAX_KEYS_PER_PEER
        self._provider_rate_window = _RATE_WINDOW_S
        self._inbound_limiter.total_tokens = caps.MAX_KAD_STREAMS

    async def _do_handle_stream(self, stream: INetStream) -> None:
        """The library's, of messages that are admitted."""
        connection = stream.muxed_conn
        sender = Sender(peer_text(connection.peer_id), crowd_behind(connection))

        def admits(cost: float) -> bool:
            is_admitted = self._rates.admits(sender.peer, sender.crowd, trio.current_time(), cost)
            self.num_refused += not is_admitted
            return is_admitted

        SENDER.set(sender)
        await super()._do_handle_stream(cast(INetStream, MeteredStream(stream, admits)))

    async def refresh_routing_table(self) -> None:
        """Instead of the library's, which asks for ten seconds whoever is gone."""
        await self.refresh()

    def neighbours(self, key: bytes) -> list[PeerId]:
        """Peers that may be asked who is closer to a key, the closest first."""
        found = [*self.routing_table.find_local_closest_peers(key, NUM_CLOSEST)]
        found += self.host.get_connected_peers()
        if len(set(found)) < _FEW:
            found += self.host.get_peerstore().peer_ids()
        known = dict.fromkeys(peer_text(peer) for peer in found if peer != self.local_peer_id)
        return sorted(known, key=lambda peer: distance(peer, key))

    async def closer(self, peer: PeerId, key: bytes) -> Sequence[PeerId]:
        """The closest to a key that a peer knows. Raises: PeerUnreachable, BadRequest.

        The library answers with nobody where a peer has failed; then it is not connected, or
        was removed.
        """
        asked, removed = peer_object(peer), self.routing_table.removed
        removed.discard(asked)
        found = await self.peer_routing._query_peer_for_closest(asked, key)
        has_failed = asked in removed
        removed.discard(asked)
        if has_failed or not self.host.get_network().get_connections(asked):
            raise PeerUnreachable(f"peer {peer} does not answer")
        return [peer_text(each) for each in found]


def distance(peer: PeerId, key: bytes) -> int:
    """Of a peer from a key, as Kademlia has it."""
    return place_of(peer) ^ target_of(key)
