"""A group: one window as it lies in a segment. Pure bytes. See spec/7-store.md.

    head     96 bytes: lengths, window id, prefix key, check
    table    (ordinal in the record, length) of each particle that follows
    record   the window record's encoding
    zeros    to a multiple of 64
    particles, side by side: what a restore reads
    zeros    to a multiple of 64

Blocks already stored elsewhere are in the record, not in the table.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from blake3 import blake3

from glia.errors import IntegrityError
from glia.graph.ids import BlockId, PrefixKey, WindowId
from glia.graph.window import WindowRecord, parse_window
from glia.store.schema import FORMAT_VERSION, Location, check_version

ALIGN = 64
SEGMENT_HEAD_BYTES = 64
MAX_HEAD_BYTES = 64 * 1024  # 1,024 blocks of 256 tokens need 42,456

_SEGMENT = struct.Struct("<4sHHI")
_SEGMENT_MAGIC = b"GSEG"
_HEAD = struct.Struct("<4sHHIIQ32s32s8s")
_CHECK_BYTES = 8
_ENTRY = struct.Struct("<II")
GROUP_MAGIC = b"GGRP"
GROUP_HEAD_BYTES = _HEAD.size


@dataclass(frozen=True, slots=True)
class Group:
    """A group's head, parsed: `entries` are (ordinal in the record, particle bytes)."""

    record: WindowRecord
    prefix_key: PrefixKey
    entries: tuple[tuple[int, int], ...]
    head_bytes: int
    size: int

    def blocks(self, segment: int, offset: int) -> Iterator[tuple[BlockId, Location]]:
        """The blocks whose particles are in this group, were it at `offset` of `segment`."""
        at = offset + self.head_bytes
        for ordinal, length in self.entries:
            yield self.record.blocks[ordinal], Location(segment, at, length)
            at += length


def padded(num: int) -> int:
    """`num` rounded up to the alignment."""
    return -(-num // ALIGN) * ALIGN


def encode_segment_head(number: int) -> bytes:
    """The first 64 bytes of a segment file."""
    fixed = _SEGMENT.pack(_SEGMENT_MAGIC, FORMAT_VERSION, 0, number)
    return fixed.ljust(SEGMENT_HEAD_BYTES - _CHECK_BYTES, b"\0") + _check(fixed)


def check_segment_head(data: bytes) -> None:
    """Raises: StoreVersion where a newer version wrote the segment.

    A damaged head is no matter: every group carries a check of its own.
    """
    fixed = data[: _SEGMENT.size]
    if data[SEGMENT_HEAD_BYTES - _CHECK_BYTES : SEGMENT_HEAD_BYTES] == _check(fixed):
        check_version(_SEGMENT.unpack(fixed)[1])


def encode_head(
    record: WindowRecord, prefix_key: PrefixKey, entries: Sequence[tuple[int, int]]
) -> bytes:
    """Everything of a group before its particles, padded."""
    table = b"".join(_ENTRY.pack(*entry) for entry in entries)
    fields = (
        GROUP_MAGIC,
        FORMAT_VERSION,
        len(entries),
        len(record.encoding),
        0,
        sum(length for _, length in entries),
        record.window_id,
        prefix_key,
    )
    bare = _HEAD.pack(*fields, bytes(_CHECK_BYTES))
    check = _check(bare, table, record.encoding)
    head = _HEAD.pack(*fields, check) + table + record.encoding
    return head.ljust(padded(len(head)), b"\0")


def head_length(fixed: bytes) -> int | None:
    """Bytes of the whole head whose first GROUP_HEAD_BYTES are `fixed`; None: not a group."""
    if len(fixed) < GROUP_HEAD_BYTES or not fixed.startswith(GROUP_MAGIC):
        return None
    num, num_record = _HEAD.unpack_from(fixed)[2:4]
    length = GROUP_HEAD_BYTES + _ENTRY.size * num + num_record
    return padded(length) if length <= MAX_HEAD_BYTES else None


def parse_head(data: bytes) -> Group | None:
    """The head of a group, or None where a single bit of it is not as it was written.

    Raises: StoreVersion where it was written by a newer version.
    """
    if (length := head_length(data)) is None or len(data) < length:
        return None
    _, version, num, num_record, zero, num_particle_bytes, name, key, check = _HEAD.unpack_from(
        data
    )
    record_at = GROUP_HEAD_BYTES + _ENTRY.size * num
    table = data[GROUP_HEAD_BYTES:record_at]
    encoding = data[record_at : record_at + num_record]
    bare = data[: GROUP_HEAD_BYTES - _CHECK_BYTES] + bytes(_CHECK_BYTES)
    if check != _check(bare, table, encoding) or zero:
        return None
    check_version(version)
    try:
        record = parse_window(encoding, WindowId(name))
    except IntegrityError:
        return None
    entries = tuple(_ENTRY.iter_unpack(table))
    ordered = all(a < b for (a, _), (b, _) in pairwise(entries))
    in_record = not entries or entries[-1][0] < len(record.blocks)
    if not (ordered and in_record and num_particle_bytes == sum(size for _, size in entries)):
        return None
    return Group(record, PrefixKey(key), entries, length, length + padded(num_particle_bytes))


def _check(*parts: bytes) -> bytes:
    hasher = blake3()
    for part in parts:
        hasher.update(part)
    return hasher.digest(_CHECK_BYTES)
