"""What only the store on disk has: files, modes, last uses, shared syncs, sequential reads."""

from __future__ import annotations

import os
import random
import shutil
import stat
import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glia.errors import StoreBroken, StoreFull
from glia.graph.ids import BlockId, WindowId
from glia.store import disk, reading, torn
from glia.store.base import SealedWindow
from glia.store.commit import CommitQueue, Ticket
from glia.store.dead import joined
from glia.store.disk import DiskStore
from glia.store.index import Change, Index
from glia.store.keys import BLOCK, dead_range_of
from glia.store.plan import Cursor, plan_put
from glia.store.schema import Location, Span
from glia.store.segment import Segments
from tests.builders import WIDE, make_chain
from tests.store_parts import (
    MIB,
    assert_holds,
    data_bytes,
    disk_bytes,
    flip_bit,
    hits,
    killed,
    load,
    names,
    sealed,
    segment_files,
    sentinels,
)

SIZE = 33 * 4096 + 1024  # a window of WIDE: its group, and its rows


def _alone(num: int) -> list[SealedWindow]:
    """Windows that continue nothing and that nothing continues."""
    return [sealed(make_chain(1, profile=WIDE, seed=seed))[0] for seed in range(num)]


def test_everything_is_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "store"
    path.mkdir(mode=0o755)
    store = DiskStore(path, MIB)
    store.put(sealed(make_chain(2)))
    store.close()
    for directory in (path, path / "segments", path / "index"):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for file in (path / "lock", path / "format", *segment_files(path)):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_clean_stop_goes_on_in_the_same_segment_and_a_kill_does_not(tmp_path: Path) -> None:
    path = tmp_path / "store"
    windows = sealed(make_chain(6))
    for number, window in enumerate(windows[:3]):
        store = DiskStore(path, MIB)
        store.put([window])
        assert len(segment_files(path)) == 1
        if number < 2:
            store.close()
    killed(store)
    store = DiskStore(path, MIB)
    store.put(windows[3:])
    assert len(segment_files(path)) == 2
    assert_holds(store, windows)
    store.close()


@pytest.mark.spec(30)
def test_last_uses_survive_a_restart(tmp_path: Path) -> None:
    path, cap = tmp_path / "store", 8 * SIZE
    windows = _alone(9)
    store = DiskStore(path, cap)
    for window in windows[:7]:
        store.put([window])
    load(store, windows[:1])
    store.close()
    store = DiskStore(path, cap)
    for window in windows[7:]:
        store.put([window])
    there = [store.get(window.record.window_id) is not None for window in windows]
    assert there[0]
    assert not there[1]
    assert all(there[4:])
    store.close()


@pytest.mark.spec(30)
def test_look_ups_are_no_use(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "store", 8 * SIZE)
    windows = _alone(9)
    for window in windows:
        store.put([window])
        store.get(windows[0].record.window_id)
        store.has_block(windows[0].record.blocks[0])
        store.find(windows[0].prefix_key)
    assert store.get(windows[0].record.window_id) is None
    store.close()


@pytest.mark.spec(30)
def test_a_smaller_cap_is_kept_from_the_first_change(tmp_path: Path) -> None:
    path = tmp_path / "store"
    windows = _alone(8)
    for spared in ((), windows[:2]):
        store = DiskStore(path, 64 * SIZE, segment_bytes=2 * SIZE)
        store.put(windows)
        store.close()
        store = DiskStore(path, 4 * SIZE)
        assert store.stats().num_evicted == 0  # nobody has said yet what is spared
        store.spare(names(spared))
        assert store.stats().used_bytes <= 4 * SIZE
        assert store.stats().num_evicted > 0
        assert_holds(store, [*spared, *windows[-1:]])
        store.close()


@pytest.mark.spec(30)
def test_a_block_counted_on_may_be_evicted_for_the_put_itself(tmp_path: Path) -> None:
    """Room can only be made by dropping what the put shares: then it is written again."""
    path = tmp_path / "store"
    first, *rest = sealed(make_chain(7, profile=WIDE))
    store = DiskStore(path, 9 * SIZE)
    store.put([first])
    store.put([first, *rest])
    assert_holds(store, [first, *rest])
    big = sealed(make_chain(7, profile=WIDE, seed=5))
    store.put([first, *big])
    assert_holds(store, [first, *big])
    assert store.stats().used_bytes <= 9 * SIZE
    store.close()


