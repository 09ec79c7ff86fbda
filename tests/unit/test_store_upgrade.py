"""A store that the code of format version 1 wrote is used, and has version 2 then.

The fixture is real: `store_v1.tar.xz` holds two directories that gliad wrote before this
version, one closed and one as a killed process left it. Segments of 6 KiB; two chains that
fork after six windows; a twin in another class; one block written again because a bit of
it was wrong, and another whose bit still is.
"""

from __future__ import annotations

import os
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from glia.errors import StoreFull
from glia.store import opening
from glia.store.base import SealedWindow
from glia.store.disk import DiskStore
from glia.store.group import segment_version
from tests.builders import make_chain
from tests.store_parts import (
    MIB,
    assert_holds,
    disk_bytes,
    hits,
    load,
    names,
    sealed,
    segment_files,
    sentinels,
)

FIXTURE = Path(__file__).parents[1] / "vectors" / "store_v1.tar.xz"
BASE = make_chain(6)
ONE, OTHER = (sealed(make_chain(3, seed=seed, base=BASE)) for seed in (1, 2))
TWIN = SealedWindow(
    replace(ONE[0].record, numerics_class="native:twin"), ONE[0].prefix_key, ONE[0].particles
)
BAD = ONE[7]
WHOLE = [*ONE[:7], ONE[8], *OTHER[6:], TWIN]


@pytest.fixture(params=["clean", "killed"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    path = tmp_path / str(request.param)
    assert (path / "format").read_text() == "glia-store 1\n"
    return path


def _versions(path: Path) -> list[int | None]:
    return [segment_version(f.read_bytes()[:64], int(f.stem)) for f in segment_files(path)]


def test_it_is_opened_used_and_of_the_new_version(path: Path) -> None:
    store = DiskStore(path, 64 * MIB)
    assert (path / "format").read_text() == "glia-store 2\n"
    assert set(store.windows()) == names([*WHOLE, BAD])
    assert_holds(store, WHOLE)
    assert load(store, [BAD]) == [None]
    assert store.stats().num_quarantined == 1
    assert set(store.children(ONE[5].record.window_id)) == names([ONE[6], OTHER[6]])
    later = sealed(make_chain(4, seed=9))
    store.put([BAD, *later])
    assert_holds(store, [*WHOLE, BAD, *later])
    assert set(_versions(path)) == {1, 2}  # nothing is appended to the old ones
    assert store.check().bad == 0
    store.close()
    store = DiskStore(path, 64 * MIB)
    assert_holds(store, [*WHOLE, BAD, *later])
    assert store.stats().num_quarantined == 0
    store.close()


@pytest.mark.parametrize("step", ["rebuild", "swap_in", "_settle", "_write_format"])
def test_a_crash_before_the_version_is_written_is_no_matter(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def crash(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(opening, step, crash)
        with pytest.raises(KeyboardInterrupt):
            DiskStore(path, 64 * MIB)
    assert (path / "format").read_text() == "glia-store 1\n"
    store = DiskStore(path, 64 * MIB)
    assert (path / "format").read_text() == "glia-store 2\n"
    assert_holds(store, WHOLE)
    store.close()


@pytest.mark.spec(30)
def test_what_a_power_cut_has_torn_of_it_is_not_named(path: Path) -> None:
    *_, newest, healed = segment_files(path)
    healed.unlink()  # of one window: then the newest ends in windows that share nothing
    data = bytearray(newest.read_bytes())
    torn = OTHER[8]
    at = data.index(bytes(torn.particles[1]))
    data[at : at + 256] = bytes(256)
    newest.write_bytes(data)
    rest = [window for window in WHOLE if window not in (torn, ONE[2])]
    store = DiskStore(path, 64 * MIB)
    assert set(store.windows()) == names([*rest, ONE[2], BAD])
    assert_holds(store, rest)
    assert hits(path, sentinels([torn])) == []
    store.put([torn])
    assert_holds(store, [*rest, torn])
    store.close()


@pytest.mark.spec(30)
def test_old_windows_are_evicted_and_old_segments_go(path: Path) -> None:
    store = DiskStore(path, 64 * 1024, segment_bytes=8 * 1024)
    before = segment_files(path)
    assert store.stats().used_bytes < 64 * 1024
    for seed in range(20, 50):
        store.put(sealed(make_chain(1, seed=seed)))
        assert store.stats().used_bytes <= 64 * 1024
        ends = 4096 * len(segment_files(path))  # those of version 1 end where they end
        assert disk_bytes(path / "segments") <= store.stats().used_bytes + ends
    assert not set(before) & set(segment_files(path))
    assert store.stats().num_quarantined == 0
    store.close()


@pytest.mark.spec(30, 31)
@pytest.mark.fault("F7")
def test_old_windows_are_forgotten(path: Path) -> None:
    """They share file-system blocks with their neighbours: those stay, byte for byte."""
    store = DiskStore(path, 64 * MIB)
    gone = [OTHER[8], ONE[6], BAD, ONE[8]]
    assert hits(path, sentinels(gone))
    assert store.forget(names(gone)).num_windows == 4
    assert hits(path, sentinels(gone)) == []
    rest = [*ONE[:6], *OTHER[6:8], TWIN]
    assert_holds(store, rest)
    store.forget(names(rest[:1]))  # its blocks are the twin's, too
    assert_holds(store, [TWIN, *rest[7:8]])
    store.close()
    os.remove(path / "index" / "CURRENT")
    store = DiskStore(path, 64 * MIB)
    assert_holds(store, rest[1:])
    assert set(store.windows()) == names(rest[1:])
    store.close()


def test_a_cap_below_what_is_there_is_made_true(path: Path) -> None:
    store = DiskStore(path, 12 * 1024)
    store.spare(())
    assert store.stats().used_bytes <= 12 * 1024
    with pytest.raises(StoreFull):
        store.put(sealed(make_chain(4, seed=9)))
    store.close()
