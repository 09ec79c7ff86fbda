"""Calls about the network."""

from __future__ import annotations

from collections.abc import Sequence

from glia.client.caller import Caller, OnProgress
from glia.local import messages as m
from glia.local import network_values


class PeerCalls(Caller):
    """Who this node is, and whom it knows. All raise NetworkError where it is offline."""

    def identity(self) -> m.IdentityReply:
        """Who this node is on the network, and where it can be dialled."""
        return self._call(m.Identity(self._id()), m.IdentityReply)

    def peers(self) -> list[network_values.PeerValue]:
        """All peers that are known: those connected, then the last seen."""
        found: list[network_values.PeerValue] = []
        while True:
            part = self._call(m.Peers(self._id(), len(found)), m.PeersReply)
            found += part.peers
            if len(found) >= part.total or not part.peers:
                return found

    def add_peer(self, address: str) -> network_values.PeerValue:
        """Know the peer at a multiaddr from now on; connected where it could be reached.

        Raises: BadRequest, PeerRefused (it is banned here), QuotaExceeded.
        """
        (peer,) = self._call(m.AddPeer(self._id(), address), m.PeersReply).peers
        return peer

    def forget_peer(self, peer: str) -> None:
        """Disconnect a peer and know nothing of it. Raises: NotFound, BadRequest (ambiguous)."""
        self._call(m.ForgetPeer(self._id(), peer), m.Done)

    def ban_peer(self, peer: str, *, banned: bool = True) -> network_values.PeerValue:
        """Refuse a peer from now on, or no longer. Raises: NotFound, BadRequest."""
        (value,) = self._call(m.BanPeer(self._id(), peer, banned), m.PeersReply).peers
        return value

    def where(self, model: str, tokens: Sequence[int], dtype: str | None = None) -> m.WhereReply:
        """Who has how much of a prompt; peers are asked. Raises: BadRequest (never loaded)."""
        return self._call(m.Where(self._id(), model, list(tokens), dtype), m.WhereReply)

    def fetch(self, name: bytes, on_progress: OnProgress | None = None) -> m.FetchReply:
        """Have the chain that a window ends; of a block, its particle.

        Args: name: of a window or a block.
        Raises: NotFound, NetworkError (offline, or who has it is gone), BadRequest (the model
            was never loaded here), CapacityError, StoreError, MalformedParticle.
        """
        return self._call(m.Fetch(self._id(), name), m.FetchReply, on_progress)

    def fetch_particle(self, name: bytes) -> m.FetchReply:
        """One particle, verified: a block or a window record. Raises: NotFound, NetworkError."""
        return self._call(m.Fetch(self._id(), name, whole=False), m.FetchReply)
