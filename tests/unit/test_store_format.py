"""Segments and rows are what 7-store.md says: frozen, and read by a reader that shares no code."""

from __future__ import annotations

import ast
import json
import random
import struct
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from glia.errors import StoreVersion
from glia.graph.ids import BlockId, PrefixKey, WindowId
from glia.store.disk import DiskStore
from glia.store.group import (
    encode_head,
    encode_segment_head,
    head_length,
    parse_head,
    segment_version,
)
from glia.store.keys import dead_key, dead_range_of, leaf_key, leaf_of, segment_of, usage_key
from glia.store.schema import (
    Location,
    Run,
    Span,
    State,
    Usage,
    WindowRow,
    decode_location,
    decode_number,
    decode_state,
    decode_usage,
    decode_window,
    encode_number,
    runs_of,
    spans_of,
)
from tests.builders import make_chain
from tests.store_parts import MIB, assert_holds, flip_bit, joined, killed, sealed, segment_files
from tests.vectors import make_store, store_reference


def _vector() -> dict[str, Any]:
    vector: dict[str, Any] = json.loads(make_store.FILE.read_text())
    return vector


def _rows(vector: dict[str, Any]) -> dict[bytes, bytes]:
    return {bytes.fromhex(key): bytes.fromhex(row) for key, row in vector["rows"].items()}


def _segments(vector: dict[str, Any]) -> dict[int, bytes]:
    return {int(n): make_store.with_zeros(data) for n, data in vector["segments"].items()}


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
    state = store_reference.state_of(rows)
    assert (state["num_windows"], state["num_blocks"], state["flags"]) == (2, 4, 1)
    assert state["offset"] == len(_segments(vector)[1])
    counted = [(key, row) for key, row in rows.items() if key[:1] in b"bwpnlt"]
    assert state["index_bytes"] == sum(len(key) + len(row) for key, row in counted)
    assert state["tick"] == 3
    assert [name.hex() for name in store_reference.leaves(rows)] == vector["windows"]
    assert store_reference.usages_agree(_segments(vector), rows)


def test_the_reference_walks_the_segment_alone() -> None:
    groups = list(store_reference.read_segment(_segments(_vector())[1], 1))
    names = [make_store.WINDOWS[n].record.window_id for n in (0, 1, 1)]
    assert [group["window"] for _, group in groups] == names
    assert [len(group["blocks"]) for _, group in groups] == [2, 0, 2]
    assert [offset for offset, _ in groups] == [8192, 12288, 16384]


def test_what_was_forgotten_is_not_in_the_vector() -> None:
    """But the window that continues it names it in its record."""
    window = make_store.FORGOTTEN
    data = _segments(_vector())[1]
    rows = b"".join(key + row for key, row in _rows(_vector()).items())
    assert data.count(window.record.window_id) == 1
    assert rows.count(window.record.window_id) == 2  # in that record, and its row `n`
    assert window.record.encoding not in data + rows


def test_the_store_reads_the_vector(tmp_path: Path) -> None:
    """Its segment alone, without any index."""
    (tmp_path / "store" / "segments").mkdir(parents=True)
    data = _segments(_vector())[1]
    (tmp_path / "store" / "segments" / "00000001.seg").write_bytes(data)
    store = DiskStore(tmp_path / "store", MIB)
    assert_holds(store, make_store.WINDOWS)
    assert store.stats().num_windows == 2
    store.close()


@pytest.mark.spec(25)
def test_the_reference_lists_any_store(tmp_path: Path) -> None:
    """Many segments, forks, evictions, a block healed elsewhere, an unclean stop."""
    path = tmp_path / "store"
    base = make_chain(10)
    forks = [make_chain(4, seed=seed, base=base) for seed in range(3)]
    store = DiskStore(path, 128 * 1024)
    for fork in forks:
        store.put(sealed(fork))
    for seed in range(3, 18):
        store.put(sealed(make_chain(2, seed=seed)))
    store.put(sealed(forks[2]))
    hurt = sealed(forks[2])[-1]
    for file in segment_files(path):
        at = file.read_bytes().find(bytes(hurt.particles[0]))
        if at >= 0:
            flip_bit(file, 8 * at)
    assert store.check().bad == 1
    store.put([hurt])
    assert store.stats().num_evicted > 0
    whole = {name for name in store.windows() if store.get(name) is not None}
    killed(store)
    segments = {int(file.stem): file.read_bytes() for file in segment_files(path)}
    rows = make_store.rows_of(path)
    found = store_reference.listing(segments, rows)
    assert set(found) == whole
    assert len(store_reference.leaves(rows)) > 3
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


