"""All that a node does to be of use to its groups: what it shows members, and how they find it."""

from __future__ import annotations

import random

import trio

from daemon.conversations import Conversations
from daemon.group_announcer import GroupAnnouncer
from daemon.group_egress import GroupEgress
from daemon.group_publisher import GroupPublisher
from daemon.group_relaying import Relaying
from daemon.groups import Groups
from daemon.memory import Memory
from daemon.network_config import NetworkConfig
from daemon.peering import Peering
from daemon.shared import Shared


class GroupPublishing:
    """The parts of it, put together.

    Args:
        still: as GroupPublisher has it.
        groups: what is whose by right.

    Attributes:
        egress: what members may have.
        publisher: the one that publishes.
    """

    def __init__(
        self,
        memory: Memory,
        conversations: Conversations,
        peering: Peering,
        still: trio.Lock,
        network: NetworkConfig,
        shared: Shared,
        groups: Groups,
    ) -> None:
        counters = peering.counters
        self._token: trio.lowlevel.TrioToken | None = None
        self.egress = GroupEgress(shared.index, shared.raw, groups.check, counters)
        self.publisher = GroupPublisher(
            memory,
            conversations,
            shared,
            peering.published,
            peering.signer,
            still,
            network.announce_hold_s,
            counters,
        )
        self._announcer = GroupAnnouncer(
            peering,
            shared,
            random.Random(),  # noqa: S311 - no secret
            is_silent=network.announce == "off",
        )
        self._relaying = Relaying(groups, peering, shared, counters)
        self._relaying.on_kept = self._announcer.add_kept
        self.publisher.on_publish = self._announcer.add
        peering.on_up += [self._announcer.wake, self._relaying.wake]
        groups.on_change = self._groups_changed

    def _groups_changed(self) -> None:
        """In any thread."""
        if self._token is not None:
            self._token.run_sync_soon(self.publisher.look_anew)
            self._token.run_sync_soon(self._relaying.wake)

    async def run(self) -> None:
        """For ever."""
        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.publisher.run)
            nursery.start_soon(self._announcer.run)
            nursery.start_soon(self._relaying.run)
