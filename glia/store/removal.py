"""Windows on their way out: which rows go, which bytes die, and which have to move first.

A window's groups die with it. Blocks in them that another window names (one of the same
tokens: it lies under the same prefix key) are written again, as a group of that one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Set

from glia.errors import IntegrityError
from glia.graph.encrypted import Record, keys_of, parse_record
from glia.graph.ids import BlockId, WindowId
from glia.store.base import Buffer
from glia.store.catalog import Catalog
from glia.store.index import IndexDamaged
from glia.store.keys import (
    PREFIX,
    block_key,
    name_at_end,
    prefix_key_of,
    quarantine_key,
    window_key,
)
from glia.store.naming import name_window
from glia.store.order import Leaf, leave
from glia.store.plan import Cursor, Plan, place
from glia.store.reading import read_one
from glia.store.schema import Location, Span, WindowRow, decode_location, decode_window


class Removal:
    """A draft that removes windows. Nothing is done before a writer carries it out.

    Attributes:
        draft: the rows as they will be.
        plan: groups that have to be on disk before the draft is applied.
        dead: ranges to be erased once it is.
        bad: quarantined blocks as they will be: those that a window which stays names.
        twins: windows of those going that may have lost blocks: they have to be taken, too.
        num_windows: how many go.
        num_found_bad: blocks that were to move, and are not as named.
    """

    def __init__(
        self,
        catalog: Catalog,
        end: Cursor,
        segment_bytes: int,
        going: Set[WindowId] = frozenset(),
    ) -> None:
        """Args:
        end: where the next group goes.
        going: windows that go, now or later: nothing is moved for them.
        """
        self._catalog = catalog
        self._going = going
        self._segment_bytes = segment_bytes
        self._given_back: Counter[int] = Counter()  # by segment
        self._moved: dict[BlockId, Buffer] = {}
        self.draft = catalog.draft()
        self.plan = Plan(end)
        self.dead: list[Span] = []
        self.bad = dict(catalog.bad)
        self.twins: list[WindowId] = []
        self.num_windows = self.num_found_bad = 0

    def take(self, window_id: WindowId) -> Leaf | None:
        """Remove a window; the one before it, if that makes it a leaf.

        Raises: IndexDamaged, StoreBroken.
        """
        stored = self._stored(window_id)
        if stored is None:
            return None
        record, row = stored
        self.num_windows += 1
        self.draft.remove(window_key(window_id))
        for key in keys_of(record, row.prefix_key):
            self.draft.remove(prefix_key_of(key, window_id))
        self._take_blocks(record, row)
        for group in row.groups:
            self.draft.shrink(group.segment)
            self._given_back[group.segment] += self._catalog.segments.given_back(group)
        self.dead += row.groups
        return leave(self.draft, window_id, record.prev)

    @property
    def gone(self) -> set[int]:
        """Segments without a living group."""
        usages = self.draft.usages.items()
        return {number for number, usage in usages if usage is None or not usage.num_groups}

    @property
    def freed_bytes(self) -> int:
        """What carrying this out makes room for, at least."""
        gone = self.gone
        usages = (self._catalog.segments.usage(number) for number in gone)
        freed = sum(usage.size - usage.num_punched for usage in usages if usage is not None)
        freed += sum(num for number, num in self._given_back.items() if number not in gone)
        return freed - self.draft.num_bytes - self.plan.num_segment_bytes

    def _stored(self, window_id: WindowId) -> tuple[Record, WindowRow] | None:
        """Raises: IndexDamaged where the row is not the window's: what it names is not known."""
        value = self.draft.get(window_key(window_id))
        if value is None:
            return None
        row = decode_window(value)
        if row is None:
            raise IndexDamaged("a window's row cannot be one")
        try:
            return parse_record(row.encoding, window_id), row
        except IntegrityError as error:
            raise IndexDamaged(f"a window's row is damaged: {error}") from error

    def _take_blocks(self, record: Record, row: WindowRow) -> None:
        namers = self._other_namers(record, row)
        moving: defaultdict[WindowId, dict[BlockId, Location]] = defaultdict(dict)
        block_ids = list(dict.fromkeys(record.blocks))
        values = self.draft.get_many([block_key(block_id) for block_id in block_ids])
        for block_id, value in zip(block_ids, values, strict=True):
            where = decode_location(value) if value is not None else None
            if value is None or where is None:
                continue
            if block_id not in namers:
                self.draft.drop(block_key(block_id), value)
            elif row.holds(where):
                moving[namers[block_id]][block_id] = where
        for name, places in moving.items():
            self._move(name, places)
        for block_id in self.bad.keys() & set(block_ids) - namers.keys():
            self.draft.remove(quarantine_key(block_id))
            del self.bad[block_id]

    def _other_namers(self, record: Record, row: WindowRow) -> dict[BlockId, WindowId]:
        """Of the blocks those that a window which stays names, and one that does."""
        namers: dict[BlockId, WindowId] = {}
        for key in self.draft.keys(PREFIX + row.prefix_key):
            name = WindowId(name_at_end(key))
            if name in self._going:
                self.twins.append(name)
                continue
            other = self._stored(name)
            if other is not None:
                shared = set(record.blocks).intersection(other[0].blocks)
                namers |= dict.fromkeys(shared, name)
        return namers

    def _move(self, window_id: WindowId, places: Mapping[BlockId, Location]) -> None:
        """Write blocks out of a dying group again, as a group of a window that stays."""
        stored = self._stored(window_id)
        if stored is None:
            return
        record, row = stored
        for block_id, where in places.items():
            if not self._is_read(block_id, where):
                # Rows of windows that name it say where it was: it must be known as bad.
                self.draft.remove(block_key(block_id))
                self.draft.put(quarantine_key(block_id), where.encode())
                self.bad[block_id] = where
        values = self.draft.get_many([block_key(block_id) for block_id in record.blocks])
        found = [decode_location(value) if value is not None else None for value in values]
        moved = {
            ordinal: self._moved[block_id]
            for ordinal, block_id in enumerate(record.blocks)
            if block_id in places and block_id in self._moved
        }
        if moved:
            named = place(
                self.plan, record, row.prefix_key, row.groups, found, moved, self._segment_bytes
            )
            name_window(self.draft, named, 0)

    def _is_read(self, block_id: BlockId, where: Location) -> bool:
        """Whether a block that is to move is in memory, as named."""
        if block_id not in self._moved:
            data = bytearray(where.length)
            good = read_one(self._catalog.segments, block_id, where, memoryview(data))
            if not good:
                self.num_found_bad += good is False
                return False
            self._moved[block_id] = data
        return True
