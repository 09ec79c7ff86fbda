"""L0's tensors: every position is found in its slot, within the cap, and read without a copy."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from glia.errors import PoolExhausted
from glia.graph.profile import LayerShape
from glia.kv.pool import KEY_TILE, Pool, num_slots_for

SIZE = 16
SHAPES = (LayerShape(0, 2, 8), LayerShape(1, 2, 8), LayerShape(3, 1, 32))
CPU = torch.device("cpu")


def make_pool(num_slots: int = 12, context: int = 192, size: int = SIZE) -> Pool:
    return Pool(SHAPES, size, num_slots, torch.float32, CPU, context)


def token(layer: int, position: int, sequence: int = 1) -> torch.Tensor:
    """A K or V [G, D] that says whose it is."""
    shape = SHAPES[layer]
    return torch.full((shape.kv_heads, shape.head_dim), sequence * 1e4 + position + layer / 10)


def fill(pool: Pool, table: list[int], cuts: list[int], sequence: int = 1) -> None:
    at = 0
    for length in cuts:
        where = pool.dispatch(at, length, table)
        for layer in range(len(SHAPES)):
            rows = torch.stack([token(layer, p, sequence) for p in range(at, at + length)])
            pool.write(layer, where, rows, -rows)
        at += length


TABLES = [
    [0, 1, 2, 3, 4],
    [5, 6, 7, 8, 9],
    [9, 8, 7, 6, 5],
    [4, 0, 11, 7, 2],
    [0, 1, 2, 4, 3],
]


@pytest.mark.spec(2)
@pytest.mark.parametrize("table", TABLES, ids=str)
@pytest.mark.parametrize("cuts", [[70], [1] * 20, [15, 1, 1, 16, 17, 20]], ids=str)
@pytest.mark.parametrize("max_runs", [1, 16])
@pytest.mark.parametrize("read", [Pool.view, Pool.dense], ids=["view", "dense"])
def test_every_position_is_found_through_the_block_table_in_every_layer(
    table: list[int],
    cuts: list[int],
    max_runs: int,
    read: Callable[..., tuple[torch.Tensor, torch.Tensor]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("glia.kv.pool._MAX_RUNS", max_runs)
    pool = make_pool()
    fill(pool, table, cuts)
    total = sum(cuts)
    where = pool.dispatch(total - 1, 1, table)
    for layer in range(len(SHAPES)):
        for length in range(KEY_TILE, where.key_length + 1, KEY_TILE):
            keys, values = read(pool, layer, where, length)
            assert keys.shape[1] == values.shape[1] == length
            for position in range(min(total, length)):
                assert torch.equal(keys[:, position], token(layer, position))
                assert torch.equal(values[:, position], -token(layer, position))
            if read is Pool.dense:
                assert keys.is_contiguous()
                assert values.is_contiguous()


def test_many_runs_of_slots_are_gathered_and_few_are_copied() -> None:
    pool = make_pool(num_slots=80, context=80 * SIZE)
    table = [*range(0, 34, 2), *range(34, 40)]  # 17 runs: 34 follows 32 at a distance
    runs = pool.dispatch(len(table) * SIZE - 1, 1, table).runs
    assert list(runs) == []
    fill(pool, table, [len(table) * SIZE])
    few = table[2:]
    where = pool.dispatch(len(few) * SIZE - 1, 1, few)
    assert where.gather is None
    assert sum(count for _, count in where.runs) >= where.key_length


@pytest.mark.spec(2)
def test_a_sequence_leaves_at_most_block_size_minus_one_rows_unused() -> None:
    for num_tokens in range(1, 70):
        num_slots = -(-num_tokens // SIZE)
        where = make_pool().dispatch(0, num_tokens, list(range(12))[:num_slots])
        assert where.gather is None
        assert 0 <= num_slots * SIZE - num_tokens < SIZE


def test_slots_in_a_row_are_read_where_they_stand() -> None:
    pool = make_pool()
    fill(pool, [3, 4, 5], [48])
    keys, _ = pool.view(0, pool.dispatch(47, 1, [3, 4, 5]), KEY_TILE)
    again, _ = pool.view(0, pool.dispatch(20, 1, [3, 4, 5]), KEY_TILE)
    assert keys.data_ptr() == again.data_ptr()
    keys[0, 0, 0] = 77.0
    assert again[0, 0, 0] == 77.0
    scattered, _ = pool.view(0, pool.dispatch(20, 1, [4, 3, 5]), KEY_TILE)
    assert scattered.data_ptr() != keys.data_ptr()


def test_the_last_slot_has_room_for_a_whole_tile_of_keys_behind_it() -> None:
    pool = make_pool()
    where = pool.dispatch(0, 1, [11])
    for layer in range(len(SHAPES)):
        keys, values = pool.view(layer, where, where.key_length)
        assert keys.shape[1] == values.shape[1] == KEY_TILE


@pytest.mark.parametrize("table", [[2, 3, 4], [4, 2, 9]], ids=str)
@pytest.mark.parametrize("size", [16, 48])
def test_another_sequence_is_not_touched(table: list[int], size: int) -> None:
    pool = make_pool(context=12 * size, size=size)
    others = [slot for slot in range(12) if slot not in table]
    fill(pool, others, [len(others) * size], sequence=2)
    fill(pool, table, [len(table) * size], sequence=1)
    where = pool.dispatch(len(others) * size - 1, 1, others)
    for layer in range(len(SHAPES)):
        keys, _ = pool.view(layer, where, where.key_length)
        for position in range(len(others) * size):
            assert torch.equal(keys[:, position], token(layer, position, 2))


def test_a_cleared_slot_is_zero_and_its_neighbours_are_not() -> None:
    pool = make_pool()
    fill(pool, [0, 1, 2], [48])
    pool.zero_slot(1)
    for layer in range(len(SHAPES)):
        keys, values = pool.view(layer, pool.dispatch(47, 1, [0, 1, 2]), KEY_TILE)
        for tensor in (keys, values):
            is_zero = (tensor == 0).all(0).all(1)[1:48]  # position 0 of layer 0 is 10,000
            assert is_zero.tolist() == [16 <= position < 32 for position in range(1, 48)]


def test_zeroing_what_was_never_written_takes_no_memory() -> None:
    pool = make_pool(num_slots=30_000, context=512)
    fill(pool, [7], [SIZE])

    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    before = resident_bytes()
    for slot in range(pool.num_slots):
        pool.zero_slot(slot)
    pool.zero_scratch()
    assert resident_bytes() - before < pool.num_bytes // 20
    assert not any(tensor[:, 7 * SIZE : 8 * SIZE].any() for tensor in pool._values)


@pytest.mark.parametrize("slots", [[4, 5], [9, 3]])
def test_what_was_loaded_is_zeroed(slots: list[int]) -> None:
    pool = make_pool()
    pool.load(0, torch.ones(2, SIZE, 2, 16), slots, None, 0)
    assert pool._keys[0].any()
    for slot in range(pool.num_slots):
        pool.zero_slot(slot)
    assert not pool._keys[0].any()
    assert not pool._values[0].any()


def test_scratch_is_zero_after_what_was_gathered_is_forgotten() -> None:
    pool = make_pool()
    table = TABLES[3]
    fill(pool, table, [70])
    pool.load(0, torch.ones(2, SIZE, 2, 16), [9, 3], None, 0)
    pool.view(2, pool.dispatch(69, 1, table), KEY_TILE)
    assert pool._scratch.data.any()
    pool.zero_scratch()
    assert not pool._scratch.data.any()


@pytest.mark.parametrize("context", [64, 512, 100_000])
@pytest.mark.parametrize("cap", [200_000, 300_000, 3_000_000])
def test_all_that_a_pool_allocates_fits_its_cap(cap: int, context: int) -> None:
    num_slots = num_slots_for(cap, SHAPES, SIZE, torch.float32, context)
    pool = make_pool(num_slots, context)
    assert pool.num_bytes <= cap
    wasteful = make_pool(num_slots + 2, context)
    assert wasteful.num_bytes > cap


def test_a_cap_below_a_few_slots_is_refused_with_a_cap_that_works() -> None:
    with pytest.raises(PoolExhausted) as caught:
        num_slots_for(1000, SHAPES, SIZE, torch.float32, 512)
    assert caught.value.hint is not None
    needed = int(caught.value.hint.rsplit(" ", 1)[1])
    assert num_slots_for(needed, SHAPES, SIZE, torch.float32, 512) >= 16


def test_layers_that_load_at_once_have_rooms_of_their_own() -> None:
    pool = make_pool(num_slots=12, context=192)
    assert pool.num_parts(192) == 1
    num_parts = pool.num_parts(2 * SIZE)
    assert num_parts > 4
    rooms = [pool._scratch.room(0, 2 * SIZE * 32, part) for part in range(num_parts)]
    for part, room in enumerate(rooms):
        room.fill_(part + 1)
    assert [int(room.min()) for room in rooms] == list(range(1, num_parts + 1))
    pool.zero_scratch()
    assert not pool._scratch.data.any()
