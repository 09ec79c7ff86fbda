"""F8: files of the store removed while it is open: misses, no crash, and it goes on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from glia.errors import GliaError, NotFound
from glia.store.disk import DiskStore
from glia.store.keys import USAGE, segment_of
from tests.builders import make_chain, make_profile
from tests.store_parts import MIB, assert_holds, assert_never_wrong, load, sealed, segment_files

PROFILE = make_profile(num_layers=4, head_dim=8)
WINDOWS = sealed(make_chain(12, profile=PROFILE))


def _opened(path: Path) -> DiskStore:
    return DiskStore(path, 64 * MIB, segment_bytes=16 * 1024)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    for part in (WINDOWS[:6], WINDOWS[6:]):
        store = _opened(path)
        store.put(part)
        store.close()
    return path


@pytest.mark.fault("F8")
def test_a_segment_removed_is_a_miss(path: Path) -> None:
    store = _opened(path)
    files = segment_files(path)
    assert len(files) >= 2
    files[0].unlink()
    right = assert_never_wrong(store, WINDOWS)
    assert any(right)
    assert not all(right)
    lost = WINDOWS[right.index(False)]
    assert store.get(lost.record.window_id) is None
    with pytest.raises(NotFound):
        store.read_block(lost.record.blocks[0])
    assert store.stats().num_windows == sum(right)
    assert set(store.windows()) == {
        w.record.window_id for w, here in zip(WINDOWS, right, strict=True) if here
    }
    store.put(WINDOWS)
    assert_holds(store, WINDOWS)
    store.close()
    store = _opened(path)
    assert_holds(store, WINDOWS)
    store.close()


@pytest.mark.fault("F8")
def test_a_segment_cut_short_is_a_miss(path: Path) -> None:
    store = _opened(path)
    file = segment_files(path)[0]
    with open(file, "r+b") as raw:
        raw.truncate(file.stat().st_size // 2)
    right = assert_never_wrong(store, WINDOWS)
    assert any(right)
    assert not all(right)
    assert store.stats().num_quarantined > 0
    store.put(WINDOWS)
    assert_holds(store, WINDOWS)
    store.close()


def _segments(path: Path) -> None:
    shutil.rmtree(path / "segments")


def _index(path: Path) -> None:
    shutil.rmtree(path / "index")


def _tables(path: Path) -> None:
    for file in (path / "index").glob("*.ldb"):
        file.unlink()


def _everything(path: Path) -> None:
    shutil.rmtree(path)


@pytest.mark.fault("F8")
@pytest.mark.parametrize("remove", [_segments, _index, _tables, _everything])
def test_whole_directories_removed(path: Path, remove: Callable[[Path], None]) -> None:
    store = _opened(path)
    remove(path)
    assert_never_wrong(store, WINDOWS)
    for window in WINDOWS:
        store.get(window.record.window_id)
        store.find(window.prefix_key)
    store.check()
    try:
        store.put(WINDOWS)
        assert_never_wrong(store, WINDOWS)
    except GliaError as error:
        assert error.exit_code in (5, 6)  # noqa: PT017
    with suppress(GliaError):
        store.forget([WINDOWS[-1].record.window_id])
        assert load(store, WINDOWS[-1:]) == [None]
    store.touch([window.record.window_id for window in WINDOWS])
    store.spare([WINDOWS[0].record.window_id])
    store.children(WINDOWS[0].record.window_id)
    store.stats()
    store.close()
    store = _opened(path)
    assert_never_wrong(store, WINDOWS)
    store.put(WINDOWS)
    assert_holds(store, WINDOWS)
    store.close()


@pytest.mark.fault("F8")
def test_a_segment_removed_while_closed_is_a_miss(path: Path) -> None:
    segment_files(path)[-1].unlink()
    store = _opened(path)
    known = [segment_of(key) for key in store._catalog.index.keys(USAGE)]
    assert known == [int(file.stem) for file in segment_files(path)]
    right = assert_never_wrong(store, WINDOWS)
    assert any(right)
    assert not all(right)
    assert store.stats().num_windows == sum(right)
    assert load(store, WINDOWS[:1]) != [None]
    store.put(WINDOWS)
    assert_holds(store, WINDOWS)
    store.close()
