"""Which byte ranges of the arena are free. Pure: numbers in, numbers out; no memory is touched.

Offsets and sizes are multiples of 64 bytes. Neighbouring holes are one hole; the
smallest hole that fits is taken, the lowest of equals (low pages are touched first).
"""

from __future__ import annotations

from bisect import bisect_left, insort

ALIGNMENT = 64


def aligned(size_bytes: int) -> int:
    """`size_bytes` rounded up to the alignment."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


class Extents:
    """Free ranges of [0, total_bytes).

    Attributes:
        total_bytes: a multiple of 64.
        used_bytes: what is not free.
        peak_bytes: end of the highest range that was ever used.
    """

    def __init__(self, total_bytes: int) -> None:
        if total_bytes <= 0 or total_bytes % ALIGNMENT:
            raise ValueError(f"an arena cannot be {total_bytes} bytes")
        self.total_bytes = total_bytes
        self.used_bytes = total_bytes
        self.peak_bytes = 0
        self._by_size: list[tuple[int, int]] = []  # (size, offset), sorted
        self._size_at: dict[int, int] = {}
        self._start_of: dict[int, int] = {}  # end of a hole -> its offset
        self.free(0, total_bytes)

    def allocate(self, size_bytes: int) -> int | None:
        """The offset of `size_bytes` (a multiple of 64) now used, or None where no hole fits."""
        if size_bytes <= 0 or size_bytes % ALIGNMENT:
            raise ValueError(f"an extent cannot be {size_bytes} bytes")
        at = bisect_left(self._by_size, (size_bytes, 0))
        if at == len(self._by_size):
            return None
        size, offset = self._by_size[at]
        self._remove(offset, size)
        if size > size_bytes:
            self._add(offset + size_bytes, size - size_bytes)
        self.used_bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, offset + size_bytes)
        return offset

    def free(self, offset: int, size_bytes: int) -> None:
        """Give a used range back; the whole or a part of what was allocated."""
        end = offset + size_bytes
        if size_bytes <= 0 or offset < 0 or end > self.total_bytes:
            raise ValueError(f"not a range of the arena: {offset}, {size_bytes}")
        if offset % ALIGNMENT or size_bytes % ALIGNMENT:
            raise ValueError(f"not aligned: {offset}, {size_bytes}")
        start = offset
        if (before := self._start_of.get(offset)) is not None:
            self._remove(before, offset - before)
            start = before
        if (after := self._size_at.get(end)) is not None:
            self._remove(end, after)
            end += after
        self._add(start, end - start)
        self.used_bytes -= size_bytes

    def holes(self) -> list[tuple[int, int]]:
        """(offset, size) of every free range, by offset."""
        return sorted(self._size_at.items())

    def _add(self, offset: int, size: int) -> None:
        insort(self._by_size, (size, offset))
        self._size_at[offset] = size
        self._start_of[offset + size] = offset

    def _remove(self, offset: int, size: int) -> None:
        del self._by_size[bisect_left(self._by_size, (size, offset))]
        del self._size_at[offset]
        del self._start_of[offset + size]
