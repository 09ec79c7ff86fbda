"""What a link does to packets: it takes time, it is only so wide, it loses some, it may be cut."""

from __future__ import annotations

import random
from dataclasses import dataclass

QUEUE_S = 0.1  # of waiting; what would wait longer is dropped, as a full router does


@dataclass(frozen=True)
class Shape:
    """A link.

    Attributes:
        rate: bytes/s each way; 0: as fast as it goes.
        delay_s: each way.
        loss: share of packets, each way.
        is_cut: nothing arrives, and nobody is told.
    """

    rate: float = 0.0
    delay_s: float = 0.0
    loss: float = 0.0
    is_cut: bool = False


class Lane:
    """One way of a link. Times are those of one clock."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._free_s = 0.0

    def arrives_s(self, num_bytes: int, now_s: float, shape: Shape) -> float | None:
        """When a packet that enters now arrives; None: never."""
        if shape.is_cut or self._random.random() < shape.loss:
            return None
        begins_s = max(now_s, self._free_s)
        if begins_s - now_s > QUEUE_S:
            return None
        self._free_s = begins_s + (num_bytes / shape.rate if shape.rate else 0.0)
        return self._free_s + shape.delay_s
