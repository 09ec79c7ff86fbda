"""What peers sent ahead of an engine, until the engine stands where it begins.

It waits in reserved extents of L1, which nobody finds and nothing writes to disk; so when it
is given up no trace of it is left. All of it together is a small share of L1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from daemon.arena import SharedMemory
from daemon.arrivals import Arrivals
from daemon.binding import Binding
from daemon.l1 import L1Table
from daemon.loading import give_back, make_room
from daemon.records import Records
from daemon.writer import Writer
from glia.errors import ArenaExhausted, NotFound
from glia.graph.ids import PrefixKey, WindowId, short
from glia.graph.window import WindowRecord

_SHARE = 4  # at most 1/4 of L1 (SECURITY T33)


@dataclass(frozen=True, slots=True)
class _Held:
    record: WindowRecord
    key: PrefixKey
    offset: int


class Shelf:
    """Windows that one fetch brought, by the window that each follows; made by Shelves.open.

    Attributes:
        on_taken: called when an engine took what follows its own windows, or cannot: it is met.
        num_taken: windows that it took.
        num_windows: of the chain up to the last of those.
        is_of_another: whether an engine asked for windows of these tokens, and what it had
            computed before them is not what these follow.
    """

    def __init__(self, shelves: Shelves, binding: Binding, on_taken: Callable[[], None]) -> None:
        self._shelves, self.binding, self.on_taken = shelves, binding, on_taken
        self.by_prev: dict[WindowId, _Held] = {}
        self.num_taken = self.num_windows = 0
        self.is_of_another = False

    async def put(
        self, record: WindowRecord, key: PrefixKey, particles: Sequence[memoryview | None]
    ) -> None:
        """Keep a window whose bytes were verified. Raises: ArenaExhausted."""
        await self._shelves.put(self, record, key, particles)

    def close(self) -> None:
        """Give back what nobody took. Idempotent."""
        self._shelves.close(self)

    def follows(self, prev: WindowId, tokens: Sequence[int]) -> list[_Held]:
        """The windows of these tokens that follow a window, in order."""
        found: list[_Held] = []
        size = self.binding.profile.block_size
        for start in range(0, len(tokens) - size + 1, size):
            held = self.by_prev.get(prev)
            if held is None or held.record.tokens != tuple(tokens[start : start + size]):
                break
            found.append(held)
            prev = held.record.window_id
        return found

    def has_at(self, position: int, tokens: Sequence[int]) -> bool:
        """Whether one of its windows is of the first of these tokens, at this position."""
        first = tuple(tokens[: self.binding.profile.block_size])
        return any(
            (held.record.position_start, held.record.tokens) == (position, first)
            for held in self.by_prev.values()
        )


class Shelves:
    """All that fetches hold ahead of engines. Owned by the trio thread."""

    def __init__(
        self,
        arena: SharedMemory,
        table: L1Table,
        records: Records,
        writer: Writer,
        arrivals: Arrivals,
    ) -> None:
        self._arena = arena
        self._table = table
        self._records = records
        self._writer = writer
        self._arrivals = arrivals
        self._open: list[Shelf] = []
        self._held_bytes = 0  # or about to be

    def room_for(self, binding: Binding) -> int:
        """How many more windows may be held."""
        most = self._table.total_bytes // _SHARE
        return max(0, most - self._held_bytes) // binding.profile.window_particle_bytes

    def open(self, binding: Binding, on_taken: Callable[[], None]) -> Shelf:
        """One for a fetch; whoever opens it closes it."""
        shelf = Shelf(self, binding, on_taken)
        self._open.append(shelf)
        return shelf

    async def put(
        self,
        shelf: Shelf,
        record: WindowRecord,
        key: PrefixKey,
        particles: Sequence[memoryview | None],
    ) -> None:
        """As Shelf.put."""
        size = shelf.binding.profile.window_particle_bytes
        whole = [particle for particle in particles if particle is not None]
        if len(whole) < len(particles):
            raise ValueError("all blocks of such a window are fetched")
        if not self.room_for(shelf.binding):
            raise ArenaExhausted("what is fetched ahead has its share of L1 already")
        self._held_bytes += size
        try:
            offset = (await make_room(self._table, self._writer, size, 1))[0]
        except BaseException:
            self._held_bytes -= size
            raise
        at = offset
        for particle in whole:
            self._arena.view[at : at + len(particle)] = particle
            at += len(particle)
        if shelf in self._open:
            shelf.by_prev[record.before] = _Held(record, key, offset)
        else:
            self._drop(shelf.binding, offset)

    async def adopt(
        self, binding: Binding, prev: WindowId | None, tokens: Sequence[int]
    ) -> list[WindowId]:
        """Have what follows a window become windows of L1, dirty. Returns: their names.

        Raises: NotFound where that window is not known, or is being forgotten.
        """
        base = prev or binding.root
        end = 0 if base == binding.root else await self._end_of(base)
        for shelf in self._open:
            if shelf.binding != binding:
                continue
            held = shelf.follows(base, tokens)
            if held:
                return self._enter(shelf, held)
            if shelf.has_at(end, tokens):
                shelf.is_of_another = True
                shelf.on_taken()
        return []

    def close(self, shelf: Shelf) -> None:
        """As Shelf.close."""
        if shelf in self._open:
            self._open.remove(shelf)
        while shelf.by_prev:
            _, held = shelf.by_prev.popitem()
            self._drop(shelf.binding, held.offset)

    async def _end_of(self, window_id: WindowId) -> int:
        """Where a window ends that is here at this moment."""
        hidden = self._records.hidden
        while True:
            seen = hidden.num_changes
            record = await trio.to_thread.run_sync(self._records.get_now, window_id)
            if record is None:
                raise NotFound(f"window {short(window_id)} is not known here")
            if hidden.num_changes == seen:
                return record.end

    def _enter(self, shelf: Shelf, found: Sequence[_Held]) -> list[WindowId]:
        profile = shelf.binding.profile
        names: list[WindowId] = []
        for held in found:
            name = held.record.window_id
            if name in self._records.hidden:
                break
            del shelf.by_prev[held.record.before]
            self._held_bytes -= profile.window_particle_bytes
            is_new = self._table.enter(
                held.offset, held.record, held.key, profile.particle_sizes, dirty=True
            )
            if is_new:
                self._writer.add(name)
            self._arrivals.add(name)
            names.append(name)
            shelf.num_windows = held.record.end // profile.block_size
        shelf.num_taken += len(names)
        shelf.on_taken()
        return names

    def _drop(self, binding: Binding, offset: int) -> None:
        self._held_bytes -= binding.profile.window_particle_bytes
        give_back(self._arena, self._table, [offset])
