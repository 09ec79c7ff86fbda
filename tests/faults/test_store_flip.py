"""F3: one flipped bit anywhere in the store's files; F4: LevelDB's own book-keeping damaged."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from glia.store.disk import DiskStore
from glia.store.keys import window_key
from tests.builders import make_chain, make_profile
from tests.pace import Stopwatch
from tests.store_parts import (
    FULL,
    MIB,
    assert_holds,
    assert_never_wrong,
    flip_random_bit,
    index_files,
    sealed,
    segment_files,
)

NUM_FLIPS = 200 if FULL else 60
PROFILE = make_profile(num_layers=4, head_dim=8)
WINDOWS = sealed(make_chain(12, profile=PROFILE))
LATER = sealed(make_chain(3, profile=PROFILE, seed=9))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with tables and a log in its index, and two segments."""
    path = tmp_path_factory.mktemp("flip") / "store"
    for part in (WINDOWS[:5], WINDOWS[5:9], WINDOWS[9:]):
        store = _opened(path)
        store.put(part)
        store.close()
    assert {file.suffix for file in index_files(path)} == {".ldb", ".log"}
    assert len(segment_files(path)) >= 2
    return path


def _opened(path: Path) -> DiskStore:
    return DiskStore(path, 64 * MIB, segment_bytes=16 * 1024)


def _assert_mends(store: DiskStore, path: Path) -> None:
    """What was damaged is right or missing; and the store goes on, also after a restart."""
    right = assert_never_wrong(store, WINDOWS)
    stats, generation = store.stats(), store._catalog.generation
    detected = stats.num_quarantined > 0 or generation > 0
    assert all(right) or detected
    store.put(LATER)
    store.put(WINDOWS)
    assert_holds(store, WINDOWS + LATER)
    assert store.check().bad_windows == 0
    store.close()
    store = _opened(path)
    assert_holds(store, WINDOWS + LATER)
    store.close()


def _flip_somewhere(
    path: Path, files_of: Callable[[Path], Sequence[Path]], rng: random.Random
) -> None:
    """An open LevelDB may replace a file that was just listed: then of those there are now."""
    while True:
        with suppress(FileNotFoundError):
            flip_random_bit(files_of(path), rng)
            return


@pytest.mark.spec(61)
@pytest.mark.fault("F3")
@pytest.mark.parametrize("while_open", [False, True])
def test_a_flipped_bit_never_becomes_a_wrong_answer(
    model: Path, tmp_path: Path, while_open: bool
) -> None:
    rng = random.Random(f"flip {while_open}")
    for number in range(NUM_FLIPS // 2):
        path = tmp_path / str(number)
        shutil.copytree(model, path)
        files_of = index_files if number % 2 else segment_files
        if while_open:
            store = _opened(path)
            _flip_somewhere(path, files_of, rng)
        else:
            _flip_somewhere(path, files_of, rng)
            store = _opened(path)
        _assert_mends(store, path)
        shutil.rmtree(path)


@pytest.mark.spec(61)
@pytest.mark.fault("F3")
def test_every_byte_of_a_particle_is_guarded(model: Path, tmp_path: Path) -> None:
    particle = bytes(WINDOWS[3].particles[2])
    rng = random.Random(3)
    for bit in rng.sample(range(8 * len(particle)), 40 if FULL else 10):
        path = tmp_path / str(bit)
        shutil.copytree(model, path)
        for file in segment_files(path):
            data = bytearray(file.read_bytes())
            at = data.find(particle)
            if at >= 0:
                data[at + bit // 8] ^= 1 << bit % 8
                file.write_bytes(data)
        store = _opened(path)
        assert assert_never_wrong(store, WINDOWS) == [n != 3 for n in range(len(WINDOWS))]
        assert store.stats().num_quarantined == 1
        store.close()


@pytest.mark.spec(61)
def test_every_byte_of_a_record_is_guarded(model: Path, tmp_path: Path) -> None:
    """A bit of it is wrong although LevelDB's checksum is right: memory, or a bug."""
    path = tmp_path / "store"
    shutil.copytree(model, path)
    rng = random.Random(5)
    store = _opened(path)
    index = store._catalog.index
    window = WINDOWS[4]
    name = window.record.window_id
    for number in range(400 if FULL else 24):
        value = index.get(window_key(name))
        assert value is not None
        damaged = bytearray(value)
        bit = rng.randrange(8 * len(window.record.encoding))
        damaged[len(value) - 1 - bit // 8] ^= 1 << bit % 8
        index.write([(window_key(name), bytes(damaged))], sync=False)
        if number % 2:
            assert all(assert_never_wrong(store, WINDOWS))  # its group has the record, too
        assert store.get(name) == window.record
        assert store.stats().num_quarantined == number + 1
        assert_holds(store, WINDOWS)
    store.close()


def _empty(file: Path) -> None:
    file.write_bytes(b"")


def _zero(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def _halve(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])


def _remove(file: Path) -> None:
    file.unlink()


@pytest.mark.fault("F4")
@pytest.mark.parametrize("damage", [_empty, _zero, _halve, _remove])
@pytest.mark.parametrize("pattern", ["CURRENT", "MANIFEST-*", "*.log", "*.ldb", "*"])
def test_damaged_book_keeping_is_built_again(
    model: Path, tmp_path: Path, pattern: str, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "store"
    shutil.copytree(model, path)
    for file in (path / "index").glob(pattern):
        damage(file)
    watch = Stopwatch()
    store = _opened(path)
    assert watch.took_s() <= 10.0
    assert_holds(store, WINDOWS)
    _assert_mends(store, path)


@pytest.mark.spec(61)
def test_damage_to_index_and_segment_together(model: Path, tmp_path: Path) -> None:
    rng = random.Random(4)
    for number in range(60 if FULL else 12):
        path = tmp_path / str(number)
        shutil.copytree(model, path)
        for _ in range(3):
            flip_random_bit(segment_files(path), rng)
        shutil.rmtree(path / "index")
        store = _opened(path)
        right = assert_never_wrong(store, WINDOWS)
        assert sum(right) >= len(WINDOWS) - 3
        store.put(WINDOWS)
        assert_holds(store, WINDOWS)
        store.close()
