"""All that a node does to be of use to others: what it shows them, and how they learn of it."""

from __future__ import annotations

import random

import trio

from daemon.announcer import Announcer
from daemon.attachments import Attachments
from daemon.conversations import Conversations
from daemon.egress import Egress
from daemon.group_publishing import GroupPublishing
from daemon.groups import Groups
from daemon.hearing import Hearing
from daemon.memory import Memory
from daemon.network_config import NetworkConfig
from daemon.peering import Peering
from daemon.publisher import Publisher
from daemon.shared import Shared
from daemon.withdrawing import Withdrawing, Withdrawn


class Publishing:
    """The parts of it, put together.

    Args:
        still: as Publisher has it.

    Attributes:
        publisher: the one that publishes.
        in_groups: the same for groups.
        hold_s: how long what was published is not announced; None: for ever.
    """

    def __init__(
        self,
        memory: Memory,
        conversations: Conversations,
        attachments: Attachments,
        peering: Peering,
        still: trio.Lock,
        network: NetworkConfig,
        shared: Shared,
        groups: Groups,
    ) -> None:
        egress = Egress(peering.published, memory.store)
        self.in_groups = GroupPublishing(
            memory, conversations, peering, still, network, shared, groups
        )
        in_groups = self.in_groups.egress
        peering.serve(egress, in_groups.offer_of, in_groups.catalogue_of)
        self._hearing = Hearing(peering)
        self._announcer = Announcer(
            peering,
            self._hearing,
            egress.has_window,
            lambda: [each.model_id for each in attachments.all()],
            random.Random(),  # noqa: S311 - no secret
            keep=lambda tip: memory.store.touch([tip]),
            replicas=network.replicas,
            is_silent=network.announce == "off",
        )
        self.publisher = Publisher(
            memory,
            conversations,
            peering.published,
            peering.signer,
            still,
            network.announce_hold_s,
            peering.counters,
        )
        self._withdrawing = Withdrawing(
            conversations, attachments, peering.published, still, shared
        )
        self.hold_s = None if network.announce == "off" else network.announce_hold_s
        self.publisher.on_publish = self._announcer.wake
        peering.on_up += [self._hearing.join_again, self._announcer.wake]

    def conversations_changed(self) -> None:
        """As Conversations.on_change tells it."""
        self.publisher.wake()
        self.in_groups.publisher.wake()

    def models_changed(self) -> None:
        """As Attachments.on_change tells it."""
        self._announcer.wake()

    async def withdraw(self, name: str) -> Withdrawn:
        """As Withdrawing.withdraw. What others show of it, too, is published again."""
        try:
            return await self._withdrawing.withdraw(name)
        finally:
            self.publisher.look_anew()
            self.in_groups.publisher.look_anew()

    async def run(self) -> None:
        """For ever."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hearing.run)
            nursery.start_soon(self._announcer.run)
            nursery.start_soon(self.publisher.run)
            nursery.start_soon(self.in_groups.run)
