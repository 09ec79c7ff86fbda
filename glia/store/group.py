"""A group: one window as it lies in a segment. Pure bytes. See spec/7-store.md.

    head     96 bytes: lengths, window id, prefix key, check
    table    (ordinal in the record, length) of each particle that follows
    record   the window record's encoding
    zeros    to a multiple of 64
    particles, side by side: what a restore reads
    zeros    to a multiple of 4,096, so that it can be given back whole

Blocks already stored elsewhere are in the record, not in the table. Groups of version 1,
which are read and removed, but written no more, end at a multiple of 64.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from blake3 import blake3

from glia.errors import IntegrityError
from glia.graph.encrypted import EncryptedWindow, Record, parse_record
from glia.graph.ids import BlockId, PrefixKey, WindowId
from glia.store.schema import FORMAT_VERSION, Location, check_version

GROUP_ALIGN = 4096
PARTICLE_ALIGN = 64
GROUPS_AT = GROUP_ALIGN  # in a segment
SEGMENT_HEAD_BYTES = 64  # zeros follow it up to the first group
MAX_HEAD_BYTES = 96 * 1024  # 1,024 blocks of 256 tokens need 42,456, encrypted 78,052

_ENCRYPTED_VERSION = 3  # of groups whose record is an encrypted window's, else as version 2
_ALIGN_OF_VERSION = {1: 64, 2: GROUP_ALIGN}  # of segments; their first group begins at one
_ALIGN_OF_GROUP = {**_ALIGN_OF_VERSION, _ENCRYPTED_VERSION: GROUP_ALIGN}
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

    version: int
    record: Record
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


def padded(num: int, align: int) -> int:
    """`num` rounded up to a multiple of `align`."""
    return -(-num // align) * align


def encode_segment_head(number: int, version: int = FORMAT_VERSION) -> bytes:
    """The first bytes of a segment file, up to its first group."""
    fixed = _SEGMENT.pack(_SEGMENT_MAGIC, version, 0, number)
    head = fixed.ljust(SEGMENT_HEAD_BYTES - _CHECK_BYTES, b"\0") + _check(fixed)
    return head.ljust(_ALIGN_OF_VERSION[version], b"\0")


def segment_version(head: bytes, number: int) -> int | None:
    """The version of the segment whose first 64 bytes are `head`; None: a bit of it is wrong.

    That is no harm yet: every group carries a check of its own.
    Raises: StoreVersion where a newer version wrote the segment.
    """
    fixed = head[: _SEGMENT.size]
    if head[SEGMENT_HEAD_BYTES - _CHECK_BYTES :] == _check(fixed):
        check_version(_SEGMENT.unpack(fixed)[1])
    for version in _ALIGN_OF_VERSION:
        if head == encode_segment_head(number, version)[:SEGMENT_HEAD_BYTES]:
            return version
    return None


def groups_at(version: int) -> int:
    """Where the first group of a segment begins, if it is of this version."""
    return _ALIGN_OF_GROUP[version]


def encode_head(record: Record, prefix_key: PrefixKey, entries: Sequence[tuple[int, int]]) -> bytes:
    """Everything of a group before its particles, padded."""
    table = b"".join(_ENTRY.pack(*entry) for entry in entries)
    fields = (
        GROUP_MAGIC,
        _version_of(record),
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
    return head.ljust(padded(len(head), PARTICLE_ALIGN), b"\0")


def head_length(fixed: bytes) -> int | None:
    """Bytes of the whole head whose first GROUP_HEAD_BYTES are `fixed`; None: not a group."""
    if len(fixed) < GROUP_HEAD_BYTES or not fixed.startswith(GROUP_MAGIC):
        return None
    num, num_record = _HEAD.unpack_from(fixed)[2:4]
    length = GROUP_HEAD_BYTES + _ENTRY.size * num + num_record
    return padded(length, PARTICLE_ALIGN) if length <= MAX_HEAD_BYTES else None


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
    check_version(version, _ENCRYPTED_VERSION)
    if version not in _ALIGN_OF_GROUP:
        return None
    try:
        record = parse_record(encoding, WindowId(name))
    except IntegrityError:
        return None
    if (version == _ENCRYPTED_VERSION) is not isinstance(record, EncryptedWindow):
        return None
    entries = tuple(_ENTRY.iter_unpack(table))
    ordered = all(a < b for (a, _), (b, _) in pairwise(entries))
    in_record = not entries or entries[-1][0] < len(record.blocks)
    if not (ordered and in_record and num_particle_bytes == sum(size for _, size in entries)):
        return None
    size = padded(length + num_particle_bytes, _ALIGN_OF_GROUP[version])
    return Group(version, record, PrefixKey(key), entries, length, size)


def _version_of(record: Record) -> int:
    return _ENCRYPTED_VERSION if isinstance(record, EncryptedWindow) else FORMAT_VERSION


def _check(*parts: bytes) -> bytes:
    hasher = blake3()
    for part in parts:
        hasher.update(part)
    return hasher.digest(_CHECK_BYTES)
