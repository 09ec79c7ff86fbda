"""How often peers may ask for something that costs: decisions, pure. Times are seconds.

Peer ids cost nothing, so those behind one address are held together too (p2p/crowds.py). Many
addresses are within reach of few; so what all together may have is bounded as well, but for a
little that each address has in any case: no number of others takes that away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

_MAX_KNOWN = 4096  # who asked last, of peers and of addresses

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Rate:
    """So many a second, and so many at once."""

    per_s: float
    burst: float


class Buckets(Generic[K]):
    """A bucket for each who asks; of those that did not for longest it is taken to be full."""

    def __init__(self, rate: Rate, most: int = _MAX_KNOWN) -> None:
        self._rate, self._most = rate, most
        self._levels: dict[K, tuple[float, float]] = {}  # what is in it, when

    def __len__(self) -> int:
        return len(self._levels)

    def has(self, key: K, cost: float, now_s: float) -> bool:
        """Whether there is so much in it."""
        return self._level(key, now_s) >= min(cost, self._rate.burst)

    def take(self, key: K, cost: float, now_s: float) -> None:
        """Take it out; what costs more than there ever is takes all."""
        level = self._level(key, now_s) - min(cost, self._rate.burst)
        self._levels.pop(key, None)
        self._levels[key] = level, now_s
        if len(self._levels) > self._most:
            del self._levels[next(iter(self._levels))]

    def _level(self, key: K, now_s: float) -> float:
        level, before_s = self._levels.get(key, (self._rate.burst, now_s))
        return min(self._rate.burst, level + (now_s - before_s) * self._rate.per_s)


class Rates:
    """Of one kind of request.

    Args:
        peer, crowd: the most that one may have.
        sure: what a crowd has whatever others ask for.
        shared: beyond that, all together.
    """

    def __init__(self, *, peer: Rate, crowd: Rate, sure: Rate, shared: Rate) -> None:
        self._peers, self._crowds = Buckets[str](peer), Buckets[str](crowd)
        self._sure, self._shared = Buckets[str](sure), Buckets[None](shared, 1)

    def admits(self, peer: str, crowd: str, now_s: float, cost: float = 1.0) -> bool:
        """Whether a request is looked at. One that is not costs its sender nothing."""
        if not (self._peers.has(peer, cost, now_s) and self._crowds.has(crowd, cost, now_s)):
            return False
        if self._sure.has(crowd, cost, now_s):
            self._sure.take(crowd, cost, now_s)
        elif self._shared.has(None, cost, now_s):
            self._shared.take(None, cost, now_s)
        else:
            return False
        self._peers.take(peer, cost, now_s)
        self._crowds.take(crowd, cost, now_s)
        return True
