"""Forgetting: no byte of it is in the store's files, whatever LevelDB and a crash did before.

What lives on is unharmed, byte for byte.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glia.errors import StoreBroken
from glia.graph.ids import WindowId
from glia.store.base import Forgotten, SealedWindow
from glia.store.dead import Dead
from glia.store.disk import DiskStore
from glia.store.draft import Draft
from glia.store.keys import window_key
from glia.store.remover import Remover
from glia.store.repair import Mender
from glia.store.segment import Segments
from tests.builders import make_chain, make_profile
from tests.store_parts import (
    FULL,
    MIB,
    assert_holds,
    data_bytes,
    flip_bit,
    hits,
    index_files,
    killed,
    load,
    names,
    sealed,
    segment_files,
    sentinels,
)

PROFILE = make_profile(num_layers=3, head_dim=16)
BASE = make_chain(6, profile=PROFILE)
KEPT = sealed(make_chain(5, profile=PROFILE, seed=1, base=BASE))
FORGOTTEN = sealed(make_chain(7, profile=PROFILE, seed=2, base=BASE), range(6, 13))
OTHERS = [sealed(make_chain(4, profile=PROFILE, seed=seed)) for seed in range(10, 16)]


def _opened(path: Path) -> DiskStore:
    return DiskStore(path, 64 * MIB, segment_bytes=40 * 1024)


def _twin(window: SealedWindow) -> SealedWindow:
    record = replace(window.record, numerics_class="native:twin")
    return SealedWindow(record, window.prefix_key, window.particles)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is to be forgotten is in several of LevelDB's tables, and in its log."""
    path = tmp_path_factory.mktemp("forget") / "store"
    parts = [KEPT[:8], OTHERS[0], FORGOTTEN[:4], OTHERS[1] + KEPT[8:], FORGOTTEN[4:], *OTHERS[2:]]
    for part in parts:
        store = _opened(path)
        store.put(part)
        load(store, part)
        store.close()
    assert len([file for file in index_files(path) if file.suffix == ".ldb"]) >= 2
    assert len(segment_files(path)) >= 3
    return path


@pytest.fixture
def path(model: Path, tmp_path: Path) -> Path:
    path = tmp_path / "store"
    shutil.copytree(model, path)
    return path


LIVING = [*KEPT, *(window for part in OTHERS for window in part)]


@pytest.mark.spec(31)
@pytest.mark.fault("F7")
def test_nothing_of_it_is_left_and_the_rest_is_unharmed(path: Path) -> None:
    looked_for = sentinels(FORGOTTEN)
    found = {sentinel for _, sentinel in hits(path, looked_for)}
    assert found == {sentinel.hex() for sentinel in looked_for}
    store = _opened(path)
    calls: list[tuple[int, int]] = []
    forgotten = store.forget(names(FORGOTTEN), lambda done, total: calls.append((done, total)))
    assert forgotten.num_windows == len(FORGOTTEN)
    assert forgotten.freed_bytes >= sum(len(p) for w in FORGOTTEN for p in w.particles)
    assert calls[-1][0] == calls[-1][1]
    assert hits(path, looked_for) == []
    assert_holds(store, LIVING)
    store.put(OTHERS[0])
    store.close()
    assert hits(path, looked_for) == []
    shutil.rmtree(path / "index")
    store = _opened(path)
    assert set(store.windows()) == names(LIVING)
    assert_holds(store, LIVING)
    store.put(FORGOTTEN)  # it may come again
    assert_holds(store, [*LIVING, *FORGOTTEN])
    store.close()


