"""A node keeps and serves what groups show that it cannot read: ciphertexts, by public names.

It asks those that granted it, and peers that its user named, again and again. Members ask it as
they ask each other; nothing here knows a key.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import trio

from daemon.groups import Groups
from daemon.peering import Peering
from daemon.shared import Shared
from daemon.ways import members_of
from glia.errors import GliaError, IntegrityError, NotFound, RemoteProtocolError
from glia.graph.encrypted import EncryptedWindow
from glia.graph.group import GroupId
from glia.graph.ids import ModelId, PrefixKey, WindowId
from glia.store.base import EncryptedDown
from glia.store.group_rows import GroupLink, GroupWindow
from p2p.group_relay import FIRST, GROUP_RELAY, RelayAsking, Row, take_blocks
from p2p.host import PeerId, Stream
from p2p.provider import InThreads, RunBlocking
from p2p.showing import GROUP_BLOCKS, show

LOOK_S = 30.0
_PEER_S = 600.0  # for what is new at one peer; the rest comes the next time
_RESET_S = 1.0
_NO_MODEL = ModelId(bytes(32))  # it is not told of which model windows are
_log = logging.getLogger("gliad.relaying")


class Relaying:
    """Of one node.

    Args:
        call: how the disk is called.

    Attributes:
        on_kept: told of all once after a start, then of what came.
    """

    def __init__(
        self,
        groups: Groups,
        peering: Peering,
        shared: Shared,
        counters: Counter[str],
        call: RunBlocking | None = None,
    ) -> None:
        self._groups, self._peering, self._shared = groups, peering, shared
        self._counters, self._call = counters, call or InThreads(1)
        self._told: set[GroupId] = set()
        self._wanted = trio.Event()
        self.on_kept: Callable[[GroupId, Sequence[GroupWindow]], None] = lambda *_: None

    def wake(self) -> None:
        """There may be a group more, or a network."""
        self._wanted.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            self._wanted = trio.Event()
            await self.look()
            with trio.move_on_after(LOOK_S):
                await self._wanted.wait()

    async def look(self) -> None:
        """Take what is new of all groups that are relayed here."""
        for row in self._groups.all():
            if not row.is_relay:
                continue
            await self._tell_kept(row.group_id)
            named = dict.fromkeys([*members_of(row), *self._peering.kept.peers()])
            for peer in named:
                await self._look_at(row.group_id, peer)

    async def _tell_kept(self, group: GroupId) -> None:
        if group not in self._told:
            index = self._shared.index
            names = await self._call(partial(index.names, group))
            rows = [await self._call(partial(index.window, group, name)) for name in names]
            self.on_kept(group, [row for row in rows if row is not None])
            self._told.add(group)

    async def _look_at(self, group: GroupId, peer: PeerId) -> None:
        if self._peering.why_off or peer == self._peering.host.peer_id:
            return
        try:
            with trio.move_on_after(_PEER_S):
                async with self._open(group, peer, GROUP_RELAY) as stream:
                    await self._take_all(group, peer, RelayAsking(stream))
        except (IntegrityError, RemoteProtocolError) as error:
            _log.warning("what is relayed does not come from %s: %s", peer, error)
            self._counters["group_relay_refused"] += 1
        except GliaError as error:
            _log.debug("what is relayed does not come from %s: %s", peer, error)

    async def _take_all(self, group: GroupId, peer: PeerId, asking: RelayAsking) -> None:
        after: bytes | None = None
        while after != FIRST:
            said = await asking.tips(after or FIRST)
            for name in map(WindowId, said.names):
                if not await self._is_here(group, name):
                    await self._take(group, peer, asking, name)
            after = said.next

    async def _take(self, group: GroupId, peer: PeerId, asking: RelayAsking, tip: WindowId) -> None:
        """A chain, window by window: what has come stays. Raises: as `_look_at` expects it."""
        kept: list[GroupWindow] = []
        try:
            found = await asking.rows(tip, partial(self._is_here, group))
            async with self._open(group, peer, GROUP_BLOCKS) as stream:
                for window, row in found:
                    particles = await take_blocks(stream, window)
                    keep = partial(self._keep, group, window, row, particles)
                    kept.append(await self._call(keep))
                    self._counters["group_windows_relayed"] += 1
        except NotFound as error:  # it went meanwhile, or is too large
            _log.debug("a chain is not relayed: %s", error)
        finally:
            self.on_kept(group, kept)

    async def _is_here(self, group: GroupId, name: WindowId) -> bool:
        return await self._call(partial(self._shared.is_here, group, name))

    def _keep(
        self, group: GroupId, window: EncryptedWindow, said: Row, particles: Sequence[bytes]
    ) -> GroupWindow:
        """In a worker thread. Raises: StoreBroken, StoreFull, NotFound."""
        alias = PrefixKey(said.alias)
        self._shared.raw.put([EncryptedDown(window, alias, particles)])
        row = GroupWindow(
            window.window_id, said.num_windows, said.hold_until_s, _NO_MODEL, alias, window.encoding
        )
        links = [
            (row.name, GroupLink(each.num_before, WindowId(each.base), each.sealed))
            for each in said.links
        ]
        self._shared.index.put(group, [row], links)
        return row

    @asynccontextmanager
    async def _open(self, group: GroupId, peer: PeerId, protocol: str) -> AsyncIterator[Stream]:
        capability = self._groups.capability(group)
        stream = await self._peering.open_stream(peer, protocol)
        try:
            await show(stream, group, capability)
            yield stream
        finally:
            with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
                await stream.reset()
