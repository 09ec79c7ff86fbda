"""Which peers said on a topic that they have what: whom to ask before the directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from glia.graph.ids import PrefixKey
from p2p.claims import Claims, Draw
from p2p.host import PeerId

_MAX_PEERS = 16  # of one question


class Hints:
    """What was said in this run. Anybody may say anything: bounded as p2p/claims.py says."""

    def __init__(self, secret: bytes, is_proven: Callable[[PeerId], bool]) -> None:
        self._is_proven = is_proven
        self._claims = Claims[None](Draw(secret), is_proven)

    def said(self, peer: PeerId, key: PrefixKey) -> None:
        """A peer sent a link to a window with this key."""
        self._claims.put(key, peer, None)

    def peers(self, keys: Sequence[PrefixKey]) -> list[PeerId]:
        """Who said to have one of these; who is proven first, then who has the longest.

        Args: keys: of one prompt, the shortest first.
        """
        found: dict[PeerId, None] = {}
        for key in reversed(keys):
            if len(found) < _MAX_PEERS:
                found.update(dict.fromkeys(self._claims.of(key)))
        return sorted(found, key=lambda peer: not self._is_proven(peer))[:_MAX_PEERS]
