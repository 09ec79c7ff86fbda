"""What a stream of a group begins with: who asks for what, and by what right. No answer to it.

See spec/group-exchange.md.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from glia.errors import RemoteProtocolError
from glia.graph.capability import MAX_CHAIN_BYTES
from glia.graph.group import GroupId
from p2p.frames import encode_frame, send_body
from p2p.host import Stream
from p2p.messages import Message, Name, encode

GROUP_FIND = "/glia/group/find/1"
GROUP_BLOCKS = "/glia/group/blocks/1"


class Show(Message, frozen=True):
    """A group, and the chain of tokens that its asker holds (glia/spec/14-capability.md)."""

    group: Name
    capability: Annotated[bytes, Meta(min_length=1, max_length=MAX_CHAIN_BYTES)]


_decoder = msgspec.msgpack.Decoder(Show)


def decode_show(content: bytes) -> Show:
    """Raises: RemoteProtocolError."""
    try:
        return _decoder.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"not what a group is shown: {error}") from error


async def show(stream: Stream, group: GroupId, capability: bytes) -> None:
    """Begin a stream. Raises: PeerLost."""
    await send_body(stream, encode_frame(encode(Show(group, capability))))
