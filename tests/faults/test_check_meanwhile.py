"""check counts what is damaged, not what was evicted or forgotten while it was read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import glia.store.check
from glia.store.disk import DiskStore
from glia.store.reading import Wanted, read_and_verify
from glia.store.segment import Segments
from tests.builders import make_chain
from tests.store_parts import MIB, assert_holds, sealed


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DiskStore]:
    made = DiskStore(tmp_path / "store", 64 * MIB)
    yield made
    made.close()


def test_what_goes_while_it_is_read_is_not_bad(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays, goes = sealed(make_chain(4, seed=1)), sealed(make_chain(4, seed=2))
    store.put(stays + goes)

    def read_while_some_go(segments: Segments, wanted: Sequence[Wanted]) -> list[list[int]]:
        store.forget({window.record.window_id for window in goes})
        return read_and_verify(segments, wanted)

    monkeypatch.setattr(glia.store.check, "read_and_verify", read_while_some_go)
    report = store.check()
    assert (report.bad, report.bad_windows, report.windows) == (0, 0, len(stays))
    assert store.stats().num_quarantined == 0
    assert_holds(store, stays)


def test_what_is_found_bad_by_others_meanwhile_is_counted(
    store: DiskStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    windows = sealed(make_chain(2, seed=1))
    store.put(windows)
    particle = bytes(windows[1].particles[0])
    (segment,) = (tmp_path / "store" / "segments").iterdir()
    data = bytearray(segment.read_bytes())
    data[data.index(particle) + len(particle) - 1] ^= 1
    segment.write_bytes(data)

    def read_while_another_reads(segments: Segments, wanted: Sequence[Wanted]) -> list[list[int]]:
        name = windows[1].record.window_id
        size = sum(map(len, windows[1].particles))
        assert store.load([name], [memoryview(bytearray(size))]) == [False]
        return read_and_verify(segments, wanted)

    monkeypatch.setattr(glia.store.check, "read_and_verify", read_while_another_reads)
    report = store.check()
    assert (report.bad, report.bad_windows) == (1, 1)
