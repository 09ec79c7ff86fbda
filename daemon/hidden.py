"""Windows that nobody finds any more: those that are being forgotten, and those that are condemned.

Changed on the trio thread; asked from any thread (one look-up).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import trio

from glia.graph.ids import WindowId


class Hidden:
    """Their names.

    Attributes:
        num_changes: what was read while it changed may be of windows that are gone since.
        condemned: false ones, and what liars attest (glia/store/foreign.py has it durably).
    """

    def __init__(self) -> None:
        self.num_changes = 0
        self.condemned: set[WindowId] = set()
        self._names: set[WindowId] = set()
        self._shown = trio.Event()

    def __contains__(self, window_id: object) -> bool:
        return window_id in self._names or window_id in self.condemned

    def hide(self, window_ids: Collection[WindowId]) -> None:
        """They are not to be found from now on, wherever they still are."""
        self.num_changes += 1
        self._names |= set(window_ids)

    def show(self, window_ids: Collection[WindowId]) -> None:
        """They are gone, or stay after all: whoever makes them anew may."""
        self.num_changes += 1
        self._names -= set(window_ids)
        shown, self._shown = self._shown, trio.Event()
        shown.set()

    def condemn(self, window_ids: Collection[WindowId]) -> None:
        """They are not to be found until this node makes the same itself."""
        self.num_changes += 1
        self.condemned |= set(window_ids)

    def acquit(self, window_ids: Collection[WindowId]) -> None:
        """This node made the same."""
        self.num_changes += 1
        self.condemned -= set(window_ids)

    async def until_shown(self, window_ids: Iterable[WindowId]) -> None:
        """Return when none of these is being forgotten."""
        names = list(window_ids)
        while any(name in self._names for name in names):
            await self._shown.wait()
