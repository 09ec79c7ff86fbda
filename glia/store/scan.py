"""The groups of a segment file, one after the other, over damage and holes."""

from __future__ import annotations

import os
from collections.abc import Iterator

from glia.errors import StoreBroken
from glia.store.group import (
    GROUP_HEAD_BYTES,
    GROUP_MAGIC,
    GROUPS_AT,
    MAX_HEAD_BYTES,
    PARTICLE_ALIGN,
    SEGMENT_HEAD_BYTES,
    Group,
    groups_at,
    head_length,
    parse_head,
    segment_version,
)
from glia.store.holes import next_data

_SEARCH_BYTES = 1024 * 1024


def read_groups(fd: int, number: int, offset: int, size: int) -> Iterator[tuple[int, Group]]:
    """The groups of segment `number` from `offset` to `size`: (offset, head).

    Where a head is damaged or was erased, goes on at the next one that is not; holes are
    not read. Raises: StoreBroken where reading fails, StoreVersion.
    """
    offset = max(offset, first_group_at(fd, number))
    while offset < size:
        group = group_at(fd, offset)
        if group is not None and offset + group.size <= size:
            yield offset, group
            offset += group.size
        else:
            offset = _next_magic(fd, offset + PARTICLE_ALIGN, size)


def first_group_at(fd: int, number: int) -> int:
    """Where the groups of a segment begin. Raises: StoreBroken, StoreVersion."""
    version = segment_version(_pread(fd, SEGMENT_HEAD_BYTES, 0), number)
    return groups_at(version) if version is not None else PARTICLE_ALIGN


def group_at(fd: int, offset: int) -> Group | None:
    """The group that begins at an offset, or None. Raises: StoreBroken, StoreVersion."""
    fixed = _pread(fd, GROUPS_AT, offset)
    length = head_length(fixed[:GROUP_HEAD_BYTES])
    if length is None:
        return None
    if length > len(fixed):
        fixed = _pread(fd, min(length, MAX_HEAD_BYTES), offset)
    return parse_head(fixed)


def _next_magic(fd: int, offset: int, size: int) -> int:
    """The next aligned offset at which a group may begin; `size` where there is none."""
    while offset < size:
        offset = max(offset, next_data(fd, offset, size) // PARTICLE_ALIGN * PARTICLE_ALIGN)
        data = _pread(fd, _SEARCH_BYTES, offset)
        at = data.find(GROUP_MAGIC)
        while at >= 0:
            if at % PARTICLE_ALIGN == 0:
                return offset + at
            at = data.find(GROUP_MAGIC, at + 1)
        offset += _SEARCH_BYTES
    return size


def _pread(fd: int, num: int, offset: int) -> bytes:
    try:
        return os.pread(fd, num, offset)
    except OSError as error:
        raise StoreBroken(f"a segment cannot be read: {error.strerror}") from error
