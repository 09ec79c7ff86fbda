"""Which free slots to take: such that follow each other, as far as there are.

A sequence whose slots follow each other is read in place; others are gathered for every
dispatch (glia/kv/pool.py).
"""

from __future__ import annotations

from collections.abc import Iterator

_FREE = b"\x01"


class FreeSlots:
    """The free ones of N slots.

    Args:
        num_slots: N; all are free at first.
    """

    def __init__(self, num_slots: int) -> None:
        self._map = bytearray(_FREE * num_slots)
        self._count = num_slots

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return (slot for slot, mark in enumerate(self._map) if mark)

    def run(self, count: int, after: int | None) -> int | None:
        """Where `count` free slots follow each other: right after a slot, else the first such."""
        if after is not None and self._map.startswith(_FREE * count, after + 1):
            return after + 1
        start = self._map.find(_FREE * count)
        return None if start < 0 else start

    def take(self, count: int, start: int | None) -> list[int]:
        """Take the run at `start`; None: the first free ones, wherever they are."""
        if start is not None:
            slots = list(range(start, start + count))
        else:
            slots, at = [], -1
            for _ in range(count):
                at = self._map.index(_FREE, at + 1)
                slots.append(at)
        for slot in slots:
            self._map[slot] = 0
        self._count -= count
        return slots

    def give(self, slot: int) -> None:
        """It is free again."""
        self._map[slot] = 1
        self._count += 1
