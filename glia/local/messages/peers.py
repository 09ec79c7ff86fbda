"""Messages about the network: who this node is there, and the peers that it knows."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from glia.local.messages.base import Call, Reply
from glia.local.network_values import HolderValue, PeerValue
from glia.local.values import Count, Label, Name, SourceValue, Tokens

MAX_PEER_TEXT = 128  # characters
PeerText = Annotated[str, Meta(min_length=1, max_length=MAX_PEER_TEXT)]


class Identity(Call, frozen=True):
    """Who this node is on the network. Failed `network` where it is offline."""


class IdentityReply(Reply, frozen=True):
    """`addresses`: where it can be dialled; none while the network is off."""

    peer_id: str
    neuron: Name
    addresses: list[str]


class Peers(Call, frozen=True):
    """All peers that are known: those connected, then the last seen, from number `start` on."""

    start: Count = 0


class PeersReply(Reply, frozen=True):
    peers: list[PeerValue]
    total: int


class AddPeer(Call, frozen=True):
    """Know a peer: dial it now, and again whenever it is not connected.

    Reply: PeersReply of the one, connected or not.
    """

    address: Annotated[str, Meta(min_length=1, max_length=512)]


class ForgetPeer(Call, frozen=True):
    """Disconnect a peer and know nothing of it. `peer`: its id, or how that ends. Reply: Done."""

    peer: PeerText


class BanPeer(Call, frozen=True):
    """Refuse a peer from now on, or no longer. Reply: PeersReply of the one."""

    peer: PeerText
    banned: bool = True


class Fetch(Call, frozen=True):
    """Have a particle, from peers. Events: Progress.

    name: of a block or a window record.
    whole: of a window have the whole chain that it ends; else the particle alone, in the reply.
    """

    name: Name
    whole: bool = True


class FetchReply(Reply, frozen=True):
    """What came, and from whom.

    kind: block, window, or chain.
    num_windows, num_tokens: of the chain; num_fetched: windows that were not here.
    particle: of a block or a window; empty of a chain, which is in L2 now.
    """

    kind: str
    sources: list[SourceValue]
    num_windows: int = 0
    num_fetched: int = 0
    num_tokens: int = 0
    numerics_class: str = ""
    particle: bytes = b""


class Where(Call, frozen=True):
    """Who has how much of a prompt. Peers are asked by its prefix keys; nothing is fetched.

    Attributes:
        dtype: of the model; None for its own.
    """

    model: Label
    tokens: Tokens
    dtype: str | None = None


class WhereReply(Reply, frozen=True):
    """Those that have some of it, the most first; and how many were asked, and answered."""

    holders: list[HolderValue]
    num_asked: int
    num_answered: int
