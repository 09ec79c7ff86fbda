"""Reading windows back: few large sequential reads into the callers' buffers, then BLAKE3 of each.

By pieces, so that what was read is hashed while the processor's cache still has it. One
thread: a second one, reading while the first hashes, gave 59 ms instead of 64 for 256 windows
of 30 x 12 KiB with two idle cores and a warm page cache, 83 instead of 84 with a cold one, and
56 instead of 53 where another process kept a core (medians, in turn).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from blake3 import blake3

from glia.errors import StoreBroken
from glia.graph.ids import BlockId
from glia.store.files import read_into
from glia.store.schema import Location, Span
from glia.store.segment import Segments

_MAX_GAP_BYTES = 64 * 1024  # a group's head lies between two windows: read over it
_PIECE_BYTES = 2 * 1024 * 1024
_MAX_BUFFERS = 1000


@dataclass(frozen=True, slots=True)
class Wanted:
    """One window to be read: its blocks, where they are thought to lie, and where they go."""

    blocks: Sequence[BlockId]
    lengths: Sequence[int]
    spans: Sequence[Span]  # in record order
    into: memoryview


def read_and_verify(segments: Segments, wanted: Sequence[Wanted]) -> list[list[int]]:
    """Fill every `into`; for each window the ordinals of the blocks that are not as named."""
    results: list[list[int]] = [[]] * len(wanted)
    for numbers in _pieces(wanted):
        _read(segments, [wanted[number] for number in numbers])
        for number in numbers:
            results[number] = _not_as_named(wanted[number])
    return results


def _pieces(wanted: Sequence[Wanted]) -> list[list[int]]:
    """Numbers of windows in groups of about _PIECE_BYTES, in the order they lie on disk."""

    def place(number: int) -> tuple[int, int, int]:
        spans = wanted[number].spans
        return spans[0] if spans else (0, 0, 0)

    pieces: list[list[int]] = []
    room = 0
    for number in sorted(range(len(wanted)), key=place):
        if room <= 0:
            pieces.append([])
            room = _PIECE_BYTES
        pieces[-1].append(number)
        room -= wanted[number].into.nbytes
    return pieces


def _read(segments: Segments, wanted: Sequence[Wanted]) -> None:
    """Where a read fails the buffer keeps what it had: the hash tells."""
    spans: list[tuple[int, int, memoryview]] = []
    for window in wanted:
        at = 0
        for segment, offset, num in window.spans:
            spans.append((segment, offset, window.into[at : at + num]))
            at += num
    spans.sort(key=lambda span: span[:2])
    scratch = memoryview(bytearray(_MAX_GAP_BYTES))
    start = 0
    while start < len(spans):
        segment, offset, view = spans[start]
        buffers = [view]
        end = offset + view.nbytes
        stop = start + 1
        while stop < len(spans) and len(buffers) < _MAX_BUFFERS:
            next_segment, next_offset, view = spans[stop]
            gap = next_offset - end
            if next_segment != segment or not 0 <= gap <= _MAX_GAP_BYTES:
                break
            if gap:
                buffers.append(scratch[:gap])
            buffers.append(view)
            end = next_offset + view.nbytes
            stop += 1
        with suppress(StoreBroken), segments.reading(segment) as fd:
            if fd is not None:
                read_into(fd, buffers, offset)
        start = stop


def _not_as_named(window: Wanted) -> list[int]:
    view = window.into
    bad = []
    at = 0
    for ordinal, (block_id, length) in enumerate(zip(window.blocks, window.lengths, strict=True)):
        end = at + length
        if blake3(view[at:end]).digest() != block_id:
            bad.append(ordinal)
        at = end
    return bad


def read_one(
    segments: Segments, block_id: BlockId, where: Location, into: memoryview
) -> bool | None:
    """One particle: whether it is as named; None where its segment's file is gone.

    Raises: StoreBroken where nothing can be said (no file descriptor left).
    """
    with segments.reading(where.segment) as fd:
        return is_as_named(fd, block_id, where, into) if fd is not None else None


def is_as_named(fd: int, block_id: BlockId, where: Location, into: memoryview) -> bool:
    """Whether a particle, read from the file of its segment, is the one of that name."""
    return read_into(fd, [into], where.offset) and blake3(into).digest() == block_id
