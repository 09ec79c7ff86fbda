"""What goes when room is needed: least recently used first, leaves before roots."""

from __future__ import annotations

from collections.abc import Set
from heapq import heappop, heappush

from glia.graph.ids import WindowId
from glia.store.index import Index
from glia.store.keys import LEAF, leaf_of
from glia.store.order import Leaf
from glia.store.removal import Removal


def take_oldest(
    removal: Removal, index: Index, keep: Set[WindowId], wanted_bytes: int, max_windows: int
) -> None:
    """Take leaves until so much is freed, or so many, or there are none but those to keep.

    A window that becomes a leaf on the way takes its place in the order at once.
    Raises: IndexDamaged, StoreBroken.
    """
    stored = (Leaf(*leaf_of(key)) for key in index.each_key(LEAF))
    upcoming = next(stored, None)
    fresh: list[Leaf] = []
    while removal.freed_bytes < wanted_bytes and removal.num_windows < max_windows:
        if fresh and (upcoming is None or fresh[0] < upcoming):
            leaf = heappop(fresh)
        elif upcoming is not None:
            leaf, upcoming = upcoming, next(stored, None)
        else:
            return
        if leaf.window_id not in keep:
            before = removal.take(leaf.window_id)
            if before is not None:
                heappush(fresh, before)
