"""What a put will write, decided before a byte is written. Pure.

Given what is known already and where the last segment ends, `plan_put` says which
groups go where and which rows the index gets. Disk and cap are looked at by others.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from glia.errors import MalformedParticle
from glia.graph.ids import BlockId, WindowId, short
from glia.graph.profile import HEADER_FIXED_BYTES, MAX_PAYLOAD_BYTES
from glia.graph.tokens import TOKEN_BYTES
from glia.store.base import Buffer, SealedWindow
from glia.store.group import SEGMENT_HEAD_BYTES, encode_head, padded
from glia.store.schema import (
    Location,
    WindowRow,
    block_key,
    prefix_key_of,
    runs_of,
    window_key,
)

_PAYLOAD_LENGTH = struct.Struct("<I")
_PAYLOAD_LENGTH_AT = 16  # in a block's header, spec/3-block.md


Row = tuple[bytes, bytes]


class Cursor(NamedTuple):
    """Where the next group goes: `offset` 0 means that the segment does not exist yet."""

    segment: int
    offset: int


@dataclass(frozen=True, slots=True)
class Placed:
    """A group with its place: `pieces` written one after the other are `size` bytes."""

    segment: int
    offset: int
    size: int
    pieces: tuple[Buffer, ...]


@dataclass(slots=True)
class Plan:
    """Groups to write, in order; rows that name them; what both add to the sizes."""

    end: Cursor
    groups: list[Placed] = field(default_factory=list)
    block_rows: list[Row] = field(default_factory=list)
    window_rows: list[Row] = field(default_factory=list)
    fresh: dict[BlockId, Location] = field(default_factory=dict)
    windows: set[WindowId] = field(default_factory=set)
    shared_segments: set[int] = field(default_factory=set)
    num_segment_bytes: int = 0

    @property
    def num_bytes(self) -> int:
        """Segment and index bytes together: what the cap has to hold."""
        rows = num_bytes_of(self.block_rows) + num_bytes_of(self.window_rows)
        return self.num_segment_bytes + rows


Known = Callable[[Sequence[BlockId]], list[Location | None]]
Whole = Callable[[WindowId], set[int] | None]


def plan_put(
    windows: Sequence[SealedWindow],
    known: Known,
    whole: Whole,
    cursor: Cursor,
    segment_bytes: int,
) -> Plan:
    """Place every window that is not whole yet, and of its blocks those not known yet.

    Args:
        windows: with sizes that were checked.
        known: where blocks lie already.
        whole: the segments of a window that needs nothing, None for any other.
        cursor: the end of the newest segment.
        segment_bytes: no segment grows longer by a second group.
    """
    plan = Plan(end=cursor)
    for window in windows:
        name = window.record.window_id
        if name in plan.windows:
            continue
        plan.windows.add(name)
        segments = whole(name)
        if segments is None:
            _place(plan, window, known, segment_bytes)
        else:
            plan.shared_segments |= segments
    return plan


def check_sizes(window: SealedWindow) -> None:
    """One particle per block, each as long as its own header says; nothing is hashed here.

    Raises: MalformedParticle.
    """
    record = window.record
    if len(window.particles) != len(record.blocks):
        raise MalformedParticle(
            f"window {short(record.window_id)}: {len(window.particles)} particles "
            f"for {len(record.blocks)} blocks"
        )
    header_bytes = HEADER_FIXED_BYTES + TOKEN_BYTES * len(record.tokens)
    for particle in window.particles:
        num = memoryview(particle).nbytes - header_bytes
        if not 0 < num <= MAX_PAYLOAD_BYTES or (
            _PAYLOAD_LENGTH.unpack_from(particle, _PAYLOAD_LENGTH_AT)[0] != num
        ):
            raise MalformedParticle(
                f"window {short(record.window_id)}: a particle's size does not fit its header"
            )


def _place(plan: Plan, window: SealedWindow, known: Known, segment_bytes: int) -> None:
    record = window.record
    places = [
        plan.fresh.get(block_id) or where
        for block_id, where in zip(record.blocks, known(record.blocks), strict=True)
    ]
    fresh: dict[BlockId, int] = {}
    for ordinal, (block_id, where) in enumerate(zip(record.blocks, places, strict=True)):
        if where is None:
            fresh.setdefault(block_id, ordinal)
    written = [window.particles[ordinal] for ordinal in fresh.values()]
    entries = [
        (ordinal, memoryview(particle).nbytes)
        for ordinal, particle in zip(fresh.values(), written, strict=True)
    ]
    head = encode_head(record, window.prefix_key, entries)
    num_particle_bytes = sum(length for _, length in entries)
    tail = bytes(padded(num_particle_bytes) - num_particle_bytes)
    at = _advance(plan, len(head) + num_particle_bytes + len(tail), segment_bytes)
    plan.groups.append(
        Placed(at.segment, at.offset, plan.end.offset - at.offset, (head, *written, tail))
    )
    offset = at.offset + len(head)
    for ordinal, length in entries:
        plan.fresh[record.blocks[ordinal]] = Location(at.segment, offset, length)
        offset += length
    _name(
        plan, window, at, [w or plan.fresh[b] for w, b in zip(places, record.blocks, strict=True)]
    )
    plan.block_rows += [(block_key(name), plan.fresh[name].encode()) for name in fresh]


def _advance(plan: Plan, size: int, segment_bytes: int) -> Cursor:
    """Reserve `size` bytes; a segment that would grow too long is left for the next one."""
    segment, offset = plan.end
    if offset > SEGMENT_HEAD_BYTES and offset + size > segment_bytes:
        segment, offset = segment + 1, 0
    if offset == 0:
        offset = SEGMENT_HEAD_BYTES
        plan.num_segment_bytes += SEGMENT_HEAD_BYTES
    plan.num_segment_bytes += size
    plan.end = Cursor(segment, offset + size)
    return Cursor(segment, offset)


def _name(plan: Plan, window: SealedWindow, at: Cursor, places: Sequence[Location]) -> None:
    record = window.record
    plan.shared_segments.update(where.segment for where in places)
    row = WindowRow(
        segment=at.segment,
        offset=at.offset,
        prefix_key=window.prefix_key,
        runs=runs_of(places),
        lengths=tuple(where.length for where in places),
        encoding=record.encoding,
    )
    name = record.window_id
    plan.window_rows.append((window_key(name), row.encode()))
    plan.window_rows.append((prefix_key_of(window.prefix_key, name), b""))


def num_bytes_of(rows: Sequence[Row]) -> int:
    """Keys and values."""
    return sum(len(key) + len(value) for key, value in rows)
