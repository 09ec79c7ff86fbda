"""Dirty windows of L1 go to L2, in groups, as soon as they are there.

A window that the store refuses stays dirty (its bytes are in L1 alone) and is tried
again when somebody waits for it, or needs its room. Owned by the trio thread; only the
store's `put` runs in a worker.
"""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence

import trio

from daemon.l1 import L1Table
from glia.errors import GliaError, StoreBroken
from glia.graph.ids import WindowId
from glia.store.base import BlockStore, SealedWindow

_GROUP_BYTES = 16 * 1024 * 1024
_GROUP_WINDOWS = 256
_QUIET_S = 0.25  # without another window that is to be written later
_LATE_S = 2.0  # until one such window is written, however many more come
_log = logging.getLogger("gliad.writer")


class Writer:
    """The one that drains L1 into L2.

    Attributes:
        failure: why the last window that could not be written could not; None since one was.
    """

    def __init__(self, table: L1Table, arena: memoryview, store: BlockStore) -> None:
        self._table = table
        self._arena = arena
        self._store = store
        self._queue: OrderedDict[WindowId, None] = OrderedDict()
        self._stuck: dict[WindowId, GliaError] = {}
        self._writing: Collection[WindowId] = ()
        self._added = trio.Event()
        self._progress = trio.Event()
        self._num_waiting = 0
        self._quiet_s, self._late_s = -math.inf, math.inf
        self.failure: GliaError | None = None

    def add(self, window_id: WindowId) -> None:
        """A dirty window is to be written."""
        self._queue[window_id] = None
        self._quiet_s = -math.inf
        self._added.set()

    def add_later(self, window_id: WindowId) -> None:
        """The same, when no more come; nobody would miss it but the peer that is asked again.

        Writing takes the interpreter's lock from whoever brings windows: a sixth of their speed.
        """
        self._queue[window_id] = None
        now_s = trio.current_time()
        self._late_s = min(self._late_s, now_s + _LATE_S)
        self._quiet_s = now_s + _QUIET_S
        self._added.set()

    async def flush(self, window_ids: Iterable[WindowId]) -> None:
        """Return when none of these is dirty any more.

        Raises: StoreFull, StoreBroken where one cannot be written.
        """
        waited = [name for name in window_ids if self._table.is_dirty(name)]
        self._retry(waited)
        while waited:
            for name in waited:
                if name in self._stuck:
                    raise self._stuck[name]
            await self.wait_progress()
            waited = [name for name in waited if self._table.is_dirty(name)]

    async def flush_all(self) -> None:
        """Return when all that is dirty now is written; what cannot be stays dirty."""
        self._retry(list(self._stuck))
        waited = list(self._queue)  # others may add without end
        while waited:
            await self.wait_progress()
            waited = [name for name in waited if name in self._queue]

    async def recovers(self) -> bool:
        """Whether something that was refused could be written now; the rest is then queued."""
        if not self._stuck:
            return False
        oldest = next(iter(self._stuck))
        self._retry([oldest])
        while oldest in self._queue:
            await self.wait_progress()
        if oldest in self._stuck:
            return False
        self._retry(list(self._stuck))
        return True

    async def withdraw(self, window_ids: Collection[WindowId]) -> None:
        """These are not to be written any more. Returns when none of them is being written."""
        while any(name in window_ids for name in self._writing):
            await self.wait_progress()
        for name in window_ids:
            self._queue.pop(name, None)
            self._stuck.pop(name, None)
        self.tell_progress()

    def is_refused(self, window_id: WindowId) -> bool:
        """Whether it could not be written, and is not tried again before somebody asks for it."""
        return window_id in self._stuck

    async def wait_progress(self) -> None:
        """Return after the next group was written or refused, or windows were withdrawn."""
        self._num_waiting += 1
        self._added.set()
        try:
            await self._progress.wait()
        finally:
            self._num_waiting -= 1

    def tell_progress(self) -> None:
        """Have those who wait look again."""
        finished, self._progress = self._progress, trio.Event()
        finished.set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be written: what is dirty now stays so."""
        return not self._queue

    async def run(self) -> None:
        """Write for ever. Cancelling waits for the group under way."""
        while True:
            while not self._queue or trio.current_time() < self._due_s:
                self._added = trio.Event()
                with trio.move_on_at(self._due_s if self._queue else math.inf):
                    await self._added.wait()
            self._late_s = math.inf
            self._writing = self._next_group()
            await self._write(self._writing)
            self._writing = ()
            self.tell_progress()

    @property
    def _due_s(self) -> float:
        """When to write what is to be written."""
        return -math.inf if self._num_waiting else min(self._quiet_s, self._late_s)

    def _retry(self, window_ids: Sequence[WindowId]) -> None:
        for name in window_ids:
            if self._stuck.pop(name, None) is not None:
                self.add(name)

    def _next_group(self) -> list[WindowId]:
        group: list[WindowId] = []
        size_bytes = 0
        for name in self._queue:
            group.append(name)
            size_bytes += self._table.size_of(name)
            if size_bytes >= _GROUP_BYTES or len(group) == _GROUP_WINDOWS:
                break
        return group

    async def _write(self, group: Sequence[WindowId]) -> None:
        error = await self._put(group)
        if error is not None and len(group) > 1:
            for name in group:  # one by one, so that only those that cannot be written are held up
                await self._write([name])
            return
        for name in group:  # at once: whoever tries a refused one again queues it again
            del self._queue[name]
        if error is None:
            self.failure = None
            return
        if self.failure is None:
            _log.warning("windows cannot be written: %s", error)
        self.failure = error
        self._stuck[group[0]] = error

    async def _put(self, group: Sequence[WindowId]) -> GliaError | None:
        windows = [self._sealed(name) for name in group]
        try:
            await trio.to_thread.run_sync(self._store.put, windows)
        except GliaError as error:
            return error
        except Exception as error:  # whatever it is: the windows stay, and the writer goes on
            _log.exception("writing failed")
            return StoreBroken(f"the store cannot be written: {error}")
        for name in group:
            self._table.mark_clean(name)
        return None

    def _sealed(self, window_id: WindowId) -> SealedWindow:
        record, key = self._table.record(window_id), self._table.key_of(window_id)
        if record is None or key is None:
            raise ValueError("a dirty window left L1")
        ranges = self._table.ranges(window_id)
        return SealedWindow(record, key, [self._arena[at : at + size] for at, size in ranges])
