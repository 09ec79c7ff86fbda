"""L2 on disk: LevelDB names, append-only segments hold. The facade of the store.

One object a directory, one process a directory. See spec/7-store.md for the files and
for what holds after a crash at any moment.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

from glia.errors import GliaError, HashMismatch, NotFound, StoreBroken, StoreFull
from glia.graph.encrypted import Record
from glia.graph.ids import BlockId, PrefixKey, WindowId, short
from glia.graph.window import WindowRecord
from glia.store.base import CheckReport, Forgotten, Progress, StoreStats, WindowDown
from glia.store.check import check_store
from glia.store.commit import CommitQueue
from glia.store.files import sync_directory
from glia.store.index import NO_SPACE, DiskFull
from glia.store.lock import LOCK, StoreLock
from glia.store.opening import open_catalog
from glia.store.plan import check_sizes
from glia.store.reader import Reader
from glia.store.remover import MAX_AT_ONCE, Remover
from glia.store.repair import Mender
from glia.store.reserve import RESERVE_BYTES, Reserve
from glia.store.tail import Tail
from glia.store.writer import Writer

RESERVE = "reserve"
DEFAULT_SEGMENT_BYTES = 128 * 1024 * 1024
_log = logging.getLogger("gliad.store")


class DiskStore:
    """BlockStore (glia/store/base.py) over a directory.

    Particles are trusted on their way in: the arena that sealed or verified them has
    hashed them, and hashing again would cost a tenth (64 KiB) to a third (12 KiB) of the
    write speed. Only sizes are looked at. On the way out every block is hashed, every time.
    """

    def __init__(
        self,
        path: Path,
        cap_bytes: int,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        reserve_bytes: int = 0,
    ) -> None:
        """Open, create, or repair. Where the cap has become smaller, the next `put` or `spare`
        makes room.

        Args:
            cap_bytes: what segments, rows of the index, and the reserve may take together.
            segment_bytes: when to begin a new segment; at most an eighth of the cap.
            reserve_bytes: of the disk, for opening and removing when it is full; at most a 16th
                of the cap, and of the disk.
        Raises: StoreLocked, StoreVersion, StoreFull, StoreBroken.
        """
        self._cap = cap_bytes
        self._closed = False
        self._counting = threading.Lock()
        self._forgetting = threading.Lock()
        self._num_hits = self._num_misses = 0
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chmod(path, 0o700)
            self._lock = StoreLock(path / LOCK)
            with ExitStack() as undo:
                undo.callback(self._lock.release)
                self._reserve = Reserve(path / RESERVE, reserve_bytes, cap_bytes)
                self._reserve.lend()
                self._catalog, start, missing = open_catalog(path)
                undo.callback(self._catalog.index.close)
                self._mender = Mender(self._catalog)
                self._tail = Tail(self._catalog, start, cap_bytes, segment_bytes)
                most_bytes = cap_bytes - self._reserve.wanted_bytes
                self._remover = Remover(self._catalog, self._tail, most_bytes, missing)
                self._writer = Writer(
                    self._catalog,
                    self._mender,
                    self._tail,
                    self._remover,
                    self._reserve,
                    most_bytes,
                )
                self._finish()
                for directory in (path, path.parent):  # what was made here outlives a power cut
                    sync_directory(directory)
                undo.pop_all()
        except OSError as error:
            if error.errno in NO_SPACE:
                hint = f"free {RESERVE_BYTES // 2**20} MiB at {path}, then gliad start"
                raise DiskFull("the disk is full: the store cannot be opened", hint=hint) from error
            raise StoreBroken(f"the store cannot be opened: {error}") from error
        self._reader = Reader(self._catalog, self._mender, self._remover)
        self._queue = CommitQueue(self._catalog.lock, self._writer.commit)

    def put(self, windows: Sequence[WindowDown]) -> None:
        """See BlockStore. Also raises MalformedParticle for sizes that fit no record."""
        for window in windows:
            check_sizes(window)
        self._open()
        if windows:
            self._queue.submit(windows)
            self._finish_scrub()

    def find(self, key: PrefixKey) -> list[WindowId]:
        """See BlockStore."""
        self._open()
        nothing: list[WindowId] = []
        return self._reader.ask(lambda: self._catalog.windows_of(key), nothing)

    def get(self, window_id: WindowId) -> WindowRecord | None:
        """See BlockStore."""
        self._open()
        record = self.get_record(window_id)
        return record if isinstance(record, WindowRecord) else None

    def get_record(self, window_id: WindowId) -> Record | None:
        """The same of a window of either kind."""
        self._open()
        found = self._reader.find(window_id)
        return found.record if found is not None else None

    def has_window(self, window_id: WindowId) -> bool:
        """Whether the index names it, whole or not; does not count as use."""
        self._open()
        return self._reader.ask(partial(self._catalog.is_stored, window_id), False)

    def load(self, window_ids: Sequence[WindowId], into: Sequence[memoryview]) -> list[bool]:
        """See BlockStore. Raises: ValueError for a buffer that is not as long as its window."""
        self._open()
        if len(window_ids) != len(into):
            raise ValueError(f"{len(window_ids)} windows, {len(into)} buffers")
        answers = self._reader.load(window_ids, into)
        self._count(sum(answers), len(answers) - sum(answers))
        return answers

    def children(self, window_id: WindowId) -> list[WindowId]:
        """See BlockStore."""
        self._open()
        nothing: list[WindowId] = []
        return self._reader.ask(lambda: self._catalog.children(window_id), nothing)

    def touch(self, chain: Sequence[WindowId]) -> None:
        """See BlockStore. Noted for the last that is stored: its use is one of those before it."""
        self._open()
        for window_id in reversed(chain):
            if self.has_window(window_id):
                self._reader.note([window_id])
                return

    def spare(self, windows: Collection[WindowId] | None) -> None:
        """See BlockStore. Makes room where the cap has become smaller."""
        self._open()
        with self._catalog.lock, suppress(GliaError):  # the next put says what is wrong
            self._remover.spared = frozenset(windows) if windows is not None else None
            self._writer.freeing(partial(self._remover.make_room, 0))

    def take_reserve(self) -> None:
        """What opening may have given up: call it when nothing else needs room to be opened."""
        with self._catalog.lock, suppress(OSError):  # the next put says what is wrong
            self._reserve.take()

    def forget(self, windows: Collection[WindowId], progress: Progress | None = None) -> Forgotten:
        """See BlockStore. Progress counts windows, then rows of the index.

        One at a time: what goes while the index is copied for another would be in the copy.
        """
        self._open()
        with self._forgetting:
            return self._forget(windows, progress or _nobody)

    def read_block(self, block_id: BlockId) -> bytes:
        """See BlockStore."""
        self._open()
        where = self._reader.ask(lambda: self._catalog.block(block_id), None)
        data = bytearray(where.length if where is not None else 0)
        good = where is not None and self._reader.read_one(block_id, where, memoryview(data))
        self._count(int(bool(good)), int(not good))
        if good:
            return bytes(data)
        if good is None or where is None:
            raise NotFound(f"block {short(block_id)} is not stored")
        raise HashMismatch(f"block {short(block_id)}: its bytes on disk are not the named ones")

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        """See BlockStore."""
        self._open()
        found = self._reader.read_blocks(block_ids, into)
        num_here = sum(particle is not None for particle in found)
        self._count(num_here, len(found) - num_here)
        return found

    def has_block(self, block_id: BlockId) -> bool:
        """See BlockStore."""
        self._open()
        return self._reader.ask(lambda: self._catalog.block(block_id), None) is not None

    def windows(self) -> Iterator[WindowId]:
        """See BlockStore. Also those that are not whole; what changes meanwhile may be missed."""
        self._open()
        return self._reader.names()

    def check(self, progress: Progress | None = None) -> CheckReport:
        """See BlockStore."""
        self._open()
        return check_store(self._reader, progress or _nobody)

    def stats(self) -> StoreStats:
        """See BlockStore. Hits and misses count windows of load and blocks that were read alone."""
        state = self._catalog.state
        return StoreStats(
            used_bytes=self._catalog.num_bytes + self._reserve.size_bytes,
            cap_bytes=self._cap,
            num_windows=state.num_windows,
            num_blocks=state.num_blocks,
            num_hits=self._num_hits,
            num_misses=self._num_misses,
            num_quarantined=self._catalog.num_quarantined,
            num_evicted=self._remover.num_evicted,
        )

    def close(self) -> None:
        """See BlockStore."""
        with self._catalog.lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._catalog.close(self._tail.close())
            except GliaError:
                return  # last uses are lost, and the next start looks at the newest segment
            finally:
                self._lock.release()

    def _forget(self, windows: Collection[WindowId], progress: Progress) -> Forgotten:
        names = list(dict.fromkeys(windows))
        going = frozenset(names)
        num_windows = num_bytes = 0
        for start in range(0, len(names), MAX_AT_ONCE):
            some = names[start : start + MAX_AT_ONCE]
            with self._catalog.lock:
                forgotten = self._writer.freeing(partial(self._remover.forget, some, going))
            num_windows += forgotten.num_windows
            num_bytes += forgotten.freed_bytes
            progress(start + len(some), len(names))
        if not names and not self._catalog.dead.is_empty:  # it may be what was asked before
            with self._catalog.lock:
                self._writer.changed(self._remover.ensure_erased)
        if names or self._catalog.state.unscrubbed:
            scrub = partial(self._mender.scrub, progress)
            self._writer.with_reserve(partial(self._writer.mended, scrub))
        # Shared blocks that were written again may take more than what went.
        return Forgotten(num_windows, max(0, num_bytes))

    def _finish(self) -> None:
        """What a former process could not end; what the disk refuses now, the next puts do."""
        try:
            self._writer.changed(self._remover.lose)
        except (StoreBroken, StoreFull) as error:
            _log.warning("segments are missing; windows that were there stay named: %s", error)
        self._finish_scrub()
        if self._catalog.state.unscrubbed:
            _log.warning("names of what was forgotten are in the index's files until it has room")

    def _finish_scrub(self) -> None:
        """Write the index's files anew where forgetting had to leave that."""
        if not self._catalog.state.unscrubbed or not self._forgetting.acquire(blocking=False):
            return  # or somebody is just forgetting
        try:
            self._writer.mended(self._mender.scrub_left)
        except (StoreBroken, StoreFull) as error:
            _log.warning("the index's files could not be written anew: %s", error)
        finally:
            self._forgetting.release()

    def _count(self, num_hits: int, num_misses: int) -> None:
        with self._counting:
            self._num_hits += num_hits
            self._num_misses += num_misses

    def _open(self) -> None:
        if self._closed:
            raise StoreBroken("the store is closed")


def _nobody(done: int, total: int) -> None:
    """Where nobody wants to know how far it is."""
