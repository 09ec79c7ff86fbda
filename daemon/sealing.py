"""Seal calls: checked, copied and named in groups, entered into L1, queued for L2."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import trio

from daemon.arena import SharedMemory
from daemon.binding import Binding
from daemon.l1 import L1Table
from daemon.loading import give_back, make_room_behind
from daemon.records import Records
from daemon.seal import Anchor, Sealed, seal_windows
from daemon.writer import Writer
from glia.errors import BadRequest, NotFound
from glia.graph.domain import Salt
from glia.graph.ids import WindowId, short
from glia.graph.numerics import may_continue
from glia.graph.profile import MAX_POSITION
from glia.local.messages import Seal

_GROUP_BYTES = 8 * 1024 * 1024  # sealed at once: the writer and the trio thread go on meanwhile


@dataclass(frozen=True, slots=True)
class Names:
    """The windows of one Seal call, and how many of them were known before."""

    windows: list[WindowId]
    num_known: int


class Sealer:
    """Names what clients computed.

    Attributes:
        on_acquit: called with windows that were condemned, and are what was computed here.
    """

    def __init__(
        self, arena: SharedMemory, table: L1Table, records: Records, writer: Writer
    ) -> None:
        self._arena = arena
        self._table = table
        self._records = records
        self._hidden = records.hidden
        self._writer = writer
        self.on_acquit: Callable[[Sequence[WindowId]], None] = lambda _: None

    async def seal(self, binding: Binding, staging: memoryview, call: Seal) -> Names:
        """Name the call's windows.

        Args:
            staging: the client's whole staging area.
        Raises:
            BadRequest: the call does not fit its staging, its model or what it continues.
            NotFound: the window it continues is not known.
            ArenaExhausted: L1 has no room, and waiting for the disk does not make any.
        """
        source = _payloads(binding, staging, call)
        salt = self._salt(binding, call)
        seen = self._hidden.num_changes  # since when what is continued is known to be there
        anchor = await trio.to_thread.run_sync(self._anchor, binding, call)
        self._table.heat(anchor.window_id, call.num_steps)
        names: list[WindowId] = []
        num_known = 0
        size, step = binding.profile.block_size, binding.profile.window_payload_bytes
        while len(names) * size < len(call.tokens):
            done = len(names)
            offsets = await self._room(binding, len(call.tokens) // size - done)
            tokens = call.tokens[done * size : (done + len(offsets)) * size]
            payloads = source[done * step : (done + len(offsets)) * step]
            sealed, known = await self._fill(binding, anchor, tokens, payloads, offsets, salt)
            made = [anchor.window_id, *(window.record.window_id for window in sealed)]
            self._acquit(made)
            if self._hidden.num_changes != seen or any(name in self._hidden for name in made):
                give_back(self._arena, self._table, offsets)
                seen = await self._until_forgotten(binding, made)
                continue
            num_known += self._enter(binding, sealed, known)
            names += [window.record.window_id for window in sealed]
            anchor = sealed[-1].end
        if call.num_steps:
            self._table.keep_hot(names[-1])
        return Names(names, num_known)

    async def _until_forgotten(self, binding: Binding, made: Sequence[WindowId]) -> int:
        """Wait until windows that are being forgotten are gone; then they can be made anew.

        Args:
            made: the window that they continue, and theirs.
        Returns: the number of changes since which what they continue is there.
        Raises: NotFound where what they continue is among those.
        """
        anchor = made[0]
        if anchor in self._hidden.condemned:
            raise _unknown(anchor)
        await self._hidden.until_shown(made)
        seen = self._hidden.num_changes
        if anchor != binding.root:
            record = await trio.to_thread.run_sync(self._records.get_now, anchor)
            if record is None:
                raise _unknown(anchor)
        return seen

    def _acquit(self, made: Sequence[WindowId]) -> None:
        """What was computed here is true, whoever attests the same; if what it continues is.

        Args: made: the window that is continued, and those that were computed.
        """
        if made[0] in self._hidden.condemned:
            return
        condemned = [name for name in made[1:] if name in self._hidden.condemned]
        if condemned:
            self._hidden.acquit(condemned)
            self.on_acquit(condemned)

    async def _room(self, binding: Binding, count: int) -> list[int]:
        size = binding.profile.window_particle_bytes
        count = min(count, max(1, _GROUP_BYTES // size))
        return await make_room_behind(self._table, self._writer, size, count)

    async def _fill(
        self,
        binding: Binding,
        anchor: Anchor,
        tokens: Sequence[int],
        payloads: memoryview,
        offsets: Sequence[int],
        salt: Salt | None,
    ) -> tuple[list[Sealed], list[bool]]:
        """Seal in a worker thread; also whether each window was known."""

        def fill() -> tuple[list[Sealed], list[bool]]:
            arena = self._arena.view
            sealed = seal_windows(binding, anchor, tokens, payloads, arena, offsets, salt)
            known = [self._records.get_now(w.record.window_id) is not None for w in sealed]
            return sealed, known

        try:
            return await trio.to_thread.run_sync(fill)
        except BaseException:
            give_back(self._arena, self._table, offsets)
            raise

    def _enter(self, binding: Binding, sealed: Sequence[Sealed], known: Sequence[bool]) -> int:
        """Enter windows into L1; the new ones are dirty. Returns how many were known."""
        sizes = binding.profile.particle_sizes
        num_known = 0
        for window, is_known in zip(sealed, known, strict=True):
            is_new = self._table.enter(
                window.offset, window.record, window.key, sizes, dirty=not is_known
            )
            num_known += is_known or not is_new
            if is_new and not is_known:
                self._writer.add(window.record.window_id)
        return num_known

    def _salt(self, binding: Binding, call: Seal) -> Salt | None:
        """Raises: BadRequest, NotFound."""
        if call.domain is None:
            return None
        domain = call.domain.domain()
        if domain.start % binding.profile.block_size:
            raise BadRequest(f"no domain begins at position {domain.start}")
        return self._records.domains.salt(domain)

    def _anchor(self, binding: Binding, call: Seal) -> Anchor:
        """What the call continues, looked up and checked."""
        if call.prev is None or call.prev == binding.root:
            if call.position_start:
                raise BadRequest("a chain starts at position 0")
            return Anchor(binding.root, binding.root_blocks, binding.root_key, 0)
        prev = WindowId(call.prev)
        record = self._records.get(prev)
        if record is None:
            raise _unknown(prev)
        if not binding.fits(record):
            raise BadRequest(f"window {short(prev)} is of another model or profile")
        if record.end != call.position_start:
            raise BadRequest(f"position {call.position_start} does not follow {short(prev)}")
        if not may_continue(binding.numerics_class, record.numerics_class):
            raise BadRequest(f"{short(prev)} is not canonical: no canonical window follows it")
        return Anchor(prev, record.blocks, self._records.key_of(binding, record), record.end)


def _unknown(window_id: WindowId) -> NotFound:
    return NotFound(f"window {short(window_id)} is not known here")


def _payloads(binding: Binding, staging: memoryview, call: Seal) -> memoryview:
    """The call's part of the staging area. Raises: BadRequest."""
    count, rest = divmod(len(call.tokens), binding.profile.block_size)
    if rest or not count:
        raise BadRequest(f"{len(call.tokens)} tokens are not whole windows")
    if call.position_start + len(call.tokens) > MAX_POSITION:
        raise BadRequest(f"a chain cannot be longer than {MAX_POSITION} tokens")
    length = count * binding.profile.window_payload_bytes
    if call.offset + length > len(staging):
        raise BadRequest(f"{length} bytes at {call.offset} do not fit the staging area")
    return staging[call.offset : call.offset + length]
