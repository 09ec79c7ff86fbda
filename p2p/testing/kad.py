"""Where peers and keys of the directory stand."""

from __future__ import annotations

from functools import lru_cache

import blake3

from p2p.host import PeerId


@lru_cache(maxsize=65_536)
def place_of(peer: PeerId) -> int:
    """Where a peer stands among all."""
    return int.from_bytes(blake3.blake3(peer.encode()).digest(), "big")


def distance(peer: PeerId, key: bytes) -> int:
    """Of a peer from a key."""
    return place_of(peer) ^ target_of(key)


def target_of(key: bytes) -> int:
    """Where a key lies among the peers."""
    return int.from_bytes(blake3.blake3(key).digest(), "big")
