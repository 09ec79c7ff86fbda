"""The disk refuses: a typed error, nothing half visible, reads go on, writes too once it gives way.

The kernel's limit on the size of a file (RLIMIT_FSIZE) makes it refuse at an exact byte.
"""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from glia.errors import NotFound, StoreBroken, StoreFull
from glia.store.base import Buffer, SealedWindow
from glia.store.disk import DiskStore
from tests.builders import WIDE, make_chain
from tests.store_parts import MIB, assert_holds, load, sealed, segment_files

CAP = 64 * MIB


@contextmanager
def files_at_most(num_bytes: int) -> Iterator[None]:
    """No file of this process grows beyond `num_bytes`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.spec(30)
def test_a_segment_that_cannot_grow(tmp_path: Path) -> None:
    windows = sealed(make_chain(8, profile=WIDE))
    store = DiskStore(tmp_path / "store", CAP)
    store.put(windows[:2])
    before = store.stats()
    with files_at_most(400_000):
        for _ in range(3):
            with pytest.raises(StoreFull) as caught:
                store.put(windows[2:6])
            assert caught.value.hint
        assert store.stats() == before
        assert load(store, windows[2:6]) == [None] * 4
        assert_holds(store, windows[:2])
        store.put(windows[2:3])  # small enough
    store.put(windows)
    assert_holds(store, windows)
    assert store.check().bad_windows == 0
    on_disk = sum(file.stat().st_size for file in segment_files(tmp_path / "store"))
    assert on_disk <= store.stats().used_bytes  # what was given up has been given back
    store.close()
    store = DiskStore(tmp_path / "store", CAP)
    assert_holds(store, windows)
    store.close()


def _put_until_full(store: DiskStore, windows: Sequence[SealedWindow]) -> int:
    """How many could be put, one by one."""
    for done, window in enumerate(windows):
        try:
            store.put([window])
        except StoreFull:
            return done
    return len(windows)


@pytest.mark.spec(30)
def test_an_index_that_cannot_grow(tmp_path: Path) -> None:
    windows = sealed(make_chain(120))
    store = DiskStore(tmp_path / "store", CAP, segment_bytes=4096)
    with files_at_most(24 * 1024):
        done = _put_until_full(store, windows)
        assert 10 < done < 119
        assert load(store, windows[done : done + 1]) == [None]
        assert_holds(store, windows[:done])
    store.put(windows[done:])
    assert_holds(store, windows)
    assert store.check().bad_windows == 0
    store.close()
    store = DiskStore(tmp_path / "store", CAP)
    assert_holds(store, windows)
    store.close()


@pytest.mark.spec(30)
@pytest.mark.parametrize(
    ("number", "expected"), [(errno.ENOSPC, StoreFull), (errno.EIO, StoreBroken)]
)
@pytest.mark.parametrize("call", ["writev", "fdatasync", "fsync"])
def test_each_call_may_fail(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
    expected: type[Exception],
) -> None:
    windows = sealed(make_chain(6))
    store = DiskStore(tmp_path / "store", CAP)
    if call != "fsync":  # of the directory, when the first segment is made
        store.put(windows[:2])
    half = len(windows[2].particles[0]) // 2

    def refuse(fd: int, pieces: Sequence[Buffer] = ()) -> int:
        if pieces:
            os.write(fd, memoryview(pieces[0])[:half])
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(expected):
            store.put(windows[2:])
    assert load(store, windows[2:]) == [None] * 4
    store.put(windows)
    assert_holds(store, windows)
    assert store.check().bad_windows == 0
    store.close()
    store = DiskStore(tmp_path / "store", CAP)
    assert_holds(store, windows)
    store.close()


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """This process can open nothing more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = os.open(os.devnull, os.O_RDONLY)
    os.close(highest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.fault("F6")
def test_without_a_file_descriptor_nothing_is_taken_for_damage(tmp_path: Path) -> None:
    path = tmp_path / "store"
    windows = sealed(make_chain(6))
    for part in (windows[:3], windows[3:5]):
        store = DiskStore(path, CAP)
        store.put(part)
        store.close()
    store = DiskStore(path, CAP, segment_bytes=1024)
    before = store.stats()
    with no_descriptor_left():
        assert load(store, windows[:5]) == [None] * 5
        with pytest.raises(NotFound):
            store.read_block(windows[0].record.blocks[0])
        with pytest.raises(StoreBroken):
            store.put(windows[5:])
    after = store.stats()
    assert (after.num_windows, after.num_blocks) == (before.num_windows, before.num_blocks)
    assert after.num_quarantined == 0
    assert_holds(store, windows[:5])
    store.put(windows)
    assert_holds(store, windows)
    assert store.check().bad_windows == 0
    store.close()
