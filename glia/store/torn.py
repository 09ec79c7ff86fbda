"""What a power cut may have torn of the newest segment, where no index says what was synced.

A group's head may be there whole, and its particles not. No other segment has such: each is
synced before the next one is begun.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from glia.graph.ids import BlockId
from glia.store.group import Group
from glia.store.reading import is_as_named
from glia.store.scan import read_groups
from glia.store.schema import Location


class Torn(NamedTuple):
    """Of one segment.

    Attributes:
        bad: where particles lie that are not as named.
        alone: where groups with such begin, if no other group of the segment names a block
            of theirs: nobody here misses them.
    """

    bad: frozenset[Location] = frozenset()
    alone: frozenset[int] = frozenset()


def find_torn(fd: int, number: int, size: int) -> Torn:
    """Hash all particles of segment `number`. Raises: StoreBroken, StoreVersion."""
    bad: list[Location] = []
    hurt: list[tuple[int, set[BlockId]]] = []
    num_namers: Counter[BlockId] = Counter()
    for offset, group in read_groups(fd, number, 0, size):
        named = set(group.record.blocks)
        num_namers.update(named)
        wrong = not_as_named(fd, group, number, offset)
        if wrong:
            bad += wrong
            hurt.append((offset, named))
    alone = [at for at, named in hurt if all(num_namers[block_id] == 1 for block_id in named)]
    return Torn(frozenset(bad), frozenset(alone))


def not_as_named(fd: int, group: Group, number: int, offset: int) -> list[Location]:
    """Where particles of the group at `offset` of segment `number` lie that do not match."""
    return [
        where
        for block_id, where in group.blocks(number, offset)
        if not is_as_named(fd, block_id, where, memoryview(bytearray(where.length)))
    ]