@pytest.mark.parametrize("before", ["erase", "unlink"])
def test_an_eviction_that_a_crash_cut_in_two_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """Rows are gone, the bytes are not: where a part of a segment goes, and where all of it."""
    path = tmp_path / "store"
    windows = _alone(9)
    segment_bytes = 4 * SIZE if before == "erase" else SIZE
    store = DiskStore(path, 64 * SIZE, segment_bytes)
    for window in windows[:7]:
        store.put([window])
    store.close()
    store = DiskStore(path, 7 * SIZE, segment_bytes)

    def crash(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store._catalog.segments, before, crash)
    with pytest.raises(KeyboardInterrupt):
        store.put(windows[7:])
    killed(store)
    on_disk = disk_bytes(path / "segments")
    store = DiskStore(path, 8 * SIZE, segment_bytes)
    assert disk_bytes(path / "segments") < on_disk
    assert disk_bytes(path / "segments") <= store.stats().used_bytes
    there = [store.get(window.record.window_id) is not None for window in windows[:7]]
    assert not there[0]
    assert_holds(store, [w for w, here in zip(windows, there, strict=False) if here])
    store.put(windows[-4:])
    assert_holds(store, windows[-4:])
    used = store.stats().used_bytes
    store.close()
    store = DiskStore(path, 8 * SIZE)
    assert store.stats().used_bytes == used
    store.close()


def _watch_erasing(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Segments whose rows `d` went, one for each row; each is synced before."""
    unsynced: list[int] = []
    settled: list[int] = []
    segments, index = store._catalog.segments, store._catalog.index
    erase, sync, write = segments.erase, segments.sync, index.write

    def erased(span: Span) -> None:
        erase(span)
        unsynced.append(span.segment)

    def synced(number: int) -> None:
        sync(number)
        unsynced[:] = [other for other in unsynced if other != number]

    def written(changes: Iterable[Change], *, sync: bool) -> None:
        rows = list(changes)
        gone = [place for key, value in rows if value is None and (place := dead_range_of(key))]
        assert not {number for number, _ in gone} & set(unsynced)
        settled.extend(number for number, _ in gone)
        write(rows, sync=sync)

    monkeypatch.setattr(segments, "erase", erased)
    monkeypatch.setattr(segments, "sync", synced)
    monkeypatch.setattr(index, "write", written)
    return settled


@pytest.mark.spec(30)
def test_what_was_evicted_is_synced_before_it_is_counted_as_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut brings the bytes back, and no row speaks of them."""
    store = DiskStore(tmp_path / "store", 24 * SIZE, 3 * SIZE)
    windows = _alone(60)
    for window in windows[:20]:
        store.put([window])
    settled = _watch_erasing(store, monkeypatch)
    rng = random.Random(5)
    for window in windows[20:]:
        load(store, rng.sample(windows, 5))  # else segments go as a whole
        store.put([window])
    assert len(settled) > 5
    monkeypatch.undo()
    store.close()


@pytest.mark.spec(30)
def test_erased_bytes_that_cannot_be_synced_are_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskStore(tmp_path / "store", 24 * SIZE, 3 * SIZE)
    windows = _alone(40)
    for window in windows[:20]:
        store.put([window])
    load(store, windows[:20:3])

    def refuse(number: int) -> None:
        raise OSError(5, "no")

    with monkeypatch.context() as patch:
        patch.setattr(store._catalog.segments, "sync", refuse)
        one_by_one = map(store.put, ([window] for window in windows[20:]))
        with pytest.raises(StoreBroken, match="cannot be synced"):
            list(one_by_one)
    settled = _watch_erasing(store, monkeypatch)
    store.put(windows[30:])
    assert settled
    assert_holds(store, windows[30:])
    monkeypatch.undo()
    store.close()


def test_a_forgetting_of_nothing_fails_while_what_went_before_cannot_be_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks again finds no window of that conversation any more, and its bytes are there."""
    path = tmp_path / "store"
    store = DiskStore(path, 64 * MIB)
    windows = _alone(3)
    store.put(windows)

    def refuse(span: Span) -> None:
        raise OSError(5, "no")

    with monkeypatch.context() as patch:
        patch.setattr(store._catalog.segments, "erase", refuse)
        for names in ([windows[0].record.window_id], [], []):
            with pytest.raises(StoreBroken, match="cannot be erased"):
                store.forget(names)
            store.put(windows[1:2])
    assert hits(path, [bytes(windows[0].particles[0])[-64:]])
    store.forget([])
    assert hits(path, [bytes(windows[0].particles[0])[-64:]]) == []
    assert_holds(store, windows[1:])
    store.close()


@pytest.mark.spec(30)
@pytest.mark.parametrize("lost", ["", "index"])
def test_what_a_start_cuts_or_erases_is_synced_before_it_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Else a second power cut brings bytes back that no row speaks of."""
    path = tmp_path / "store"
    store = DiskStore(path, 64 * MIB)
    windows = sealed(make_chain(3))
    store.put(windows)
    killed(store)
    (file,) = segment_files(path)
    inode, size = file.stat().st_ino, file.stat().st_size
    with open(file, "ab") as raw:
        raw.write(b"torn" * 5000)
    if lost:
        shutil.rmtree(path / lost)
    changed: list[int] = []  # not synced since
    num_changes = num_syncs = 0
    fsync, truncate, write, erase = os.fsync, os.truncate, Index.write, Segments.erase

    def synced(fd: int) -> None:
        fsync(fd)
        changed[:] = [other for other in changed if other != os.fstat(fd).st_ino]

    def change(number: int) -> None:
        nonlocal num_changes
        changed.append(number)
        num_changes += 1

    def cut(of: Path, to: int) -> None:
        truncate(of, to)
        change(of.stat().st_ino)

    def erased(segments: Segments, span: Span) -> None:
        erase(segments, span)
        change(segments.file(span.segment).stat().st_ino)

    def written(index: Index, changes: Iterable[Change], *, sync: bool) -> None:
        nonlocal num_syncs
        num_syncs += sync
        assert not sync or not changed
        write(index, changes, sync=sync)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "truncate", cut)
    monkeypatch.setattr(Segments, "erase", erased)
    monkeypatch.setattr(Index, "write", written)
    store = DiskStore(path, 64 * MIB)
    assert num_changes
    assert num_syncs
    assert file.stat().st_ino == inode
    assert data_bytes(file) <= size + 4096
    assert_holds(store, windows)
    monkeypatch.undo()
    store.close()


