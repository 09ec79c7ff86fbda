"""F2: the power-cut model: what was not synced is gone, whole, in part, or out of order."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from glia.store.disk import DiskStore
from tests.builders import make_chain, make_profile
from tests.store_parts import (
    FULL,
    MIB,
    assert_holds,
    assert_never_wrong,
    index_files,
    sealed,
    segment_files,
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