@pytest.mark.spec(31)
@pytest.mark.fault("F7")
def test_what_was_evicted_damaged_or_written_twice_before(path: Path) -> None:
    """Its rows went, or it has several groups: nothing of it is left all the same."""
    store = _opened(path)
    hurt, twice, evicted = FORGOTTEN[0], FORGOTTEN[1], FORGOTTEN[5:]
    for window in (hurt, twice):
        for file in segment_files(path):
            at = file.read_bytes().find(bytes(window.particles[1]))
            if at >= 0:
                flip_bit(file, 8 * at + 4000)
    assert store.check().bad == 2
    store.put([twice])
    with store._catalog.lock:
        store._remover._carry_out(store._remover._take(names(evicted)))
    store.put([_twin(FORGOTTEN[2])])
    store.forget(names(FORGOTTEN))
    twin = _twin(FORGOTTEN[2])
    assert hits(path, sentinels(FORGOTTEN, [twin])) == []
    assert_holds(store, [*LIVING, twin])
    store.close()
    store = _opened(path)
    store.forget([twin.record.window_id])
    assert hits(path, sentinels(FORGOTTEN)) == []
    assert_holds(store, LIVING)
    store.close()


@pytest.mark.spec(31, 65)
@pytest.mark.fault("F7")
@pytest.mark.parametrize("step", ["erase", "sync", "_copy_rows", "_finish_copy", "replace"])
def test_a_crash_in_the_middle_is_finished_by_the_next_start(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    store = _opened(path)

    def crash(*args: object) -> None:
        raise KeyboardInterrupt

    owner: Any = {"erase": store._catalog.segments, "sync": store._catalog.segments}.get(
        step, store._catalog.index if step == "replace" else Mender
    )
    with monkeypatch.context() as patch:
        patch.setattr(owner, step, crash)
        with pytest.raises(KeyboardInterrupt):
            store.forget(names(FORGOTTEN))
    killed(store)
    assert hits(path, sentinels(FORGOTTEN))
    store = _opened(path)
    assert hits(path, sentinels(FORGOTTEN)) == []
    assert set(store.windows()) == names(LIVING)
    assert_holds(store, LIVING)
    assert store.check().bad == 0
    store.close()


@pytest.mark.spec(31, 65)
@pytest.mark.fault("F7")
def test_a_crash_while_the_copy_takes_the_indexs_place(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There is a whole index at any moment: none is built again."""
    store = _opened(path)
    rename = os.rename

    def crash(source: Path, target: Path) -> None:
        if source.name == "index.copy":
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", crash)
        with pytest.raises(KeyboardInterrupt):
            store.forget(names(FORGOTTEN))
    killed(store)
    assert not (path / "index").exists()
    store = _opened(path)
    assert caplog.messages == []
    assert hits(path, sentinels(FORGOTTEN)) == []
    assert_holds(store, LIVING)
    store.close()


@pytest.mark.spec(31)
@pytest.mark.parametrize("shot", range(6 if FULL else 2))
def test_puts_and_loads_go_on_meanwhile(path: Path, shot: int) -> None:
    store = _opened(path)
    later = [
        sealed(make_chain(3, profile=PROFILE, seed=1000 + 100 * shot + seed)) for seed in range(20)
    ]
    stop = threading.Event()
    seen: list[int] = []

    def work() -> None:
        for part in later:
            store.put(part)
            assert_holds(store, [*part, *KEPT])
            seen.append(len(part))
            if stop.is_set():
                return

    worker = threading.Thread(target=work)
    worker.start()
    for window in FORGOTTEN:
        store.forget([window.record.window_id])
    stop.set()
    worker.join()
    assert seen
    assert hits(path, sentinels(FORGOTTEN)) == []
    put = [window for part in later[: len(seen)] for window in part]
    for _ in range(2):
        assert set(store.windows()) == names([*LIVING, *put])
        assert_holds(store, [*LIVING, *put])
        store.close()
        store = _opened(path)
    store.close()


def _on_the_way(store: DiskStore, change: Callable[[], None]) -> None:
    copy_rows = store._mender._copy_rows

    def then(*args: Any) -> None:
        copy_rows(*args)
        change()

    store._mender._copy_rows = then  # type: ignore[method-assign, assignment]


@pytest.mark.spec(31)
def test_rows_that_change_while_the_index_is_copied_are_in_the_copy(path: Path) -> None:
    store = _opened(path)
    new = sealed(make_chain(3, profile=PROFILE, seed=50))
    evicted = OTHERS[5]

    def change() -> None:
        store.put(new)
        with store._catalog.lock:
            store._remover._carry_out(store._remover._take(names(evicted)))
        load(store, KEPT)

    _on_the_way(store, change)
    store.forget(names(FORGOTTEN))
    expected = [w for w in LIVING if w not in evicted] + new
    for _ in range(2):
        assert set(store.windows()) == names(expected)
        assert_holds(store, expected)
        assert store.stats().num_windows == len(expected)
        store.close()
        store = _opened(path)
    store.close()


def test_an_index_that_is_built_again_meanwhile_needs_no_copy(path: Path) -> None:
    store = _opened(path)
    new = sealed(make_chain(3, profile=PROFILE, seed=50))

    def damage() -> None:
        store._mender.rebuild(store._catalog.generation)
        store.put(new)

    _on_the_way(store, damage)
    store.forget(names(FORGOTTEN))
    assert hits(path, sentinels(FORGOTTEN)) == []
    assert store._catalog.generation == 1
    assert_holds(store, [*LIVING, *new])
    store.put(FORGOTTEN)
    assert_holds(store, FORGOTTEN)
    store.close()


def test_what_cannot_be_erased_is_said_and_erased_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = _opened(path)

    def refuse(*args: object) -> None:
        raise OSError(5, "no")

    used = store.stats().used_bytes
    with monkeypatch.context() as patch:
        patch.setattr("glia.store.segment.punch", refuse)
        with pytest.raises(StoreBroken):
            store.forget(names(FORGOTTEN))
    assert store.stats().num_windows == len(LIVING)
    assert store.forget(names(FORGOTTEN)).num_windows == 0
    assert hits(path, sentinels(FORGOTTEN)) == []
    assert store.stats().used_bytes < used - sum(len(p) for w in FORGOTTEN for p in w.particles)
    assert_holds(store, LIVING)
    store.close()


@pytest.mark.spec(31)
@pytest.mark.parametrize("is_restarted", [True, False])
def test_what_is_erased_by_a_second_try_is_synced_before_it_is_said(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    """Where the first try was refused, and after a crash: else a power cut brings it back."""

    def refuse(*args: object) -> None:
        raise OSError(5, "no")

    store = _opened(path)
    with monkeypatch.context() as patch:
        patch.setattr("glia.store.segment.punch", refuse)
        with pytest.raises(StoreBroken):
            store.forget(names(FORGOTTEN))
    spans = {span.segment for span in store._catalog.dead._left}
    erased = {store._catalog.segments.file(number).stat().st_ino for number in spans}
    assert len(erased) > 1
    synced: set[int] = set()
    fsync, settle = os.fsync, Dead.settle

    def sync(fd: int) -> None:
        fsync(fd)
        synced.add(os.fstat(fd).st_ino)

    def settled(dead: Dead, draft: Draft) -> None:
        settle(dead, draft)
        assert not dead._erased or erased <= synced

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Dead, "settle", settled)
    if is_restarted:
        killed(store)
        store = _opened(path)
    else:
        store.forget(names(FORGOTTEN))
        assert (path / "segments").stat().st_ino in synced
    assert erased <= synced
    assert hits(path, sentinels(FORGOTTEN)) == []
    store.close()


@pytest.mark.spec(31)
@pytest.mark.parametrize("is_restarted", [True, False])
@pytest.mark.parametrize("is_put", [True, False])
def test_a_segment_that_cannot_be_removed_is_said_and_removed_later(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_put: bool, is_restarted: bool
) -> None:
    """It keeps nothing else from being erased, and counts until it is gone."""
    store = _opened(path)
    alone = sealed(make_chain(16, profile=PROFILE, seed=60))  # more than a segment of them
    store.put([*alone, FORGOTTEN[0]])
    gone = [*alone, *FORGOTTEN]

    def refuse(number: int) -> None:
        raise OSError(5, "no")

    with monkeypatch.context() as patch:
        patch.setattr(store._catalog.segments, "unlink", refuse)
        for _ in range(2):
            with pytest.raises(StoreBroken):
                store.forget(names(gone))
        left = {file for file, _ in hits(path / "segments", sentinels(gone))}
        live = {store._catalog.segments.file(n).name for n in store._catalog.segments.numbers()}
        assert left
        assert not left & live
        on_disk = sum(map(data_bytes, segment_files(path)))
        assert store.stats().used_bytes >= on_disk
        if is_restarted:
            killed(store)
            patch.setattr(Segments, "unlink", lambda _, number: refuse(number))
            store = _opened(path)
            assert store.stats().used_bytes >= on_disk
    if is_put:
        store.put(OTHERS[0])  # no new bytes, and none are removed
        later = sealed(make_chain(1, profile=PROFILE, seed=61))
        store.put(later)
        assert hits(path / "segments", sentinels(gone)) == []
        store.forget(names(later))
    assert store.forget(names(gone)).num_windows == 0
    assert hits(path, sentinels(gone)) == []
    assert store.stats().used_bytes < on_disk
    assert_holds(store, LIVING)
    store.close()


@pytest.mark.spec(31)
@pytest.mark.parametrize("at", [5, 40, 100, -3, None])
@pytest.mark.parametrize("is_its_own", [True, False])
def test_a_damaged_row_is_built_again_before_anything_goes_by_it(
    path: Path, is_its_own: bool, at: int | None
) -> None:
    """Of what is forgotten, and of one that shares its blocks."""
    store = _opened(path)
    window, twin = FORGOTTEN[3], _twin(FORGOTTEN[3])
    store.put([twin])
    name = (window if is_its_own else twin).record.window_id
    row = store._catalog.row(name)
    assert row is not None
    encoding = bytearray(row.encoding)
    if at is not None:
        encoding[at] ^= 1
    value = replace(row, encoding=bytes(encoding)).encode()[: None if at is not None else -1]
    store._catalog.index.write([(window_key(name), value)], sync=True)
    assert store.forget(names(FORGOTTEN)).num_windows == len(FORGOTTEN)
    assert hits(path, sentinels(FORGOTTEN, [twin])) == []
    assert_holds(store, [*LIVING, twin])
    store.close()


@pytest.mark.spec(31, 65)
@pytest.mark.fault("F7")
def test_what_is_forgotten_while_the_index_is_copied_for_another_is_finished_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy has its names: whoever puts it in place must not say that all is done."""
    store = _opened(path)
    later = OTHERS[3]
    copied, ended = threading.Event(), threading.Event()
    copy_rows, forget = Mender._copy_rows, Remover.forget

    def second() -> None:
        assert copied.wait(60)
        with suppress(KeyboardInterrupt):
            store.forget(names(later))

    def copy(mender: Mender, *args: Any) -> None:
        if threading.current_thread() is thread:
            raise KeyboardInterrupt  # the crash
        copy_rows(mender, *args)
        copied.set()
        ended.wait(0.2)

    def removed(
        remover: Remover, window_ids: Sequence[WindowId], going: Set[WindowId]
    ) -> Forgotten:
        forgotten = forget(remover, window_ids, going)
        if threading.current_thread() is thread:
            ended.set()
        return forgotten

    thread = threading.Thread(target=second)
    with monkeypatch.context() as patch:
        patch.setattr(Mender, "_copy_rows", copy)
        patch.setattr(Remover, "forget", removed)
        thread.start()
        store.forget(names(FORGOTTEN))
        thread.join(60)
    assert ended.is_set()
    killed(store)
    store = _opened(path)
    assert hits(path, sentinels([*FORGOTTEN, *later])) == []
    assert_holds(store, [window for window in LIVING if window not in later])
    store.close()


def test_forgetting_one_by_one_in_any_order(path: Path) -> None:
    store = _opened(path)
    everything = [*LIVING, *FORGOTTEN]
    random.Random(3).shuffle(everything)
    while everything:
        gone, everything = everything[:9], everything[9:]
        assert store.forget(names(gone)).num_windows == len(gone)
        assert hits(path, sentinels(gone, everything)) == []
        assert_holds(store, everything)
    assert (store.stats().used_bytes, segment_files(path)) == (0, [])
    store.close()
