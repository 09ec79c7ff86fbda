"""L1 as a table: which windows are in the arena, and who may go. Pure decisions, no I/O.

A window's particles are entered as one extent in layer order. Nothing pinned or dirty is
ever dropped. Owned by the trio thread; `record`, `key_of` and `find` may be
called from any thread (one look-up of an immutable value).
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from daemon.l1_blocks import Blocks
from glia.graph.ids import BlockId, PrefixKey, WindowId
from glia.graph.window import WindowRecord


@dataclass(slots=True)
class _Window:
    record: WindowRecord
    key: PrefixKey
    offsets: bytes  # u64 little-endian, one per layer
    size_bytes: int
    dirty: bool
    pins: int
    hot_step: int


class L1Table:
    """Windows of L1 by name.

    Attributes:
        num_evicted: windows dropped to make room or on request.
        dirty_bytes: bytes of windows that are not in L2 yet.
        step: decode steps seen so far, of all engines.
    """

    def __init__(self, total_bytes: int, hot_steps: int) -> None:
        self._blocks = Blocks(total_bytes)
        self._hot_steps = hot_steps
        self._windows: dict[WindowId, _Window] = {}
        self._order: OrderedDict[WindowId, None] = OrderedDict()  # least recently used first
        self._by_key: dict[PrefixKey, tuple[WindowId, ...]] = {}
        self.num_evicted = 0
        self.dirty_bytes = 0
        self.step = 0

    # -- looking: changes no order ---------------------------------------------------------

    def __len__(self) -> int:
        return len(self._windows)

    def __contains__(self, window_id: WindowId) -> bool:
        return window_id in self._windows

    @property
    def used_bytes(self) -> int:
        """Bytes held or reserved."""
        return self._blocks.used_bytes

    @property
    def total_bytes(self) -> int:
        """The cap."""
        return self._blocks.total_bytes

    @property
    def num_reserved(self) -> int:
        """Extents that are neither entered nor given back yet."""
        return self._blocks.num_reserved

    def names(self) -> list[WindowId]:
        """All windows, least recently used first."""
        return list(self._order)

    def record(self, window_id: WindowId) -> WindowRecord | None:
        """The record of a window that is here."""
        window = self._windows.get(window_id)
        return None if window is None else window.record

    def key_of(self, window_id: WindowId) -> PrefixKey | None:
        """The prefix key of a window that is here."""
        window = self._windows.get(window_id)
        return None if window is None else window.key

    def find(self, key: PrefixKey) -> tuple[WindowId, ...]:
        """Windows that are here under a prefix key."""
        return self._by_key.get(key, ())

    def size_of(self, window_id: WindowId) -> int:
        """Bytes of a window that is here, counting shared blocks."""
        return self._windows[window_id].size_bytes

    def is_pinned(self, window_id: WindowId) -> bool:
        """Whether somebody uses the window."""
        window = self._windows.get(window_id)
        return window is not None and window.pins > 0

    def is_dirty(self, window_id: WindowId) -> bool:
        """Whether the window is here and not yet in L2."""
        window = self._windows.get(window_id)
        return window is not None and window.dirty

    def offsets(self, window_id: WindowId) -> bytes:
        """Where each layer's particle starts: u64 little-endian."""
        return self._windows[window_id].offsets

    def ranges(self, window_id: WindowId) -> list[tuple[int, int]]:
        """(offset, size) of each layer's particle."""
        return self._blocks.ranges(self._windows[window_id].record.blocks)

    # -- room -------------------------------------------------------------------------------

    def reserve(self, size_bytes: int, count: int) -> list[int]:
        """Offsets of `count` extents of `size_bytes` each; drops what may go.

        Fewer where all that is left is pinned, dirty or reserved.
        """
        offsets: list[int] = []
        if size_bytes > self.total_bytes:  # nothing need go for what will not fit
            return offsets
        victims = self._victims()
        for _ in range(count):
            while (offset := self._blocks.reserve(size_bytes)) is None:
                victim = next(victims, None)
                if victim is None:
                    return offsets
                self._drop(victim)
            offsets.append(offset)
        return offsets

    def cancel(self, offset: int) -> int:
        """Give a reserved extent back unused. Returns its size."""
        return self._blocks.cancel(offset)

    def stale_ranges(self, start: int) -> list[tuple[int, int]]:
        """(start, end) of what is free from `start` on and was ever used, by offset."""
        return self._blocks.stale_ranges(start)

    def enter(
        self,
        offset: int,
        record: WindowRecord,
        key: PrefixKey,
        particle_sizes: Sequence[int],
        *,
        dirty: bool,
    ) -> bool:
        """Let a filled extent become a window, most recently used; False where it was known.

        Bytes that are here already are not kept twice.
        """
        window_id = record.window_id
        if window_id in self._windows:
            self._blocks.cancel(offset)
            self._order.move_to_end(window_id)
            return False
        size_bytes, offsets = self._blocks.enter(offset, record.blocks, particle_sizes)
        packed = struct.pack(f"<{len(offsets)}Q", *offsets)
        self._windows[window_id] = _Window(
            record, key, packed, size_bytes, dirty, pins=0, hot_step=self.step - self._hot_steps
        )
        self._order[window_id] = None
        self._by_key[key] = (*self._by_key.get(key, ()), window_id)
        self.dirty_bytes += size_bytes if dirty else 0
        return True

    # -- use ---------------------------------------------------------------------------------

    def touch(self, window_id: WindowId) -> None:
        """Use a window, if it is here."""
        if window_id in self._windows:
            self._order.move_to_end(window_id)

    def pin(self, window_id: WindowId) -> None:
        """Let a window stay until as many `unpin`; changes no order."""
        self._windows[window_id].pins += 1

    def unpin(self, window_id: WindowId) -> None:
        """The opposite of one `pin`; changes no order."""
        window = self._windows[window_id]
        if window.pins < 1:
            raise ValueError("unpinned more often than pinned")
        window.pins -= 1

    def heat(self, tip: WindowId | None, num_steps: int) -> None:
        """`num_steps` decode steps ran over the chain of `tip`: its windows are hot from now.

        Where none ran, nothing becomes hot: prefill is no decoding.
        """
        if not num_steps:
            return
        self.step += num_steps
        self.keep_hot(tip)

    def keep_hot(self, tip: WindowId | None) -> None:
        """The chain of `tip` is as hot as if it had been decoded over just now."""
        while tip is not None and (window := self._windows.get(tip)) is not None:
            window.hot_step = self.step
            tip = window.record.before

    def mark_clean(self, window_id: WindowId) -> None:
        """The window is durable in L2."""
        window = self._windows[window_id]
        if window.dirty:
            window.dirty = False
            self.dirty_bytes -= window.size_bytes

    def discard(self, window_id: WindowId) -> bool:
        """Drop one window; False where it is pinned or dirty."""
        window = self._windows[window_id]
        if window.pins or window.dirty:
            return False
        self._drop(window_id)
        return True

    def forget(self, window_ids: Iterable[WindowId]) -> int:
        """Drop windows for good, dirty ones too. Returns how many were here.

        Raises: ValueError where one is pinned.
        """
        names = [name for name in window_ids if name in self._windows]
        if any(map(self.is_pinned, names)):
            raise ValueError("a window that somebody uses cannot be forgotten")
        for name in names:
            self.mark_clean(name)
            self._drop(name)
        return len(names)

    def mark_dirty(self, window_id: WindowId) -> None:
        """L2 has it no more: it must be written before it may go."""
        window = self._windows[window_id]
        if not window.dirty:
            window.dirty = True
            self.dirty_bytes += window.size_bytes

    def evict(self) -> tuple[int, int]:
        """Drop all that may go. Returns freed bytes and windows."""
        before, count = self.used_bytes, 0
        for window_id in self._victims():
            self._drop(window_id)
            count += 1
        return before - self.used_bytes, count

    # -- inside --------------------------------------------------------------------------------

    def _victims(self) -> Iterator[WindowId]:
        """What may go: least recently used first, windows of recent decode steps last."""
        for want_hot in (False, True):
            for window_id in list(self._order):
                window = self._windows.get(window_id)
                if window is None or window.dirty or window.pins:
                    continue
                if (self.step - window.hot_step < self._hot_steps) is want_hot:
                    yield window_id

    def _drop(self, window_id: WindowId) -> None:
        window = self._windows.pop(window_id)
        del self._order[window_id]
        rest = tuple(w for w in self._by_key[window.key] if w != window_id)
        if rest:
            self._by_key[window.key] = rest
        else:
            del self._by_key[window.key]
        self._blocks.release(window.record.blocks)
        self.num_evicted += 1

    def check(self) -> None:
        """Raise where the table contradicts itself. For tests."""
        refs: dict[BlockId, int] = {}
        for window_id, window in self._windows.items():
            if window_id not in self._by_key.get(window.key, ()):
                raise ValueError("a window is not found under its prefix key")
            for block_id in window.record.blocks:
                refs[block_id] = refs.get(block_id, 0) + 1
        if set(self._order) != set(self._windows):
            raise ValueError("the order of use names other windows")
        if sum(map(len, self._by_key.values())) != len(self._windows):
            raise ValueError("prefix keys name other windows")
        if sum(w.size_bytes for w in self._windows.values() if w.dirty) != self.dirty_bytes:
            raise ValueError("dirty bytes are miscounted")
        self._blocks.check(refs)