def test_putting_many_windows_syncs_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DiskStore(tmp_path / "store", 64 * MIB)
    windows = sealed(make_chain(40))
    store.put(windows[:1])
    calls: list[str] = []
    fdatasync, write = os.fdatasync, store._catalog.index.write

    def synced(fd: int) -> None:
        calls.append("data")
        fdatasync(fd)

    def written(changes: Any, *, sync: bool) -> None:
        assert sync
        calls.append("index")
        write(changes, sync=sync)

    monkeypatch.setattr(os, "fdatasync", synced)
    monkeypatch.setattr(store._catalog.index, "write", written)
    store.put(windows[1:])
    assert calls == ["data", "index"]  # bytes first, then their names
    monkeypatch.undo()
    store.close()


def test_a_put_over_several_segments_names_nothing_that_is_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskStore(tmp_path / "store", 64 * MIB, segment_bytes=4096 + 2 * SIZE)
    fdatasync, write = os.fdatasync, store._catalog.index.write
    synced: dict[int, int] = {}  # inode -> bytes
    num_segments = 0

    def sync(fd: int) -> None:
        fdatasync(fd)
        status = os.fstat(fd)
        synced[status.st_ino] = status.st_size

    def written(changes: Any, *, sync: bool) -> None:
        nonlocal num_segments
        status = [file.stat() for file in segment_files(tmp_path / "store")]
        assert {s.st_ino: s.st_size for s in status} == synced
        num_segments = len(status)
        write(changes, sync=sync)

    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(store._catalog.index, "write", written)
    store.put(sealed(make_chain(7, profile=WIDE)))
    assert num_segments == 4
    monkeypatch.undo()
    store.close()


