"""F2: the power-cut model: what was not synced is gone, whole, in part, or out of order."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glia.graph.ids import WindowId
from glia.store.base import SealedWindow
from glia.store.disk import DiskStore
from tests.builders import make_chain, make_profile
from tests.store_parts import (
    FULL,
    MIB,
    assert_holds,
    assert_never_wrong,
    data_bytes,
    hits,
    index_files,
    killed,
    sealed,
    segment_files,
    sentinels,
)

NUM_CUTS = 200 if FULL else 60
PROFILE = make_profile(num_layers=3, head_dim=16)
WINDOWS = sealed(make_chain(10, profile=PROFILE))
SYNCED, LATER = WINDOWS[:5], WINDOWS[5:]


def _opened(path: Path) -> DiskStore:
    return DiskStore(path, 64 * MIB, segment_bytes=12 * 1024)


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A killed store before and after its last put, which also began new segments."""
    root = tmp_path_factory.mktemp("cut")
    store = _opened(root / "live")
    store.put(SYNCED)
    shutil.copytree(root / "live", root / "before")
    store.put(LATER)
    shutil.copytree(root / "live", root / "after")
    store.close()
    assert len(segment_files(root / "after")) > len(segment_files(root / "before"))
    return root / "before", root / "after"


@pytest.mark.spec(30)
@pytest.mark.fault("F2")
def test_segments_ahead_of_the_index_are_adopted_or_cut(
    states: tuple[Path, Path], tmp_path: Path
) -> None:
    """The index is as of the last sync; of the segments' later bytes some arrived."""
    before, after = states
    rng = random.Random(2)
    num_adopted = 0
    for number in range(NUM_CUTS):
        path = tmp_path / str(number)
        shutil.copytree(before, path)
        for file in segment_files(after):
            synced = before / "segments" / file.name
            start = synced.stat().st_size if synced.exists() else 0
            data = bytearray(file.read_bytes())
            cut = rng.randint(start, len(data))
            if number % 2:  # the length arrived, a part of the bytes did not
                data[cut : cut + 4096] = bytes(len(data[cut : cut + 4096]))
            else:
                del data[cut:]
            (path / "segments" / file.name).write_bytes(data)
        store = _opened(path)
        assert_holds(store, SYNCED)
        num_adopted += sum(assert_never_wrong(store, LATER))
        assert store.stats().num_quarantined == 0
        assert store.check().bad == 0
        store.put(LATER)
        store.close()
        store = _opened(path)
        assert_holds(store, WINDOWS)
        assert store.check().bad_windows == 0
        store.close()
        shutil.rmtree(path)
    assert 0 < num_adopted < NUM_CUTS * len(LATER)


@pytest.mark.spec(30)
@pytest.mark.fault("F2")
def test_an_index_log_cut_anywhere_loses_no_synced_byte_of_the_segments(
    states: tuple[Path, Path], tmp_path: Path
) -> None:
    _, after = states
    rng = random.Random(3)
    for number in range(NUM_CUTS):
        path = tmp_path / str(number)
        shutil.copytree(after, path)
        log = max(file for file in index_files(path) if file.suffix == ".log")
        with open(log, "r+b") as raw:
            raw.truncate(rng.randrange(log.stat().st_size))
        store = _opened(path)
        assert_holds(store, WINDOWS)
        assert store.check().bad_windows == 0
        store.close()
        shutil.rmtree(path)


@pytest.mark.spec(30)
@pytest.mark.fault("F2")
def test_an_index_ahead_of_its_segments_is_a_miss(
    states: tuple[Path, Path], tmp_path: Path
) -> None:
    """A disk that lies about syncs: the rows arrived, the bytes did not."""
    before, after = states
    path = tmp_path / "store"
    shutil.copytree(after, path)
    for file in segment_files(path):
        synced = before / "segments" / file.name
        if synced.exists():
            shutil.copy(synced, file)
        else:
            file.unlink()
    store = _opened(path)
    assert_holds(store, SYNCED)
    assert not any(assert_never_wrong(store, LATER))
    store.put(WINDOWS)  # a segment of an old name is not begun again
    assert_holds(store, WINDOWS)
    store.close()
    store = _opened(path)
    assert_holds(store, WINDOWS)
    store.close()


