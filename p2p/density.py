"""Whether somebody has made peer ids to be the closest to one key (SECURITY T6). Pure state.

Ids are spread evenly, so how far the 20 closest lie from a key says how many peers there are,
by each look-up again. One that says many times more than the others is crowded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from statistics import median

_FEWEST = 10  # peers, of which the distance says something
_FEWEST_KEYS = 4
_MAX_KEYS = 16
_FACTOR = 8.0  # a network that grows is no attack; one on a key says ten times and more
_SPACE = 2**256


class Density:
    """What this node's look-ups of different keys said."""

    def __init__(self) -> None:
        self._said: OrderedDict[bytes, float] = OrderedDict()

    def is_crowded(self, key: bytes, distances: Sequence[int]) -> bool:
        """Whether the peers closest to a key are too close. Args: distances: in order."""
        if len(distances) < _FEWEST:
            return False
        num_peers = len(distances) * _SPACE / max(distances[-1], 1)
        others = [num for other, num in self._said.items() if other != key]
        self._said[key] = num_peers
        self._said.move_to_end(key)
        if len(self._said) > _MAX_KEYS:
            self._said.popitem(last=False)
        return len(others) >= _FEWEST_KEYS and num_peers > _FACTOR * median(others)
