"""Which windows of L1 and L2 came from a peer and were not used, or not looked at, yet."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from glia.graph.ids import WindowId

_MAX_KEPT = 2**16


class Arrivals:
    """Their names; of those that were not used the oldest forgotten first. Owned by the trio
    thread.

    Attributes:
        unchecked: those that nobody has looked at (glia/store/foreign.py has it durably).
    """

    def __init__(self) -> None:
        self._names: OrderedDict[WindowId, None] = OrderedDict()
        self.unchecked: set[WindowId] = set()

    def add(self, window_id: WindowId) -> None:
        """It came just now."""
        self.unchecked.add(window_id)
        self._names[window_id] = None
        while len(self._names) > _MAX_KEPT:
            self._names.popitem(last=False)

    def use(self, window_id: WindowId) -> bool:
        """It is used. Returns whether this is the first time since it came."""
        return window_id in self._names and self._names.pop(window_id) is None

    def checked(self, window_ids: Iterable[WindowId]) -> None:
        """They were looked at, or are not a peer's."""
        self.unchecked.difference_update(window_ids)
