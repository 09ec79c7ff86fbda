"""The library's DHT, so that one peer can neither fill nor stall it."""

from __future__ import annotations

from libp2p.abc import IHost
from libp2p.kad_dht.kad_dht import DHTMode, KadDHT
from libp2p.peer.id import ID
from libp2p.records.validator import NamespacedValidator

from p2p.libp2p import caps
from p2p.libp2p.records import (
    NAMESPACE,
    GuardedProviders,
    GuardedValues,
    RecordValidator,
    Validate,
)

_RATE_WINDOW_S = 10.0


class GuardedKad(KadDHT):
    """A server under an id of our own, with our namespace alone, nothing on disk.

    Its streams are bounded as all are (`streams.py`), so its own 12 places for all are not.
    """

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
        self.provider_store = GuardedProviders(host, self.peer_routing)
        self.value_store = GuardedValues(host, self.local_peer_id)
        self._provider_rate_max = caps.MAX_PROVIDED_PER_PEER
        self._provider_rate_window = _RATE_WINDOW_S
        self._inbound_limiter.total_tokens = caps.MAX_KAD_STREAMS

    async def closest(self, key: bytes) -> list[ID]:
        """The peers that keep a key's records, this node not among them."""
        found = await self.peer_routing.find_closest_peers_network(key)
        return [peer for peer in found if peer != self.local_peer_id]
