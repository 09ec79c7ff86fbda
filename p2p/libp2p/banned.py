"""Who is refused: a bounded memory, as it costs a stranger little to be banned."""

from __future__ import annotations

from libp2p.peer.id import ID

MAX_BANNED = 10_000  # more than a ledger remembers, so whoever is banned there is here


class Banned:
    """Peers; of too many the one that was banned first is forgotten."""

    def __init__(self) -> None:
        self._peers: dict[ID, None] = {}

    def __contains__(self, peer: ID) -> bool:
        return peer in self._peers

    def __len__(self) -> int:
        return len(self._peers)

    def add(self, peer: ID) -> None:
        self._peers.pop(peer, None)
        self._peers[peer] = None
        if len(self._peers) > MAX_BANNED:
            del self._peers[next(iter(self._peers))]

    def discard(self, peer: ID) -> None:
        """One that is not banned is no matter."""
        self._peers.pop(peer, None)
