"""Which rows go when a segment goes. Rows first, then the file: a crash between leaves no lie."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from glia.graph.ids import BlockId, WindowId
from glia.store.group import SEGMENT_HEAD_BYTES
from glia.store.index import Index
from glia.store.schema import (
    BLOCK,
    WINDOW,
    Location,
    State,
    block_key,
    decode_location,
    decode_window,
    name_at_end,
    prefix_key_of,
    window_key,
)
from glia.store.segment import Segments, read_groups

Removal = dict[bytes, int]  # key -> length of its value


def rows_of_segment(index: Index, segments: Segments, number: int, size: int) -> Removal | None:
    """Rows that name a segment, by reading its groups' heads.

    None where a head is damaged or the file is gone: then `rows_naming` has to look
    at the whole index. Raises: StoreBroken.
    """
    removal: Removal = {}
    end = SEGMENT_HEAD_BYTES
    with segments.reading(number) as fd:
        if fd is None:
            return None
        for offset, group in read_groups(fd, 0, size):
            if offset != end:
                return None
            end = offset + group.size
            for block_id, _ in group.blocks(number, offset):
                _take_block(removal, block_key(block_id), index.get(block_key(block_id)), {number})
            key = window_key(group.record.window_id)
            _take_window(removal, key, index.get(key), {number})
    return removal if end == size else None


def rows_naming(index: Index, numbers: Collection[int]) -> Removal:
    """Rows that name any of these segments, by reading the whole index. Raises: StoreBroken."""
    removal: Removal = {}
    for key, value in index.each(BLOCK):
        _take_block(removal, key, value, numbers)
    for key, value in index.each(WINDOW):
        _take_window(removal, key, value, numbers)
    return removal


def _take_block(
    removal: Removal, key: bytes, value: bytes | None, numbers: Collection[int]
) -> None:
    if value is None:
        return
    where = decode_location(value)
    if where is None or where.segment in numbers:
        removal[key] = len(value)


def _take_window(
    removal: Removal, key: bytes, value: bytes | None, numbers: Collection[int]
) -> None:
    if value is None:
        return
    row = decode_window(value)
    if row is None or row.segment in numbers:
        removal[key] = len(value)
    if row is not None and row.segment in numbers:
        removal[prefix_key_of(row.prefix_key, WindowId(name_at_end(key)))] = 0


def quarantined_in(bad: Mapping[BlockId, Location], numbers: Collection[int]) -> Iterator[BlockId]:
    """Quarantined blocks whose bytes lie in these segments."""
    for block_id, where in bad.items():
        if where.segment in numbers:
            yield block_id


def without(state: State, removal: Removal) -> State:
    """The state when these rows are gone."""
    windows = sum(key.startswith(WINDOW) for key in removal)
    blocks = sum(key.startswith(BLOCK) for key in removal)
    num_bytes = sum(len(key) + length for key, length in removal.items())
    return State(
        state.segment,
        state.offset,
        state.next_segment,
        state.num_windows - windows,
        state.num_blocks - blocks,
        state.index_bytes - num_bytes,
        state.clean,
    )
