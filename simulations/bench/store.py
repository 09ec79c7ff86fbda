"""R7, store: durable ingest of 64 KiB blocks into L2, against a file, and against LevelDB alone.

Both sides write groups of eight windows of 32 layers (16 MiB, what gliad's writer hands
down at once) and return from each only when it is durable. The file gets, group by
group, as many bytes as the segment and then as many as the index got, and is synced
after both: the same bytes, the same number of syncs, from one buffer in one call. LevelDB, as it
comes, gets each group in a batch that is synced.
Hashing is no part of it: particles are hashed where they are sealed, before L2.
At the cap the store is full before the first round, and evicts as much as it takes.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plyvel

from glia.graph.block import encode_header
from glia.graph.ids import BlockId, ModelId, PrefixKey, WindowId, digest
from glia.graph.profile import KvScheme, LayerShape, PositionMode, Profile
from glia.graph.window import WindowRecord
from glia.store.base import SealedWindow
from glia.store.disk import DiskStore
from simulations.bench.report import Row

PROFILE = Profile(
    16, KvScheme.F16, PositionMode.RELATIVE, tuple(LayerShape(n, 8, 128) for n in range(32))
)
_MODEL = ModelId(digest(b"bench"))
_GROUP_WINDOWS = 8
_MB = 1e6
_CAP_BYTES = 64 * 1024**3
_REACHED_CAP_BYTES = 512 * 1024**2

Group = list[SealedWindow]


def run(quick: bool, *, at_cap: bool = False) -> tuple[list[Row], dict[str, Any]]:
    """Medians over rounds of alternating sides.

    Args: at_cap: the cap is reached, and eviction running.
    """
    num_rounds, num_groups = (3, 3) if quick else (9, 6)
    cap_bytes = _REACHED_CAP_BYTES if at_cap else _CAP_BYTES
    source = random.Random(7)
    ours, other, alone, load, written = [], [], [], [], []
    with tempfile.TemporaryDirectory(prefix="gliad-bench-store-") as directory:
        group_bytes = _stored_bytes(Path(directory) / "one", source)
        store = DiskStore(Path(directory) / "store", cap_bytes)
        while at_cap and not store.stats().num_evicted:
            store.put(_group(source))
        with (
            open(Path(directory) / "file", "wb", buffering=0) as file,
            plyvel.DB(str(Path(directory) / "leveldb"), create_if_missing=True) as leveldb,
        ):
            for _ in range(num_rounds):
                groups = [_group(source) for _ in range(num_groups)]
                num_bytes = num_groups * _GROUP_WINDOWS * PROFILE.window_particle_bytes
                before = _num_written()
                ours.append(num_bytes / _timed_put(store, groups) / _MB)
                written.append((_num_written() - before) / num_bytes)
                num_stored = num_groups * group_bytes
                other.append(num_bytes / _timed_file(file.fileno(), groups, num_stored) / _MB)
                if not at_cap:
                    alone.append(num_bytes / _timed_leveldb(leveldb, groups) / _MB)
                load.append(num_bytes / _timed_load(store, groups) / _MB)
        store.close()
    rows = [_row("R7c" if at_cap else "R7", ours, other)]
    if not at_cap:
        rows.append(_row("store", ours, alone))
    return rows, {
        "worst and best round, MB/s": f"{min(ours):.0f} - {max(ours):.0f}",
        "bytes written / bytes put": statistics.median(written),
        "verified load, page cache warm, MB/s": statistics.median(load),
    }


def _row(name: str, ours: Sequence[float], other: Sequence[float]) -> Row:
    """Round by round."""
    ratio = statistics.median(mine / theirs for mine, theirs in zip(ours, other, strict=True))
    return Row(name, ratio, *(f"{statistics.median(each):.0f} MB/s" for each in (ours, other)))


def _stored_bytes(path: Path, source: random.Random) -> int:
    """What one group takes in a store: segment and index."""
    store = DiskStore(path, _CAP_BYTES)
    store.put(_group(source))
    store.close()
    return store.stats().used_bytes


def _group(source: random.Random) -> Group:
    """Eight windows in one buffer, as the arena has them."""
    size = PROFILE.window_particle_bytes
    buffer = memoryview(bytearray(source.randbytes(size * _GROUP_WINDOWS)))
    return [_window(source, buffer[at : at + size]) for at in range(0, len(buffer), size)]


def _window(source: random.Random, buffer: memoryview) -> SealedWindow:
    tokens = tuple(source.randrange(50_000) for _ in range(PROFILE.block_size))
    blocks, particles = [], []
    at = 0
    for shape, size in zip(PROFILE.layers, PROFILE.particle_sizes, strict=True):
        prev = BlockId(source.randbytes(32))
        particle = buffer[at : at + size]
        particle[: PROFILE.header_bytes] = encode_header(_MODEL, PROFILE, shape, prev, tokens)
        blocks.append(BlockId(digest(particle)))
        particles.append(particle)
        at += size
    record = WindowRecord(
        model_id=_MODEL,
        profile_id=PROFILE.profile_id,
        numerics_class="native:bench",
        prev=WindowId(source.randbytes(32)),
        position_start=0,
        tokens=tokens,
        blocks=tuple(blocks),
    )
    _ = record.window_id  # named where it is sealed, before L2
    return SealedWindow(record, PrefixKey(source.randbytes(32)), particles)


def _timed_put(store: DiskStore, groups: Sequence[Group]) -> float:
    started = time.perf_counter()
    for group in groups:
        store.put(group)
    return time.perf_counter() - started


def _timed_file(fd: int, groups: Sequence[Group], num_stored: int) -> float:
    data = [b"".join(p for window in group for p in window.particles) for group in groups]
    rest = bytes(num_stored // len(groups) - len(data[0]))
    started = time.perf_counter()
    for group in data:
        for part in (group, rest):
            assert os.write(fd, part) == len(part)
            os.fdatasync(fd)
    return time.perf_counter() - started


def _timed_leveldb(leveldb: plyvel.DB, groups: Sequence[Group]) -> float:
    started = time.perf_counter()
    for group in groups:
        with leveldb.write_batch(sync=True) as batch:
            for window in group:
                for name, particle in zip(window.record.blocks, window.particles, strict=True):
                    batch.put(name, bytes(particle))
    return time.perf_counter() - started


def _timed_load(store: DiskStore, groups: Sequence[Group]) -> float:
    names = [window.record.window_id for group in groups for window in group]
    size = PROFILE.window_particle_bytes
    buffer = memoryview(bytearray(size * len(names)))
    into = [buffer[at : at + size] for at in range(0, len(buffer), size)]
    started = time.perf_counter()
    assert all(store.load(names, into))
    return time.perf_counter() - started


def _num_written() -> int:
    """Bytes this process has sent to the disk."""
    with open("/proc/self/io", encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
