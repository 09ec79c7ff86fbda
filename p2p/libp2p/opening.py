"""Opening a stream: the protocol is agreed on in one round trip, where the library takes two."""

from __future__ import annotations

from libp2p.abc import INetStream
from libp2p.utils.varint import encode_delim, read_delim

from glia.errors import PeerRefused, RemoteProtocolError

_MULTISTREAM = b"/multistream/1.0.0"


async def agree(stream: INetStream, protocol: str) -> None:
    """Both questions of multistream-select in one write.

    Raises: PeerRefused, RemoteProtocolError, and what the stream raises.
    """
    await stream.write(encode_delim(_MULTISTREAM) + encode_delim(protocol.encode()))
    if await read_delim(stream) != _MULTISTREAM:
        raise RemoteProtocolError("the peer does not speak multistream-select")
    answer = await read_delim(stream)
    if answer == b"na":
        raise PeerRefused(f"peer {stream.muxed_conn.peer_id} does not speak {protocol}")
    if answer != protocol.encode():
        raise RemoteProtocolError("the peer answers with another protocol than it was asked for")
