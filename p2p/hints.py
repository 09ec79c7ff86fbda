"""Which peers said on a topic that they have what: whom to ask before the directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from glia.graph.ids import PrefixKey
from p2p.choosing import by_turns
from p2p.claims import Claims, Draw
from p2p.host import PeerId

_MAX_PEERS = 16  # of one question


class Hints:
    """What was said in this run. Anybody may say anything: bounded as p2p/claims.py says.

    Args:
        is_proven: whether a peer gave what it said to have, before.
        crowd: whose connections a peer's are counted with (p2p/crowds.py).
    """

    def __init__(
        self,
        secret: bytes,
        is_proven: Callable[[PeerId], bool],
        crowd: Callable[[PeerId], str],
    ) -> None:
        self._is_proven, self._crowd = is_proven, crowd
        self._claims = Claims[str](Draw(secret), is_proven)

    def said(self, peer: PeerId, key: PrefixKey) -> None:
        """A peer sent a link to a window with this key."""
        crowd = self._crowd(peer)
        self._claims.put(key, peer, crowd, crowd)

    def peers(self, keys: Sequence[PrefixKey]) -> list[PeerId]:
        """Who said to have one of these; who is proven first, then one of each crowd in turn, of
        which those that have the longest first.

        Args: keys: of one prompt, the shortest first.
        """
        found: dict[PeerId, str] = {}
        for key in reversed(keys):
            for peer, crowd in self._claims.of(key).items():
                found.setdefault(peer, crowd)
        proven = [peer for peer in found if self._is_proven(peer)]
        crowds: dict[str, list[PeerId]] = {}
        for peer, crowd in found.items():
            if not self._is_proven(peer):
                crowds.setdefault(crowd, []).append(peer)
        return [*proven, *by_turns(*crowds.values())][:_MAX_PEERS]
