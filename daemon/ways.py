"""How peers are asked for windows: in public, or in a group, by right and in ciphertexts.

What is searched, fetched and kept is the same either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import trio

from daemon.group_file import GroupRow
from daemon.network_config import is_peer_address, peer_of
from daemon.peering import Peering
from glia.errors import MalformedParticle
from glia.graph.capability import parse_chain
from glia.graph.claims import PeerKey
from glia.graph.domain import Domain, Salt
from glia.graph.group import GroupId
from glia.graph.ids import ModelId, PrefixKey
from glia.graph.member import MAX_EPOCHS, Keys
from p2p import peer_key
from p2p.asking import Asking, Asks
from p2p.asking import Keys as Asked
from p2p.group_asking import GroupAsking
from p2p.group_blocks import GroupBlocks
from p2p.host import PeerId, Stream
from p2p.membership import Ciphertexts, Membership
from p2p.messages import BLOCKS, FIND
from p2p.showing import GROUP_BLOCKS, GROUP_FIND, show

_RESET_S = 1.0


class Way(Protocol):
    """One way, for one search and what it finds.

    Attributes:
        salt: of the group in whose domain the windows are.
    """

    peering: Peering
    salt: Salt | None

    def peers_of(self, model_id: ModelId, keys: Sequence[PrefixKey]) -> list[PeerId]:
        """Whom to ask, the best first."""

    def vouches(self, peer: PeerId) -> bool:
        """Whether what is found may be used, whoever computed it."""

    def names(self, keys: Asked) -> Asked:
        """Under what the directory is asked for keys."""

    def asks(self, stream: Stream) -> Asks:
        """What speaks over such a stream."""

    def chose(self, peer: PeerId) -> None:
        """Whose chain was found."""

    async def open_find(self, peer: PeerId) -> Stream:
        """To ask it. Raises: NetworkError."""

    async def open_blocks(self, peer: PeerId) -> Stream:
        """To fetch from it, blocks by their own names. Raises: NetworkError."""


class InPublic:
    """See Way."""

    salt: Salt | None = None

    def __init__(self, peering: Peering) -> None:
        self.peering = peering

    def peers_of(self, model_id: ModelId, keys: Sequence[PrefixKey]) -> list[PeerId]:
        """See Way."""
        return self.peering.peers_of(model_id, keys)

    def vouches(self, peer: PeerId) -> bool:
        """See Way."""
        return self.peering.believing.passes_on(peer)

    def names(self, keys: Asked) -> Asked:
        """See Way."""
        return keys

    def asks(self, stream: Stream) -> Asks:
        """See Way."""
        return Asking(stream)

    def chose(self, peer: PeerId) -> None:
        """See Way."""

    async def open_find(self, peer: PeerId) -> Stream:
        """See Way."""
        return await self.peering.open_stream(peer, FIND)

    async def open_blocks(self, peer: PeerId) -> Stream:
        """See Way."""
        return await self.peering.open_stream(peer, BLOCKS)


class InGroup:
    """See Way. Only those are asked that are known to be in the group, or that the user named, and
    who is found by what only members can look for: whoever is asked learns that this node is.

    Args: members: the first of those.
    """

    def __init__(
        self, peering: Peering, salt: Salt, membership: Membership, members: Sequence[PeerId]
    ) -> None:
        self.peering = peering
        self.salt: Salt | None = salt
        self._membership, self._members = membership, members
        self._known = Ciphertexts(membership)
        self._first = PeerId("")

    def peers_of(self, _model: ModelId, _keys: Sequence[PrefixKey]) -> list[PeerId]:
        """See Way."""
        ledger = self.peering.ledger
        found = dict.fromkeys([*self._members, *self.peering.kept.peers()])
        return ledger.ranked(peer for peer in found if not ledger.is_banned(peer))

    def vouches(self, _peer: PeerId) -> bool:
        """See Way. What opens was sealed by a member, whoever sent it."""
        return True

    def names(self, keys: Asked) -> Asked:
        """See Way. Aliases of the newest epoch: who was removed cannot look for them."""
        return [(num, next(self._membership.aliases(key))) for num, key in keys]

    def asks(self, stream: Stream) -> Asks:
        """See Way."""
        return GroupAsking(stream, self._known)

    def chose(self, peer: PeerId) -> None:
        """See Way."""
        self._first = peer

    async def open_find(self, peer: PeerId) -> Stream:
        """See Way."""
        return await self._open(peer, GROUP_FIND)

    async def open_blocks(self, peer: PeerId) -> Stream:
        """See Way."""
        stream = await self._open(peer, GROUP_BLOCKS)
        return GroupBlocks(stream, lambda name: self._known.block(peer, self._first, name))

    async def _open(self, peer: PeerId, protocol: str) -> Stream:
        stream = await self.peering.open_stream(peer, protocol)
        try:
            await show(stream, self._membership.group, self._membership.capability)
        except BaseException:
            with trio.CancelScope(deadline=trio.current_time() + _RESET_S, shield=True):
                await stream.reset()
            raise
        return stream


class Rights(Protocol):
    """What it needs of daemon.groups.Groups."""

    def row(self, group: GroupId) -> GroupRow:
        """Raises: NotFound."""

    def keys(self, group: GroupId) -> Keys | None:
        """Its secret and epochs; None where this node is not in it."""

    def capability(self, group: GroupId) -> bytes:
        """What to show others of the group. Raises: NotFound, NotPermitted."""


def in_group(peering: Peering, rights: Rights, domain: Domain) -> InGroup | None:
    """The way to a group's members; None where this node is not in it.

    Raises: NotFound, NotPermitted (what it may is over).
    """
    keys = rights.keys(domain.group)
    if keys is None:
        return None
    salt = Salt(domain.group, domain.start, keys.secret)
    epochs = keys.epochs[-MAX_EPOCHS:]
    membership = Membership(domain.group, epochs, rights.capability(domain.group))
    members = members_of(rights.row(domain.group))
    ours = peering.host.peer_id
    return InGroup(peering, salt, membership, [each for each in members if each != ours])


def members_of(row: GroupRow) -> list[PeerId]:
    """Peers that are known to be in a group: where its grants are had, who handed them on, and
    whom this node granted something."""
    keys: list[bytes] = []
    with suppress(MalformedParticle):
        keys += [token.claims.holder for token in parse_chain(row.chain).tokens]
    for member in row.members:
        keys += [*member.holders, *filter(None, [member.peer])]
    named = [PeerId(peer_of(each)) for each in row.homes if is_peer_address(each)]
    return list(dict.fromkeys([*named, *(peer_key.peer_of(PeerKey(key)) for key in keys)]))
