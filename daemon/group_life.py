"""What goes on in groups by itself: epochs end, lists are signed anew, grants are renewed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial

import trio

from daemon import group_changes as changes
from daemon.group_file import GroupRow
from daemon.groups import Groups
from daemon.network_config import PEER_HINT, is_peer_address, peer_of
from daemon.peering import Peering
from daemon.reaching import reach
from glia.errors import (
    BadRequest,
    GliaError,
    MalformedParticle,
    NetworkError,
    NotPermitted,
    RemoteProtocolError,
)
from glia.graph.member import Card
from p2p.granting import GRANTS, HANDLER_S, ask_grants, granter
from p2p.host import Address, PeerId
from p2p.provider import InThreads, RunBlocking

RENEW_S = 45.0  # so that what is revoked is known within a minute
_MAX_ASKED = 4  # at once
_RESET_S = 1.0
_log = logging.getLogger("gliad.groups")


class GroupLife:
    """Of one node.

    Args:
        peering: None of a node without a network.
        run: how what waits for the disk is called.
    """

    def __init__(
        self, groups: Groups, peering: Peering | None, run: RunBlocking | None = None
    ) -> None:
        self._groups, self._peering, self._run = groups, peering, run or InThreads()
        self._asked = trio.CapacityLimiter(_MAX_ASKED)
        if peering is not None:
            groups.homes = self._homes
            peering.on_up.append(self._serve)

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._run(self._keep_house)
            if self._peering is not None:
                await self.renew()
            await trio.sleep(RENEW_S)

    async def renew(self) -> None:
        """Ask for the grants of all groups of which another node is the home."""
        homes = {row.homes for row in self._groups.all() if row.homes}
        async with trio.open_nursery() as nursery:
            for addresses in homes:
                nursery.start_soon(self._renew, addresses)

    async def join(self, addresses: Sequence[str]) -> list[GroupRow]:
        """The groups in which the node at these addresses grants this one something.

        Raises: NetworkError, BadRequest (no address, or a grant that contradicts what is
            known), MalformedParticle, RemoteProtocolError, NotPermitted, StoreError.
        """
        return await self.join_peer(await self._reached(addresses))

    async def join_peer(self, peer: PeerId) -> list[GroupRow]:
        """`join` by a peer that is connected, or whose address is known."""
        take = self._groups.take
        return [await self._run(partial(take, grant)) for grant in await self._ask(peer)]

    # -- inside ------------------------------------------------------------------------------

    def _network(self) -> Peering:
        if self._peering is None:
            raise NotPermitted("a node without a network asks nobody", hint="gliad group join FILE")
        return self._peering

    async def _reached(self, addresses: Sequence[str]) -> PeerId:
        host = self._network().host
        places = [Address(each) for each in addresses if is_peer_address(each)]
        if not places:
            raise BadRequest("no address of a peer", hint=PEER_HINT)
        peer = peer_of(places[0])
        if all(each.peer != peer for each in host.connections()):
            await reach(host, [place for place in places if peer_of(place) == peer])
        return peer

    async def _ask(self, peer: PeerId) -> list[bytes]:
        stream = await self._network().host.open(peer, GRANTS)
        try:
            return await ask_grants(stream, self._groups.card())
        finally:
            with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
                await stream.reset()

    async def _renew(self, addresses: tuple[str, ...]) -> None:
        async with self._asked:
            try:
                # names are looked up that the user gave: a grant's addresses have none
                places = [each for each in addresses if not each.startswith("/dns")]
                grants, renew = await self._ask(await self._reached(places)), self._groups.renew
                given = {await self._run(partial(renew, grant)) for grant in grants}
                for row in self._groups.all():
                    if row.homes == addresses and row.group_id not in given:
                        self._groups.ended(row.group_id)
            except (NetworkError, RemoteProtocolError) as error:
                _log.debug("no grant came: %s", error)
            except GliaError as error:
                _log.warning("a grant was not taken: %s", error)

    def _serve(self) -> None:
        if self._peering is not None:
            self._peering.host.serve(GRANTS, granter(self._answer), timeout_s=HANDLER_S)

    async def _answer(self, card: Card) -> list[bytes]:
        try:
            return await self._run(partial(self._groups.grants_for, card))
        except MalformedParticle as error:
            raise RemoteProtocolError(error.message) from error

    def _homes(self) -> list[str]:
        try:
            return [] if self._peering is None else list(self._peering.host.addresses())
        except NetworkError:
            return []

    def _keep_house(self) -> None:
        for row in self._groups.all():
            for how in (changes.expired, changes.rotated_if_due, changes.relisted):
                try:
                    self._groups.change(row.group_id, how)
                except GliaError as error:
                    _log.warning("group %s: %s", row.name, error)
