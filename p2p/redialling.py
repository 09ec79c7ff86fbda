"""Which peers are to be connected, and when each is dialled. Pure state; times are trio's."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from p2p.host import Address, Found, PeerId

MAX_KEPT = 256
MAX_ADDRESSES = 8  # of one peer
LAST_PAUSE_S = 60.0
_FIRST_PAUSE_S = 1.0
_STEADY_S = 60.0  # who stayed so long is dialled at once when it is lost


@dataclass(slots=True)
class _Kept:
    addresses: tuple[Address, ...]
    num_tries: int = 0
    tried_s: float = 0.0
    next_s: float = 0.0


class Redialling:
    """The longer a peer cannot be kept, the less often it is dialled; once a minute at least."""

    def __init__(self, seed: int | None = None) -> None:
        self._kept: dict[PeerId, _Kept] = {}
        self._random = random.Random(seed)  # noqa: S311 -- spreads load, is no secret

    def keep(self, peer: PeerId, addresses: Sequence[Address]) -> bool:
        """Have it connected from now on; the latest addresses go first. False: too many kept."""
        known = self._kept.get(peer)
        if known is None and len(self._kept) >= MAX_KEPT:
            return False
        before = known.addresses if known else ()
        self._kept[peer] = _Kept(tuple(dict.fromkeys((*addresses, *before)))[:MAX_ADDRESSES])
        return True

    def leave(self, peer: PeerId) -> None:
        """The opposite. One that was not kept is no matter."""
        self._kept.pop(peer, None)

    def peers(self) -> list[PeerId]:
        """All that are kept."""
        return list(self._kept)

    def addresses(self, peer: PeerId) -> tuple[Address, ...]:
        """Where it is dialled; nothing for one that is not kept."""
        return self._kept[peer].addresses if peer in self._kept else ()

    def due(self, connected: Collection[PeerId], now_s: float) -> list[Found]:
        """Whom to dial now. Each counts as tried, however that ends."""
        found = []
        for peer, kept in self._kept.items():
            if peer in connected:
                if now_s - kept.tried_s >= _STEADY_S:
                    kept.num_tries, kept.next_s = 0, now_s
            elif now_s >= kept.next_s:
                self._try(kept, now_s)
                found.append(Found(peer, kept.addresses))
        return found

    def _try(self, kept: _Kept, now_s: float) -> None:
        pause_s = min(LAST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(kept.num_tries, 10))
        kept.num_tries += 1
        kept.tried_s = now_s
        kept.next_s = now_s + pause_s * self._random.uniform(0.5, 1.0)
