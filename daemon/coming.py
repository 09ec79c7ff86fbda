"""Windows on their way from peers that may be named already: what they are is attested, and all
their bytes are wanted at once. Whether they come is another matter: who leases one waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from glia.graph.ids import PrefixKey, WindowId
from glia.graph.window import WindowRecord

_WAIT_S = 0.03  # of one lease: an engine's other requests wait as long for a token


class Tail:
    """What one fetch still brings, in its order; made by Coming.open."""

    def __init__(
        self, coming: Coming, records: Sequence[WindowRecord], keys: Sequence[PrefixKey]
    ) -> None:
        self._coming = coming
        self._awaited: dict[WindowId, trio.Event] = {}
        self.records = {record.window_id: record for record in records}
        self.names = {key: record.window_id for key, record in zip(keys, records, strict=True)}

    def came(self, window_id: WindowId) -> None:
        """It is in L1 now."""
        self.records.pop(window_id, None)
        event = self._awaited.pop(window_id, None)
        if event is not None:
            event.set()

    def close(self) -> None:
        """No more of it comes. Idempotent."""
        self._coming.close(self)
        for name in list(self.records):
            self.came(name)

    async def until_came(self, window_id: WindowId) -> None:
        """Return when it is here, or does not come."""
        if window_id in self.records:
            await self._awaited.setdefault(window_id, trio.Event()).wait()


class Coming:
    """Those of all fetches. Owned by the trio thread; `find` and `get` are for any thread."""

    def __init__(self) -> None:
        self._tails: tuple[Tail, ...] = ()

    def open(self, records: Sequence[WindowRecord], keys: Sequence[PrefixKey]) -> Tail:
        """Name what a fetch brings. Whoever opens it closes it.

        Args: keys: the prefix key of each.
        """
        tail = Tail(self, records, keys)
        self._tails = (*self._tails, tail)
        return tail

    def close(self, tail: Tail) -> None:
        """As Tail.close."""
        self._tails = tuple(each for each in self._tails if each is not tail)

    def __contains__(self, window_id: WindowId) -> bool:
        return self.get(window_id) is not None

    def find(self, key: PrefixKey) -> list[WindowId]:
        """Windows under a prefix key; one may be here since."""
        found = (tail.names.get(key) for tail in self._tails)
        return [name for name in found if name is not None]

    def get(self, window_id: WindowId) -> WindowRecord | None:
        """The record of a window that is not here yet."""
        for tail in self._tails:
            record = tail.records.get(window_id)
            if record is not None:
                return record
        return None

    async def until_came(self, window_ids: Sequence[WindowId]) -> None:
        """Return when all of these are here or do not come; or soon, where that takes long."""
        with trio.move_on_after(_WAIT_S):
            for tail in self._tails:
                for name in window_ids:
                    await tail.until_came(name)
