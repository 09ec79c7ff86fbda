"""The disk refuses: a typed error, nothing half visible, reads go on, writes too once it gives way.

The kernel's limit on the size of a file (RLIMIT_FSIZE) makes it refuse at an exact byte.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from glia.errors import NotFound, StoreBroken, StoreFull
from glia.graph.profile import Profile
from glia.store.base import Buffer, SealedWindow
from glia.store.disk import DiskStore
from glia.store.remover import Remover
from glia.store.repair import Mender
from glia.store.reserve import RESERVE_BYTES
from tests.builders import TINY, WIDE, make_chain
from tests.store_parts import (
    MIB,
    assert_holds,
    disk_bytes,
    hits,
    killed,
    load,
    names,
    sealed,
    segment_files,
    sentinels,
)

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
def test_an_index_that_cannot_grow(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
    assert caplog.messages == []  # nothing torn is in LevelDB's log
    assert_holds(store, windows)
    store.close()


def test_forgetting_after_a_refusal_leaves_no_torn_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    windows = sealed(make_chain(60))
    store = DiskStore(tmp_path / "store", CAP, segment_bytes=4096)
    with files_at_most(24 * 1024):
        done = _put_until_full(store, windows)

    def crash(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(store._mender, "scrub", crash)
    with pytest.raises(KeyboardInterrupt):
        store.forget(names(windows[done - 1 : done]))
    killed(store)
    store = DiskStore(tmp_path / "store", CAP)
    assert caplog.messages == []
    assert set(store.windows()) == names(windows[: done - 1])
    assert_holds(store, windows[: done - 1])
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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB, where we may mount one."""
    path = tmp_path / "disk"
    path.mkdir()
    mount, umount = shutil.which("mount"), shutil.which("umount")
    if mount is None or umount is None or os.geteuid():
        pytest.skip("only root may mount a tmpfs")
    command = [mount, "-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs", str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        yield path
    finally:
        subprocess.run([umount, "-l", str(path)], check=True)  # also where a test failed


def _retried(step: Callable[[], object], within_s: float) -> None:
    """Until it is not refused any more, or too late."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            step()
            return
        except StoreFull:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.spec(30)
@pytest.mark.fault("F5")
@pytest.mark.parametrize("profile", [TINY, WIDE], ids=["index", "segments"])
def test_a_full_disk_is_refused_and_gives_way(small_disk: Path, profile: Profile) -> None:
    """With small windows it is the index that meets the end of the disk, as often as not."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(40 * MIB))
    store = DiskStore(small_disk / "store", 4096 * MIB)
    put: list[SealedWindow] = []
    refused: list[SealedWindow] = []
    for seed in range(4000):
        refused = sealed(make_chain(20 if profile is TINY else 1, profile=profile, seed=seed))
        try:
            store.put(refused)
        except StoreFull:
            break
        put += refused
    for _ in range(3):
        with pytest.raises(StoreFull) as caught:
            store.put(refused)
        assert caught.value.hint
    assert load(store, refused) == [None] * len(refused)
    assert_holds(store, put[:: max(1, len(put) // 50)])
    ballast.unlink()
    _retried(lambda: store.forget(names(put[:1])), within_s=5.0)
    assert load(store, put[:1]) == [None]
    _retried(lambda: store.put(refused), within_s=5.0)
    assert_holds(store, refused)
    assert store.check().bad_windows == 0
    store.forget(names(put))
    assert_holds(store, refused)
    store.close()
    store = DiskStore(small_disk / "store", 4096 * MIB)
    assert set(store.windows()) == names(refused)
    assert_holds(store, refused)
    store.close()


@pytest.mark.spec(30)
@pytest.mark.fault("F5")
def test_a_disk_too_full_to_forget_says_so_and_forgets_later(small_disk: Path) -> None:
    """The second index that forgetting needs finds no room."""
    store = DiskStore(small_disk / "store", 4096 * MIB)
    chains = [sealed(make_chain(20, seed=seed)) for seed in range(150)]
    for windows in chains:
        store.put(windows)
    room = os.statvfs(small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(room.f_bavail * room.f_frsize - 300 * 1024))
    with pytest.raises(StoreFull):
        store.forget(names(chains[0]))
    assert_holds(store, chains[1])
    assert load(store, chains[0]) == [None] * 20
    ballast.unlink()
    store.forget(names(chains[0]))
    assert hits(small_disk, sentinels(chains[0])) == []
    for windows in chains[1:]:
        assert_holds(store, windows[:2])
    store.close()


def _fill(disk: Path) -> None:
    """Not a byte is left."""
    with suppress(OSError), (disk / f"ballast{time.monotonic_ns()}").open("ab", 0) as file:
        for size in (MIB, 4096):
            with suppress(OSError):
                while file.write(bytes(size)):
                    pass


def _on_full_disk(disk: Path, cap_bytes: int = 4096 * MIB) -> DiskStore:
    _fill(disk)
    store = DiskStore(disk / "store", cap_bytes, reserve_bytes=RESERVE_BYTES)
    store.take_reserve()
    _fill(disk)
    store.spare(())
    return store


@pytest.mark.spec(30)
@pytest.mark.fault("F5")
def test_on_a_full_disk_a_store_opens_is_read_and_makes_room(small_disk: Path) -> None:
    path = small_disk / "store"
    store = DiskStore(path, 4096 * MIB, reserve_bytes=RESERVE_BYTES)
    store.take_reserve()
    windows = [sealed(make_chain(1, profile=WIDE, seed=seed))[0] for seed in range(500)]
    num_put = _put_until_full(store, windows)  # it was the store that filled the disk
    assert 100 < num_put < 500
    put = windows[:num_put]
    for _ in range(2):
        killed(store)
        store = _on_full_disk(small_disk)
        _fill(small_disk)
        assert_holds(store, put[::40])
        with pytest.raises(StoreFull):
            store.put(windows[num_put : num_put + 4])
    store.close()
    store = _on_full_disk(small_disk)
    _fill(small_disk)
    assert store.forget(names(put[-90:])).num_windows == 90
    assert hits(path, sentinels(put[-2:])) == []
    assert_holds(store, put[:-90:40])
    killed(store)
    store = _on_full_disk(small_disk, 8 * MIB)  # which doctor advises
    assert store.stats().used_bytes <= 8 * MIB
    assert disk_bytes(path) <= 10 * MIB
    store.put(windows[num_put : num_put + 4])
    assert_holds(store, windows[num_put : num_put + 4])
    assert store.check().bad_windows == 0
    store.close()


@pytest.mark.spec(30)
@pytest.mark.fault("F5")
def test_a_store_that_cannot_be_opened_says_how_much_is_to_be_freed(small_disk: Path) -> None:
    windows = sealed(make_chain(8))
    store = DiskStore(small_disk / "store", 4096 * MIB)
    store.put(windows)
    killed(store)
    _fill(small_disk)
    with pytest.raises(StoreFull, match="cannot be opened") as caught:
        DiskStore(small_disk / "store", 4096 * MIB)
    found = re.search(r"free ([\d,]+) KiB", caught.value.hint or "")
    assert found is not None
    for ballast in small_disk.glob("ballast?*"):
        os.truncate(ballast, ballast.stat().st_size - 1024 * int(found[1].replace(",", "")))
    store = DiskStore(small_disk / "store", 4096 * MIB)
    assert_holds(store, windows)
    store.close()


@pytest.mark.spec(30)
@pytest.mark.fault("F5")
def test_the_reserve_comes_before_what_is_put(small_disk: Path) -> None:
    """Else the first to come would take the room that emptying the store needs."""
    windows = sealed(make_chain(8))
    store = DiskStore(small_disk / "store", 4096 * MIB, reserve_bytes=RESERVE_BYTES)
    _fill(small_disk)
    [ballast] = small_disk.glob("ballast*")
    os.truncate(ballast, ballast.stat().st_size - MIB)
    with pytest.raises(StoreFull):
        store.put(windows)
    ballast.unlink()
    store.put(windows)
    assert_holds(store, windows)
    assert (small_disk / "store" / "reserve").stat().st_size == 4 * MIB
    store.close()


@pytest.mark.spec(30)
def test_the_reserve_counts_against_the_cap_and_is_cut_with_it(tmp_path: Path) -> None:
    reserve = tmp_path / "store" / "reserve"
    store = DiskStore(tmp_path / "store", 64 * MIB, reserve_bytes=RESERVE_BYTES)
    store.take_reserve()
    assert store.stats().used_bytes == reserve.stat().st_size == 4 * MIB
    assert reserve.stat().st_blocks * 512 >= 4 * MIB
    windows = [sealed(make_chain(1, profile=WIDE, seed=seed))[0] for seed in range(500)]
    for start in range(0, 500, 50):
        store.put(windows[start : start + 50])
        assert store.stats().used_bytes <= 64 * MIB
    assert store.stats().num_evicted
    store.close()
    store = DiskStore(tmp_path / "store", 16 * MIB, reserve_bytes=RESERVE_BYTES)
    store.spare(())
    assert reserve.stat().st_size == MIB
    assert store.stats().used_bytes <= 16 * MIB
    store.close()
    DiskStore(tmp_path / "store", 16 * MIB).close()
    assert not reserve.exists()


@pytest.mark.spec(30, 31)
@pytest.mark.fault("F5")
@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_forgetting_that_a_full_disk_cut_in_two_is_finished_later(
    small_disk: Path, is_restarted: bool
) -> None:
    """The store opens all the same, and is read from."""
    path = small_disk / "store"
    store = DiskStore(path, 4096 * MIB)
    chains = [sealed(make_chain(20, seed=seed)) for seed in range(60)]
    for windows in chains:
        store.put(windows)
    store.close()
    store = DiskStore(path, 4096 * MIB)  # rows are in tables now, not in a log to be replayed
    room = os.statvfs(small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(room.f_bavail * room.f_frsize - 250 * 1024))
    with pytest.raises(StoreFull):
        store.forget(names(chains[0]))
    killed(store)
    store = DiskStore(path, 4096 * MIB)
    assert load(store, chains[0]) == [None] * 20
    assert_holds(store, chains[1])
    with suppress(StoreFull):
        store.put(chains[1])  # a put with no room for it is not at the cost of what there is
    assert hits(path, sentinels(chains[0]))
    ballast.unlink()
    if is_restarted:
        killed(store)
        store = DiskStore(path, 4096 * MIB)
    else:
        store.put(chains[1])
    assert hits(path, sentinels(chains[0])) == []
    assert not store._catalog.state.unscrubbed
    assert set(store.windows()) == {name for part in chains[1:] for name in names(part)}
    store.close()


@pytest.mark.spec(30, 31)
def test_what_a_start_cannot_finish_is_finished_by_a_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Segments are missing, and the index's files have to be written anew: both are refused."""
    path = tmp_path / "store"
    windows, later = sealed(make_chain(6)), sealed(make_chain(2, seed=1))
    store = DiskStore(path, CAP, segment_bytes=8 * 1024)
    for window in windows:
        store.put([window])

    def refuse(*args: object) -> None:
        raise StoreFull("the disk is full", hint="make room")

    with monkeypatch.context() as patch:
        patch.setattr(Mender, "scrub", refuse)
        with pytest.raises(StoreFull):
            store.forget(names(windows[:1]))
    killed(store)
    lost = segment_files(path)[-1]
    lost.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(Mender, "scrub", refuse)
        patch.setattr(Remover, "_carry_out", refuse)
        store = DiskStore(path, CAP, segment_bytes=8 * 1024)
        assert len(caplog.messages) == 3
        assert_holds(store, windows[1:-1])
        assert load(store, windows[-1:]) == [None]
    assert store._catalog.state.unscrubbed
    store.put(later)
    assert set(store.windows()) == names([*windows[1:-1], *later])
    assert store._catalog.state.unscrubbed  # not at every put
    monkeypatch.setattr(store._mender, "_no_scrub_before", 0.0)
    store.put(later)
    assert not store._catalog.state.unscrubbed
    assert hits(path, sentinels(windows[:1], windows[1:])) == []
    store.put(windows)
    assert_holds(store, [*windows, *later])
    store.close()


@pytest.mark.fault("F6")
def test_without_a_file_descriptor_nothing_is_lost_by_making_room(tmp_path: Path) -> None:
    path = tmp_path / "store"
    windows = [sealed(make_chain(1, profile=WIDE, seed=seed))[0] for seed in range(30)]
    store = DiskStore(path, 20 * 140 * 1024, segment_bytes=1024 * 1024)
    store.put(windows[:18])
    before = store.stats()
    with no_descriptor_left():
        for _ in range(3):
            with pytest.raises(StoreBroken):
                store.put(windows[18:24])
        with pytest.raises(StoreBroken):
            store.forget(names(windows[17:18]))
    stats = store.stats()
    assert stats.num_quarantined == 0
    assert stats.num_windows > before.num_windows / 2
    store.put(windows[18:24])
    assert_holds(store, windows[18:24])
    assert store.forget(names(windows[17:18])).num_windows <= 1
    assert hits(path, sentinels(windows[17:18])) == []
    assert store.stats().used_bytes <= 20 * 140 * 1024
    assert store.check().bad_windows == 0
    store.close()
