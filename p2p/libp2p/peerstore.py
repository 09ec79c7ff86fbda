"""What the library knows of peers, bounded so that it never forgets itself."""

from __future__ import annotations

from libp2p.peer.id import ID
from libp2p.peer.peerstore import PeerStore

from p2p.libp2p.caps import MAX_KNOWN_PEERS


class GuardedPeerStore(PeerStore):
    """The library's store first evicts who has no address: itself, with the host's key.

    Args:
        keep: this node's own id.
    """

    def __init__(self, keep: ID) -> None:
        super().__init__(max_peers=MAX_KNOWN_PEERS)
        self._keep = keep

    def _enforce_peer_limit(self) -> None:
        own = self.peer_data_map.pop(self._keep, None)
        super()._enforce_peer_limit()
        if own is not None:
            self.peer_data_map[self._keep] = own
