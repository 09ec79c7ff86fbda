"""Which windows of L1 and L2 came from a peer and were not used yet."""

from __future__ import annotations

from collections import OrderedDict

from glia.graph.ids import WindowId

_MAX_KEPT = 2**16


class Arrivals:
    """Their names, the oldest forgotten first. Owned by the trio thread."""

    def __init__(self) -> None:
        self._names: OrderedDict[WindowId, None] = OrderedDict()

    def add(self, window_id: WindowId) -> None:
        """It came just now."""
        self._names[window_id] = None
        while len(self._names) > _MAX_KEPT:
            self._names.popitem(last=False)

    def use(self, window_id: WindowId) -> bool:
        """It is used. Returns whether this is the first time since it came."""
        return window_id in self._names and self._names.pop(window_id) is None