@pytest.mark.spec(30)
@pytest.mark.parametrize("lost", ["", "index"])
def test_what_a_killed_process_left_is_synced_before_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """It was in the page cache only, and a put of it from now on writes nothing."""
    path = tmp_path / "store"
    windows = sealed(make_chain(4))
    store = DiskStore(path, 64 * MIB)
    shutil.copytree(path / "index", tmp_path / "index")
    store.put(windows)
    killed(store)
    shutil.rmtree(path / "index")
    if not lost:
        shutil.copytree(tmp_path / "index", path / "index")
    synced: set[int] = set()
    fsync, write = os.fsync, Index.write

    def sync(fd: int) -> None:
        fsync(fd)
        synced.add(os.fstat(fd).st_ino)

    def written(index: Index, changes: Iterable[Change], *, sync: bool) -> None:
        rows = list(changes)
        if any(key[:1] == BLOCK for key, _ in rows):
            assert {path.stat().st_ino for path in (segments, *segment_files(path))} <= synced
            num_named.append(len(rows))
        write(index, rows, sync=sync)

    num_named: list[int] = []
    segments = path / "segments"
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Index, "write", written)
    store = DiskStore(path, 64 * MIB)
    assert num_named
    assert_holds(store, windows)
    monkeypatch.undo()
    store.close()


@pytest.mark.spec(30)
def test_a_start_that_is_killed_while_it_adopts_names_no_group_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    windows = sealed(make_chain(4))
    store = DiskStore(path, 64 * MIB)
    shutil.copytree(path / "index", tmp_path / "index")
    store.put(windows)
    killed(store)
    shutil.rmtree(path / "index")
    shutil.copytree(tmp_path / "index", path / "index")
    write, num_named = Index.write, 0

    def written(index: Index, changes: Iterable[Change], *, sync: bool) -> None:
        nonlocal num_named
        rows = list(changes)
        num_named += any(key[:1] == BLOCK for key, _ in rows)
        if num_named == 3:
            raise KeyboardInterrupt
        write(index, rows, sync=sync)

    with monkeypatch.context() as patch:
        patch.setattr(Index, "write", written)
        with pytest.raises(KeyboardInterrupt):
            DiskStore(path, 64 * MIB)
    store = DiskStore(path, 64 * MIB)
    assert_holds(store, windows)
    rows = [store._catalog.row(window.record.window_id) for window in windows]
    assert [len(row.groups) for row in rows if row is not None] == [1, 1, 1, 1]
    usage = store._catalog.segments.usage(1)
    assert usage is not None
    assert usage.num_groups == 4
    store.close()


@pytest.mark.spec(61)
def test_a_block_found_bad_when_it_was_to_move_is_bad_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "store"
    window = sealed(make_chain(1))[0]
    twins = [
        SealedWindow(
            replace(window.record, numerics_class=f"native:twin{number}"),
            window.prefix_key,
            window.particles,
        )
        for number in range(2)
    ]
    store = DiskStore(path, 64 * MIB)
    store.put([window, *twins])
    (file,) = segment_files(path)
    flip_bit(file, 8 * file.read_bytes().index(bytes(window.particles[1])))
    store.forget([window.record.window_id])
    killed(store)
    store = DiskStore(path, 64 * MIB)
    assert [store.get(twin.record.window_id) for twin in twins] == [None, None]
    store.put(twins[:1])
    assert_holds(store, twins)
    store.close()


@pytest.mark.spec(30)
def test_a_torn_tail_that_was_cut_off_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = DiskStore(path, 64 * MIB)
    store.put(sealed(make_chain(3)))
    used = store.stats().used_bytes
    killed(store)
    with open(segment_files(path)[0], "ab") as file:
        file.write(bytes(50_000))
    store = DiskStore(path, 64 * MIB)
    assert store.stats().used_bytes == used
    store.close()


@pytest.mark.spec(30)
def test_behind_a_torn_first_group_nothing_is_adopted_and_nothing_of_it_stays(
    tmp_path: Path,
) -> None:
    path = tmp_path / "store"
    windows = sealed(make_chain(3))
    store = DiskStore(path, 64 * MIB)
    shutil.copytree(path / "index", tmp_path / "index")
    store.put(windows)
    killed(store)
    shutil.rmtree(path / "index")
    shutil.copytree(tmp_path / "index", path / "index")
    (file,) = segment_files(path)
    data = bytearray(file.read_bytes())
    data[4096:4160] = bytes(64)  # the head of the first group did not arrive
    file.write_bytes(data)
    store = DiskStore(path, 64 * MIB)
    assert [store.get(window.record.window_id) for window in windows] == [None] * 3
    assert hits(path, sentinels(windows)) == []
    store.put(windows)
    assert_holds(store, windows)
    store.close()


