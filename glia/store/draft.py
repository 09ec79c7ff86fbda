"""A batch of changes being written up: rows as they will be, and what that does to the counts.

Nothing is in the index before the catalog has applied the draft. Under the catalog's lock.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from glia.store.index import Change, Index
from glia.store.keys import BLOCK, COUNTED, NEXT, PREFIX, WINDOW, usage_key
from glia.store.schema import State, Usage

_ENTRY_BYTES = 1 + 32  # kind and name: what keys are asked for by


class Draft:
    """Index and segments with the changes on top.

    Attributes:
        usages: segments that change; None for one that goes.
    """

    def __init__(self, index: Index, usage_of: Callable[[int], Usage | None]) -> None:
        """Args: usage_of: a segment as it is."""
        self._index = index
        self._usage_of = usage_of
        self._rows: dict[bytes, bytes | None] = {}
        self._fresh: set[bytes] = set()  # rows that the index has not: nothing to remove there
        self._under: defaultdict[bytes, set[bytes]] = defaultdict(set)
        self.usages: dict[int, Usage | None] = {}
        self._num_windows = self._num_blocks = 0
        self.num_bytes = 0  # what the rows counted in State.index_bytes grow by

    def get(self, key: bytes) -> bytes | None:
        """A row as it will be. Raises: IndexDamaged."""
        return self._rows[key] if key in self._rows else self._index.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Several rows. Raises: IndexDamaged."""
        if self._rows.keys().isdisjoint(keys):
            return self._index.get_many(keys)
        return [self.get(key) for key in keys]

    def keys(self, prefix: bytes) -> list[bytes]:
        """Keys of a kind and one name, as they will be. Raises: IndexDamaged."""
        there = [key for key in self._index.keys(prefix) if key not in self._rows]
        return [*there, *sorted(self._under.get(prefix, ()))]

    def add(self, key: bytes, value: bytes) -> None:
        """A row of which it is known that there is none yet."""
        if key not in self._rows:
            self._fresh.add(key)
        self._put(key, value)
        self._count(key, len(key) + len(value), 1)

    def put(self, key: bytes, value: bytes) -> None:
        """A row, new or not. Raises: IndexDamaged."""
        self.replace(key, self.get(key), value)

    def replace(self, key: bytes, old: bytes | None, value: bytes) -> None:
        """As put, where it is known what the row is."""
        if old is None:
            self.add(key, value)
        else:
            self._put(key, value)
            self._count(key, len(value) - len(old), 0)

    def remove(self, key: bytes) -> bytes | None:
        """No such row any more; what it was. Raises: IndexDamaged."""
        old = self.get(key)
        if old is not None:
            self.drop(key, old)
        return old

    def drop(self, key: bytes, value: bytes) -> None:
        """As remove, of a row that is known."""
        if key in self._fresh:
            self._fresh.discard(key)
            del self._rows[key]
        else:
            self._rows[key] = None
        if key[:1] in (NEXT, PREFIX):
            self._under[key[:_ENTRY_BYTES]].discard(key)
        self._count(key, -len(key) - len(value), -1)

    def usage(self, number: int) -> Usage | None:
        """A segment as it will be; None for one that is not live."""
        if number in self.usages:
            return self.usages[number]
        return self._usage_of(number)

    def grow(self, number: int, end: int) -> None:
        """A group more, which ends at `end`."""
        usage = self.usage(number) or Usage()
        self.usages[number] = dataclasses.replace(usage, size=end, num_groups=usage.num_groups + 1)

    def shrink(self, number: int) -> None:
        """A group less."""
        usage = self.usage(number)
        if usage is not None:
            self.usages[number] = dataclasses.replace(usage, num_groups=usage.num_groups - 1)

    def changes(self) -> Iterable[Change]:
        """For the index."""
        yield from self._rows.items()
        for number, usage in self.usages.items():
            yield usage_key(number), usage.encode() if usage is not None else None

    def counted(self, state: State) -> State:
        """The state after these changes."""
        return dataclasses.replace(
            state,
            num_windows=state.num_windows + self._num_windows,
            num_blocks=state.num_blocks + self._num_blocks,
            index_bytes=state.index_bytes + self.num_bytes,
        )

    def _put(self, key: bytes, value: bytes) -> None:
        self._rows[key] = value
        if key[:1] in (NEXT, PREFIX):
            self._under[key[:_ENTRY_BYTES]].add(key)

    def _count(self, key: bytes, num_bytes: int, num_rows: int) -> None:
        if key[0] in COUNTED:
            self.num_bytes += num_bytes
        self._num_windows += num_rows * (key[:1] == WINDOW)
        self._num_blocks += num_rows * (key[:1] == BLOCK)
