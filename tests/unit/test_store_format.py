"""Segments and rows are what 7-store.md says: frozen, and read by a reader that shares no code."""

from __future__ import annotations

import ast
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glia.errors import StoreVersion
from glia.graph.ids import BlockId, PrefixKey, WindowId
from glia.store.disk import DiskStore
from glia.store.group import encode_head, head_length, parse_head
from glia.store.schema import (
    Location,
    Run,
    State,
    WindowRow,
    decode_location,
    decode_state,
    decode_use,
    decode_window,
    encode_use,
    runs_of,
    spans_of,
    use_key,
)
from tests.builders import make_chain
from tests.store_parts import MIB, assert_holds, flip_bit, joined, sealed, segment_files
from tests.vectors import make_store, store_reference


def _vector() -> dict[str, Any]:
    vector: dict[str, Any] = json.loads(make_store.FILE.read_text())
    return vector


def _rows(vector: dict[str, Any]) -> dict[bytes, bytes]:
    return {bytes.fromhex(key): bytes.fromhex(row) for key, row in vector["rows"].items()}


def _segments(vector: dict[str, Any]) -> dict[int, bytes]:
    return {int(number): bytes.fromhex(data) for number, data in vector["segments"].items()}


def test_the_vector_is_what_the_store_writes() -> None:
    assert make_store.build() == _vector()


def test_the_reference_shares_no_code() -> None:
    tree = ast.parse(Path(store_reference.__file__).read_text())
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {"struct", "blake3"}


def test_the_reference_lists_the_vector() -> None:
    vector = _vector()
    found = store_reference.listing(_segments(vector), _rows(vector))
    assert {name.hex() for name in found} == set(vector["windows"])
    for window in make_store.WINDOWS:
        prefix, record, particles = found[window.record.window_id]
        assert (prefix, record) == (window.prefix_key, window.record.encoding)
        assert particles == list(window.particles)
    rows = _rows(vector)
    names = {key[1:]: decode_location(row) for key, row in rows.items() if key[:1] == b"b"}
    for window in make_store.WINDOWS:
        assert store_reference.runs_agree(rows[b"w" + window.record.window_id], names)
    state = store_reference.state_of(_rows(vector))
    assert (state["num_windows"], state["num_blocks"], state["clean"]) == (3, 4, 1)
    assert state["offset"] == len(_segments(vector)[1])
    counted = {key: row for key, row in _rows(vector).items() if key[:1] in (b"b", b"w", b"p")}
    assert state["index_bytes"] == sum(len(key) + len(row) for key, row in counted.items())


def test_the_reference_walks_the_segment_alone() -> None:
    groups = list(store_reference.read_segment(_segments(_vector())[1], 1))
    assert [group["window"] for _, group in groups] == [
        window.record.window_id for window in make_store.WINDOWS
    ]
    assert [len(group["blocks"]) for _, group in groups] == [2, 2, 0]
    assert all(offset % 64 == 0 for offset, _ in groups)


def test_the_store_reads_the_vector(tmp_path: Path) -> None:
    """Its segment alone, without any index."""
    (tmp_path / "store" / "segments").mkdir(parents=True)
    data = _segments(_vector())[1]
    (tmp_path / "store" / "segments" / "00000001.seg").write_bytes(data)
    store = DiskStore(tmp_path / "store", MIB)
    assert_holds(store, make_store.WINDOWS)
    assert store.stats().num_windows == 3
    store.close()


@pytest.mark.spec(25)
def test_the_reference_lists_any_store(tmp_path: Path) -> None:
    """Many segments, forks, evictions, a block healed elsewhere, an unclean stop."""
    path = tmp_path / "store"
    base = make_chain(10)
    forks = [make_chain(4, seed=seed, base=base) for seed in range(3)]
    store = DiskStore(path, 32 * 1024)
    for fork in forks:
        store.put(sealed(fork))
    hurt = sealed(forks[2])[-1]
    for file in segment_files(path):
        at = file.read_bytes().find(bytes(hurt.particles[0]))
        if at >= 0:
            flip_bit(file, 8 * at)
    assert store.check().bad == 1
    store.put([hurt])
    assert store.stats().num_evicted > 0
    whole = {name for name in store.windows() if store.get(name) is not None}
    store._catalog.index.close()  # killed
    store._lock.release()
    segments = {int(file.stem): file.read_bytes() for file in segment_files(path)}
    found = store_reference.listing(segments, make_store.rows_of(path))
    assert set(found) == whole
    for window in (window for fork in forks for window in sealed(fork)):
        if window.record.window_id in whole:
            prefix, record, particles = found[window.record.window_id]
            assert (prefix, record) == (window.prefix_key, window.record.encoding)
            assert b"".join(particles) == joined(window)


