"""Leases: windows pinned in L1, loaded from L2 where they are not there.

What to drop is the table's decision, reading and verifying is the store's, in a worker
thread; only verified windows are entered.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import trio

from daemon.arena import SharedMemory
from daemon.arrivals import Arrivals
from daemon.binding import Binding
from daemon.coming import Coming
from daemon.l1 import L1Table
from daemon.records import Records
from daemon.writer import Writer
from glia.errors import ArenaExhausted, BadRequest, NotFound
from glia.graph.ids import PrefixKey, WindowId
from glia.graph.numerics import CANONICAL
from glia.graph.window import WindowRecord
from glia.store.base import BlockStore

_GROUP_BYTES = 8 * 1024 * 1024  # read at once: long enough for a thread hop, short enough to fit
_MAX_OFFSETS = 120_000  # of 8 bytes, in one reply frame
_DIRTY_SHARE = 2  # at most 1/2 of L1 waits for the disk

IN_L1, IN_L2, FROM_PEER = 1, 2, 3
NO_CHECK, CHECK, CHECK_CANONICAL = 0, 1, 2


@dataclass(frozen=True, slots=True)
class Pinned:
    """Windows that stay in L1 until they are unpinned.

    Attributes:
        offsets: u64 little-endian, one per layer and window: where the particle starts.
        tiers: per window where it was; those that came from a peer say so once.
        checks: per window whether it is to be looked at before it is used, as Leased has it.
        is_late: whether the next one is on its way.
    """

    windows: tuple[WindowId, ...]
    offsets: bytes
    tiers: bytes
    checks: bytes
    is_late: bool


class Loader:
    """Pins windows.

    Attributes:
        num_hits, num_misses: windows asked for that were, and were not, in L1.
    """

    def __init__(
        self,
        arena: SharedMemory,
        table: L1Table,
        store: BlockStore,
        records: Records,
        writer: Writer,
        arrivals: Arrivals,
        coming: Coming,
    ) -> None:
        self._arena = arena
        self._table = table
        self._store = store
        self._records = records
        self._writer = writer
        self._arrivals = arrivals
        self._coming = coming
        self.num_hits = 0
        self.num_misses = 0
        self._unpinned = trio.Event()

    async def pin(self, binding: Binding, window_ids: Sequence[WindowId]) -> Pinned:
        """Pin the leading windows that can be had; a hole ends the list.

        Those that peers are sending are waited for, a moment.
        Raises: BadRequest for more than one reply can tell of.
        """
        most = _MAX_OFFSETS // len(binding.profile.layers)
        if len(window_ids) > most:
            raise BadRequest(f"a lease of {len(window_ids)} windows: {most} is the most")
        for name in reversed(window_ids):  # leaves first: they are the first to go
            self._table.touch(name)
        await self._coming.until_came(window_ids)
        tiers = bytearray()
        try:
            is_late = await self._pin_leading(binding, window_ids, tiers)
        except BaseException:
            self.unpin(window_ids[: len(tiers)])
            raise
        is_late = not self._give_up_hidden(window_ids, tiers) and is_late
        pinned = tuple(window_ids[: len(tiers)])
        self.num_hits += tiers.count(IN_L1)
        self.num_misses += len(window_ids) - tiers.count(IN_L1)
        for index, name in enumerate(pinned):
            if self._arrivals.use(name):
                tiers[index] = FROM_PEER
        checks = bytes(map(self._check_of, pinned))
        offsets = b"".join(map(self._table.offsets, pinned))
        return Pinned(pinned, offsets, bytes(tiers), checks, is_late)

    async def _pin_leading(
        self, binding: Binding, window_ids: Sequence[WindowId], tiers: bytearray
    ) -> bool:
        """Add the tier of each that is pinned. Returns: whether the next one is on its way."""
        while len(tiers) < len(window_ids):
            name = window_ids[len(tiers)]
            if self._is_here(binding, name):
                self._table.pin(name)
                tiers.append(IN_L1)
                continue
            if name in self._coming:
                return True
            num_loaded = await self._load(binding, self._missing(window_ids, len(tiers)))
            if not num_loaded:
                break
            tiers += bytes([IN_L2]) * num_loaded
        return False

    def unpin(self, window_ids: Sequence[WindowId]) -> None:
        """The opposite of one `pin`."""
        for name in window_ids:
            self._table.unpin(name)
        unpinned, self._unpinned = self._unpinned, trio.Event()
        unpinned.set()

    async def until_unpinned(self, window_ids: Collection[WindowId]) -> None:
        """Return when nobody uses any of these."""
        while any(map(self._table.is_pinned, window_ids)):
            await self._unpinned.wait()

    def _check_of(self, window_id: WindowId) -> int:
        if window_id not in self._arrivals.unchecked:
            return NO_CHECK
        record = self._table.record(window_id)
        is_exact = record is not None and record.numerics_class == CANONICAL
        return CHECK_CANONICAL if is_exact else CHECK

    def _give_up_hidden(self, window_ids: Sequence[WindowId], tiers: bytearray) -> bool:
        """Cut what was pinned before the first window that began to be forgotten meanwhile.

        Returns: whether there is one.
        """
        hidden = self._records.hidden
        for index in range(len(tiers)):
            if window_ids[index] in hidden:
                self.unpin(window_ids[index : len(tiers)])
                del tiers[index:]
                return True
        return False

    def _is_here(self, binding: Binding, window_id: WindowId) -> bool:
        record = self._table.record(window_id)
        is_hidden = window_id in self._records.hidden
        return record is not None and binding.fits(record) and not is_hidden

    def _missing(self, window_ids: Sequence[WindowId], start: int) -> list[WindowId]:
        """The run of windows from `start` on that are not in L1."""
        return list(itertools.takewhile(lambda name: name not in self._table, window_ids[start:]))

    async def _load(self, binding: Binding, window_ids: Sequence[WindowId]) -> int:
        """Load and pin leading windows, as many as one group takes and L1 has room for.

        Returns how many; 0 at a hole.
        """
        size = binding.profile.window_particle_bytes
        seen = self._records.hidden.num_changes
        group = window_ids[: max(1, _GROUP_BYTES // size)]
        known = await trio.to_thread.run_sync(self._look_up, binding, group)
        try:
            offsets = await make_room(self._table, self._writer, size, len(known))
        except ArenaExhausted:
            return 0
        known = known[: len(offsets)]
        try:
            loaded = await trio.to_thread.run_sync(self._read, size, known, offsets)
        except BaseException:
            give_back(self._arena, self._table, offsets)
            raise
        if self._records.hidden.num_changes != seen:  # some of it may have been forgotten
            give_back(self._arena, self._table, offsets)
            return await self._load(binding, window_ids)
        return self._enter(binding, known, offsets, loaded)

    def _enter(
        self,
        binding: Binding,
        known: Sequence[tuple[WindowRecord, PrefixKey]],
        offsets: Sequence[int],
        loaded: Sequence[bool],
    ) -> int:
        """Enter what was read whole, and pin the leading ones. Returns how many those are."""
        num_leading = loaded.index(False) if False in loaded else len(loaded)
        sizes = binding.profile.particle_sizes
        for index, ((record, key), offset) in enumerate(zip(known, offsets, strict=True)):
            if not loaded[index]:
                give_back(self._arena, self._table, [offset])
                self._records.forget([record.window_id])
                continue
            self._table.enter(offset, record, key, sizes, dirty=False)
            if index < num_leading:
                self._table.pin(record.window_id)
        return num_leading

    def _look_up(
        self, binding: Binding, window_ids: Sequence[WindowId]
    ) -> list[tuple[WindowRecord, PrefixKey]]:
        """Records and prefix keys of the leading windows that are known."""
        known: list[tuple[WindowRecord, PrefixKey]] = []
        for name in window_ids:
            record = self._records.get(name)
            if record is None or not binding.fits(record):
                break
            try:
                known.append((record, self._records.key_of(binding, record)))
            except NotFound:
                break
        return known

    def _read(
        self,
        size_bytes: int,
        known: Sequence[tuple[WindowRecord, PrefixKey]],
        offsets: Sequence[int],
    ) -> list[bool]:
        view = self._arena.view
        return self._store.load(
            [record.window_id for record, _ in known],
            [view[offset : offset + size_bytes] for offset in offsets],
        )


async def make_room(table: L1Table, writer: Writer, size_bytes: int, count: int) -> list[int]:
    """Up to `count` extents, at least one (none if none is asked); waits for dirty windows.

    Raises: ArenaExhausted where everything is pinned or cannot be written.
    """
    while True:
        offsets = table.reserve(size_bytes, count)
        if offsets or not count:
            return offsets
        await until_freed(writer)


async def make_room_behind(
    table: L1Table, writer: Writer, size_bytes: int, count: int
) -> list[int]:
    """The same for windows that are not in L2 yet: no more of L1 than the disk keeps up with.

    Raises: ArenaExhausted.
    """
    most = table.total_bytes // _DIRTY_SHARE
    while table.dirty_bytes and table.dirty_bytes + size_bytes > most:
        await until_freed(writer)
    return await make_room(table, writer, size_bytes, count)


def give_back(arena: SharedMemory, table: L1Table, offsets: Iterable[int]) -> None:
    """The opposite of `make_room`, for extents that become no windows.

    Zeroed: what stood there may have been forgotten while they were reserved.
    """
    for offset in offsets:
        arena.zero(offset, offset + table.cancel(offset))


async def until_freed(writer: Writer) -> None:
    """Return when windows of L1 may go that could not before.

    Raises: ArenaExhausted where waiting does not make any.
    """
    if not writer.is_idle:
        await writer.wait_progress()
    elif not await writer.recovers():
        if writer.failure is not None:
            raise ArenaExhausted(
                f"L1 holds what cannot be written: {writer.failure}", hint=writer.failure.hint
            )
        raise ArenaExhausted("all of L1 is in use", hint="raise l1.size in glia.toml")