def _mixed(one: SealedWindow, other: SealedWindow) -> SealedWindow:
    """Of another class, with the first block of one and the second of the other."""
    record = replace(
        one.record,
        numerics_class="native:mixed",
        blocks=(one.record.blocks[0], other.record.blocks[1]),
    )
    return SealedWindow(record, one.prefix_key, (one.particles[0], other.particles[1]))


def _flip_in(path: Path, window: SealedWindow, number: int) -> None:
    """Damage the newest copy of a block."""
    for file in reversed(segment_files(path)):
        at = file.read_bytes().rfind(bytes(window.particles[number]))
        if at >= 0:
            flip_bit(file, 8 * at + 900)
            return
    raise AssertionError("no such particle")


def _without_index(store: DiskStore, path: Path, segment_bytes: int = MIB) -> DiskStore:
    killed(store)
    shutil.rmtree(path / "index")
    return DiskStore(path, 64 * MIB, segment_bytes)


@pytest.mark.spec(30)
def test_what_is_torn_is_not_at_the_cost_of_who_shares_it(tmp_path: Path) -> None:
    """Groups of the newest segment with a bad block, the index lost."""
    path = tmp_path / "store"
    window, other, last = sealed(make_chain(3))
    mixed = _mixed(window, other)
    store = DiskStore(path, 64 * MIB, MIB)
    store.put([other])
    _flip_in(path, other, 0)
    load(store, [other])
    store.put([other])  # its second group
    store.put([window, mixed, last])
    _flip_in(path, window, 1)
    _flip_in(path, last, 0)
    store = _without_index(store, path)
    assert set(store.windows()) == names([window, other, mixed])
    assert_holds(store, [other, mixed])
    assert store.get(window.record.window_id) is None
    assert store.stats().num_quarantined == 0
    store.put([window, last])
    assert_holds(store, [window, other, mixed, last])
    assert store.check().bad == 0
    store.close()


@pytest.mark.spec(30)
def test_what_is_torn_is_not_at_the_cost_of_what_it_has_healed(tmp_path: Path) -> None:
    path = tmp_path / "store"
    window, other = sealed(make_chain(2))
    mixed = _mixed(window, other)
    store = DiskStore(path, 64 * MIB, 4096)
    store.put([window])
    _flip_in(path, window, 0)
    load(store, [window])
    store.put([mixed])  # in a segment of its own
    assert_holds(store, [window, mixed])
    _flip_in(path, mixed, 1)
    store = _without_index(store, path, 4096)
    assert_holds(store, [window])
    assert store.get(mixed.record.window_id) is None
    store.close()


@pytest.mark.spec(30)
def test_only_the_newest_segment_is_hashed_for_a_new_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    windows = sealed(make_chain(6))
    store = DiskStore(path, 64 * MIB, 4096)
    for window in windows:
        store.put([window])
    hashed: list[BlockId] = []

    def is_as_named(fd: int, block_id: BlockId, *rest: Any) -> bool:
        hashed.append(block_id)
        return reading.is_as_named(fd, block_id, *rest)

    monkeypatch.setattr(torn, "is_as_named", is_as_named)
    store._mender.rebuild(store._catalog.generation)
    assert hashed == []  # nobody can have torn anything
    store = _without_index(store, path)
    assert hashed == list(windows[-1].record.blocks)
    assert_holds(store, windows)
    store.close()


def test_forgetting_what_is_shared_never_frees_less_than_nothing(tmp_path: Path) -> None:
    """Its blocks are written again, in a segment of their own after a kill."""
    window = sealed(make_chain(1))[0]
    record = replace(window.record, numerics_class="native:twin")
    store = DiskStore(tmp_path / "store", 64 * MIB)
    store.put([window, SealedWindow(record, window.prefix_key, window.particles)])
    killed(store)
    store = DiskStore(tmp_path / "store", 64 * MIB)
    used = store.stats().used_bytes
    assert store.forget([window.record.window_id]).freed_bytes == 0
    assert store.stats().used_bytes > used
    store.close()


