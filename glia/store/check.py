"""Re-reading everything: heads of segments, then blocks, then window records."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice

from glia.errors import IntegrityError
from glia.graph.encrypted import parse_record
from glia.graph.ids import BlockId, WindowId
from glia.store.base import CheckReport, Progress
from glia.store.catalog import Catalog
from glia.store.group import SEGMENT_HEAD_BYTES, encode_segment_head, segment_version
from glia.store.reader import Reader
from glia.store.reading import Wanted, read_and_verify
from glia.store.scan import read_groups
from glia.store.schema import FORMAT_VERSION, Location, Span

_WINDOWS_AT_ONCE = 256  # their blocks are read in the order they lie on disk
_BATCH_BYTES = 8 * 1024 * 1024

Place = tuple[Location, BlockId]


def check_store(reader: Reader, progress: Progress) -> CheckReport:
    """See BlockStore.

    A damaged head of a segment, and the damaged record in a window's row, count as bad;
    both are written again, as their groups say.
    """
    catalog = reader.catalog
    total = catalog.state.num_blocks + catalog.state.num_windows
    heads = (partial(_mend_head, catalog, number) for number in catalog.segments.numbers())
    bad = sum(reader.ask(mend, False) for mend in heads)
    checked = num_windows = num_whole = 0
    names = reader.names()
    while some := list(islice(names, _WINDOWS_AT_ONCE)):
        bad += sum(_is_mended(reader, name) for name in some)
        places = sorted(place for name in some for place in _own_blocks(reader, name))
        bad += sum(_num_bad(reader, batch) for batch in _batches(places))
        checked += len(places)
        progress(min(checked, total), total)
    for name in reader.names():
        num_windows += 1
        num_whole += reader.find(name) is not None
        progress(min(checked + num_windows, total), total)
    progress(total, total)
    return CheckReport(checked, bad, num_windows, num_windows - num_whole)


def _is_mended(reader: Reader, name: WindowId) -> bool:
    """Whether a window's row had another record than the named one."""

    def is_damaged() -> bool:
        row = reader.catalog.row(name)
        try:
            return row is not None and not parse_record(row.encoding, name)
        except IntegrityError:
            return True

    if not reader.ask(is_damaged, False):
        return False
    reader.find(name)  # mends it
    return True


def _own_blocks(reader: Reader, name: WindowId) -> list[Place]:
    """Blocks that lie in the window's own groups: each block is one window's."""

    def own_blocks() -> list[Place]:
        row = reader.catalog.row(name)
        if row is None:
            return []
        block_ids = list(dict.fromkeys(parse_record(row.encoding).blocks))
        places = zip(reader.catalog.blocks(block_ids), block_ids, strict=True)
        return [(where, block_id) for where, block_id in places if where and row.holds(where)]

    nothing: list[Place] = []
    return reader.ask(own_blocks, nothing)


def _batches(places: Sequence[Place]) -> Iterator[list[Wanted]]:
    """Reads of about 8 MiB; the buffer is used again for the next batch."""
    buffer = bytearray(_BATCH_BYTES)
    wanted: list[Wanted] = []
    at = 0
    for where, block_id in places:
        if wanted and at + where.length > len(buffer):
            yield wanted
            wanted, at = [], 0
        if where.length > len(buffer):
            buffer = bytearray(where.length)
        view = memoryview(buffer)[at : at + where.length]
        wanted.append(Wanted([block_id], [where.length], [Span(*where)], view))
        at += where.length
    if wanted:
        yield wanted


def _num_bad(reader: Reader, batch: list[Wanted]) -> int:
    wrong = read_and_verify(reader.catalog.segments, batch)
    return sum(
        bool(ordinals) and _is_bad(reader, window.blocks[0], window.into)
        for window, ordinals in zip(batch, wrong, strict=True)
    )


def _is_bad(reader: Reader, block_id: BlockId, into: memoryview) -> bool:
    """Whether a block is not as named where its row says now: once more, while nothing moves.

    What was evicted, forgotten or moved while it was read is not bad.
    """
    catalog = reader.catalog
    with catalog.lock:
        where = reader.ask(lambda: catalog.block(block_id), None)
        if where is None:
            return block_id in catalog.bad
        return not reader.read_one(block_id, where, into[: where.length])


def _mend_head(catalog: Catalog, number: int) -> bool:
    """Whether the head of a segment was not as it was written. Raises: StoreBroken, StoreVersion,
    OSError."""
    with catalog.lock, catalog.segments.changing(number) as fd:
        if fd is None:
            return False
        head = os.pread(fd, SEGMENT_HEAD_BYTES, 0)
        if segment_version(head, number) is not None:
            return False
        groups = read_groups(fd, number, 0, os.fstat(fd).st_size)
        _, first = next(groups, (0, None))
        version = min(first.version, FORMAT_VERSION) if first is not None else FORMAT_VERSION
        os.pwrite(fd, encode_segment_head(number, version)[:SEGMENT_HEAD_BYTES], 0)
        os.fdatasync(fd)
        return True
