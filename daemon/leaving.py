"""A node leaves a group: what it keeps of it is erased in every tier, and then the keys are.

In this order, as by the keys it is found. What was said stays in the conversations that said it;
they go on with names and windows as those of what is private.
"""

from __future__ import annotations

import trio

from daemon.conversations import Conversations
from daemon.engines import Engines
from daemon.erasing import erase, erase_in_engines, until_given_up_ended
from daemon.groups import Groups
from daemon.memory import Memory
from daemon.telling import Tell
from glia.errors import ConversationBusy
from glia.graph.group import GroupId
from glia.graph.ids import WindowId
from glia.store.base import Forgotten
from glia.store.group_index import GroupIndex
from glia.store.vault import Vault


class Leaving:
    """Of one node.

    Args:
        vault: L2, as the memory has it.
        still: held while windows go.
        index: of what is shown to groups; None where that is not open.
    """

    def __init__(
        self,
        memory: Memory,
        vault: Vault,
        groups: Groups,
        conversations: Conversations,
        engines: Engines,
        still: trio.Lock,
        index: GroupIndex | None = None,
    ) -> None:
        self._memory, self._vault, self._groups = memory, vault, groups
        self._conversations, self._engines, self._still = conversations, engines, still
        self._index = index

    async def leave(self, group: GroupId, tell: Tell) -> Forgotten:
        """Returns: what went.

        Raises: NotFound, ConversationBusy (something is being answered in it, or somebody has
            leased its windows), StoreBroken, StoreFull (this node is in it still).
        """
        self._check_running(group)
        with self._groups.leaving(group):
            links = self._engines.links()
            async with self._still:
                await until_given_up_ended(links, tell)
                gone = await self._erase(group, tell)
            await erase_in_engines(links, tell)
            await trio.to_thread.run_sync(self._groups.leave, group)
        return gone

    def _check_running(self, group: GroupId) -> None:
        """Raises: ConversationBusy."""
        row = self._groups.row(group)
        if any(running.group == group for _, running in self._conversations.running()):
            raise ConversationBusy(
                f"something is being answered in group {row.name}",
                hint="ask again when that has ended: gliad ps shows what runs",
            )

    async def _erase(self, group: GroupId, tell: Tell) -> Forgotten:
        memory = self._memory
        names = set(await trio.to_thread.run_sync(self._vault.of_group, group))
        names |= self._in_l1(group)
        if self._index is not None and self._groups.row(group).is_relay:
            names |= set(await trio.to_thread.run_sync(self._index.names, group))
        holders = memory.leases.holders_of(names)
        if holders:
            raise ConversationBusy(
                f"{', '.join(holders)} has leased windows of the group",
                hint="ask again when that process has given them back, or end it",
            )
        memory.hidden.hide(names)
        try:
            return await erase(memory, names, tell)
        finally:
            memory.hidden.show(names)

    def _in_l1(self, group: GroupId) -> set[WindowId]:
        """Also what is not on disk yet."""
        table = self._memory.table
        records = map(table.record, table.names())
        return {each.window_id for each in records if each is not None and each.group == group}
