"""The order of use, and who continues whom.

A use of a window is a use of all windows before it. So only windows that nothing
continues, the leaves, stand in the order (rows `t`); when one goes, the one before
it takes over its last use, and its place if it is a leaf now. Uses are noted in
memory and written with the next batch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import NamedTuple

from glia.graph.ids import WindowId
from glia.store.draft import Draft
from glia.store.keys import NEXT, last_use_key, leaf_key, next_key
from glia.store.schema import decode_number, encode_number

MAX_NOTED = 4096


class Leaf(NamedTuple):
    """A window that nothing continues; the one least recently used sorts first."""

    tick: int
    window_id: WindowId


class Uses:
    """Uses that are not written yet; any thread may note one."""

    def __init__(self, tick: int) -> None:
        """Args: tick: the last use there was."""
        self._lock = threading.Lock()
        self._tick = tick
        self._noted: dict[WindowId, int] = {}

    @property
    def tick(self) -> int:
        """The last use there was; larger is later."""
        return self._tick

    def next(self) -> int:
        """A use is now."""
        with self._lock:
            self._tick += 1
            return self._tick

    def note(self, window_ids: Iterable[WindowId]) -> bool:
        """These were used now, in this order; whether so many are noted that they should be
        written."""
        with self._lock:
            for name in window_ids:
                self._tick += 1
                self._noted[name] = self._tick
            return len(self._noted) >= MAX_NOTED

    def move_to(self, draft: Draft) -> None:
        """Write down what was noted. Raises: IndexDamaged."""
        with self._lock:
            noted, self._noted = self._noted, {}
        for name, tick in noted.items():
            old = draft.get(last_use_key(name))
            if old is None:
                continue
            if draft.remove(leaf_key(decode_number(old), name)) is not None:
                draft.add(leaf_key(tick, name), b"")
            draft.put(last_use_key(name), encode_number(tick))


def enter(draft: Draft, window_id: WindowId, before: WindowId, tick: int) -> None:
    """A window that was not stored is, from now on, after `before`. Raises: IndexDamaged."""
    used = draft.get(last_use_key(before))
    if used is not None:
        draft.remove(leaf_key(decode_number(used), before))
    draft.add(next_key(before, window_id), b"")
    draft.add(last_use_key(window_id), encode_number(tick))
    if not draft.keys(NEXT + window_id):
        draft.add(leaf_key(tick, window_id), b"")


def leave(draft: Draft, window_id: WindowId, before: WindowId) -> Leaf | None:
    """A window is stored no more; the one before it, if that makes it a leaf.

    Raises: IndexDamaged.
    """
    tick = decode_number(draft.remove(last_use_key(window_id)) or b"")
    draft.remove(leaf_key(tick, window_id))
    draft.remove(next_key(before, window_id))
    used = draft.get(last_use_key(before))
    if used is None:
        return None
    tick = max(tick, decode_number(used))
    draft.put(last_use_key(before), encode_number(tick))
    if draft.keys(NEXT + before):
        return None
    draft.add(leaf_key(tick, before), b"")
    return Leaf(tick, before)
