"""Whose gossip is listened to: decisions, without I/O."""

from __future__ import annotations

from typing import Any

from p2p.host import PeerId
from p2p.libp2p import caps
from p2p.libp2p.caps import MAX_BAD_MESSAGES, MUTE_S
from p2p.rates import Rates

_MAX_PEERS = 1024


class Muting:
    """So many messages a second, and no hearing for who sends bad ones."""

    def __init__(self) -> None:
        self._rates = Rates(
            peer=caps.GOSSIP_PEER,
            crowd=caps.GOSSIP_CROWD,
            sure=caps.GOSSIP_SURE,
            shared=caps.GOSSIP_SHARED,
        )
        self._bad: dict[PeerId, int] = {}
        self._muted: dict[PeerId, float] = {}  # until

    def is_muted(self, peer: PeerId, now_s: float) -> bool:
        """Whether nothing of it is read."""
        return self._muted.get(peer, now_s) > now_s

    def admits(self, peer: PeerId, crowd: str, now_s: float) -> bool:
        """Whether one more message is looked at that a peer of a crowd (p2p/crowds.py) sends."""
        return not self.is_muted(peer, now_s) and self._rates.admits(peer, crowd, now_s)

    def note_bad(self, peer: PeerId, now_s: float) -> bool:
        """Count a message that is not signed; whether the peer is muted by it."""
        num_bad = self._bad.pop(peer, 0) + 1
        if num_bad < MAX_BAD_MESSAGES:
            self._bad[peer] = num_bad
            _trim(self._bad)
            return False
        self._muted.pop(peer, None)
        self._muted[peer] = now_s + MUTE_S
        _trim(self._muted)
        return True


def _trim(by_peer: dict[PeerId, Any]) -> None:
    if len(by_peer) > _MAX_PEERS:
        del by_peer[next(iter(by_peer))]
