"""What is stored where: the one owner of index, segments' sizes and quarantine.

Block rows decide. A window row repeats them, and is believed as long as the segments
it names are live and none of its blocks is quarantined. Everything here is a hint
until BLAKE3 has been compared, so a wrong row can cost a miss, never wrong bytes.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from glia.errors import IntegrityError, StoreBroken, StoreFull
from glia.graph.ids import BlockId, PrefixKey, WindowId
from glia.graph.window import WindowRecord, parse_window
from glia.store.base import Forgotten
from glia.store.group import GROUP_HEAD_BYTES, head_length
from glia.store.index import WRITE_BUFFER_BYTES, Change, IndexDamaged
from glia.store.opening import NEW_INDEX, open_index
from glia.store.plan import Cursor, Plan, num_bytes_of
from glia.store.recover import adopt_tail, counted, rebuild
from glia.store.schema import (
    PREFIX,
    QUARANTINE,
    STATE,
    USE,
    WINDOW,
    Location,
    Span,
    WindowRow,
    block_key,
    decode_location,
    decode_state,
    decode_use,
    decode_window,
    encode_use,
    name_at_end,
    prefix_key_of,
    quarantine_key,
    runs_of,
    spans_of,
    use_key,
    window_key,
)
from glia.store.segment import Segments
from glia.store.sweep import quarantined_in, rows_naming, rows_of_segment, without

_SEGMENTS = "segments"
_REBUILD_PAUSE_S = 2.0  # after one that failed: questions are misses meanwhile, not rebuilds


class Found(NamedTuple):
    """A whole window: verified record, particle lengths, what to read.

    `home` is the segment that the window itself lies in, whose going takes its row.
    """

    record: WindowRecord
    lengths: Sequence[int]
    spans: Sequence[Span]
    home: int

    @property
    def segments(self) -> set[int]:
        """All that the window needs."""
        return {self.home, *(span.segment for span in self.spans)}


class Catalog:
    """Changes are made under `lock`; questions may come from any thread."""

    def __init__(self, path: Path) -> None:
        """Open, and repair what a crash or a failing disk left.

        Raises: StoreBroken, StoreFull, StoreLocked, StoreVersion.
        """
        self.lock = threading.RLock()
        self.bad: dict[BlockId, Location] = {}
        self.num_quarantined = 0
        self.generation = 0
        self.start = Cursor(0, 0)  # where the next group goes: on after a clean stop, else anew
        self._path = path
        self._no_rebuild_before = 0.0
        self.segments = Segments(path / _SEGMENTS)
        self.index, self.state = open_index(path, self.segments)
        self._writes_refused = False
        try:
            self._settle()
        except BaseException:
            self.index.close()
            raise

    # -- opening ---------------------------------------------------------------

    def _settle(self) -> None:
        """Make index and segment files agree."""
        try:
            self._agree()
        except IndexDamaged:
            self.rebuild(self.generation)
            self._agree()
        state = self.state
        going_on = state.clean and self.segments.is_live(state.segment)
        self.start = Cursor(
            *((state.segment, state.offset) if going_on else (state.next_segment, 0))
        )
        self.state = replace(state, clean=False)
        self.index.write([(STATE, self.state.encode())], sync=True)

    def _agree(self) -> None:
        on_disk = self.segments.on_disk()
        uses = dict(filter(None, (decode_use(key, row) for key, row in self.index.scan(USE))))
        for number, size in on_disk.items():
            if number in uses:
                self.segments.add(number, size, uses[number])
            elif number <= self.state.segment:
                self.segments.unlink(number)  # its rows went before a crash
        for key, value in self.index.scan(QUARANTINE):
            where = decode_location(value)
            if where is not None:
                self.bad[BlockId(name_at_end(key))] = where
        lost = uses.keys() - on_disk.keys()
        if lost:
            self.lose(lost)
        at_end = on_disk.get(self.state.segment, 0) == self.state.offset
        if not (self.state.clean and at_end and max(on_disk, default=0) <= self.state.segment):
            self.state = replace(adopt_tail(self.index, self.segments, self.state), clean=False)

    # -- questions -------------------------------------------------------------

    @property
    def num_bytes(self) -> int:
        """Segments and rows: what counts against the cap."""
        return self.segments.num_bytes + self.state.index_bytes

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

    def all_windows(self) -> list[WindowId]:
        """Ids of all windows, whole or not. Raises: IndexDamaged."""
        return [WindowId(name_at_end(row)) for row in self.index.keys(WINDOW)]

    def find(self, window_id: WindowId) -> Found | None:
        """A whole window with its verified record. Raises: IndexDamaged."""
        value = self.index.get(window_key(window_id))
        if value is None:
            return None
        row = decode_window(value)
        if row is None or not self.segments.is_live(row.segment):
            return None
        try:
            record = parse_window(row.encoding, window_id)
        except IntegrityError:
            self._quarantine_window(window_id, row)
            return None
        return self._placed(record, row)

    def _placed(self, record: WindowRecord, row: WindowRow) -> Found | None:
        live = all(self.segments.is_live(run.segment) for run in row.runs)
        if live and (not self.bad or self.bad.keys().isdisjoint(record.blocks)):
            return Found(record, row.lengths, spans_of(row.runs, row.lengths), row.segment)
        places = self.blocks(record.blocks)
        known = [where for where in places if where is not None]
        if len(known) < len(places):
            return None
        lengths = tuple(where.length for where in known)
        return Found(record, lengths, spans_of(runs_of(known), lengths), row.segment)

    # -- changes ---------------------------------------------------------------

    def commit(self, plan: Plan, end: Cursor) -> None:
        """Name what a plan wrote, durably. Its bytes must be on disk.

        Raises: IndexDamaged, StoreFull, StoreBroken: nothing is named, then.
        """
        state = counted(self.index, self.state, plan.window_rows)
        state = replace(
            state,
            segment=end.segment,
            offset=end.offset,
            next_segment=max(state.next_segment, end.segment + 1),
            num_blocks=state.num_blocks + len(plan.block_rows),
            index_bytes=state.index_bytes + num_bytes_of(plan.block_rows),
        )
        ends = {group.segment: group.offset + group.size for group in plan.groups}
        healed = self.bad.keys() & plan.fresh.keys()
        names: list[Change] = [*plan.block_rows, *plan.window_rows]
        names += [(quarantine_key(block_id), None) for block_id in healed]
        fresh = [number for number in ends if not self.segments.is_live(number)]
        names += [(use_key(number), encode_use(self.segments.tick + 1)) for number in fresh]
        names += [
            (use_key(n), encode_use(tick)) for n, tick in self.segments.take_changed().items()
        ]
        self._write([*names, (STATE, state.encode())])
        self.state = state
        for number, size in ends.items():
            self.segments.add(number, size)
        for block_id in healed:
            del self.bad[block_id]

    def skip_to(self, number: int) -> None:
        """Numbers below were used by writes that failed."""
        self.state = replace(self.state, next_segment=max(self.state.next_segment, number))

    def quarantine(self, block_id: BlockId, where: Location) -> None:
        """The block at `where` is bad: a miss from now on, until it is stored again."""
        with self.lock:
            value = self.index.get(block_key(block_id))
            if value is None or decode_location(value) != where or self.bad.get(block_id) == where:
                return
            state = replace(
                self.state,
                num_blocks=self.state.num_blocks - 1,
                index_bytes=self.state.index_bytes - len(block_key(block_id)) - len(value),
            )
            self.bad[block_id] = where
            self.num_quarantined += 1
            changes: list[Change] = [
                (block_key(block_id), None),
                (quarantine_key(block_id), where.encode()),
                (STATE, state.encode()),
            ]
            try:
                self._write(changes)
            except StoreFull:
                return  # known in memory; after a restart the hash will tell again
            self.state = state

    def _quarantine_window(self, window_id: WindowId, row: WindowRow) -> None:
        with self.lock:
            removal = {
                key: len(value)
                for key in (window_key(window_id), prefix_key_of(row.prefix_key, window_id))
                if (value := self.index.get(key)) is not None
            }
            self.num_quarantined += 1
            self._remove(removal, ())

    def drop(self, number: int) -> None:
        """Evict a segment: its rows, then its file."""
        with self.lock:
            size = self.segments.size(number)
            removal = rows_of_segment(self.index, self.segments, number, size)
            self._remove(removal or rows_naming(self.index, {number}), {number})
            self.segments.unlink(number)

    def lose(self, numbers: Collection[int]) -> None:
        """Segments whose files are gone: nothing may name them any more."""
        with self.lock:
            self._remove(rows_naming(self.index, numbers), numbers)
            for number in numbers:
                self.segments.forget(number)

    def children(self, window_id: WindowId) -> list[WindowId]:
        """Windows whose records name this one as the one before. Raises: IndexDamaged."""
        found = []
        for key, value in self.index.scan(WINDOW):
            row = decode_window(value)
            if row is not None and parse_window(row.encoding).prev == window_id:
                found.append(WindowId(name_at_end(key)))
        return found

    def forget(self, names: Collection[WindowId]) -> Forgotten:
        """Remove windows: rows, and bytes that no other window names."""
        removal: dict[bytes, int] = {}
        dead: list[Location] = []
        num_windows = 0
        for name in names:
            value = self.index.get(window_key(name))
            row = decode_window(value) if value is not None else None
            if value is None or row is None:
                continue
            num_windows += 1
            removal[window_key(name)] = len(value)
            removal[prefix_key_of(row.prefix_key, name)] = 0
            with self.segments.reading(row.segment) as fd:
                head = os.pread(fd, GROUP_HEAD_BYTES, row.offset) if fd is not None else b""
            dead.append(Location(row.segment, row.offset, head_length(head) or 0))
            others = set(self.windows_of(row.prefix_key)).difference(names)
            rows = [decode_window(self.index.get(window_key(other)) or b"") for other in others]
            shared = {
                block_id
                for other in rows
                if other is not None
                for block_id in parse_window(other.encoding).blocks
            }
            for block_id in set(parse_window(row.encoding).blocks) - shared:
                where = self.block(block_id)
                if where is not None:
                    removal[block_key(block_id)] = len(where.encode())
                    dead.append(where)
        self._remove(removal, ())
        for where in dead:
            with open(self.segments.file(where.segment), "r+b") as raw:
                raw.seek(where.offset)
                raw.write(bytes(where.length))
        self.index.compact()
        return Forgotten(num_windows, sum(where.length for where in dead))

    def _remove(self, removal: dict[bytes, int], segments: Collection[int]) -> None:
        state = without(self.state, removal)
        healed = list(quarantined_in(self.bad, segments))
        changes: list[Change] = [(key, None) for key in removal]
        changes += [(quarantine_key(block_id), None) for block_id in healed]
        changes += [(use_key(number), None) for number in segments]
        self._write([*changes, (STATE, state.encode())])
        self.state = state
        for block_id in healed:
            del self.bad[block_id]

    def _write(self, changes: Sequence[Change]) -> None:
        try:
            self.index.write(changes, sync=True)
        except StoreBroken:
            raise
        except BaseException:
            self._writes_refused = True
            raise

    # -- repair ----------------------------------------------------------------

    def accept_writes(self) -> None:
        """After a refused write: open the index again, once there is room for it.

        Raises: StoreFull (reads go on), StoreBroken, IndexDamaged.
        """
        if not self._writes_refused:
            return
        room = os.statvfs(self._path)
        if room.f_bavail * room.f_frsize < 2 * WRITE_BUFFER_BYTES:
            raise StoreFull("the disk is full", hint="free disk space; the store goes on by itself")
        self.index.reopen()
        value = self.index.get(STATE)
        stored = decode_state(value) if value is not None else None
        if stored is None or (stored.segment, stored.offset) != (
            self.state.segment,
            self.state.offset,
        ):
            raise IndexDamaged("the index kept a write that it had refused")
        self._writes_refused = False

    def rebuild(self, seen: int) -> None:
        """Build the index again from the segments, unless that was done since `seen`.

        Raises: StoreBroken, StoreFull.
        """
        with self.lock:
            if self.generation != seen:
                return
            if time.monotonic() < self._no_rebuild_before:
                raise StoreBroken("the index is damaged, and could not be built again")
            self._no_rebuild_before = time.monotonic() + _REBUILD_PAUSE_S
            new = self._path / NEW_INDEX
            try:
                state = rebuild(new, self.segments, self.bad, self.state.next_segment)
                self.index.replace(new)
            except OSError as error:
                raise StoreBroken(f"the index cannot be built again: {error}") from error
            self._no_rebuild_before = 0.0
            self.state = state
            self.generation += 1
            self._writes_refused = False
            on_disk = self.segments.on_disk()
            for number, size in on_disk.items():
                self.segments.add(number, size)
            for number in self.segments.uses().keys() - on_disk.keys():
                self.segments.forget(number)

    def close(self, end: Cursor) -> None:
        """Write down last uses and that all is well; release."""
        try:
            changed = self.segments.take_changed().items()
            uses = [(use_key(number), encode_use(tick)) for number, tick in changed]
            clean = self.state.segment == end.segment and self.state.offset == end.offset
            state = replace(self.state, clean=clean)
            self.index.write([*uses, (STATE, state.encode())], sync=True)
        finally:
            self.index.close()
