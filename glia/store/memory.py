"""L2 in memory: the same contract without a disk. For tests, and for nodes that keep nothing."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from glia.errors import HashMismatch, NotFound, StoreBroken, StoreFull
from glia.graph.ids import BlockId, PrefixKey, WindowId, digest, short
from glia.graph.window import WindowRecord
from glia.store.base import CheckReport, Forgotten, Progress, SealedWindow, StoreStats
from glia.store.plan import check_sizes


@dataclass(slots=True)
class _Kept:
    """A window, and when it was last used: larger is later."""

    record: WindowRecord
    prefix_key: PrefixKey
    tick: int


class MemoryStore:
    """BlockStore (glia/store/base.py) over dicts."""

    def __init__(self, cap_bytes: int) -> None:
        """Args: cap_bytes: what particles and records may take together."""
        self._cap = cap_bytes
        self._lock = threading.RLock()
        self._closed = False
        self._windows: dict[WindowId, _Kept] = {}
        self._children: defaultdict[WindowId, set[WindowId]] = defaultdict(set)
        self._blocks: dict[BlockId, bytes] = {}
        self._namers: Counter[BlockId] = Counter()  # how many windows name a block
        self._spared: frozenset[WindowId] | None = frozenset()
        self._used = self._tick = 0
        self._num_hits = self._num_misses = self._num_quarantined = self._num_evicted = 0

    def put(self, windows: Sequence[SealedWindow]) -> None:
        """See BlockStore."""
        for window in windows:
            check_sizes(window)
        with self._opened():
            self._check_fits(windows)
            self._make_room(windows)
            for window in windows:
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

    def children(self, window_id: WindowId) -> list[WindowId]:
        """See BlockStore."""
        with self._opened():
            return sorted(self._children.get(window_id, ()))

    def touch(self, chain: Sequence[WindowId]) -> None:
        """See BlockStore."""
        with self._opened():
            for name in reversed(chain):
                if name in self._windows:
                    self._use(name)
                    return

    def spare(self, windows: Collection[WindowId] | None) -> None:
        """See BlockStore."""
        with self._opened():
            self._spared = frozenset(windows) if windows is not None else None

    def forget(self, windows: Collection[WindowId], progress: Progress | None = None) -> Forgotten:
        """See BlockStore."""
        with self._opened():
            here = [name for name in set(windows) if name in self._windows]
            before = self._used
            for name in here:
                self._remove(name)
            if progress is not None:
                progress(len(here), len(here))
            return Forgotten(len(here), before - self._used)

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

    def read_blocks(
        self, block_ids: Sequence[BlockId], into: memoryview
    ) -> list[memoryview | None]:
        """See BlockStore."""
        found: list[memoryview | None] = []
        at = 0
        for block_id in block_ids:
            try:
                data = self.read_block(block_id)
            except (NotFound, HashMismatch):
                found.append(None)
                continue
            end = at + len(data)
            if end > len(into):
                break
            into[at:end] = data
            found.append(into[at:end])
            at = end
        return found

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
        self._use(window_id)
        names = self._windows[window_id].record.blocks
        good = [name in self._blocks and self._is_good(name) for name in names]  # all of them
        if not all(good):
            return False
        particles = [self._blocks[name] for name in names]
        if into.nbytes != sum(map(len, particles)):
            raise ValueError(f"window {short(window_id)} has {sum(map(len, particles))} bytes")
        into[:] = b"".join(particles)
        return True

    def _use(self, window_id: WindowId) -> None:
        """A use of those before it too: they get its tick when it goes."""
        self._tick += 1
        self._windows[window_id].tick = self._tick

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
        if record.window_id not in self._windows:
            self._windows[record.window_id] = _Kept(record, window.prefix_key, 0)
            self._children[record.prev].add(record.window_id)
            self._namers.update(record.blocks)
            self._used += len(record.encoding)
        for name, particle in zip(record.blocks, window.particles, strict=True):
            if name not in self._blocks:
                self._blocks[name] = bytes(particle)
                self._used += len(self._blocks[name])
        self._use(record.window_id)

    def _make_room(self, windows: Sequence[SealedWindow]) -> None:
        """Evict until these fit, but not what they continue."""
        spared = self._windows.keys() if self._spared is None else self._spared
        kept = {window.record.window_id for window in windows} | spared
        kept |= {window.record.prev for window in windows}
        while self._used + self._growth(windows) > self._cap:
            leaves = [
                (one.tick, name)
                for name, one in self._windows.items()
                if name not in self._children and name not in kept
            ]
            if not leaves:
                raise StoreFull(
                    f"nothing may be evicted: {self._used} bytes are spared, "
                    "or continued by what is put",
                    hint="forget conversations, or raise [l2] size in glia.toml",
                )
            self._remove(min(leaves)[1])
            self._num_evicted += 1

    def _growth(self, windows: Sequence[SealedWindow]) -> int:
        """What keeping these adds."""
        blocks: dict[BlockId, int] = {}
        records: dict[WindowId, int] = {}
        for window in windows:
            record = window.record
            if record.window_id not in self._windows:
                records[record.window_id] = len(record.encoding)
            for name, particle in zip(record.blocks, window.particles, strict=True):
                if name not in self._blocks:
                    blocks[name] = memoryview(particle).nbytes
        return sum(blocks.values()) + sum(records.values())

    def _remove(self, window_id: WindowId) -> None:
        kept = self._windows.pop(window_id)
        before = kept.record.prev
        self._children[before].discard(window_id)
        if not self._children[before]:
            del self._children[before]
        if before in self._windows:
            self._windows[before].tick = max(self._windows[before].tick, kept.tick)
        self._used -= len(kept.record.encoding)
        self._namers.subtract(kept.record.blocks)
        for name in set(kept.record.blocks):
            if not self._namers[name]:
                del self._namers[name]
                self._used -= len(self._blocks.pop(name, b""))
