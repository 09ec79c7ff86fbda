"""Who says to have what, bounded so that strangers push nobody else out. Pure state.

A place under a key goes by a draw, in which neither who comes first nor who comes last has
the better chance: each key and peer has a rank that only this node can compute. Who proved
to be good (the caller says who) loses its place to nobody who did not. Peer ids cost nothing: a
place among all is lost by those behind the address that has most of them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Generic, TypeVar

import blake3

from p2p.host import PeerId

MAX_CLAIMS = 50_000
MAX_KEYS_PER_PEER = 64
MAX_PEERS_PER_KEY = 128
_LOOKED_AT = 1_000  # of the oldest, for one that is not proven

T = TypeVar("T")
V = TypeVar("V")


class Draw:
    """Ranks that cannot be foreseen. Args: secret: 32 bytes, of this node and this run."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def rank(self, key: bytes, name: bytes) -> bytes:
        """The lower, the better."""
        return blake3.blake3(key + name, key=self._secret).digest(16)

    def kept(self, key: bytes, names: Iterable[bytes], most: int) -> list[bytes]:
        """Of these names under a key, each once, the ones that keep their place, in order."""
        found = list(dict.fromkeys(names))
        chosen = set(sorted(found, key=lambda name: self.rank(key, name))[:most])
        return [name for name in found if name in chosen]


class Claims(Generic[V]):
    """A value for each key and peer: at most so many of one peer, under one key, and in all.

    Of one peer's keys the oldest goes; under a key, who loses the draw in the crowd
    (p2p/crowds.py) that has most there; in all, the oldest of the crowd that has most. Who is
    proven goes last.

    Args:
        is_proven: whether a peer gave what it said to have, before.
    """

    def __init__(
        self,
        draw: Draw,
        is_proven: Callable[[PeerId], bool],
        *,
        most: int = MAX_CLAIMS,
        per_peer: int = MAX_KEYS_PER_PEER,
        per_key: int = MAX_PEERS_PER_KEY,
    ) -> None:
        self._draw, self._is_proven = draw, is_proven
        self._most, self._per_peer, self._per_key = most, per_peer, per_key
        self._by_key: dict[bytes, dict[PeerId, V]] = {}
        self._by_peer: dict[PeerId, OrderedDict[bytes, None]] = {}
        self._order: OrderedDict[tuple[bytes, PeerId], str] = OrderedDict()  # the oldest first
        self._by_crowd: dict[str, OrderedDict[tuple[bytes, PeerId], None]] = {}

    def __len__(self) -> int:
        return len(self._order)

    def put(self, key: bytes, peer: PeerId, value: V, crowd: str = "") -> None:
        """A peer says to have a key; again makes it the newest. Args: crowd: it is one of."""
        self.remove(key, peer)
        self._by_key.setdefault(key, {})[peer] = value
        keys = self._by_peer.setdefault(peer, OrderedDict())
        keys[key] = None
        self._order[key, peer] = crowd
        self._by_crowd.setdefault(crowd, OrderedDict())[key, peer] = None
        if len(keys) > self._per_peer:
            self.remove(next(iter(keys)), peer)
        if len(self._by_key[key]) > self._per_key:
            self.remove(key, self._loser(key))
        if len(self._order) > self._most:
            self.remove(*self._oldest())

    def of(self, key: bytes) -> dict[PeerId, V]:
        """Who says to have a key, the oldest first."""
        return dict(self._by_key.get(key, {}))

    def remove(self, key: bytes, peer: PeerId) -> None:
        """One that is not there is no matter."""
        if (key, peer) not in self._order:
            return
        _take(self._by_crowd, self._order.pop((key, peer)), (key, peer))
        _take(self._by_peer, peer, key)
        _take(self._by_key, key, peer)

    def oldest(self) -> tuple[bytes, PeerId, V] | None:
        """What was said first of all that is kept."""
        if not self._order:
            return None
        key, peer = next(iter(self._order))
        return key, peer, self._by_key[key][peer]

    def _loser(self, key: bytes) -> PeerId:
        peers = self._by_key[key]
        strangers = [peer for peer in peers if not self._is_proven(peer)] or list(peers)
        crowds = Counter(self._order[key, peer] for peer in strangers)
        largest = max(crowds.values())
        drawn = [peer for peer in strangers if crowds[self._order[key, peer]] == largest]
        return max(drawn, key=lambda peer: self._draw.rank(key, peer.encode()))

    def _oldest(self) -> tuple[bytes, PeerId]:
        largest = max(self._by_crowd.values(), key=len)
        for key, peer in islice(largest, _LOOKED_AT):
            if not self._is_proven(peer):
                return key, peer
        return next(iter(largest))


K = TypeVar("K")


def _take(table: dict[K, T], key: K, name: object) -> None:
    """Without a name, and without what is empty then."""
    inner = table[key]
    del inner[name]  # type: ignore[attr-defined]
    if not inner:
        del table[key]
