"""What is stored where: the one owner of index, segments' usage, uses and quarantine.

Block rows decide. A window row repeats them, and is believed as long as the segments
it names are live and none of its blocks is quarantined. Everything here is a hint
until BLAKE3 has been compared, so a wrong row can cost a miss, never wrong bytes.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from glia.errors import StoreBroken, StoreFull
from glia.graph.encrypted import Record, parse_record
from glia.graph.ids import BlockId, PrefixKey, WindowId
from glia.store.dead import Dead
from glia.store.draft import Draft
from glia.store.index import Change, DiskFull, Index
from glia.store.keys import (
    NEXT,
    PREFIX,
    STATE,
    WINDOW,
    block_key,
    last_use_key,
    name_at_end,
    quarantine_key,
    window_key,
)
from glia.store.naming import name_window
from glia.store.order import Uses
from glia.store.plan import Cursor, Plan
from glia.store.schema import (
    Location,
    Span,
    State,
    Usage,
    WindowRow,
    decode_location,
    decode_window,
    runs_of,
    spans_of,
)
from glia.store.segment import Segments


class Found(NamedTuple):
    """A whole window: verified record, particle lengths, what to read."""

    record: Record
    lengths: Sequence[int]
    spans: Sequence[Span]


class Catalog:
    """Changes are made under `lock`; questions may come from any thread.

    Attributes:
        bad: quarantined blocks, and where their bad bytes lie.
        generation: how often the index was built again since opening.
        writes_refused: LevelDB has refused one: none is tried before it was opened again.
    """

    def __init__(
        self,
        path: Path,
        segments: Segments,
        index: Index,
        state: State,
        bad: Mapping[BlockId, Location],
        dead: Dead,
    ) -> None:
        """Args: what a store at `path` has, read and made to agree by `opening`."""
        self.path = path
        self.lock = threading.RLock()
        self.segments = segments
        self.index = index
        self.state = state
        self.uses = Uses(state.tick)
        self.bad = dict(bad)
        self.dead = dead
        self.num_quarantined = 0
        self.generation = 0
        self.writes_refused = False

    # -- questions -------------------------------------------------------------

    @property
    def num_bytes(self) -> int:
        """Segments and rows: what counts against the cap."""
        return self.segments.num_bytes + self.dead.num_file_bytes + self.state.index_bytes

    def block(self, block_id: BlockId) -> Location | None:
        """Where a block lies, if its segment is live. Raises: IndexDamaged."""
        return self.blocks([block_id])[0]

    def blocks(self, block_ids: Sequence[BlockId]) -> list[Location | None]:
        """As block, for several. Raises: IndexDamaged."""
        rows = self.index.get_many(map(block_key, block_ids))
        return [
            self._usable(block_id, row) if row is not None else None
            for block_id, row in zip(block_ids, rows, strict=True)
        ]

    def _usable(self, block_id: BlockId, row: bytes) -> Location | None:
        where = decode_location(row)
        if where is None or where == self.bad.get(block_id):
            return None
        return where if self.segments.is_live(where.segment) else None

    def windows_of(self, key: PrefixKey) -> list[WindowId]:
        """Ids of windows under a prefix key. Raises: IndexDamaged."""
        return [WindowId(name_at_end(row)) for row in self.index.keys(PREFIX + key)]

    def children(self, window_id: WindowId) -> list[WindowId]:
        """Ids of windows that continue this one. Raises: IndexDamaged."""
        return [WindowId(name_at_end(row)) for row in self.index.keys(NEXT + window_id)]

    def windows_after(self, name: bytes, num: int) -> list[WindowId]:
        """At most so many ids of windows, whole or not, in order. Raises: IndexDamaged."""
        start = WINDOW + name + b"\0" if name else WINDOW
        return [WindowId(name_at_end(row)) for row in self.index.keys_from(WINDOW, start, num)]

    def is_stored(self, window_id: WindowId) -> bool:
        """Whether there is a window of that name, whole or not. Raises: IndexDamaged."""
        return self.index.get(last_use_key(window_id)) is not None

    def row(self, window_id: WindowId) -> WindowRow | None:
        """The row of a window, its record not verified. Raises: IndexDamaged."""
        value = self.index.get(window_key(window_id))
        return decode_window(value) if value is not None else None

    def find(self, window_id: WindowId) -> Found | None:
        """A whole window with its verified record.

        Raises: IntegrityError where the record in the row is not the named one; IndexDamaged.
        """
        row = self.row(window_id)
        if row is None:
            return None
        record = parse_record(row.encoding, window_id)
        live = all(self.segments.is_live(run.segment) for run in row.runs)
        if live and (not self.bad or self.bad.keys().isdisjoint(record.blocks)):
            return Found(record, row.lengths, spans_of(row.runs, row.lengths))
        places = self.blocks(record.blocks)
        known = [where for where in places if where is not None]
        if len(known) < len(places):
            return None
        lengths = tuple(where.length for where in known)
        return Found(record, lengths, spans_of(runs_of(known), lengths))

    # -- changes ---------------------------------------------------------------

    def draft(self) -> Draft:
        """Changes to be written up, and applied."""
        return Draft(self.index, self.segments.usage)

    def apply(self, draft: Draft, onto: State | None = None, *, sync: bool = True) -> None:
        """Make a draft true.

        Args: onto: the state, where more changes in it than the draft counts.
        Raises: IndexDamaged, StoreFull, StoreBroken: nothing has changed, then.
        """
        self.dead.settle(draft)
        state = replace(draft.counted(onto or self.state), tick=self.uses.tick)
        self._write([*draft.changes(), (STATE, state.encode())], sync=sync)
        self.dead.settled()
        self.state = state
        for number, usage in draft.usages.items():
            self.segments.put(number, usage)

    def commit(self, plan: Plan) -> None:
        """Name what a plan wrote, durably. Its bytes must be on disk.

        Raises: IndexDamaged, StoreFull, StoreBroken: nothing is named, then.
        """
        draft = self.draft()
        used = plan.whole + [
            named.record.window_id
            for named in plan.named
            if not name_window(draft, named, self.uses.next(), sure=not self.bad)
        ]
        healed = self.bad.keys() & plan.fresh.keys()
        for block_id in healed:
            draft.remove(quarantine_key(block_id))
        self.uses.note(used)
        self.uses.move_to(draft)
        self.apply(draft, self.state.moved(*plan.end))
        for block_id in healed:
            del self.bad[block_id]

    def note_uses(self, window_ids: Collection[WindowId]) -> None:
        """These were used now. Raises: IndexDamaged, StoreFull, StoreBroken."""
        if self.uses.note(window_ids):
            with self.lock:
                self.write_uses()

    def write_uses(self) -> None:
        """Write down the uses that were noted, not yet durably.

        Raises: IndexDamaged, StoreFull, StoreBroken.
        """
        draft = self.draft()
        self.uses.move_to(draft)
        self.apply(draft, sync=False)

    def skip_to(self, number: int) -> None:
        """Numbers below were used by writes that failed."""
        self.state = replace(self.state, next_segment=max(self.state.next_segment, number))

    def quarantine(self, block_id: BlockId, where: Location) -> None:
        """The block at `where` is bad: a miss from now on, until it is stored again."""
        with self.lock:
            value = self.index.get(block_key(block_id))
            if value is None or decode_location(value) != where or self.bad.get(block_id) == where:
                return
            self.bad[block_id] = where
            self.num_quarantined += 1
            draft = self.draft()
            draft.drop(block_key(block_id), value)
            draft.put(quarantine_key(block_id), where.encode())
            try:
                self.apply(draft)
            except StoreFull:
                return  # known in memory; after a restart the hash will tell again

    def _write(self, changes: Sequence[Change], *, sync: bool) -> None:
        if self.writes_refused:  # behind a torn record LevelDB's log could not be read
            raise DiskFull
        try:
            self.index.write(changes, sync=sync)
        except StoreBroken:
            raise
        except BaseException:
            self.writes_refused = True
            raise

    def take_index(self, new: Path, state: State, usages: Mapping[int, Usage]) -> None:
        """Go on with the index at `new`, built from the segments. Raises: OSError, StoreBroken."""
        self.index.replace(new)
        self.state = state
        self.generation += 1
        self.writes_refused = False
        for number in self.segments.numbers():
            self.segments.put(number, usages.get(number))
        for number, usage in usages.items():
            self.segments.put(number, usage)
        on_disk = self.segments.on_disk().items()
        gone = {number: size for number, size in on_disk if number not in usages}
        self.dead = Dead(self.segments, (), gone)

    def close(self, end: Cursor) -> None:
        """Write down uses and that all is well; release. Raises: StoreBroken, StoreFull."""
        try:
            draft = self.draft()
            self.uses.move_to(draft)
            clean = (self.state.segment, self.state.offset) == end
            self.apply(draft, replace(self.state, clean=clean))
        finally:
            self.index.close()
