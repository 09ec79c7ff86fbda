"""L2 in memory: the same contract without a disk. For tests, and for nodes that keep nothing."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from glia.errors import HashMismatch, NotFound, StoreBroken, StoreFull
from glia.graph.ids import BlockId, PrefixKey, WindowId, digest, short
from glia.graph.window import WindowRecord
from glia.store.base import CheckReport, Progress, SealedWindow, StoreStats
from glia.store.plan import check_sizes


@dataclass(frozen=True, slots=True)
class _Kept:
    """A window and the blocks that came with it, which go when it goes."""

    record: WindowRecord
    prefix_key: PrefixKey
    own: tuple[BlockId, ...]
    num_bytes: int


class MemoryStore:
    """BlockStore (glia/store/base.py) over dicts. Windows are evicted one by one."""

    def __init__(self, cap_bytes: int) -> None:
        """Args: cap_bytes: what particles and records may take together."""
        self._cap = cap_bytes
        self._lock = threading.RLock()
        self._closed = False
        self._windows: OrderedDict[WindowId, _Kept] = OrderedDict()  # least recently used first
        self._blocks: dict[BlockId, bytes] = {}
        self._used = 0
        self._num_hits = self._num_misses = self._num_quarantined = self._num_evicted = 0

    def put(self, windows: Sequence[SealedWindow]) -> None:
        """See BlockStore."""
        for window in windows:
            check_sizes(window)
        with self._opened():
            self._check_fits(windows)
            # Room for one may be made by dropping what another shares: then that one again.
            while missing := [w for w in windows if not self._used_now(w.record.window_id)]:
                for window in missing:
                    self._keep(window)

    def find(self, key: PrefixKey) -> list[WindowId]:
        """See BlockStore."""
        with self._opened():
            return sorted(name for name, kept in self._windows.items() if kept.prefix_key == key)

    def get(self, window_id: WindowId) -> WindowRecord | None:
        """See BlockStore."""
        with self._opened():
            return self._windows[window_id].record if self._is_whole(window_id) else None

    def load(self, window_ids: Sequence[WindowId], into: Sequence[memoryview]) -> list[bool]:
        """See BlockStore."""
        if len(window_ids) != len(into):
            raise ValueError(f"{len(window_ids)} windows, {len(into)} buffers")
        with self._opened():
            whole = [self._is_whole(name) for name in window_ids]
            answers = [
                here and self._load(name, view)
                for here, name, view in zip(whole, window_ids, into, strict=True)
            ]
            self._num_hits += sum(answers)
            self._num_misses += len(answers) - sum(answers)
            return answers

    def read_block(self, block_id: BlockId) -> bytes:
        """See BlockStore."""
        with self._opened():
            data = self._blocks.get(block_id)
            if data is None:
                self._num_misses += 1
                raise NotFound(f"block {short(block_id)} is not stored")
            if not self._is_good(block_id):
                self._num_misses += 1
                raise HashMismatch(f"block {short(block_id)}: its bytes are not the named ones")
            self._num_hits += 1
            return data

    def has_block(self, block_id: BlockId) -> bool:
        """See BlockStore."""
        with self._opened():
            return block_id in self._blocks

    def windows(self) -> Iterator[WindowId]:
        """See BlockStore."""
        with self._opened():
            return iter(list(self._windows))

    def check(self, progress: Progress | None = None) -> CheckReport:
        """See BlockStore."""
        with self._opened():
            names = list(self._blocks)
            total = len(names) + len(self._windows)
            num_bad = sum(not self._is_good(name) for name in names)
            num_bad_windows = sum(not self._is_whole(name) for name in self._windows)
        if progress is not None:
            progress(total, total)
        return CheckReport(len(names), num_bad, total - len(names), num_bad_windows)

    def stats(self) -> StoreStats:
        """See BlockStore."""
        with self._opened():
            return StoreStats(
                used_bytes=self._used,
                cap_bytes=self._cap,
                num_windows=len(self._windows),
                num_blocks=len(self._blocks),
                num_hits=self._num_hits,
                num_misses=self._num_misses,
                num_quarantined=self._num_quarantined,
                num_evicted=self._num_evicted,
            )

    def close(self) -> None:
        """See BlockStore. What was stored is gone."""
        with self._lock:
            self._closed = True
            self._windows.clear()
            self._blocks.clear()

    def _opened(self) -> threading.RLock:
        if self._closed:
            raise StoreBroken("the store is closed")
        return self._lock

    def _is_whole(self, window_id: WindowId) -> bool:
        kept = self._windows.get(window_id)
        return kept is not None and all(name in self._blocks for name in kept.record.blocks)

    def _is_good(self, block_id: BlockId) -> bool:
        data = self._blocks[block_id]
        if digest(data) == block_id:
            return True
        self._num_quarantined += 1
        del self._blocks[block_id]
        self._used -= len(data)
        return False

    def _load(self, window_id: WindowId, into: memoryview) -> bool:
        self._windows.move_to_end(window_id)
        names = self._windows[window_id].record.blocks
        good = [name in self._blocks and self._is_good(name) for name in names]  # all of them
        if not all(good):
            return False
        particles = [self._blocks[name] for name in names]
        if into.nbytes != sum(map(len, particles)):
            raise ValueError(f"window {short(window_id)} has {sum(map(len, particles))} bytes")
        into[:] = b"".join(particles)
        return True

    def _used_now(self, window_id: WindowId) -> bool:
        whole = self._is_whole(window_id)
        if whole:
            self._windows.move_to_end(window_id)
        return whole

    def _check_fits(self, windows: Sequence[SealedWindow]) -> None:
        blocks = {
            name: memoryview(particle).nbytes
            for window in windows
            for name, particle in zip(window.record.blocks, window.particles, strict=True)
        }
        records = {w.record.window_id: len(w.record.encoding) for w in windows}
        needed = sum(blocks.values()) + sum(records.values())
        if needed > self._cap:
            raise StoreFull(
                f"{needed} bytes do not fit into a store of {self._cap}",
                hint="raise [l2] size in glia.toml",
            )

    def _keep(self, window: SealedWindow) -> None:
        record = window.record
        before = self._windows.pop(record.window_id, None)
        own = list(before.own) if before is not None else []
        self._used -= before.num_bytes if before is not None else 0
        for name, particle in zip(record.blocks, window.particles, strict=True):
            if name not in self._blocks:
                self._blocks[name] = bytes(particle)
                self._used += len(self._blocks[name])
                own.append(name)
        self._used += len(record.encoding)
        while self._used > self._cap:
            self._evict(next(iter(self._windows)))
        kept = _Kept(record, window.prefix_key, tuple(own), len(record.encoding))
        self._windows[record.window_id] = kept

    def _evict(self, window_id: WindowId) -> None:
        kept = self._windows.pop(window_id)
        self._used -= kept.num_bytes
        for name in kept.own:
            self._used -= len(self._blocks.pop(name, b""))
        self._num_evicted += 1