@pytest.mark.spec(30)
@pytest.mark.fault("F2")
def test_an_index_that_is_built_again_names_nothing_torn(tmp_path: Path) -> None:
    """The index is gone, too: of what was not synced some pages arrived, whole heads among them."""
    store = DiskStore(tmp_path / "live", 64 * MIB)
    store.put(SYNCED)
    start = segment_files(tmp_path / "live")[0].stat().st_size
    store.put(LATER)
    killed(store)
    data = segment_files(tmp_path / "live")[0].read_bytes()
    rng = random.Random(5)
    num_torn = num_whole = 0
    for _ in range(NUM_CUTS):
        path = tmp_path / "cut"
        shutil.copytree(tmp_path / "live", path)
        shutil.rmtree(path / "index")
        torn = bytearray(data)
        pages = range(start, len(data), 4096)
        for page in rng.sample(pages, rng.randint(1, len(pages) // 2)):
            torn[page : page + 4096] = bytes(len(data[page : page + 4096]))
        segment_files(path)[0].write_bytes(torn)
        store = DiskStore(path, 64 * MIB)
        there = set(store.windows())
        whole = [window for window in WINDOWS if window.record.window_id in there]
        assert whole[: len(SYNCED)] == SYNCED
        assert_holds(store, whole)
        assert store.stats().num_quarantined == 0
        (file,) = segment_files(path)
        assert data_bytes(file) <= store.stats().used_bytes - store._catalog.state.index_bytes
        assert hits(path, sentinels([w for w in LATER if w not in whole], whole)) == []
        num_torn += len(WINDOWS) - len(whole)
        num_whole += len(whole) - len(SYNCED)
        store.put(LATER)
        assert_holds(store, WINDOWS)
        store.close()
        shutil.rmtree(path)
    assert num_torn >= NUM_CUTS
    assert num_whole >= NUM_CUTS


class _Marks:
    """The directory as it was when each synced batch had been written: as of the last mark
    all of it is durable, of what was done to the segments since then any part may be."""

    def __init__(self, store: DiskStore, path: Path, root: Path) -> None:
        self.root = root
        self.expected: list[set[WindowId]] = []
        self._store = store
        self._path = path
        self._write = store._catalog.index.write
        store._catalog.index.write = self.write  # type: ignore[method-assign]

    def write(self, changes: Any, *, sync: bool) -> None:
        self._write(changes, sync=sync)
        if sync:
            shutil.copytree(self._path, self.root / str(len(self.expected)))
            self.expected.append(set(self._store.windows()))


def _cut(mark: Path, following: Path, path: Path, rng: random.Random) -> None:
    """The store at `mark`, with some of what its segments became until `following`."""
    shutil.copytree(mark, path)
    for file in segment_files(following):
        known = path / "segments" / file.name
        old, new = known.read_bytes() if known.exists() else b"", file.read_bytes()
        kept = bytearray(rng.choice((old, new[: len(old)])))  # erased ranges: as before, or not
        kept += new[len(old) : rng.randint(len(old), len(new))]
        if kept:
            known.write_bytes(kept)
    still = {file.name for file in segment_files(following)}
    for file in segment_files(path):
        if file.name not in still and rng.random() < 0.5:
            file.unlink()


@pytest.mark.spec(30)
@pytest.mark.fault("F2")
def test_a_power_cut_while_windows_are_evicted_and_forgotten(tmp_path: Path) -> None:
    cap, segment_bytes = 96 * 1024, 16 * 1024
    rng = random.Random(4)
    pool: dict[WindowId, SealedWindow] = {}
    store = DiskStore(tmp_path / "live", cap, segment_bytes)
    marks = _Marks(store, tmp_path / "live", tmp_path / "marks")
    seed = 0
    while len(marks.expected) < NUM_CUTS + 1:
        seed += 1
        windows = sealed(make_chain(rng.randint(1, 4), seed=seed))
        twin = replace(windows[0].record, numerics_class="native:twin")
        windows.append(SealedWindow(twin, windows[0].prefix_key, windows[0].particles))
        pool |= {window.record.window_id: window for window in windows}
        store.put(windows)
        if rng.random() < 0.1:
            store.forget(rng.sample(sorted(store.windows()), 3))
    assert store.stats().num_evicted > NUM_CUTS / 4
    killed(store)
    for number in range(NUM_CUTS):
        path = tmp_path / "cut"
        _cut(marks.root / str(number), marks.root / str(number + 1), path, rng)
        store = DiskStore(path, cap, segment_bytes)
        there = set(store.windows())
        assert there >= marks.expected[number]
        assert_holds(store, [pool[name] for name in there])
        assert store.stats().num_quarantined == 0
        assert store.check().bad == 0
        later = sealed(make_chain(2, seed=10_000 + number))
        store.put(later)
        assert store.stats().used_bytes <= cap
        assert_holds(store, later)
        store.close()
        shutil.rmtree(path)
