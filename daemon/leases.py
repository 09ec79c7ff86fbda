"""Who has leased which windows of L1: what somebody reads cannot be forgotten under his hands."""

from __future__ import annotations

from collections.abc import Collection

from glia.graph.ids import WindowId

Held = dict[int, tuple[WindowId, ...]]  # a connection's leases, by number


class Leases:
    """Those of all connections. Owned by the trio thread."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[str, Held]] = {}

    def add(self, who: str, held: Held) -> None:
        """A connection's leases: it goes on to change them itself."""
        self._held[id(held)] = (who, held)

    def discard(self, held: Held) -> None:
        """The connection ended. Idempotent."""
        self._held.pop(id(held), None)

    def holders_of(self, window_ids: Collection[WindowId]) -> list[str]:
        """Who has leased one of these."""
        return sorted(
            who
            for who, held in self._held.values()
            if any(name in window_ids for windows in held.values() for name in windows)
        )