@pytest.mark.parametrize("max_at_once", [1, 512])
@pytest.mark.parametrize("is_backwards", [True, False])
def test_windows_that_share_blocks_and_go_together_move_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_backwards: bool, max_at_once: int
) -> None:
    monkeypatch.setattr(disk, "MAX_AT_ONCE", max_at_once)
    store = DiskStore(tmp_path / "store", 64 * MIB)
    windows = sealed(make_chain(3))
    twins = [
        SealedWindow(
            replace(w.record, numerics_class=f"native:twin{number}"), w.prefix_key, w.particles
        )
        for w in windows
        for number in range(2)
    ]
    store.put([*windows, *twins])
    end = store._tail.end
    going = [window.record.window_id for window in (*windows[1:], *twins[2:])]
    forgotten = store.forget(going[::-1] if is_backwards else going)
    assert forgotten.num_windows == 6
    assert store._tail.end == end
    assert_holds(store, [windows[0], *twins[:2]])
    assert hits(tmp_path, sentinels([*windows[1:], *twins[2:]], [windows[0], *twins[:2]])) == []
    store.close()
    store = DiskStore(tmp_path / "store", 64 * MIB)
    assert set(store.windows()) == names([windows[0], *twins[:2]])
    store.put([*windows, *twins])
    assert_holds(store, [*windows, *twins])
    store.close()


