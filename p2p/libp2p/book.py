"""Where peers may be dialled: a bounded memory of this run."""

from __future__ import annotations

from libp2p.abc import IPeerStore
from libp2p.peer.peerstore import PeerStoreError

from p2p.host import Address, Found, PeerId
from p2p.libp2p.names import dialable, peer_object

_MAX_PEERS = 1024
_MAX_ADDRESSES = 8


class AddressBook:
    """Addresses that were dialled or told, the newest first, and what libp2p knows besides."""

    def __init__(self, peerstore: IPeerStore) -> None:
        self._peerstore = peerstore
        self._known: dict[PeerId, tuple[Address, ...]] = {}

    def learn(self, found: Found) -> None:
        """A peer may be dialled there."""
        before = self._known.pop(found.peer, ())
        merged = tuple(dict.fromkeys((*found.addresses, *before)))
        self._known[found.peer] = merged[:_MAX_ADDRESSES]
        if len(self._known) > _MAX_PEERS:
            del self._known[next(iter(self._known))]

    def addresses(self, peer: PeerId) -> tuple[Address, ...]:
        """Where to try, in this order."""
        try:
            stored = self._peerstore.addrs(peer_object(peer))
        except PeerStoreError:
            stored = []
        known = (*self._known.get(peer, ()), *dialable(stored, peer))
        return tuple(dict.fromkeys(known))[:_MAX_ADDRESSES]
