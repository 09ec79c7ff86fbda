"""What peers sent becomes windows of L1, dirty until the writer has stored them behind their use.

The bytes were verified at the door (p2p/door.py) before they came here. A block that was not
sent, as it is here already, is held to what its window says as if it had been.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from daemon.arena import SharedMemory
from daemon.arrivals import Arrivals
from daemon.binding import Binding
from daemon.l1 import L1Table
from daemon.loading import give_back, make_room_behind
from daemon.records import Records
from daemon.writer import Writer
from glia.errors import NotFound
from glia.graph.domain import Domain
from glia.graph.ids import PrefixKey, WindowId, short
from glia.graph.window import WindowRecord
from glia.store.base import BlockStore
from p2p.door import expected_blocks, take_block


class Adopter:
    """Makes sinks (p2p/fetching.py) that fill L1."""

    def __init__(
        self,
        arena: SharedMemory,
        table: L1Table,
        store: BlockStore,
        records: Records,
        writer: Writer,
        arrivals: Arrivals,
    ) -> None:
        self._arena = arena
        self._table = table
        self._store = store
        self._records = records
        self._writer = writer
        self._arrivals = arrivals

    def after(
        self,
        binding: Binding,
        base: WindowRecord | None,
        key: PrefixKey,
        seen: int,
        expect: Callable[[], None],
    ) -> Adopting:
        """For the windows that follow a base.

        Args:
            base, key: that window, None for genesis, and its prefix key.
            seen: `hidden.num_changes` before the base was looked up.
            expect: has it written, in a worker thread, that these windows are peers'; done
                before the first is entered.
        """
        return Adopting(self, binding, base, key, seen, expect)

    def next_key(self, before: PrefixKey, record: WindowRecord) -> PrefixKey:
        """The prefix key of a window. Raises: NotFound where its group was left."""
        key = self._records.domains.next_key(before, record)
        if key is None:
            raise NotFound(f"the group of window {short(record.window_id)} is not known here")
        return key

    async def adopt(
        self,
        binding: Binding,
        before: WindowRecord | None,
        record: WindowRecord,
        key: PrefixKey,
        particles: Sequence[memoryview | None],
        seen: int,
    ) -> int:
        """Enter one window. Returns: the changes of `hidden` that were seen now.

        Raises: as Adopting.take; then L1 is as before.
        """
        size = binding.profile.window_particle_bytes
        offset = (await make_room_behind(self._table, self._writer, size, 1))[0]
        try:
            whole = await self._whole(binding, before, record, particles)
            seen = await self._check_base(record.before, before, seen)
            if record.window_id in self._records.hidden:
                raise NotFound(f"window {short(record.window_id)} is being forgotten")
        except BaseException:
            give_back(self._arena, self._table, [offset])
            raise
        at = offset
        for particle in whole:  # here: a thread would wait for the interpreter longer than it works
            self._arena.view[at : at + len(particle)] = particle
            at += len(particle)
        if self._table.enter(offset, record, key, binding.profile.particle_sizes, dirty=True):
            self._writer.add_later(record.window_id)
        self._arrivals.add(record.window_id)
        return seen

    async def _whole(
        self,
        binding: Binding,
        before: WindowRecord | None,
        record: WindowRecord,
        particles: Sequence[memoryview | None],
    ) -> Sequence[bytes | memoryview]:
        """All of the window's particles."""
        sent = [particle for particle in particles if particle is not None]
        if len(sent) == len(particles):
            return sent
        return await trio.to_thread.run_sync(self._read, binding, before, record, particles)

    def _read(
        self,
        binding: Binding,
        before: WindowRecord | None,
        record: WindowRecord,
        particles: Sequence[memoryview | None],
    ) -> Sequence[bytes | memoryview]:
        found: list[bytes | memoryview] = []
        salt = None
        if record.root is not None:
            domain = Domain(record.root.group, record.position_start)
            salt = self._records.domains.salt(domain)
        expected = expected_blocks(record, before, binding.profile, salt)
        for each, sent in zip(expected, particles, strict=True):
            if sent is not None:
                found.append(sent)
                continue
            stored = self._store.read_block(each.block_id)
            take_block(stored, each)
            found.append(stored)
        return found

    async def _check_base(self, prev: WindowId, before: WindowRecord | None, seen: int) -> int:
        """Raises: NotFound where what a window continues was forgotten meanwhile."""
        hidden = self._records.hidden
        while hidden.num_changes != seen:
            seen = hidden.num_changes
            get = self._records.get_now
            if before is not None and await trio.to_thread.run_sync(get, prev) is None:
                raise NotFound(f"window {short(prev)} was forgotten")
        return seen


class Adopting:
    """The sink of one fetch.

    Attributes:
        records: what was taken, in order.
        is_expected: whether it is written that the windows are peers'.
    """

    def __init__(
        self,
        adopter: Adopter,
        binding: Binding,
        base: WindowRecord | None,
        key: PrefixKey,
        seen: int,
        expect: Callable[[], None],
    ) -> None:
        self._adopter, self._binding = adopter, binding
        self._before, self._key, self._seen = base, key, seen
        self._expect = expect
        self.is_expected = False
        self.records: list[WindowRecord] = []

    async def take(self, record: WindowRecord, particles: Sequence[memoryview | None]) -> None:
        """Enter a window into L1.

        Args: particles: by layer, verified; None where the block is in L2.
        Raises:
            ArenaExhausted: L1 has no room, and waiting for the disk does not make any.
            NotFound, HashMismatch: L2 does not have such a block any more, or the window, or the
                one before it, is being forgotten.
            MalformedParticle: a block of L2 is not what the window says of it.
            StoreFull, StoreBroken: it cannot be written that the windows are peers'.
        """
        if not self.is_expected:
            await trio.to_thread.run_sync(self._expect)
            self.is_expected = True
        key = self._adopter.next_key(self._key, record)
        self._seen = await self._adopter.adopt(
            self._binding, self._before, record, key, particles, self._seen
        )
        self._before, self._key = record, key
        self.records.append(record)
