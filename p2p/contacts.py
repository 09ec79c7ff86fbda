"""Whom a node knows in the directory, and names to others: Kademlia's buckets. Sans-IO.

Only who answered this node's own question is in a bucket. Who asks it is looked at after
CHECK_S: most of those that are soon gone are gone by then, and nobody was sent to them. Who does
not answer is out at once, and who answered last and found no room takes the place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from p2p.host import PeerId

BUCKET_SIZE = 20
CHECK_S = 30.0
LASTS_S = 600.0  # an answer: then it is looked whether the peer is there still
_MAX_SPARE = 8  # of a bucket, that wait for a place
_MAX_NEW = 64  # that asked, and are to be looked at


@dataclass(slots=True)
class _Bucket:
    known: dict[PeerId, float] = field(default_factory=dict)  # when it answered
    spare: dict[PeerId, float] = field(default_factory=dict)  # the last to answer is the last


class Contacts:
    """BUCKET_SIZE peers for each length of a prefix that they share with this one.

    Who is known stays until it fails, as in Kademlia: who was there for long stays for long.

    Args:
        place: where a peer stands among all.

    Attributes:
        on_new: called when there is one more to be looked at.
    """

    def __init__(self, own: PeerId, place: Callable[[PeerId], int]) -> None:
        self._own, self._place = own, place
        self._buckets: dict[int, _Bucket] = {}
        self._new: dict[PeerId, float] = {}  # since when; the first to ask is the first
        self.on_new: Callable[[], None] = lambda: None

    def asked(self, peer: PeerId, now_s: float) -> None:
        """A peer asked this one: so it was there."""
        bucket = self._bucket(peer)
        is_known = peer in bucket.known or peer in bucket.spare
        if peer != self._own and not is_known and len(self._new) < _MAX_NEW:
            self._new.setdefault(peer, now_s)
            self.on_new()

    def answered(self, peer: PeerId, now_s: float) -> None:
        """A peer answered this one: so it can be reached."""
        if peer == self._own:
            return
        self._new.pop(peer, None)
        bucket = self._bucket(peer)
        if peer in bucket.known or len(bucket.known) < BUCKET_SIZE:
            bucket.known[peer] = now_s
            bucket.spare.pop(peer, None)
            return
        bucket.spare.pop(peer, None)
        bucket.spare[peer] = now_s
        if len(bucket.spare) > _MAX_SPARE:
            del bucket.spare[next(iter(bucket.spare))]

    def failed(self, peer: PeerId) -> None:
        """A peer did not answer."""
        self._new.pop(peer, None)
        bucket = self._bucket(peer)
        bucket.spare.pop(peer, None)
        if bucket.known.pop(peer, None) is not None and bucket.spare:
            last, answered_s = bucket.spare.popitem()
            bucket.known[last] = answered_s

    def due(self, now_s: float, most: int) -> list[PeerId]:
        """Whom to ask whether it is there; then `answered` or `failed`."""
        new = [peer for peer, since_s in self._new.items() if now_s - since_s >= CHECK_S]
        known = [item for bucket in self._buckets.values() for item in bucket.known.items()]
        old = sorted((at_s, peer) for peer, at_s in known if now_s - at_s >= LASTS_S)
        return [*new, *(peer for _, peer in old)][:most]

    def due_s(self) -> float:
        """When the first one is."""
        known = [at_s for bucket in self._buckets.values() for at_s in bucket.known.values()]
        new = next(iter(self._new.values()), math.inf)
        return min(new + CHECK_S, min(known, default=math.inf) + LASTS_S)

    def closest(
        self, target: int, also: Iterable[PeerId] = (), num: int = BUCKET_SIZE
    ) -> list[PeerId]:
        """Of those that are known, and of others; the closest first."""
        known = {peer: None for bucket in self._buckets.values() for peer in bucket.known}
        known.update((peer, None) for peer in also if peer != self._own)
        return sorted(known, key=lambda peer: self._place(peer) ^ target)[:num]

    def _bucket(self, peer: PeerId) -> _Bucket:
        shared = (self._place(self._own) ^ self._place(peer)).bit_length()
        return self._buckets.setdefault(shared, _Bucket())