@pytest.mark.spec(61)
def test_any_bit_of_a_groups_head_is_guarded() -> None:
    window = sealed(make_chain(1))[0]
    entries = [(n, len(particle)) for n, particle in enumerate(window.particles)]
    head = encode_head(window.record, window.prefix_key, entries)
    parsed = parse_head(head)
    assert parsed is not None
    assert (parsed.record, parsed.prefix_key) == (window.record, window.prefix_key)
    assert parsed.entries == tuple(entries)
    assert head_length(head) == len(head) == parsed.head_bytes
    used = 96 + 8 * len(entries) + len(window.record.encoding)
    for bit in range(8 * used):
        damaged = bytearray(head)
        damaged[bit // 8] ^= 1 << bit % 8
        assert parse_head(bytes(damaged)) is None
    for cut in (0, 1, 95, 96, used - 1):
        assert parse_head(head[:cut]) is None


def test_a_newer_version_is_refused_everywhere(tmp_path: Path) -> None:
    state = bytearray(State().encode())
    state[0] = 2
    with pytest.raises(StoreVersion) as caught:
        decode_state(bytes(state))
    assert caught.value.hint
    path = tmp_path / "store"
    DiskStore(path, MIB).close()
    (path / "format").write_text("glia-store 2\n")
    with pytest.raises(StoreVersion):
        DiskStore(path, MIB)
    (path / "format").write_text("glia-store 1\n")
    DiskStore(path, MIB).close()


def test_a_newer_segment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "store"
    store = DiskStore(path, MIB)
    with monkeypatch.context() as patch:
        patch.setattr("glia.store.group.FORMAT_VERSION", 2)
        store.put(sealed(make_chain(1)))
    store.close()
    for file in (path / "index").iterdir():
        file.unlink()
    with pytest.raises(StoreVersion):
        DiskStore(path, MIB)


def test_rows_read_back() -> None:
    rng = random.Random(0)
    where = Location(7, 1 << 40, 65_728)
    assert decode_location(where.encode()) == where
    state = State(1, 2, 3, 4, 5, 6, clean=True)
    assert decode_state(state.encode()) == state
    assert decode_state(replace(state, clean=False).encode()) == replace(state, clean=False)
    assert decode_use(use_key(9), encode_use(1 << 50)) == (9, 1 << 50)
    runs = (Run(1, 64, 2), Run(3, 128, 1))
    row = WindowRow(2, 64, PrefixKey(rng.randbytes(32)), runs, (5, 6, 7), b"record")
    assert decode_window(row.encode()) == row


def test_rows_that_cannot_be_are_none() -> None:
    row = WindowRow(2, 64, PrefixKey(bytes(32)), (Run(1, 64, 2),), (5, 6), b"record").encode()
    for cut in range(len(row)):
        assert decode_window(row[:cut]) is None
    assert decode_window(row + b"\0") is None
    odd = WindowRow(2, 64, PrefixKey(bytes(32)), (Run(1, 64, 3),), (5, 6), b"record").encode()
    assert decode_window(odd) is None
    assert decode_location(bytes(15)) is None
    assert decode_state(bytes(3)) is None
    assert decode_use(b"u123", bytes(8)) is None


def test_runs_join_what_lies_side_by_side() -> None:
    places = [
        Location(1, 64, 10),
        Location(1, 74, 20),
        Location(1, 64, 10),
        Location(2, 74, 5),
        Location(2, 79, 5),
    ]
    runs = runs_of(places)
    assert runs == (Run(1, 64, 2), Run(1, 64, 1), Run(2, 74, 2))
    spans = spans_of(runs, [where.length for where in places])
    assert spans == [(1, 64, 30), (1, 64, 10), (2, 74, 10)]
    assert runs_of([]) == ()


def test_names_of_one_kind_are_not_those_of_another(tmp_path: Path) -> None:
    """A block id asked for as a window, and the other way round."""
    window = sealed(make_chain(1))[0]
    store = DiskStore(tmp_path / "store", MIB)
    store.put([window])
    assert store.get(WindowId(bytes(window.record.blocks[0]))) is None
    assert not store.has_block(BlockId(bytes(window.record.window_id)))
    assert store.find(PrefixKey(bytes(window.record.window_id))) == []
    store.close()
