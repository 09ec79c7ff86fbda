"""Where each block's particle is in the arena, and how many windows refer to it. Pure, no I/O.

A block whose bytes are here already is referenced where it is; the new copy is given back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from daemon.extents import Extents
from glia.graph.ids import BlockId


@dataclass(slots=True)
class _Block:
    offset: int
    size_bytes: int
    refs: int


class Blocks:
    """Blocks by name, over the byte ranges of one arena."""

    def __init__(self, total_bytes: int) -> None:
        self._extents = Extents(total_bytes)
        self._blocks: dict[BlockId, _Block] = {}
        self._reserved: dict[int, int] = {}

    @property
    def used_bytes(self) -> int:
        """Bytes held or reserved."""
        return self._extents.used_bytes

    @property
    def total_bytes(self) -> int:
        """The cap."""
        return self._extents.total_bytes

    @property
    def num_reserved(self) -> int:
        """Extents that are neither entered nor given back yet."""
        return len(self._reserved)

    def ranges(self, blocks: Iterable[BlockId]) -> list[tuple[int, int]]:
        """(offset, size) of each of these blocks."""
        return [(self._blocks[b].offset, self._blocks[b].size_bytes) for b in blocks]

    def stale_ranges(self, start: int) -> list[tuple[int, int]]:
        """(start, end) of what is free from `start` on and was ever used, by offset."""
        peak = self._extents.peak_bytes
        holes = ((at, at + size) for at, size in self._extents.holes())
        return [(max(at, start), min(end, peak)) for at, end in holes if end > start and at < peak]

    def reserve(self, size_bytes: int) -> int | None:
        """The offset of an extent that nobody else has, None where no hole is so large."""
        offset = self._extents.allocate(size_bytes)
        if offset is not None:
            self._reserved[offset] = size_bytes
        return offset

    def cancel(self, offset: int) -> int:
        """Give a reserved extent back unused. Returns its size."""
        size_bytes = self._reserved.pop(offset)
        self._extents.free(offset, size_bytes)
        return size_bytes

    def enter(
        self, offset: int, blocks: Sequence[BlockId], sizes: Sequence[int]
    ) -> tuple[int, list[int]]:
        """A filled extent has these blocks now, one behind the other.

        Returns: its size, and where each block is.
        """
        reserved = self._reserved.pop(offset)
        offsets: list[int] = []
        copies: list[tuple[int, int]] = []
        for block_id, size_bytes in zip(blocks, sizes, strict=True):
            block = self._blocks.get(block_id)
            if block is None:
                self._blocks[block_id] = _Block(offset, size_bytes, 1)
                offsets.append(offset)
            else:
                block.refs += 1
                offsets.append(block.offset)
                copies.append((offset, size_bytes))
            offset += size_bytes
        self._free(copies)
        return reserved, offsets

    def release(self, blocks: Iterable[BlockId]) -> None:
        """One window less refers to these; what none refers to is free."""
        free: list[tuple[int, int]] = []
        for block_id in blocks:
            block = self._blocks[block_id]
            block.refs -= 1
            if not block.refs:
                del self._blocks[block_id]
                free.append((block.offset, block.size_bytes))
        self._free(free)

    def check(self, refs: Mapping[BlockId, int]) -> None:
        """Raise where references are not these, or bytes overlap or are lost. For tests."""
        if refs != {name: block.refs for name, block in self._blocks.items()}:
            raise ValueError("reference counts differ from the windows' blocks")
        used = [(block.offset, block.size_bytes) for block in self._blocks.values()]
        end = 0
        for offset, size in sorted([*used, *self._reserved.items(), *self._extents.holes()]):
            if offset != end:
                raise ValueError(f"bytes overlap or are lost at {end}")
            end = offset + size
        if end != self.total_bytes:
            raise ValueError("bytes are lost at the end")

    def _free(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Free ranges, neighbours in one go."""
        start = end = -1
        for offset, size_bytes in ranges:
            if offset != end:
                if end > start:
                    self._extents.free(start, end - start)
                start = offset
            end = offset + size_bytes
        if end > start:
            self._extents.free(start, end - start)
