"""Re-reading everything: blocks in the order they lie on disk, then window records."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator

from glia.graph.ids import ID_BYTES, BlockId
from glia.store.index import Index
from glia.store.reading import Wanted
from glia.store.schema import BLOCK, Span, decode_location, name_at_end

_ENTRY = struct.Struct(f">QI{ID_BYTES}s")  # big-endian: sorting the bytes sorts by offset
_BATCH_BYTES = 8 * 1024 * 1024


Blocks = dict[int, list[bytes]]  # segment -> packed (offset, length, id)


def blocks_by_segment(index: Index) -> Blocks:
    """All indexed blocks, 44 bytes each. Raises: IndexDamaged."""
    packed: Blocks = defaultdict(list)
    for key, value in index.each(BLOCK):
        where = decode_location(value)
        if where is not None:
            packed[where.segment].append(_ENTRY.pack(where.offset, where.length, name_at_end(key)))
    return packed


def batches(packed: Blocks) -> Iterator[list[Wanted]]:
    """Reads of about 8 MiB, in the order the blocks lie on disk; empties `packed`.

    Each block is a `Wanted` of its own; the buffer is used again for the next batch.
    """
    buffer = bytearray(_BATCH_BYTES)
    for segment in sorted(packed):
        wanted: list[Wanted] = []
        at = 0
        for entry in sorted(packed.pop(segment)):
            offset, length, name = _ENTRY.unpack(entry)
            if wanted and at + length > len(buffer):
                yield wanted
                wanted, at = [], 0
            if length > len(buffer):
                buffer = bytearray(length)
            view = memoryview(buffer)[at : at + length]
            wanted.append(Wanted([BlockId(name)], [length], [Span(segment, offset, length)], view))
            at += length
        if wanted:
            yield wanted
