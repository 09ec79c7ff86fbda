"""Who knows whom in the directory: Kademlia's buckets, by the distance of ids."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import blake3

from p2p.host import PeerId

BUCKET_SIZE = 20


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


class Table:
    """What one host knows of others: BUCKET_SIZE for each length of a shared prefix.

    Who is known stays until it fails, as in Kademlia; who comes later finds no room.
    """

    def __init__(self, own: PeerId) -> None:
        self._own, self._place = own, place_of(own)
        self._buckets: dict[int, list[PeerId]] = {}

    def add(self, peer: PeerId) -> None:
        bucket = self._bucket(peer)
        if peer != self._own and peer not in bucket and len(bucket) < BUCKET_SIZE:
            bucket.append(peer)

    def remove(self, peer: PeerId) -> None:
        bucket = self._bucket(peer)
        if peer in bucket:
            bucket.remove(peer)

    def closest(self, key: bytes, num: int = BUCKET_SIZE) -> Sequence[PeerId]:
        """Of those that are known."""
        known = [peer for bucket in self._buckets.values() for peer in bucket]
        target = target_of(key)
        return sorted(known, key=lambda peer: place_of(peer) ^ target)[:num]

    def _bucket(self, peer: PeerId) -> list[PeerId]:
        return self._buckets.setdefault((self._place ^ place_of(peer)).bit_length(), [])
