"""Mending the index of a store that is open: after refused writes, damage, and forgetting."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace
from itertools import islice

from glia.errors import IntegrityError, StoreBroken
from glia.graph.ids import WindowId
from glia.store.base import Progress
from glia.store.catalog import Catalog, Found
from glia.store.index import WRITE_BUFFER_BYTES, DiskFull, Index, IndexDamaged
from glia.store.keys import STATE, window_key
from glia.store.opening import COPY_OF_INDEX, NEW_INDEX
from glia.store.recover import rebuild
from glia.store.reserve import room_bytes
from glia.store.scan import group_at
from glia.store.schema import decode_state

_REBUILD_PAUSE_S = 2.0  # after one that failed: questions are misses meanwhile, not rebuilds
_SCRUB_PAUSE_S = 60.0  # between two that nobody asked for
_ROWS_PER_BATCH = 4096


class Mender:
    """Puts another index in the place of the catalog's, or opens it again."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._no_rebuild_before = 0.0
        self._no_scrub_before = 0.0

    def accept_writes(self, *, few: bool = False) -> None:
        """After a refused write: open the index again, once there is room for it.

        Args: few: what is written next gives room back.
        Raises: DiskFull (reads go on), StoreBroken, IndexDamaged, OSError.
        """
        catalog = self._catalog
        if not catalog.writes_refused:
            return
        needed = catalog.index.opening_bytes if few else 2 * WRITE_BUFFER_BYTES
        if room_bytes(catalog.path) < needed:
            raise DiskFull
        catalog.index.reopen()
        value = catalog.index.get(STATE)
        stored = decode_state(value) if value is not None else None
        state = catalog.state  # numbers of segments may have been skipped since
        if stored is None or replace(stored, next_segment=state.next_segment) != state:
            raise IndexDamaged("the index kept a write that it had refused")
        catalog.writes_refused = False

    def find(self, window_id: WindowId) -> Found | None:
        """A whole window; one whose row was damaged has a right one again, and is counted.

        Raises: IndexDamaged.
        """
        try:
            return self._catalog.find(window_id)
        except IntegrityError:
            with self._catalog.lock:
                self._mend_row(window_id)
                return self._catalog.find(window_id)

    def _mend_row(self, window_id: WindowId) -> None:
        """Take the record from one of the window's groups: their heads repeat it."""
        row = self._catalog.row(window_id)
        for segment, offset, _ in row.groups if row is not None else ():
            with self._catalog.segments.reading(segment) as fd:
                group = group_at(fd, offset) if fd is not None else None
            if row is not None and group is not None and group.record.window_id == window_id:
                row = replace(row, prefix_key=group.prefix_key, encoding=group.record.encoding)
                draft = self._catalog.draft()
                draft.put(window_key(window_id), row.encode())
                self._catalog.apply(draft)
                self._catalog.num_quarantined += 1
                return
        raise IndexDamaged("a window's row is damaged, and so is its group")

    def rebuild(self, seen: int) -> None:
        """Build the index again from the segments, unless that was done since `seen`.

        Raises: StoreBroken, StoreFull.
        """
        catalog = self._catalog
        with catalog.lock:
            if catalog.generation != seen:
                return
            if time.monotonic() < self._no_rebuild_before:
                raise StoreBroken("the index is damaged, and could not be built again")
            self._no_rebuild_before = time.monotonic() + _REBUILD_PAUSE_S
            new = catalog.path / NEW_INDEX
            catalog.dead.erase()  # its rows are lost: groups that are there get new ones
            try:
                state, usages = rebuild(
                    new,
                    catalog.segments,
                    catalog.bad,
                    catalog.state.next_segment,
                    may_be_torn=False,
                )
                catalog.take_index(new, state, usages)
                catalog.dead.erase()
            except OSError as error:
                raise StoreBroken(f"the index cannot be built again: {error}") from error
            self._no_rebuild_before = 0.0

    def scrub_left(self) -> None:
        """Scrub, where forgetting had to leave that, and there is room for it now.

        Raises: as scrub, OSError.
        """
        state = self._catalog.state
        if not state.unscrubbed or time.monotonic() < self._no_scrub_before:
            return
        if room_bytes(self._catalog.path) >= state.index_bytes + 2 * WRITE_BUFFER_BYTES:
            self._no_scrub_before = time.monotonic() + _SCRUB_PAUSE_S
            self.scrub(lambda done, total: None)

    def scrub(self, progress: Progress) -> None:
        """Write the index's files anew, so that they have nothing of rows that were removed.

        LevelDB's own compaction would leave keys in its MANIFEST (where compactions ended),
        and rewrites only what it must. Puts go on until the last rows are taken over; nothing may
        be forgotten meanwhile.

        Args: progress: rows done, and about how many there are.
        Raises: IndexDamaged, StoreFull, StoreBroken.
        """
        path = self._catalog.path / COPY_OF_INDEX
        shutil.rmtree(path, ignore_errors=True)
        with self._catalog.lock:
            changed = self._catalog.index.changed = set()
        copy = Index(path)
        try:
            self._copy_rows(copy, progress)
            with self._catalog.lock:
                # Else it was built again meanwhile, from what is left.
                if self._catalog.index.changed is changed:
                    self._finish_copy(copy, changed)
        except OSError as error:
            raise StoreBroken(f"the index cannot be written anew: {error}") from error
        finally:
            self._catalog.index.changed = None
            copy.close()
            shutil.rmtree(path, ignore_errors=True)

    def _copy_rows(self, copy: Index, progress: Progress) -> None:
        state = self._catalog.state
        total = state.num_blocks + 5 * state.num_windows
        rows = self._catalog.index.each(b"")
        done = 0
        while batch := list(islice(rows, _ROWS_PER_BATCH)):
            copy.write(batch, sync=False)
            done += len(batch)
            progress(min(done, total), total)
        progress(total, total)

    def _finish_copy(self, copy: Index, changed: set[bytes]) -> None:
        catalog = self._catalog
        copy.write([(key, catalog.index.get(key)) for key in changed], sync=False)
        state = replace(catalog.state, unscrubbed=False)
        copy.write([(STATE, state.encode())], sync=True)
        copy.close()
        catalog.index.replace(copy.path)
        catalog.state = state
