"""Whose gossip is listened to: decisions, without I/O."""

from __future__ import annotations

from typing import Any

from p2p.host import PeerId
from p2p.libp2p.caps import MAX_BAD_MESSAGES, MAX_MESSAGES_PER_S, MUTE_S

_MAX_PEERS = 1024


class Muting:
    """A bucket of MAX_MESSAGES_PER_S for each peer, and no hearing for who sends bad ones."""

    def __init__(self) -> None:
        self._buckets: dict[PeerId, tuple[float, float]] = {}  # tokens, when
        self._bad: dict[PeerId, int] = {}
        self._muted: dict[PeerId, float] = {}  # until

    def is_muted(self, peer: PeerId, now_s: float) -> bool:
        """Whether nothing of it is read."""
        return self._muted.get(peer, now_s) > now_s

    def admits(self, peer: PeerId, now_s: float) -> bool:
        """Whether one more message of a peer is looked at."""
        if self.is_muted(peer, now_s):
            return False
        tokens, before_s = self._buckets.pop(peer, (float(MAX_MESSAGES_PER_S), now_s))
        tokens = min(MAX_MESSAGES_PER_S, tokens + (now_s - before_s) * MAX_MESSAGES_PER_S)
        is_admitted = tokens >= 1
        self._buckets[peer] = tokens - is_admitted, now_s
        _trim(self._buckets)
        return is_admitted

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
