"""What is said over /glia/bulk/1, and the digest that binds the TCP connection to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import blake3
import msgspec
from msgspec import Meta

from glia.errors import RemoteProtocolError
from p2p.host import PeerId
from p2p.messages import Message

BULK = "/glia/bulk/1"
TICKET_BYTES = 32
BINDING_BYTES = 32
MAX_CERTIFICATE_BYTES = 1024

Role = Literal["client", "server"]
Certificate = Annotated[bytes, Meta(min_length=1, max_length=MAX_CERTIFICATE_BYTES)]


class OpenBulk(Message, frozen=True):
    """A bulk stream for a protocol, please. Answer: BulkTicket or BulkRefused.

    Attributes:
        certificate: the one that the client will show, X.509 DER.
    """

    protocol: Annotated[str, Meta(min_length=1, max_length=64)]
    certificate: Certificate


class BulkTicket(Message, frozen=True):
    """Connect to this TCP port, at the address this stream goes to, and show this ticket.

    Attributes:
        certificate: the one that the server will show, X.509 DER.
    """

    port: Annotated[int, Meta(ge=1, le=65_535)]
    ticket: Annotated[bytes, Meta(min_length=TICKET_BYTES, max_length=TICKET_BYTES)]
    certificate: Certificate


class BulkRefused(Message, frozen=True):
    """There is none: no room, or not that protocol."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """What both sides know once a ticket was given."""

    protocol: str
    client: PeerId
    server: PeerId
    client_certificate: bytes
    server_certificate: bytes
    ticket: bytes

    def binding(self, role: Role) -> bytes:
        """What that side says first inside TLS.

        It names both peers: a peer that passes another's certificate off as its own, to make
        two others talk who each take the other for it, is found out.
        """
        digest = blake3.blake3(derive_key_context=f"glia bulk 1 {role}")
        for field in (
            self.protocol.encode(),
            self.client.encode(),
            self.server.encode(),
            self.client_certificate,
            self.server_certificate,
            self.ticket,
        ):
            digest.update(len(field).to_bytes(4, "big") + field)
        return digest.digest()


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