def test_a_crash_between_two_that_share_blocks_leaves_none_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "MAX_AT_ONCE", 1)
    store = DiskStore(tmp_path / "store", 64 * MIB)
    window, other = sealed(make_chain(2))
    twin = SealedWindow(
        replace(window.record, numerics_class="native:twin"), window.prefix_key, window.particles
    )
    store.put([window, twin, other])

    def crash(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.forget([w.record.window_id for w in (window, other, twin)], crash)
    assert set(store.windows()) == names([other])
    assert_holds(store, [other])
    store.close()


def test_puts_that_find_the_disk_busy_share_a_commit() -> None:
    entered, go = threading.Event(), threading.Event()
    groups: list[int] = []

    def commit(tickets: Sequence[Ticket]) -> None:
        groups.append(len(tickets))
        if len(groups) == 1:
            entered.set()
            assert go.wait(30)

    queue = CommitQueue(threading.RLock(), commit)
    threads = [threading.Thread(target=queue.submit, args=([],)) for _ in range(6)]
    threads[0].start()
    assert entered.wait(30)
    for thread in threads[1:]:
        thread.start()
    while len(queue._waiting) < 5:
        threads[-1].join(0.001)
    go.set()
    for thread in threads:
        thread.join()
    assert groups == [1, 5]


def test_a_refusal_reaches_only_those_it_concerns() -> None:
    def commit(tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            if not ticket.windows:
                ticket.error = StoreFull("no room")

    queue = CommitQueue(threading.RLock(), commit)
    queue.submit(sealed(make_chain(1)))
    with pytest.raises(StoreFull):
        queue.submit([])


def test_consecutive_windows_are_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = DiskStore(tmp_path / "store", 64 * MIB)
    windows = sealed(make_chain(32))
    store.put(windows)
    reads: list[int] = []
    preadv = os.preadv

    def counted(fd: int, buffers: Sequence[memoryview], offset: int) -> int:
        num = preadv(fd, buffers, offset)
        reads.append(num)
        return num

    monkeypatch.setattr(os, "preadv", counted)
    assert None not in load(store, windows)
    assert len(reads) == 1
    monkeypatch.undo()
    store.close()


class _Nothing:
    """What plan_put asks, of an empty store."""

    def is_whole(self, window_id: WindowId) -> bool:
        return False

    def groups_of(self, window_id: WindowId) -> tuple[Span, ...]:
        return ()

    def blocks(self, block_ids: Sequence[BlockId]) -> list[Location | None]:
        return [None] * len(block_ids)


class _Everything(_Nothing):
    def is_whole(self, window_id: WindowId) -> bool:
        return True


def test_a_plan_fills_segments_in_order() -> None:
    windows = sealed(make_chain(5))
    one = plan_put(windows[:1], _Nothing(), Cursor(1, 0), 1 << 20)
    size = one.groups[0].size
    assert one.groups[0].offset == 4096
    assert size == 4096
    assert size == sum(map(len, one.groups[0].pieces))
    assert one.num_segment_bytes == 4096 + size
    many = plan_put(windows, _Nothing(), Cursor(3, 8192), 4096 + 2 * size)
    assert [(group.segment, group.offset) for group in many.groups] == [
        (3, 8192),
        (4, 4096),
        (4, 4096 + size),
        (5, 4096),
        (5, 4096 + size),
    ]
    assert many.end == Cursor(5, 4096 + 2 * size)
    assert many.num_segment_bytes == 5 * size + 2 * 4096
    tight = plan_put(windows[:3], _Nothing(), Cursor(1, 0), 1)  # larger than a segment, each
    assert [group.segment for group in tight.groups] == [1, 2, 3]
    none = plan_put(windows, _Everything(), Cursor(1, 4096), 1 << 20)
    assert (none.groups, none.num_bytes, none.end) == ([], 0, Cursor(1, 4096))
    assert none.whole == [window.record.window_id for window in windows]


def test_a_plan_counts_at_least_what_it_adds(tmp_path: Path) -> None:
    """So that a put that fits by its plan fits."""
    store = DiskStore(tmp_path / "store", 64 * MIB)
    windows = sealed(make_chain(3))
    plan = plan_put(windows, store._writer, store._tail.end, MIB)
    store.put(windows)
    assert 0 <= plan.num_bytes - store.stats().used_bytes <= 3 * 41
    store.close()


def test_ranges_side_by_side_are_erased_as_one() -> None:
    spans = [Span(1, 8, 4), Span(2, 12, 4), Span(1, 0, 8), Span(1, 16, 1), Span(2, 0, 4)]
    assert joined(spans) == [Span(1, 0, 12), Span(1, 16, 1), Span(2, 0, 4), Span(2, 12, 4)]
    assert joined([]) == []


def test_a_damaged_head_of_a_segment_is_found_and_mended(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = DiskStore(path, MIB, segment_bytes=16 * 1024)
    windows = sealed(make_chain(6))
    store.put(windows)
    files = segment_files(path)
    heads = [file.read_bytes()[:64] for file in files]
    for bit in (0, 37, 77, 100, 12 * 8 + 5, 511):
        flip_bit(files[0], bit)
        report = store.check()
        assert (report.checked, report.bad, report.bad_windows) == (12, 1, 0)
        assert [file.read_bytes()[:64] for file in files] == heads
        assert store.check().bad == 0
    assert_holds(store, windows)
    store.close()


def test_an_index_that_is_built_again_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    store = DiskStore(path, MIB)
    assert caplog.messages == []
    store.put(sealed(make_chain(3)))
    store.close()
    shutil.rmtree(path / "index")
    DiskStore(path, MIB).close()
    assert [record.name for record in caplog.records] == ["gliad.store"] * 2
    assert "3 windows" in caplog.text


def test_uses_cost_one_row_of_a_chain_and_no_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DiskStore(tmp_path / "store", 64 * MIB)
    windows = sealed(make_chain(20))
    store.put(windows)
    written: list[tuple[int, bool]] = []
    write = store._catalog.index.write

    def counted(changes: Any, *, sync: bool) -> None:
        rows = list(changes)
        written.append((sum(key[:1] in b"lt" for key, _ in rows), sync))
        write(rows, sync=sync)

    monkeypatch.setattr(store._catalog.index, "write", counted)
    for _ in range(5):
        load(store, windows)
        store.touch([window.record.window_id for window in windows])
    assert written == []
    store.put(sealed(make_chain(1, seed=1)))
    assert written == [(3 + 2, True)]  # l and t of the old leaf, t without its old place
    monkeypatch.setattr("glia.store.order.MAX_NOTED", 4)
    for seed in range(4):
        store.put(sealed(make_chain(1, seed=10 + seed)))
    del written[:]
    for seed in range(4):
        load(store, sealed(make_chain(1, seed=10 + seed)))
    assert written == [(4 * 3, False)]  # so many are noted that they are written
    store.close()
