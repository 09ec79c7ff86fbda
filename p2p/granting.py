"""How members come by grants: they show a card, and are given what is theirs (spec/granting.md).

Asked again and again: so what is renewed, rotated and revoked reaches whoever is a member still.
Who is none gets what whoever has nothing gets: the end of the stream.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from glia.errors import MalformedParticle, RemoteProtocolError
from glia.graph.grant import MAX_GRANT_BYTES
from glia.graph.member import MAX_CARD_BYTES, Card, parse_card
from p2p.frames import Reader, encode_frame, send_body
from p2p.host import Stream
from p2p.peer_key import key_of

GRANTS = "/glia/group/1"
MAX_GRANTS = 64  # in one answer
HANDLER_S = 30.0
_TIMEOUT_S = 10.0
_log = logging.getLogger("gliad.p2p.granting")

Answer = Callable[[Card], Awaitable[Sequence[bytes]]]


def granter(answer: Answer) -> Callable[[Stream], Awaitable[None]]:
    """The handler of /glia/group/1. Args: answer: the grants of a card's node; never raises."""

    async def give(stream: Stream) -> None:
        """Raises: PeerLost, RemoteProtocolError."""
        said = await Reader(stream).frame(_TIMEOUT_S)
        if said is None:
            return
        card = _card(said, stream)
        for grant in (await answer(card))[:MAX_GRANTS]:
            await send_body(stream, encode_frame(grant))
        await stream.finish()

    return give


def _card(said: bytes, stream: Stream) -> Card:
    """The card of the peer at the other end. Raises: RemoteProtocolError."""
    if len(said) > MAX_CARD_BYTES:
        raise RemoteProtocolError(f"a card cannot be {len(said)} bytes")
    try:
        card = parse_card(said)
    except MalformedParticle as error:
        raise RemoteProtocolError(error.message) from error
    if card.peer != key_of(stream.peer):
        raise RemoteProtocolError("a card of another node")
    return card


async def ask_grants(stream: Stream, card: bytes) -> list[bytes]:
    """What the peer at the other end grants the node whose card this is.

    Raises: PeerLost, RemoteProtocolError.
    """
    await send_body(stream, encode_frame(card))
    await stream.finish()
    reader, grants = Reader(stream), list[bytes]()
    while (grant := await reader.frame(_TIMEOUT_S)) is not None:
        if len(grant) > MAX_GRANT_BYTES or len(grants) == MAX_GRANTS:
            raise RemoteProtocolError("grants that are too large, or too many")
        grants.append(grant)
    return grants
