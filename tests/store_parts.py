"""What tests of L2 share: windows to put, ways to read them back and to damage them."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from glia.graph.ids import WindowId
from glia.store.base import BlockStore, SealedWindow
from glia.store.disk import DiskStore
from simulations.virtual.chains import sealed as sealed

FULL = bool(os.environ.get("GLIA_FULL"))
MIB = 1024 * 1024


def joined(window: SealedWindow) -> bytes:
    """What load is to answer."""
    return b"".join(map(bytes, window.particles))


def size_of(windows: Sequence[SealedWindow]) -> int:
    """Particle bytes."""
    return sum(len(joined(window)) for window in windows)


def load(store: BlockStore, windows: Sequence[SealedWindow]) -> list[bytes | None]:
    """What the store answers for windows: bytes, or None for a miss."""
    buffers = [bytearray(len(joined(window))) for window in windows]
    names = [window.record.window_id for window in windows]
    answers = store.load(names, [memoryview(buffer) for buffer in buffers])
    return [bytes(b) if good else None for b, good in zip(buffers, answers, strict=True)]


def assert_holds(store: BlockStore, windows: Sequence[SealedWindow]) -> None:
    """Every question about these windows is answered as they were put."""
    assert load(store, windows) == [joined(window) for window in windows]
    for window in windows:
        name = window.record.window_id
        assert store.get(name) == window.record
        assert name in store.find(window.prefix_key)
        for block_id, particle in zip(window.record.blocks, window.particles, strict=True):
            assert store.has_block(block_id)
            assert store.read_block(block_id) == bytes(particle)


def assert_never_wrong(store: BlockStore, windows: Sequence[SealedWindow]) -> list[bool]:
    """Right bytes or a miss; which."""
    answers = load(store, windows)
    for window, answer in zip(windows, answers, strict=True):
        assert answer is None or answer == joined(window)
    return [answer is not None for answer in answers]


def segment_files(path: Path) -> list[Path]:
    """Segments of a store, oldest first."""
    return sorted((path / "segments").glob("*.seg"))


def index_files(path: Path) -> list[Path]:
    """Tables and logs of a store's index."""
    files = (path / "index").iterdir()
    return sorted(file for file in files if file.suffix in (".ldb", ".log"))


def flip_bit(file: Path, position: int) -> None:
    """Turn over bit `position` of a file, in place."""
    with open(file, "r+b", buffering=0) as raw:
        raw.seek(position // 8)
        byte = raw.read(1)[0]
        raw.seek(position // 8)
        raw.write(bytes([byte ^ 1 << position % 8]))


def flip_random_bit(files: Sequence[Path], rng: random.Random) -> Path:
    """Turn over one bit, each bit of all files being as likely; which file."""
    sizes = [file.stat().st_size for file in files]
    position = rng.randrange(8 * sum(sizes))
    for file, size in zip(files, sizes, strict=True):
        if position < 8 * size:
            flip_bit(file, position)
            return file
        position -= 8 * size
    raise AssertionError("unreachable")


def names(windows: Sequence[SealedWindow]) -> set[WindowId]:
    """Window ids."""
    return {window.record.window_id for window in windows}


def killed(store: DiskStore) -> None:
    """Let go of the files without writing anything, as a killed process does."""
    store._catalog.index.close()
    store._tail.close()
    store._lock.release()


def disk_bytes(path: Path) -> int:
    """What all files below a directory take on the disk."""
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())


def data_bytes(file: Path) -> int:
    """What of a file is in no hole."""
    fd = os.open(file, os.O_RDONLY)
    try:
        found, end = 0, 0
        with suppress(OSError):  # ENXIO: no more data
            while True:
                start = os.lseek(fd, end, os.SEEK_DATA)
                end = os.lseek(fd, start, os.SEEK_HOLE)
                found += end - start
        return found
    finally:
        os.close(fd)


def sentinels(windows: Sequence[SealedWindow], living: Sequence[SealedWindow] = ()) -> list[bytes]:
    """32 bytes of each thing that forgetting has to remove: names, tokens, keys, payload.

    Args: living: what stays, and may have some of it: the name of the one before, say.
    """
    found = []
    for window in windows:
        record = window.record
        tokens = b"".join(token.to_bytes(4, "little") for token in record.tokens)
        found += [record.window_id, window.prefix_key, tokens[:32], tokens[-32:], *record.blocks]
        found += [bytes(p)[at : at + 32] for p in window.particles for at in (-64, -99)]
    stays = b"".join(w.record.encoding + w.prefix_key + joined(w) for w in living)
    stays += b"".join(window.record.window_id for window in living)
    return [sentinel for sentinel in found if sentinel not in stays]


def hits(path: Path, looked_for: Sequence[bytes]) -> list[tuple[str, str]]:
    """Which of these are in which raw files below a directory."""
    found = []
    for file in sorted(path.rglob("*")):
        if file.is_file():
            data = file.read_bytes()
            found += [(file.name, sentinel.hex()) for sentinel in looked_for if sentinel in data]
    return found