@pytest.mark.spec(61)
def test_any_bit_of_a_segments_head_is_guarded() -> None:
    for version in (1, 2):
        head = encode_segment_head(7, version)[:64]
        assert segment_version(head, 7) == version
        assert segment_version(head, 8) is None
        for bit in range(8 * 64):
            damaged = bytearray(head)
            damaged[bit // 8] ^= 1 << bit % 8
            assert segment_version(bytes(damaged), 7) is None


def test_a_newer_version_is_refused_everywhere(tmp_path: Path) -> None:
    state = bytearray(State().encode())
    state[0] = 3
    with pytest.raises(StoreVersion) as caught:
        decode_state(bytes(state))
    assert caught.value.hint
    path = tmp_path / "store"
    DiskStore(path, MIB).close()
    (path / "format").write_text("glia-store 3\n")
    with pytest.raises(StoreVersion):
        DiskStore(path, MIB)
    for text in ("glia-store 2\n", "?", ""):
        (path / "format").write_text(text)
        DiskStore(path, MIB).close()
        assert (path / "format").read_text() == "glia-store 2\n"


def test_a_newer_segment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store"
    store = DiskStore(path, MIB)
    store.put(sealed(make_chain(1)))
    store.close()
    (file,) = segment_files(path)
    fixed = struct.pack("<4sHHI", b"GSEG", 3, 0, 1)
    with open(file, "r+b") as raw:
        raw.write(fixed.ljust(56, b"\0") + blake3(fixed).digest(8))
    for table in (path / "index").iterdir():
        table.unlink()
    with pytest.raises(StoreVersion):
        DiskStore(path, MIB)


def test_rows_read_back() -> None:
    rng = random.Random(0)
    where = Location(7, 1 << 40, 65_728)
    assert decode_location(where.encode()) == where
    for clean, unscrubbed in product((False, True), repeat=2):
        state = State(1, 2, 3, 4, 5, 6, 7, clean, unscrubbed)
        assert decode_state(state.encode()) == state
    usage = Usage(9 << 40, 1 << 33, 1 << 31)
    assert decode_usage(usage.encode(), usage.size) == usage
    assert decode_number(encode_number(1 << 50)) == 1 << 50
    runs = (Run(1, 64, 2), Run(3, 128, 1))
    groups = (Span(2, 64, 1 << 33), Span(4, 4096, 8192))
    row = WindowRow(groups, PrefixKey(rng.randbytes(32)), runs, (5, 6, 7), b"record")
    assert decode_window(row.encode()) == row


def test_keys_read_back_and_are_in_order() -> None:
    name = WindowId(random.Random(1).randbytes(32))
    assert segment_of(usage_key(1 << 31)) == 1 << 31
    assert dead_range_of(dead_key(9, 1 << 50)) == (9, 1 << 50)
    assert leaf_of(leaf_key(1 << 50, name)) == (1 << 50, name)
    for key in (usage_key, lambda n: dead_key(n, 0), lambda n: leaf_key(n, name)):
        assert key(255) < key(256) < key(1 << 31)


def test_rows_that_cannot_be_are_none() -> None:
    groups = (Span(2, 64, 64),)
    row = WindowRow(groups, PrefixKey(bytes(32)), (Run(1, 64, 2),), (5, 6), b"record").encode()
    for cut in range(len(row)):
        assert decode_window(row[:cut]) is None
    assert decode_window(row + b"\0") is None
    odd = WindowRow(groups, PrefixKey(bytes(32)), (Run(1, 64, 3),), (5, 6), b"record").encode()
    assert decode_window(odd) is None
    assert decode_location(bytes(15)) is None
    assert decode_state(bytes(3)) is None
    assert decode_state(State().encode()[:-1]) is None
    assert decode_usage(bytes(11), 0) is None
    assert dead_range_of(b"d123") is None
    assert decode_number(bytes(7)) == 0


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
