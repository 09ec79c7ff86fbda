"""One direction between two hosts: how long bytes take, and what happens to them."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

_RETRANSMIT_S = 0.2  # TCP's least time before it sends a lost segment again


@dataclass(frozen=True, slots=True)
class Link:
    """How two hosts are connected, in each direction.

    Attributes:
        latency_s: one way.
        bytes_per_s: shared by all that goes this way.
        loss: share of segments that have to be sent again, and of gossip that is lost.
        corrupt: share of segments of which one bit is turned over. On a real network no
            handshake or cipher lets that through: it stands for a peer with bad memory.
        refuse: share of dials that fail.
    """

    latency_s: float = 0.0005
    bytes_per_s: float = math.inf
    loss: float = 0.0
    corrupt: float = 0.0
    refuse: float = 0.0


class Road:
    """One direction of a link; everything that goes this way queues for its bandwidth."""

    def __init__(self, link: Link, source: random.Random) -> None:
        self.link = link
        self._source = source
        self._free_at_s = -math.inf
        self._cut_at_s = math.inf
        self._healed_at_s = math.inf

    @property
    def is_cut(self) -> bool:
        return self.cut_at_s is not None

    @property
    def cut_at_s(self) -> float | None:
        """Since when it has been cut, where it is."""
        return self._cut_at_s if self._cut_at_s < math.inf == self._healed_at_s else None

    def cut(self, now_s: float) -> None:
        """From now on nothing arrives."""
        if not self.is_cut:
            self._cut_at_s, self._healed_at_s = now_s, math.inf

    def heal(self, now_s: float) -> None:
        """What was sent in the meantime is sent again."""
        if self.is_cut:
            self._healed_at_s = now_s

    def arrival_s(self, size_bytes: int, now_s: float) -> float:
        """When bytes that are sent now would arrive, were the road never cut."""
        self._free_at_s = max(now_s, self._free_at_s) + size_bytes / self.link.bytes_per_s
        again_s = max(_RETRANSMIT_S, 2 * self.link.latency_s) if self.draw(self.link.loss) else 0
        return self._free_at_s + self.link.latency_s + again_s

    def delivered_s(self, arrival_s: float) -> float:
        """When they do arrive, as far as is known; infinite while the road is cut."""
        if self._cut_at_s < arrival_s <= self._healed_at_s:
            return self._healed_at_s + self.link.latency_s
        return arrival_s

    def spoiled(self, data: bytes) -> bytes:
        """The bytes, with a bit turned over now and then."""
        if not data or not self.draw(self.link.corrupt):
            return data
        changed = bytearray(data)
        bit = self._source.randrange(8 * len(data))
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    def draw(self, share: float) -> bool:
        """True for this share of calls, by the seed."""
        return share > 0 and self._source.random() < share
