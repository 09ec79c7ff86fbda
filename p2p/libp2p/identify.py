"""Who is at the other end: libp2p's identify, with what is kept of a peer bounded."""

from __future__ import annotations

import logging
from collections.abc import Callable

from google.protobuf.message import DecodeError
from libp2p.abc import IPeerStore
from libp2p.identity.identify.identify import ID as PROTOCOL
from libp2p.identity.identify.pb.identify_pb2 import Identify
from libp2p.identity.identify_push.identify_push import ID_PUSH as PUSH_PROTOCOL
from libp2p.peer.id import ID
from libp2p.utils.varint import decode_uvarint
from multiaddr import Multiaddr

from glia.errors import RemoteProtocolError
from p2p.host import PeerId, Stream
from p2p.libp2p.names import peer_object

MAX_BYTES = 16 * 1024
MAX_ADDRESSES = 16
MAX_PROTOCOLS = 64
MAX_AGENT_CHARS = 64
ADDRESS_LIFE_S = 7200
_log = logging.getLogger("gliad.p2p.libp2p")

__all__ = ["PROTOCOL", "PUSH_PROTOCOL", "Identities"]


class Identities:
    """What peers say of themselves.

    Args:
        peerstore: gets their addresses and protocols.
        on_identified: told of each peer that has said it.
    """

    def __init__(self, peerstore: IPeerStore, on_identified: Callable[[PeerId], None]) -> None:
        self._peerstore = peerstore
        self._on_identified = on_identified
        self._agents: dict[PeerId, str] = {}

    def agent(self, peer: PeerId) -> str:
        """Its software and version; empty while it has not said it."""
        return self._agents.get(peer, "")

    def forget(self, peer: PeerId) -> None:
        """It is not connected any more."""
        self._agents.pop(peer, None)

    async def receive(self, stream: Stream) -> None:
        """Read one message of a peer, as an answer or as a push.

        Raises: PeerLost, RemoteProtocolError.
        """
        size = decode_uvarint(await _varint(stream))
        if size > MAX_BYTES:
            raise RemoteProtocolError(f"an identify message of {size} bytes")
        data = bytearray()
        while len(data) < size:
            part = await stream.receive_some(size - len(data))
            if not part:
                raise RemoteProtocolError("an identify message that ends early")
            data += part
        message = Identify()
        try:
            message.ParseFromString(bytes(data))
        except DecodeError as error:
            raise RemoteProtocolError("not an identify message") from error
        self._keep(stream.peer, message)

    def _keep(self, peer: PeerId, message: Identify) -> None:
        object_ = peer_object(peer)
        addresses = _addresses(list(message.listen_addrs)[:MAX_ADDRESSES])
        self._replace_addresses(object_, addresses)
        self._peerstore.set_protocols(object_, list(message.protocols)[:MAX_PROTOCOLS])
        agent = message.agent_version[:MAX_AGENT_CHARS]
        self._agents[peer] = "".join(char for char in agent if char.isprintable())
        self._on_identified(peer)

    def _replace_addresses(self, peer: ID, addresses: list[Multiaddr]) -> None:
        if addresses:
            if self._peerstore.has_peer(peer):
                self._peerstore.clear_addrs(peer)
            self._peerstore.add_addrs(peer, addresses, ADDRESS_LIFE_S)


async def _varint(stream: Stream) -> bytes:
    """Raises: PeerLost, RemoteProtocolError."""
    data = b""
    while len(data) < 4:
        byte = await stream.receive_some(1)
        if not byte:
            raise RemoteProtocolError("no identify message")
        data += byte
        if byte[0] < 0x80:
            return data
    raise RemoteProtocolError("a length of more than 4 bytes")


def _addresses(encoded: list[bytes]) -> list[Multiaddr]:
    """Those that are well-formed."""
    found = []
    for each in encoded:
        try:
            address = Multiaddr(each)
            str(address)
        except Exception as error:  # the library raises what comes
            _log.debug("a peer's address is malformed: %r", error)
        else:
            found.append(address)
    return found
