"""Which values the directory takes: links, under the prefix key of what they attest.

And which it keeps: peers send them, so each has a bounded share (p2p/claims.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from glia.errors import MalformedParticle
from glia.graph.link import accept_link
from p2p.claims import Claims, Draw
from p2p.host import PeerId

MAX_VALUES = 32  # under one key
MAX_VALUES_BYTES = 32 * 1024  # of these together
VALUE_LIFE_S = 24 * 3600.0  # since it was last sent
_MAX_PER_PEER = 4  # under one key: it signs each once
_MAX_CLAIMS = 4096  # keys of peers


def is_value(key: bytes, value: bytes) -> bool:
    """Whether `value` is a link, signed, not in the future, that belongs under `key`."""
    try:
        link = accept_link(value, time.time())
    except MalformedParticle:
        return False
    return link.claim.prefix_key == key


def kept_values(draw: Draw, key: bytes, values: Iterable[bytes]) -> list[bytes]:
    """Of these values of a key those that are kept: whoever came first or last, by lot."""
    kept = draw.kept(key, values, MAX_VALUES)
    while sum(map(len, kept)) > MAX_VALUES_BYTES:
        kept = draw.kept(key, kept, len(kept) - 1)
    return kept


class KeptValues:
    """What this node keeps for others: a few of each peer, under each key and in all.

    Args: is_proven: as p2p.claims.Claims has it.
    """

    def __init__(self, draw: Draw, is_proven: Callable[[PeerId], bool]) -> None:
        self._draw = draw
        self._claims = Claims[dict[bytes, float]](
            draw, is_proven, most=_MAX_CLAIMS, per_key=MAX_VALUES
        )

    def __len__(self) -> int:
        return len(self._claims)

    def put(
        self, key: bytes, peer: PeerId, values: Sequence[bytes], now_s: float, crowd: str = ""
    ) -> None:
        """A peer sent these, all of them valid. Args: crowd: as Claims.put has it."""
        kept = dict.fromkeys(values, now_s + VALUE_LIFE_S)
        for value, until_s in self._claims.of(key).get(peer, {}).items():
            kept.setdefault(value, until_s)
        self._claims.put(key, peer, dict(islice(kept.items(), _MAX_PER_PEER)), crowd)

    def of(self, key: bytes, now_s: float) -> list[bytes]:
        """Those that have not expired."""
        alive = [
            value
            for values in self._claims.of(key).values()
            for value, until_s in values.items()
            if now_s < until_s
        ]
        return kept_values(self._draw, key, alive)

    def remove(self, key: bytes) -> None:
        """All of a key. One that is not kept is no matter."""
        for peer in self._claims.of(key):
            self._claims.remove(key, peer)

    def expire(self, now_s: float) -> int:
        """Forget what is too old. Returns: of how many peers and keys."""
        num = 0
        while (oldest := self._claims.oldest()) and max(oldest[2].values()) <= now_s:
            self._claims.remove(*oldest[:2])
            num += 1
        return num
