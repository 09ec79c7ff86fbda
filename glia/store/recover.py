"""From segments to rows: after a crash the tail, after the loss of the index everything.

A group carries all that its rows say, so the index can always be built again. What
is put into it this way is not acknowledged by anybody: blocks of the tail are hashed
before they are named, blocks of a whole rebuild when they are first read.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from glia.graph.ids import BlockId
from glia.store.group import SEGMENT_HEAD_BYTES, Group
from glia.store.index import Change, Index
from glia.store.reading import read_one
from glia.store.schema import (
    NOWHERE,
    STATE,
    Location,
    State,
    WindowRow,
    block_key,
    decode_location,
    encode_use,
    prefix_key_of,
    quarantine_key,
    runs_of,
    use_key,
    window_key,
)
from glia.store.segment import Segments, cut, read_groups

_NOT_KNOWN = Location(NOWHERE, 0, 0)


def adopt_tail(index: Index, segments: Segments, state: State) -> State:
    """Index the whole groups after `state`, cut what is torn, and move past both.

    The segments adopted become live. Raises: StoreBroken, StoreFull, StoreVersion.
    """
    for number, size in segments.on_disk().items():
        if number < state.segment:
            continue
        start = state.offset if number == state.segment else 0
        state, end = _adopt(index, segments, state, number, start, size)
        cut(segments.file(number), end)
        if end:
            segments.add(number, min(size, end))
        else:
            segments.unlink(number)
        following = max(state.next_segment, number + 1)
        state = _moved(state, number, end, following)
        index.write([(use_key(number), encode_use(number)), (STATE, state.encode())], sync=True)
    return state


def rebuild(
    path: Path, segments: Segments, bad: Mapping[BlockId, Location], least_next: int
) -> State:
    """A new closed index at `path` for all segment files there are.

    Args:
        bad: quarantined blocks: they stay it, unless a later copy exists.
        least_next: a number that no new segment may be below.
    Raises: StoreBroken, StoreFull, StoreVersion.
    """
    shutil.rmtree(path, ignore_errors=True)
    index = Index(path)
    uses = segments.uses()
    state = State(next_segment=least_next)
    try:
        for number, size in segments.on_disk().items():
            state, _ = _adopt_all(index, segments, state, number, size, bad)
            state = _moved(state, number, size, max(state.next_segment, number + 1))
            use = encode_use(uses.get(number, number))
            index.write([(use_key(number), use), (STATE, state.encode())], sync=False)
        for block_id, where in bad.items():
            if index.get(block_key(block_id)) is None:
                index.write([(quarantine_key(block_id), where.encode())], sync=False)
        index.write([(STATE, state.encode())], sync=True)
    finally:
        index.close()
    return state


def _adopt(
    index: Index, segments: Segments, state: State, number: int, start: int, size: int
) -> tuple[State, int]:
    """Rows of the unbroken run of whole, verified groups from `start`; and where it ends."""
    end = start
    with segments.reading(number) as fd:
        if fd is None:
            return state, end
        for offset, group in read_groups(fd, start, size):
            if offset != max(end, SEGMENT_HEAD_BYTES):
                break
            if not _is_verified(segments, group, number, offset):
                break
            changes = rows_of(index, group, number, offset, {})
            state = counted(index, state, changes)
            index.write([*changes, (STATE, state.encode())], sync=False)
            end = offset + group.size
    return state, end


def _adopt_all(
    index: Index,
    segments: Segments,
    state: State,
    number: int,
    size: int,
    bad: Mapping[BlockId, Location],
) -> tuple[State, int]:
    end = 0
    with segments.reading(number) as fd:
        if fd is None:
            return state, end
        for offset, group in read_groups(fd, 0, size):
            changes = rows_of(index, group, number, offset, bad)
            state = counted(index, state, changes)
            index.write(changes, sync=False)
            end = offset + group.size
    return state, end


def _is_verified(segments: Segments, group: Group, number: int, offset: int) -> bool:
    for block_id, where in group.blocks(number, offset):
        if not read_one(segments, block_id, where, memoryview(bytearray(where.length))):
            return False
    return True


def rows_of(
    index: Index, group: Group, number: int, offset: int, bad: Mapping[BlockId, Location]
) -> list[Change]:
    """All rows that a group's head speaks of. Raises: StoreBroken."""
    here = {
        block_id: where
        for block_id, where in group.blocks(number, offset)
        if bad.get(block_id) != where
    }
    places = [here.get(block_id) or _known(index, block_id) for block_id in group.record.blocks]
    name = group.record.window_id
    row = WindowRow(
        segment=number,
        offset=offset,
        prefix_key=group.prefix_key,
        runs=runs_of(places),
        lengths=tuple(where.length for where in places),
        encoding=group.record.encoding,
    )
    changes: list[Change] = [(block_key(name), where.encode()) for name, where in here.items()]
    changes.append((window_key(name), row.encode()))
    changes.append((prefix_key_of(group.prefix_key, name), b""))
    return changes


def counted(index: Index, state: State, changes: Sequence[Change]) -> State:
    """The state after changes that only add or overwrite rows."""
    windows, blocks, num_bytes = state.num_windows, state.num_blocks, state.index_bytes
    for key, value in changes:
        old = index.get(key)
        num_bytes += len(value or b"")
        if old is None:
            num_bytes += len(key)
            windows += key[:1] == b"w"
            blocks += key[:1] == b"b"
        else:
            num_bytes -= len(old)
    return State(
        state.segment, state.offset, state.next_segment, windows, blocks, num_bytes, state.clean
    )


def _known(index: Index, block_id: BlockId) -> Location:
    value = index.get(block_key(block_id))
    return (decode_location(value) if value is not None else None) or _NOT_KNOWN


def _moved(state: State, segment: int, offset: int, next_segment: int) -> State:
    return State(
        segment, offset, next_segment, state.num_windows, state.num_blocks, state.index_bytes
    )
