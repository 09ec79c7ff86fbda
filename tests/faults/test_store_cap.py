"""F7: ten times the cap is written, then all of it is forgotten."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from glia.errors import NotFound, StoreBroken
from glia.store import segment
from glia.store.base import SealedWindow
from glia.store.disk import DiskStore
from tests.builders import Chain, make_chain, make_profile
from tests.store_parts import (
    FULL,
    MIB,
    assert_holds,
    disk_bytes,
    hits,
    joined,
    load,
    names,
    sealed,
    segment_files,
    sentinels,
)

CAP = (96 if FULL else 10) * MIB
SEGMENT_BYTES = CAP // 16
PROFILE = make_profile(num_layers=3, kv_heads=8, head_dim=96)  # 48 KiB payloads


def _conversations(rng: random.Random) -> Iterator[list[SealedWindow]]:
    """Short and long ones; some go on with one that came before, from any of its windows."""
    known: list[Chain] = []
    seed = 0
    while True:
        seed += 1
        base = rng.choice(known) if known and rng.random() < 0.4 else None
        chain = make_chain(rng.randint(1, 12), profile=PROFILE, seed=seed, base=base)
        known = [*known, chain][-6:]
        yield sealed(chain)


@pytest.mark.spec(30)
@pytest.mark.fault("F7")
@pytest.mark.parametrize("gives_back", [True, False])
def test_ten_times_the_cap_goes_through_and_can_be_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gives_back: bool
) -> None:
    """Where the file system gives no ranges back: whole segments, and zeros."""
    if not gives_back:
        monkeypatch.setattr(segment, "can_punch", lambda path: False)
    path = tmp_path / "store"
    store = DiskStore(path, CAP, SEGMENT_BYTES)
    num_bytes = 0
    written: list[SealedWindow] = []
    for windows in _conversations(random.Random(7)):
        for start in range(0, len(windows), 4):
            part = windows[start : start + 4]
            fresh = [w for w in part if store.get(w.record.window_id) is None]
            store.put(part)
            num_bytes += sum(len(joined(window)) for window in fresh)
            written += fresh[:1]
            used = store.stats().used_bytes
            assert used <= CAP
            assert disk_bytes(path / "segments") <= used
        store.load(list(names(windows[-1:])), [memoryview(bytearray(len(joined(windows[-1]))))])
        if num_bytes > 10 * CAP:
            break
    assert store.stats().used_bytes > CAP / 2
    assert disk_bytes(path) <= 1.25 * CAP
    assert_holds(store, windows)
    there = [window for window in written if store.get(window.record.window_id) is not None]
    gone = [window for window in written if store.get(window.record.window_id) is None]
    assert len(gone) > len(there) > 0
    report = store.check()
    assert (report.bad, report.bad_windows) == (0, 0)
    assert (report.checked, report.windows) == (
        store.stats().num_blocks,
        store.stats().num_windows,
    )
    store.close()

    store = DiskStore(path, CAP, SEGMENT_BYTES)
    everything = list(store.windows())
    assert len(everything) == store.stats().num_windows
    keep = names(windows)
    assert store.forget(set(everything) - keep).num_windows == len(everything) - len(keep)
    assert set(store.windows()) == keep
    assert_holds(store, windows)
    looked_for = [w for w in gone + there if w.record.window_id not in keep]
    assert hits(path, sentinels(looked_for[:: 1 if FULL else 4])) == []
    store.forget(keep)
    assert hits(path, sentinels(windows)) == []
    assert (store.stats().used_bytes, segment_files(path)) == (0, [])
    assert disk_bytes(path) < MIB
    store.put(windows)
    assert_holds(store, windows)
    store.close()


def test_what_cannot_be_erased_makes_no_room_and_stays_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One step of eviction, and no more: the rest of the store is not sacrificed."""
    windows = [sealed(make_chain(1, profile=PROFILE, seed=seed))[0] for seed in range(60)]
    store = DiskStore(tmp_path / "store", 40 * 160 * 1024)
    store.put(windows[:39])
    before = store.stats()

    def refuse(*args: object) -> None:
        raise OSError(5, "no")

    with monkeypatch.context() as patch:
        patch.setattr(segment, "punch", refuse)
        for _ in range(3):
            with pytest.raises(StoreBroken):
                store.put(windows[39:44])
    stats = store.stats()
    assert before.num_windows > stats.num_windows > before.num_windows / 2
    assert stats.used_bytes > before.used_bytes - 64 * 1024  # rows went
    assert load(store, windows[39:44]) == [None] * 5
    store.put(windows[39:44])
    assert_holds(store, windows[39:44])
    assert disk_bytes(tmp_path / "store" / "segments") <= store.stats().used_bytes
    store.close()


@pytest.mark.spec(30, 61)
def test_reads_go_on_while_windows_go(tmp_path: Path) -> None:
    """Right bytes or a miss, and nothing is taken for damaged that was evicted under a reader."""
    windows = [sealed(make_chain(1, profile=PROFILE, seed=seed))[0] for seed in range(120)]
    store = DiskStore(tmp_path / "store", 30 * 160 * 1024, segment_bytes=MIB)
    stop = threading.Event()
    num_read = [0, 0, 0]

    def read(number: int) -> None:
        rng = random.Random(number)
        while not stop.is_set():
            some = rng.sample(windows, 6)
            for window, answer in zip(some, load(store, some), strict=True):
                assert answer in (None, joined(window))
                num_read[number] += answer is not None
                with suppress(NotFound):
                    particle = store.read_block(window.record.blocks[0])
                    assert particle == bytes(window.particles[0])

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read, number) for number in range(3)]
        try:
            for _ in range(3 if FULL else 1):
                for start in range(0, 120, 2):
                    store.put(windows[start : start + 2])
        finally:
            stop.set()
        for reader in readers:
            reader.result()
    assert all(num_read)
    assert store.stats().num_evicted > 60
    assert store.stats().num_quarantined == 0
    assert store.check().bad == 0
    store.close()
