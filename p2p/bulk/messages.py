"""What is said over /glia/bulk/3."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from glia.errors import RemoteProtocolError
from p2p.messages import Message

BULK = "/glia/bulk/3"
TICKET_BYTES = 32
SHARE_BYTES = 32

Share = Annotated[bytes, Meta(min_length=SHARE_BYTES, max_length=SHARE_BYTES)]


class OpenBulk(Message, frozen=True):
    """A bulk stream for a protocol, please. Answer: BulkTicket or BulkRefused.

    Attributes:
        share: the client's public key of X25519, made for this stream.
    """

    protocol: Annotated[str, Meta(min_length=1, max_length=64)]
    share: Share


class BulkTicket(Message, frozen=True):
    """Connect to this TCP port, at the address this stream goes to, and show what follows from it.

    Attributes:
        share: the server's public key of X25519, made for this stream.
    """

    port: Annotated[int, Meta(ge=1, le=65_535)]
    ticket: Annotated[bytes, Meta(min_length=TICKET_BYTES, max_length=TICKET_BYTES)]
    share: Share


class BulkRefused(Message, frozen=True):
    """There is none: no room, or not that protocol."""


_open = msgspec.msgpack.Decoder(OpenBulk)
_answer: msgspec.msgpack.Decoder[BulkTicket | BulkRefused] = msgspec.msgpack.Decoder(
    BulkTicket | BulkRefused
)


def decode_open(content: bytes) -> OpenBulk:
    """Raises: RemoteProtocolError."""
    try:
        return _open.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError("not a question for a bulk stream") from error


def decode_answer(content: bytes) -> BulkTicket | BulkRefused:
    """Raises: RemoteProtocolError."""
    try:
        return _answer.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError("not an answer about a bulk stream") from error
