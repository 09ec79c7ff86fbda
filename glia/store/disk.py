"""L2 on disk: LevelDB names, append-only segments hold. The facade of the store.

One object a directory, one process a directory. See spec/7-store.md for the files and
for what holds after a crash at any moment.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

from glia.errors import GliaError, HashMismatch, NotFound, StoreBroken
from glia.graph.ids import BlockId, PrefixKey, WindowId, short
from glia.graph.window import WindowRecord
from glia.store.base import CheckReport, Forgotten, Progress, SealedWindow, StoreStats
from glia.store.catalog import Catalog
from glia.store.check import Blocks, batches, blocks_by_segment
from glia.store.commit import CommitQueue
from glia.store.index import IndexDamaged
from glia.store.lock import StoreLock
from glia.store.plan import check_sizes
from glia.store.reading import Wanted, read_and_verify, read_one
from glia.store.schema import Location, check_format_file
from glia.store.segment import sync_directory
from glia.store.writer import Writer

DEFAULT_SEGMENT_BYTES = 128 * 1024 * 1024

_T = TypeVar("_T")


class DiskStore:
    """BlockStore (glia/store/base.py) over a directory.

    Particles are trusted on their way in: the arena that sealed or verified them has
    hashed them, and hashing again would cost a tenth (64 KiB) to a third (12 KiB) of the
    write speed. Only sizes are looked at. On the way out every block is hashed, every time.
    """

    def __init__(
        self, path: Path, cap_bytes: int, segment_bytes: int = DEFAULT_SEGMENT_BYTES
    ) -> None:
        """Open, create, or repair. Evicts where the cap has become smaller.

        Args:
            cap_bytes: what segments and rows of the index may take together.
            segment_bytes: when to begin a new segment; at most an eighth of the cap.
        Raises: StoreLocked, StoreVersion, StoreFull, StoreBroken.
        """
        self._cap = cap_bytes
        self._closed = False
        self._counting = threading.Lock()
        self._num_hits = self._num_misses = 0
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.chmod(path, 0o700)
            self._lock = StoreLock(path / "lock")
            with ExitStack() as undo:
                undo.callback(self._lock.release)
                check_format_file(path / "format")
                self._catalog = Catalog(path)
                undo.callback(self._catalog.index.close)
                self._writer = Writer(self._catalog, cap_bytes, segment_bytes)
                self._writer.make_room(0, set())
                for directory in (path, path.parent):  # what was made here outlives a power cut
                    sync_directory(directory)
                undo.pop_all()
        except OSError as error:
            raise StoreBroken(f"the store cannot be opened: {error}") from error
        self._queue = CommitQueue(self._catalog.lock, self._writer.commit)

    def put(self, windows: Sequence[SealedWindow]) -> None:
        """See BlockStore. Also raises MalformedParticle for sizes that fit no record."""
        for window in windows:
            check_sizes(window)
        self._open()
        if windows:
            self._queue.submit(windows)

    def find(self, key: PrefixKey) -> list[WindowId]:
        """See BlockStore."""
        nothing: list[WindowId] = []
        return self._ask(lambda: self._catalog.windows_of(key), nothing)

    def get(self, window_id: WindowId) -> WindowRecord | None:
        """See BlockStore."""
        found = self._ask(lambda: self._catalog.find(window_id), None)
        return found.record if found is not None else None

    def load(self, window_ids: Sequence[WindowId], into: Sequence[memoryview]) -> list[bool]:
        """See BlockStore. Raises: ValueError for a buffer that is not as long as its window."""
        if len(window_ids) != len(into):
            raise ValueError(f"{len(window_ids)} windows, {len(into)} buffers")
        answers = [False] * len(window_ids)
        numbers: list[int] = []
        wanted: list[Wanted] = []
        segments: set[int] = set()
        for number, (window_id, view) in enumerate(zip(window_ids, into, strict=True)):
            found = self._ask(partial(self._catalog.find, window_id), None)
            if found is None:
                continue
            if view.nbytes != sum(found.lengths):
                raise ValueError(f"window {short(window_id)} has {sum(found.lengths)} bytes")
            numbers.append(number)
            segments |= found.segments
            wanted.append(Wanted(found.record.blocks, found.lengths, found.spans, view))
        for number, window, bad in zip(
            numbers, wanted, read_and_verify(self._catalog.segments, wanted), strict=True
        ):
            mended = [self._read_again(window, ordinal) for ordinal in bad]  # all of them
            answers[number] = all(mended)
        self._catalog.segments.touch(segments)
        self._count(sum(answers), len(answers) - sum(answers))
        return answers

    def children(self, window_id: WindowId) -> list[WindowId]:
        """See BlockStore."""
        nothing: list[WindowId] = []
        return self._ask(lambda: self._catalog.children(window_id), nothing)

    def touch(self, chain: Sequence[WindowId]) -> None:
        """See BlockStore."""
        for window_id in chain:
            found = self._ask(partial(self._catalog.find, window_id), None)
            if found is not None:
                self._catalog.segments.touch(found.segments)

    def spare(self, windows: Collection[WindowId]) -> None:
        """See BlockStore."""
        self._writer.spared = frozenset(windows)

    def forget(self, windows: Collection[WindowId], progress: Progress | None = None) -> Forgotten:
        """See BlockStore."""
        self._open()
        names = set(windows)
        with self._catalog.lock:
            forgotten = self._catalog.forget(names)
        if progress is not None:
            progress(len(names), len(names))
        return forgotten

    def read_block(self, block_id: BlockId) -> bytes:
        """See BlockStore."""
        self._open()
        where = self._ask(lambda: self._catalog.block(block_id), None)
        data = bytearray(where.length if where is not None else 0)
        good = where is not None and self._read_one(block_id, where, memoryview(data))
        self._count(int(bool(good)), int(not good))
        if good:
            return bytes(data)
        if good is None or where is None:
            raise NotFound(f"block {short(block_id)} is not stored")
        raise HashMismatch(f"block {short(block_id)}: its bytes on disk are not the named ones")

    def has_block(self, block_id: BlockId) -> bool:
        """See BlockStore."""
        return self._ask(lambda: self._catalog.block(block_id), None) is not None

    def windows(self) -> Iterator[WindowId]:
        """See BlockStore. Also those that are not whole; a snapshot."""
        nothing: list[WindowId] = []
        return iter(self._ask(self._catalog.all_windows, nothing))

    def check(self, progress: Progress | None = None) -> CheckReport:
        """See BlockStore."""
        nothing: list[WindowId] = []
        names = self._ask(self._catalog.all_windows, nothing)
        total = self._catalog.state.num_blocks + len(names)
        checked = bad = 0
        nowhere: Blocks = {}
        for batch in batches(self._ask(lambda: blocks_by_segment(self._catalog.index), nowhere)):
            for window, wrong in zip(
                batch, read_and_verify(self._catalog.segments, batch), strict=True
            ):
                bad += bool(wrong) and not self._read_again(window, 0)
            checked += len(batch)
            if progress is not None:
                progress(min(checked, total), total)
        num_whole = 0
        for done, name in enumerate(names, start=1):
            num_whole += self.get(name) is not None
            if progress is not None and done % 1024 == 0:
                progress(min(checked + done, total), total)
        if progress is not None:
            progress(total, total)
        return CheckReport(checked, bad, len(names), len(names) - num_whole)

    def stats(self) -> StoreStats:
        """See BlockStore. Hits and misses count windows of load and blocks of read_block."""
        state = self._catalog.state
        return StoreStats(
            used_bytes=self._catalog.num_bytes,
            cap_bytes=self._cap,
            num_windows=state.num_windows,
            num_blocks=state.num_blocks,
            num_hits=self._num_hits,
            num_misses=self._num_misses,
            num_quarantined=self._catalog.num_quarantined,
            num_evicted=self._writer.num_evicted,
        )

    def close(self) -> None:
        """See BlockStore."""
        with self._catalog.lock:
            if self._closed:
                return
            self._closed = True
            try:
                self._writer.close()
            except GliaError:
                return  # last uses are lost, and the next start looks at the newest segment
            finally:
                self._lock.release()

    def _read_again(self, window: Wanted, ordinal: int) -> bool:
        """Once more, from where the block's own row says; quarantine what is bad there too."""
        block_id = window.blocks[ordinal]
        at = sum(window.lengths[:ordinal])
        where = self._ask(lambda: self._catalog.block(block_id), None)
        if where is None or where.length != window.lengths[ordinal]:
            return False
        return bool(self._read_one(block_id, where, window.into[at : at + where.length]))

    def _read_one(self, block_id: BlockId, where: Location, into: memoryview) -> bool | None:
        """Whether the bytes are as named; False quarantines; None where they cannot be had."""
        try:
            good = read_one(self._catalog.segments, block_id, where, into)
        except StoreBroken:
            return None  # no word against the bytes: nothing is removed
        if good is None:
            self._ask(lambda: self._catalog.lose({where.segment}), None)
        elif not good:
            self._ask(lambda: self._catalog.quarantine(block_id, where), None)
        return good

    def _ask(self, question: Callable[[], _T], miss: _T) -> _T:
        """The answer; from a new index where this one is damaged; a miss where that fails too."""
        self._open()
        seen = self._catalog.generation
        try:
            try:
                return question()
            except IndexDamaged:
                self._catalog.rebuild(seen)
                return question()
        except GliaError:
            return miss

    def _count(self, num_hits: int, num_misses: int) -> None:
        with self._counting:
            self._num_hits += num_hits
            self._num_misses += num_misses

    def _open(self) -> None:
        if self._closed:
            raise StoreBroken("the store is closed")
